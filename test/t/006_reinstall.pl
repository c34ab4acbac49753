# One session outlives the extension: it is dropped and created again, elsewhere, in transactions
# that roll back; and whatever the session does to its settings, the next call works.
use strict;
use warnings;
use FindBin;
use lib $FindBin::RealBin;
use IdemTest;
use Test::More;

my $node = start_node('reinstall');
my $session = session($node);

$node->safe_psql('postgres',
	q{CREATE FUNCTION echo(params jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT params'});

# everything that keeps a plan, an OID or a contract
sub check_life
{
	my ($name) = @_;
	my $id = $name =~ s/\W+/-/gr;
	my $is_inside = $session->run('SELECT pg_current_xact_id_if_assigned() IS NOT NULL') eq 't';

	$session->run('SAVEPOINT before') if $is_inside;
	is($session->run("SELECT idem_once('acme/CREDIT/$id', '{}')"),
		'ID006', "$name: no contract is left from before");
	$session->run('ROLLBACK TO before') if $is_inside;
	is($session->run("SELECT idem_define_operation('CREDIT')"), '1', "$name: define");
	is( $session->run(
			"SELECT idem_define_operation('REFUND', effect => 'external', lease => '1 hour')"),
		'1',
		"$name: define another");
	check_calls($name, $id);
	is($session->run('SELECT count(*) FROM idem_era'), '1', "$name: the era is on record");
}

sub check_calls
{
	my ($name, $id) = @_;

	is($session->run("SELECT idem_once('acme/CREDIT/$id', '{}')"), 't', "$name: first once");
	is($session->run("SELECT idem_once('acme/CREDIT/$id', '{}')"), 'f', "$name: second once");
	is($session->run("SELECT idem_call('acme/CREDIT/$id-call', '[1]', 'public.echo')"),
		'[1]', "$name: call");
	is( $session->run(
			"SELECT outcome, generation FROM idem_claim('acme/REFUND/$id'::text, '{}')"),
		'execute|1',
		"$name: claim");
	is($session->run("SELECT state FROM idem_status('acme/REFUND/$id')"),
		'processing', "$name: status");
	is($session->run("SELECT idem_escalate('acme/REFUND/$id', 1)"), '', "$name: escalate");
	is($session->run("SELECT idem_resolve('acme/REFUND/$id', 1, 'succeeded', 'seen')"),
		'', "$name: resolve");
	is($session->run("SELECT outcome FROM idem_submit('acme/REFUND/$id', '{}')"),
		'succeeded', "$name: submit");
}

check_life('first');

is($session->run('DROP EXTENSION idem_action'), '', 'drop');
is($session->run('CREATE EXTENSION idem_action'), '', 'and create');
check_life('created again');
is( $session->run(q{SELECT outcome FROM idem_claim('acme/REFUND/first', '{}')}),
	'execute', 'nothing is left of its former life');

is($session->run('CREATE SCHEMA "Else where"'), '', 'another schema');
is($session->run('DROP EXTENSION idem_action'), '', 'drop');
is($session->run('CREATE EXTENSION idem_action SCHEMA "Else where"'), '', 'and create there');
is($session->run('SET search_path = "Else where", public'), '', 'look there');
check_life('in another schema');

# a renamed schema is still the same
is($session->run('ALTER SCHEMA "Else where" RENAME TO somewhere'), '', 'rename the schema');
is($session->run('SET search_path = somewhere'), '', 'look there');
check_calls('renamed', 'renamed');

# ---- transactions that roll back ----

foreach my $schema ('public', 'somewhere')
{
	my $before = "rolled back in $schema";

	is($session->run('BEGIN'), '', $before);
	is($session->run('DROP EXTENSION idem_action'), '', "$before: drop");
	is($session->run("CREATE EXTENSION idem_action SCHEMA $schema"), '', "$before: create");
	is($session->run("SET LOCAL search_path = $schema"), '', "$before: look there");
	check_life("inside $schema");
	is($session->run('ROLLBACK'), '', "$before: roll back");
	is($session->run("SELECT idem_once('acme/CREDIT/renamed', '{}')"),
		'f', "$before: what was on record is so again");
	check_calls("after $schema", "after-$schema");
}

is($session->run('BEGIN; SAVEPOINT s; DROP EXTENSION idem_action'), '', 'drop behind a savepoint');
is($session->run('ROLLBACK TO s'), '', 'roll back to it');
check_calls('after a savepoint', 'savepoint');
is($session->run('COMMIT'), '', 'commit');

is($session->run('DROP EXTENSION idem_action'), '', 'drop for good');
is($session->run('BEGIN; CREATE EXTENSION idem_action'), '', 'create for the time being');
check_life('for the time being');
is($session->run('ROLLBACK'), '', 'roll back');
is($session->run(q{SELECT idem_once('acme/CREDIT/first', '{}')}), '42883', 'there is no function');
is($session->run('CREATE EXTENSION idem_action'), '', 'create again');
check_life('at last');

# ---- the session's settings, and who it is ----

$node->safe_psql(
	'postgres', q{
	CREATE ROLE app;
	SELECT somewhere.idem_grant('app', 'application', 'acme'),
		somewhere.idem_grant('app', 'operator', 'acme');
	CREATE SCHEMA hostile;
	CREATE TABLE hostile.idem_action (key text PRIMARY KEY);
	CREATE TABLE hostile.idem_era (era text);
	CREATE TABLE hostile.idem_contract (operation text);
	CREATE FUNCTION hostile.fails(anyelement, anyelement) RETURNS boolean LANGUAGE plpgsql
		AS $$BEGIN RAISE 'hostile operator'; END$$;
	CREATE OPERATOR hostile.= (FUNCTION = hostile.fails,
		LEFTARG = anyelement, RIGHTARG = anyelement);
	GRANT USAGE ON SCHEMA hostile TO PUBLIC;
});

my $round = 0;
foreach my $change (
	'SET search_path = hostile, somewhere, pg_catalog',
	'SET search_path = somewhere, hostile',
	'SET search_path = pg_temp, somewhere',
	'SET ROLE app',
	'RESET ROLE',
	'RESET ALL; SET search_path = somewhere',
	'DISCARD PLANS',
	'DISCARD ALL; SET search_path = somewhere',
	'SET plan_cache_mode = force_custom_plan',
	'SET SESSION AUTHORIZATION app',
	'RESET SESSION AUTHORIZATION',
	'REINDEX TABLE CONCURRENTLY somewhere.idem_action',
	'REINDEX TABLE CONCURRENTLY somewhere.idem_lease',
	'VACUUM FULL somewhere.idem_action',
	'ANALYZE somewhere.idem_lease',
	'SET default_transaction_isolation = serializable',
	q{SET timezone = 'Pacific/Chatham'; SET datestyle = 'German'; SET intervalstyle = 'sql_standard'},
	'SET enable_indexscan = off; SET enable_tidscan = off; SET enable_seqscan = off',
	'SET session_replication_role = replica')
{
	$round++;
	is($session->run($change), '', $change);
	check_calls($change, "round-$round");
}

$session->quit;
$node->stop;
done_testing();
