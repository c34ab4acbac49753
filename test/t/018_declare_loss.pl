# An asynchronous standby is promoted without what was committed last: grants under which the
# channel was called, completions, submits.  Once the loss is declared, whatever is delivered
# again is verified, repeated or reviewed, and nothing is executed twice.
use strict;
use warnings;
use FindBin;
use lib $FindBin::RealBin;
use IdemTest;
use PostgreSQL::Test::Cluster;
use Test::More;

# ---- the channel, which forgets nothing: how often it executed what ----

my %ledger;

# one that knows keys maps a second call to the first
sub call_channel
{
	my ($key) = @_;

	$ledger{$key}++ unless $key =~ m{/CARD/} && $ledger{$key};
	return "ref-$key";
}

# a worker that follows the verdict, and says what became of it
sub work
{
	my ($node, $key, $occurred_at) = @_;
	my $moment = defined $occurred_at ? "'$occurred_at'" : 'NULL';
	my ($outcome, $generation) = split /\|/, answer(
		$node, "SELECT outcome, generation FROM idem_claim('$key', '{\"amount\": 10}', $moment)");
	my $report;

	if ($outcome eq 'verify' && !$ledger{$key})
	{
		return 'verify, ' . answer(
			$node, "SELECT outcome FROM idem_absent('$key', $generation)");
	}
	if ($outcome eq 'execute' || $outcome eq 'repeat')
	{
		$report = call_channel($key);
	}
	elsif ($outcome eq 'verify')
	{
		$report = "ref-$key";
	}
	answer($node, "SELECT idem_complete('$key', $generation, '{}', '$report')") if defined $report;
	return $outcome;
}

my $primary = start_node('primary', streaming => 1);
$primary->safe_psql(
	'postgres', q{
	SELECT idem_define_operation('PAY', effect => 'external', lease => '100 ms',
		channel_queryable => true, absence_visible_after => '0', max_attempts => 100);
	SELECT idem_define_operation('CARD', effect => 'external',
		channel_idempotent => true, channel_key_ttl => '30 days');
	SELECT idem_define_operation('MAIL', effect => 'external');
	SELECT idem_submit('acme/PAY/pending', '{"amount": 10}');
	SELECT idem_submit('acme/CARD/pending', '{"amount": 10}');
	SELECT idem_submit('acme/MAIL/pending', '{"amount": 10}');
	SELECT idem_submit('acme/PAY/untouched', '{"amount": 10}');
	SELECT idem_claim('acme/PAY/taken', '{"amount": 10}');
	SELECT idem_claim('acme/PAY/done', '{"amount": 10}');
	SELECT idem_complete('acme/PAY/done', 1, '{}');
});
$primary->backup('backup');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'backup', has_streaming => 1);
$standby->start;
$primary->wait_for_catchup($standby);

# a session of the standby that has looked before, and acts after the promotion
my $session = session($standby);
is($session->run(q{SELECT state FROM idem_status('acme/PAY/taken')}),
	'processing', 'what was granted before arrives');

# ---- from here on nothing arrives any more ----

$standby->safe_psql('postgres', q{ALTER SYSTEM SET primary_conninfo = ''});
$standby->reload;
$standby->poll_query_until('postgres', 'SELECT count(*) = 0 FROM pg_stat_wal_receiver')
  or die 'the standby goes on receiving';
my $lost_from = answer($primary, 'SELECT clock_timestamp()');

$primary->poll_query_until('postgres',
	q{SELECT lease_until < clock_timestamp() FROM idem_status('acme/PAY/taken')})
  or die 'the lease does not lapse';
is(work($primary, 'acme/PAY/taken'), 'verify, execute', 'lost: a takeover that found nothing');
call_channel('acme/PAY/taken');
is(answer($primary, q{SELECT idem_complete('acme/PAY/taken', 3, '{}')}), '', 'lost: its completion');
is(work($primary, "acme/$_/pending"), 'execute', "lost: $_ done, that had been submitted")
  foreach qw(PAY CARD MAIL);
is(work($primary, "acme/$_/new", $lost_from), 'execute', "lost: $_ done, record and all")
  foreach qw(PAY CARD MAIL);
is(work($primary, 'acme/PAY/timeless'), 'execute', 'lost: another one, of no known time');
is(answer($primary, qq{SELECT outcome FROM idem_submit('acme/$_/submitted', '{"amount": 10}', '$lost_from')}),
	'accepted', "lost: $_ submitted")
  foreach qw(PAY CARD MAIL);
is(work($primary, 'acme/CARD/submitted', $lost_from), 'execute', 'lost: and one of them done');
is(answer($primary, q{SELECT generation FROM idem_claim('acme/PAY/held', '{"amount": 10}', lease => '1 hour')}),
	'1', 'lost: a grant whose owner has called, and lives');
call_channel('acme/PAY/held');

my $lost_to = answer($primary, 'SELECT clock_timestamp()');
$primary->stop('immediate');
$standby->promote;
my %before = %ledger;

# ---- the standby is the primary now, and knows nothing of all that ----

is(answer($standby, qq{BEGIN; SELECT outcome FROM idem_claim('acme/PAY/new', '{"amount": 10}', '$lost_from'); ROLLBACK}),
	'execute', 'undeclared, what was lost would be executed again');
is(answer($standby, q{BEGIN; SELECT outcome FROM idem_claim('acme/MAIL/pending', '{"amount": 10}'); ROLLBACK}),
	'execute', 'and so would what is pending on record');
is(answer($standby, qq{SELECT idem_declare_loss('$lost_from', '$lost_to', '$lost_to'::timestamptz + interval '1 day',
		'standby promoted')}),
	'5', 'the loss is declared');
is(answer($standby, 'SELECT count(*) FROM idem_loss'), '1', 'and on record');

# owners of the lost timeline, and one of before that was replaced on it
is($session->run(q{SELECT idem_complete('acme/PAY/held', 1, '{}')}), 'ID005', 'its record was lost');
is($session->run(q{SELECT idem_complete('acme/PAY/taken', 3, '{}')}), 'ID002', 'its grant was lost');
is($session->run(q{SELECT idem_renew('acme/PAY/taken', 1)}), 'ID003',
	'who was replaced makes no further call');

# everything is delivered again, or sent again by its producer
is(work($standby, 'acme/PAY/taken'), 'verify', 'taken over: found');
is(work($standby, 'acme/PAY/pending'), 'verify', 'pending, queryable: found');
is(work($standby, 'acme/CARD/pending'), 'repeat', 'pending, idempotent: repeated');
is(work($standby, 'acme/MAIL/pending'), 'review', 'pending, neither: a person decides');
is(work($standby, 'acme/PAY/new', $lost_from), 'verify', 'lost, queryable: found');
is(work($standby, 'acme/CARD/new', $lost_from), 'repeat', 'lost, idempotent: repeated');
is(work($standby, 'acme/MAIL/new', $lost_from), 'review', 'lost, neither: a person decides');
is(work($standby, 'acme/PAY/timeless'), 'verify', 'lost, of no known time: found');
is(answer($standby, qq{SELECT outcome FROM idem_submit('acme/$_/submitted', '{"amount": 10}', '$lost_from')}),
	'accepted', "$_ submitted again from the producer's log")
  foreach qw(PAY CARD MAIL);
is(work($standby, 'acme/CARD/submitted'), 'repeat', 'what had been done of it: repeated');
is(work($standby, 'acme/PAY/submitted'), 'verify, busy', 'what had not: verified, and not found yet');
is(work($standby, 'acme/MAIL/submitted'), 'review', 'what nobody can ask about: a person decides');
is(answer($standby, q{SELECT idem_cancel('acme/PAY/untouched'), idem_cancel('acme/PAY/nobody')}),
	'f|f', 'nothing is cancelled that may have been executed');
is($session->run(q{SELECT outcome FROM idem_claim('acme/PAY/held', '{"amount": 10}')}),
	'verify', 'the held one is verified');
is($session->run(q{SELECT idem_complete('acme/PAY/held', 1, '{}')}), 'ID002',
	'and its lost owner is stale');
is(work($standby, 'acme/PAY/done'), 'succeeded', 'what was done before is done');
is_deeply(\%ledger, \%before, 'nothing was executed again');
is_deeply([ grep { $_ != 1 } values %ledger ], [], 'nothing was executed twice');

# what occurred after the loss is new
is(work($standby, 'acme/PAY/later', answer($standby, 'SELECT clock_timestamp()')),
	'execute', 'what occurred later is executed');

# ---- the doubt ends: by time, or by a person ----

# played by moving the records back, the longest lease of a lost owner having ended
$standby->safe_psql('postgres', q{UPDATE idem_lease SET first_granted_at = first_granted_at - interval '25 hours',
	call_until = call_until - interval '25 hours', due_at = due_at - interval '25 hours'
	WHERE key = 'acme/PAY/submitted'});
is(work($standby, 'acme/PAY/submitted'), 'verify, execute', 'not found a day later is conclusive');
my ($generation) = answer($standby, q{SELECT generation FROM idem_status('acme/MAIL/submitted')});
is(answer($standby, "SELECT idem_resolve('acme/MAIL/submitted', $generation, 'pending', 'not in the log of the mail server')"),
	'', 'an operator vouches that it was not executed');
is(work($standby, 'acme/MAIL/submitted'), 'execute', 'and it is');

# a declaration outlives a restart, like any record
$standby->restart;
is(answer($standby, qq{SELECT outcome FROM idem_claim('acme/PAY/late', '{"amount": 10}', '$lost_from')}),
	'verify', 'a dead letter of that time is verified whenever it comes');

$session->quit;
$standby->stop;
done_testing();
