# A hot standby and a read-only transaction answer questions and refuse whatever would write,
# with 25006 and before anything else is looked at.
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
	CREATE FUNCTION echo(params jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT params';
	SELECT idem_define_operation('CREDIT');
	SELECT idem_define_operation('REFUND', effect => 'external', lease => '1 hour');
	SELECT idem_call('acme/CREDIT/r-1', '{"amount": 10}', 'public.echo');
	SELECT idem_claim('acme/REFUND/r-1', '{"amount": 10}', owner => 'worker');
	SELECT idem_submit('acme/REFUND/r-2', '{"amount": 10}');
	SELECT idem_define_consumer('stock');
	SELECT idem_progress_assign('acme/stock/orders/3');
	SELECT idem_progress_fetched('acme/stock/orders/3', 1, '{100,101}');
	SELECT idem_progress_done('acme/stock/orders/3', 1, '{100}');
});
$primary->backup('backup');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'backup', has_streaming => 1);
$standby->start;
$primary->wait_for_catchup($standby);

# Every function that is called by name and may write; none of them is STRICT, so nulls reach
# it.  Whoever adds one finds it here.
my @writers = split /\n/, answer(
	$primary, q{
	SELECT format('SELECT %s(%s)', p.oid::regproc, (
		SELECT string_agg('NULL::' || format_type(t.type, NULL), ', ' ORDER BY t.n)
		FROM unnest(p.proargtypes) WITH ORDINALITY t (type, n)))
	FROM pg_depend d JOIN pg_proc p ON p.oid = d.objid
	WHERE d.classid = 'pg_proc'::regclass AND d.deptype = 'e'
		AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'idem_action')
		AND p.provolatile = 'v' AND p.prorettype <> 'trigger'::regtype AND p.proname NOT IN (
			'idem_status', 'idem_history', 'idem_stat_reset', 'idem_progress_committable')
	ORDER BY 1});
my %names = map { /(idem_\w+)/ => 1 } @writers;
ok($names{$_}, "$_ is among those who write")
  foreach map { "idem_$_" }
  qw(submit claim reclaim claim_next renew complete reject mark_unknown release absent escalate
  cancel resolve add_evidence once call define_operation drop_operation declare_loss admit grant revoke grant_replay
  progress_assign progress_fetched progress_done progress_advance);

my @calls = (
	"SELECT idem_claim('acme/CREDIT/r-1', '{\"amount\": 10}')",    # though nothing is to write
	"SELECT idem_once('acme/CREDIT/r-1', '{\"amount\": 10}')",
	"SELECT idem_claim('acme/REFUND/r-2', '{\"amount\": 10}')",
	"SELECT idem_complete('acme/REFUND/r-1', 1)",
	"SELECT idem_claim('acme/NOBODY/r-1', '{}')");

my @questions = (
	[
		q{SELECT key, state, generation, attempt, result, digest = idem_digest('{"amount": 1e1}'::jsonb)
			FROM idem_status('acme/CREDIT/r-1')},
		'acme/CREDIT/r-1|succeeded|1|1|{"amount": 10}|t'
	],
	[
		q{SELECT state, generation, attempt, owner, lease_until > now(), retry_at
			FROM idem_status('acme/REFUND/r-1')},
		'processing|1|1|worker|t|'
	],
	[
		q{SELECT state, attempt, owner, retry_at <= now() FROM idem_status('acme/REFUND/r-2')},
		'pending|0||t'
	],
	[ q{SELECT count(*) FROM idem_status('acme/REFUND/nobody')}, '0' ],
	[ q{SELECT idem_progress_committable('acme/stock/orders/3')}, '101' ],
	[ q{SELECT record_offset FROM idem_progress_open}, '101' ],
	[ q{SELECT state, worker FROM idem_history('acme/REFUND/r-1')}, 'processing|worker' ],
	[
		q{SELECT key, state, owner, is_lapsed, is_due FROM idem_in_flight ORDER BY key},
		"acme/REFUND/r-1|processing|worker|f|f\nacme/REFUND/r-2|pending||f|t"
	],
	[ q{SELECT operation, in_flight, due FROM idem_health}, 'REFUND|2|1' ],
	[ q{SELECT idem_canonical('{"b": 1.50, "a": null}')}, '{"a":null,"b":1.5}' ]);

sub check_read_only
{
	my ($name, $session) = @_;

	foreach (@questions)
	{
		my ($sql, $expected) = @$_;
		is($session->run($sql), $expected, "$name: $sql");
	}
	foreach my $sql (@writers, @calls)
	{
		is($session->run($sql), '25006', "$name: $sql");
	}
}

my $on_standby = session($standby);
check_read_only('standby', $on_standby);
is( $on_standby->run(
		q{BEGIN ISOLATION LEVEL REPEATABLE READ;
		SELECT state FROM idem_status('acme/CREDIT/r-1')}),
	'succeeded',
	'standby: a question under REPEATABLE READ');
$on_standby->run('COMMIT');

my $counters = q{SELECT operation, execute, accepted FROM idem_stat_operations ORDER BY 1};
is($on_standby->run($counters), "CREDIT|0|0\nREFUND|0|0", 'the standby has counters of its own');
is(answer($primary, $counters), "CREDIT|1|0\nREFUND|1|1", 'those of the primary tell what it did');
is($on_standby->run('SELECT idem_stat_reset()'), '', 'the standby resets its own');
is(answer($primary, $counters), "CREDIT|1|0\nREFUND|1|1", 'and not those of the primary');

my $on_primary = session($primary);
$on_primary->run('SET default_transaction_read_only = on');
check_read_only('read-only transaction', $on_primary);
$on_primary->run('SET default_transaction_isolation = serializable');
check_read_only('serializable read-only transaction', $on_primary);
is( answer($primary, 'SELECT count(*), sum(generation) FROM idem_action'),
	'3|3',
	'nothing was written');
$_->quit foreach ($on_standby, $on_primary);

# ---- a grant waits for the synchronous standby, whatever the session says ----

$standby->stop;
$primary->append_conf('postgresql.conf', "synchronous_standby_names = '*'");
$primary->reload;
$primary->poll_query_until('postgres', 'SHOW synchronous_standby_names', '*')
  or die 'the setting does not arrive';
my $worker = session($primary);
$worker->run('SET synchronous_commit = local');
is($worker->run(q{SELECT idem_once('acme/CREDIT/r-9', '{}')}), 't',
	'a local action is committed as the session says');
$worker->send(q{SELECT outcome FROM idem_claim('acme/REFUND/r-9', '{}')});
ok( $primary->poll_query_until(
		'postgres', q{SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep'}),
	'an external grant waits for the standby');
$standby->start;
is($worker->receive, 'execute', 'and is handed out once it is there');
$worker->quit;

$standby->stop;
$primary->stop;
done_testing();
