# Counters live in the memory of one server: they survive the rollback and the death of a backend
# that counted, start again at zero with the server, and never make a call fail that they count,
# be there more names than slots or no memory at all.
use strict;
use warnings;
use FindBin;
use lib $FindBin::RealBin;
use IdemTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = start_node('counters', conf => q{
	restart_after_crash = on
	log_statement = none
});
my $has_segments = $node->pg_version >= 17;
my $SLOTS = $has_segments ? 1000 : 200;

sub counted
{
	my ($what, $operation) = @_;

	return answer($node, "SELECT $what FROM idem_stat_operations WHERE operation = '$operation'");
}

# ---- a backend that dies took part ----

$node->safe_psql('postgres',
	q{SELECT idem_define_operation('CREDIT'), idem_define_consumer('stock')});
my $session = session($node);
$session->run('BEGIN');
is($session->run(q{SELECT idem_once('acme/CREDIT/c-1', '{}')}), 't', 'first');
my $pid = $session->pid;
$node->safe_psql('postgres', "SELECT pg_terminate_backend($pid, 10000)");
is(answer($node, q{SELECT state FROM idem_status('acme/CREDIT/c-1')}), '', 'undone');
is(counted('execute', 'CREDIT'), '1', 'a terminated backend has counted');
is(answer($node, q{SELECT idem_once('acme/CREDIT/c-1', '{}')}), 't', 'another one is first');
is(counted('execute, stats_reset < now()', 'CREDIT'), '2|t', 'and counts on');

# ---- the server starts again ----

my $before = answer($node, 'SELECT now()');
foreach my $way ('restart', 'crash', 'killed backend')
{
	$node->restart if $way eq 'restart';
	crash($node) if $way eq 'crash';
	if ($way eq 'killed backend')
	{
		my $victim = session($node);
		my $started = answer($node, 'SELECT pg_postmaster_start_time()');

		kill 'KILL', $victim->pid;
		# all backends go, and shared memory is made anew
		$node->poll_query_until('postgres',
			"SELECT count(*) = 0 FROM idem_stat_operations WHERE execute > 0")
		  or die 'the server does not recover';
		is(answer($node, 'SELECT pg_postmaster_start_time()'), $started, 'the same postmaster');
	}
	is(counted("execute, succeeded, stats_reset > '$before'", 'CREDIT'), '0|0|t', "$way: zero");
	is(answer($node, q{SELECT idem_once('acme/CREDIT/c-1', '{}')}), 'f', "$way: on record");
	is(counted('execute, succeeded', 'CREDIT'), '0|1', "$way: counts again");
}

# ---- more names than slots ----

# these get theirs first
$node->safe_psql('postgres', 'CREATE DATABASE other');
$node->safe_psql('other', 'CREATE EXTENSION idem_action');
sub use_operations
{
	my ($database, $from, $to) = @_;

	is( answer(
			$node, qq{
			SELECT count(*) FILTER (WHERE idem_once('acme/OP-' || n || '/1', '{}'))
			FROM generate_series($from, $to) n WHERE idem_define_operation('OP-' || n) = 1},
			$database),
		$to - $from + 1,
		"$database: operations $from to $to");
}
my $shared = q{
	SELECT count(*) FILTER (WHERE execute = 1), count(*) FILTER (WHERE execute IS NULL),
		max(execute) FILTER (WHERE operation = '(other operations)')
	FROM idem_stat_operations};
# CREDIT has one of the slots
my $nfree = $SLOTS - 1;

use_operations('other', 1, 50);
is(answer($node, $shared, 'other'), '50|0|', 'slots of their own');
use_operations('postgres', 1, $nfree - 50);
is(answer($node, $shared), ($nfree - 50) . '|0|', 'until there are no more');
use_operations('postgres', $nfree - 49, $nfree - 40);
is(answer($node, $shared), ($nfree - 50) . '|10|10', 'then the rest shares one');
is(counted('succeeded', 'CREDIT'), '1', 'nobody lost his');
is(answer($node, q{SELECT outcome FROM idem_consume('acme/stock/e-1', '{}')}),
	'first', 'consumers too');
is( answer($node, 'SELECT consumer, first FROM idem_stat_consumers ORDER BY 1'),
	"(other consumers)|1\nstock|",
	'have one for the rest');
$node->safe_psql('postgres', 'SELECT idem_stat_reset()');
is(answer($node, 'SELECT count(*) FROM idem_stat_operations WHERE execute = 0'),
	$nfree - 50 + 1, 'a reset is of all slots of this database');
is(answer($node, $shared), '0|10|10', 'and not of the shared one, which other databases use too');
is(answer($node, $shared, 'other'), '50|0|10', 'nor of those of another database');

# a session that shares goes on to share; a new one finds what a dropped database left
$session = session($node);
$session->run("SELECT idem_once('acme/OP-$nfree/other', '{}')");
$session->run(sprintf(q{SELECT idem_once('acme/OP-%d/4', '{}')}, $nfree - 40));
$node->safe_psql('postgres', 'DROP DATABASE other');
$session->run(sprintf(q{SELECT idem_once('acme/OP-%d/2', '{}')}, $nfree - 40));
is(counted('execute', '(other operations)'), '12', 'shared before and after');
is(answer($node, sprintf(q{SELECT idem_once('acme/OP-%d/3', '{}')}, $nfree - 41)),
	't', 'a new session');
is(counted('execute', 'OP-' . ($nfree - 41)), '1', 'has the slot of an operation that is gone');
is(counted('execute', 'OP-1'), '0', 'and took it from nobody');
is(answer($node, q{SELECT outcome FROM idem_consume('acme/stock/e-2', '{}')}),
	'first', 'consumers too');
is(answer($node, q{SELECT first FROM idem_stat_consumers WHERE consumer = 'stock'}), '1', 'again');
$session->quit;

# ---- no memory ----

# Before 17 it comes out of what the server has to spare.  Locks can use that up first; what was
# theirs once is given back to locks only.
if (!$has_segments)
{
	$node->append_conf('postgresql.conf', 'max_locks_per_transaction = 10');
	$node->restart;
	is( answer(
			$node, q{DO $$ BEGIN
				FOR i IN 1 .. 1000000 LOOP
					PERFORM pg_advisory_xact_lock(i);
				END LOOP;
			END $$}),
		'53200',
		'locks take all shared memory');
	my $log = -s $node->logfile;
	$session = session($node);
	is($session->run(q{SELECT idem_once('acme/CREDIT/c-9', '{}')}), 't', 'calls go on');
	is($session->run(q{SELECT idem_once('acme/CREDIT/c-9', '{}')}), 'f', 'as ever');
	like(slurp_file($node->logfile, $log), qr/idem_action counts nothing in this session/,
		'the log tells');
	is( $session->run(
			q{SELECT execute, stats_reset FROM idem_stat_operations WHERE operation = 'CREDIT'}),
		'|',
		'what is not counted is null');
	is($session->run(q{SELECT idem_stat_reset()}), '', 'and there is nothing to be reset');
	$session->quit;
}

$node->stop;
done_testing();
