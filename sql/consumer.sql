-- consumer: what counts of an event
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS idem_action;
RESET client_min_messages;

-- a definition is whole; a revision is written only if something changed
SELECT idem_define_consumer('con_a') AS first, idem_define_consumer('con_a') AS again,
       idem_define_consumer('con_a', digest_exclude => '{/trace}') AS changed,
       idem_define_consumer('con_a', digest_exclude => '{/trace}') AS again,
       idem_define_consumer('con_a', keep_params => false) AS changed,
       idem_define_consumer('con_a', rebuild => true) AS changed,
       idem_define_consumer('con_a', digest_include => '{/a,/b}') AS changed,
       idem_define_consumer('con_a', digest_include => '{/a,/b}') AS again,
       idem_define_consumer('con_a') AS changed;
SELECT consumer, revision, digest_include, digest_exclude, keep_params, rebuild,
       defined_at <= clock_timestamp() AS past, defined_by = current_user AS by_me
FROM idem_consumer WHERE consumer = 'con_a' ORDER BY revision;
BEGIN;
SELECT idem_define_consumer('con_a', rebuild => true);
ROLLBACK;
SELECT idem_define_consumer('con_a');

-- consumers and operations have names of their own
SELECT idem_define_operation('con_both', 'external'), idem_define_consumer('con_both');
SELECT outcome FROM idem_consume('co/con_both/1', '{}')
UNION ALL SELECT outcome FROM idem_claim('co/con_both/1', '{}')
UNION ALL SELECT outcome FROM idem_consume('co/con_both/1', '{}');
SELECT idem_define_operation('con_operation');
\set VERBOSITY sqlstate
SELECT idem_consume('co/con_operation/1', '{}');
SELECT idem_claim('co/con_a/1', '{}');
\set VERBOSITY default

-- one that nobody defined is a mistake, whose hint shows the call
SELECT idem_consume('co/con_A/1', '{}');
SELECT * FROM idem_consume_batch('{co/con_a/1,"co/con''s/1"}', '{1,1}');
SELECT count(*) FROM idem_event WHERE idem_key_tenant(key) = 'co' AND key <> 'co/con_both/1';
-- nor is one that was not committed, also where the session has seen it
BEGIN;
SELECT idem_define_consumer('con_gone');
SELECT outcome FROM idem_consume('co/con_gone/1', '{}');
ROLLBACK;
\set VERBOSITY sqlstate
SELECT idem_consume('co/con_gone/1', '{}');
BEGIN;
SAVEPOINT a;
SELECT idem_define_consumer('con_gone');
SELECT outcome FROM idem_consume('co/con_gone/1', '{}');
ROLLBACK TO a;
SELECT idem_consume('co/con_gone/1', '{}');
ROLLBACK;
\set VERBOSITY default

-- everything counts, unless the contract says otherwise
SELECT idem_define_consumer('con_all'), idem_define_consumer('con_ex',
    digest_exclude => '{/trace}'),
       idem_define_consumer('con_in', digest_include => '{/id,/sum/eur}'),
       idem_define_consumer('con_nop', keep_params => false);
CREATE FUNCTION con_ask(consumer text, payload jsonb) RETURNS text LANGUAGE sql AS $$
    SELECT concat_ws(' ', outcome, differs) FROM idem_consume(idem_key('co', consumer, 'ask'),
        payload) $$;
SELECT con_ask(c, '{"id": 1, "sum": {"eur": 10}, "trace": "x"}') AS one,
       con_ask(c, '{"trace": "x", "sum": {"eur": 1e1}, "id": 1.0}') AS same,
       con_ask(c, '{"id": 1, "sum": {"eur": 10}, "trace": "y"}') AS trace,
       con_ask(c, '{"id": 1, "sum": {"eur": 11}, "trace": "x"}') AS sum,
       con_ask(c, '{"id": 1, "sum": {"eur": 10, "usd": 9}, "trace": "x"}') AS usd
FROM unnest('{con_all,con_ex,con_in,con_nop}'::text[]) c;
SELECT key, params FROM idem_event WHERE idem_key_id(key) = 'ask' ORDER BY key;
-- what is included must be there
SELECT idem_consume('co/con_in/2', '{"id": 1, "sum": {}}');
\set VERBOSITY sqlstate
SELECT idem_consume('co/con_in/2', '{"id": 1}');
SELECT con_ask('con_in', '{"id": 1, "sum": 10}');
SELECT * FROM idem_consume_batch('{co/con_in/2,co/con_in/3}',
    '{"{\"id\": 1, \"sum\": {\"eur\": 1}}","{}"}');
\set VERBOSITY default
SELECT count(*) FROM idem_event WHERE key IN ('co/con_in/2', 'co/con_in/3');

-- an event is judged under the revision that recorded it, whatever became of the contract
SELECT idem_define_consumer('con_rev') AS r1;
SELECT outcome FROM idem_consume('co/con_rev/1', '{"n": 1, "trace": "x"}');
SELECT idem_define_consumer('con_rev', digest_exclude => '{/trace}') AS r2;
SELECT outcome FROM idem_consume('co/con_rev/2', '{"n": 1, "trace": "x"}');
SELECT idem_define_consumer('con_rev', digest_include => '{/id}', keep_params => false) AS r3;
SELECT outcome FROM idem_consume('co/con_rev/3', '{"id": 1}');
SELECT idem_define_consumer('con_rev') AS r4;
SELECT key, revision, params FROM idem_event WHERE idem_key_operation(key) = 'con_rev' ORDER BY key;
SELECT payload, string_agg(outcome, ' ' ORDER BY key) AS "1 2 3"
FROM (VALUES ('{"n": 1, "trace": "x"}'::jsonb), ('{"n": 1, "trace": "y"}'), ('{"n": 1, "id": 1}'),
             ('{"id": 1}')) p (payload),
     LATERAL unnest('{co/con_rev/1,co/con_rev/2,co/con_rev/3}'::idem_key[]) k (key),
     LATERAL idem_consume(key, payload)
GROUP BY 1 ORDER BY 1;
SELECT p.payload, string_agg(outcome, ' ' ORDER BY position) AS "1 2 3"
FROM (VALUES ('{"n": 1, "trace": "x"}'::jsonb), ('{"n": 1, "trace": "y"}'), ('{"n": 1, "id": 1}'),
             ('{"id": 1}')) p (payload),
     LATERAL idem_consume_batch('{co/con_rev/1,co/con_rev/2,co/con_rev/3}',
                                ARRAY[p.payload, p.payload, p.payload])
GROUP BY 1 ORDER BY 1;
-- of a pointer that only the record's revision demanded the lack is a conflict, not an error
SELECT outcome FROM idem_consume('co/con_rev/3', '{}');

-- what does not fit
\set VERBOSITY sqlstate
SELECT idem_define_consumer(NULL);
SELECT idem_define_consumer('');
SELECT idem_define_consumer('con/a');
SELECT idem_define_consumer('con a');
SELECT idem_define_consumer(' con');
SELECT idem_define_consumer(E'con\n');
SELECT idem_define_consumer(repeat('c', 513));
SELECT idem_define_consumer('con_bad', digest_include => '{/a}', digest_exclude => '{/b}');
SELECT idem_define_consumer('con_bad', digest_include => '{}');
SELECT idem_define_consumer('con_bad', digest_exclude => '{}');
SELECT idem_define_consumer('con_bad', digest_include => '{a}');
SELECT idem_define_consumer('con_bad', digest_include => '{/a,/a}');
SELECT idem_define_consumer('con_bad', digest_exclude => '{/a~2}');
SELECT idem_define_consumer('con_bad', digest_exclude => '{NULL}');
SELECT idem_define_consumer('con_bad', digest_include => '{{/a},{/b}}');
SELECT idem_define_consumer('con_bad', keep_params => NULL);
SELECT idem_define_consumer('con_bad', rebuild => NULL);
BEGIN READ ONLY;
SELECT idem_define_consumer('con_a');
ROLLBACK;
\set VERBOSITY default
SELECT count(*) FROM idem_consumer WHERE consumer = 'con_bad';

-- who defines is an operator of every tenant, and needs nothing on the table
CREATE ROLE regress_idem_consumer;
SET ROLE regress_idem_consumer;
\set VERBOSITY sqlstate
SELECT idem_define_consumer('con_role');
SELECT count(*) FROM idem_consumer;
\set VERBOSITY default
RESET ROLE;
SELECT idem_grant('regress_idem_consumer', 'operator', 'con');
SET ROLE regress_idem_consumer;
\set VERBOSITY sqlstate
SELECT idem_define_consumer('con_role');
\set VERBOSITY default
RESET ROLE;
SELECT idem_grant('regress_idem_consumer', 'operator', '*');
SET ROLE regress_idem_consumer;
SELECT idem_define_consumer('con_role');
RESET ROLE;
SELECT defined_by FROM idem_consumer WHERE consumer = 'con_role';
DROP OWNED BY regress_idem_consumer;
DROP ROLE regress_idem_consumer;
DROP FUNCTION con_ask;

-- how long is it kept: payload no longer than identity
SELECT idem_define_consumer('con_kept', retention => '30 days', result_retention => '7 days') AS first,
       idem_define_consumer('con_kept', retention => '720 hours', result_retention => '7 days') AS same,
       idem_define_consumer('con_kept', retention => '31 days', result_retention => '7 days') AS changed,
       idem_define_consumer('con_kept', result_retention => '7 days') AS identity_for_ever;
\set VERBOSITY sqlstate
SELECT idem_define_consumer('con_kept', retention => '0');
SELECT idem_define_consumer('con_kept', retention => '-1 day');
SELECT idem_define_consumer('con_kept', retention => '2000 years');
SELECT idem_define_consumer('con_kept', retention => '1 day', result_retention => '2 days');
SELECT idem_define_consumer('con_kept', result_retention => '0');
\set VERBOSITY default

-- the key of an event where that of an action belongs, and the other way round
SELECT idem_define_operation('CON_PAID');
SELECT idem_once('con/con_kept/e-1', '{}');
SELECT idem_consume('con/CON_PAID/p-1', '{}');
