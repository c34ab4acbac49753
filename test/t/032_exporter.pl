# The real postgres_exporter reads our views as a monitor, with the queries that we ship, and the
# figures move when something happens.  Every alarm reads figures that are there, has a chapter in
# the runbook, and is raised by what it should be and by nothing else, says promtool.
use strict;
use warnings;
use FindBin;
use lib $FindBin::RealBin;
use HTTP::Tiny;
use IdemTest;
use IPC::Run;
use POSIX ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep);

# `make test` has installed them
foreach my $program ('prometheus-postgres-exporter', 'promtool')
{
	plan skip_all => "$program is not installed"
	  unless grep { -x "$_/$program" } split /:/, $ENV{PATH};
}

my $root = "$FindBin::RealBin/../..";
my $exporter;    # its pid

my $node = PostgreSQL::Test::Cluster->new('exporter');
$node->init;
$node->start;
$node->safe_psql(
	'postgres', q{
	CREATE SCHEMA idem;
	CREATE EXTENSION idem_action SCHEMA idem;
	ALTER DATABASE postgres SET search_path = public, idem;
	SET search_path = public, idem;
	SELECT idem_define_operation('CREDIT'), idem_define_consumer('stock'),
		idem_define_operation('REFUND', effect => 'external', lease => '1 hour',
			channel_queryable => true, absence_visible_after => '0', backoff_base => '0',
			backoff_max => '0');
	CREATE ROLE exporter LOGIN;
	SELECT idem_grant('exporter', 'monitor', '*');
});

# ---- the exporter ----

# what it would keep for minutes it asks anew each time, here
my $queries = slurp_file("$root/doc/monitoring/queries.yaml");
my $ncached = $queries =~ s/^  cache_seconds: \d+\n//mg;
is($ncached, 1, 'what is dear is not asked at every scrape');
my $directory = PostgreSQL::Test::Utils::tempdir;
append_to_file("$directory/queries.yaml", $queries);

my $port = PostgreSQL::Test::Cluster::get_free_port();
my $log = "$directory/exporter.log";
my $http = HTTP::Tiny->new(timeout => 30, proxy => undef, http_proxy => undef);

sub start_exporter
{
	my $pid = fork // die "cannot fork: $!";
	return $pid if $pid != 0;

	$ENV{DATA_SOURCE_NAME} =
	  'user=exporter sslmode=disable dbname=postgres host=' . $node->host . ' port=' . $node->port;
	open(STDOUT, '>', $log) or die "cannot write $log: $!";
	open(STDERR, '>&', \*STDOUT) or die "cannot write $log: $!";
	exec 'prometheus-postgres-exporter', "--web.listen-address=127.0.0.1:$port",
	  "--extend.query-path=$directory/queries.yaml", '--disable-settings-metrics'
	  or POSIX::_exit(127);
}

# the lines of a scrape of which the name begins with idem_: figure => value
sub scrape
{
	my %figures;
	my $answer;

	foreach (1 .. 10 * $PostgreSQL::Test::Utils::timeout_default)
	{
		$answer = $http->get("http://127.0.0.1:$port/metrics");
		last if $answer->{success};
		sleep 0.1;
	}
	die "no scrape: $answer->{content}\n" . slurp_file($log) unless $answer->{success};
	foreach my $line (split /\n/, $answer->{content})
	{
		next unless $line =~ /^((?:idem|pg_exporter)_\w+)(?:\{(.*)\})? (\S+)$/;
		my ($name, $labels, $value) = ($1, $2 // '', $3);
		$labels = join ',', grep { !/^server=/ } split /,/, $labels;
		$figures{ $name . ($labels eq '' ? '' : "{$labels}") } = $value;
	}
	return \%figures;
}

# which figures are no longer what they were, as text
sub moved
{
	my ($before, $after) = @_;

	return join "\n", map { "$_ " . ($before->{$_} // 'nothing') . " -> $after->{$_}" }
	  grep { !/_seconds|^pg_exporter/ && $after->{$_} ne ($before->{$_} // '') } sort keys %$after;
}

END
{
	if (defined $exporter && $exporter != 0)
	{
		local $?;
		kill 'TERM', $exporter;
		waitpid $exporter, 0;
	}
}

$exporter = start_exporter();
my $before = scrape();
is($before->{pg_exporter_last_scrape_error}, '0', 'every query is answered')
  or diag slurp_file($log);
is($before->{'idem_verdicts_total{operation="CREDIT",outcome="execute"}'}, '0', 'zero is a figure');
# all but the name, the time of the reset, and what is no outcome
my $noutcomes = answer($node,
	q{SELECT count(*) - 6 FROM pg_attribute
		WHERE attrelid = 'idem_stat_operations'::regclass AND attnum > 0});
is(scalar(grep { /^idem_verdicts_total\{/ } keys %$before),
	2 * $noutcomes, 'each outcome of both operations');
is(scalar(grep { /^idem_violations_count\{/ } keys %$before), 4, 'each kind of violation');
is(scalar(grep { /^idem_progress_\w+\{consumer="stock"\}/ } keys %$before),
	2, 'each figure of progress');
is(scalar(grep { /^idem_health_\w+\{operation="REFUND"\}/ } keys %$before),
	13, 'each figure of health');
is(moved($before, scrape()), '', 'nothing happens, nothing moves');

# ---- figures move ----

my @steps = (
	[
		'a local action and its duplicate',
		q{SELECT idem_once('acme/CREDIT/c-1', '{}'), idem_once('acme/CREDIT/c-1', '{}')},
		q{idem_verdicts_total{operation="CREDIT",outcome="execute"} 0 -> 1
idem_verdicts_total{operation="CREDIT",outcome="succeeded"} 0 -> 1}
	],
	[
		'events',
		q{SELECT idem_consume('acme/stock/1', d)
			FROM (VALUES ('{}'::jsonb), ('{}'), ('[]')) v (d)},
		q{idem_events_total{consumer="stock",outcome="conflict"} 0 -> 1
idem_events_total{consumer="stock",outcome="duplicate"} 0 -> 1
idem_events_total{consumer="stock",outcome="first"} 0 -> 1}
	],
	[
		'records of a log, one of them done',
		q{DO $$ DECLARE k idem_key = 'acme/stock/orders/0';
				g bigint = (idem_progress_assign(k)).generation;
			BEGIN PERFORM idem_progress_fetched(k, g, '{5,6,7}'), idem_progress_done(k, g, '{6}');
			END $$},
		q{idem_progress_open{consumer="stock"} 0 -> 2}
	],
	[
		'a claim',
		q{SELECT idem_claim('acme/REFUND/r-1', '{}')},
		q{idem_health_in_flight{operation="REFUND"} 0 -> 1
idem_health_processing{operation="REFUND"} 0 -> 1
idem_verdicts_total{operation="REFUND",outcome="execute"} 0 -> 1}
	],
	[
		'an owner who does not come back',
		q{UPDATE idem_lease SET lease_until = now()},
		q{idem_health_lapsed{operation="REFUND"} 0 -> 1}
	],
	[
		'a takeover',
		q{SELECT idem_claim('acme/REFUND/r-1', '{}')},
		q{idem_health_lapsed{operation="REFUND"} 1 -> 0
idem_takeovers_total{operation="REFUND"} 0 -> 1
idem_verdicts_total{operation="REFUND",outcome="verify"} 0 -> 1}
	],
	[
		'the old owner after all',
		q{DO $$ BEGIN PERFORM idem_complete('acme/REFUND/r-1', 1);
			EXCEPTION WHEN SQLSTATE 'ID002' THEN END $$},
		q{idem_refusals_total{operation="REFUND",reason="stale"} 0 -> 1}
	],
	[
		'a recovery that fails',
		q{SELECT idem_mark_unknown('acme/REFUND/r-1', 2, retry_after => '0')},
		q{idem_health_due{operation="REFUND"} 0 -> 1
idem_health_processing{operation="REFUND"} 1 -> 0
idem_health_recovery_failures{operation="REFUND"} 0 -> 1
idem_health_unknown{operation="REFUND"} 0 -> 1}
	],
	[
		'a violation',
		q{SELECT idem_add_evidence('acme/REFUND/r-1', NULL, NULL, 'pay-' || n)
			FROM generate_series(1, 2) n},
		q{idem_violations_count{kind="several_references"} 0 -> 1}
	]);
foreach my $step (@steps)
{
	my ($name, $sql, $expected) = @$step;

	$node->safe_psql('postgres', $sql);
	my $after = scrape();
	is(moved($before, $after), $expected, $name);
	$before = $after;
}
$node->safe_psql('postgres',
	q{UPDATE idem_lease SET first_granted_at = now() - interval '1 hour'});
cmp_ok(scrape()->{'idem_health_oldest_unknown_seconds{operation="REFUND"}'},
	'>=', 3600, 'how old the oldest is');
is(scrape()->{'idem_progress_oldest_seconds{consumer="stock"}'} < 3600,
	1, 'how old the oldest offset is');
$node->safe_psql('postgres',
	q{UPDATE idem_progress_offset SET fetched_at = now() - interval '1 hour'
		WHERE record_offset = 7});
cmp_ok(scrape()->{'idem_progress_oldest_seconds{consumer="stock"}'},
	'>=', 3600, 'however young others are');
is(scrape()->{pg_exporter_last_scrape_error}, '0', 'every query is answered still');

# a tenant's monitor is not enough for the counters, and a role that is none sees nothing
$node->safe_psql('postgres',
	q{SELECT idem_revoke('exporter', 'monitor', '*'), idem_grant('exporter', 'monitor', 'globex')});
my $after = scrape();
is(join(' ', grep { /^idem_(verdicts|refusals|takeovers|events)_/ } keys %$after),
	'', "a tenant's monitor: no counters");
is($after->{'idem_health_in_flight{operation="REFUND"}'}, '0', 'and nothing of another tenant');
$node->safe_psql('postgres', q{SELECT idem_revoke('exporter', 'monitor', 'globex')});
$after = scrape();
is(join(' ', grep { /^idem_/ } keys %$after), '', 'without a grant nothing');
is($after->{pg_exporter_last_scrape_error}, '1', 'and that is an alarm of its own');

# ---- the alarms ----

my $alerts = slurp_file("$root/doc/monitoring/alerts.yaml");
my %shown = map { /^(\w+)/ ? ($1 => 1) : () } keys %$before;
my @asked = $alerts =~ /\b((?:idem|pg_exporter)_[a-z_]+)\b(?=[\s{}\[)]|$)/mg;
cmp_ok(@asked, '>', 10, 'figures in the alarms');
ok($shown{$_}, "$_, which an alarm reads, is shown")
  foreach grep { $_ ne 'idem_action' } @asked;

my $runbook = slurp_file("$root/doc/runbook.md");
my @alarms = $alerts =~ /- alert: (\w+)/g;
is( join(' ', sort $runbook =~ /^## (Idem\w+)$/mg),
	join(' ', sort @alarms),
	'the runbook has a chapter on each alarm');
like($alerts, qr/runbook: doc\/runbook\.md#\L$_\E$/m, "$_ leads to its chapter") foreach @alarms;

foreach my $arguments (
	[ 'check', 'rules', 'doc/monitoring/alerts.yaml' ],
	[ 'test', 'rules', 'test/monitoring/alerts_test.yaml' ])
{
	my ($out, $err);
	my $ok = IPC::Run::run(
		[ 'promtool', @$arguments[ 0, 1 ], "$root/$arguments->[2]" ], '>', \$out, '2>', \$err);
	ok($ok, "promtool @$arguments") or diag "$out$err";
}

kill 'TERM', $exporter;
waitpid $exporter, 0;
$exporter = undef;
$node->stop;
done_testing();
