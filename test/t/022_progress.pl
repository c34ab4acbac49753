# Progress across crashes, killed backends, prepared transactions and a promotion; and a race of
# owners and workers, after which every record of the log has had its effect once.
use strict;
use warnings;
use FindBin;
use lib $FindBin::RealBin;
use IdemTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

# nothing is flushed but by whoever must, as in 002_crash.pl
my $node = start_node('progress', streaming => 1, conf => q{
	wal_writer_delay = '10s'
	checkpoint_timeout = '1h'
	max_wal_size = '4GB'
	max_prepared_transactions = 5
	max_connections = 50
});
my $is_flushed = 'SELECT pg_current_wal_flush_lsn() >= pg_current_wal_insert_lsn()';

$node->safe_psql(
	'postgres', q{
	CREATE TABLE ledger (record bigint, generation bigint);
	SELECT idem_define_consumer('stock');
});

# the partition, assigned anew, with 100 to 102 delivered; the number of its owner
sub start_partition
{
	my ($partition) = @_;

	return answer(
		$node, "SELECT generation FROM idem_progress_assign('acme/stock/$partition');
		SELECT 'x' FROM idem_progress_fetched('acme/stock/$partition', 1, '{100,101,102}')")
	  =~ s/\nx//r;
}

sub committable
{
	my ($partition, $server) = @_;

	return answer($server // $node, "SELECT idem_progress_committable('acme/stock/$partition')");
}

# ---- who is told that an offset is done can rely on it ----

# what was done asynchronously, and how somebody gets to know of it
my %asks = (
	committable => [ q{SELECT idem_progress_committable('%s')}, '101' ],
	fetched => [ q{SELECT idem_progress_fetched('%s', 1, '{100,101}')}, '{101}' ],
	done => [ q{SELECT idem_progress_done('%s', 1, '{100}')}, 'ID003' ],
	advance => [ q{SELECT idem_progress_advance('%s', 1, 101)}, 'ID003' ],
	assign => [ q{SELECT * FROM idem_progress_assign('%s')}, '2|101' ]);

my $worker = session($node);
my $asker = session($node);
foreach my $session ($worker, $asker)
{
	$session->run('SET synchronous_commit = off');
	$session->run("SELECT idem_progress_assign('acme/stock/warm')");
}
foreach my $name (sort keys %asks)
{
	my ($ask, $answer) = @{ $asks{$name} };

	is(start_partition($name), '1', "$name: assigned");
	$worker->run('SELECT pg_switch_wal()');
	is($worker->run("SELECT idem_progress_done('acme/stock/$name', 1, '{100}')"),
		'', "$name: done asynchronously");
	is($asker->run($is_flushed), 'f', "$name: not on disk yet");
	my $written = $asker->run('SELECT pg_current_wal_insert_lsn()');
	is($asker->run(sprintf($ask, "acme/stock/$name")), $answer, "$name: somebody is told");
	is($asker->run("SELECT pg_current_wal_flush_lsn() >= '$written'"), 't', "$name: now it is");
}

# The log may stand at the start of a segment or of a page, whose header is not written yet.  A
# message of the right length fills a page up.
start_partition('page');
$worker->run(
	q{CREATE FUNCTION fill_page() RETURNS numeric LANGUAGE plpgsql AS $$
	DECLARE
		page int := current_setting('wal_block_size');
		before pg_lsn;
		size int;
		rest int;
	BEGIN
		-- what else is written meanwhile, by looks at the catalog, is soon over
		FOR i IN 1 .. 20 LOOP
			PERFORM pg_switch_wal();
			before := pg_current_wal_insert_lsn();
			PERFORM pg_logical_emit_message(false, 'fill', repeat('x', 1000));
			size := pg_current_wal_insert_lsn() - before;
			rest := page - (pg_current_wal_insert_lsn() - '0/0') % page;
			PERFORM pg_logical_emit_message(false, 'fill', repeat('x', 1000 + rest - size));
			EXIT WHEN (pg_current_wal_insert_lsn() - '0/0') % page < 40;
		END LOOP;
		RETURN (pg_current_wal_insert_lsn() - '0/0') % page;
	END $$});
$asker->run("SELECT idem_progress_committable('acme/stock/page')");
is($worker->run('SELECT fill_page()'), '24', 'page: the log stands behind a header');
is($asker->run("SELECT idem_progress_committable('acme/stock/page')"),
	'100', 'page: an answer at the start of a page');
$worker->run('SELECT pg_switch_wal()');
is($asker->run("SELECT idem_progress_committable('acme/stock/page')"),
	'100', 'page: an answer at the start of a segment');

is(start_partition('lost'), '1', 'lost: assigned');
$worker->run('SELECT pg_switch_wal()');
$worker->run(
	"BEGIN; INSERT INTO ledger VALUES (100, 1);
	SELECT idem_progress_done('acme/stock/lost', 1, '{100}'); COMMIT");
is($asker->run($is_flushed), 'f', 'lost: done, but not on disk');
crash($node);
is(committable($_), '101', "$_: what was told outlives the crash") foreach sort keys %asks;
is(committable('lost'), '100', 'lost: a control, and open again');
is(answer($node, 'SELECT count(*) FROM ledger'), '0', 'lost: with its effect');

# a generation that was handed out is not handed out again
$worker = session($node);
$asker = session($node);
$worker->run('SET synchronous_commit = off');
$worker->run("SELECT idem_progress_committable('acme/stock/lost')");
$worker->run('SELECT pg_switch_wal()');
my ($granted, $written) = split /\|/, $worker->run(
	"SELECT generation, pg_current_wal_insert_lsn() FROM idem_progress_assign('acme/stock/lost')");
is($granted, '2', 'a new owner');
is($asker->run("SELECT pg_current_wal_flush_lsn() > '$written'"),
	't', 'is on disk, whatever synchronous_commit says');
crash($node);
is(answer($node, "SELECT idem_progress_done('acme/stock/lost', 1, '{100}')"),
	'ID002', 'the former one is refused after the crash, too');
$_->quit foreach ($worker, $asker);

# ---- a backend that dies leaves its offsets open, and waits for nobody ----

start_partition('killed');
$worker = session($node);
$asker = session($node);
$worker->run(
	"BEGIN; INSERT INTO ledger VALUES (100, 1);
	SELECT idem_progress_done('acme/stock/killed', 1, '{100,101}')");
is($asker->run("SET lock_timeout = '10ms'; SELECT idem_progress_assign('acme/stock/killed')"),
	'55P03', 'a new owner waits no longer than lock_timeout');
$asker->run('SET lock_timeout = 0');
$asker->send("SELECT * FROM idem_progress_assign('acme/stock/killed')");
wait_for_lock($node, 1);
my $pid = $worker->pid;
is(answer($node, "SELECT pg_terminate_backend($pid)"), 't', 'the worker is terminated');
is($asker->receive, '2|100', 'the new owner starts with what it had not committed');
is($asker->run("SELECT idem_progress_fetched('acme/stock/killed', 2, '{100,101,102}')"),
	'{100,101,102}', 'which is all still to be done');
$_->quit foreach ($worker, $asker);

# the same with an owner, with who fetches, and who advances: what he did was never done
my %dies = (
	assign => [ '', q{done('%s', 1, '{100}')}, '' ],
	fetched => [ q{, 1, '{103,104}'}, q{fetched('%s', 1, '{103}')}, '{103}' ],
	advance => [ q{, 1, 103}, q{done('%s', 1, '{100}')}, '' ]);
foreach my $name (sort keys %dies)
{
	my ($arguments, $call, $answer) = @{ $dies{$name} };

	start_partition("killed-$name");
	$worker = session($node);
	$asker = session($node);
	$pid = $worker->pid;
	$worker->run("BEGIN; SELECT idem_progress_$name('acme/stock/killed-$name'$arguments)");
	$asker->send(sprintf("SELECT idem_progress_$call", "acme/stock/killed-$name"));
	wait_for_lock($node, 1);
	is(answer($node, "SELECT pg_terminate_backend($pid)"), 't', "killed-$name: terminated");
	is($asker->receive, $answer, "killed-$name: who waited goes on");
	is(answer($node, "SELECT * FROM idem_progress_assign('acme/stock/killed-$name')"),
		$name eq 'fetched' ? '2|100' : '2|101', "killed-$name: as if it had never been");
	$_->quit foreach ($worker, $asker);
}

# ---- prepared: neither lost nor overtaken by a new owner ----

start_partition('prepared');
$worker = session($node);
is( $worker->run(
		"BEGIN; INSERT INTO ledger VALUES (100, 1);
		SELECT idem_progress_done('acme/stock/prepared', 1, '{100}');
		PREPARE TRANSACTION 'work'"),
	'', 'work is prepared');
crash($node);
is(committable('prepared'), '100', 'prepared: not done yet');
$worker = session($node);
$asker = session($node);
$asker->send("SELECT * FROM idem_progress_assign('acme/stock/prepared')");
wait_for_lock($node, 1);
is($worker->run("COMMIT PREPARED 'work'"), '', 'prepared: committed after the crash');
is($asker->receive, '2|101', 'prepared: a new owner has waited for it');
$_->quit foreach ($worker, $asker);
$node->safe_psql('postgres', 'TRUNCATE ledger');

# ---- dropped and created again, in one session ----

$node->safe_psql('postgres', 'CREATE DATABASE reinstall');
my $reinstall = session($node, 'reinstall');
foreach my $schema ('public', 'public', 'other')
{
	$reinstall->run('CREATE SCHEMA IF NOT EXISTS other');
	is($reinstall->run("CREATE EXTENSION idem_action SCHEMA $schema"), '', "$schema: created");
	$reinstall->run('SET search_path = public, other');
	$reinstall->run("SELECT idem_define_consumer('stock')");
	is( $reinstall->run(
			q{SELECT idem_progress_assign('acme/stock/0');
			SELECT idem_progress_fetched('acme/stock/0', 1, '{1,2,3}');
			SELECT idem_progress_done('acme/stock/0', 1, '{1,3}');
			SELECT idem_progress_advance('acme/stock/0', 1, 3);
			SELECT * FROM idem_progress_assign('acme/stock/0')}),
		"(1,)\n{1,2,3}\n\n\n2|4",
		"$schema: a life");
	is($reinstall->run('DROP EXTENSION idem_action'), '', "$schema: dropped");
}
$reinstall->quit;

# ---- a promotion that loses an assignment ----

start_partition('lost-owner');
start_partition('kept-owner');
$node->safe_psql('postgres', q{SELECT idem_progress_assign('acme/stock/kept-serial')});
$node->safe_psql('postgres', q{SELECT idem_progress_advance('acme/stock/kept-serial', 1, 101)});
$node->backup('backup');
my $standby = PostgreSQL::Test::Cluster->new('progress_standby');
$standby->init_from_backup($node, 'backup', has_streaming => 1);
$standby->start;
$node->wait_for_catchup($standby);
is(committable('kept-owner', $standby), '100', 'a standby can be asked');
$standby->safe_psql('postgres', q{ALTER SYSTEM SET primary_conninfo = ''});
$standby->reload;
$standby->poll_query_until('postgres', 'SELECT count(*) = 0 FROM pg_stat_wal_receiver')
  or die 'the standby goes on receiving';
is(answer($node, "SELECT * FROM idem_progress_assign('acme/stock/lost-owner')"),
	'2|100', 'lost: an assignment');
is(answer($node, "SELECT idem_progress_fetched('acme/stock/kept-owner', 1, '{200,201}')"),
	'{200,201}', 'lost: what an owner was delivered');
is(answer($node, "SELECT idem_progress_advance('acme/stock/kept-serial', 1, 102)"),
	'', 'lost: what a serial one has done');
$standby->promote;
foreach my $call ("fetched('acme/stock/lost-owner', 2, '{100}')",
	"done('acme/stock/lost-owner', 2, '{100}')", "advance('acme/stock/lost-owner', 2, 101)")
{
	is(answer($standby, "SELECT idem_progress_$call"), 'ID002', "its owner is refused: $call");
}
is(answer($standby, "SELECT idem_progress_done('acme/stock/kept-owner', 1, '{100}')"),
	'', 'an owner on record finishes what is on record');
is(answer($standby, "SELECT idem_progress_fetched('acme/stock/kept-owner', 1, '{202}')"),
	'ID002', 'and is refused where he would pass by what was lost');
is(answer($standby, "SELECT idem_progress_advance('acme/stock/kept-serial', 1, 103)"),
	'ID002', 'so is a serial one');
foreach my $partition ('kept-owner', 'kept-serial')
{
	is( answer(
			$standby,
			"SELECT generation > 1, next_offset FROM idem_progress_assign('acme/stock/$partition')"),
		't|101',
		"$partition: assigned anew, it starts from what is on record");
}
my ($generation, $next_offset) = split /\|/,
  answer($standby, "SELECT * FROM idem_progress_assign('acme/stock/lost-owner')");
cmp_ok($generation, '>', 2**32, 'the next generation is of a new era');
is($next_offset, '100', 'and starts where the former one was');
is(answer($standby, "SELECT idem_progress_done('acme/stock/lost-owner', 2, '{100}')"),
	'ID002', 'the lost owner stays refused');
$standby->stop;

# ---- asking while the topic is created anew, again and again ----

# In each epoch the first of three offsets stays open, so what is behind the third is never the
# answer.  It would be one of an epoch that ended between the two looks of who asks.
$node->safe_psql(
	'postgres', q{
	SELECT idem_progress_assign('acme/stock/anew', '0');
	CREATE PROCEDURE begin_epochs() LANGUAGE plpgsql AS $$
	DECLARE
		g bigint;
	BEGIN
		FOR n IN 1 .. 3000 LOOP
			g := generation FROM idem_progress_assign('acme/stock/anew', n::text);
			PERFORM idem_progress_fetched('acme/stock/anew', g, ARRAY[10 * n, 10 * n + 1, 10 * n + 2]);
			COMMIT;
		END LOOP;
	END $$;
	CREATE FUNCTION ask_meanwhile(OUT epochs bigint, OUT wrong bigint) LANGUAGE plpgsql AS $$
	DECLARE
		c bigint;
		before bigint := 0;
	BEGIN
		epochs := 0;
		wrong := 0;
		WHILE before < 30000 LOOP
			c := coalesce(idem_progress_committable('acme/stock/anew'), before);
			epochs := epochs + (c <> before)::int;
			wrong := wrong + (c % 10 <> 0)::int;
			before := c;
		END LOOP;
	END $$;
});
$worker = session($node);
$asker = session($node);
$asker->send('SELECT epochs > 100, wrong FROM ask_meanwhile()');
$worker->send('CALL begin_epochs()');
is($worker->receive, '', 'anew: 3000 epochs');
is($asker->receive, 't|0', 'anew: no answer is of an epoch that is over');
$_->quit foreach ($worker, $asker);

# ---- a race ----

# Clients poll, work, ask and take the partition over, all at once.  What a worker does is picked
# at random, most of it open, some of it not; it may roll back.  Who asks sees for himself that
# all below what he is told has had its effect, and that it never goes back.
my $nrecords = 3000;
$node->safe_psql(
	'postgres', qq{
	CREATE TABLE log AS SELECT n::bigint AS record FROM generate_series(10, 5000) n
		ORDER BY hashint4(n) LIMIT $nrecords;
	CREATE TABLE owner AS SELECT generation, 0::bigint AS next_offset
		FROM idem_progress_assign('acme/stock/race');
	} . q{
	CREATE FUNCTION poll() RETURNS void LANGUAGE plpgsql AS $$
	DECLARE
		o owner;
		batch bigint[];
	BEGIN
		SELECT * INTO o FROM owner;
		batch := ARRAY(SELECT record FROM log WHERE record >= o.next_offset ORDER BY 1 LIMIT 20);
		PERFORM idem_progress_fetched('acme/stock/race', o.generation, batch);
		UPDATE owner SET next_offset = greatest(next_offset, batch[cardinality(batch)] + 1)
			WHERE generation = o.generation AND cardinality(batch) > 0;
	EXCEPTION WHEN SQLSTATE 'ID002' OR serialization_failure OR deadlock_detected THEN
		NULL;
	END $$;
	CREATE FUNCTION work() RETURNS void LANGUAGE plpgsql AS $$
	DECLARE
		g bigint := (SELECT generation - (random() < 0.1)::int FROM owner);
		batch bigint[] := ARRAY(SELECT record_offset FROM (SELECT record_offset
			FROM idem_progress_open ORDER BY 1 LIMIT 40) o ORDER BY random() LIMIT 3);
	BEGIN
		IF random() < 0.1 THEN
			batch := batch || (SELECT record FROM log ORDER BY random() LIMIT 1);
		END IF;
		INSERT INTO ledger SELECT unnest(batch), g;
		PERFORM idem_progress_done('acme/stock/race', g, batch);
		INSERT INTO ledger SELECT 1 / (random() > 0.1)::int, 0 WHERE false OR random() < 0.1;
		DELETE FROM ledger WHERE generation = 0;
	EXCEPTION WHEN SQLSTATE 'ID002' OR SQLSTATE 'ID003' OR serialization_failure
		OR deadlock_detected OR division_by_zero THEN
		NULL;
	END $$;
	CREATE FUNCTION take_over() RETURNS void LANGUAGE plpgsql AS $$
	DECLARE
		a idem_assignment;
	BEGIN
		a := idem_progress_assign('acme/stock/race');
		UPDATE owner SET generation = a.generation,
			next_offset = coalesce(a.next_offset, 0) - (random() * 20)::int;
	EXCEPTION WHEN serialization_failure OR deadlock_detected THEN
		NULL;
	END $$;
	CREATE FUNCTION ask() RETURNS void LANGUAGE plpgsql AS $$
	DECLARE
		c bigint := idem_progress_committable('acme/stock/race');
	BEGIN
		IF c < nullif(current_setting('race.before', true), '')::bigint THEN
			RAISE 'went back to %', c;
		END IF;
		PERFORM set_config('race.before', c::text, false);
		IF EXISTS (SELECT FROM log LEFT JOIN ledger USING (record)
				WHERE record < c AND generation IS NULL) THEN
			RAISE 'not everything below % is done', c;
		END IF;
	END $$;
});

my @scripts;
foreach my $call ('poll@3', 'work@24', 'ask@4', 'take_over@1')
{
	my ($function, $weight) = split /@/, $call;
	my $file = "$PostgreSQL::Test::Utils::tmp_check/$function.sql";

	append_to_file($file, "SELECT $function();\n");
	push @scripts, '-f', "$file\@$weight";
}

# whoever asks sees what is committed now
foreach my $isolation ('read committed', 'repeatable read', 'serializable')
{
	my @race = $isolation eq 'read committed' ? @scripts : grep { $_ !~ /ask/ } @scripts;
	@race = grep { $_ ne '-f' } @race;
	local $ENV{PGOPTIONS} = '-c default_transaction_isolation=' . ($isolation =~ s/ /\\ /r);
	$node->command_ok(
		[
			'pgbench', '-n', '-c', 12, '-j', 2, '-t', 300, '--max-tries=1000',
			(map { ('-f', $_) } @race), $node->connstr('postgres')
		],
		"race, $isolation");
	cmp_ok(answer($node, 'SELECT count(*) FROM ledger'), '>', 0, "race, $isolation: work is done");
}
cmp_ok(answer($node, 'SELECT generation FROM owner'), '>', 20, 'race: many owners');
cmp_ok(answer($node, 'SELECT count(DISTINCT generation) FROM ledger'),
	'>', 5, 'race: several of them have worked');

# the last owner does what is left
my $is_left = 'record NOT IN (SELECT record FROM ledger)';
my $nleft = answer($node, "SELECT count(*) FROM log WHERE $is_left");
$node->safe_psql(
	'postgres', q{
	SELECT take_over();
	DO $$
	DECLARE
		g bigint := (SELECT generation FROM owner);
		batch bigint[];
	BEGIN
		FOR i IN 0 .. 50 LOOP
			batch := idem_progress_fetched('acme/stock/race', g, ARRAY(
				SELECT record FROM log WHERE record >= 100 * i AND record < 100 * (i + 1)));
			INSERT INTO ledger SELECT unnest(batch), g;
			PERFORM idem_progress_done('acme/stock/race', g, batch);
			COMMIT;
		END LOOP;
	END $$;
});
note "$nleft were left to the last owner";
is( answer($node, 'SELECT count(*), count(DISTINCT record) FROM ledger'),
	"$nrecords|$nrecords",
	'race: every record has had its effect, once');
is(answer($node, "SELECT count(*) FROM log WHERE $is_left"), '0', 'race: and none was lost');
is(committable('race'), answer($node, 'SELECT max(record) + 1 FROM log'),
	'race: all of it may be committed');
is(answer($node, q{SELECT count(*) FROM idem_progress_offset WHERE key = 'acme/stock/race'}),
	'0', 'race: nothing is kept of it');

$node->stop;
done_testing();
