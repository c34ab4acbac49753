# What a transaction owes at its end: a local claim is completed in it, a grant has not lapsed
# when its commit begins, and what is prepared holds its key until it is finished.
use strict;
use warnings;
use FindBin;
use lib $FindBin::RealBin;
use IdemTest;
use Test::More;

my $node = start_node('end', conf => 'max_prepared_transactions = 10');

$node->safe_psql(
	'postgres', q{
	CREATE TABLE ledger (key text);
	SELECT idem_define_operation('CREDIT');
	SELECT idem_define_operation('REFUND', effect => 'external', lease => '1 hour',
		channel_queryable => true, absence_visible_after => '0');
	SELECT idem_submit('acme/REFUND/submitted', '{}');
	SELECT idem_claim('acme/REFUND/claimed', '{}');
	SELECT idem_claim('acme/REFUND/lapsing', '{}', lease => '100 ms');
	SELECT idem_claim('acme/REFUND/review', '{}');
	SELECT idem_escalate('acme/REFUND/review', 1);
});
my $session = session($node);

sub state_of
{
	my ($key) = @_;
	return answer($node, "SELECT state, generation FROM idem_status('acme/$key')");
}

sub count_effects
{
	my ($key) = @_;
	return answer($node, "SELECT count(*) FROM ledger WHERE key = '$key'");
}

my $complete = q{SELECT idem_complete('acme/CREDIT/%1$s', generation, '[1]')
	FROM idem_claim('acme/CREDIT/%1$s', '{}')};

# ---- a local claim that is still open ----

foreach my $end ('COMMIT', q{PREPARE TRANSACTION 'open'})
{
	$session->run('BEGIN');
	$session->run(q{INSERT INTO ledger VALUES ('open')});
	is($session->run(q{SELECT outcome FROM idem_claim('acme/CREDIT/open', '{}')}),
		'execute', "$end: claimed");
	is($session->run($end), 'ID008', "$end: refused with the claim open");
	is($session->run('SHOW transaction_isolation'),
		'read committed', "$end: the session is fit for the next transaction");
	is(state_of('CREDIT/open'), '', "$end: nothing of it is on record");
	is(count_effects('open'), '0', "$end: nor is what was written beside it");

	$session->run('BEGIN');
	$session->run(q{SELECT idem_claim('acme/CREDIT/reopened', '{}')});
	$session->run('SAVEPOINT s');
	$session->run(q{SELECT idem_complete('acme/CREDIT/reopened', 1)});
	$session->run('ROLLBACK TO s');
	is($session->run($end), 'ID008', "$end: refused with the claim open again");

	$session->run('BEGIN; SAVEPOINT s');
	$session->run(q{SELECT idem_claim('acme/CREDIT/withdrawn', '{}')});
	$session->run('ROLLBACK TO s');
	is($session->run($end), '', "$end: fine with the claim withdrawn");
	is($session->run(q{ROLLBACK PREPARED 'open'}), '', "$end: and finished")
	  if $end =~ /PREPARE/;
}

# ---- a local action that is prepared ----

# two sessions that wait for it
sub wait_for_prepared
{
	my ($id) = @_;
	my @waiters = (session($node), session($node));

	$_->run('BEGIN') foreach @waiters;
	$waiters[0]->send("SELECT outcome, result FROM idem_claim('acme/CREDIT/$id', '{}')");
	$waiters[1]->send("SELECT idem_once('acme/CREDIT/$id-once', '{}')");
	wait_for_lock($node, 2);
	return @waiters;
}

sub prepare
{
	my ($id) = @_;

	$session->run('BEGIN');
	$session->run(sprintf($complete, $id));
	$session->run("SELECT idem_once('acme/CREDIT/$id-once', '{}')");
	$session->run("INSERT INTO ledger VALUES ('$id')");
	is($session->run("PREPARE TRANSACTION '$id'"), '', "$id: prepared");
	is( answer(
			$node,
			"SELECT outcome, generation FROM idem_claim('acme/CREDIT/$id', '{}', nowait => true)"),
		'busy|0',
		"$id: who does not wait is told busy");
	is(state_of("CREDIT/$id"), '', "$id: it is not on record yet");
}

foreach my $end ('COMMIT', 'ROLLBACK')
{
	my $id = lc $end;

	prepare($id);
	my @waiters = wait_for_prepared($id);
	is(answer($node, "$end PREPARED '$id'"), '', "$id: finished from another session");
	is( $waiters[0]->receive,
		$end eq 'COMMIT' ? 'succeeded|[1]' : 'execute|',
		"$id: who waited is told so");
	is($waiters[1]->receive, $end eq 'COMMIT' ? 'f' : 't', "$id: likewise who asked for once");
	foreach my $waiter (@waiters)
	{
		$waiter->run('ROLLBACK');
		$waiter->quit;
	}
	is(count_effects($id), $end eq 'COMMIT' ? '1' : '0', "$id: the effect");
}

prepare('crash');
$session->quit;
crash($node);
$session = session($node);
is( answer(
		$node, q{SELECT outcome FROM idem_claim('acme/CREDIT/crash', '{}', nowait => true)}),
	'busy',
	'a prepared action holds its key after a crash');
is(answer($node, q{COMMIT PREPARED 'crash'}), '', 'and is finished then');
is(state_of('CREDIT/crash'), 'succeeded|1', 'it is on record');
is(count_effects('crash'), '1', 'with its effect');

# ---- an external action cannot be prepared ----

my $records = q{SELECT string_agg(t::text, ' ' ORDER BY key) FROM idem_action t};

$node->poll_query_until('postgres',
	"SELECT lease_until < clock_timestamp() FROM idem_status('acme/REFUND/lapsing')")
  or die 'the lease does not lapse';

foreach my $write (
	q{idem_submit('acme/REFUND/new', '{}')},
	q{idem_claim('acme/REFUND/new', '{}')},
	q{idem_cancel('acme/REFUND/new')},
	q{idem_cancel('acme/REFUND/submitted')},
	q{idem_reclaim('acme/REFUND/submitted')},
	q{idem_claim('acme/REFUND/lapsing', '{}')},
	q{idem_renew('acme/REFUND/claimed', 1)},
	q{idem_complete('acme/REFUND/claimed', 1)},
	q{idem_reject('acme/REFUND/claimed', 1)},
	q{idem_mark_unknown('acme/REFUND/claimed', 1)},
	q{idem_release('acme/REFUND/claimed', 1)},
	q{idem_escalate('acme/REFUND/claimed', 1)},
	q{idem_resolve('acme/REFUND/review', 1, 'pending', 'checked')})
{
	my $before = answer($node, $records);

	$session->run('BEGIN');
	unlike($session->run("SELECT $write"), qr/^\w\w\d\d\d$/, "$write: done");
	is($session->run(q{PREPARE TRANSACTION 'external'}), 'ID003', "$write: cannot be prepared");
	is(answer($node, $records), $before, "$write: is undone");
}

$session->run('BEGIN');
is($session->run(q{SELECT outcome FROM idem_claim('acme/REFUND/claimed', '{}')}),
	'busy', 'a verdict without a grant');
is($session->run(q{SELECT outcome FROM idem_claim('acme/REFUND/claimed', '[]')}),
	'conflict', 'and another one');
$session->run('SAVEPOINT s');
$session->run(q{SELECT idem_submit('acme/REFUND/withdrawn', '{}')});
$session->run('ROLLBACK TO s');
is($session->run(q{PREPARE TRANSACTION 'nothing'}),
	'', 'where nothing external was written, the transaction can be prepared');
is($session->run(q{COMMIT PREPARED 'nothing'}), '', 'and committed');

# ---- a grant that has lapsed when its commit begins ----

my $nap = 'SELECT pg_sleep(0.12)';

$session->run('BEGIN');
$session->run(q{INSERT INTO ledger VALUES ('late')});
is( $session->run(
		q{SELECT outcome FROM idem_claim('acme/REFUND/late', '{}', lease => '100 ms')}),
	'execute',
	'a short lease');
$session->run($nap);
is($session->run('COMMIT'), 'ID002', 'has passed before the commit');
is(state_of('REFUND/late'), '', 'nothing of it is on record');
is(count_effects('late'), '0', 'nor is what was written beside it');

$session->run('BEGIN');
is( $session->run(
		q{SELECT outcome FROM idem_claim('acme/REFUND/lapsing', '{}', lease => '100 ms')}),
	'verify',
	'a short lease for a takeover');
$session->run($nap);
is($session->run('COMMIT'), 'ID002', 'has passed before the commit');
is(state_of('REFUND/lapsing'), 'processing|1', 'the generation is the former one');

$session->run('BEGIN');
$session->run(q{SELECT idem_claim('acme/REFUND/late', '{}', lease => '100 ms')});
$session->run('SAVEPOINT s');
$session->run(q{SELECT idem_release('acme/REFUND/late', 1, NULL, '0')});
$session->run('ROLLBACK TO s');
$session->run($nap);
is($session->run('COMMIT'), 'ID002', 'a release that was rolled back does not save it');

$session->run('BEGIN; SAVEPOINT s');
$session->run(q{SELECT idem_claim('acme/REFUND/late', '{}', lease => '100 ms')});
$session->run('ROLLBACK TO s');
$session->run($nap);
is($session->run('COMMIT'), '', 'a claim that was rolled back owes nothing');

$session->run('BEGIN');
$session->run(q{SELECT idem_claim('acme/REFUND/late', '{}', lease => '100 ms')});
$session->run(q{SELECT idem_release('acme/REFUND/late', 1, NULL, '0')});
$session->run($nap);
is($session->run('COMMIT'), '', 'nor does one that was released');
is(state_of('REFUND/late'), 'pending|1', 'it is on record, and nobody owns it');

# its end is that of the claim: nobody can move it before the commit
foreach my $lease ('1 hour', '100 ms')
{
	$session->run('BEGIN');
	$session->run(q{SELECT idem_claim('acme/REFUND/renewed', '{}')});
	is($session->run("SELECT idem_renew('acme/REFUND/renewed', 1, '$lease')"),
		'ID003', "a lease cannot be renewed to $lease before its grant is committed");
	$session->run('ROLLBACK');
}

$session->quit;
$node->stop;
done_testing();
