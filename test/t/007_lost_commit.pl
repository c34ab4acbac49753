# The client sends COMMIT and the connection is cut: it does not know whether the transaction
# happened.  It reconnects, asks again, and the verdict tells.
use strict;
use warnings;
use FindBin;
use lib $FindBin::RealBin;
use IdemTest;
use Test::More;

my $node = start_node('lost_commit');
my $user = answer($node, 'SELECT current_user');

$node->safe_psql(
	'postgres', q{
	CREATE TABLE ledger (key text);
	CREATE FUNCTION pause() RETURNS trigger LANGUAGE plpgsql
		AS $$BEGIN PERFORM pg_sleep(0.3); RETURN NULL; END$$;
	CREATE CONSTRAINT TRIGGER pause AFTER INSERT ON ledger DEFERRABLE INITIALLY DEFERRED
		FOR EACH ROW WHEN (new.key LIKE 'slow%') EXECUTE FUNCTION pause();
	SELECT idem_define_operation('CREDIT');
	SELECT idem_define_operation('REFUND', effect => 'external', lease => '100 ms',
		channel_queryable => true, absence_visible_after => '0');
	SELECT idem_define_operation('PAYOUT', effect => 'external', lease => '100 ms');
});

# ---- a client that can be cut off anywhere: the protocol by hand ----

sub read_bytes
{
	my ($socket, $length) = @_;
	my $bytes = '';

	while (length $bytes < $length)
	{
		sysread($socket, $bytes, $length - length $bytes, length $bytes)
		  or die "the server has closed the connection";
	}
	return $bytes;
}

# reads until the server is ready; dies of an error
sub read_answer
{
	my ($socket) = @_;

	while (1)
	{
		my ($type, $length) = unpack('aN', read_bytes($socket, 5));
		my $body = read_bytes($socket, $length - 4);
		return if $type eq 'Z';
		die "the server says: $body" if $type eq 'E';
	}
}

sub query_message
{
	my ($sql) = @_;
	return pack('aNZ*', 'Q', 4 + length($sql) + 1, $sql);
}

sub connect_by_hand
{
	my $socket = $node->raw_connect;
	my $startup = pack('NZ*Z*Z*Z*x', 196608, 'user', $user, 'database', 'postgres');

	syswrite($socket, pack('N', 4 + length $startup) . $startup);
	read_answer($socket);
	return $socket;
}

# Does all that, and then sends the first bytes of COMMIT (all, unless told otherwise) and is gone.
sub cut_at_commit
{
	my ($nbytes, @statements) = @_;
	my $socket = connect_by_hand();
	my $commit = query_message('COMMIT');

	foreach my $sql ('BEGIN', @statements)
	{
		syswrite($socket, query_message($sql));
		read_answer($socket);
	}
	syswrite($socket, substr($commit, 0, $nbytes // length $commit));
	close($socket);
}

sub wait_for_end
{
	$node->poll_query_until('postgres',
		"SELECT count(*) = 0 FROM pg_stat_activity WHERE application_name = '' AND
		backend_type = 'client backend' AND pid <> pg_backend_pid()")
	  or die 'the session that was cut does not end';
}

sub settle
{
	my ($key) = @_;

	return "SELECT idem_complete('$key', generation, '{\"ok\": true}')
		FROM idem_claim('$key', '{\"amount\": 10}')";
}

sub claim
{
	my ($key) = @_;

	return answer($node,
		"BEGIN; SELECT outcome, generation, result FROM idem_claim('$key', '{\"amount\": 10}');
		ROLLBACK");
}

sub effects
{
	my ($key) = @_;
	return answer($node, "SELECT count(*) FROM ledger WHERE key = '$key'");
}

# ---- local: the effect and the record are one ----

cut_at_commit(undef, settle('acme/CREDIT/all'), "INSERT INTO ledger VALUES ('all')");
wait_for_end();
is(claim('acme/CREDIT/all'), 'succeeded|0|{"ok": true}', 'COMMIT arrived: it happened');
is(effects('all'), '1', 'with its effect');

cut_at_commit(7, settle('acme/CREDIT/half'), "INSERT INTO ledger VALUES ('half')");
wait_for_end();
is(claim('acme/CREDIT/half'), 'execute|1|', 'half of COMMIT arrived: it did not happen');
is(effects('half'), '0', 'nor did its effect');

cut_at_commit(0, settle('acme/CREDIT/none'), "INSERT INTO ledger VALUES ('none')");
wait_for_end();
is(claim('acme/CREDIT/none'), 'execute|1|', 'nothing of it arrived: it did not happen');

# the client is back before the server is done with the COMMIT
cut_at_commit(undef, settle('acme/CREDIT/slow'), "INSERT INTO ledger VALUES ('slow')");
is( answer(
		$node, q{SELECT outcome FROM idem_claim('acme/CREDIT/slow', '{"amount": 10}',
		nowait => true)}),
	'busy',
	'while COMMIT is on its way, who does not wait is told busy');
is(claim('acme/CREDIT/slow'), 'succeeded|0|{"ok": true}', 'and who waits is told the truth');
is(effects('slow'), '1', 'the effect is there once');
wait_for_end();

# the same statement again, as a retrying client sends it
cut_at_commit(undef, q{SELECT idem_once('acme/CREDIT/once', '{}')},
	q{INSERT INTO ledger VALUES ('once')});
is(answer($node, q{SELECT idem_once('acme/CREDIT/once', '{}')}), 'f', 'once is not done again');
wait_for_end();

# ---- external: the claim's COMMIT is cut ----

cut_at_commit(7, q{SELECT idem_claim('acme/REFUND/half', '{"amount": 10}')});
wait_for_end();
is(claim('acme/REFUND/half'), 'execute|1|', 'a claim whose COMMIT did not arrive never was');

foreach my $operation ('REFUND', 'PAYOUT')
{
	my $key = "acme/$operation/all";

	cut_at_commit(undef, "SELECT idem_claim('$key', '{\"amount\": 10}', lease => '1 hour')");
	wait_for_end();
	is(claim($key), 'busy|0|', "$operation: a claim whose COMMIT arrived is somebody's");
	is(answer($node, "SELECT generation FROM idem_status('$key')"), '1',
		"$operation: under the first generation");

	# what its owner cannot know, the contract decides once the lease has lapsed
	$key = "acme/$operation/lapsed";
	cut_at_commit(undef, "SELECT idem_claim('$key', '{\"amount\": 10}')");
	wait_for_end();
	$node->poll_query_until('postgres',
		"SELECT lease_until < clock_timestamp() FROM idem_status('$key')")
	  or die 'the lease does not lapse';
	is( claim($key),
		$operation eq 'REFUND' ? 'verify|2|' : 'review|0|',
		"$operation: nobody knows whether the channel was called");
}

# ---- external: the report's COMMIT is cut ----

$node->safe_psql('postgres',
	"SELECT idem_claim('acme/REFUND/$_', '{\"amount\": 10}', lease => '1 hour')")
  foreach 'reported', 'unreported';
my $report = q{SELECT idem_complete('acme/REFUND/%s', 1, '{"ok": true}', 'ch-1')};

cut_at_commit(undef, sprintf($report, 'reported'));
wait_for_end();
is(claim('acme/REFUND/reported'), 'succeeded|0|{"ok": true}', 'a report whose COMMIT arrived');
is(answer($node, sprintf($report, 'reported')), '', 'its repetition is a success');
is( answer($node, q{SELECT idem_complete('acme/REFUND/reported', 1, '{"ok": true}', 'ch-2')}),
	'ID004', 'with another reference it is not');

cut_at_commit(7, sprintf($report, 'unreported'));
wait_for_end();
is(claim('acme/REFUND/unreported'), 'busy|0|', 'a report whose COMMIT did not arrive');
is(answer($node, sprintf($report, 'unreported')), '', 'its repetition is the report');
is(claim('acme/REFUND/unreported'), 'succeeded|0|{"ok": true}', 'and stands');

$node->stop;
done_testing();
