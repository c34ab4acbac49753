# What the TAP tests share: a node with the extension, questions to it, sessions that stay open.
#
#   my $node = start_node('name', conf => "…", streaming => 1);
#   answer($node, $sql)            what the last statement printed, or the SQLSTATE of a failure
#   my $session = session($node);  a psql that stays connected
#   $session->run($sql)            likewise an answer, of the last statement
#   $session->send($sql); …; $session->receive    a statement that may have to wait
#   crash($node)                   stops the server as a power cut would, and starts it again
#   wait_for_lock($node, $count)   until so many sessions wait for a lock
package IdemTest;

use strict;
use warnings;
use Exporter 'import';
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;

our @EXPORT = qw(start_node answer session crash wait_for_lock);

sub start_node
{
	my ($name, %params) = @_;
	my $node = PostgreSQL::Test::Cluster->new($name);

	$node->init(allows_streaming => $params{streaming});
	$node->append_conf('postgresql.conf', "autovacuum = off\n" . ($params{conf} // ''));
	$node->start;
	$node->safe_psql('postgres', 'CREATE EXTENSION idem_action');
	return $node;
}

sub answer
{
	my ($node, $sql, $database) = @_;
	my ($rc, $out, $err) = $node->psql(
		$database // 'postgres', $sql,
		timeout => $PostgreSQL::Test::Utils::timeout_default,
		extra_params => [ '-v', 'VERBOSITY=sqlstate' ]);

	return $1 if $err =~ /(?:ERROR|FATAL|PANIC):  (\w{5})/;
	die "psql failed: $err" if $rc != 0;
	return $out;
}

sub crash
{
	my ($node) = @_;

	$node->stop('immediate');
	$node->start;
}

sub wait_for_lock
{
	my ($node, $count) = @_;

	$node->poll_query_until('postgres',
		"SELECT count(*) = $count FROM pg_stat_activity WHERE wait_event_type = 'Lock'")
	  or die "no $count sessions wait for a lock";
}

sub session
{
	return IdemTest::Session->new(@_);
}

package IdemTest::Session;

sub new
{
	my ($class, $node, $database) = @_;
	my $psql = $node->background_psql($database // 'postgres', on_error_stop => 0);

	return bless { psql => $psql, received => '' }, $class;
}

sub send
{
	my ($self, $sql) = @_;
	my $out = $self->{psql}->query_until(qr/^sent\r?\n/m,
		"\\echo sent\n$sql;\n\\echo answered :SQLSTATE\n");

	# a fast answer may have come along
	$out =~ s/^sent\r?\n//m;
	$self->{received} = $out;
}

sub receive
{
	my ($self) = @_;
	my $out = $self->{received};

	$out .= $self->{psql}->query_until(qr/^answered \w{5}\r?\n/m, '')
	  unless $out =~ /^answered \w{5}\r?\n/m;
	$self->{psql}->{stderr} = '';
	$out =~ s/\r//g;
	$out =~ /\A(.*?)\n?answered (\w{5})\n\z/s or die "unexpected answer \"$out\"";
	return $2 eq '00000' ? $1 : $2;
}

sub run
{
	my ($self, $sql) = @_;

	$self->send($sql);
	return $self->receive;
}

sub pid
{
	my ($self) = @_;

	return $self->run('SELECT pg_backend_pid()');
}

sub quit
{
	my ($self) = @_;

	$self->{psql}->quit;
}

1;
