# A million finished actions are purged by two purgers, beside claims of the very keys and of new
# ones, and beside a reader who holds on to his snapshot: nobody is deadlocked, nobody waits
# longer than a batch, nothing unfinished is lost, and no old message is executed again.
use strict;
use warnings;
use FindBin;
use lib $FindBin::RealBin;
use IdemTest;
use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $finished = 1_000_000;
my $node = start_node('purge', conf => "fsync = off\nmax_wal_size = 4GB\nmax_connections = 30\n");

$node->safe_psql(
	'postgres', qq{
	SELECT idem_define_operation('OLD', 'external', retention => '30 days',
		result_retention => '7 days');
	SELECT idem_define_operation('NEW', retention => '30 days');
	SELECT idem_define_consumer('old', retention => '30 days');
	INSERT INTO idem_action (key, state, last_call, generation, revision, attempt, digest,
			occurred_at, created_at, updated_at, params, result)
		SELECT 'acme/OLD/' || i, 'succeeded', 'complete', 1, 1, 1, idem_digest('1'::jsonb),
			'2026-01-01 00:00+00', '2026-01-01 00:00+00', '2026-01-01 00:00+00', '1', '{"n": 1}'
		FROM generate_series(1, $finished) i;
	INSERT INTO idem_event (key, revision, digest, occurred_at, recorded_at, params)
		SELECT 'acme/old/' || i, 1, idem_digest('1'::jsonb),
			'2026-01-01 00:00+00', '2026-01-01 00:00+00', '1'
		FROM generate_series(1, 100000) i;
	SELECT count(idem_submit('acme/OLD/pending-' || i, '1', '2026-01-01 00:00+00'))
		FROM generate_series(1, 500) i;
	SELECT count(idem_claim('acme/OLD/claimed-' || i, '1', '2026-01-01 00:00+00'))
		FROM generate_series(1, 500) i;
	-- settled long ago, though not long enough for identity: their results are due
	INSERT INTO idem_action (key, state, last_call, generation, revision, attempt, digest,
			occurred_at, created_at, updated_at, params, result)
		SELECT 'acme/OLD/young-' || i, 'succeeded', 'complete', 1, 1, 1, idem_digest('1'::jsonb),
			now() - interval '10 days', now() - interval '10 days', now() - interval '10 days',
			'1', '{"n": 1}'
		FROM generate_series(1, 10000) i;
	UPDATE idem_action SET created_at = '2026-01-01 00:00+00', updated_at = '2026-01-01 00:00+00'
		WHERE state IN ('pending', 'processing');
	ANALYZE;
});

my $reader = session($node);
$reader->run('BEGIN ISOLATION LEVEL REPEATABLE READ');
my $seen = $reader->run('SELECT count(*) FROM idem_action');
is($seen, $finished + 11_000, 'what there is');

# Whoever waits for a lock longer than a batch may take fails, and with him his pgbench.
my $script = "$PostgreSQL::Test::Utils::tmp_check/claims.sql";
append_to_file(
	$script, q{
\set n random(1, 1000000)
\set m random(1, 1000000000)
\set e random(1, 99990)
SELECT outcome FROM idem_claim('acme/OLD/' || :n, '1', '2026-01-01 00:00+00');
SELECT outcome FROM idem_claim('acme/OLD/young-' || (:n % 10000 + 1), '1', '2026-01-01 00:00+00');
SELECT idem_once('acme/NEW/' || :m, '1', '2026-06-01 00:00+00');
SELECT outcome FROM idem_consume('acme/old/' || :e, '1', '2026-01-01 00:00+00');
SELECT count(outcome) FROM idem_consume_batch(
	ARRAY(SELECT 'acme/old/' || i FROM generate_series(:e, :e + 9) i)::idem_key[],
	array_fill('1'::jsonb, ARRAY[10]), array_fill('2026-01-01 00:00+00'::timestamptz, ARRAY[10]));
});
my @pgbench = (
	'env', 'PGOPTIONS=-c lock_timeout=10s', 'pgbench', '--no-vacuum', '--client=4', '--jobs=1',
	'--time=15', '--max-tries=100', "--file=$script", '--host', $node->host, '--port', $node->port,
	'postgres');
my ($out, $err) = ('', '');
my $claims = IPC::Run::start(\@pgbench, '>', \$out, '2>', \$err);

my $loop = q{
	DO $$
	DECLARE
		purged idem_purged;
		began timestamptz;
		longest interval := '0';
	BEGIN
		FOR i IN 1..100000 LOOP
			began := clock_timestamp();
			SELECT * INTO purged FROM idem_purge();
			COMMIT;
			longest := greatest(longest, clock_timestamp() - began);
			EXIT WHEN purged.is_done;
			IF purged.actions_deleted + purged.events_deleted + purged.results_dropped = 0 THEN
				PERFORM pg_sleep(0.01);
			END IF;
		END LOOP;
		IF NOT purged.is_done OR longest > interval '10 s' THEN
			RAISE 'not done, or a batch took %', longest;
		END IF;
	END $$};
my @purgers = (session($node), session($node));
$_->send($loop) foreach @purgers;
is($_->receive, '', 'a purger comes to the end, in batches') foreach @purgers;
ok($claims->pumpable, 'and claims went on all the time');
ok($claims->finish, 'no claim failed, or waited for longer than a batch') or diag($err);
like($out, qr/number of failed transactions: 0 /, 'whoever was overtaken was told at the next try');

is( answer(
		$node, q{SELECT count(*) FILTER (WHERE state = 'succeeded'),
			count(*) FILTER (WHERE state = 'pending'), count(*) FILTER (WHERE state = 'processing'),
			count(result), count(result_digest)
			FROM idem_action WHERE idem_key_operation(key) = 'OLD'}),
	'10000|500|500|0|10000',
	'what was finished and old is gone, all that was not is there, and no old key was granted');
is(answer($node, q{SELECT count(*) FROM idem_event}), '0', 'and no old event was first');
is( answer($node, q{SELECT count(*) > 0 FROM idem_action WHERE idem_key_operation(key) = 'NEW'}),
	't', 'new actions were done meanwhile');
is(answer($node, q{SELECT sum(deadlocks) FROM pg_stat_database}), '0', 'no deadlock');
is( answer($node, q{SELECT string_agg(key::text, ' ' ORDER BY key) FROM idem_watermark}),
	'acme/OLD/a acme/old/e',
	'there are watermarks of what was deleted');
is($reader->run('SELECT count(*) FROM idem_action'), $seen, 'the reader sees what he saw');
$reader->run('COMMIT');

# a crash in the middle of a batch: nothing of it, and what was committed before stays
$node->safe_psql(
	'postgres', q{
	SELECT count(idem_once('acme/NEW/crash-' || i, '1', '2026-01-01 00:00+00')) FROM generate_series(1, 10) i;
	UPDATE idem_action SET created_at = '2026-01-01 00:00+00' WHERE idem_key_id(key) LIKE 'crash-%';
	CHECKPOINT;
});
$purgers[0]->run('BEGIN');
is($purgers[0]->run(q{SELECT actions_deleted FROM idem_purge(1000000, 'NEW')}), '10', 'a batch');
crash($node);
is( answer($node, q{SELECT idem_once('acme/NEW/crash-1', '1', '2026-01-01 00:00+00'),
			(SELECT count(*) FROM idem_watermark WHERE key = 'acme/NEW/a'::idem_key)}),
	'f|0', 'that was not committed has not been');
is(answer($node, q{SELECT actions_deleted FROM idem_purge(1000000, 'NEW')}), '10', 'the batch again');
crash($node);
is(answer($node, q{SELECT idem_once('acme/NEW/crash-1', '1', '2026-01-01 00:00+00')}),
	'ID009', 'that was committed has been');

$node->stop;
done_testing();
