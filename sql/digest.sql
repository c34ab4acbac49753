-- digest: the type idem_digest and what makes one.  Run in a database of encoding UTF8.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS idem_action;
RESET client_min_messages;

-- SHA-256 over the canonical text in UTF-8, and a version
SELECT idem_digest('{"order": "o-1", "currency": "EUR", "amount": 10.00}'::jsonb);
SELECT bool_and(idem_digest(v)::text = 'v1:' || encode(sha256(convert_to(idem_canonical(v), 'UTF8')), 'hex')) AS as_specified
FROM (VALUES ('{}'::jsonb), ('null'), ('"é€😂"'), ('{"é": 1, "b": [1.50, null]}'), (to_jsonb(repeat('x', 5000)))) AS v (v);
SELECT idem_digest(NULL::jsonb) IS NULL AS null_stays_null;

-- equal parameters, other parameters
SELECT a, b, idem_digest(a::jsonb) = idem_digest(b::jsonb) AS same, (idem_digest(a::jsonb) = idem_digest(b::jsonb)) = expected AS is_right
FROM (VALUES
    ('10', '10.0', true), ('10', '10.00', true), ('10', '1e1', true), ('10', '1E+1', true),
    ('0', '-0', true), ('0', '-0.0', true),
    ('9007199254740993', '9007199254740992', false), ('1e-400', '0', false), ('0.1', '0.1000000000000000055', false),
    ('{"a":{"b":{"c":1,"d":2},"e":3},"f":4}', ' { "f" : 4, "a" : { "e" : 3, "b" : { "d" : 2, "c" : 1 } } } ', true),
    ('[1,2]', '[2,1]', false),
    ('{"a":null}', '{}', false), ('"10"', '10', false), ('[]', '{}', false), ('{"a":{}}', '{"a":[]}', false),
    ('{"a":1,"a":2}', '{"a":2}', true),
    ('"\u00e9"', '"e\u0301"', false), ('"😂"', '"\ud83d\ude02"', true), ('"\u0041"', '"A"', true)
) AS v (a, b, expected);

-- no setting of the session counts
CREATE TEMPORARY TABLE before AS
SELECT d, idem_digest(d) AS digest
FROM (VALUES (jsonb_build_object('amount', 0.1::float8, 'at', timestamptz '2026-03-01 12:00+00', 'for', interval '1 day 2 hours')),
             ('{"ä": 1e-7, "z": "Ä", "a": 12345.678}')) AS v (d);
SET TimeZone = 'Asia/Kathmandu';
SET DateStyle = 'German';
SET IntervalStyle = 'iso_8601';
SET extra_float_digits = -15;
SET bytea_output = 'escape';
SET lc_numeric = 'C';
SET lc_monetary = 'C';
SET lc_time = 'C';
SET lc_messages = 'C';
SET client_encoding = 'LATIN1';
SET standard_conforming_strings = off;
SELECT bool_and(idem_digest(d) = digest AND idem_digest(d)::text = digest::text) AS unchanged FROM before;
RESET ALL;

-- the type
SELECT typlen, typbyval, typalign, typstorage FROM pg_type WHERE typname = 'idem_digest';
SELECT ('v1:' || repeat('Ab', 32))::idem_digest;
DO $$
DECLARE
    bad text;
BEGIN
    FOREACH bad IN ARRAY ARRAY['', 'v', 'v1', 'v1:', repeat('0', 64), 'v1:' || repeat('0', 63), 'v1:' || repeat('0', 65),
                               'v2:' || repeat('0', 64), 'V1:' || repeat('0', 64), ' v1:' || repeat('0', 64),
                               'v1:' || repeat('0', 64) || ' ', 'v1:' || repeat('0', 63) || 'g', 'v1:' || repeat('0', 63) || '@',
                               'v1:' || repeat('0', 62) || '0' || chr(16), 'v1:' || repeat('0', 31) || 'é' || repeat('0', 31)]
    LOOP
        BEGIN
            PERFORM bad::idem_digest;
            RAISE NOTICE 'accepted: "%"', bad;
        EXCEPTION WHEN invalid_text_representation THEN
            NULL;
        END;
    END LOOP;
END $$;
-- a bare literal is read as a digest, and the error says what to do
SELECT idem_digest('{"amount": 10}');

-- order, equality, hashing
SELECT bool_and((a < b) = (i < j) AND (a <= b) = (i <= j) AND (a = b) = (i = j) AND (a <> b) = (i <> j) AND (a >= b) = (i >= j)
                AND (a > b) = (i > j) AND sign(idem_digest_cmp(a, b)) = sign(i - j)) AS bytewise
FROM (SELECT i, ('v1:' || lpad(to_hex(i), 2, '0') || repeat('0', 62))::idem_digest AS a FROM generate_series(0, 255, 15) AS i) AS x,
     (SELECT j, ('v1:' || lpad(to_hex(j), 2, '0') || repeat('0', 62))::idem_digest AS b FROM generate_series(0, 255, 15) AS j) AS y;
CREATE TEMPORARY TABLE digests (digest idem_digest, n integer);
INSERT INTO digests SELECT idem_digest(to_jsonb(n / 2)), n FROM generate_series(0, 1999) AS n;
CREATE INDEX digests_btree ON digests (digest);
CREATE INDEX digests_hash ON digests USING hash (digest);
ANALYZE digests;
SET enable_seqscan = off;
SET enable_bitmapscan = off;
BEGIN;
DROP INDEX digests_hash;
EXPLAIN (COSTS OFF) SELECT n FROM digests WHERE digest = idem_digest('7'::jsonb) ORDER BY n;
SELECT n FROM digests WHERE digest = idem_digest('7'::jsonb) ORDER BY n;
ROLLBACK;
BEGIN;
DROP INDEX digests_btree;
EXPLAIN (COSTS OFF) SELECT n FROM digests WHERE digest = idem_digest('7'::jsonb) ORDER BY n;
SELECT n FROM digests WHERE digest = idem_digest('7'::jsonb) ORDER BY n;
ROLLBACK;
RESET enable_seqscan;
RESET enable_bitmapscan;
SELECT count(*) AS sorted FROM (SELECT digest::text AS t, lag(digest::text) OVER (ORDER BY digest) AS previous FROM digests) AS s
WHERE previous COLLATE "C" <= t COLLATE "C";
SELECT count(DISTINCT digest) AS distinct_ones, count(DISTINCT idem_digest_hash(digest)) > 990 AS hash_spreads,
       count(DISTINCT idem_digest_hash_extended(digest, 42)) AS hash_extended,
       bool_and((idem_digest_hash_extended(digest, 0) & 4294967295) = (idem_digest_hash(digest)::bigint & 4294967295)) AS seed_0_agrees
FROM digests;
SELECT amname, opcname, amvalidate(c.oid) AS is_valid
FROM pg_opclass AS c JOIN pg_am AS a ON a.oid = opcmethod WHERE opcname = 'idem_digest_ops' ORDER BY amname;
CREATE TEMPORARY TABLE parts (digest idem_digest PRIMARY KEY) PARTITION BY HASH (digest);
CREATE TEMPORARY TABLE parts_0 PARTITION OF parts FOR VALUES WITH (MODULUS 2, REMAINDER 0);
CREATE TEMPORARY TABLE parts_1 PARTITION OF parts FOR VALUES WITH (MODULUS 2, REMAINDER 1);
INSERT INTO parts SELECT DISTINCT digest FROM digests;
SELECT count(*) FILTER (WHERE tableoid = 'parts_0'::regclass) BETWEEN 400 AND 600 AS halves, count(*) AS all_of_them FROM parts;

-- binary form
SELECT idem_digest_send('v1:00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff');

-- which parameters count: included ones stand in one object under their pointers
SELECT idem_digest('{"order": {"id": "o-1", "amount": 10.0}, "trace": 1}', ARRAY['/order/id', '/order/amount'])
       = idem_digest('{"/order/amount": 10, "/order/id": "o-1"}'::jsonb) AS one_object,
       idem_digest('{"a": {"b": 1}}', ARRAY['/a', '/a/b']) = idem_digest('{"/a": {"b": 1}, "/a/b": 1}'::jsonb) AS overlapping,
       idem_digest('[[0, {"": null}]]', ARRAY['/0/1/', '/0/0']) = idem_digest('{"/0/0": 0, "/0/1/": null}'::jsonb) AS elements,
       idem_digest('{"a": 1}', NULL, NULL) = idem_digest('{"a": 1}'::jsonb) AS without_rule;

-- each of them must be present: an error, never a weaker digest
CREATE FUNCTION pg_temp.state_of(params jsonb, include text[], exclude text[]) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    PERFORM idem_digest(params, include, exclude);
    RETURN 'digest';
EXCEPTION WHEN OTHERS THEN
    RETURN SQLSTATE;
END $$;
SELECT p AS pointer, pg_temp.state_of('{"amount": 10, "items": [1, 2], "none": null, "01": 1, "m~n": 1, "a/b": {"": 0}}', ARRAY[p], NULL) AS answer
FROM (VALUES ('/amount'), ('/none'), ('/items'), ('/items/0'), ('/items/1'), ('/01'), ('/m~0n'), ('/a~1b'), ('/a~1b/'),
             ('/amuont'), ('/Amount'), ('/amount/x'), ('/amount/0'), ('/none/x'), ('/items/2'), ('/items/01'), ('/items/-'), ('/items/-1'),
             ('/items/+1'), ('/items/1e0'), ('/items/'), ('/items/99999999999999999999'), ('/m~1n'), ('/a/b'), ('/'), ('/amount/')) AS v (p);
SELECT pg_temp.state_of('10', ARRAY['/a'], NULL) AS scalar, pg_temp.state_of('[]', ARRAY['/0'], NULL) AS empty_array,
       pg_temp.state_of('{}', ARRAY['/'], NULL) AS empty_object;
SELECT idem_digest('{"amount": 10}', ARRAY['/amuont']);

-- excluded ones are left out, wherever they are; absent ones are fine
SELECT v AS params, p AS exclude, idem_digest(v::jsonb, NULL, p::text[]) = idem_digest(rest::jsonb) AS same
FROM (VALUES
    ('{"a": 1, "b": 2}', '{/b}', '{"a": 1}'),
    ('{"b": 2, "c": 3, "a": 1}', '{/a,/c}', '{"b": 2}'),
    ('{"a": 1}', '{/a}', '{}'),
    ('{"a": 1}', '{/b,/a/b,/a/0,/-}', '{"a": 1}'),
    ('{"a": {"b": {"c": 1, "d": 2}}, "b": {"c": 1}}', '{/a/b/c}', '{"a": {"b": {"d": 2}}, "b": {"c": 1}}'),
    ('{"a": {"b": 1, "c": 2}}', '{/a/b,/a}', '{}'),
    ('{"a": {"b": 1, "c": 2}, "d": {"b": 1, "c": 2}}', '{/d/c,/a/b}', '{"a": {"c": 2}, "d": {"b": 1}}'),
    ('[1, 2, 3, 4]', '{/1,/2}', '[1, 4]'),
    ('[1, 2]', '{/0,/1,/2,/01,/-}', '[]'),
    ('[[1, 2], [1, 2]]', '{/0/1,/1/0}', '[[1], [2]]'),
    ('{"0": [1], "a": [1]}', '{/0/0,/a/00}', '{"0": [], "a": [1]}'),
    ('{"a/b": 1, "m~n": 2, "": 3, "~1": 4, "x": 5}', '{/a~1b,/m~0n,/,/~01}', '{"x": 5}'),
    ('{"é": 1, "😂": {"é": 2}}', '{/é,/😂/é}', '{"😂": {}}'),
    ('5', '{/a}', '5')
) AS v (v, p, rest);

-- what is no rule
SELECT include, exclude, pg_temp.state_of('{"a": 1}', include::text[], exclude::text[]) AS answer
FROM (VALUES ('{/a}', '{/b}'), ('{}', NULL), (NULL, '{}'), ('{a}', NULL), (NULL, '{a/b}'), ('{/~}', NULL), ('{/~2}', NULL), ('{/a~}', NULL),
             ('{""}', NULL), (NULL, '{""}'), ('{/a,/a}', NULL), (NULL, '{/a,/b,/a}'), ('{{/a,/b}}', NULL), ('{/a,NULL}', NULL),
             (NULL, '{NULL}')) AS v (include, exclude);
SELECT pg_temp.state_of(NULL, NULL, NULL) AS null_params;
SELECT idem_digest('{}', ARRAY['amount']);
SELECT idem_digest('{}', ARRAY['/a~2']);

-- where two documents differ
SELECT a, b, idem_differences(a::jsonb, b::jsonb) AS differences
FROM (VALUES
    ('{"amount": 10}', '{"amount": 10.0}'), ('{"amount": 10}', '{"amount": 100}'), ('{"amount": 10}', '{"amount": "10"}'),
    ('{"b": 1, "a": {"c": [1, {"d": 2}]}}', '{"b": 1, "a": {"c": [1, {"d": 3}]}}'),
    ('{"a": 1, "c": 2}', '{"b": 1, "c": 2}'), ('{"a": null}', '{}'), ('{}', '{"a": null}'),
    ('[1, 2, 3]', '[1, 3]'), ('[]', '[{}, []]'), ('{"a": {}}', '{"a": []}'), ('{"a": true}', '{"a": false}'), ('{"a": "x"}', '{"a": "y"}'),
    ('{"a/b": 1, "m~n": {"": 1}}', '{"a/b": 2, "m~n": {"": 2}}'), ('1', '2'), ('{}', '[]'), ('"x"', '{}'), ('null', 'null'),
    ('{"\ud83d\ude02": 1, "\uffff": 1, "é": 1}', '{"\ud83d\ude02": 2, "\uffff": 2, "é": 2}')
) AS v (a, b);
SELECT include, exclude, idem_differences(
    '{"order": {"id": "o-1", "amount": 10, "meta": {"trace": 1}}, "items": [1, 2, 3], "at": 1, "old": 0}',
    '{"order": {"id": "o-1", "amount": 11, "meta": {"trace": 2}}, "items": [1, 9], "at": 2, "new": 0}',
    include::text[], exclude::text[]) AS differences
FROM (VALUES
    (NULL, NULL), ('{/order}', NULL), ('{/order/id}', NULL), ('{/order,/order/amount,/at}', NULL), ('{/old,/new,/none,/at/x}', NULL),
    ('{/items/1,/items/2}', NULL), (NULL, '{/order/amount,/order/meta/trace}'), (NULL, '{/items/1,/at,/old,/new,/order}'),
    (NULL, '{/items,/order,/at,/old,/new}'), (NULL, '{/items/2,/items/1,/order/meta,/old,/at}')
) AS v (include, exclude);
SELECT idem_differences('{"a": {"trace": 1}}', '{}', NULL, ARRAY['/a/trace']) AS what_is_left_of_it;
SELECT idem_differences(jsonb_agg(n), jsonb_agg(-n)) AS at_most_16 FROM generate_series(1, 40) AS n;
SELECT array_length(idem_differences(jsonb_object_agg('n' || n, n), jsonb_object_agg('m' || n, n)), 1) AS at_most_16 FROM generate_series(1, 40) AS n;
SELECT array_length(idem_differences('{}', '{}', array_agg('/n' || n)), 1) AS at_most_16 FROM generate_series(1, 40) AS n;
\set VERBOSITY sqlstate
SELECT idem_differences(NULL, '{}');
SELECT idem_differences('{}', NULL);
SELECT idem_differences('{}', '{}', ARRAY['/a'], ARRAY['/a']);
SELECT idem_digest('"\u0000"'::jsonb);
SELECT idem_digest('"\ud800"'::jsonb);
\set VERBOSITY default

-- deep and large documents
SELECT idem_differences((repeat('{"a":', 400) || '0' || repeat('}', 400))::jsonb, (repeat('{"a":', 400) || '1' || repeat('}', 400))::jsonb)
       = ARRAY[repeat('/a', 400)] AS deep;
SELECT idem_digest(d) <> idem_digest(d - 'last') AND idem_differences(d, d - 'last') = ARRAY['/last'] AS large
FROM (SELECT jsonb_object_agg('n' || n, repeat('x', 50)) || '{"last": 0}' AS d FROM generate_series(1, 100000) AS n) AS s;

-- nothing for PUBLIC
CREATE ROLE regress_idem_nobody;
SET ROLE regress_idem_nobody;
\set VERBOSITY sqlstate
SELECT idem_digest('{}'::jsonb);
SELECT idem_digest('{}'::jsonb, ARRAY['/a']);
SELECT idem_differences('{}', '{}');
CREATE TEMPORARY TABLE refused (digest idem_digest);
RESET ROLE;
DROP ROLE regress_idem_nobody;
SELECT proname FROM pg_proc WHERE (proname ~ '^idem_(digest|differences|canonical)') AND has_function_privilege('public', oid, 'EXECUTE');
SELECT p.oid::regprocedure AS without_comment FROM pg_proc AS p WHERE proname ~ '^idem_(digest|differences|canonical)' AND obj_description(oid, 'pg_proc') IS NULL;
