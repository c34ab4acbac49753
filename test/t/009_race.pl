# Many clients race for the same keys, each with a write of its own beside the claim: every
# effect happens exactly once, at every isolation level, whoever rolls back or dies on the way.
use strict;
use warnings;
use FindBin;
use lib $FindBin::RealBin;
use IdemTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $NCLIENTS = 32;
my $NKEYS = 1000;

my $node = start_node('race', conf => "max_connections = 50\nlog_statement = none");

$node->safe_psql(
	'postgres', q{
	CREATE TABLE ledger (operation text NOT NULL, id integer NOT NULL);
	CREATE FUNCTION credit(params jsonb) RETURNS jsonb LANGUAGE sql AS $$
		INSERT INTO ledger VALUES (params->>'operation', (params->>'id')::integer)
			RETURNING to_jsonb(id)
	$$;
});

# Each script tries one key with one effect.  Clients walk over the keys, half of them one way
# and half the other, from four places at once, so that several are at the same key all the time.
my $next_key = qq{
	\\set turn :turn + 1
	\\set start (:client_id / 2 % 4) * $NKEYS / 4
	\\set step 3 + 990 * (:client_id % 2)
	\\set id ((:start + :turn) * :step) % $NKEYS
};

# $end: how a transaction ends, given that it may commit
sub script
{
	my ($way, $operation, $end) = @_;
	my $key = "'acme/$operation/' || :id";
	my $params = "jsonb_build_object('operation', '$operation', 'id', :id)";
	my $effect = "INSERT INTO ledger VALUES ('$operation', :id);";
	my %ways = (
		once => qq{
	SELECT idem_once($key, $params) AS is_first \\gset
	\\if :is_first
	$effect
	\\endif},
		claim => qq{
	SELECT outcome = 'execute' AS is_first, generation FROM idem_claim($key, $params) \\gset
	\\if :is_first
	$effect
	SELECT idem_complete($key, :generation, '{"ok": true}');
	\\endif},
		call => qq{
	SELECT idem_call($key, $params, 'credit');});

	return "$next_key\n\tBEGIN;\n$ways{$way}\n$end\n";
}

my $commit = "\tCOMMIT;";
my $commit_or_not = q{
	\set dice random(1, 3)
	\if :dice = 1
	ROLLBACK;
	\else
	COMMIT;
	\endif};

# the arguments of pgbench for so many transactions of each client
sub arguments
{
	my ($name, $script, $nclients, $ntransactions) = @_;
	my $file = "$PostgreSQL::Test::Utils::tmp_check/$name.sql";

	append_to_file($file, $script);
	return ('pgbench', '-n', '-c', $nclients, '-j', 2, '-t', $ntransactions, '-D', 'turn=0',
		'--max-tries=1000', '-f', $file, $node->connstr('postgres'));
}

sub check_effects
{
	my ($name, $operation) = @_;

	is( answer(
			$node, qq{SELECT count(*), count(DISTINCT id) FROM ledger
			WHERE operation = '$operation'}),
		"$NKEYS|$NKEYS",
		"$name: $NKEYS effects");
	is( answer(
			$node, qq{SELECT count(*), count(*) FILTER (WHERE state = 'succeeded') FROM idem_action
			WHERE idem_key_operation(key) = '$operation'}),
		"$NKEYS|$NKEYS",
		"$name: $NKEYS actions on record");
}

# ---- all clients survive ----

foreach my $isolation ('read committed', 'serializable')
{
	foreach my $way ('once', 'claim', 'call')
	{
		my $name = "$way, $isolation";
		my $operation = uc "$way-$isolation" =~ s/ /-/gr;
		# every key is tried by at least eight clients
		my $ntransactions = $NKEYS / 4;

		answer(
			$node, qq{SELECT idem_define_operation('$operation');
			ALTER DATABASE postgres SET default_transaction_isolation = '$isolation'});
		my ($out, $err) = run_command(
			[
				arguments(
					$operation, script($way, $operation, $commit), $NCLIENTS, $ntransactions)
			]);
		like($out, qr/actually processed: @{[$NCLIENTS * $ntransactions]}\//,
			"$name: every transaction is committed in the end");
		like($out, qr/number of failed transactions: 0 /, "$name: none is given up");
		like($out, qr/number of transactions retried: [1-9]/, "$name: some met, and tried again")
		  if $isolation eq 'serializable';
		check_effects($name, $operation);
	}
}

# ---- a third of the transactions rolls back, and backends are killed meanwhile ----

foreach my $way ('once', 'claim')
{
	my $name = "$way, with accidents";
	my $operation = uc "$way-accidents";

	answer(
		$node, qq{SELECT idem_define_operation('$operation');
		ALTER DATABASE postgres RESET default_transaction_isolation});
	my $out;
	my $pgbench = IPC::Run::start(
		[ arguments($operation, script($way, $operation, $commit_or_not), $NCLIENTS, $NKEYS) ],
		'>&', \$out);
	my $nkilled = 0;
	while ($nkilled < 8 && $pgbench->pumpable)
	{
		$nkilled += answer(
			$node, q{
			SELECT count(*) FILTER (WHERE pg_terminate_backend(pid)) FROM (
				SELECT pid FROM pg_stat_activity
				WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()
					AND state IN ('active', 'idle in transaction') AND xact_start IS NOT NULL
				ORDER BY random() LIMIT 1) victim});
		$pgbench->pump_nb;
	}
	$pgbench->finish;
	note $out;
	is($nkilled, 8, "$name: backends were killed in their transactions");
	cmp_ok(answer($node, "SELECT count(*) FROM ledger WHERE operation = '$operation'"),
		'>', 0, "$name: the others went on");

	# one more client, who commits, does what is left
	run_command([ arguments("$operation-rest", script($way, $operation, $commit), 1, $NKEYS) ]);
	check_effects($name, $operation);
}

$node->stop;
done_testing();
