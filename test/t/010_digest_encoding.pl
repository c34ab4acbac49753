# The digest is over UTF-8 whatever the encoding of the database, and its binary
# form survives COPY, which refuses a version that it does not know.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('encoding');
$node->init(extra => [ '--encoding=UTF8', '--locale=C' ]);
$node->start;

# a document as an expression in ASCII, its canonical text in UTF-8 as a literal;
# in LATIN1 and WIN1252 the order of bytes is not that of UTF-16 code units
my %documents = (
	'ascii' => [ q({"b": 1.50, "a": ["x"]}), q({"a":["x"],"b":1.5}) ],
	'latin' => [
		q({"\u00e9\u00e8": "\u00fc\u00df", "z": "na\u00efve", "\u00c4": {"\u00f6": null}}),
		qq({"z":"na\xc3\xafve","\xc3\x84":{"\xc3\xb6":null},"\xc3\xa9\xc3\xa8":"\xc3\xbc\xc3\x9f"})
	],
	'euro' => [
		q({"\u20ac": 1, "\u0161": 2, "\u00e9": 3}),
		qq({"\xc3\xa9":3,"\xc5\xa1":2,"\xe2\x82\xac":1})
	]);
my %encodings = (
	UTF8 => [qw(ascii latin euro)],
	LATIN1 => [qw(ascii latin)],
	LATIN9 => [qw(ascii latin euro)],
	WIN1252 => [qw(ascii latin euro)],
	EUC_JP => [qw(ascii latin)],
	SQL_ASCII => [qw(ascii)]);

foreach my $encoding (sort keys %encodings)
{
	$node->safe_psql('postgres',
		"CREATE DATABASE \"in_$encoding\" ENCODING '$encoding' LOCALE 'C' TEMPLATE template0");
	$node->safe_psql("in_$encoding", 'CREATE EXTENSION idem_action');
	foreach my $name (@{ $encodings{$encoding} })
	{
		my ($document, $canonical) = @{ $documents{$name} };
		my $hex = unpack('H*', $canonical);
		is( $node->safe_psql(
				"in_$encoding",
				qq[SELECT encode(convert_to(idem_canonical('$document'), 'UTF8'), 'hex') = '$hex',
				          idem_digest('$document'::jsonb)
				          = ('v1:' || encode(sha256(decode('$hex', 'hex')), 'hex'))::idem_digest]),
			't|t',
			"$name in $encoding");
	}
}

# pointers are compared in the server's encoding, and digested and shown in theirs
foreach my $encoding (qw(UTF8 LATIN1 WIN1252))
{
	is( $node->safe_psql(
			"in_$encoding", q[
SELECT idem_digest('{"\u00e9": {"\u00fc": 1}, "z": 2}', ARRAY['/' || e || '/' || u, '/z'])
       = idem_digest(jsonb_build_object('/' || e || '/' || u, 1, '/z', 2)),
       idem_digest('{"\u00e9": {"\u00fc": 1}, "z": 2}', NULL, ARRAY['/' || e || '/' || u])
       = idem_digest('{"\u00e9": {}, "z": 2}'::jsonb),
       idem_differences('{"\u00e9": {"\u00fc": 1}}', '{"\u00e9": {"\u00fc": 2}}') = ARRAY['/' || e || '/' || u]
FROM (SELECT '"\u00e9"'::jsonb ->> 0 AS e, '"\u00fc"'::jsonb ->> 0 AS u) AS names]),
		't|t|t',
		"pointers in $encoding");
}

# SQL_ASCII promises nothing about bytes, so they are checked
is( $node->safe_psql(
		'in_SQL_ASCII',
		q[SELECT idem_digest(to_jsonb(E'\xc3\xa9'::text)) = idem_digest('"x"'::jsonb),
		         idem_digest(to_jsonb(E'\xc3\xa9'::text))::text
		         = 'v1:' || encode(sha256('\x22c3a922'), 'hex')]),
	'f|t',
	'valid UTF-8 in SQL_ASCII');
my ($status, $stdout, $stderr) = $node->psql('in_SQL_ASCII',
	q[\set VERBOSITY sqlstate
SELECT idem_digest(to_jsonb(E'\xe9'::text))]);
like($stderr, qr/22021/, 'bytes in SQL_ASCII that are not UTF-8 are refused');

# binary COPY
my $file = PostgreSQL::Test::Utils::tempdir() . '/digests.bin';
$node->safe_psql(
	'in_UTF8', qq[
CREATE TABLE digests (digest idem_digest);
INSERT INTO digests SELECT idem_digest(to_jsonb(n)) FROM generate_series(1, 100) AS n;
CREATE TABLE copied (digest idem_digest);
COPY digests TO '$file' (FORMAT binary);
COPY copied FROM '$file' (FORMAT binary);]);
is( $node->safe_psql(
		'in_UTF8', 'SELECT count(*), count(DISTINCT digest) FROM digests JOIN copied USING (digest)'),
	'100|100',
	'binary form survives COPY');

# 19 bytes of header, 2 of field count and 4 of length come before the first version
my $bytes = slurp_file($file);
is(ord(substr($bytes, 25, 1)), 1, 'the first byte is the version');
substr($bytes, 25, 1) = chr(2);
open my $handle, '>:raw', $file or die "could not write $file: $!";
print $handle $bytes;
close $handle;
($status, $stdout, $stderr) = $node->psql('in_UTF8',
	qq[\\set VERBOSITY sqlstate
COPY copied FROM '$file' (FORMAT binary)]);
like($stderr, qr/22P03/, 'another version is refused');

$node->stop;
done_testing();
