# Workers of doc/patterns/worker.py are killed at random, and so are their connections, while the
# channel loses, delays, holds and refuses, and while the same refunds are submitted again and
# claimed by key.  At the end each refund has been paid exactly once, or was rejected and never
# paid, nothing that evidence contradicts is on record, and nothing is left unfinished.
#
# There are two channels.  One can be asked but pays as often as it is told to, so a second call is
# seen in its ledger; the other recognizes a key that comes again.  A refund that the first one
# executes late is found in time, since its absence is not believed for four seconds, and nothing
# takes the channel as long.
#
#   DISPATCH_CHAOS_SECONDS   for how long, 60 by default
#   DISPATCH_CHAOS_SEED      of the random numbers, which is printed
use strict;
use warnings;
use FindBin;
use lib $FindBin::RealBin;
use HTTP::Tiny;
use IdemTest;
use JSON::PP;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);

plan skip_all => 'psycopg 3 is not installed' if system_log('python3', '-c', 'import psycopg') != 0;

my $seconds = $ENV{DISPATCH_CHAOS_SECONDS} // 60;
my $seed = $ENV{DISPATCH_CHAOS_SEED} // int(rand(1_000_000_000));
srand($seed);
diag("seed $seed, $seconds seconds");

my $source = "$FindBin::RealBin/../..";
my $node = start_node('chaos', conf => "fsync = off\n");
$node->safe_psql(
	'postgres', q{
	CREATE TABLE refund_entry (key text PRIMARY KEY, reference text NOT NULL);
	SELECT idem_define_operation('ASK', effect => 'external', lease => '2 s', max_attempts => 1000,
		backoff_base => '50 ms', backoff_max => '200 ms',
		channel_queryable => true, absence_visible_after => '4 s');
	SELECT idem_define_operation('REPEAT', effect => 'external', lease => '2 s',
		max_attempts => 1000, backoff_base => '50 ms', backoff_max => '200 ms',
		channel_idempotent => true, channel_key_ttl => '1 day');
});

# ---- the parts ----

my @children;

# a program that prints to us what it has to say; what we are told of first
sub start
{
	my ($log, @command) = @_;
	my $pid = open(my $out, '-|') // die "cannot fork: $!";

	if ($pid == 0)
	{
		open(STDERR, '>>', $log) or die "cannot write $log: $!";
		@ENV{qw(PGHOST PGPORT PGDATABASE PGAPPNAME WORKER_LEASE)} =
		  ($node->host, $node->port, 'postgres', 'worker', 2);
		exec @command or die "cannot run $command[0]: $!";
	}
	push @children, $pid;
	return { pid => $pid, out => $out };
}

sub stop
{
	my ($program) = @_;

	kill 'KILL', $program->{pid};
	close $program->{out};
	@children = grep { $_ != $program->{pid} } @children;
}

my $directory = PostgreSQL::Test::Utils::tempdir;
my %channels;
foreach my $operation (qw(ASK REPEAT))
{
	my $channel = start("$directory/channel.log", 'python3', '-B', "$source/test/demo/channel.py",
		"$directory/$operation.ledger", $operation eq 'ASK' ? 'forgetful' : ());
	my ($address) = readline($channel->{out}) =~ /listening on (\S+)/;
	$channels{$operation} = { %$channel, address => $address };
}

my $http = HTTP::Tiny->new(timeout => 30);

sub order
{
	my ($operation, %order) = @_;
	my $answer = $http->post("http://$channels{$operation}{address}/control",
		{ content => encode_json(\%order) });

	die "the channel refuses an order: $answer->{content}" unless $answer->{success};
}

sub start_worker
{
	my ($operation) = @_;

	return {
		%{ start("$directory/worker.log", 'python3', '-B', "$source/doc/patterns/worker.py",
				$operation, $channels{$operation}{address}) },
		operation => $operation
	};
}

# ---- the minute ----

sub one_of { return $_[ int(rand(@_)) ] }

my @workers = map { start_worker($_) } qw(ASK ASK ASK REPEAT REPEAT);
my @claimers = (session($node), session($node));
my %refunds;    # key => parameters
my %done = map { $_ => 0 } qw(submit again claim fault kill terminate);

sub submit
{
	my $operation = one_of(qw(ASK REPEAT));
	my $key = sprintf('acme/%s/r-%d', $operation, scalar keys %refunds);

	# some are more than the channel ever pays
	$refunds{$key} = sprintf('{"amount": %d}', rand() < 0.1 ? 2000 : 1 + int(rand(100)));
	$claimers[0]->run("SELECT outcome FROM idem_submit('$key', '$refunds{$key}')");
}

sub again
{
	my $key = one_of(keys %refunds) // return;

	$claimers[0]->run("SELECT outcome FROM idem_submit('$key', '$refunds{$key}')");
}

# delivered twice at the same time; whoever is granted it gives it back uncalled
sub claim
{
	my $key = one_of(keys %refunds) // return;

	$_->send("SELECT outcome, generation FROM idem_claim('$key', '$refunds{$key}')")
	  foreach @claimers;
	foreach my $claimer (@claimers)
	{
		my ($generation) = $claimer->receive =~ /^(?:execute|repeat|verify)\|(\d+)$/ or next;
		$claimer->run("SELECT idem_release('$key', $generation, retry_after => '0')");
	}
}

sub fault
{
	order(
		one_of(qw(ASK REPEAT)),
		fault => one_of(qw(lose lose hold slow drop refuse)),
		method => one_of(qw(POST POST GET)),
		seconds => 0.2 + rand(1.6));
	order(one_of(qw(ASK REPEAT)), release => JSON::PP::true) if rand() < 0.2;
}

sub kill_worker
{
	my $n = int(rand(@workers));

	stop($workers[$n]);
	$workers[$n] = start_worker($workers[$n]{operation});
}

sub terminate
{
	$claimers[0]->run(
		q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity
		WHERE application_name = 'worker' ORDER BY random() LIMIT 1});
}

my %acts = (submit => \&submit, again => \&again, claim => \&claim, fault => \&fault,
	kill => \&kill_worker, terminate => \&terminate);
my @mix = (('submit') x 8, ('again') x 3, ('claim') x 4, ('fault') x 6, 'kill', 'terminate');
my $end = time + $seconds;
while (time < $end)
{
	my $act = one_of(@mix);
	$acts{$act}->();
	$done{$act}++;
	sleep(rand(0.06));
}
diag(join ', ', map { "$_ $done{$_}" } sort keys %done);

# ---- until all is done ----

order($_, reset => JSON::PP::true) foreach keys %channels;
ok( $node->poll_query_until(
		'postgres', q{
		SELECT count(*) = 0 FROM idem_action WHERE state IN ('pending', 'processing', 'unknown')}),
	'everything that is not in review is finished');
stop($_) foreach @workers;

# ---- what became of it ----

my %state = map { split /\|/ } split /\n/, answer($node, 'SELECT key, state FROM idem_action');
my %paid;
foreach my $operation (keys %channels)
{
	my $ledger = $http->get("http://$channels{$operation}{address}/refunds");
	push @{ $paid{ $_->{key} } }, $_->{reference} foreach @{ decode_json($ledger->{content}) };
}

sub keys_where
{
	my ($is_wrong) = @_;
	return join ' ', grep { $is_wrong->($state{$_} // 'none', scalar @{ $paid{$_} // [] }) }
	  sort keys %refunds;
}

is(keys %state, keys %refunds, 'every refund is on record');
is(keys_where(sub { $_[1] > 1 }), '', 'no refund was paid twice');
is(keys_where(sub { $_[0] eq 'succeeded' && $_[1] != 1 }), '', 'what succeeded was paid');
is(keys_where(sub { $_[0] eq 'rejected' && $_[1] != 0 }), '', 'what was rejected was not');
is(join(' ', grep { !exists $refunds{$_} } sort keys %paid), '', 'nothing else was paid');
is( answer(
		$node, q{
		SELECT count(*) FROM idem_action a FULL JOIN refund_entry e ON e.key = a.key::text
		WHERE (a.state = 'succeeded') IS DISTINCT FROM (e.reference IS NOT NULL)
			OR a.channel_ref IS DISTINCT FROM e.reference}),
	'0',
	'the application has a row for what succeeded, and for nothing else');
is(answer($node, "SELECT string_agg(key || ' ' || reference, ' ' ORDER BY key COLLATE \"C\") FROM refund_entry"),
	join(' ', map { "$_ $paid{$_}[0]" } grep { $state{$_} eq 'succeeded' } sort keys %refunds),
	'with the reference of the payment');
is(answer($node, 'SELECT count(*) FROM idem_violations'), '0', 'no evidence contradicts a record');

# and it was tried
my @tried = split /\|/, answer(
	$node, q{
	SELECT count(*) FILTER (WHERE outcome = 'execute'), count(*) FILTER (WHERE outcome = 'repeat'),
		count(*) FILTER (WHERE outcome = 'verify'), count(*) FILTER (WHERE call = 'absent'),
		count(*) FILTER (WHERE call = 'mark_unknown'), count(*) FILTER (WHERE call = 'reject')
	FROM idem_evidence});
diag("execute, repeat, verify, absent, mark_unknown, reject: @tried");
cmp_ok($_, '>', 0, 'there were some of each grant and report') foreach @tried;
cmp_ok($done{$_}, '>', 0, "there was some $_") foreach sort keys %done;

if (!Test::More->builder->is_passing)
{
	diag(slurp_file("$directory/worker.log"));
	diag("again: DISPATCH_CHAOS_SEED=$seed");
}

END
{
	kill 'KILL', @children;
}

$_->quit foreach @claimers;
stop($_) foreach values %channels;
$node->stop;
done_testing();
