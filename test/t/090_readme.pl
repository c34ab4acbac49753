# 090_readme.pl: README.md and the pages of doc/, doc/patterns/ and doc/drivers/ say what really
# happens.
#
# A page marks what is played with comments that nobody sees when it is rendered, each on the
# line above a fenced block:
#
#   <!-- run -->                    the block is typed into psql
#   <!-- run window=2 -->           likewise, into the psql of another window
#   <!-- run window=2 waits -->     likewise; it must come to wait for a lock
#   <!-- output -->                 what the last block, or the one that waited, printed; its
#                                   window is named likewise
#   <!-- kill window=1 -->          stands alone: SIGKILL for the psql of that window
#
# Each page has a database of its own, with the extension in it unless the page creates it, and
# starts as the superuser with one window, number 1.  A block without an <!-- output --> must
# run without an error.
#
# A block below <!-- from FILE NAME --> is what FILE has between its lines "doc: NAME" and
# "doc: end": code of the drivers, which test/e2e runs.
#
# And nothing is left out: links lead to files and headings, README.md leads to every page, every
# public function has its table and its page, every SQLSTATE of ours its paragraph.

use strict;
use warnings;

use File::Basename qw(dirname);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep);

my $node = PostgreSQL::Test::Cluster->new('readme');
$node->init;
$node->append_conf('postgresql.conf', 'max_prepared_transactions = 5');
$node->start;

my $database;       # of the page
my $page;           # its path
my %windows;        # number => its psql: pid, pipe, output, what was read of it
my $nblocks = 0;    # typed so far
my $tempdir = PostgreSQL::Test::Utils::tempdir;

# ---- windows ----

sub open_window
{
	my $number = shift;
	my $output = "$tempdir/$database.$number.$nblocks";
	my $pid = open(my $pipe, '|-');

	die "cannot fork: $!" unless defined $pid;
	if ($pid == 0)
	{
		open(STDOUT, '>', $output) or die "cannot write $output: $!";
		open(STDERR, '>&', \*STDOUT) or die "cannot write $output: $!";
		exec 'psql', '-X', '-d', $node->connstr($database);
	}
	$pipe->autoflush(1);
	$windows{$number} = { pid => $pid, pipe => $pipe, output => $output, seen => 0 };
}

sub kill_window
{
	my $window = delete $windows{ (shift) };

	kill 'KILL', $window->{pid};
	close $window->{pipe};
}

# what a window printed since it was last asked
sub printed
{
	my $window = shift;

	# psql has not opened it yet
	return '' unless -e $window->{output};
	return substr(slurp_file($window->{output}), $window->{seen});
}

# types a block, and behind it what tells that its end was reached
sub type_block
{
	my ($number, $text) = @_;

	$nblocks++;
	open_window($number) unless $windows{$number};
	my $window = $windows{$number};
	$window->{end} = "end of block $nblocks\n";
	local $SIG{PIPE} = 'IGNORE';
	print { $window->{pipe} } $text, "\\echo end of block $nblocks\n";
}

# what the block printed
sub read_block
{
	my $window = $windows{ (shift) };
	my $deadline = time + $PostgreSQL::Test::Utils::timeout_default;

	while (time < $deadline)
	{
		my $got = printed($window);
		if ((my $length = index($got, $window->{end})) >= 0)
		{
			$window->{seen} += $length + length($window->{end});
			return substr($got, 0, $length);
		}
		sleep 0.02;
	}
	return printed($window) . "(and then nothing happened)\n";
}

sub waits_for_lock
{
	return $node->poll_query_until('postgres',
		"SELECT count(*) = 1 FROM pg_stat_activity"
		  . " WHERE datname = '$database' AND wait_event_type = 'Lock'");
}

# ---- pages ----

# the marks of a page with the blocks below them, in order
sub read_page
{
	my @lines = split /\n/, slurp_file($page);
	my @marks;

	for (my $i = 0; $i < @lines; $i++)
	{
		next unless $lines[$i] =~ /^<!-- (run|output|kill)( waits| window=\d+| waits)* -->$/;
		my %mark = (what => $1, line => $i + 1, text => '');
		$mark{window} = $lines[$i] =~ / window=(\d+)/ ? $1 : 1;
		$mark{waits} = $lines[$i] =~ / waits/;
		if ($mark{what} ne 'kill')
		{
			die "no fenced block below the mark at $page line $mark{line}"
			  unless $lines[ ++$i ] =~ /^```(sql|text)$/;
			$mark{text} .= "$lines[$i]\n" while $lines[ ++$i ] ne '```';
		}
		push @marks, \%mark;
	}
	return @marks;
}

# trailing white space is not kept by every editor
sub trimmed
{
	my $text = shift;

	$text =~ s/[ \t]+$//mg;
	$text =~ s/\n+\z/\n/;
	return $text;
}

sub play_run
{
	my ($mark, $next) = @_;
	my $name = "$page line $mark->{line}";

	type_block($mark->{window}, $mark->{text});
	if ($mark->{waits})
	{
		ok(waits_for_lock(), "$name: waits");
		return;
	}
	return if $next && $next->{what} eq 'output' && $next->{window} == $mark->{window};
	unlike(read_block($mark->{window}), qr/^(ERROR|FATAL|psql):|invalid command/m, "$name: runs");
}

sub play_page
{
	my @marks = read_page();

	foreach my $i (0 .. $#marks)
	{
		my $mark = $marks[$i];

		play_run($mark, $marks[ $i + 1 ]) if $mark->{what} eq 'run';
		kill_window($mark->{window}) if $mark->{what} eq 'kill';
		is( trimmed(read_block($mark->{window})),
			trimmed($mark->{text}),
			"$page line $mark->{line}: is what is printed") if $mark->{what} eq 'output';
	}
	kill_window($_) foreach keys %windows;
	return scalar @marks;
}

# what a link to a heading of a page is called
sub anchors
{
	my %anchors;

	foreach my $heading (slurp_file(shift) =~ /^#+ (.+)$/mg)
	{
		$heading = lc($heading) =~ s/[^\w -]//gr;
		$anchors{ $heading =~ tr/ /-/r } = 1;
	}
	return \%anchors;
}

sub leads_nowhere
{
	my ($file, $anchor) = $_[0] =~ /^([^#]*)(?:#(.*))?$/;

	$file = $file eq '' ? $page : dirname($page) . "/$file";
	return !-e $file || defined $anchor && !anchors($file)->{$anchor};
}

# a page leads nowhere where there is nothing
sub check_links
{
	my @broken = grep { leads_nowhere($_) } (shift) =~ /\]\(([^):]+)\)/g;

	is("@broken", '', "$page: its links lead to files and headings");
}

sub without_indent
{
	my $text = shift;
	my ($indent) = sort { $a <=> $b } map { length } $text =~ /^([ \t]*)\S/mg;

	return $text =~ s/^[ \t]{$indent}//mgr;
}

sub check_parts
{
	my $text = shift;
	my $nparts = () = $text =~ /^<!-- from /mg;

	while ($text =~ /^<!-- from (\S+) (\w+) -->\n```\w+\n(.*?)^```$/msg)
	{
		my ($file, $name, $shown) = ($1, $2, $3);
		my ($part) = slurp_file($file) =~ /^[^\n]*\bdoc: $name\n(.*?)^[^\n]*\bdoc: end$/ms;

		is($shown, trimmed(without_indent($part // '')), "$page: shows $name of $file");
		$nparts--;
	}
	is($nparts, 0, "$page: every mark of a part has its block");
}

my $readme = slurp_file('README.md');

foreach my $file ('README.md', sort glob 'doc/*.md doc/patterns/*.md doc/drivers/*.md')
{
	my $text = slurp_file($file);

	$page = $file;
	like($readme, qr/\]\(\Q$file\E[)#]/, "README.md leads to $file") if $file ne 'README.md';
	check_links($text);
	check_parts($text);
	next unless $text =~ /^<!-- run/m;
	$database = lc($file) =~ s/\.md$//r =~ s/\W/_/gr;
	$node->safe_psql('postgres', "CREATE DATABASE $database");
	$node->safe_psql($database, 'CREATE EXTENSION idem_action')
	  unless $text =~ /^CREATE EXTENSION idem_action\b/m;
	play_page();
}

# ---- what must not be left out ----

my $errors = slurp_file('doc/errors.md');
my $described = $node->safe_psql('readme', <<'SQL');
SELECT DISTINCT proname, substring(description FROM 'source: (doc/\w+\.md)')
FROM pg_depend JOIN pg_proc p ON p.oid = objid
JOIN pg_description d ON d.objoid = objid AND d.classoid = 'pg_proc'::regclass
WHERE deptype = 'e' AND pg_depend.classid = 'pg_proc'::regclass AND description LIKE '%source: %'
ORDER BY 1
SQL

foreach my $line (split /\n/, $described)
{
	my ($function, $source) = split /\|/, $line;

	like($readme, qr/^\| .*`$function\(/m, "README.md has a table of $function()");
	like(slurp_file($source), qr/\b$function\b/, "$source, which its comment names, tells of it");
}
foreach my $digits (slurp_file('src/errors.h') =~ /MAKE_SQLSTATE\('I','D',([\d',]+)\)/g)
{
	my $code = 'ID' . $digits =~ tr/0-9//cdr;

	like($errors, qr/^### $code /m, "doc/errors.md explains $code");
}

# the first thing that a reader tries
like(
	$readme,
	qr/^<!-- run -->\n```sql\n(?:.+\n){15}```\n/m,
	'the example of README.md is fifteen lines long');

$node->stop;
done_testing();
