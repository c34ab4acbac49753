# Machines stand with their tables: they follow every rename, in every session, are dumped and
# restored with them and dropped with them.  Their owners need no more than a few grants to
# define them, and a transition can do no more than its caller.
use strict;
use warnings;
use FindBin;
use lib $FindBin::RealBin;
use IdemTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('guard');
$node->init;
$node->append_conf('postgresql.conf', 'autovacuum = off');
$node->start;
$node->safe_psql(
	'postgres', q{
	CREATE SCHEMA idem;
	CREATE EXTENSION idem_action SCHEMA idem;
	ALTER DATABASE postgres SET search_path = public, idem;
});

my $machine = q{'{{A,B},{B,C},{C,B},{C,D}}', '{A}', '{D}'};

# ---- renames, seen by a session that has machine and plan at hand, and by a new one ----

$node->safe_psql(
	'postgres', qq{
	CREATE TYPE stage AS ENUM ('A', 'B', 'C', 'D', 'LOST');
	CREATE SCHEMA shop;
	CREATE TABLE shop.orders (id int PRIMARY KEY, state stage, gen bigint, fixed text);
	SELECT idem_define_machine('shop.orders', 'state', $machine, 'gen', '{fixed}');
	CREATE TABLE shop.parted (id int PRIMARY KEY, state stage, gen bigint, fixed text)
		PARTITION BY RANGE (id);
	CREATE TABLE shop.parted_1 PARTITION OF shop.parted FOR VALUES FROM (0) TO (1000);
	SELECT idem_define_machine('shop.parted', 'state', $machine, 'gen', '{fixed}');
});
my %names = (
	schema => 'shop', table => 'orders', parted => 'parted', id => 'id', state => 'state',
	gen => 'gen', fixed => 'fixed', type => 'public.stage');
my $number = 0;
my $kept = session($node);

# the machine of a table, asked of by somebody who runs SQL
sub check_guard
{
	my ($run, $table, $what) = @_;
	my $set = "UPDATE $names{schema}.$table SET";
	my $where = "WHERE $names{id} = " . ++$number;
	my @columns = @names{qw(id state gen fixed)};
	my @answers = map { $run->($_) } (
		"INSERT INTO $names{schema}.$table ($names{id}, $names{state}) VALUES ($number, 'B')",
		"INSERT INTO $names{schema}.$table (" . join(', ', @columns)
		  . ") VALUES ($number, 'A', 5, 'f')",
		"$set $names{state} = 'C' $where",
		"$set $names{state} = 'LOST' $where",
		"$set $names{gen} = 4 $where",
		"$set $names{fixed} = 'g' $where",
		"SELECT * FROM idem_transition('$names{schema}.$table', $number, 'A', 'B', 4)",
		"SELECT * FROM idem_transition('$names{schema}.$table', $number, 'A', 'B', 6)",
		"SELECT * FROM idem_transition('$names{schema}.$table', $number, 'A', 'B')",
		"SELECT $names{state}, $names{gen} FROM $names{schema}.$table $where");

	is("@answers",
		'ID003  ID003 ID003 ID002 23514 ID002 applied|B already|B B|6',
		"$what: $table");
}

sub check_renamed
{
	my ($what) = @_;

	foreach my $table (@names{qw(table parted)})
	{
		check_guard(sub { $kept->run($_[0]) }, $table, "$what, an old session");
		check_guard(sub { answer($node, $_[0]) }, $table, "$what, a new one");
	}
}

check_renamed('defined');
$node->safe_psql('postgres', 'ALTER TABLE shop.orders RENAME TO purchases');
$node->safe_psql('postgres', 'ALTER TABLE shop.parted RENAME TO pieces');
@names{qw(table parted)} = qw(purchases pieces);
check_renamed('tables renamed');
foreach my $column (qw(state gen fixed id))
{
	$names{$column} = "\"New $column\"";
	$node->safe_psql('postgres',
		"ALTER TABLE shop.$names{$_} RENAME $column TO $names{$column}")
	  foreach qw(table parted);
	check_renamed("$column renamed");
}
# two columns change places
$node->safe_psql(
	'postgres', join '', map { qq{
	ALTER TABLE shop.$_ RENAME "New fixed" TO x;
	ALTER TABLE shop.$_ RENAME "New gen" TO fixed_;
	ALTER TABLE shop.$_ RENAME x TO "New gen";} } @names{qw(table parted)});
@names{qw(gen fixed)} = ('fixed_', '"New gen"');
check_renamed('columns changed places');
$node->safe_psql('postgres', 'CREATE SCHEMA market');
$node->safe_psql('postgres', "ALTER TABLE shop.$_ SET SCHEMA market")
  foreach @names{qw(table parted)}, 'parted_1';
$names{schema} = 'market';
check_renamed('in another schema');
$node->safe_psql('postgres', 'ALTER SCHEMA market RENAME TO bazaar');
$names{schema} = 'bazaar';
check_renamed('schema renamed');
# somebody else's table under the old name must not be written
$node->safe_psql(
	'postgres', q{
	CREATE SCHEMA market;
	CREATE TABLE market.purchases (LIKE bazaar.purchases INCLUDING ALL);
	CREATE TABLE market.pieces (LIKE bazaar.pieces INCLUDING ALL);
	INSERT INTO market.purchases ("New id", "New state") SELECT n, 'A' FROM generate_series(1, 999) n;
	INSERT INTO market.pieces ("New id", "New state") SELECT n, 'A' FROM generate_series(1, 999) n});
check_renamed('another table has the old name');
is( answer(
		$node,
		q{SELECT count(*) FROM (TABLE market.purchases UNION ALL TABLE market.pieces) t
		WHERE "New state" <> 'A'}),
	'0',
	'and was not written');
$node->safe_psql('postgres', 'ALTER TYPE stage RENAME TO step');
check_renamed('type renamed');
$node->safe_psql('postgres', 'ALTER TYPE step SET SCHEMA bazaar');
check_renamed('type in another schema');
$node->safe_psql('postgres', qq{ALTER TABLE bazaar.$_ ADD more int DEFAULT 7})
  foreach @names{qw(table parted)};
check_renamed('a column added');

# a column that the machine needs is not lost unnoticed
is(answer($node, 'ALTER TABLE bazaar.purchases DROP "New state"'),
	'2BP01', 'the state is not dropped');
is(answer($node, 'ALTER TABLE bazaar.purchases DROP "New gen"'),
	'2BP01', 'nor an immutable column');
is(answer($node, 'ALTER TABLE bazaar.purchases ALTER "New state" TYPE text'),
	'0A000', 'nor does the state change its type');
$node->safe_psql('postgres', 'ALTER TABLE bazaar.purchases DROP "New gen" CASCADE');
is($kept->run(q{UPDATE bazaar.purchases SET "New state" = 'LOST'}),
	'55000', 'with CASCADE no row is written any more');
is($kept->run(q{SELECT idem_transition('bazaar.purchases', 1, 'B', 'C')}),
	'55000', 'nor moved');
is( $kept->run(
		qq{SELECT idem_define_machine('bazaar.purchases', 'New state', $machine, 'fixed_')}),
	'',
	'until the machine is defined anew');
is($kept->run(q{SELECT * FROM idem_transition('bazaar.purchases', 1, 'B', 'C')}),
	'applied|C', 'then they are');

# ---- redefinition, seen by another session ----

$node->safe_psql(
	'postgres', qq{
	CREATE TABLE redefined (id int PRIMARY KEY, state text);
	SELECT idem_define_machine('redefined', 'state', $machine);
	INSERT INTO redefined SELECT n, 'A' FROM generate_series(1, 9) n});
is($kept->run(q{SELECT * FROM idem_transition('redefined', 1, 'A', 'B')}), 'applied|B', 'before');
is($kept->run(q{UPDATE redefined SET state = 'C' WHERE id = 2}), 'ID003', 'illegal before');
$node->safe_psql('postgres',
	q{SELECT idem_define_machine('redefined', 'state', '{{A,C},{B,C}}', '{A,B}')});
is($kept->run(q{UPDATE redefined SET state = 'C' WHERE id = 2}), '', 'legal after');
is($kept->run(q{SELECT idem_transition('redefined', 3, 'A', 'B')}), 'ID003', 'illegal after');
is($kept->run(q{SELECT * FROM idem_transition('redefined', 3, 'A', 'C')}),
	'applied|C', 'and moved');
# it waits for whoever is writing, and whoever writes afterwards obeys it
$kept->run('BEGIN');
$kept->run(q{INSERT INTO redefined VALUES (10, 'A')});
my $definer = session($node);
$definer->send(q{SELECT idem_define_machine('redefined', 'state', '{{X,Y},{B,C}}', '{X,B}')});
wait_for_lock($node, 1);
$kept->run('COMMIT');
is($definer->receive, '23514', 'a definition sees what was being written');
$definer->quit;
$node->safe_psql('postgres', q{SELECT idem_drop_machine('redefined')});
is($kept->run(q{UPDATE redefined SET state = 'ANYTHING' WHERE id = 4}), '', 'dropped: no guard');
is($kept->run(q{SELECT idem_transition('redefined', 5, 'A', 'C')}), '55000', 'and no transitions');
$node->safe_psql('postgres', q{DROP TABLE redefined});

# ---- dump and restore ----

$node->safe_psql('postgres', 'DROP SCHEMA bazaar, market CASCADE');
$node->safe_psql('postgres', 'CREATE DATABASE origin');
$node->safe_psql(
	'origin', qq{
	CREATE SCHEMA idem;
	CREATE EXTENSION idem_action SCHEMA idem;
	SET search_path = public, idem;
	CREATE TYPE stage AS ENUM ('A', 'B', 'C', 'D');
	CREATE TABLE orders (id text PRIMARY KEY, state stage, gen int, fixed text);
	SELECT idem_define_machine('orders', 'state', $machine, 'gen', '{fixed}');
	INSERT INTO orders VALUES ('a', 'A', 1, 'x'), ('b', 'A', 2, NULL),
		('c', 'A', 3, 'x'), ('d', 'A', 4, 'x');
	UPDATE orders SET state = 'B' WHERE id > 'a';
	UPDATE orders SET state = 'C' WHERE id > 'b';
	UPDATE orders SET state = 'D' WHERE id > 'c';
	CREATE TABLE parted (id int, part int, state varchar) PARTITION BY LIST (part);
	CREATE TABLE parted_2 (gone int, state varchar, part int, id int);
	ALTER TABLE parted_2 DROP gone;
	CREATE TABLE parted_1 PARTITION OF parted FOR VALUES IN (1);
	ALTER TABLE parted ATTACH PARTITION parted_2 FOR VALUES IN (2);
	SELECT idem_define_machine('parted', 'state', $machine);
	INSERT INTO parted VALUES (1, 1, 'A'), (2, 2, 'A');
	UPDATE parted SET state = 'B';
	CREATE SCHEMA "odd ""schema";
	CREATE TABLE "odd ""schema"."odd 'table" (id int PRIMARY KEY, "St ""a\\" text);
	SELECT idem_define_machine('"odd ""schema"."odd ''table"', 'St "a\\',
		ARRAY[['a''b"c\\d,{e}', 'NULL'], ['NULL', ''], ['', E'x\\ny']], ARRAY['a''b"c\\d,{e}']);
	INSERT INTO "odd ""schema"."odd 'table" VALUES (1, 'a''b"c\\d,{e}'), (2, 'a''b"c\\d,{e}');
	UPDATE "odd ""schema"."odd 'table" SET "St ""a\\" = 'NULL' WHERE id = 2;
});

my $rows = q{
	SELECT 'orders', t::text FROM orders t
	UNION ALL SELECT tableoid::regclass::text, t::text FROM parted t
	UNION ALL SELECT 'odd', t::text FROM "odd ""schema"."odd 'table" t
	UNION ALL SELECT pg_get_triggerdef(oid), format('%s %s', tgrelid::regclass, tgenabled)
		FROM pg_trigger WHERE tgfoid = 'idem.idem_guard'::regproc
	ORDER BY 1, 2};
my $original = answer($node, $rows, 'origin');
like($original, qr/idem_guard.*idem_guard_columns/s, 'the origin has machines');

sub check_restored
{
	my ($database) = @_;
	my %answers = (
		q{INSERT INTO orders VALUES ('f', 'B')} => 'ID003',
		q{INSERT INTO orders VALUES ('e', 'A')} => '',
		q{UPDATE orders SET state = 'C' WHERE id = 'd'} => 'ID003',
		q{UPDATE orders SET gen = 2 WHERE id = 'c'} => 'ID002',
		q{UPDATE orders SET fixed = NULL WHERE id = 'a'} => '23514',
		q{SELECT * FROM idem.idem_transition('orders', 'b', 'B', 'C', 9)} => 'applied|C',
		q{SELECT * FROM idem.idem_transition('orders', 'd', 'B', 'C')} => 'refused|D',
		q{UPDATE parted SET part = 3 - part, state = 'C'} => '',
		q{UPDATE parted SET part = 3 - part, state = 'A'} => 'ID003',
		q{SELECT * FROM idem.idem_transition('"odd ""schema"."odd ''table"', 2, 'NULL', '')} =>
		  'applied|',
		q{UPDATE "odd ""schema"."odd 'table" SET "St ""a\\" = 'null'} => 'ID003');

	is(answer($node, $_, $database), $answers{$_}, "$database: $_") foreach sort keys %answers;
}

my $dump = "$PostgreSQL::Test::Utils::tmp_check/guard";
my @origin = ('-d', $node->connstr('origin'));
$node->command_ok([ 'pg_dump', '--file', "$dump.sql", @origin ], 'pg_dump as a script');
$node->command_ok([ 'pg_dump', '--format=custom', '--file', "$dump.pgc", @origin ],
	'pg_dump as an archive');

$node->safe_psql('postgres', "CREATE DATABASE $_")
  foreach qw(script archive sections inserts data_only);
$node->command_ok(
	[ 'psql', '-XqAt', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr('script'), '-f', "$dump.sql" ],
	'script: restored');
$node->command_ok(
	[ 'pg_restore', '--exit-on-error', '-d', $node->connstr('archive'), "$dump.pgc" ],
	'archive: restored');
$node->command_ok(
	[
		'pg_restore', '--exit-on-error', "--section=$_", '-d', $node->connstr('sections'),
		"$dump.pgc"
	],
	"sections: restored $_") foreach qw(pre-data data post-data);
$node->command_ok([ 'pg_dump', '--inserts', '--file', "$dump.inserts", @origin ], 'as INSERTs');
$node->command_ok(
	[
		'psql', '-XqAt', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr('inserts'), '-f',
		"$dump.inserts"
	],
	'inserts: restored');

# The data alone, into tables that have their machines.  Rows do not begin where they are, so
# the triggers must be disabled for it, as for foreign keys; doc/guard.md says so.
$node->command_ok(
	[ 'pg_restore', '--schema-only', '--exit-on-error', '-d', $node->connstr('data_only'),
		"$dump.pgc" ],
	'data_only: the schema');
$node->command_fails(
	[
		'pg_restore', '--data-only', '--single-transaction', '--table=orders', '-d',
		$node->connstr('data_only'), "$dump.pgc"
	],
	'data_only: refused as it is');
$node->command_ok(
	[
		'pg_restore', '--data-only', '--disable-triggers', '--exit-on-error', '-d',
		$node->connstr('data_only'), "$dump.pgc"
	],
	'data_only: restored with triggers disabled');
# that enables what was disabled before, the list of columns, which must do no harm
$node->safe_psql('data_only', $_) foreach split /\n/, answer(
	$node, q{SELECT format('ALTER TABLE ONLY %s DISABLE TRIGGER idem_guard_columns', tgrelid::regclass)
	FROM pg_trigger WHERE tgname = 'idem_guard_columns' AND tgrelid <> 'orders'::regclass},
	'data_only');
is(answer($node, q{SELECT tgenabled FROM pg_trigger
	WHERE tgname = 'idem_guard_columns' AND tgrelid = 'orders'::regclass}, 'data_only'),
	'O', 'data_only: the list of columns is enabled');
is(answer($node, q{UPDATE orders SET state = state, gen = gen}, 'data_only'),
	'', 'data_only: an UPDATE is none the worse for it');
$node->safe_psql('data_only', 'ALTER TABLE ONLY orders DISABLE TRIGGER idem_guard_columns');

foreach my $database (qw(script archive sections inserts data_only))
{
	is(answer($node, $rows, $database), $original, "$database: rows and machines are the same");
	check_restored($database);
}

# what applies changes of another server bypasses triggers, as it does for foreign keys
is( answer(
		$node, q{SET session_replication_role = replica;
		UPDATE orders SET state = 'A' WHERE id = 'd'}, 'script'),
	'',
	'session_replication_role = replica bypasses the guard');

# ---- dropping ----

is(answer($node, 'DROP EXTENSION idem_action', 'origin'), '2BP01', 'the extension is needed');
is(answer($node, 'DROP FUNCTION idem.idem_guard()', 'origin'), '2BP01', 'and so is its function');
is(answer($node, 'DROP TABLE orders; DROP SCHEMA "odd ""schema" CASCADE', 'origin'),
	'', 'a table is dropped with its machine');
is( answer(
		$node, q{SELECT string_agg(DISTINCT tgrelid::regclass::text, ' ') FROM pg_trigger
		WHERE tgfoid = 'idem.idem_guard'::regproc}, 'origin'),
	'parted parted_1 parted_2',
	'and nothing is left of it');
$kept = session($node, 'origin');
is($kept->run(q{UPDATE parted SET state = 'A'}), 'ID003', 'the other is guarded');
is($kept->run('DROP EXTENSION idem_action CASCADE'), '', 'CASCADE takes the extension');
is($kept->run(q{SELECT count(*) FROM pg_trigger WHERE tgrelid = 'parted'::regclass}),
	'0', 'and the machines');
is($kept->run(q{UPDATE parted SET state = 'A'}), '', 'not the rows');
$kept->run('CREATE EXTENSION idem_action SCHEMA idem');
is($kept->run(qq{SELECT idem.idem_define_machine('parted', 'state', $machine)}),
	'', 'defined in the new one');
is($kept->run(q{UPDATE parted SET state = 'C'}), 'ID003', 'guarded again');
is($kept->run(q{SELECT idem.idem_drop_machine('parted')}), '', 'dropped');
is($kept->run('DROP EXTENSION idem_action'), '', 'then nobody needs the extension');
$kept->quit;

# ---- privileges ----

$node->safe_psql(
	'postgres', q{
	CREATE ROLE owner;
	CREATE ROLE app;
	CREATE ROLE stranger;
	GRANT USAGE, CREATE ON SCHEMA public TO owner;
	GRANT USAGE ON SCHEMA idem TO owner, app, stranger;
});
my $owner = session($node);
my $app = session($node);
my $stranger = session($node);
$owner->run('SET ROLE owner');
$app->run('SET ROLE app');
$stranger->run('SET ROLE stranger');
$owner->run('CREATE TABLE orders (id int PRIMARY KEY, state text, gen bigint, tenant text)');
my $define = qq{SELECT idem_define_machine('orders', 'state', $machine, 'gen', '{tenant}')};
is($owner->run($define), '42501', 'owner: may not define yet');
$node->safe_psql('postgres', q{
	GRANT EXECUTE ON FUNCTION
		idem.idem_define_machine(regclass, name, text[], text[], text[], name, text[]) TO owner});
is($owner->run($define), '42501', 'owner: the trigger needs its function, too');
$node->safe_psql('postgres', q{
	GRANT EXECUTE ON FUNCTION idem.idem_guard(), idem.idem_drop_machine(regclass) TO owner});
is($owner->run($define), '', 'owner: defines');
is($owner->run($define), '', 'owner: again');
is($owner->run(q{SELECT idem_drop_machine('orders')}), '', 'owner: drops');
is($owner->run($define), '', 'owner: and defines again');
$owner->run(q{INSERT INTO orders VALUES (1, 'A', 0, 'x'), (2, 'A', 0, 'y'), (3, 'A', 0, 'z')});
$node->safe_psql('postgres', q{
	GRANT EXECUTE ON FUNCTION idem.idem_guard(), idem.idem_drop_machine(regclass),
		idem.idem_define_machine(regclass, name, text[], text[], text[], name, text[]) TO stranger});
is($stranger->run($define), '42501', 'stranger: the table is not his');
is($stranger->run(q{SELECT idem_drop_machine('orders')}), '42501', 'stranger: nor to drop');
$node->safe_psql('postgres', 'GRANT owner TO stranger');
is($stranger->run($define), '', 'stranger: a member of the owner may');
$node->safe_psql('postgres', 'REVOKE owner FROM stranger');

# the trigger needs nothing of who writes, nor of its owner any more
$node->safe_psql('postgres', q{REVOKE ALL ON FUNCTION idem.idem_guard() FROM owner});
$owner->run('GRANT SELECT, INSERT, UPDATE ON orders TO stranger');
is($stranger->run(q{INSERT INTO orders VALUES (4, 'B')}), 'ID003', 'stranger: is guarded');
is($stranger->run(q{INSERT INTO orders VALUES (4, 'A', 0, 's')}), '', 'stranger: writes');
is($stranger->run(q{UPDATE orders SET state = 'B' WHERE id = 4}), '', 'stranger: moves');
is($stranger->run(q{SELECT idem_transition('orders', 4, 'B', 'C')}),
	'42501', 'stranger: without EXECUTE no transition');

# a transition does what its caller may do
my $transition = sub {
	my ($session, $id, $from, $to) = @_;
	return $session->run("SELECT * FROM idem_transition('orders', $id, '$from', '$to')");
};
$node->safe_psql('postgres', q{
	GRANT EXECUTE ON FUNCTION idem.idem_transition(regclass, bigint, text, text, bigint) TO app});
is($transition->($app, 1, 'A', 'B'), '42501', 'app: no privilege on the table');
$owner->run('GRANT SELECT (id, state, gen) ON orders TO app');
is($transition->($app, 1, 'A', 'B'), '42501', 'app: SELECT is not enough');
$owner->run('GRANT UPDATE (state, gen) ON orders TO app');
is($transition->($app, 1, 'A', 'B'), 'applied|B', 'app: UPDATE of state and generation is');
is($transition->($app, 1, 'A', 'B'), 'already|B', 'app: and answers');
is($transition->($app, 99, 'A', 'B'), 'refused|', 'app: no such row');
is($app->run(q{SELECT * FROM orders}), '42501', 'app: what it may not read stays unread');
is( $app->run(
		q{DO $$
		DECLARE
			moved idem_transitioned;
		BEGIN
			moved := idem_transition('orders', 1, 'A', 'B');
			PERFORM set_config('test.moved', moved.outcome, false);
		END $$}),
	'',
	'app: a variable of its type');
is($app->run('SHOW test.moved'), 'already', 'app: which holds it');
$owner->run('REVOKE SELECT ON orders FROM app; REVOKE SELECT (id, state, gen) ON orders FROM app');
is($transition->($app, 1, 'B', 'C'), '42501', 'app: nor is UPDATE alone');
$owner->run('GRANT SELECT ON orders TO app');

# row security: what is hidden is not there, what is seen but not given is refused
$owner->run('ALTER TABLE orders ENABLE ROW LEVEL SECURITY');
is($transition->($app, 2, 'A', 'B'), 'refused|', 'row security: no policy, no row');
$owner->run(q{CREATE POLICY seen ON orders FOR SELECT USING (tenant <> 'x')});
is($transition->($app, 1, 'B', 'C'), 'refused|', 'row security: a hidden row');
is($transition->($app, 2, 'A', 'B'), 'refused|A', 'row security: a row that is only seen');
$owner->run(q{CREATE POLICY given ON orders FOR UPDATE USING (tenant = 'z')
	WITH CHECK (state <> 'C')});
is($transition->($app, 2, 'A', 'B'), 'refused|A', 'row security: another that is only seen');
is($transition->($app, 3, 'A', 'B'), 'applied|B', 'row security: a row that is given');
is($transition->($app, 3, 'B', 'C'), '42501', 'row security: a state that is not');
is($transition->($owner, 1, 'B', 'C'), '42501', 'owner: has no EXECUTE on it');
# one session, one kept plan, two roles
my $changing = session($node);
is($transition->($changing, 1, 'B', 'C'), 'applied|C', 'row security: a superuser moves the row');
is($transition->($changing, 1, 'C', 'B'), 'applied|B', 'row security: and back');
$changing->run('SET ROLE app');
is($transition->($changing, 1, 'B', 'C'), 'refused|', 'row security: in another role it is hidden');
is($transition->($changing, 2, 'A', 'B'), 'refused|A', 'row security: or only seen');
$changing->run('RESET ROLE');
is($transition->($changing, 2, 'A', 'B'), 'applied|B', 'row security: and moved by the superuser');
# a function that runs as its owner lends his privileges, as it does for an UPDATE
$node->safe_psql(
	'postgres', q{
	GRANT EXECUTE ON FUNCTION idem.idem_transition(regclass, bigint, text, text, bigint) TO owner;
	GRANT USAGE ON TYPE idem.idem_transitioned TO owner;
	SET ROLE owner;
	CREATE FUNCTION ship(id int) RETURNS idem_transitioned LANGUAGE sql SECURITY DEFINER
		AS $$SELECT idem_transition('orders', id, 'B', 'C')$$;
	GRANT EXECUTE ON FUNCTION ship(int) TO app});
is($app->run('SELECT * FROM ship(1)'), 'applied|C', 'a SECURITY DEFINER function');

$_->quit foreach ($owner, $app, $stranger, $changing);
$node->stop;
done_testing();
