-- key: the type idem_key.  Run in a database of encoding UTF8, of any locale.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS idem_action;
RESET client_min_messages;

-- parts
SELECT k, idem_key_tenant(k) AS tenant, idem_key_operation(k) AS operation, idem_key_id(k) AS id
FROM (VALUES ('acme/REFUND/r-17'::idem_key),
             ('a/b/c/d//e/'), ('a/b//'), ('a/b/two  words'), ('ä/ö/ü'), ('€/𝄞/💶')) AS v (k);
SELECT idem_key('acme', 'REFUND', 'r-17'), idem_key('a', 'b', 'c/d') = 'a/b/c/d' AS same;
SELECT idem_key(NULL, 'b', 'c') IS NULL AND idem_key('a', NULL, 'c') IS NULL
       AND idem_key('a', 'b', NULL) IS NULL AND NULL::text::idem_key IS NULL
       AND idem_key_tenant(NULL) IS NULL AS null_stays_null;

-- what is no key: each of 22P02, and the message says which part and why
\set VERBOSITY sqlstate
SELECT ''::idem_key;
\set VERBOSITY default
SELECT ''::idem_key;
SELECT 'acme'::idem_key;
SELECT 'acme/REFUND'::idem_key;
SELECT '//x'::idem_key;
SELECT 'a//b'::idem_key;
SELECT 'a/b/'::idem_key;
SELECT 'ac me/REFUND/r-17'::idem_key;
SELECT 'acme/RE FUND/r-17'::idem_key;
SELECT 'acme/REFUND/r-17 '::idem_key;
SELECT 'acme/REFUND/ r-17'::idem_key;
SELECT E'acme/REFUND/r\n17'::idem_key;
SELECT E'acme/RE\x1b[31mFUND/r-17'::idem_key;
SELECT E'acme\x7f/REFUND/r-17'::idem_key;
SELECT U&'acme/REFUND/r\008517'::idem_key;
SELECT U&'acme/REFUND/r-17\00a0'::idem_key;
SELECT U&'ac\00a0me/REFUND/r-17'::idem_key;
SELECT U&'acme/REFUND/\3000r-17'::idem_key;

-- the limit is in bytes, and a key beyond it is not shown
SELECT length(('a/b/' || repeat('x', 508))::idem_key::text) AS longest;
SELECT ('a/b/' || repeat('x', 509))::idem_key;
SELECT ('a/b/' || repeat('ä', 254))::idem_key IS NOT NULL AS bytes_count;
SELECT ('a/b/' || repeat('ä', 254) || 'x')::idem_key;
SELECT repeat('/', 1024 * 1024)::idem_key;
SELECT ('a/b/' || repeat('x', 1024 * 1024))::varchar::idem_key;
SELECT idem_key('a', 'b', repeat('x', 1024 * 1024));

-- the constructor does not let a part become two
SELECT idem_key('acme/x', 'REFUND', 'r-17');
SELECT idem_key('acme', 'RE/FUND', 'r-17');
SELECT idem_key('', 'REFUND', 'r-17');
SELECT idem_key('acme', '', 'r-17');
SELECT idem_key('acme', 'REFUND', '');
SELECT idem_key('acme', 'REFUND', 'r-17 ');

-- nothing is normalized or folded
SELECT U&'a/b/\00e9'::idem_key = U&'a/b/e\0301'::idem_key AS nfc_is_nfd,
       'a/b/C'::idem_key = 'a/b/c'::idem_key AS case_folded;

-- types: text and varchar need no cast, nor does an unknown literal or a parameter without a type
CREATE TABLE key_action (key idem_key PRIMARY KEY, n int);
INSERT INTO key_action VALUES ('a/b/c', 1), ('a/b/d'::text, 2), ('a/b/e'::varchar, 3);
CREATE FUNCTION key_taken(key idem_key) RETURNS text
    LANGUAGE sql IMMUTABLE AS 'SELECT ''key '' || $1::text';
SELECT key_taken('a/b/c'), key_taken('a/b/c'::text), key_taken('a/b/c'::varchar),
       key_taken('a/b/c'::varchar(10));
SELECT n FROM key_action WHERE key = 'a/b/c';
SELECT n FROM key_action WHERE key = 'a/b/c'::text;
SELECT n FROM key_action WHERE 'a/b/c'::text = key;
SELECT n FROM key_action WHERE key = 'a/b/c'::varchar;
SELECT n FROM key_action WHERE 'a/b/c'::varchar = key;
SELECT n FROM key_action WHERE key <> 'a/b/c'::text ORDER BY n;
SELECT n FROM key_action WHERE key < 'a/b/d'::varchar ORDER BY n;
SELECT n FROM key_action WHERE key <= 'a/b/d' ORDER BY n;
SELECT n FROM key_action WHERE key > 'a/b/d' ORDER BY n;
SELECT n FROM key_action WHERE key >= 'a/b/d' ORDER BY n;
SELECT n FROM key_action WHERE key BETWEEN 'a/b/c0' AND 'a/b/d' ORDER BY n;
SELECT n FROM key_action WHERE key IN ('a/b/c', 'a/b/e') ORDER BY n;
SELECT n FROM key_action WHERE key IN ('a/b/c'::text, 'a/b/e'::varchar) ORDER BY n;
SELECT n FROM key_action WHERE key NOT IN ('a/b/c', 'a/b/e');
SELECT n FROM key_action WHERE key = ANY ('{a/b/c,a/b/d}') ORDER BY n;
PREPARE of_no_type AS SELECT n FROM key_action WHERE key = $1;
PREPARE of_text (text) AS SELECT n, key_taken($1) FROM key_action WHERE key = $1;
PREPARE of_varchar (varchar) AS SELECT n, key_taken($1) FROM key_action WHERE key = $1;
PREPARE of_text_array (text[]) AS SELECT n FROM key_action WHERE key = ANY ($1) ORDER BY n;
PREPARE of_varchar_array (varchar[]) AS SELECT n FROM key_action WHERE key = ANY ($1) ORDER BY n;
EXECUTE of_no_type('a/b/d');
EXECUTE of_text('a/b/d');
EXECUTE of_varchar('a/b/d');
EXECUTE of_text_array('{a/b/d,a/b/e}');
EXECUTE of_varchar_array('{a/b/d,a/b/e}');
PREPARE insert_text (text, int) AS
    INSERT INTO key_action VALUES ($1, $2)
    ON CONFLICT (key) DO UPDATE SET n = excluded.n RETURNING *;
EXECUTE insert_text('a/b/f', 4);
EXECUTE insert_text('a/b/f', 5);
EXECUTE insert_text('a/b/f ', 5);
DELETE FROM key_action WHERE key = 'a/b/f';
SELECT coalesce(NULL::idem_key, 'a/b/c'), CASE WHEN true THEN 'a/b/d' ELSE 'a/b/c'::idem_key END,
       nullif('a/b/c'::idem_key, 'a/b/c') IS NULL AS is_null;
-- operators of text mean what they meant
SELECT 'B'::text = 'b'::varchar AS tv, 'x'::varchar = 'x'::varchar AS vv, 'x' = 'x' AS uu,
       'x'::varchar || 'y' = 'xy' AS cat, 'x'::name = 'x'::text AS nt, 'x'::char(3) = 'x' AS cu,
       'x' IN ('x'::varchar, 'y'::text) AS iv;
-- to text only by assignment or cast
CREATE TABLE key_text (t text, v varchar(8));
INSERT INTO key_text SELECT key, key FROM key_action;
\set VERBOSITY terse
SELECT upper('a/b/c'::idem_key);
\set VERBOSITY default
SELECT upper('a/b/c'::idem_key::text), 'key ' || 'a/b/c'::idem_key,
       left(CAST('a/b/c'::idem_key AS varchar), 1);
-- joins with text and varchar
SELECT n FROM key_action JOIN key_text ON key = t ORDER BY n;
SELECT n FROM key_action JOIN key_text ON v = key ORDER BY n;

-- order is bytewise, under whatever collation the database or a caller has
SELECT string_agg(k::text, ' ' ORDER BY k) AS sorted
FROM (VALUES ('a/b/c'::idem_key), ('a/b/B'), ('a/b/a'), ('a/b/ab'), ('a/b/-'), ('a/b/é'), ('a/b/z'),
             ('a/B/z'), ('A/b/z'), ('a/b/a-b'), ('a-/b/a')) AS v (k);
SELECT 'a/b/c' COLLATE "C" = 'a/b/c'::idem_key AS equal;
SELECT key FROM key_action ORDER BY key COLLATE "C";
SELECT idem_key_cmp('a/b/c', 'a/b/c') AS same, sign(idem_key_cmp('a/b/c', 'a/b/cc')) AS begins,
       sign(idem_key_cmp('a/b/cc', 'a/b/c')) AS begun, sign(idem_key_cmp('a/b/é', 'a/b/z')) AS high;
SELECT 'a/b/c'::idem_key = 'a/b/cc' AS begins, 'a/b/cc'::idem_key = 'a/b/c' AS begun,
       'a/b/c'::idem_key <> 'a/b/cc' AS unequal;

-- the operator classes
SELECT amname, opcname, opcdefault, amvalidate(c.oid)
FROM pg_opclass c JOIN pg_am a ON a.oid = opcmethod
WHERE opcintype = 'idem_key'::regtype ORDER BY amname;

-- sorting many keys, those that differ in their first eight bytes and those that do not
CREATE TABLE key_many AS
    SELECT (format('%s/O/%s', md5(i::text), i % 7))::idem_key AS key, i % 2 AS kind
    FROM generate_series(1, 20000, 2) i
    UNION ALL
    SELECT (format('acme/REFUND/%s', md5(i::text)))::idem_key, i % 2
    FROM generate_series(2, 20000, 2) i;
ANALYZE key_many;
SELECT count(*) AS spread, count(*) FILTER (WHERE by_key <> by_bytes) AS misplaced
FROM (SELECT row_number() OVER (ORDER BY key) AS by_key,
             row_number() OVER (ORDER BY convert_to(key::text, 'UTF8')) AS by_bytes
      FROM key_many WHERE kind = 1) s;
SELECT count(*) AS neighbours, count(*) FILTER (WHERE by_key <> by_bytes) AS misplaced
FROM (SELECT row_number() OVER (ORDER BY key) AS by_key,
             row_number() OVER (ORDER BY convert_to(key::text, 'UTF8')) AS by_bytes
      FROM key_many WHERE kind = 0) s;
CREATE INDEX key_many_btree ON key_many (key);
SET enable_seqscan = off;
SET enable_sort = off;
EXPLAIN (COSTS OFF) SELECT key FROM key_many ORDER BY key;
SELECT count(*) AS keys, count(*) FILTER (WHERE before >= key) AS misplaced
FROM (SELECT key, lag(key) OVER (ORDER BY key) AS before FROM key_many) s;
SELECT count(*) FROM key_many WHERE key >= 'acme/REFUND/0' AND key < 'acme/REFUND/g';
RESET enable_sort;
DROP INDEX key_many_btree;
CREATE INDEX key_many_hash ON key_many USING hash (key);
EXPLAIN (COSTS OFF)
SELECT kind FROM key_many WHERE key = 'acme/REFUND/c81e728d9d4c2f636f067f89cc14862c'::text;
SELECT kind FROM key_many WHERE key = 'acme/REFUND/c81e728d9d4c2f636f067f89cc14862c'::text;
RESET enable_seqscan;
DROP INDEX key_many_hash;

-- plans
SET enable_nestloop = off;
SET enable_hashjoin = off;
EXPLAIN (COSTS OFF) SELECT count(*) FROM key_many a JOIN key_many b USING (key);
SELECT count(*) FROM key_many a JOIN key_many b USING (key);
RESET enable_hashjoin;
SET enable_mergejoin = off;
EXPLAIN (COSTS OFF) SELECT count(*) FROM key_many a JOIN key_many b USING (key);
SELECT count(*) FROM key_many a JOIN key_many b USING (key);
RESET enable_mergejoin;
RESET enable_nestloop;
SET enable_sort = off;
EXPLAIN (COSTS OFF) SELECT key FROM key_many GROUP BY key;
SELECT count(*) FROM (SELECT key FROM key_many GROUP BY key) s;
RESET enable_sort;

-- a security barrier view can use the index: the operators are leakproof
CREATE VIEW key_barrier WITH (security_barrier) AS
    SELECT * FROM key_action WHERE idem_key_tenant(key) = 'a';
SET enable_seqscan = off;
SET enable_bitmapscan = off;
EXPLAIN (COSTS OFF) SELECT n FROM key_barrier WHERE key = 'a/b/c'::text;
RESET enable_seqscan;
RESET enable_bitmapscan;

-- duplicates share their key in an index
CREATE TABLE key_same AS
    SELECT 'acme/REFUND/the-one-and-only-key-of-this-table'::idem_key AS key
    FROM generate_series(1, 5000);
CREATE INDEX key_same_on ON key_same (key);
CREATE INDEX key_same_off ON key_same (key) WITH (deduplicate_items = off);
SELECT pg_relation_size('key_same_on') * 3 < pg_relation_size('key_same_off') AS deduplicated;

-- primary key, foreign key
INSERT INTO key_action VALUES ('a/b/c', 9);
INSERT INTO key_action VALUES (NULL, 9);
CREATE TABLE key_child (key idem_key REFERENCES key_action ON DELETE CASCADE ON UPDATE CASCADE,
                        strict_key idem_key REFERENCES key_action);
INSERT INTO key_child VALUES ('a/b/c', 'a/b/d'), (NULL, NULL);
INSERT INTO key_child VALUES ('a/b/none', NULL);
DELETE FROM key_action WHERE key = 'a/b/d';
UPDATE key_action SET key = 'a/b/c2' WHERE key = 'a/b/c';
SELECT * FROM key_child ORDER BY key;
DELETE FROM key_action WHERE key = 'a/b/c2';
SELECT * FROM key_child ORDER BY key;

-- hash partitions: every key in one, and found there
CREATE TABLE key_part (key idem_key PRIMARY KEY, n int) PARTITION BY HASH (key);
CREATE TABLE key_part_0 PARTITION OF key_part FOR VALUES WITH (MODULUS 4, REMAINDER 0);
CREATE TABLE key_part_1 PARTITION OF key_part FOR VALUES WITH (MODULUS 4, REMAINDER 1);
CREATE TABLE key_part_2 PARTITION OF key_part FOR VALUES WITH (MODULUS 4, REMAINDER 2);
CREATE TABLE key_part_3 PARTITION OF key_part FOR VALUES WITH (MODULUS 4, REMAINDER 3);
INSERT INTO key_part SELECT idem_key('acme', 'REFUND', i::text), i FROM generate_series(1, 1000) i;
SELECT count(*) AS keys, count(DISTINCT tableoid) AS partitions FROM key_part;
SELECT count(*) FROM key_part p
CROSS JOIN LATERAL (SELECT n FROM key_part WHERE key = p.key::text) q
WHERE p.n = q.n;
INSERT INTO key_part SELECT idem_key('acme', 'REFUND', '1'), 0;
SELECT idem_key_hash('a/b/c') = idem_key_hash('a/b/d') AS collide,
       idem_key_hash_extended('a/b/c', 0)::bit(32) = idem_key_hash('a/b/c')::bit(32) AS seed_0,
       idem_key_hash_extended('a/b/c', 0) = idem_key_hash_extended('a/b/c', 1) AS seed_ignored;
-- partitions by range
CREATE TABLE key_range (key idem_key) PARTITION BY RANGE (key);
CREATE TABLE key_range_low PARTITION OF key_range FOR VALUES FROM (MINVALUE) TO ('b/b/b');
CREATE TABLE key_range_high PARTITION OF key_range FOR VALUES FROM ('b/b/b') TO (MAXVALUE);
INSERT INTO key_range VALUES ('Z/x/x'), ('a/x/x'), ('b/b/a'), ('b/b/b'), ('é/x/x');
SELECT tableoid::regclass, key FROM key_range ORDER BY key;

-- COPY, text and binary
CREATE TABLE key_copy (key idem_key, by_array idem_key[]);
COPY key_copy FROM STDIN;
a/b/c	{a/b/c,"a/b/two words"}
é/ö/💶	{NULL}
\N	\N
\.
COPY key_copy FROM STDIN;
a/b/c\t	\N
\.
COPY key_copy TO STDOUT;
CREATE TABLE key_copied (LIKE key_copy);
\copy key_copy TO PROGRAM 'cat > "$PG_ABS_BUILDDIR/results/key.binary"' (FORMAT binary)
\copy key_copied FROM PROGRAM 'cat "$PG_ABS_BUILDDIR/results/key.binary"' (FORMAT binary)
SELECT count(*) AS copied FROM (TABLE key_copy INTERSECT TABLE key_copied) s;
-- what arrives in binary form is checked as well
\copy (SELECT 'a/b/r-17 '::text, NULL::text[]) TO PROGRAM 'cat > "$PG_ABS_BUILDDIR/results/key.binary"' (FORMAT binary)
\copy key_copied FROM PROGRAM 'cat "$PG_ABS_BUILDDIR/results/key.binary"' (FORMAT binary)
\copy (SELECT repeat('x', 1024 * 1024), NULL::text[]) TO PROGRAM 'cat > "$PG_ABS_BUILDDIR/results/key.binary"' (FORMAT binary)
\copy key_copied FROM PROGRAM 'cat "$PG_ABS_BUILDDIR/results/key.binary"' (FORMAT binary)
\! rm -f "$PG_ABS_BUILDDIR/results/key.binary"

-- everything public is described, nothing is granted to PUBLIC
SELECT p.oid::regprocedure FROM pg_proc p
WHERE proname LIKE 'idem\_key%' AND obj_description(p.oid, 'pg_proc') IS NULL;
SELECT o.oid::regoperator FROM pg_operator o
WHERE oprleft = 'idem_key'::regtype AND obj_description(o.oid, 'pg_operator') IS NULL;
SELECT count(*) AS operators FROM pg_operator
WHERE oprleft = 'idem_key'::regtype AND oprrest <> 0 AND oprjoin <> 0
      AND oprcom <> 0 AND oprnegate <> 0;
SELECT p.oid::regprocedure FROM pg_proc p
WHERE proname LIKE 'idem\_key%' AND has_function_privilege('public', p.oid, 'EXECUTE');
SELECT has_type_privilege('public', 'idem_key', 'USAGE') AS public_has_usage;
SELECT format_type(castsource, NULL), format_type(casttarget, NULL), castcontext, castmethod
FROM pg_cast WHERE 'idem_key'::regtype IN (castsource, casttarget) ORDER BY 1, 2;
-- so a role without a grant has no use of it, and a role with one has
CREATE ROLE regress_key_user;
GRANT SELECT ON key_action TO regress_key_user;
SET ROLE regress_key_user;
SELECT n FROM key_action WHERE key = 'a/b/e';
SELECT idem_key('a', 'b', 'c');
CREATE TEMPORARY TABLE key_denied (key idem_key);
SELECT key FROM key_action ORDER BY n;
RESET ROLE;
GRANT EXECUTE ON FUNCTION idem_key_eq(idem_key, idem_key), idem_key(text, text, text)
    TO regress_key_user;
GRANT USAGE ON TYPE idem_key TO regress_key_user;
SET ROLE regress_key_user;
SELECT n FROM key_action WHERE key = idem_key('a', 'b', 'e');
CREATE TEMPORARY TABLE key_granted (key idem_key PRIMARY KEY);
INSERT INTO key_granted VALUES ('x/y/z');
RESET ROLE;
REVOKE ALL ON FUNCTION idem_key_eq(idem_key, idem_key), idem_key(text, text, text)
    FROM regress_key_user;
DROP TABLE key_granted;
REVOKE ALL ON TYPE idem_key FROM regress_key_user;

DROP VIEW key_barrier;
DROP FUNCTION key_taken;
DROP TABLE key_child, key_action, key_text, key_many, key_same, key_part, key_range, key_copy,
    key_copied;
DROP ROLE regress_key_user;
