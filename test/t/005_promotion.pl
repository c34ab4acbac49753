# A standby is promoted without the last grants.  Whoever was granted something on the lost
# timeline is refused, also when the same number of grants has been made again since.
use strict;
use warnings;
use FindBin;
use lib $FindBin::RealBin;
use IdemTest;
use PostgreSQL::Test::Cluster;
use Test::More;

my $primary = start_node('primary', streaming => 1);
$primary->safe_psql(
	'postgres', q{
	SELECT idem_define_operation('CREDIT');
	SELECT idem_define_operation('REFUND', effect => 'external', lease => '100 ms',
		channel_queryable => true, absence_visible_after => '0', max_attempts => 100);
	SELECT idem_claim('acme/REFUND/taken-over', '{}');
	SELECT idem_claim('acme/REFUND/absent', '{}');
	SELECT idem_claim('acme/REFUND/kept', '{}');
	SELECT idem_claim('acme/REFUND/review', '{}');
	SELECT idem_escalate('acme/REFUND/review', 1);
});
$primary->backup('backup');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'backup', has_streaming => 1);
$standby->start;
$primary->wait_for_catchup($standby);

# another one from the same past, which will not hear of the first one's promotion either
my $rival = PostgreSQL::Test::Cluster->new('rival');
$rival->init_from_backup($primary, 'backup');
$rival->set_standby_mode;

# a session that has looked before the promotion, and acts after it
my $session = session($standby);
is($session->run(q{SELECT generation FROM idem_status('acme/REFUND/taken-over')}),
	'1', 'the first grant arrives at the standby');

# ---- from here on nothing arrives any more ----

$standby->safe_psql('postgres', q{ALTER SYSTEM SET primary_conninfo = ''});
$standby->reload;
$standby->poll_query_until('postgres', 'SELECT count(*) = 0 FROM pg_stat_wal_receiver')
  or die 'the standby goes on receiving';

sub lapse
{
	my ($node, $key) = @_;
	$node->poll_query_until('postgres',
		"SELECT lease_until < clock_timestamp() FROM idem_status('acme/$key')")
	  or die 'the lease does not lapse';
}

lapse($primary, 'REFUND/taken-over');
is( answer(
		$primary, q{SELECT outcome, generation FROM idem_claim('acme/REFUND/taken-over', '{}')}),
	'verify|2',
	'lost: a takeover');
lapse($primary, 'REFUND/taken-over');
is( answer(
		$primary, q{SELECT outcome, generation FROM idem_claim('acme/REFUND/taken-over', '{}')}),
	'verify|3',
	'lost: another one');
is( answer(
		$primary, q{SELECT idem_claim('acme/REFUND/absent', '{}');
		SELECT outcome, generation FROM idem_absent('acme/REFUND/absent', 2)}) =~ s/.*\n//sr,
	'execute|3',
	'lost: a verify, and the grant after it');
is( answer(
		$primary, q{SELECT idem_resolve('acme/REFUND/review', 1, 'pending', 'not executed');
		SELECT outcome, generation FROM idem_reclaim('acme/REFUND/review')}) =~ s/.*\n//sr,
	'execute|3',
	'lost: a decision, and the grant after it');
is( answer(
		$primary, q{SELECT outcome, generation FROM idem_claim('acme/REFUND/lost', '{}')}),
	'execute|1',
	'lost: a whole record');
is(answer($primary, q{SELECT idem_once('acme/CREDIT/lost', '{}')}), 't', 'lost: a local action');

$primary->stop('immediate');
$standby->promote;

# ---- the standby is the primary now ----

# what was granted on the lost timeline, before anybody is granted it anew
is($session->run(q{SELECT idem_complete('acme/REFUND/taken-over', 2)}),
	'ID002', 'the first lost owner is refused');
is($session->run(q{SELECT idem_complete('acme/REFUND/taken-over', 3)}),
	'ID002', 'and so is the second');
is($session->run(q{SELECT idem_complete('acme/REFUND/absent', 3)}),
	'ID002', 'and who was granted it after an absence');
is($session->run(q{SELECT idem_complete('acme/REFUND/review', 3)}),
	'ID002', 'and who was granted it after a decision');
is($session->run(q{SELECT idem_complete('acme/REFUND/lost', 1)}),
	'ID005', 'a lost record is unknown');
is($session->run(q{SELECT idem_complete('acme/REFUND/kept', 1, '{"ok": true}')}),
	'', 'an owner whose grant is on record may finish');

# and afterwards: as many grants as were lost would lead to the same numbers
my $floor = answer($standby, q{SELECT generation FROM idem_claim('acme/REFUND/new', '{}')});
my ($era, $timeline) = split /\|/, answer($standby, 'SELECT era, timeline FROM idem_era');
cmp_ok($era, '>', 0, 'the era is raised');
is($timeline, '2', 'the new timeline is on record');
is($floor, 1 + 2**32 * $era, 'a new action is born in the era');
foreach my $round (0, 1)
{
	is( $session->run(
			q{SELECT outcome, generation FROM idem_claim('acme/REFUND/taken-over', '{}')}),
		'verify|' . ($floor + $round),
		"takeover $round is of a new era");
	is($session->run(qq{SELECT idem_complete('acme/REFUND/taken-over', $_)}),
		'ID002', "lost generation $_ stays refused")
	  foreach (2, 3);
	lapse($standby, 'REFUND/taken-over') if $round == 0;
}
is( $session->run(q{SELECT generation FROM idem_claim('acme/REFUND/absent', '{}')}),
	$floor,
	'a verify of the new era');
is( $session->run(
		qq{SELECT outcome, generation FROM idem_absent('acme/REFUND/absent', $floor)}),
	'execute|' . ($floor + 1),
	'and the grant after it');
is($session->run(q{SELECT idem_complete('acme/REFUND/absent', 3)}),
	'ID002', 'the lost one stays refused');
is( $session->run(
		q{SELECT idem_resolve('acme/REFUND/review', 1, 'pending', 'not executed');
		SELECT generation FROM idem_reclaim('acme/REFUND/review')}) =~ s/.*\n//sr,
	$floor + 1,
	'a decision raises it above the lost one too');
is( $session->run(q{SELECT outcome, generation FROM idem_claim('acme/REFUND/lost', '{}')}),
	"execute|$floor",
	'a lost record is born again in the new era');
is($session->run(q{SELECT idem_complete('acme/REFUND/lost', 1)}),
	'ID002', 'and its lost owner is refused');
is( $session->run(
		q{SELECT outcome, generation FROM idem_submit('acme/REFUND/submitted', '{}');
		SELECT generation FROM idem_status('acme/REFUND/submitted')}) =~ s/.*\n//sr,
	$floor,
	'a submitted action is born in it as well');

# the era is raised once a failover, not once a session or a restart
$session->quit;
$standby->restart;
is( answer($standby, q{SELECT generation FROM idem_claim('acme/REFUND/newer', '{}')}),
	$floor,
	'a restart does not raise it again');
is(answer($standby, q{SELECT idem_complete('acme/REFUND/kept', 1, '{"ok": true}')}),
	'', 'and what was reported before can be repeated');

# ---- a second promotion from the same past ----

# The later one's era is the higher by the seconds between the two, of which there is at least one.
$standby->stop('immediate');
sleep 1;
$rival->start;
$rival->promote;
is( answer($rival, q{SELECT timeline FROM idem_era;
		SELECT outcome FROM idem_claim('acme/REFUND/taken-over', '{}');
		SELECT timeline FROM idem_era}),
	"1\nverify\n2",
	'the other standby is on a second timeline of the same number');
is(answer($rival, "SELECT idem_complete('acme/REFUND/taken-over', $_)"),
	'ID002', "generation $_ of the first one is refused")
  foreach $floor, $floor + 1;

cmp_ok(answer($rival, q{SELECT generation FROM idem_status('acme/REFUND/taken-over')}),
	'>', $floor + 2**32 - 1, 'its own are above all of them');

$rival->stop;
done_testing();
