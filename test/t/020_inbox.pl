# Many clients feed the same events to several consumers, each with a write of its own beside the
# record: every consumer has every effect exactly once, whoever rolls back or dies on the way.
# Batches in opposite order never deadlock.  A duplicate costs nothing, and what somebody was told
# is a duplicate is not lost in a crash.  A dump keeps events, consumers and fences; a standby
# refuses to consume.
use strict;
use warnings;
use FindBin;
use lib $FindBin::RealBin;
use IdemTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $NCLIENTS = 16;
my $NEVENTS = 20000;
my $NROWS = 400;    # of a batch

# The WAL writer sleeps, so that a commit that nobody waits for stays in memory.
my $node = start_node('inbox', streaming => 1, conf => q{
	max_connections = 40
	max_prepared_transactions = 5
	wal_writer_delay = '10s'
	deadlock_timeout = '10ms'
	checkpoint_timeout = '1h'
	log_statement = none
});

$node->safe_psql(
	'postgres', q{
	SELECT idem_define_consumer('a'), idem_define_consumer('b', digest_include => '{/n}'),
		idem_define_consumer('c', keep_params => false), idem_define_consumer('alphabet'),
		idem_define_consumer('rebuild', rebuild => true), idem_define_operation('PAY', 'external');
	CREATE TABLE ledger (consumer text NOT NULL, event integer NOT NULL);

	-- a batch for one consumer; one event in two hundred fails and is withdrawn
	CREATE FUNCTION feed(name text, ids integer[]) RETURNS void LANGUAGE plpgsql AS $$
	DECLARE
		failed idem_key;
		outcomes text[];
	BEGIN
		WITH batch AS MATERIALIZED (
			SELECT b.* FROM (SELECT array_agg(idem_key('acme', name, 'e-' || i)) AS keys,
				array_agg(jsonb_build_object('n', i)) AS payloads FROM unnest(ids) i) a,
				idem_consume_batch(a.keys, a.payloads) b),
		fresh AS (SELECT key, random() < 0.005 AS fails, (payload->>'n')::integer AS id
			FROM batch WHERE outcome = 'first'),
		written AS (INSERT INTO ledger SELECT name, id FROM fresh WHERE NOT fails),
		withdrawn AS MATERIALIZED (SELECT idem_unconsume(key) FROM fresh WHERE fails)
		SELECT array_agg(DISTINCT outcome) FROM batch, (SELECT count(*) FROM withdrawn) w
			INTO outcomes;
		IF NOT outcomes <@ ARRAY['first', 'duplicate'] THEN
			RAISE EXCEPTION 'unexpected outcomes %', outcomes;
		END IF;
	END $$;

	-- one event for one consumer
	CREATE FUNCTION feed_one(name text, id integer) RETURNS void LANGUAGE plpgsql AS $$
	DECLARE
		answer text;
	BEGIN
		SELECT outcome INTO STRICT answer FROM idem_consume(idem_key('acme', name, 'e-' || id),
			jsonb_build_object('n', id), transport => jsonb_build_object('by', pg_backend_pid()));
		IF answer = 'first' THEN
			INSERT INTO ledger VALUES (name, id);
		ELSIF answer <> 'duplicate' THEN
			RAISE EXCEPTION 'unexpected outcome %', answer;
		END IF;
	END $$;
});

# the arguments of pgbench for so many transactions of each client; weights by script
sub arguments
{
	my ($nclients, $ntransactions, %scripts) = @_;
	my @files;

	foreach my $name (sort keys %scripts)
	{
		my $file = "$PostgreSQL::Test::Utils::tmp_check/$name.sql";

		unlink $file;
		append_to_file($file, $scripts{$name}{script});
		push @files, '-f', "$file\@$scripts{$name}{weight}";
	}
	return ('pgbench', '-n', '-c', $nclients, '-j', 2, '-t', $ntransactions, '-D', 'turn=0',
		'--failures-detailed', @files, $node->connstr('postgres'));
}

# ---- a to z and z to a ----

my $alphabet = q{
	\set turn :turn + 1
	\set backwards :client_id % 2
	\set ends random(1, 4)
	BEGIN;
	SELECT count(*) FROM (SELECT array_agg(idem_key('acme', 'alphabet', letter || :turn)
			ORDER BY CASE WHEN :backwards = 1 THEN -n ELSE n END) AS keys,
			array_agg(to_jsonb(1)) AS payloads
			FROM unnest(regexp_split_to_array('abcdefghijklmnopqrstuvwxyz', '')) WITH ORDINALITY
				l (letter, n)) a,
		idem_consume_batch(a.keys, a.payloads);
	\if :ends = 1
	ROLLBACK;
	\else
	COMMIT;
	\endif
};
my ($out, $err) =
  run_command([ arguments(2, 100, alphabet => { script => $alphabet, weight => 1 }) ]);
like($out, qr/actually processed: 200\//, 'a hundred batches each');
like($out, qr/number of failed transactions: 0 /, 'none is given up');
like($out, qr/number of deadlock failures: 0 /, 'no deadlock');
is( answer(
		$node, q{SELECT count(*) % 26, count(*) >= 75 * 26 FROM idem_event
		WHERE idem_key_operation(key) = 'alphabet'}),
	'0|t',
	'whole batches are on record');

# ---- the same events, shuffled, to three consumers ----

# Client k of the walk takes the events in steps of its own, which visit each once.
my $next = qq{
	\\set turn :turn + 1
	\\set step 7919 + 2 * 5 * :client_id
	\\set first (:turn - 1) * $NROWS + 1250 * :client_id
	\\set one random(0, $NEVENTS - 1)
	\\set dice random(1, 12)
};
my $ids = qq{(SELECT array_agg(((:first + i)::bigint * :step % $NEVENTS)::integer)
	FROM generate_series(1, $NROWS) i)};
my $batches = qq{$next
	BEGIN;
	SELECT feed('a', $ids);
	SAVEPOINT s;
	SELECT feed('b', $ids);
	\\if :dice = 1
	ROLLBACK TO s;
	SELECT feed('b', $ids);
	\\endif
	SELECT feed('c', $ids);
	\\if :dice < 4
	ROLLBACK;
	\\else
	COMMIT;
	\\endif
};
my $singles = qq{$next
	\\set turn :turn - 1
	BEGIN;
	SELECT feed_one('a', :one);
	SELECT feed_one('b', :one);
	SELECT feed_one('c', :one);
	\\if :dice < 4
	ROLLBACK;
	\\else
	COMMIT;
	\\endif
};

# every consumer's effects and records; $is_whole: nothing is left to be done
sub check_effects
{
	my ($name, $server, $database, $is_whole) = @_;

	foreach my $consumer (qw(a b c))
	{
		my ($neffects, $ndistinct, $nrecords) = split /\|/, answer(
			$server, qq{SELECT count(*), count(DISTINCT event),
			(SELECT count(*) FROM idem_event WHERE idem_key_operation(key) = '$consumer'
				AND idem_key_id(key) LIKE 'e-%')
			FROM ledger WHERE consumer = '$consumer'}, $database);

		is($neffects, $ndistinct, "$name: $consumer has no effect twice");
		is($neffects, $nrecords, "$name: $consumer has an effect for each event on record");
		is($neffects, $NEVENTS, "$name: $consumer has every effect") if $is_whole;
		cmp_ok($neffects, '>', $NEVENTS / 4, "$name: $consumer has many effects");
	}
}

my $pgbench = IPC::Run::start(
	[
		arguments(
			$NCLIENTS, 3 * $NEVENTS / $NROWS,
			batches => { script => $batches, weight => 1 },
			singles => { script => $singles, weight => 2 })
	],
	'>&', \$out,
	IPC::Run::timeout($PostgreSQL::Test::Utils::timeout_default));
my $nkilled = 0;
while ($nkilled < 6 && $pgbench->pumpable)
{
	$nkilled += answer(
		$node, q{
		SELECT count(*) FILTER (WHERE pg_terminate_backend(pid)) FROM (
			SELECT pid FROM pg_stat_activity
			WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()
				AND state IN ('active', 'idle in transaction') AND xact_start IS NOT NULL
			ORDER BY random() LIMIT 1) victim});
	$pgbench->pump_nb;
}
$pgbench->finish;
note $out;
is($nkilled, 6, 'accidents: backends were killed in their transactions');
unlike($out, qr/deadlock detected|unexpected outcome/, 'accidents: no deadlock, no conflict');
check_effects('accidents', $node, 'postgres', 0);

# what is left is delivered once more, and everything else with it
my $rest = qq{
	\\set turn :turn + 1
	SELECT feed_one(consumer, id) FROM unnest(ARRAY['a', 'b', 'c']) consumer,
		generate_series((:turn - 1) * $NROWS, :turn * $NROWS - 1) id;
};
run_command([ arguments(1, $NEVENTS / $NROWS, rest => { script => $rest, weight => 1 }) ]);
check_effects('redelivered', $node, 'postgres', 1);

# ---- a duplicate costs nothing ----

my $worker = session($node);
my $next_xid = 'SELECT pg_snapshot_xmax(pg_current_snapshot())';
my $counters = q{SELECT pg_stat_get_xact_tuples_inserted('idem_event'::regclass),
	pg_stat_get_xact_tuples_updated('idem_event'::regclass),
	pg_stat_get_xact_tuples_deleted('idem_event'::regclass)};
my $replay = qq{SELECT outcome, count(*)
	FROM (SELECT array_agg(idem_key('acme', 'a', 'e-' || i)) AS keys,
		array_agg(jsonb_build_object('n', i + (i % 10 = 0)::integer)) AS payloads
		FROM generate_series(1, 1000) i) a, idem_consume_batch(a.keys, a.payloads)
	GROUP BY 1 ORDER BY 1};
my $replay_one = q{SELECT outcome, count(*) FROM generate_series(1, 1000) i,
	LATERAL idem_consume(idem_key('acme', 'a', 'e-' || i),
		jsonb_build_object('n', i + (i % 10 = 0)::integer))
	GROUP BY 1 ORDER BY 1};

foreach my $isolation ('read committed', 'repeatable read', 'serializable')
{
	my $xid = $worker->run($next_xid);

	$worker->run("BEGIN ISOLATION LEVEL $isolation");
	my $before = $worker->run($counters);
	is($worker->run($replay_one), "conflict|100\nduplicate|900", "$isolation: replayed one by one");
	is($worker->run($replay), "conflict|100\nduplicate|900", "$isolation: replayed in a batch");
	is($worker->run('SELECT pg_current_xact_id_if_assigned()'),
		'', "$isolation: takes no transaction id");
	is($worker->run($counters), $before, "$isolation: writes no row, dead or alive");
	$worker->run('COMMIT');
	is($worker->run($next_xid), $xid, "$isolation: nor a subtransaction's id");

	# beside a write of the caller, and a first
	$worker->run("BEGIN ISOLATION LEVEL $isolation");
	$worker->run("INSERT INTO ledger VALUES ('cost', 1)");
	is($worker->run("SELECT outcome FROM idem_consume('acme/a/$isolation', '1')"),
		'first', "$isolation: a first");
	$worker->run($replay_one);
	$worker->run($replay);
	is( $worker->run(
			"SELECT outcome FROM idem_consume_batch('{acme/a/batch $isolation}', '{1}')"),
		'first',
		"$isolation: a first in a batch");
	$worker->run('COMMIT');
	is($worker->run($next_xid), $xid + 1,
		"$isolation: the transaction takes one id, and no subtransaction");
}

# ---- an asynchronous commit, a duplicate answered, a crash ----

my $is_flushed = 'SELECT pg_current_wal_flush_lsn() >= pg_current_wal_insert_lsn()';
my $asker = session($node);

# Both have done before what they will do, and the log starts on a new page, so that no page fills
# up meanwhile, which would wake the WAL writer.
foreach my $session ($worker, $asker)
{
	$session->run('SET synchronous_commit = off');
	$session->run("BEGIN; SELECT idem_consume('acme/a/warm', '1');
		SELECT idem_consume_batch('{acme/a/warm}', '{1}'); ROLLBACK");
	$session->run("SELECT * FROM idem_consume('acme/a/e-1', '{\"n\": 1}')");
}
$worker->run('SELECT pg_switch_wal()');
my %asks = (
	single => q{SELECT outcome FROM idem_consume('acme/a/single', '1')},
	batch => q{SELECT outcome FROM idem_consume_batch('{acme/a/batch}', '{1}')});
foreach my $name ('single', 'batch')
{
	is($worker->run("SELECT outcome FROM idem_consume('acme/a/$name', '1')"),
		'first', "crash, $name: committed asynchronously");
	is($asker->run($is_flushed), 'f', "crash, $name: not on disk");
	is($asker->run($asks{$name}), 'duplicate', "crash, $name: another session is told");
	is($asker->run($is_flushed), 't', "crash, $name: now it is");
}
is($worker->run("SELECT outcome FROM idem_consume('acme/a/lost', '1')"),
	'first', 'crash: one that nobody asks for');
crash($node);
$worker = session($node);
is($worker->run($asks{single}), 'duplicate', 'crash: what was told a duplicate is on record');
is($worker->run($asks{batch}), 'duplicate', 'crash: likewise in a batch');
is($worker->run("SELECT outcome FROM idem_consume('acme/a/lost', '1')"),
	'first', 'crash: control: the other one is not');

# ---- prepared: neither lost nor consumed twice ----

$worker->run(q{BEGIN;
	SELECT idem_consume('acme/a/prepared', '1'), idem_consume('acme/b/prepared', '{"n": 1}'),
		idem_fence('acme/PARTITION/1', 5);
	PREPARE TRANSACTION 'inbox'});
crash($node);
$worker = session($node);
$asker = session($node);
$asker->send(q{SELECT outcome FROM idem_consume_batch('{acme/b/prepared,acme/a/prepared}',
	ARRAY['{"n": 1}', '1']::jsonb[])});
wait_for_lock($node, 1);
$worker->run("COMMIT PREPARED 'inbox'");
is($asker->receive, "duplicate\nduplicate", 'prepared: the redelivery waits for it');
is($worker->run("SELECT idem_fence('acme/PARTITION/1', 4)"),
	'ID002', 'prepared: the fence knows its generation');

# ---- dropped and created again, in one session ----

$node->safe_psql('postgres', 'CREATE DATABASE reinstall');
my $reinstall = session($node, 'reinstall');
foreach my $life ('first', 'second', 'other schema')
{
	$reinstall->run('CREATE SCHEMA IF NOT EXISTS other');
	is( $reinstall->run(
			'CREATE EXTENSION idem_action' . ($life eq 'other schema' ? ' SCHEMA other' : '')),
		'', "$life life: created");
	$reinstall->run('SET search_path = public, other');
	is($reinstall->run("SELECT outcome FROM idem_consume('acme/a/1', '1')"),
		'ID006', "$life life: no contract is left from before");
	is($reinstall->run("SELECT idem_define_consumer('a')"), '1', "$life life: define");
	is($reinstall->run("SELECT outcome FROM idem_consume('acme/a/1', '1')"),
		'first', "$life life: a first");
	$reinstall->run('BEGIN');
	is( $reinstall->run(
			"SELECT idem_unconsume(key) FROM
			idem_consume_batch('{acme/a/3,acme/a/1,acme/a/2}', '{1,1,1}') WHERE position = 1"),
		'', "$life life: a batch, and one withdrawn");
	is($reinstall->run("SELECT idem_consume_result('acme/a/2', '1')"), '', "$life life: a result");
	$reinstall->run('COMMIT');
	is( $reinstall->run(
			"SELECT outcome, result FROM idem_consume_batch('{acme/a/1,acme/a/2,acme/a/3}', '{1,1,1}')"),
		"duplicate|\nduplicate|1\nfirst|",
		"$life life: another batch");
	# the first passes, is equal, is newer
	is($reinstall->run("SELECT idem_fence('acme/P/1', $_)"), '', "$life life: a fence, $_")
	  foreach (1, 1, 2);
	is($reinstall->run('DROP EXTENSION idem_action'), '', "$life life: dropped");
}
$reinstall->quit;

# ---- a dump holds events, consumers and fences ----

$worker->run("SELECT idem_define_consumer('a', digest_exclude => '{/trace}')");
$worker->run(q{BEGIN;
	SELECT idem_consume('acme/a/result', '{"n": 1, "trace": 1}', '2026-01-01', '{"offset": 7}');
	SELECT idem_consume_result('acme/a/result', '{"ok": true}');
	COMMIT});
my $dump = "$PostgreSQL::Test::Utils::tmp_check/inbox";

# every row as text, so that nothing can be lost on the way without a difference
sub records
{
	my ($database) = @_;

	return answer(
		$node, q{SELECT md5(string_agg(t::text, E'\n' ORDER BY t::text)) FROM (
			SELECT t::text FROM idem_event t UNION ALL SELECT t::text FROM idem_consumer t
			UNION ALL SELECT t::text FROM idem_fence t) t}, $database);
}
$node->command_ok([ 'pg_dump', '--file', "$dump.sql", '-d', $node->connstr('postgres') ],
	'pg_dump');
$node->safe_psql('postgres', 'CREATE DATABASE restored');
$node->command_ok(
	[
		'psql', '-XqAt', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr('restored'),
		'--file', "$dump.sql"
	],
	'restored');
is(records('restored'), records('postgres'), 'restored: every record is there as it was');
check_effects('restored', $node, 'restored', 1);
my $restored = session($node, 'restored');
is( $restored->run($replay), "conflict|100\nduplicate|900",
	'restored: a replay of the old events, under their own revision');
is( $restored->run(
		q{SELECT outcome, result FROM idem_consume('acme/a/result', '{"n": 1, "trace": 2}')}),
	'duplicate|{"ok": true}',
	'restored: a result');
is($restored->run(q{SELECT outcome FROM idem_consume('acme/b/e-1', '{"n": 1, "other": 1}')}),
	'duplicate', 'restored: what counts');
is($restored->run(q{SELECT outcome FROM idem_consume('acme/c/e-1', '{"n": 2}')}),
	'conflict', 'restored: a payload that was not kept');
is($restored->run(q{SELECT outcome FROM idem_consume('acme/a/new', '{}')}),
	'first', 'restored: a new event');
$restored->run('BEGIN');
$restored->run("SELECT idem_consume('acme/rebuild/1', '{}')");
is($restored->run("SELECT idem_submit('acme/PAY/1', '{}')"),
	'ID010', 'restored: a rebuilding consumer');
$restored->run('ROLLBACK');
is($restored->run("SELECT idem_define_consumer('a')"), '3', 'restored: revisions go on');
is($restored->run("SELECT idem_fence('acme/PARTITION/1', 4)"),
	'ID002', 'restored: an older generation');
is($restored->run("SELECT idem_fence('acme/PARTITION/1', 5)"), '', 'restored: the newest');
is($restored->run("SELECT idem_fence('acme/PARTITION/1', 6)"), '', 'restored: a newer one');
$restored->quit;

# ---- a standby refuses ----

$node->backup('backup');
my $standby = PostgreSQL::Test::Cluster->new('inbox_standby');
$standby->init_from_backup($node, 'backup', has_streaming => 1);
$standby->start;
$node->wait_for_catchup($standby);
my $on_standby = session($standby);
foreach my $sql (
	q{idem_consume('acme/a/e-1', '{"n": 1}')},     # though nothing is to write
	q{idem_consume('acme/nobody/1', '{}')},
	q{idem_consume_batch('{acme/a/e-1}', '{1}')},
	q{idem_consume_batch('{}', '{}')},
	q{idem_consume_result('acme/a/e-1', '1')},
	q{idem_unconsume('acme/a/e-1')},
	q{idem_define_consumer('a')},
	q{idem_fence('acme/PARTITION/1', 5)})
{
	is($on_standby->run("SELECT $sql"), '25006', "standby: $sql");
}
is($on_standby->run("SELECT count(*) FROM idem_event WHERE idem_key_operation(key) = 'c'"),
	$NEVENTS, 'standby: the events are there');
$on_standby->quit;
$_->quit foreach ($worker, $asker);
$standby->stop;

$node->stop;
done_testing();
