# A dump holds every identity.  Restored beside its origin or into another server it answers
# as the origin would, and generations go on upwards, in an era of their own.  So does what
# pg_upgrade makes of the origin.
use strict;
use warnings;
use FindBin;
use lib $FindBin::RealBin;
use IdemTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = start_node('origin');
my $other = PostgreSQL::Test::Cluster->new('other');
$other->init;
$other->append_conf('postgresql.conf', 'autovacuum = off');
$other->start;
$_->safe_psql('postgres', 'CREATE ROLE app') foreach ($node, $other);

$node->safe_psql(
	'postgres', q{
	CREATE FUNCTION echo(params jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT params';
	SELECT idem_define_operation('CREDIT');
	SELECT idem_grant('app', 'application', 'acme');
	SELECT idem_define_operation('REFUND', effect => 'external', lease => '1 hour',
		channel_idempotent => true, channel_key_ttl => '30 days',
		digest_include => ARRAY['/amount']);

	-- under the first revisions
	SELECT idem_once('acme/CREDIT/first', '{"amount": 10, "currency": "EUR", "trace": "x"}');
	SELECT idem_submit('acme/REFUND/first', '{"amount": 10, "trace": "x"}');

	SELECT idem_define_operation('CREDIT', digest_exclude => ARRAY['/trace']);
	SELECT idem_define_operation('REFUND', effect => 'external', lease => '1 hour',
		channel_idempotent => true, channel_key_ttl => '30 days', backoff_base => '0',
		digest_include => ARRAY['/amount', '/currency']);

	-- local actions in all their states
	SELECT idem_call('acme/CREDIT/succeeded', '{"amount": 10, "currency": "EUR", "trace": "x"}',
		'public.echo');
	BEGIN;
	SELECT idem_reject('acme/CREDIT/rejected', generation, '{"code": 7}')
		FROM idem_claim('acme/CREDIT/rejected', '{"amount": 10, "currency": "EUR", "trace": "x"}');
	COMMIT;
	SELECT idem_cancel('acme/CREDIT/tombstone');

	-- external ones in all of theirs
	SELECT idem_submit('acme/REFUND/pending', p),
		idem_claim('acme/REFUND/live', p),
		idem_claim('acme/REFUND/lapsed', p, lease => '100 ms'),
		idem_claim('acme/REFUND/unknown', p),
		idem_claim('acme/REFUND/review', p),
		idem_claim('acme/REFUND/resolved', p),
		idem_claim('acme/REFUND/succeeded', p),
		idem_claim('acme/REFUND/rejected', p, '2024-05-06 07:08:09+00')
		FROM (VALUES ('{"amount": 10, "currency": "EUR"}'::jsonb)) v (p);
	SELECT idem_mark_unknown('acme/REFUND/unknown', 1, '{"http": 504}', '0');
	SELECT idem_escalate('acme/REFUND/review', 1, '{"why": "limit"}');
	SELECT idem_escalate('acme/REFUND/resolved', 1);
	SELECT idem_resolve('acme/REFUND/resolved', 1, 'succeeded', 'seen in the ledger', '[1]', 'ch-2');
	SELECT idem_complete('acme/REFUND/succeeded', 1, '{"ok": true}', 'ch-1');
	SELECT idem_reject('acme/REFUND/rejected', 1, '{"code": 7}');
	SELECT idem_cancel('acme/REFUND/tombstone', '{"by": "customer"}');

	-- and one whose records were deleted
	SELECT idem_define_operation('PAST', retention => '1 us'),
		idem_define_operation('PAST_RESULT', result_retention => '1 us'),
		idem_define_consumer('past', retention => '1 us');
	SELECT idem_once('acme/PAST/gone', '1', '2025-12-31 00:00+00'),
		idem_call('acme/PAST_RESULT/kept', '1', 'public.echo'),
		(idem_consume('acme/past/gone', '1', '2025-12-31 00:00+00')).outcome;
	SELECT idem_purge();

	-- a partition with offsets that are open and done
	SELECT idem_define_consumer('stock');
	SELECT idem_progress_assign('acme/stock/orders/3', 'former');
	SELECT idem_progress_assign('acme/stock/orders/3', 'topic-id');
	SELECT idem_progress_fetched('acme/stock/orders/3', 2, '{100,101,102}');
	SELECT idem_progress_done('acme/stock/orders/3', 2, '{101}');

	-- a declared loss, as it stands there long after
	INSERT INTO idem_loss VALUES ('2024-05-06 07:08:09+00', 'somebody', '2024-05-06 05:00+00',
		'2024-05-06 06:00+00', '2024-05-07 06:00+00', 'failover');
});
$node->poll_query_until('postgres',
	"SELECT lease_until < clock_timestamp() FROM idem_status('acme/REFUND/lapsed')")
  or die 'the lease does not lapse';

# Every row as text, so that nothing can be lost on the way without a difference.
sub records
{
	my ($server, $database) = @_;

	return answer($server, join(';', map { "SELECT '$_', t::text FROM $_ t ORDER BY 2" }
			qw(idem_access idem_action idem_lease idem_contract idem_era idem_consumer idem_event
			idem_evidence idem_fence idem_loss idem_progress idem_progress_offset idem_watermark)), $database);
}

my $records = records($node, 'postgres');
is( answer(
		$node, q{SELECT string_agg(DISTINCT state, ' ' ORDER BY state) FROM idem_action}),
	'pending processing rejected review succeeded unknown',
	'there are actions in every state');

sub era_of
{
	my ($server, $database) = @_;
	return answer($server, 'SELECT era FROM idem_era', $database);
}

# What is on record is asked for, moved on and finished.
sub check_continuation
{
	my ($server, $database) = @_;
	my $old_era = era_of($server, $database);
	my $same = q('{"amount": 10, "currency": "EUR", "trace": "y"}');
	my $different = q('{"amount": 11, "currency": "EUR", "trace": "y"}');

	is(records($server, $database), $records, "$database: every record is there as it was");

	# a birth tells the lowest generation that may be granted from now on
	my $floor = answer(
		$server, q{SELECT generation FROM
		idem_claim('acme/REFUND/new', '{"amount": 1, "currency": "EUR"}')}, $database);
	my $era = era_of($server, $database);
	cmp_ok($era, '>', $old_era, "$database: the era is raised");
	is($floor, 1 + 2**32 * $era, "$database: a new action is born in it");

	my %expected = (
		'CREDIT/first' => 'conflict|0',    # its own revision counts the trace
		'CREDIT/succeeded' => 'succeeded|0',
		'CREDIT/rejected' => 'rejected|0',
		'CREDIT/tombstone' => 'rejected|0',
		'REFUND/first' => 'execute',    # its own revision does not count the currency
		'REFUND/pending' => 'execute',
		'REFUND/live' => 'busy|0',
		'REFUND/lapsed' => 'repeat',
		'REFUND/unknown' => 'repeat',
		'REFUND/review' => 'review|0',
		'REFUND/resolved' => 'succeeded|0',
		'REFUND/succeeded' => 'succeeded|0',
		'REFUND/rejected' => 'rejected|0',
		'REFUND/tombstone' => 'rejected|0');

	foreach my $key (sort keys %expected)
	{
		my $old = answer($server, "SELECT generation FROM idem_status('acme/$key')", $database);

		is( answer(
				$server, "SELECT outcome FROM idem_claim('acme/$key', $different)", $database),
			$key =~ /tombstone/ ? 'rejected' : 'conflict',
			"$database: $key with other parameters");

		my $answer = answer(
			$server, "SELECT outcome, generation FROM idem_claim('acme/$key', $same)", $database);
		if ($expected{$key} =~ /\|/)
		{
			is($answer, $expected{$key}, "$database: $key with the same parameters");
			next;
		}

		like($answer, qr/^$expected{$key}\|/, "$database: $key is granted");
		my ($new) = $answer =~ /(\d+)$/;
		cmp_ok($new, '>', $old, "$database: with a higher generation");
		cmp_ok($new, '>=', $floor, "$database: of the era");
		is(answer($server, "SELECT idem_complete('acme/$key', $old)", $database),
			'ID002', "$database: $key is not finished by the old one");
		is(answer($server, "SELECT idem_complete('acme/$key', $new)", $database),
			'', "$database: but by the new one");
	}

	is( answer(
			$server, q{SELECT idem_once('acme/CREDIT/first',
			'{"trace": "x", "currency": "EUR", "amount": 10.0}')}, $database),
		'f',
		"$database: a digest under an old revision is that of the same parameters");
	is( answer(
			$server, q{SELECT result, error FROM
			idem_claim('acme/CREDIT/succeeded', '{"amount": 10, "currency": "EUR"}')}, $database),
		'{"trace": "x", "amount": 10, "currency": "EUR"}|',
		"$database: the stored result");
	is( answer(
			$server, q{SELECT idem_complete('acme/REFUND/live', 1, '{"ok": true}')}, $database),
		'',
		"$database: the newest generation on record may finish");
	is( answer(
			$server, q{SELECT idem_resolve('acme/REFUND/review', 1, 'pending', 'not executed');
			SELECT generation >= } . $floor .
			q{ FROM idem_reclaim('acme/REFUND/review')}, $database),
		"\nt",
		"$database: an operator decides");
	is( answer($server, q{SELECT idem_once('acme/PAST/gone', '1', '2025-12-31 00:00+00')}, $database),
		'ID009', "$database: what was deleted is not new");
	is( answer(
			$server, q{SELECT outcome FROM idem_consume('acme/past/gone', '1', '2025-12-31 00:00+00')}, $database),
		'expired', "$database: nor is an event");
	is( answer(
			$server, q{SELECT result_digest = idem_digest('1'::jsonb)
				FROM idem_status('acme/PAST_RESULT/kept')}, $database),
		't', "$database: of a result that was dropped the digest is there");
	is( answer(
			$server, q{SELECT actions_deleted, is_done FROM idem_purge(name => 'PAST')}, $database),
		'0|t', "$database: purging goes on");
	is( answer(
			$server, q{SELECT idem_progress_done('acme/stock/orders/3', 2, '{100}');
			SELECT * FROM idem_progress_assign('acme/stock/orders/3', 'topic-id');}, $database),
		"\n$floor|102",
		"$database: a partition goes on where it was, in the era");
	is( answer(
			$server,
			"SELECT idem_progress_fetched('acme/stock/orders/3', $floor, '{100,101,102,103}')",
			$database),
		'{102,103}',
		"$database: what was done is not handed out again");
	is( answer(
			$server, q{SELECT idem_progress_assign('acme/stock/orders/3', 'former')}, $database),
		'ID003', "$database: a former epoch is known");
	is(answer($server, q{SELECT idem_define_operation('CREDIT')}, $database),
		'3', "$database: revisions go on");
	is(era_of($server, $database), $era, "$database: the era is raised once");
}

my @connection = ('-d', $node->connstr('postgres'));
my $dump = "$PostgreSQL::Test::Utils::tmp_check/dump";

$node->command_ok([ 'pg_dump', '--file', "$dump.sql", @connection ], 'pg_dump as a script');
$node->command_ok([ 'pg_dump', '--format=custom', '--file', "$dump.pgc", @connection ],
	'pg_dump as an archive');

sub restore_script
{
	my ($server, $database) = @_;

	$server->safe_psql('postgres', "CREATE DATABASE $database");
	$server->command_ok(
		[
			'psql', '-XqAt', '-v', 'ON_ERROR_STOP=1', '-d', $server->connstr($database),
			'--file', "$dump.sql"
		],
		"$database: restored");
}

restore_script($node, 'same_server');
check_continuation($node, 'same_server');

restore_script($other, 'other_server');
check_continuation($other, 'other_server');

# into an extension that is there already
$other->safe_psql('postgres', 'CREATE DATABASE data_only');
$other->safe_psql('data_only', 'CREATE EXTENSION idem_action');
$other->command_ok(
	[ 'pg_restore', '--data-only', '--exit-on-error', '-d', $other->connstr('data_only'),
		"$dump.pgc" ],
	'data_only: restored');
check_continuation($other, 'data_only');

# a dump of the restored one, back to where it came from: the third life
$other->command_ok([ 'pg_dump', '--file', "$dump.sql", '-d', $other->connstr('other_server') ],
	'pg_dump of the restored database');
restore_script($node, 'third_life');
my $second_era = era_of($other, 'other_server');
answer($node, q{SELECT idem_reclaim('acme/REFUND/lapsed')}, 'third_life');
is(era_of($node, 'third_life'), $second_era, 'third_life: what grants nothing raises no era');
answer($node, q{SELECT idem_submit('acme/REFUND/newer', '{"amount": 1, "currency": "EUR"}')},
	'third_life');
cmp_ok(era_of($node, 'third_life'), '>', $second_era, 'third_life: the era is raised again');

$other->stop;
$node->stop;

# the origin itself, upgraded: the same databases, in what calls itself another system
my $upgraded = PostgreSQL::Test::Cluster->new('upgraded');
my ($bindir) = run_command([ 'pg_config', '--bindir' ]);
$upgraded->init;
$upgraded->append_conf('postgresql.conf', 'autovacuum = off');
chdir $PostgreSQL::Test::Utils::tmp_check;    # pg_upgrade writes where it stands
command_ok(
	[
		'pg_upgrade', '--no-sync', '--old-datadir', $node->data_dir,
		'--new-datadir', $upgraded->data_dir, '--old-bindir', $bindir, '--new-bindir', $bindir,
		'--socketdir', $upgraded->host, '--old-port', $node->port, '--new-port', $upgraded->port
	],
	'pg_upgrade');
$upgraded->start;
check_continuation($upgraded, 'postgres');
$upgraded->stop;
done_testing();
