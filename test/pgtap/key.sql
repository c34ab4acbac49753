-- key.sql: what is a key and what is none, over VALUES and over all of Unicode.
-- Needs a database of encoding UTF8.
\set ON_ERROR_STOP on
BEGIN;
SET LOCAL client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pgtap;
CREATE EXTENSION IF NOT EXISTS idem_action;
SELECT plan(87);

-- keys, and their parts
CREATE TEMPORARY TABLE good (key text, tenant text, operation text, id text, what text);
INSERT INTO good VALUES
    ('acme/REFUND/r-17', 'acme', 'REFUND', 'r-17', 'the usual key'),
    ('a/b/c', 'a', 'b', 'c', 'parts of one byte'),
    ('a/b/c/d', 'a', 'b', 'c/d', 'a slash in the id'),
    ('a/b/c//d', 'a', 'b', 'c//d', 'two slashes in the id'),
    ('a/b//', 'a', 'b', '/', 'an id that is a slash'),
    ('a/b/c/', 'a', 'b', 'c/', 'an id that ends with a slash'),
    ('a/b/c d', 'a', 'b', 'c d', 'a space inside the id'),
    (U&'a/b/c\00a0d', 'a', 'b', U&'c\00a0d', 'a no-break space inside the id'),
    (U&'a/b/c\2028d', 'a', 'b', U&'c\2028d', 'a line separator inside the id'),
    (U&'\00e9/\00e9/e\0301', U&'\00e9', U&'\00e9', U&'e\0301', 'nothing normalized'),
    (U&'\+01F4B6/\20ac/\00e4', U&'\+01F4B6', U&'\20ac', U&'\00e4',
     'characters of four, three and two bytes'),
    (U&'a\200b/\feffb/\200bc\feff', U&'a\200b', U&'\feffb', U&'\200bc\feff',
     'zero width space is not white space'),
    ('"/\/''', '"', '\', '''', 'quotes and backslashes'),
    ('a/b/%00%20', 'a', 'b', '%00%20', 'nothing decoded'),
    ('a/b/' || repeat('x', 508), 'a', 'b', repeat('x', 508), '512 bytes'),
    (repeat('x', 508) || '/b/c', repeat('x', 508), 'b', 'c', '512 bytes, most of them tenant'),
    ('a/b/' || repeat(U&'\00e4', 254), 'a', 'b', repeat(U&'\00e4', 254),
     '512 bytes of 258 characters');

SELECT is(key::idem_key::text, key, 'text round trip: ' || what) FROM good;
SELECT is(ROW(idem_key_tenant(key), idem_key_operation(key), idem_key_id(key)), ROW(tenant, operation, id),
          'parts: ' || what) FROM good;
SELECT is(idem_key(tenant, operation, id), key::idem_key, 'constructor: ' || what) FROM good;

-- no keys, and the words that say so
CREATE TEMPORARY TABLE bad (key text, fault text, what text);
INSERT INTO bad VALUES
    ('', 'tenant is empty', 'the empty string'),
    ('/', 'tenant is empty', 'one slash'),
    ('//', 'tenant is empty', 'two slashes'),
    ('//x', 'tenant is empty', 'an id alone'),
    ('/b/c', 'tenant is empty', 'no tenant'),
    ('a//c', 'operation is empty', 'no operation'),
    ('a//', 'operation is empty', 'no operation and no id'),
    ('a/b/', 'id is empty', 'no id'),
    ('a', 'operation is missing', 'a word'),
    ('a/b', 'id is missing', 'one slash between words'),
    (' a/b/c', 'tenant holds white space', 'a space before all'),
    ('a /b/c', 'tenant holds white space', 'a space behind the tenant'),
    ('a b/c/d', 'tenant holds white space', 'a space inside the tenant'),
    ('a/ b/c', 'operation holds white space', 'a space before the operation'),
    ('a/b c/d', 'operation holds white space', 'a space inside the operation'),
    ('a/b/ c', 'id starts with white space', 'a space before the id'),
    ('a/b/c ', 'id ends with white space', 'a space behind all'),
    ('a/b/ ', 'id starts with white space', 'an id that is a space'),
    (E'a/b/c\n', 'id holds a control character', 'a line feed behind all'),
    (E'a/b/c\td', 'id holds a control character', 'a tabulator inside the id'),
    (E'a\u0001/b/c', 'tenant holds a control character', 'a control character in the tenant'),
    (E'a/\u007f/c', 'operation holds a control character', 'DEL as operation'),
    (U&'a/b/c\0085', 'id holds a control character', 'next line, which is also white space'),
    (U&'a/b/c\009bd', 'id holds a control character', 'a C1 control character'),
    (U&'a\00a0b/c/d', 'tenant holds white space', 'a no-break space inside the tenant'),
    (U&'a/\3000/c', 'operation holds white space', 'an ideographic space as operation'),
    (U&'a/b/c\00a0', 'id ends with white space', 'a no-break space behind all'),
    ('a/b/' || repeat('x', 509), 'key is longer than 512 bytes', '513 bytes');

SELECT throws_ok(format('SELECT %L::idem_key', key), '22P02', 'invalid idem_key: ' || fault, what)
FROM bad;

-- all of the basic plane and a sample of the others, in every place
CREATE FUNCTION pg_temp.is_key(candidate text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    RETURN candidate::idem_key IS NOT NULL;
EXCEPTION WHEN invalid_text_representation THEN
    RETURN false;
END $$;
CREATE TEMPORARY TABLE code_point AS
    SELECT n, chr(n) AS c FROM generate_series(1, x'ffff'::int) n
    WHERE n NOT BETWEEN x'd800'::int AND x'dfff'::int
    UNION ALL
    SELECT n, chr(n) FROM generate_series(x'10000'::int, x'10ffff'::int, 61) n;
CREATE TEMPORARY VIEW control AS SELECT n FROM code_point WHERE n < 32 OR n BETWEEN 127 AND 159;
-- White_Space in PropList.txt of the Unicode character database
CREATE TEMPORARY VIEW white AS
    SELECT n FROM code_point
    WHERE n IN (9, 10, 11, 12, 13, 32, 133, 160, 5760, 8192, 8193, 8194, 8195, 8196,
                8197, 8198, 8199, 8200, 8201, 8202, 8232, 8233, 8239, 8287, 12288);

SELECT set_eq($$SELECT n FROM code_point WHERE NOT pg_temp.is_key('a/b/x' || c || 'y')$$,
              'TABLE control', 'inside the id: no control character');
SELECT set_eq($$SELECT n FROM code_point WHERE NOT pg_temp.is_key('a/b/' || c || 'y')$$,
              'TABLE control UNION TABLE white', 'at the start of the id: no white space either');
SELECT set_eq($$SELECT n FROM code_point WHERE NOT pg_temp.is_key('a/b/x' || c)$$,
              'TABLE control UNION TABLE white', 'at the end of the id: no white space either');
SELECT set_eq($$SELECT n FROM code_point WHERE c <> '/' AND NOT pg_temp.is_key('x' || c || 'y/b/c')$$,
              'TABLE control UNION TABLE white', 'inside the tenant: no white space either');
SELECT set_eq($$SELECT n FROM code_point WHERE c <> '/' AND NOT pg_temp.is_key('a/x' || c || 'y/c')$$,
              'TABLE control UNION TABLE white', 'inside the operation: no white space either');
SELECT is_empty($$SELECT n FROM code_point
                  WHERE CASE WHEN pg_temp.is_key('a/b/x' || c || 'y')
                             THEN ('a/b/x' || c || 'y')::idem_key::text <> 'a/b/x' || c || 'y' END$$,
                'no character is changed');

-- soft errors came with PostgreSQL 16
SELECT current_setting('server_version_num')::int >= 160000 AS has_soft_errors \gset
\if :has_soft_errors
SELECT ok(bool_and(pg_input_is_valid(key, 'idem_key')), 'pg_input_is_valid: keys') FROM good;
SELECT ok(NOT bool_or(pg_input_is_valid(key, 'idem_key')), 'pg_input_is_valid: no keys') FROM bad;
\else
SELECT skip('no soft errors before PostgreSQL 16', 2);
\endif

SELECT * FROM finish();
ROLLBACK;
