# Nothing is granted to anybody.  A role that is granted the functions can do with them what
# they are for, and nothing else; what it hands over is run as itself.
use strict;
use warnings;
use FindBin;
use lib $FindBin::RealBin;
use IdemTest;
use PostgreSQL::Test::Cluster;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('privileges');
$node->init;
$node->start;
$node->safe_psql(
	'postgres', q{
	CREATE SCHEMA idem;
	CREATE EXTENSION idem_action SCHEMA idem;
	CREATE FUNCTION echo(params jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT params';
	CREATE ROLE stranger;
	CREATE ROLE app;
	CREATE ROLE operator;
	ALTER DATABASE postgres SET search_path = public, idem;
	GRANT CREATE ON SCHEMA public TO app;
});

my $grants = q{
	SELECT idem.idem_grant('app', 'application', 'acme');
	SELECT idem.idem_grant('operator', 'operator', '*');
	GRANT app TO operator;
};

my @tables = split /\n/, answer(
	$node, q{
	SELECT c.oid::regclass FROM pg_depend d JOIN pg_class c ON c.oid = d.objid
	WHERE d.classid = 'pg_class'::regclass AND d.deptype = 'e'
		AND d.refclassid = 'pg_extension'::regclass AND c.relkind = 'r'
	ORDER BY c.relname});
is("@tables",
	'idem_access idem_action idem_consumer idem_contract idem_era idem_event idem_evidence idem_fence'
	  . ' idem_lease idem_loss idem_progress idem_progress_offset idem_purge_position idem_watermark',
	'the tables');

# every function that SQL can call, with nulls that are not known when it is planned
my @functions = split /\n/, answer(
	$node, q{
	SELECT format('%s(%s)', p.oid::regproc, (
		SELECT string_agg(format('(SELECT NULL::%s)', t.type::regtype), ', ' ORDER BY t.n)
		FROM unnest(p.proargtypes) WITH ORDINALITY t (type, n)))
	FROM pg_depend d JOIN pg_proc p ON p.oid = d.objid
	WHERE d.classid = 'pg_proc'::regclass AND d.deptype = 'e'
		AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'idem_action')
		AND NOT 'internal'::regtype = ANY (p.proargtypes)
	ORDER BY 1});
cmp_ok(@functions, '>=', 40, 'the functions are found');

sub check_tables
{
	my ($who, $session) = @_;

	foreach my $table (@tables)
	{
		my $column = answer($node, "SELECT attname FROM pg_attribute
			WHERE attrelid = '$table'::regclass AND attnum = 1");

		is($session->run($_), '42501', "$who: $_")
		  foreach "SELECT * FROM $table", "INSERT INTO $table DEFAULT VALUES",
		  "UPDATE $table SET $column = NULL", "DELETE FROM $table", "TRUNCATE $table",
		  "COPY $table TO STDOUT";
	}
}

# ---- without any privilege ----

my $session = session($node);
$session->run('SET ROLE stranger');
is($session->run(q{SELECT idem_once('acme/CREDIT/r-1', '{}')}), '42883', 'cannot see the schema');
$node->safe_psql('postgres', 'GRANT USAGE ON SCHEMA idem TO stranger');
is($session->run("SELECT $_"), '42501', "stranger: $_") foreach @functions;
check_tables('stranger', $session);
is($session->run(q{SELECT 'acme/CREDIT/r-1'::text::idem_key}), '42501', 'stranger: cast');
is($session->run(q{SELECT 'a/b/c'::idem_key = 'a/b/c'::idem_key}), '42501', 'stranger: comparison');
is($session->run("CREATE TEMPORARY TABLE t (a $_)"), '42501', "stranger: column of type $_")
  foreach 'idem_key', 'idem_digest', 'idem_verdict';
$session->quit;

# ---- an operator defines, an application acts ----

$node->safe_psql('postgres', $grants);

my $operator = session($node);
$operator->run('SET ROLE operator');
is($operator->run(q{SELECT idem_define_operation('CREDIT')}), '1', 'operator: define');
is( $operator->run(
		q{SELECT idem_define_operation('REFUND', effect => 'external', lease => '1 hour',
		channel_queryable => true, absence_visible_after => '0', backoff_base => '0',
		backoff_max => '0')}),
	'1',
	'operator: define another');
is(answer($node, 'SELECT DISTINCT defined_by FROM idem_contract'),
	'operator', 'and is on record as who did it');

$session = session($node);
$session->run('SET ROLE app');
foreach my $sql (
	q{idem_define_operation('CREDIT', lease => '1 day')},
	q{idem_drop_operation('CREDIT')},
	q{idem_resolve('acme/REFUND/r-1', 1, 'pending', 'note')},
	q{idem_grant('app', 'operator', '*')})
{
	is($session->run("SELECT $sql"), '42501', "app: $sql is not granted");
}

my @life = (
	[ q{outcome, generation FROM idem_submit('acme/REFUND/r-1'::text, '{}')}, 'accepted|0' ],
	[ q{outcome, generation FROM idem_claim_next('REFUND')}, 'execute|2' ],
	[ q{outcome, generation FROM idem_reclaim('acme/REFUND/r-1')}, 'busy|0' ],
	[ q{idem_renew('acme/REFUND/r-1', 2) > now()}, 't' ],
	[ q{idem_mark_unknown('acme/REFUND/r-1', 2, '{}', '0')}, '' ],
	[ q{outcome, generation FROM idem_claim('acme/REFUND/r-1'::varchar, '{}')}, 'verify|3' ],
	[ q{outcome, generation FROM idem_absent('acme/REFUND/r-1', 3)}, 'execute|4' ],
	[ q{idem_release('acme/REFUND/r-1', 4, '{}', '0')}, '' ],
	[ q{outcome, generation FROM idem_claim('acme/REFUND/r-1', '{}')}, 'execute|5' ],
	[ q{idem_escalate('acme/REFUND/r-1', 5)}, '' ],
	[ q{idem_complete('acme/REFUND/r-1', 5, '[1]', 'ch-1')}, '' ],
	[ q{state, generation, digest IS NULL FROM idem_status('acme/REFUND/r-1')}, 'succeeded|5|f' ],
	[ q{outcome FROM idem_claim('acme/REFUND/r-1', '[]')}, 'conflict' ],
	[ q{outcome FROM idem_claim('acme/REFUND/r-2', '{}')}, 'execute' ],
	[ q{idem_reject('acme/REFUND/r-2', 1, '[2]')}, '' ],
	[ q{idem_cancel('acme/REFUND/r-3')}, 't' ],
	[ q{outcome FROM idem_claim('acme/REFUND/r-4', '{}')}, 'execute' ],
	[ q{idem_escalate('acme/REFUND/r-4', 1)}, '' ],
	[ q{idem_once('acme/CREDIT/r-1', '{}')}, 't' ],
	[ q{idem_once('acme/CREDIT/r-1', '{}')}, 'f' ],
	[ q{idem_once('acme/CREDIT/r-1', '[]')}, 'ID001' ],
	[ q{outcome FROM idem_claim('acme/CREDIT/r-2', '{}')}, 'ID008' ],
	[ q{idem_complete('acme/CREDIT/r-2', generation)
		FROM idem_claim('acme/CREDIT/r-2', '{}')}, '' ],
	[ q{idem_call('acme/CREDIT/r-3', '[3]', 'public.echo')}, '[3]' ]);
foreach (@life)
{
	my ($sql, $expected) = @$_;
	is($session->run("SELECT $sql"), $expected, "app: $sql");
}
is($operator->run(q{SELECT idem_resolve('acme/REFUND/r-4', 1, 'rejected', 'note')}),
	'', 'operator: resolve');
check_tables('app', $session);
check_tables('operator', $operator);
is($session->run(q{CREATE TABLE public.keys (key idem_key PRIMARY KEY, digest idem_digest)}),
	'', 'app: a table of its own with our types');

# ---- handlers are run as who calls ----

$node->safe_psql(
	'postgres', q{
	CREATE FUNCTION whoami(params jsonb) RETURNS jsonb LANGUAGE sql
		AS $$SELECT jsonb_build_array(current_user)$$;
	CREATE FUNCTION tampers(params jsonb) RETURNS jsonb LANGUAGE plpgsql
		AS $$BEGIN UPDATE idem.idem_action SET state = 'pending'; RETURN NULL; END$$;
	CREATE FUNCTION peeks(params jsonb) RETURNS jsonb LANGUAGE sql
		AS $$SELECT jsonb_agg(key::text) FROM idem.idem_action$$;
	CREATE FUNCTION reports(params jsonb) RETURNS jsonb LANGUAGE sql SECURITY DEFINER
		AS $$SELECT jsonb_build_array(current_user <> 'app')$$;
	CREATE FUNCTION nests(params jsonb) RETURNS jsonb LANGUAGE sql
		AS $$SELECT idem_call('acme/CREDIT/nested', '{}', 'whoami') || to_jsonb(current_user)$$;
	CREATE FUNCTION secret(params jsonb) RETURNS jsonb LANGUAGE sql AS $$SELECT params$$;
	REVOKE EXECUTE ON FUNCTION secret(jsonb) FROM PUBLIC;
	CREATE SCHEMA hidden;
	CREATE FUNCTION hidden.handler(params jsonb) RETURNS jsonb LANGUAGE sql AS $$SELECT params$$;
});

my %handlers = (
	whoami => '["app"]',
	tampers => '42501',
	peeks => '42501',
	reports => '[true]',
	nests => '["app", "app"]',
	secret => '42501',
	'hidden.handler' => '42501');
foreach my $handler (sort keys %handlers)
{
	is($session->run("SELECT idem_call('acme/CREDIT/h-$handler', '{}', '$handler')"),
		$handlers{$handler}, "handler $handler");
	is($session->run("SELECT count(*) FROM idem_status('acme/CREDIT/h-$handler')"),
		$handlers{$handler} eq '42501' ? '0' : '1', "handler $handler: its record");
}

# a stored result is handed out only to who may run the handler
is($operator->run(q{SELECT idem_call('acme/CREDIT/h-whoami', '{}', 'secret')}),
	'42501', 'EXECUTE is checked where nothing is run, too');

# ---- an error inside one of our statements does not leave the session with its owner's rights ----

my $holder = session($node);
$holder->run('BEGIN');
$holder->run(q{SELECT idem_once('acme/CREDIT/held', '{}')});
$session->run('BEGIN');
is( $session->run(
		q{DO $$BEGIN
			SET LOCAL lock_timeout = '10ms';
			PERFORM idem_once('acme/CREDIT/held', '{}');
		EXCEPTION WHEN lock_not_available THEN
			PERFORM set_config('test.user', current_user, true);
		END$$}),
	'',
	'an error inside a statement is caught');
is($session->run(q{SELECT current_setting('test.user'), current_user}), 'app|app', 'still app');
is($session->run('SELECT count(*) FROM idem_action'), '42501', 'and still without its tables');
$session->run('ROLLBACK');

is( $session->run(
		q{SELECT outcome, current_user FROM idem_claim('acme/CREDIT/held', '{}', nowait => true)}),
	'busy|app',
	'nor does one that is caught inside');
$holder->run('ROLLBACK');

$_->quit foreach ($holder, $session, $operator);
$node->stop;
done_testing();
