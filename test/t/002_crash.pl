# Asynchronous commits and a crash right after them: nobody is granted, or told, what the
# server can forget.
#
# The WAL writer sleeps for ten seconds, and nothing else runs.  So what is committed with
# synchronous_commit = off stays in memory until somebody flushes it, and a crash loses it:
# the controls below see that happen.
use strict;
use warnings;
use FindBin;
use lib $FindBin::RealBin;
use IdemTest;
use Test::More;

my $node = start_node('crash', conf => q{
	wal_writer_delay = '10s'
	checkpoint_timeout = '1h'
});

$node->safe_psql(
	'postgres', q{
	CREATE TABLE ledger (key text);
	CREATE FUNCTION credit(params jsonb) RETURNS jsonb LANGUAGE sql AS $$SELECT params$$;
	SELECT idem_define_operation('CREDIT');
	SELECT idem_define_operation('REFUND', effect => 'external', lease => '1 hour',
		channel_queryable => true, absence_visible_after => '0', backoff_base => '0');
});

my $params = q('{"amount": 10}');
my $is_flushed = 'SELECT pg_current_wal_flush_lsn() >= pg_current_wal_insert_lsn()';

# A session that commits without waiting, and one that asks.  Both have done before what they
# will do, and the log starts on a new page: so little is written that no page fills up, which
# would wake the WAL writer.
sub two_sessions
{
	my $writer = session($node);
	my $asker = session($node);

	foreach my $session ($writer, $asker)
	{
		$session->run('SET synchronous_commit = off');
		$session->run(
			"BEGIN; INSERT INTO ledger VALUES ('r-0');
			SELECT idem_once('acme/CREDIT/r-0', '{}'); ROLLBACK");
		$session->run('SELECT * FROM ledger');
		$session->run("SELECT * FROM idem_status('acme/CREDIT/r-0')");
	}
	$writer->run('SELECT pg_switch_wal()');
	return ($writer, $asker);
}

sub commit_asynchronously
{
	my ($writer, $id) = @_;

	$writer->run('BEGIN');
	$writer->run("INSERT INTO ledger VALUES ('$id')");
	is( $writer->run(
			"SELECT idem_complete(key, generation, $params) FROM
			(VALUES (idem_key('acme/CREDIT/$id'))) k (key), idem_claim(key, $params)"),
		'',
		"$id: claimed and completed");
	is($writer->run('COMMIT'), '', "$id: committed");
}

sub state_of
{
	my ($key) = @_;
	return answer($node, "SELECT state FROM idem_status('acme/$key')");
}

# ---- control: nobody asks, and all is lost ----

my ($writer, $asker) = two_sessions();
commit_asynchronously($writer, 'lost');
is($asker->run("SELECT count(*) FROM ledger WHERE key = 'lost'"), '1',
	'control: others see an asynchronous commit');
is($asker->run($is_flushed), 'f', 'control: which is not on disk');
crash($node);
is(answer($node, "SELECT count(*) FROM ledger WHERE key = 'lost'"), '0',
	'control: the crash loses what was written');
is(state_of('CREDIT/lost'), '', 'control: and the action with it');
$_->quit foreach ($writer, $asker);

# ---- whoever is told so can rely on it ----

my @askers = (
	[ 'claim', "SELECT outcome FROM idem_claim('%s', $params)", 'succeeded' ],
	[ 'claim-conflict', "SELECT outcome FROM idem_claim('%s', '{}')", 'conflict' ],
	[ 'once', "SELECT idem_once('%s', $params)", 'f' ],
	[ 'once-conflict', "SELECT idem_once('%s', '{}')", 'ID001' ],
	[ 'call', "SELECT idem_call('%s', $params, 'credit')", '{"amount": 10}' ],
	[ 'cancel', "SELECT idem_cancel('%s')", 'f' ],
	[ 'repeated', "SELECT idem_complete('%s', 1, $params)", '' ],
	[ 'status', "SELECT state FROM idem_status('%s')", 'succeeded' ]);

($writer, $asker) = two_sessions();
foreach my $isolation ('read committed', 'repeatable read', 'serializable')
{
	$asker->run("SET default_transaction_isolation = '$isolation'");
	foreach (@askers)
	{
		my ($name, $sql, $expected) = @$_;
		my $id = "$name-$isolation" =~ s/ /-/gr;

		commit_asynchronously($writer, $id);
		is($asker->run($is_flushed), 'f', "$id: not on disk yet");
		my $written = $asker->run('SELECT pg_current_wal_insert_lsn()');
		is($asker->run(sprintf($sql, "acme/CREDIT/$id")), $expected, "$id: the answer");
		is($asker->run("SELECT pg_current_wal_flush_lsn() >= '$written'"), 't', "$id: on disk once another session has an answer");
	}
}
$_->quit foreach ($writer, $asker);

foreach my $isolation ('read committed', 'serializable')
{
	my $id = "told-$isolation" =~ s/ /-/gr;

	($writer, $asker) = two_sessions();
	commit_asynchronously($writer, $id);
	$asker->run("SET default_transaction_isolation = '$isolation'");
	is($asker->run("SELECT outcome FROM idem_claim('acme/CREDIT/$id', $params)"), 'succeeded',
		"$id: another session is told");
	crash($node);
	is(state_of("CREDIT/$id"), 'succeeded', "$id: so it outlives the crash");
	is(answer($node, "SELECT count(*) FROM ledger WHERE key = '$id'"), '1',
		"$id: with what was written beside it");
	$_->quit foreach ($writer, $asker);
}

# ---- external actions: a channel is called on the strength of the commit ----

# each is one transaction; a local one and a plain one are the controls
my @moves = (
	[ 'plain write', "INSERT INTO ledger VALUES ('plain')", 'f' ],
	[ 'local once', "SELECT idem_once('acme/CREDIT/alone', $params)", 'f' ],
	[ 'submit', "SELECT outcome FROM idem_submit('acme/REFUND/a', '{}')", 't' ],
	[ 'reclaim', "SELECT outcome FROM idem_reclaim('acme/REFUND/a')", 't' ],
	[ 'renew', "SELECT idem_renew('acme/REFUND/a', 2) > now()", 't' ],
	[ 'mark_unknown', "SELECT idem_mark_unknown('acme/REFUND/a', 2, NULL, '0')", 't' ],
	[ 'claim', "SELECT outcome FROM idem_claim('acme/REFUND/a', '{}')", 't' ],
	[ 'absent', "SELECT outcome FROM idem_absent('acme/REFUND/a', 3)", 't' ],
	[ 'release', "SELECT idem_release('acme/REFUND/a', 4, NULL, '0')", 't' ],
	[ 'escalate', "SELECT idem_escalate('acme/REFUND/a', 4)", 't' ],
	[ 'resolve', "SELECT idem_resolve('acme/REFUND/a', 4, 'pending', 'checked')", 't' ],
	[ 'cancel', "SELECT idem_cancel('acme/REFUND/a')", 't' ],
	[ 'cancel new', "SELECT idem_cancel('acme/REFUND/b')", 't' ],
	[ 'claim new', "SELECT outcome FROM idem_claim('acme/REFUND/c', '{}')", 't' ],
	[ 'reject', "SELECT idem_reject('acme/REFUND/c', 1)", 't' ],
	[ 'claim another', "SELECT outcome FROM idem_claim('acme/REFUND/d', '{}')", 't' ],
	[ 'complete', "SELECT idem_complete('acme/REFUND/d', 1)", 't' ],
	[ 'savepoint', "BEGIN; SAVEPOINT s; SELECT idem_submit('acme/REFUND/e', '{}');
		RELEASE s; COMMIT", 't' ],
	[ 'set local', "BEGIN; SELECT idem_submit('acme/REFUND/f', '{}');
		SET LOCAL synchronous_commit = off; COMMIT", 't' ],
	[ 'block', "DO \$\$ BEGIN PERFORM idem_submit('acme/REFUND/g', '{}'); COMMIT; END \$\$", 't' ],
	[ 'withdrawn', "BEGIN; INSERT INTO ledger VALUES ('plain'); SAVEPOINT s;
		SELECT idem_submit('acme/REFUND/h', '{}'); ROLLBACK TO s; COMMIT", 'f' ]);

($writer, $asker) = two_sessions();
foreach (@moves)
{
	my ($name, $sql, $flushed) = @$_;

	unlike($writer->run($sql), qr/^\w\w\d\d\d$/, "$name: done with synchronous_commit = off");
	is($asker->run($is_flushed), $flushed,
		$flushed eq 't' ? "$name: on disk all the same" : "$name: not on disk, a control");
}
is($writer->run('SHOW synchronous_commit'), 'off', "the session's setting is left alone");
$_->quit foreach ($writer, $asker);

foreach my $call ('claim', 'submit')
{
	($writer, $asker) = two_sessions();
	$writer->run("SELECT idem_$call('acme/REFUND/crash-$call', $params)");
	crash($node);
	is(state_of("REFUND/crash-$call"), $call eq 'claim' ? 'processing' : 'pending',
		"$call: there after a crash right after its commit");
	$_->quit foreach ($writer, $asker);
}
is(answer($node, q{SELECT idem_complete('acme/REFUND/crash-claim', 1)}), '',
	'its owner reports after the crash: the same server, the same era');
is(answer($node, q{SELECT outcome, generation FROM idem_reclaim('acme/REFUND/crash-submit')}),
	'execute|2', 'and generations go on');

$node->stop;
done_testing();
