# Contracts are cached in every backend.  A change in one session is what the next call of
# every other one goes by, also inside a long transaction; what is rolled back never counts.
use strict;
use warnings;
use FindBin;
use lib $FindBin::RealBin;
use IdemTest;
use Test::More;

my $node = start_node('redefinition', conf => 'max_prepared_transactions = 10');
my ($a, $b) = (session($node), session($node));
my $n = 0;

# Whether the trace counts, for this session and this operation: "counts", "excluded" or the
# SQLSTATE.  It leaves nothing on record.
sub rule_of
{
	my ($session, $operation) = @_;
	my $key = "acme/$operation/" . ++$n;

	$session->run('SAVEPOINT rule');
	my $first = $session->run("SELECT idem_once('$key', '{\"amount\": 1, \"trace\": 1}')");
	my $second = $session->run("SELECT idem_once('$key', '{\"amount\": 1, \"trace\": 2}')");
	$session->run('ROLLBACK TO rule');
	return $first unless $first eq 't';
	return { 'ID001' => 'counts', 'f' => 'excluded' }->{$second} // $second;
}

# likewise, in a transaction of its own
sub rule_now
{
	my ($session, $operation) = @_;

	$session->run('BEGIN');
	my $rule = rule_of($session, $operation);
	$session->run('ROLLBACK');
	return $rule;
}

my $counts = q{SELECT idem_define_operation('%s')};
my $excluded = q{SELECT idem_define_operation('%s', digest_exclude => ARRAY['/trace'])};

# ---- the very first definition of a database, rolled back ----

$a->run('BEGIN');
is($a->run(sprintf $counts, 'CREDIT'), '1', 'a first definition');
is(rule_of($a, 'CREDIT'), 'counts', 'its own transaction goes by it');
is(rule_now($b, 'CREDIT'), 'ID006', 'no other one does');
$a->run('ROLLBACK');
is(rule_now($_, 'CREDIT'), 'ID006', 'nobody does once it is rolled back') foreach ($a, $b);
is($b->run(sprintf $excluded, 'CREDIT'), '1', 'the first one that is committed');
is(rule_now($_, 'CREDIT'), 'excluded', 'is in force everywhere') foreach ($a, $b);
is(answer($node, 'SELECT count(*), min(era) FROM idem_era'), '1|0', 'there is one era');

# ---- a change ----

is($a->run(sprintf $counts, 'CREDIT'), '2', 'a change');
is(rule_now($b, 'CREDIT'), 'counts', 'is what the next transaction goes by');
is($a->run(sprintf $counts, 'CREDIT'), '2', 'no change');

foreach my $isolation ('READ COMMITTED', 'REPEATABLE READ', 'SERIALIZABLE')
{
	$b->run("BEGIN ISOLATION LEVEL $isolation");
	# what it locks now it has locked, and hears of nothing by locking it again
	$b->run("SELECT idem_once('acme/CREDIT/long', '{}')");
	is(rule_of($b, 'CREDIT'), 'counts', "$isolation: before the change");
	$a->run(sprintf $excluded, 'CREDIT');
	is(rule_of($b, 'CREDIT'), 'excluded', "$isolation: after it, in the same transaction");
	$a->run(sprintf $counts, 'CREDIT');
	is(rule_of($b, 'CREDIT'), 'counts', "$isolation: after another one");
	$b->run('ROLLBACK');
}

# ---- a change that is rolled back, wholly or in part ----

$a->run('BEGIN');
$a->run(sprintf $excluded, 'CREDIT');
is(rule_of($a, 'CREDIT'), 'excluded', 'an open change counts for its transaction');
is(rule_now($b, 'CREDIT'), 'counts', 'and for no other');
$a->run('ROLLBACK');
is(rule_now($_, 'CREDIT'), 'counts', 'it is forgotten with it') foreach ($a, $b);

$a->run('BEGIN; SAVEPOINT s');
$a->run(sprintf $excluded, 'CREDIT');
is(rule_of($a, 'CREDIT'), 'excluded', 'a change behind a savepoint');
$a->run('ROLLBACK TO s');
is(rule_of($a, 'CREDIT'), 'counts', 'is forgotten with it');
$a->run(sprintf $excluded, 'CREDIT');
$a->run('COMMIT');
is(rule_now($_, 'CREDIT'), 'excluded', 'made once more, it is committed') foreach ($a, $b);

# ---- a change that is prepared ----

$a->run('BEGIN');
$a->run(sprintf $counts, 'CREDIT');
is($a->run(q{PREPARE TRANSACTION 'change'}), '', 'a prepared change');
is(rule_now($_, 'CREDIT'), 'excluded', 'counts for nobody yet') foreach ($a, $b);
is(answer($node, q{COMMIT PREPARED 'change'}), '', 'it is committed by a third session');
is(rule_now($_, 'CREDIT'), 'counts', 'and is in force') foreach ($a, $b);

# ---- every field, and external operations ----

$a->run(q{SELECT idem_define_operation('REFUND', effect => 'external', lease => '1 hour')});
is( $b->run(
		q{SELECT lease_until > now() + '59 min'::interval, channel
		FROM idem_claim('acme/REFUND/r-1', '{}')}),
	't|REFUND',
	'lease and channel of a contract');
$a->run(
	q{SELECT idem_define_operation('REFUND', effect => 'external', lease => '3 hours',
	channel => 'bank', keep_params => false)});
is( $b->run(
		q{SELECT lease_until > now() + '179 min'::interval, channel
		FROM idem_claim('acme/REFUND/r-2', '{}')}),
	't|bank',
	'lease and channel of the changed one');
is($b->run(q{SELECT outcome FROM idem_submit('acme/REFUND/r-3', '{}')}),
	'55000', 'which keeps no parameters');
is($b->run(q{SELECT idem_renew('acme/REFUND/r-1', 1) > now() + '179 min'::interval}),
	't', 'a renewal goes by the changed one');

# ---- dropped, and defined anew ----

is($a->run(sprintf $counts, 'SHORT'), '1', 'an operation without actions');
is(rule_now($b, 'SHORT'), 'counts', 'is known');
$a->run('BEGIN');
is($a->run(q{SELECT idem_drop_operation('SHORT')}), '', 'it is dropped');
is(rule_of($a, 'SHORT'), 'ID006', 'in its own transaction it is undefined');
$a->run('ROLLBACK');
is(rule_now($_, 'SHORT'), 'counts', 'rolled back, it is there') foreach ($a, $b);
is($a->run(q{SELECT idem_drop_operation('SHORT')}), '', 'it is dropped for good');
is(rule_now($_, 'SHORT'), 'ID006', 'it is undefined everywhere') foreach ($a, $b);

# with the number of a revision that everybody had seen
is($a->run(sprintf $excluded, 'SHORT'), '1', 'it is defined anew');
is(rule_now($_, 'SHORT'), 'excluded', 'and is what it is now') foreach ($a, $b);

# ---- records are judged under the revision that they remember ----

is($a->run(sprintf $counts, 'CREDIT'), $a->run(sprintf $counts, 'CREDIT'), 'the trace counts');
is($b->run(q{SELECT idem_once('acme/CREDIT/old', '{"trace": 1}')}), 't', 'a record of now');
$a->run(sprintf $excluded, 'CREDIT');
is($b->run(q{SELECT idem_once('acme/CREDIT/old', '{"trace": 2}')}), 'ID001', 'where it counts');
is($b->run(q{SELECT idem_once('acme/CREDIT/new', '{"trace": 1}')}), 't', 'a record of then');
is($b->run(q{SELECT idem_once('acme/CREDIT/new', '{"trace": 2}')}), 'f', 'where it does not');
is($b->run(q{SELECT idem_once('acme/CREDIT/old', '{"trace": 1}')}), 'f', 'in any order');

# ---- a handler that changes the contract under its own call ----

$node->safe_psql(
	'postgres', q{
	CREATE FUNCTION redefines(params jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM idem_define_operation('CREDIT', lease => format('%s min', i)::interval)
			FROM generate_series(1, 20) i;
		PERFORM idem_once('acme/CREDIT/inner', params);
		RETURN params;
	END$$;
});
is($b->run(q{SELECT idem_call('acme/CREDIT/outer', '{"trace": 1}', 'redefines')}),
	'{"trace": 1}', 'a call whose handler changes its contract');
is($b->run(q{SELECT idem_once('acme/CREDIT/outer', '{"trace": 2}')}),
	'f', 'is on record under the one it began with');
is($b->run(q{SELECT idem_once('acme/CREDIT/inner', '{"trace": 2}')}),
	'ID001', 'what the handler recorded is under the changed one');

$_->quit foreach ($a, $b);
$node->stop;
done_testing();
