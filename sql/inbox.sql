-- inbox: each event once per consumer
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS idem_action;
RESET client_min_messages;
SELECT idem_define_consumer('in_stock'), idem_define_consumer('in_refund'),
       idem_define_consumer('in_rebuild', rebuild => true);

-- first, then duplicate, with the caller's writes or not at all
CREATE TABLE in_ledger (event text, consumer text);
CREATE FUNCTION in_handle(k idem_key, payload jsonb) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    c idem_consumption;
BEGIN
    SELECT * INTO STRICT c FROM idem_consume(k, payload);
    IF c.outcome = 'first' THEN
        INSERT INTO in_ledger VALUES (idem_key_id(k), idem_key_operation(k));
    END IF;
    RETURN concat_ws(' ', c.outcome, c.result, c.differs);
END $$;
SELECT in_handle('in/in_stock/1', '{"n": 10}');
SELECT in_handle('in/in_stock/1', '{"n": 10}');
SELECT in_handle('in/in_stock/1', '{"n": 1e1}');
SELECT in_handle('in/in_stock/1', '{"n": 100, "m": 1}');
SELECT in_handle('in/in_refund/1', '{"n": 100}');
SELECT in_handle('other/in_stock/1', '{"n": 100}');
BEGIN;
SELECT in_handle('in/in_stock/2', '1');
ROLLBACK;
SELECT in_handle('in/in_stock/2', '2');
BEGIN;
SAVEPOINT a;
SELECT in_handle('in/in_stock/3', '1');
ROLLBACK TO a;
SELECT in_handle('in/in_stock/3', '2');
SELECT in_handle('in/in_stock/3', '2');
COMMIT;
SELECT * FROM in_ledger ORDER BY 1, 2;
-- the answer is a row of a named type, one also where several are asked at once
SELECT * FROM idem_consume('in/in_stock/1', '{"n": 10}');
SELECT idem_consume('in/in_stock/1', '{"n": 11}');
SELECT k, outcome
FROM unnest('{in/in_stock/b,in/in_stock/a,in/in_stock/b}'::idem_key[]) WITH ORDINALITY u (k, n),
    LATERAL idem_consume(k, '{}') ORDER BY n;
-- JSON null is a payload
SELECT outcome, differs FROM idem_consume('in/in_stock/null', 'null')
UNION ALL SELECT outcome, differs FROM idem_consume('in/in_stock/null', 'null')
UNION ALL SELECT outcome, differs FROM idem_consume('in/in_stock/null', '{}');
-- as is whatever a driver binds as text
PREPARE in_text(text, text) AS SELECT outcome FROM idem_consume($1, $2::jsonb);
EXECUTE in_text('in/in_stock/text', '1');
PREPARE in_batch(text[], jsonb[]) AS SELECT outcome FROM idem_consume_batch($1, $2);
EXECUTE in_batch('{in/in_stock/text,in/in_stock/text2}', '{1,1}');
PREPARE in_varchar(varchar[], jsonb[]) AS SELECT outcome FROM idem_consume_batch($1, $2);
EXECUTE in_varchar('{in/in_stock/text,in/in_stock/text2}', '{1,1}');
DEALLOCATE ALL;

-- a result: kept by the transaction that was first, for its duplicates
BEGIN;
SELECT outcome FROM idem_consume('in/in_stock/r1', '1');
SELECT idem_consume_result('in/in_stock/r1', '{"sum": 1.0}');
SELECT idem_consume_result('in/in_stock/r1', '{"sum": 1}');
SELECT outcome, result FROM idem_consume('in/in_stock/r1', '1');
SAVEPOINT a;
SELECT idem_consume_result('in/in_stock/r1', '{"sum": 2}');
ROLLBACK TO a;
COMMIT;
SELECT outcome, result FROM idem_consume('in/in_stock/r1', '1');
SELECT outcome, result FROM idem_consume('in/in_stock/r1', '2');
SELECT outcome, result FROM idem_consume_batch('{in/in_stock/r1,in/in_stock/r1}', '{1,2}');
-- rolled back with its savepoint, another one may follow; also JSON null is one
BEGIN;
SAVEPOINT a;
SELECT outcome FROM idem_consume('in/in_stock/r2', '1');
RELEASE a;
SAVEPOINT b;
SELECT idem_consume_result('in/in_stock/r2', '1');
ROLLBACK TO b;
SELECT outcome, result FROM idem_consume('in/in_stock/r2', '1');
SELECT idem_consume_result('in/in_stock/r2', 'null');
COMMIT;
SELECT outcome, result FROM idem_consume('in/in_stock/r2', '1');
-- one of a batch
BEGIN;
SELECT position, idem_consume_result(key, to_jsonb(position * 10))
FROM idem_consume_batch('{in/in_stock/r3,in/in_stock/r2,in/in_stock/r4}', '{1,1,1}')
WHERE outcome = 'first';
COMMIT;
SELECT * FROM idem_consume_batch('{in/in_stock/r4,in/in_stock/r3,in/in_stock/r2}', '{1,1,1}');
-- in no other transaction, and for no event that was not consumed
SELECT idem_consume_result('in/in_stock/r1', '{"sum": 1}');
SELECT idem_unconsume('in/in_stock/r1');
SELECT idem_consume_result('in/in_stock/unknown', '1');
\set VERBOSITY sqlstate
SELECT idem_consume_result('in/in_stock/r1', '{"sum": 1}');
SELECT idem_unconsume('in/in_stock/r1');
SELECT idem_consume_result('in/in_stock/unknown', '1');
SELECT idem_unconsume('in/in_stock/unknown');
BEGIN;
SELECT outcome FROM idem_consume('in/in_stock/r1', '1');
SELECT idem_consume_result('in/in_stock/r1', '{"sum": 1}');
ROLLBACK;
BEGIN;
SELECT outcome FROM idem_consume('in/in_stock/r1', '1');
SELECT idem_unconsume('in/in_stock/r1');
ROLLBACK;
BEGIN;
SAVEPOINT a;
SELECT outcome FROM idem_consume('in/in_stock/r5', '1');
ROLLBACK TO a;
SELECT idem_consume_result('in/in_stock/r5', '1');
ROLLBACK;
\set VERBOSITY default
SELECT outcome, result FROM idem_consume('in/in_stock/r1', '1');

-- withdrawn: as if it had never come, in a batch of which one event failed
BEGIN;
SELECT position, key, outcome
FROM idem_consume_batch('{in/in_stock/u1,in/in_stock/u2,in/in_stock/u3}', '{1,2,3}');
SELECT idem_consume_result('in/in_stock/u2', '1');
SELECT idem_unconsume('in/in_stock/u2');
\set VERBOSITY sqlstate
SAVEPOINT a;
SELECT idem_unconsume('in/in_stock/u2');
ROLLBACK TO a;
SELECT idem_consume_result('in/in_stock/u2', '1');
ROLLBACK TO a;
\set VERBOSITY default
COMMIT;
SELECT position, outcome FROM idem_consume_batch('{in/in_stock/u1,in/in_stock/u2,in/in_stock/u3}',
    '{1,20,3}');
BEGIN;
SELECT outcome FROM idem_consume('in/in_stock/u4', '1');
SAVEPOINT a;
SELECT idem_unconsume('in/in_stock/u4');
SELECT outcome FROM idem_consume('in/in_stock/u4', '2');
SELECT idem_unconsume('in/in_stock/u4');
ROLLBACK TO a;
SELECT outcome FROM idem_consume('in/in_stock/u4', '1');
SELECT idem_unconsume('in/in_stock/u4');
SELECT outcome FROM idem_consume('in/in_stock/u4', '3');
COMMIT;
SELECT outcome FROM idem_consume('in/in_stock/u4', '3');

-- a batch answers in input order, whatever the order of the keys, and judges what comes twice
SELECT * FROM idem_consume_batch(
    ARRAY['in/in_stock/e-2', 'in/in_stock/e-1', 'in/in_stock/e-2', 'in/in_refund/e-2',
          'in/in_stock/e-1', 'in/in_stock/e-2'],
    '{"{\"n\": 2}","{\"n\": 1}","{\"n\": 2.0}","{\"n\": 2}","{\"n\": 7}","{\"n\": 2}"}');
SELECT position, outcome FROM idem_consume_batch(
    '{in/in_stock/e-1,in/in_stock/e-3,in/in_stock/e-1,in/in_stock/e-2}',
    '{"{\"n\": 7}",3,"{\"n\": 1}","{\"n\": 2}"}');
SELECT key, params FROM idem_event
WHERE key IN ('in/in_stock/e-1', 'in/in_stock/e-2', 'in/in_stock/e-3') ORDER BY key;
-- the positions count from 1, whatever the arrays do
SELECT position, key FROM idem_consume_batch('[0:1]={in/in_stock/e-1,in/in_stock/e-2}',
    '[7:8]={1,2}');
-- an empty one is fine
SELECT * FROM idem_consume_batch('{}', '{}');
SELECT * FROM idem_consume_batch('{}', '{}', '{}', '{}');
-- as an expression, and once for each row of another table
SELECT idem_consume_batch('{in/in_stock/e-1}', '{1}');
SELECT g, position, outcome FROM generate_series(1, 2) g,
    LATERAL idem_consume_batch(ARRAY['in/in_stock/g-' || g, 'in/in_stock/g'], '{1,1}');
-- the order is that of the bytes
SELECT position, key, outcome FROM idem_consume_batch(
    ARRAY['in/in_stock/~', 'in/in_stock/z', 'in/in_stock/Z', 'in/in_stock/a', 'in/in_stock/a-',
          'in/in_stock/~'],
    '{1,1,1,1,1,1}');
-- many of one key
SELECT outcome, count(*), min(position) FROM idem_consume_batch(
    array_fill('in/in_stock/same'::idem_key, ARRAY[1000]), array_fill('1'::jsonb, ARRAY[1000]))
GROUP BY 1 ORDER BY 1;

-- bad arrays
SELECT * FROM idem_consume_batch('{in/in_stock/x,in/in_stock/y}', '{1}');
SELECT * FROM idem_consume_batch('{in/in_stock/x,NULL}', '{1,1}');
\set VERBOSITY sqlstate
SELECT * FROM idem_consume_batch('{in/in_stock/x}', '{1,1}');
SELECT * FROM idem_consume_batch('{in/in_stock/x}', '{1}', '{}');
SELECT * FROM idem_consume_batch('{in/in_stock/x}', '{1}', NULL, '{1,1}');
SELECT * FROM idem_consume_batch('{}', '{}', '{2026-01-01}');
SELECT * FROM idem_consume_batch('{{in/in_stock/x,in/in_stock/y}}', '{1,1}');
SELECT * FROM idem_consume_batch('{in/in_stock/x,in/in_stock/y}', '{{1,1}}');
SELECT * FROM idem_consume_batch('{in/in_stock/x,in/in_stock/y}', '{1,1}',
    '{{2026-01-01,2026-01-01}}');
SELECT * FROM idem_consume_batch('{in/in_stock/x,in/in_stock/y}', '{1,1}', NULL, '{{1},{1}}');
SELECT * FROM idem_consume_batch('{in/in_stock/x}', '{NULL}');
SELECT * FROM idem_consume_batch('{in/in_stock/x}', '{1}', '{infinity}');
SELECT * FROM idem_consume_batch('{in/in_stock/x}', '{1}', '{-infinity}');
SELECT * FROM idem_consume_batch('{in/in_stock/x,in/in_stock}', '{1,1}');
SELECT * FROM idem_consume_batch('{in/in_stock/x,in/in_undefined/x}', '{1,1}');
SELECT * FROM idem_consume_batch(NULL, '{1}');
SELECT * FROM idem_consume_batch('{in/in_stock/x}', NULL);
\set VERBOSITY default
-- of which nothing was consumed
SELECT count(*) FROM idem_event WHERE key IN ('in/in_stock/x', 'in/in_stock/y');

-- one transaction that consumes and one that acts: the event is recorded with the action it causes
SELECT idem_define_operation('IN_REFUND', 'external');
BEGIN;
SELECT outcome FROM idem_consume('in/in_refund/2', '{"amount": 10}');
SELECT outcome FROM idem_submit('in/IN_REFUND/2', '{"amount": 10}');
COMMIT;
BEGIN;
SELECT outcome FROM idem_consume('in/in_refund/2', '{"amount": 10}');
SELECT outcome FROM idem_submit('in/IN_REFUND/2', '{"amount": 10}');
COMMIT;

-- under a rebuilding consumer nothing can start a side effect
SELECT idem_define_operation('IN_LOCAL'),
       idem_define_operation('IN_ASK', 'external', channel_queryable => true,
                             absence_visible_after => '0');
SELECT outcome, generation FROM idem_claim('in/IN_ASK/verify', '{}', lease => '1 h');
UPDATE idem_lease SET lease_until = now() - interval '1 h', call_until = now() - interval '1 h'
    WHERE key = 'in/IN_ASK/verify';
SELECT outcome, generation FROM idem_claim('in/IN_ASK/verify', '{}', lease => '1 h');
SELECT outcome FROM idem_claim('in/IN_ASK/owned', '{}');
CREATE FUNCTION in_echo(params jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT params';
-- which calls start one: whoever adds such a call adds it here
CREATE TEMPORARY TABLE starts (call text);
INSERT INTO starts VALUES
    ($$SELECT outcome FROM idem_submit('in/IN_ASK/new', '{}')$$),
    ($$SELECT outcome FROM idem_claim('in/IN_ASK/new', '{}')$$),
    ($$SELECT outcome FROM idem_reclaim('in/IN_REFUND/2')$$),
    ($$SELECT outcome FROM idem_absent('in/IN_ASK/verify', 2)$$),
    ($$SELECT idem_once('in/IN_LOCAL/new', '{}')::text$$),
    ($$SELECT idem_call('in/IN_LOCAL/new', '{}', 'in_echo')::text$$),
    ($$SELECT outcome FROM idem_claim('in/IN_LOCAL/new', '{}')$$);
-- in a subtransaction, which is undone: the answer, or the code
CREATE FUNCTION in_try(VARIADIC calls text[]) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    answer text;
    answers text[];
    i int;
BEGIN
    FOR i IN 1 .. cardinality(calls) LOOP
        EXECUTE calls[i] INTO answer;
        answers := answers || coalesce(answer, '-');
    END LOOP;
    RAISE EXCEPTION USING errcode = 'UU000';
EXCEPTION WHEN SQLSTATE 'UU000' THEN
    RETURN array_to_string(answers, ', ');
WHEN OTHERS THEN
    RETURN array_to_string(answers || SQLSTATE, ', ');
END $$;
SELECT call, in_try(call) AS alone,
       in_try($$SELECT outcome FROM idem_consume('in/in_rebuild/1', '1')$$, call) AS after,
       in_try(call, $$SELECT outcome FROM idem_consume('in/in_rebuild/1', '1')$$) AS before,
       in_try($$SELECT outcome FROM idem_consume('in/in_stock/y', '1')$$, call) AS other
FROM starts;
SELECT call, in_try(batch, call) AS after_batch, in_try(call, batch) AS before_batch
FROM starts, (VALUES ($$SELECT outcome FROM
    idem_consume_batch('{in/in_stock/y,in/in_rebuild/1}', '{1,1}')$$)) b (batch);
-- each for itself, not only the first call of a transaction
SELECT outcome FROM idem_consume('in/in_rebuild/done', '1');
SELECT call,
       in_try($$SELECT outcome FROM idem_consume('in/in_rebuild/done', '1')$$, call) AS duplicate,
       in_try($$SELECT outcome FROM idem_consume('in/in_rebuild/done', '2')$$, call) AS conflict
FROM starts;
-- what starts nothing is allowed in either order
SELECT call, in_try(call) AS alone,
       in_try($$SELECT outcome FROM idem_consume('in/in_rebuild/1', '1')$$, call) AS after,
       in_try(call, $$SELECT outcome FROM idem_consume('in/in_rebuild/1', '1')$$) AS before
FROM (VALUES ($$SELECT outcome FROM idem_consume('in/in_stock/y', '1')$$),
             ($$SELECT outcome FROM idem_consume_batch('{in/in_stock/y}', '{1}')$$),
             ($$SELECT state FROM idem_status('in/IN_ASK/owned')$$),
             ($$SELECT idem_cancel('in/IN_ASK/cancel')::text$$),
             ($$SELECT idem_complete('in/IN_ASK/owned', 1)::text$$),
             ($$SELECT idem_mark_unknown('in/IN_ASK/owned', 1)::text$$),
             ($$SELECT idem_fence('in/FENCE/1', 1)::text$$)) c (call);
-- an answer that grants nothing started nothing
SELECT in_try($$SELECT outcome FROM idem_claim('in/IN_ASK/owned', '{}')$$,
              $$SELECT outcome FROM idem_consume('in/in_rebuild/1', '1')$$) AS busy,
       in_try($$SELECT outcome FROM idem_claim('in/IN_ASK/owned', '{"a": 1}')$$,
              $$SELECT outcome FROM idem_consume('in/in_rebuild/1', '1')$$) AS conflict;
\set VERBOSITY default
BEGIN;
SELECT outcome FROM idem_consume('in/in_rebuild/1', '1');
SELECT idem_claim('in/IN_ASK/new', '{}');
ROLLBACK;
-- savepoints: what was consumed and rolled back binds nobody, what was released does
BEGIN;
SAVEPOINT a;
SELECT outcome FROM idem_consume('in/in_rebuild/1', '1');
ROLLBACK TO a;
SELECT outcome FROM idem_claim('in/IN_ASK/s1', '{}');
COMMIT;
\set VERBOSITY sqlstate
BEGIN;
SAVEPOINT a;
SAVEPOINT b;
SELECT outcome FROM idem_consume('in/in_rebuild/1', '1');
RELEASE b;
SAVEPOINT c;
SELECT outcome FROM idem_claim('in/IN_ASK/s2', '{}');
ROLLBACK TO c;
SELECT idem_once('in/IN_LOCAL/s2', '{}');
ROLLBACK TO a;
SELECT outcome FROM idem_claim('in/IN_ASK/s2', '{}');
COMMIT;
BEGIN;
SELECT outcome FROM idem_consume('in/in_rebuild/s3', '1');
SAVEPOINT a;
SELECT outcome FROM idem_consume('in/in_rebuild/s4', '1');
ROLLBACK TO a;
SELECT outcome FROM idem_claim('in/IN_ASK/s3', '{}');
ROLLBACK TO a;
SELECT idem_unconsume('in/in_rebuild/s3');
SELECT outcome FROM idem_claim('in/IN_ASK/s3', '{}');
ROLLBACK;
-- likewise the other way round
BEGIN;
SAVEPOINT a;
SELECT outcome FROM idem_claim('in/IN_ASK/s4', '{}');
ROLLBACK TO a;
SELECT outcome FROM idem_consume('in/in_rebuild/s5', '1');
COMMIT;
BEGIN;
SAVEPOINT a;
SELECT idem_once('in/IN_LOCAL/s5', '{}');
RELEASE a;
SAVEPOINT b;
SELECT outcome FROM idem_consume('in/in_rebuild/s6', '1');
ROLLBACK TO b;
SELECT outcome FROM idem_consume_batch('{in/in_rebuild/s6}', '{1}');
ROLLBACK;
-- a handler that consumes under one
CREATE FUNCTION in_consumes(params jsonb) RETURNS jsonb LANGUAGE sql AS
    $$SELECT to_jsonb(outcome) FROM idem_consume('in/in_rebuild/h1', params)$$;
SELECT idem_call('in/IN_LOCAL/h1', '{}', 'in_consumes');
\set VERBOSITY default
-- the next transaction is free
SELECT outcome FROM idem_claim('in/IN_ASK/free', '{}');
SELECT key FROM idem_action WHERE idem_key_tenant(key) = 'in' ORDER BY key;
-- as the contract is when the event comes
BEGIN;
SELECT idem_define_consumer('in_rebuild');
SELECT outcome FROM idem_consume('in/in_rebuild/free', '1');
SELECT outcome FROM idem_claim('in/IN_ASK/free2', '{}');
ROLLBACK;

-- who consumes is bound to the tenant, and needs nothing on the tables
CREATE ROLE regress_idem_inbox;
SET ROLE regress_idem_inbox;
\set VERBOSITY sqlstate
SELECT idem_consume('in/in_stock/role', '1');
SELECT * FROM idem_consume_batch('{in/in_stock/role}', '{1}');
SELECT idem_consume_result('in/in_stock/role', '1');
SELECT idem_unconsume('in/in_stock/role');
\set VERBOSITY default
RESET ROLE;
SELECT idem_grant('regress_idem_inbox', 'application', 'in');
SET ROLE regress_idem_inbox;
BEGIN;
SELECT outcome FROM idem_consume('in/in_stock/role', '1');
SELECT idem_consume_result('in/in_stock/role', '"ok"');
SELECT position, outcome, result FROM idem_consume_batch('{in/in_stock/role2,in/in_stock/role}',
    '{1,1}');
SELECT idem_unconsume('in/in_stock/role2');
COMMIT;
SELECT outcome, result FROM idem_consume('in/in_stock/role', '1');
RESET ROLE;
DROP OWNED BY regress_idem_inbox;
DROP ROLE regress_idem_inbox;

-- nor does the search_path, or who stands in it, matter
CREATE SCHEMA in_schema;
CREATE FUNCTION in_schema.unnest(anyarray) RETURNS SETOF anyelement LANGUAGE sql
    AS 'SELECT $1[1] LIMIT 0';
CREATE TABLE in_schema.idem_event (key text);
BEGIN;
SET LOCAL search_path = in_schema, public, pg_catalog;
SELECT outcome FROM public.idem_consume('in/in_stock/path', '1');
SELECT outcome FROM public.idem_consume_batch('{in/in_stock/path,in/in_stock/path2}', '{1,1}');
SELECT public.idem_consume_result('in/in_stock/path2', '1');
SET LOCAL search_path = '';
SELECT outcome, result FROM public.idem_consume('in/in_stock/path2', '1');
COMMIT;
SET client_min_messages = warning;
DROP SCHEMA in_schema CASCADE;
RESET client_min_messages;

-- what is never an answer
\set VERBOSITY sqlstate
SELECT idem_consume(NULL, '1');
SELECT idem_consume('in/in_stock/x', NULL);
SELECT idem_consume('in/in_stock/x', '1', 'infinity');
SELECT idem_consume('in/in_stock/x', '1', '-infinity');
SELECT idem_consume_result(NULL, '1');
SELECT idem_consume_result('in/in_stock/x', NULL);
SELECT idem_unconsume(NULL);
BEGIN READ ONLY;
SELECT idem_consume('in/in_stock/1', '{"n": 10}');
ROLLBACK;
BEGIN READ ONLY;
SELECT * FROM idem_consume_batch('{}', '{}');
ROLLBACK;
\set VERBOSITY default

DROP TABLE in_ledger;
DROP FUNCTION in_handle, in_echo, in_try, in_consumes;

-- where identity is not kept for ever, when an event occurred is required and counts
SELECT idem_define_consumer('in_kept', retention => '30 days', result_retention => '7 days');
SELECT * FROM idem_consume('in/in_kept/e-1', '{"n": 1}', '2026-01-01 00:00+00');
SELECT * FROM idem_consume('in/in_kept/e-1', '{"n": 1}', '2026-01-01 00:00+00');
-- stamped anew: no pointer names what differs
SELECT * FROM idem_consume('in/in_kept/e-1', '{"n": 1}', '2026-01-02 00:00+00');
SELECT * FROM idem_consume('in/in_kept/e-1', '{"n": 2}', '2026-01-01 00:00+00');
SELECT position, outcome FROM idem_consume_batch(
    ARRAY['in/in_kept/e-1', 'in/in_kept/e-2', 'in/in_kept/e-2', 'in/in_kept/e-2', 'in/in_kept/e-1'],
    ARRAY['{"n": 1}', '{}', '{}', '{}', '{"n": 1}']::jsonb[],
    ARRAY['2026-01-01 00:00+00', '2026-01-03 00:00+00', '2026-01-03 00:00+00',
          '2026-01-04 00:00+00', '2026-01-05 00:00+00']::timestamptz[]);
\set VERBOSITY sqlstate
SELECT * FROM idem_consume('in/in_kept/e-3', '{}');
SELECT * FROM idem_consume('in/in_kept/e-1', '{"n": 1}');
SELECT * FROM idem_consume_batch(ARRAY['in/in_kept/e-3'], ARRAY['{}']::jsonb[]);
\set VERBOSITY default
-- what was recorded under it stays so when the contract no longer asks for it, and the other way round
SELECT idem_define_consumer('in_kept');
SELECT outcome FROM idem_consume('in/in_kept/e-1', '{"n": 1}');
SELECT outcome FROM idem_consume('in/in_kept/e-4', '{"n": 1}');
SELECT idem_define_consumer('in_kept', retention => '30 days');
SELECT outcome FROM idem_consume('in/in_kept/e-4', '{"n": 1}', '2026-01-01 00:00+00');
