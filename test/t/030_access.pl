# Who may speak of which tenant, as real logins see it: nothing that a client may set on its own
# connection, and no role that it may take on, leads to another tenant.  What was granted
# outlives a dump, a restore, and an update of the extension that makes functions anew.
use strict;
use warnings;
use FindBin;
use lib $FindBin::RealBin;
use IdemTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('access');
$node->init;
$node->append_conf('postgresql.conf', 'autovacuum = off');
$node->start;
$node->safe_psql(
	'postgres', q{
	CREATE SCHEMA idem;
	CREATE EXTENSION idem_action SCHEMA idem;
	ALTER DATABASE postgres SET search_path = public, idem;
	SET search_path = public, idem;
	SELECT idem_define_operation('CREDIT');
	CREATE ROLE acme LOGIN;
	CREATE ROLE globex LOGIN;
	CREATE ROLE everywhere LOGIN;
	CREATE ROLE pool LOGIN NOINHERIT IN ROLE acme, globex;
	CREATE ROLE joint LOGIN INHERIT IN ROLE acme, globex;
	CREATE ROLE tied LOGIN NOINHERIT IN ROLE globex, everywhere;
	SELECT idem_grant('acme', 'application', 'acme'), idem_grant('globex', 'application', 'globex'),
		idem_grant('everywhere', 'application', '*'), idem_grant('tied', 'application', 'acme');
	SELECT idem_once(t || '/CREDIT/r-17', '1') FROM unnest('{acme,globex}'::text[]) t;
});
ok( $node->safe_psql('postgres', q{SELECT has_schema_privilege('acme', 'idem', 'USAGE')}) eq 't',
	'USAGE on the schema comes along');

# what a login is answered for r-17 of a tenant; or that it cannot connect
sub ask
{
	my ($login, $tenant, $before) = @_;
	my ($rc, $out, $err) = $node->psql(
		'postgres',
		($before // '') . "SELECT state FROM idem_status('$tenant/CREDIT/r-17')",
		extra_params => [ '-U', $login, '-v', 'VERBOSITY=sqlstate' ]);

	return 'refused' if $rc == 2;
	return $err =~ /ERROR:  (\w{5})/ ? $1 : $out;
}

is(ask('acme', 'acme'), 'succeeded', 'acme: its own');
is(ask('acme', 'globex'), '42501', 'acme: not the other');
is(ask('globex', 'globex'), 'succeeded', 'globex: its own');
is(ask('everywhere', $_), 'succeeded', "everywhere: $_") foreach qw(acme globex);

# ---- what a client may say at startup, or set ----

foreach my $option (
	'-c role=globex',
	'-c role=everywhere',
	'-c role=postgres',
	'-c session_authorization=globex',
	'-c is_superuser=on',
	'-c idem_action.tenant=globex',
	'-c idem_action.access=off',
	'-c row_security=off',
	'-c session_replication_role=replica',
	'-c search_path=pg_temp,idem')
{
	local $ENV{PGOPTIONS} = $option;
	like(ask('acme', 'globex'), qr/^(42501|refused)$/, "acme with $option");
}
foreach my $set (
	'SET ROLE globex;', 'SET ROLE everywhere;',
	'SET SESSION AUTHORIZATION globex;', 'SET SESSION AUTHORIZATION DEFAULT; RESET ROLE;',
	q{SELECT set_config('role', 'globex', false);}, 'SET idem_action.tenant = globex;')
{
	is(ask('acme', 'globex', $set), '42501', "acme after $set");
}

# ---- pools ----

is(ask('pool', 'acme'), '42883', 'pool: does not even see the schema before it sets a role');
is(ask('pool', 'acme', 'SET ROLE acme;'), 'succeeded', 'pool: as acme');
is(ask('pool', 'globex', 'SET ROLE acme;'), '42501', 'pool: as acme not globex');
is(ask('pool', 'globex', 'SET ROLE acme; SET ROLE globex;'), 'succeeded', 'pool: as globex');
is(ask('joint', $_), 'succeeded', "joint: $_") foreach qw(acme globex);
{
	local $ENV{PGOPTIONS} = '-c role=acme';
	is(ask('pool', 'acme'), 'succeeded', 'pool: a role by startup option');
	is(ask('pool', 'globex'), '42501', 'pool: and that one only');
}

# bound itself, a login takes on only what it is bound to
is(ask('tied', 'acme'), 'succeeded', 'tied: its own');
is(ask('tied', 'globex', 'SET ROLE globex;'), '42501', 'tied: not as globex');
is(ask('tied', 'globex', 'SET ROLE everywhere;'), '42501', 'tied: not as everywhere');
is(ask('tied', 'acme', 'SET ROLE everywhere;'), 'succeeded', 'tied: its own as everywhere');
is( ask('postgres', 'globex', 'SET SESSION AUTHORIZATION tied; SET ROLE everywhere;'),
	'42501', 'tied: a superuser who has become it is, too');
is(ask('postgres', 'acme', 'SET ROLE globex;'), '42501', 'a superuser who has set a role');

# the schema's owner is nobody special, the extension's is
$node->safe_psql('postgres', 'ALTER SCHEMA idem OWNER TO acme');
is(ask('acme', 'globex'), '42501', 'the owner of the schema');
is(answer($node, q{SET ROLE acme; SELECT idem_grant('acme', 'application', '*')}),
	'42501', 'who is not the owner of the extension');
$node->safe_psql('postgres', 'ALTER SCHEMA idem OWNER TO postgres; GRANT USAGE ON SCHEMA idem TO acme');

# ---- a dump keeps grants and bindings ----

$node->safe_psql(
	'postgres', q{
	CREATE ROLE gone;
	SELECT idem.idem_grant('gone', 'application', 'acme');
	DROP OWNED BY gone;
	DROP ROLE gone;
});
is( answer(
		$node, 'SELECT count(*) FROM idem_access WHERE role::oid NOT IN (SELECT oid FROM pg_roles)'),
	'1',
	'a role was dropped');

my $dump = "$PostgreSQL::Test::Utils::tmp_check/access.sql";
$node->command_ok([ 'pg_dump', '--file', $dump, '-d', $node->connstr('postgres') ], 'pg_dump');
$node->safe_psql('postgres', 'CREATE DATABASE restored');
$node->command_ok(
	[ 'psql', '-XqAt', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr('restored'), '--file', $dump ],
	'restored');
my $records = 'SELECT role, kind, tenant FROM idem.idem_access
	WHERE role::oid IN (SELECT oid FROM pg_roles) ORDER BY 1, 2, 3';
is(answer($node, $records, 'restored'), answer($node, $records), 'the records are there');
is(answer($node, 'SELECT count(*) FROM idem.idem_access', 'restored'), '4', 'and no others');
sub ask_restored
{
	return answer($node, "SET SESSION AUTHORIZATION acme; SET search_path = idem;
		SELECT state FROM idem_status('$_[0]/CREDIT/r-17')", 'restored');
}
like(ask_restored('acme'), qr/succeeded$/, 'restored: its own');
is(ask_restored('globex'), '42501', 'restored: not the other');

# ---- an update that makes functions anew ----

my $directory = qx($ENV{PG_CONFIG} --sharedir 2>/dev/null) || qx(pg_config --sharedir);
chomp $directory;
$directory .= '/extension';

SKIP:
{
	skip 'the extension\'s directory cannot be written', 1 unless -w $directory;
	my $version = answer($node, q{SELECT extversion FROM pg_extension
		WHERE extname = 'idem_action'});
	my $script = "$directory/idem_action--$version--access.test.sql";

	append_to_file($script, q{
		DROP FUNCTION idem_once(idem_key, jsonb, timestamptz);
		CREATE FUNCTION idem_once(key idem_key, params jsonb, occurred_at timestamptz DEFAULT NULL)
			RETURNS boolean
			AS 'MODULE_PATHNAME' LANGUAGE c VOLATILE PARALLEL UNSAFE COST 10000;
		REVOKE ALL ON FUNCTION idem_once(idem_key, jsonb, timestamptz) FROM PUBLIC;
		CREATE FUNCTION idem_submit(key idem_key) RETURNS boolean LANGUAGE sql AS 'SELECT true';
		REVOKE ALL ON FUNCTION idem_submit(idem_key) FROM PUBLIC;
		CREATE FUNCTION idem_nobodys() RETURNS boolean LANGUAGE sql AS 'SELECT true';
		REVOKE ALL ON FUNCTION idem_nobodys() FROM PUBLIC;
		CREATE VIEW idem_all_keys WITH (security_barrier) AS
			SELECT key FROM idem_action WHERE idem_may_see(key);
		REVOKE ALL ON idem_all_keys FROM PUBLIC;
		SELECT idem_grant_replay();
	});
	$node->safe_psql('postgres', q{
		CREATE ROLE watcher LOGIN;
		SELECT idem.idem_grant('watcher', 'monitor', 'acme')});
	is(answer($node, q{ALTER EXTENSION idem_action UPDATE TO 'access.test'}), '', 'update');
	unlink $script;

	my $acme = session($node);
	$acme->run('SET SESSION AUTHORIZATION acme');
	is($acme->run(q{SELECT idem_once('acme/CREDIT/updated', '1')}), 't', 'made anew: granted');
	is($acme->run(q{SELECT idem_once('globex/CREDIT/updated', '1')}), '42501', 'and bound');
	is($acme->run(q{SELECT idem_submit('acme/CREDIT/updated')}), 't', 'an overload: granted');
	is($acme->run(q{SELECT idem_nobodys()}), '42501', 'in no list: not granted');
	is($acme->run(q{SELECT count(*) FROM idem_all_keys}), '42501', 'a view: not for applications');
	$acme->quit;

	# a view shows what its reader may see, and gives no function of his the rest
	my $watcher = session($node);
	$watcher->run('SET SESSION AUTHORIZATION watcher');
	is($watcher->run(q{SELECT string_agg(key::text, ' ' ORDER BY key) FROM idem_all_keys}),
		'acme/CREDIT/r-17 acme/CREDIT/updated', 'a view: for monitors, its tenant only');
	is( $watcher->run(q{SELECT count(*) FROM idem_all_keys
			WHERE 1 / (CASE idem_key_tenant(key) WHEN 'acme' THEN 1 ELSE 0 END) = 1}),
		'2',
		'what fails for other tenants is not asked about their rows');
	$watcher->quit;

	# had they become what the extension comes with, no dump would have them
	is( answer(
			$node, q{SELECT count(*) FROM pg_init_privs WHERE initprivs::text ~ 'acme|watcher'}),
		'0',
		'grants are nobody\'s initial privileges');
	my ($out) = run_command([ 'pg_dump', '--schema-only', '-d', $node->connstr('postgres') ]);
	like($out, qr/GRANT ALL ON FUNCTION idem\.idem_once\(.*\) TO acme/, 'a dump has them');
	like($out, qr/GRANT SELECT ON TABLE idem\.idem_all_keys TO watcher/, 'that on a view, too');
}

$node->stop;
done_testing();
