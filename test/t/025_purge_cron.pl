# The jobs that doc/retention.md shows are run by the real pg_cron, and purge.
use strict;
use warnings;
use FindBin;
use lib $FindBin::RealBin;
use IdemTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $sharedir = `pg_config --sharedir`;
chomp $sharedir;
plan skip_all => 'pg_cron is not installed for this PostgreSQL'
  unless -e "$sharedir/extension/pg_cron.control";

my @jobs = slurp_file("$FindBin::RealBin/../../doc/retention.md") =~ /^```sql\n(SELECT cron\.schedule.*?)^```/msg;
is(scalar @jobs, 2, 'the page shows two jobs');

my $node = start_node('cron', conf => <<'CONF');
shared_preload_libraries = 'pg_cron'
cron.database_name = 'postgres'
cron.use_background_workers = on
max_worker_processes = 20
CONF
$node->safe_psql(
	'postgres', q{
	CREATE EXTENSION pg_cron;
	SELECT idem_define_operation('OLD', retention => '1 us'),
		idem_define_consumer('old', retention => '1 us');
});

answer(
	$node, q{
	SELECT count(idem_once('acme/OLD/' || i, '1', '2026-01-01 00:00+00')) FROM generate_series(1, 1000) i;
	SELECT count(*) FROM generate_series(1, 1000) i,
		idem_consume('acme/old/' || i, '1', '2026-01-01 00:00+00')});

# as the page has them, but due at once: pg_cron 1.4 counts in minutes
foreach my $job (@jobs)
{
	like(answer($node, $job =~ s/'(idem-[\w-]+)', '[^']*'/'$1', '* * * * *'/r), qr/^\d+$/, 'a job is scheduled');
}
ok( $node->poll_query_until(
		'postgres', q{SELECT count(DISTINCT jobid) = 2 AND bool_and(status = 'succeeded')
			FROM cron.job_run_details WHERE end_time IS NOT NULL}),
	'the jobs succeed');
is( answer($node, q{SELECT (SELECT count(*) FROM idem_action), (SELECT count(*) FROM idem_event)}),
	'0|0', 'they purge');
is( answer($node, q{SELECT string_agg(key::text, ' ' ORDER BY key) FROM idem_watermark}),
	'acme/OLD/a acme/old/e',
	'and raise the watermarks');

$node->stop;
done_testing();
