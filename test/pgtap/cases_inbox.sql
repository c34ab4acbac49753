-- cases_inbox.sql: adversarial cases of events, consumers and fences, as far as one session can
-- play them, each test named by the case's number; then bad input: every argument of every
-- function with null, empty, oversized, malformed and wrongly typed values.
--
-- Not in one transaction, since what is tested happens at commit.  The file starts by removing
-- what an earlier run of it left behind.
-- The errors that psql prints meanwhile are those that are tested.
\set ON_ERROR_STOP on
\set ON_ERROR_ROLLBACK off
\set VERBOSITY sqlstate
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pgtap;
CREATE EXTENSION IF NOT EXISTS idem_action;
SET session_replication_role = replica;		-- lets go of actions in flight
DELETE FROM idem_lease WHERE idem_key_tenant(key) = 'case-i';
DELETE FROM idem_action WHERE idem_key_tenant(key) = 'case-i';
RESET session_replication_role;
DELETE FROM idem_event WHERE idem_key_tenant(key) LIKE 'case-i%';
DELETE FROM idem_fence WHERE idem_key_tenant(key) = 'case-i';
SELECT FROM idem_define_consumer('case_stock');
SELECT FROM idem_define_consumer('case_refund');
SELECT FROM idem_define_consumer('case_notify');
SELECT FROM idem_define_consumer('case_include', digest_include => '{/id}');
SELECT FROM idem_define_consumer('case_rebuild', rebuild => true);
SELECT FROM idem_define_operation('CASE_I', 'external');
SELECT FROM idem_define_operation('CASE_IL');
CREATE TEMPORARY TABLE effect (consumer text, event text, n int);

-- A consumer as an application writes it: one transaction, its own row beside the event's.
CREATE FUNCTION pg_temp.handle(consumer text, event text, payload jsonb) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    c idem_consumption;
BEGIN
    SELECT * INTO STRICT c FROM idem_consume(idem_key('case-i', consumer, event), payload);
    IF c.outcome = 'first' THEN
        INSERT INTO effect VALUES (consumer, event, (payload ->> 'n')::int);
    END IF;
    RETURN c.outcome;
END $$;
-- the outcomes of a batch, in input order
CREATE FUNCTION pg_temp.batch(consumer text, events text[], payloads jsonb[]) RETURNS text
LANGUAGE sql AS $$
    SELECT string_agg(outcome, ' ' ORDER BY n)
    FROM (SELECT outcome, row_number() OVER () AS n
          FROM idem_consume_batch((SELECT array_agg(idem_key('case-i', consumer, e) ORDER BY i)
                                   FROM unnest(events) WITH ORDINALITY u (e, i)), payloads)) b $$;

-- a call of each function that is legal but for what replaces one of its arguments
CREATE TEMPORARY TABLE legal (name text, args jsonb);
INSERT INTO legal VALUES
    ('idem_define_consumer',
     $${"consumer": "'case_defined'", "digest_include": "NULL", "digest_exclude": "NULL",
        "keep_params": "true", "rebuild": "false"}$$),
    ('idem_consume',
     $${"key": "'case-i/case_stock/bad'", "payload": "'{\"a\": \"s3cr3t\"}'",
        "occurred_at": "NULL", "transport": "NULL"}$$),
    ('idem_consume_batch',
     $${"keys": "'{case-i/case_stock/bad,case-i/case_stock/worse}'",
        "payloads": "'{\"\\\"s3cr3t\\\"\",2}'", "occurred_at": "NULL", "transport": "NULL"}$$),
    ('idem_consume_result', $${"key": "'case-i/case_stock/own'", "result": "'\"s3cr3t\"'"}$$),
    ('idem_unconsume', $${"key": "'case-i/case_stock/own'"}$$),
    ('idem_fence', $${"key": "'case-i/FENCE/bad'", "generation": "1"}$$);

-- what is tried, and the code that is right for it
CREATE TEMPORARY TABLE bad (argument text, value text, code text);
INSERT INTO bad VALUES
    ('consumer', 'NULL', '22004'), ('consumer', $$''$$, '22023'), ('consumer', $$'a/b'$$, '22023'),
    ('consumer', $$'a b'$$, '22023'), ('consumer', $$E'a\n'$$, '22023'),
    ('consumer', $$E'a\x01'$$, '22023'), ('consumer', $$repeat('x', 600)$$, '22023'),
    ('consumer', '42', '42883'),
    ('digest_include', $$'{}'$$, '22023'), ('digest_include', $$'{a}'$$, '22023'),
    ('digest_include', $$'{NULL}'$$, '22004'), ('digest_include', $$'{/a~}'$$, '22023'),
    ('digest_include', $$'/a'$$, '22P02'), ('digest_include', $$''$$, '22P02'),
    ('digest_include', '42', '42883'),
    ('digest_exclude', $$'{}'$$, '22023'), ('digest_exclude', $$'{a}'$$, '22023'),
    ('digest_exclude', $$'{NULL}'$$, '22004'), ('digest_exclude', '42', '42883'),
    ('keep_params', 'NULL', '22004'), ('keep_params', $$'perhaps'$$, '22P02'),
    ('rebuild', 'NULL', '22004'), ('rebuild', $$''$$, '22P02'), ('rebuild', '42', '42883'),
    ('key', 'NULL', '22004'), ('key', $$''$$, '22P02'), ('key', $$'case-i'$$, '22P02'),
    ('key', $$'case-i/case_stock'$$, '22P02'), ('key', $$'case-i/case_stock/'$$, '22P02'),
    ('key', $$'/case_stock/1'$$, '22P02'), ('key', $$'case-i//1'$$, '22P02'),
    ('key', $$'case-i/case_stock/1 '$$, '22P02'), ('key', $$E'case-i/case_stock/1\n'$$, '22P02'),
    ('key', $$'case-i/case_stock/' || repeat('x', 512)$$, '22P02'), ('key', '42', '42883'),
    ('payload', 'NULL', '22004'), ('payload', $$''$$, '22P02'), ('payload', $$'{"a": '$$, '22P02'),
    ('payload', $$'"\ud800"'$$, '22P02'), ('payload', $$'"\u0000"'$$, '22P05'),
    ('payload', $$'1e200000'$$, '22003'), ('payload', '42', '42883'),
    ('occurred_at', '42', '42883'), ('transport', '42', '42883'),
    ('keys', 'NULL', '22004'), ('keys', $$''$$, '22P02'), ('keys', $$'{}'$$, '22023'),
    ('keys', $$'{case-i/case_stock/bad}'$$, '22023'),
    ('keys', $$'{case-i/case_stock/bad,case-i/case_stock/worse,case-i/case_stock/3}'$$, '22023'),
    ('keys', $$'{case-i/case_stock/bad,NULL}'$$, '22004'),
    ('keys', $$'{NULL,case-i/case_stock/bad}'$$, '22004'),
    ('keys', $$'{case-i/case_stock/bad,case-i/case_stock}'$$, '22P02'),
    ('keys', $$'{{case-i/case_stock/bad,case-i/case_stock/worse}}'$$, '22023'),
    ('keys', $$'{{case-i/case_stock/bad},{case-i/case_stock/worse}}'$$, '22023'),
    ('keys', $$'{case-i/case_stock/bad,case-i/case_undefined/1}'$$, 'ID006'),
    ('keys', $$'{case-i/case_include/bad,case-i/case_stock/1}'$$, 'ID007'),
    ('keys', '42', '42883'),
    ('payloads', 'NULL', '22004'), ('payloads', $$''$$, '22P02'), ('payloads', $$'{}'$$, '22023'),
    ('payloads', $$'{1}'$$, '22023'), ('payloads', $$'{1,2,3}'$$, '22023'),
    ('payloads', $$'{1,NULL}'$$, '22004'), ('payloads', $$'{NULL,1}'$$, '22004'),
    ('payloads', $$'{1,"{"}'$$, '22P02'), ('payloads', $$'{{1,2}}'$$, '22023'),
    ('payloads', $$'{{1},{2}}'$$, '22023'), ('payloads', '42', '42883'),
    ('result', 'NULL', '22004'), ('result', $$''$$, '22P02'), ('result', $$'{"a": '$$, '22P02'),
        ('result', '42', '42883'),
    ('generation', 'NULL', 'ID002'), ('generation', '0', 'ID002'), ('generation', '-1', 'ID002'),
    ('generation', '-9223372036854775808', 'ID002'), ('generation', $$'one'$$, '22P02'),
    ('generation', $$''$$, '22P02'), ('generation', '1.5', '42883'),
    ('generation', '9223372036854775808', '42883');
CREATE TEMPORARY TABLE tries AS
    SELECT name || ': ' || argument || ' is ' || value AS what, code,
           name AS function, jsonb_set(args, ARRAY[argument], to_jsonb(value)) AS args
    FROM legal, bad WHERE args ? argument
    UNION ALL
    SELECT name || ': ' || argument || ' is ' || value, code, name,
           jsonb_set(args, ARRAY[argument], to_jsonb(value))
    FROM legal,
         (VALUES ('idem_consume', 'occurred_at', $$'infinity'$$, '22023'),
                 ('idem_consume', 'occurred_at', $$'-infinity'$$, '22023'),
                 ('idem_consume', 'occurred_at', $$'soon'$$, '22007'),
                 ('idem_consume', 'occurred_at', $$''$$, '22007'),
                 ('idem_consume', 'transport', $$''$$, '22P02'),
                 ('idem_consume', 'transport', $$'{"a": '$$, '22P02'),
                 ('idem_consume_batch', 'occurred_at', $$'{}'$$, '22023'),
                 ('idem_consume_batch', 'occurred_at', $$'{2026-01-01}'$$, '22023'),
                 ('idem_consume_batch', 'occurred_at', $$'{NULL,infinity}'$$, '22023'),
                 ('idem_consume_batch', 'occurred_at', $$'{-infinity,NULL}'$$, '22023'),
                 ('idem_consume_batch', 'occurred_at', $$'{soon,NULL}'$$, '22007'),
                 ('idem_consume_batch', 'occurred_at', $$'{{2026-01-01,2026-01-01}}'$$, '22023'),
                 ('idem_consume_batch', 'transport', $$'{}'$$, '22023'),
                 ('idem_consume_batch', 'transport', $$'{1,2,3}'$$, '22023'),
                 ('idem_consume_batch', 'transport', $$'{{1},{2}}'$$, '22023'),
                 ('idem_consume_batch', 'transport', $$'{1,"{"}'$$, '22P02'),
                 ('idem_consume', 'key', $$'case-i/case_undefined/1'$$, 'ID006'),
                 ('idem_consume', 'key', $$'case-i/CASE_I/1'$$, 'ID006'),
                 ('idem_consume', 'key', $$'case-i/case_include/1'$$, 'ID007'),
                 ('idem_consume_result', 'key', $$'case-i/case_stock/unknown'$$, 'ID005'),
                 ('idem_consume_result', 'key', $$'case-i/case_stock/other'$$, 'ID003'),
                 ('idem_unconsume', 'key', $$'case-i/case_stock/unknown'$$, 'ID005'),
                 ('idem_unconsume', 'key', $$'case-i/case_stock/other'$$, 'ID003'),
                 ('idem_fence', 'key', $$'case-i/FENCE/newer'$$, 'ID002'))
             single (function, argument, value, code)
    WHERE name = function
    UNION ALL
    SELECT 'idem_define_consumer: both digest_include and digest_exclude', '22023', name,
           args || $${"digest_include": "'{/a}'", "digest_exclude": "'{/b}'"}$$
    FROM legal WHERE name = 'idem_define_consumer';
SELECT FROM idem_consume('case-i/case_stock/other', '{"a": "s3cr3t"}');
SELECT FROM idem_fence('case-i/FENCE/newer', 2);

-- The code of what was raised, and all that was said, which must not show a secret.  A call that
-- raises nothing is undone too.  One event was consumed first in the same transaction.
CREATE FUNCTION pg_temp.try(function text, args jsonb, as_role text, read_only boolean)
RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    given text;
    message text;
    detail text;
    hint text;
BEGIN
    SELECT string_agg(key || ' => ' || value, ', ') INTO given FROM jsonb_each_text(args);
    IF read_only THEN
        SET LOCAL transaction_read_only = on;
    ELSE
        PERFORM idem_consume('case-i/case_stock/own', '{"a": "s3cr3t"}');
    END IF;
    IF as_role IS NOT NULL THEN
        EXECUTE format('SET LOCAL ROLE %I', as_role);
    END IF;
    EXECUTE format('SELECT * FROM %s(%s)', function, given);
    RAISE EXCEPTION 'nothing was raised' USING errcode = 'UU000';
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL,
        hint = PG_EXCEPTION_HINT;
    RETURN SQLSTATE || CASE WHEN message || detail
        || hint LIKE '%s3cr3t%' THEN ' leaks' ELSE '' END;
END $$;
SELECT plan((SELECT count(*) FROM tries)::int + 3 * (SELECT count(*) FROM legal)::int + 49);

-- C5: [e-1, e-2, e-1] in one batch, the third equal, or with another payload
SELECT is(pg_temp.batch('case_stock', '{c5-1,c5-2,c5-1}', '{1,2,1}'), 'first first duplicate',
          'C5: the third is equal');
SELECT is(pg_temp.batch('case_refund', '{c5-1,c5-2,c5-1}', '{1,2,3}'), 'first first conflict',
          'C5: the third has another payload');
SELECT is(pg_temp.batch('case_stock', '{c5-1,c5-2,c5-1}', '{1,2,1}'),
          'duplicate duplicate duplicate', 'C5: redelivered');
SELECT is(pg_temp.batch('case_refund', '{c5-1,c5-2,c5-1}', '{1,2,3}'),
          'duplicate duplicate conflict', 'C5: likewise');
SELECT is(pg_temp.batch('case_refund', '{c5-1,c5-1,c5-3,c5-3,c5-3}', '{3,1,1,2,1}'),
          'conflict duplicate first conflict duplicate', 'C5: each is judged by what is on record');
SELECT is((SELECT string_agg(params::text, ' ' ORDER BY key) FROM idem_event
           WHERE key IN ('case-i/case_refund/c5-1', 'case-i/case_refund/c5-2',
                         'case-i/case_refund/c5-3')), '1 2 1', 'C5: which never changes');
BEGIN;
SELECT FROM idem_consume('case-i/case_stock/c5-own', '1');
SELECT is(pg_temp.batch('case_stock', '{c5-new,c5-own,c5-new}', '{1,2,1}'),
          'first conflict duplicate', 'C5: also by what this transaction recorded');
ROLLBACK;
SELECT is(pg_temp.batch('case_stock', '{c5-own,c5-new}', '{2,2}'), 'first first',
          'C5: and nothing of it once it is rolled back');

-- S1: stock, refund and notify each process event e-1, however it is delivered
SELECT is(pg_temp.handle('case_stock', 's1', '{"n": 1}'), 'first', 'S1: stock');
SELECT is(pg_temp.handle('case_refund', 's1', '{"n": 1}'), 'first', 'S1: refund');
SELECT is(pg_temp.handle('case_notify', 's1', '{"n": 2}'), 'first',
          'S1: notify, which sees another form of it');
SELECT is(pg_temp.handle('case_refund', 's1', '{"n": 1}'), 'duplicate', 'S1: refund again');
SELECT is((SELECT outcome FROM idem_consume('case-i-other/case_stock/s1', '{"n": 5}')), 'first',
          'S1: another tenant');
SELECT results_eq($$SELECT consumer, count(*) FROM effect WHERE event = 's1'
                    GROUP BY 1 ORDER BY 1$$,
                  $$VALUES ('case_notify', 1::bigint), ('case_refund', 1), ('case_stock', 1)$$,
                  'S1: one effect each');
SELECT is(pg_temp.batch('case_stock', '{s1-a,s1-b}', '{1,1}') || ', '
          || pg_temp.batch('case_notify', '{s1-b,s1-a}', '{1,1}'), 'first first, first first',
          'S1: in batches');

-- R4: 1,000 events replayed, some with another payload
CREATE FUNCTION pg_temp.r4(i int) RETURNS jsonb LANGUAGE sql AS
    $$SELECT jsonb_build_object('n', i + (i > 990)::int)$$;
SELECT results_eq(
    $$SELECT pg_temp.handle('case_stock', 'r4-' || i, jsonb_build_object('n', i)), count(*)
      FROM generate_series(1, 995) i GROUP BY 1$$,
    $$VALUES ('first', 995::bigint)$$, 'R4: 995 events');
CREATE TEMPORARY TABLE before AS
    SELECT ctid AS row, xmin::text AS writer, e::text AS value FROM idem_event e;
SELECT results_eq(
    $$SELECT pg_temp.handle('case_stock', 'r4-' || i, pg_temp.r4(i)), count(*)
      FROM generate_series(1, 995) i GROUP BY 1 ORDER BY 1$$,
    $$VALUES ('conflict', 5::bigint), ('duplicate', 990)$$, 'R4: replayed one by one');
SELECT results_eq(
    $$SELECT outcome, count(*), min(position), max(position)
      FROM (SELECT array_agg(idem_key('case-i', 'case_stock', 'r4-' || i) ORDER BY i DESC) AS keys,
                   array_agg(pg_temp.r4(i) ORDER BY i DESC) AS payloads
            FROM generate_series(1, 995) i) a, idem_consume_batch(keys, payloads)
      GROUP BY 1 ORDER BY 1$$,
    $$VALUES ('conflict', 5::bigint, 1, 5), ('duplicate', 990, 6, 995)$$,
    'R4: replayed in a batch');
SELECT is_empty($$(SELECT ctid, xmin::text, e::text FROM idem_event e EXCEPT TABLE before)
                  UNION ALL
                  (TABLE before EXCEPT SELECT ctid, xmin::text, e::text FROM idem_event e)$$,
                'R4: what is on record is as it was');
SELECT is((SELECT count(*) FROM effect WHERE event LIKE 'r4-%' AND n = substr(event, 4)::int),
          995::bigint, 'R4: each effect once');
-- pgTAP writes a table itself, so the transaction id is looked at before it is asked
BEGIN;
SELECT count(*) FROM (SELECT pg_temp.handle('case_stock', 'r4-' || i, pg_temp.r4(i))
                      FROM generate_series(1, 995) i) replay \gset replayed_
SELECT pg_current_xact_id_if_assigned() IS NULL AS r4_none \gset
SELECT count(*) FROM (SELECT array_agg(idem_key('case-i', 'case_stock', 'r4-' || i)) AS keys,
                             array_agg(pg_temp.r4(i)) AS payloads
                      FROM generate_series(1, 995) i) a,
                     idem_consume_batch(keys, payloads) \gset batch_
SELECT pg_current_xact_id_if_assigned() IS NULL AS r4_batch_none \gset
COMMIT;
SELECT ok(:'r4_none' AND :replayed_count = 995, 'R4: a replay takes no transaction id');
SELECT ok(:'r4_batch_none' AND :batch_count = 995, 'R4: nor in a batch');

-- R5: a projection rebuilt under a new consumer, external claims attempted
CREATE FUNCTION pg_temp.project(event text, by text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    answer text;
BEGIN
    answer := pg_temp.handle('case_rebuild', event, '{}');
    BEGIN
        CASE by
            WHEN 'claim' THEN PERFORM idem_claim(idem_key('case-i', 'CASE_I', event), '{}');
            WHEN 'submit' THEN PERFORM idem_submit(idem_key('case-i', 'CASE_I', event), '{}');
            WHEN 'reclaim' THEN PERFORM idem_reclaim('case-i/CASE_I/r5-there');
            WHEN 'once' THEN PERFORM idem_once(idem_key('case-i', 'CASE_IL', event), '{}');
            WHEN 'call' THEN PERFORM idem_call(idem_key('case-i', 'CASE_IL', event), '{}',
                                               'jsonb_strip_nulls');
            WHEN 'local claim' THEN PERFORM idem_claim(idem_key('case-i', 'CASE_IL', event), '{}');
        END CASE;
    EXCEPTION WHEN SQLSTATE 'ID010' THEN
        RETURN answer || ' ' || SQLSTATE;
    END;
    RETURN answer;
END $$;
SELECT FROM idem_submit('case-i/CASE_I/r5-there', '{}');
SELECT results_eq(
    $$SELECT by, pg_temp.project('r5-' || by || i, by), count(*)
      FROM unnest('{claim,submit,reclaim,once,call,local claim}'::text[]) by,
           generate_series(1, 200) i
      GROUP BY 1, 2 ORDER BY 1$$,
    $$VALUES ('call', 'first ID010', 200::bigint), ('claim', 'first ID010', 200),
             ('local claim', 'first ID010', 200), ('once', 'first ID010', 200),
             ('reclaim', 'first ID010', 200), ('submit', 'first ID010', 200)$$,
    'R5: 1,200 firsts, no claim');
SELECT is((SELECT count(*) FROM idem_event WHERE idem_key_tenant(key) = 'case-i'
           AND idem_key_operation(key) = 'case_rebuild'), 1200::bigint, 'R5: all are on record');
SELECT is((SELECT count(*) FROM idem_action WHERE idem_key_tenant(key) = 'case-i'), 1::bigint,
          'R5: and no action');
SELECT is((SELECT attempt FROM idem_status('case-i/CASE_I/r5-there')), 0,
          'R5: nothing was granted');
-- in the same transaction, before or after, savepoints considered
BEGIN;
SELECT FROM idem_claim('case-i/CASE_I/r5-before', '{}');
SELECT throws_ok($$SELECT idem_consume('case-i/case_rebuild/r5-x', '{}')$$, 'ID010', NULL,
                 'R5: a claim before it');
SELECT throws_ok($$SELECT idem_consume_batch(
                       '{case-i/case_stock/r5-x,case-i/case_rebuild/r5-x}', '{1,1}')$$,
                 'ID010', NULL, 'R5: a claim before a batch');
ROLLBACK;
BEGIN;
SAVEPOINT a;
SELECT FROM idem_consume('case-i/case_rebuild/r5-x', '{}');
SAVEPOINT b;
SELECT throws_ok($$SELECT idem_claim('case-i/CASE_I/r5-x', '{}')$$, 'ID010', NULL,
                 'R5: in a savepoint below');
ROLLBACK TO b;
RELEASE a;
SELECT throws_ok($$SELECT idem_claim('case-i/CASE_I/r5-x', '{}')$$, 'ID010', NULL,
                 'R5: after the release of its savepoint');
ROLLBACK;
BEGIN;
SAVEPOINT a;
SELECT FROM idem_consume('case-i/case_rebuild/r5-x', '{}');
ROLLBACK TO a;
SELECT is((SELECT outcome FROM idem_claim('case-i/CASE_I/r5-x', '{}')), 'execute',
          'R5: rolled back to before it, the transaction is free');
SELECT throws_ok($$SELECT idem_consume('case-i/case_rebuild/r5-x', '{}')$$, 'ID010', NULL,
                 'R5: until it claims');
ROLLBACK;
BEGIN;
SAVEPOINT a;
SELECT FROM idem_claim('case-i/CASE_I/r5-x', '{}');
ROLLBACK TO a;
SELECT is(pg_temp.handle('case_rebuild', 'r5-x', '{}'), 'first',
          'R5: a claim that is rolled back is none');
COMMIT;
SELECT is((SELECT outcome FROM idem_claim('case-i/CASE_I/r5-after', '{}')), 'execute',
          'R5: the next transaction is free');

-- O8: whoever was replaced writes beside a stale fence: it is rolled back
SELECT FROM idem_fence('case-i/FENCE/o8', 1);
BEGIN;
INSERT INTO effect VALUES ('fence', 'o8', 1);
SELECT lives_ok($$SELECT idem_fence('case-i/FENCE/o8', 1)$$, 'O8: the owner passes');
COMMIT;
SELECT lives_ok($$SELECT idem_fence('case-i/FENCE/o8', 2)$$, 'O8: the next owner');
BEGIN;
INSERT INTO effect VALUES ('fence', 'o8', 2);
SELECT FROM idem_consume('case-i/case_stock/o8', '{}');
\set ON_ERROR_STOP off
SELECT idem_fence('case-i/FENCE/o8', 1);
\set got :SQLSTATE
COMMIT;
\set ON_ERROR_STOP on
SELECT is(:'got'::text, 'ID002', 'O8: the old one does not');
SELECT is((SELECT sum(n) FROM effect WHERE event = 'o8'), 1::bigint, 'O8: what he wrote is gone');
SELECT is_empty($$SELECT * FROM idem_event WHERE key = 'case-i/case_stock/o8'$$,
                'O8: so is what he consumed');
SELECT is((SELECT generation FROM idem_fence WHERE key = 'case-i/FENCE/o8'), 2::bigint,
          'O8: the newest generation stands');

-- C2: a business write, a duplicate, another statement, commit
BEGIN;
INSERT INTO effect VALUES ('c2', 'c2', 1);
SELECT is(pg_temp.handle('case_stock', 's1', '{"n": 1}'), 'duplicate', 'C2: a duplicate');
SELECT is(pg_temp.handle('case_stock', 's1', '{"n": 9}'), 'conflict', 'C2: a conflict');
INSERT INTO effect VALUES ('c2', 'c2', 2);
COMMIT;
SELECT is((SELECT count(*) FROM effect WHERE event = 'c2'), 2::bigint, 'C2: all committed');

-- C7: the handler raises, rollback, redelivery
SELECT throws_ok($$SELECT pg_temp.handle('case_stock', 'c7', '{"n": "no number"}')$$, '22P02', NULL,
                 'C7: the handler raises');
SELECT is(pg_temp.handle('case_stock', 'c7', '{"n": 1}'), 'first', 'C7: the redelivery runs');

-- bad input
CREATE TEMPORARY TABLE events_before AS SELECT ctid AS row, e.*::text AS value FROM idem_event e;
CREATE TEMPORARY TABLE fences_before AS SELECT ctid AS row, f.*::text AS value FROM idem_fence f;
CREATE TEMPORARY TABLE consumers_before AS SELECT ctid AS row, c.*::text AS value
    FROM idem_consumer c;
SELECT is(pg_temp.try(function, args, NULL, false), code, what) FROM tries;
-- each is legal as it stands, so that it was the bad argument that was refused
SELECT is(pg_temp.try(name, args, NULL, false), 'UU000', name || ': legal') FROM legal;
-- without privileges, and in a read-only transaction
CREATE ROLE idem_action_inbox;
SELECT is(pg_temp.try(name, args, 'idem_action_inbox', false), '42501', name || ': no privilege')
FROM legal;
DROP ROLE idem_action_inbox;
SELECT is(pg_temp.try(name, args, NULL, true), '25006', name || ': read-only transaction')
    FROM legal;
SELECT results_eq('SELECT ctid, e.*::text FROM idem_event e', 'TABLE events_before',
                  'no event was written');
SELECT results_eq('SELECT ctid, f.*::text FROM idem_fence f', 'TABLE fences_before',
                  'no fence was written');
SELECT results_eq('SELECT ctid, c.*::text FROM idem_consumer c', 'TABLE consumers_before',
                  'no consumer was written');
-- the next call of the session works
SELECT is((SELECT outcome FROM idem_consume('case-i/case_stock/last', '{}')), 'first',
          'the next call works');

SELECT * FROM finish();
