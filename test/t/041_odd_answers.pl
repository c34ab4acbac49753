# A channel pays, and then answers what doc/patterns/worker.py cannot read, or does not get, or the
# database does not take.  The worker does not end, nor wait for ever: nobody knows whether it was
# paid, so the next one asks.  The channel pays as often as it is told to, so a second call is seen.
use strict;
use warnings;
use utf8;
use FindBin;
use lib $FindBin::RealBin;
use HTTP::Tiny;
use IdemTest;
use JSON::PP;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

plan skip_all => 'psycopg 3 is not installed' if system_log('python3', '-c', 'import psycopg') != 0;

my $source = "$FindBin::RealBin/../..";
my $node = start_node('odd', conf => "fsync = off\n");
$node->safe_psql(
	'postgres', q{
	CREATE TABLE refund_entry (key text PRIMARY KEY, reference text NOT NULL);
	SELECT idem_define_operation('REFUND', effect => 'external', lease => '2 s',
		backoff_base => '50 ms', backoff_max => '200 ms',
		channel_queryable => true, absence_visible_after => '4 s');
	SELECT idem_define_operation('EXACT', effect => 'external');
	SELECT idem_define_operation('LATE', effect => 'external', lease => '2 s',
		backoff_base => '50 ms', backoff_max => '200 ms');
});

my @children;    # and what they print to, since closing that would wait for them

sub start
{
	my ($log, @command) = @_;
	my $pid = open(my $out, '-|') // die "cannot fork: $!";

	if ($pid == 0)
	{
		open(STDERR, '>>', $log) or die "cannot write $log: $!";
		@ENV{qw(PGHOST PGPORT PGDATABASE WORKER_LEASE)} = ($node->host, $node->port, 'postgres', 2);
		exec 'python3', '-B', @command or die "cannot run python3: $!";
	}
	push @children, { pid => $pid, out => $out };
	return $out;
}

my $directory = PostgreSQL::Test::Utils::tempdir;
my $out = start("$directory/channel.log", "$source/test/demo/channel.py", "$directory/ledger",
	'forgetful');
my ($address) = readline($out) =~ /listening on (\S+)/;
my $http = HTTP::Tiny->new(timeout => 30);

start("$directory/worker.log", "$source/doc/patterns/worker.py", 'REFUND', $address);

sub order
{
	my $answer = $http->post("http://$address/control", { content => encode_json({@_}) });

	die "the channel refuses an order: $answer->{content}" unless $answer->{success};
}

sub submit
{
	my ($id, $params) = @_;
	utf8::encode(my $key = "acme/REFUND/$id");

	$node->safe_psql('postgres', "SELECT idem_submit('$key', '$params')");
	return $key;
}

sub is_settled
{
	my ($key, $name) = @_;

	ok($node->poll_query_until('postgres', "SELECT state = 'succeeded' FROM idem_status('$key')"),
		$name)
	  or die "a worker has ended, or waits:\n" . slurp_file("$directory/worker.log");
}

sub ledger
{
	return $http->get("http://$address/refunds")->{content};
}

my %answers = (
	'no JSON' => 'paid',
	'no object' => '["re_1"]',
	'null' => 'null',
	'no reference' => '{"paid": true}',
	'a number for a reference' => '{"reference": 1}',
	'an empty reference' => '{"reference": ""}',
	'a reference that is too long' => '{"reference": "' . 'x' x 1000 . '"}',
	'a control character in the reference' => '{"reference": "re_\u00071"}',
	'a NUL' => '{"reference": "re_1", "text": "\u0000"}',
	'half of a character' => '{"reference": "re_1", "text": "\ud800"}',
	'a number that is none' => '{"reference": "re_1", "rate": NaN}',
	'depth' => '[' x 100000,
);
my $refunds = 0;
foreach my $what (sort keys %answers)
{
	my $id = sprintf('r-%d', ++$refunds);
	order(fault => 'garble', answer => $answers{$what});
	is_settled(submit($id, '{"amount": 10}'), "answered with $what: settled in the end");
}

# the worker believes itself the owner for two seconds
my $began = time;
order(fault => 'drip', seconds => 60);
is_settled(submit('r-' . ++$refunds, '{"amount": 10}'), 'an answer that drips is not waited for');
cmp_ok(time - $began, '<', 30, 'for ever');

# what a header cannot carry as it is
foreach my $id ('zurück', '10 €', '50%25')
{
	order(fault => 'lose');
	is_settled(submit($id, '{"amount": 10}'), 'a key is recognized by the channel, whatever is in it');
	$refunds++;
}
is(answer($node, 'SELECT count(*) FROM refund_entry'), $refunds, 'each has its row');
is(scalar @{ decode_json(ledger()) }, $refunds, 'and was paid once');

# what the channel is asked for, word for word
my $amount = '{"amount": 12345678901234567.89}';
$node->safe_psql('postgres', "SELECT idem_submit('acme/EXACT/r-1', '$amount')");
my $said = start("$directory/worker.log", '-c', <<"PYTHON");
import sys
sys.path.insert(0, "$source/doc/patterns")
import worker
class Channel:
    def pay(self, key, params, ends_at):
        print(params, flush=True)
        return 201, {"reference": "re_exact"}
worker.Worker("EXACT", Channel()).work()
PYTHON
is(readline($said), "$amount\n", 'money is not rounded on its way');

# the address is found, and the connection accepted, when the lease has ended: no call is made
$node->safe_psql('postgres', q{SELECT idem_submit('acme/LATE/r-1', '{"amount": 10}')});
start("$directory/worker.log", '-c', <<"PYTHON");
import http.client, sys, time
sys.path.insert(0, "$source/doc/patterns")
import worker
connect, late = http.client.HTTPConnection.connect, [3]
def connect_late(self):
    connect(self)
    time.sleep(late.pop() if late else 0)
http.client.HTTPConnection.connect = connect_late
worker.Worker("LATE", worker.Channel("$address")).work()
PYTHON
is_settled('acme/LATE/r-1', 'a connection that takes longer than the lease');
is( answer(
		$node, q{SELECT string_agg(call, ' ' ORDER BY recorded_at) FROM idem_evidence
			WHERE key = 'acme/LATE/r-1'}),
	'submit claim release claim complete',
	'is not used: the action is given back uncalled');

is(kill(0, map { $_->{pid} } @children), 4, 'the workers live on');
is(answer($node, 'SELECT count(*) FROM idem_violations'), '0', 'no evidence contradicts a record');

END
{
	kill 'KILL', map { $_->{pid} } @children;
}

$node->stop;
done_testing();
