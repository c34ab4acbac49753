# A backend that dies takes with it what it had not committed, and nothing else: whoever asks
# next is granted the action as if nobody had been there.
use strict;
use warnings;
use FindBin;
use lib $FindBin::RealBin;
use IdemTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = start_node('killed', conf => 'restart_after_crash = on');

$node->safe_psql(
	'postgres', q{
	CREATE TABLE ledger (key text);
	SELECT idem_define_operation('CREDIT');
	SELECT idem_define_operation('REFUND', effect => 'external', lease => '1 hour');
	SELECT idem_define_operation('QUEUED', effect => 'external');
	SELECT idem_define_operation('PAYOUT', effect => 'external', lease => '100 ms',
		channel_queryable => true, absence_visible_after => '0');
});

sub state_of
{
	my ($key) = @_;
	return answer($node, "SELECT state, generation, attempt FROM idem_status('$key')");
}

# A transaction that holds one of everything that can be lost.
sub hold
{
	my ($id) = @_;
	my $holder = session($node);

	$node->safe_psql('postgres', "SELECT idem_claim('acme/REFUND/$id-reported', '{}')");
	$holder->run('BEGIN');
	is($holder->run("SELECT outcome FROM idem_claim('acme/CREDIT/$id-open', '{}')"),
		'execute', "$id: local claim is granted");
	$holder->run("INSERT INTO ledger VALUES ('$id-open')");
	is($holder->run("SELECT idem_once('acme/CREDIT/$id-once', '{}')"), 't', "$id: first once");
	$holder->run("INSERT INTO ledger VALUES ('$id-once')");
	is($holder->run("SELECT outcome FROM idem_claim('acme/REFUND/$id-claimed', '{}')"),
		'execute', "$id: external claim is granted");
	is($holder->run("SELECT outcome FROM idem_submit('acme/REFUND/$id-submitted', '{}')"),
		'accepted', "$id: external action is submitted");
	$node->safe_psql('postgres', "SELECT idem_submit('acme/QUEUED/$id-queued', '{}')");
	is($holder->run("SELECT key, outcome FROM idem_claim_next('QUEUED', 10)"),
		"acme/QUEUED/$id-queued|execute", "$id: what is due is handed out");
	is(answer($node, "SELECT count(*) FROM idem_claim_next('QUEUED', 10)"),
		'0', "$id: and to nobody else");
	is($holder->run("SELECT idem_complete('acme/REFUND/$id-reported', 1, '{}')"),
		'', "$id: external action is completed");
	return $holder;
}

sub check_nothing_left
{
	my ($id) = @_;

	is(answer($node, 'SELECT count(*) FROM ledger'), '0', "$id: no effect is left");
	foreach my $lost ("CREDIT/$id-open", "CREDIT/$id-once", "REFUND/$id-claimed",
		"REFUND/$id-submitted")
	{
		is(state_of("acme/$lost"), '', "$id: $lost is not on record");
		is( answer(
				$node, qq{
				BEGIN;
				SELECT outcome, attempt FROM idem_claim('acme/$lost', '{"amount": 1}');
				ROLLBACK;}),
			'execute|1',
			"$id: next claim of $lost is the first, whatever the parameters");
	}
	is(state_of("acme/REFUND/$id-reported"), 'processing|1|1', "$id: its report is undone");
	is(answer($node, "SELECT idem_complete('acme/REFUND/$id-reported', 1, '{}')"),
		'', "$id: and is accepted again");
	is( answer($node, "SELECT key, outcome, attempt FROM idem_claim_next('QUEUED', 10)"),
		"acme/QUEUED/$id-queued|execute|1",
		"$id: what was handed out is handed out again");
	is(answer($node, "SELECT idem_complete('acme/QUEUED/$id-queued', 2)"), '', "$id: and done");
	is(answer($node, "SELECT count(*) FROM idem_lease WHERE key::text LIKE '%$id%'"),
		'0', "$id: no lease is left");
}

# ---- pg_terminate_backend: who waits for the holder is granted the action ----

my $holder = hold('terminated');
my %waiters;
foreach my $key ('acme/CREDIT/terminated-open', 'acme/CREDIT/terminated-once',
	'acme/REFUND/terminated-claimed')
{
	my $waiter = session($node);
	$waiter->run('BEGIN');
	$waiter->send("SELECT outcome, attempt FROM idem_claim('$key', '{}')");
	$waiters{$key} = $waiter;
}
wait_for_lock($node, 3);
is( answer(
		$node, q{SELECT outcome, generation FROM
		idem_claim('acme/REFUND/terminated-claimed', '{}', nowait => true)}),
	'busy|0',
	'who does not want to wait is told so');
my $pid = $holder->pid;
is(answer($node, "SELECT pg_terminate_backend($pid)"), 't', 'the holder is terminated');
foreach my $key (sort keys %waiters)
{
	is($waiters{$key}->receive, 'execute|1', "$key is granted to who waited");
	$waiters{$key}->run('ROLLBACK');
	$waiters{$key}->quit;
}
$holder->quit;
check_nothing_left('terminated');

# ---- SIGKILL: the server restarts ----

$node->safe_psql(
	'postgres', q{
	SELECT idem_claim('acme/REFUND/granted', '{}');
	SELECT idem_claim('acme/PAYOUT/granted', '{}');
});
$holder = hold('killed');
$pid = $holder->pid;
my $offset = -s $node->logfile;
system_log('pg_ctl', 'kill', 'KILL', $pid);
$node->wait_for_log(qr/database system is ready to accept connections/, $offset);
$holder->quit;
check_nothing_left('killed');

# what was committed is as it was: the owner's backend is gone, its grant is not
is(answer($node, q{SELECT outcome, generation FROM idem_claim('acme/REFUND/granted', '{}')}),
	'busy|0', 'a committed grant outlives the backend of its owner');
is(answer($node, q{SELECT idem_complete('acme/REFUND/granted', 1, '{"ok": true}')}),
	'', 'whose owner may report from another one');

$node->poll_query_until('postgres',
	"SELECT lease_until < clock_timestamp() FROM idem_status('acme/PAYOUT/granted')")
  or die 'the lease does not lapse';
is(answer($node, q{SELECT outcome, generation FROM idem_claim('acme/PAYOUT/granted', '{}')}),
	'verify|2', 'once its lease has lapsed, another one asks the channel');
is(answer($node, q{SELECT idem_complete('acme/PAYOUT/granted', 1)}),
	'ID002', 'and the first generation is refused');

$node->stop;
done_testing();
