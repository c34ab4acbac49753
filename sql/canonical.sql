-- canonical: one text for equal parameters.  Run in a database of encoding UTF8.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS idem_action;
RESET client_min_messages;

-- scalars and empty containers stand at the root, too
SELECT v AS given, idem_canonical(v::jsonb) AS canonical
FROM (VALUES ('null'), ('true'), ('false'), ('"x"'), ('10.50'), ('[]'), ('{}'), (' [ { } , [ ] ] ')) AS v (v);
SELECT idem_canonical(NULL) IS NULL AS null_stays_null;

-- members are sorted three levels deep, elements are not; a name twice keeps the last
SELECT idem_canonical('{"b": {"d": {"f": 1, "e": [3, 1, 2]}, "c": 3}, "a": [{"z": 1, "y": 2}]}');
SELECT idem_canonical('{"a": 1, "b": 2, "a": 3}');
SELECT idem_canonical('{"a": 1, "": 2, "aa": 3, "B": 4, "b": 5, "aaaaaaaa": 6, "aaaaaaaab": 7, "aaaaaaaaa": 8}');

-- by UTF-16 code units: a supplementary character before U+E000 to U+FFFF
SELECT idem_canonical('{"\uffff": 1, "\ue000": 2, "\ud7ff": 3, "\ud800\udc00": 4, "\udbff\udfff": 5, "a\uffff": 6, "a\ud800\udc00": 7}')
       = U&'{"a\+010000":7,"a\FFFF":6,"\D7FF":3,"\+010000":4,"\+10FFFF":5,"\E000":2,"\FFFF":1}' AS as_utf16;

-- many members: sorted by another algorithm than few
SELECT idem_canonical(jsonb_object_agg(n::text, n)) = '{' || string_agg(format('"%s":%s', n, n), ',' ORDER BY n::text COLLATE "C") || '}' AS sorted
FROM generate_series(1, 1000) AS n;

-- escapes: each control character, a quote, a backslash, and nothing else, wherever it stands in a word of eight
SELECT idem_canonical(to_jsonb(string_agg(chr(c), '' ORDER BY c))) FROM generate_series(1, 47) AS c;
SELECT idem_canonical(jsonb_build_array(chr(127), chr(128), chr(8232), '/', '<&>')) =
       U&'["\007F","\0080","\2028","/","<&>"]' AS not_escaped;
SELECT bool_and(idem_canonical(to_jsonb(overlay(repeat('x', 24) placing chr(c) FROM n FOR 1))) =
                '"' || repeat('x', n - 1) || CASE WHEN c < 32 THEN E'\\u00' || lpad(to_hex(c), 2, '0') ELSE E'\\' || chr(c) END || repeat('x', 24 - n) || '"') AS everywhere
FROM generate_series(1, 24) AS n, unnest(ARRAY[1, 31, 34, 92]) AS c;
SELECT bool_and(idem_canonical(to_jsonb(repeat(chr(c), 17))) = '"' || repeat(chr(c), 17) || '"') AS unescaped
FROM generate_series(32, 383) AS c WHERE c NOT IN (34, 92);

-- numbers: exact decimals in the layout of ECMAScript
SELECT n AS given, idem_canonical(n::jsonb) AS canonical
FROM (VALUES ('0'), ('-0'), ('-0.0'), ('0e10'), ('10'), ('10.0'), ('10.00'), ('1e1'), ('1E+1'), ('-1'), ('9999'), ('10000'), ('-10001'),
             ('99990000'), ('100000000'), ('1.0001'), ('0.5'), ('-0.05'), ('0.0001'), ('0.00010001'), ('123456.789'),
             ('999999999999999999999'), ('1e20'), ('1e21'), ('-1e21'), ('1000000000000000000001'), ('123456789012345678901.5'),
             ('0.000001'), ('0.0000012'), ('1e-7'), ('-0.00000012'), ('1.5e-10'), ('9007199254740993'), ('333333333.33333329'),
             ('0.1000000000000000055'), ('1e-400'), ('1e131071'), ('-1.25e131071'), ('1.7976931348623157e308')) AS v (n);

-- the layout on disk is read right, whatever the scale, the sign and the weight
SELECT count(*) AS numbers, count(*) FILTER (WHERE idem_canonical(to_jsonb(n))::numeric IS DISTINCT FROM n) AS wrong,
       count(*) FILTER (WHERE idem_canonical(to_jsonb(n)) <> idem_canonical(to_jsonb(trim_scale(n)))) AS scale_shows
FROM (SELECT round(format('%s%se%s', sign, digits, shift)::numeric, greatest(scale, -shift)) AS n
      FROM unnest(ARRAY[1, 7, 10, 99, 1234, 9999, 10001, 123456789, 100020003000, 98765432109876543210]::numeric[]) AS digits,
           generate_series(-40, 40, 3) AS shift, unnest(ARRAY[0, 3, 90]) AS scale, unnest(ARRAY['', '-']) AS sign) AS s;
SELECT idem_canonical(n::jsonb) = n AS long_fraction FROM (SELECT '1.' || repeat('0', 15999) || '1' AS n) AS s;
SELECT length(idem_canonical(to_jsonb(power(10::numeric, 131071) + 1))) AS all_digits_of_a_long_integer;

-- what is no jsonb: a clear error
\set VERBOSITY sqlstate
SELECT idem_canonical((repeat('[', 100000) || repeat(']', 100000))::jsonb);
SELECT idem_canonical('"\ud800"');
SELECT idem_canonical('"\u0000"');
SELECT idem_canonical('1e131072');
\set VERBOSITY default
SELECT idem_canonical((repeat('[', 500) || repeat(']', 500))::jsonb) = repeat('[', 500) || repeat(']', 500) AS deep;
SELECT idem_canonical((repeat('{"b":1,"a":', 500) || '0' || repeat('}', 500))::jsonb)
       = repeat('{"a":', 500) || '0' || repeat(',"b":1}', 500) AS deep_objects;

-- large documents: the buffer and the list of members grow
SELECT md5(idem_canonical(jsonb_build_object('a', repeat(E'x"\n', 1000000)))) = md5('{"a":"' || repeat('x\"\n', 1000000) || '"}') AS long_string;
SELECT length(idem_canonical(jsonb_agg(jsonb_build_object('id', n, 'name', 'n' || n % 10)))) AS many_elements FROM generate_series(1, 100000) AS n;

-- nothing for PUBLIC
CREATE ROLE regress_idem_nobody;
SET ROLE regress_idem_nobody;
\set VERBOSITY sqlstate
SELECT idem_canonical('{}');
RESET ROLE;
DROP ROLE regress_idem_nobody;
