-- once: effects that are all local, in one call
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS idem_action;
RESET client_min_messages;
SELECT idem_define_operation('ONCE'), idem_define_operation('ONCE_X', 'external'),
       idem_define_operation('ONCE_NOP', keep_params => false),
       idem_define_operation('ONCE_INC', digest_include => '{/n}');

-- true exactly once, with the caller's writes
CREATE TABLE once_account (id text PRIMARY KEY, balance int NOT NULL);
INSERT INTO once_account VALUES ('a', 0);
CREATE FUNCTION once_credit(k idem_key, amount int) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    IF NOT idem_once(k, jsonb_build_object('amount', amount)) THEN
        RETURN false;
    END IF;
    UPDATE once_account SET balance = balance + amount WHERE id = 'a';
    RETURN true;
END $$;
SELECT once_credit('on/ONCE/1', 10);
SELECT once_credit('on/ONCE/1', 10);
SELECT once_credit('on/ONCE/1', 100);
SELECT balance FROM once_account;
SELECT state, generation, attempt, result, owner FROM idem_status('on/ONCE/1');
SELECT outcome, result FROM idem_claim('on/ONCE/1', '{"amount": 10.0}');
-- rolled back, and delivered again
BEGIN;
SELECT once_credit('on/ONCE/2', 10);
ROLLBACK;
SELECT once_credit('on/ONCE/2', 10);
BEGIN;
SAVEPOINT a;
SELECT once_credit('on/ONCE/3', 10);
ROLLBACK TO a;
SELECT once_credit('on/ONCE/3', 20);
COMMIT;
SELECT balance FROM once_account;

-- a conflict is an error, which names pointers and no values
SELECT idem_once('on/ONCE/secret', '{"secret": "s3cr3t", "list": [1, 2]}');
SELECT idem_once('on/ONCE/secret', '{"secret": "t0ps3cr3t", "list": [1]}');
\set VERBOSITY sqlstate
SELECT idem_once('on/ONCE/secret', '{}');
\set VERBOSITY default
SELECT idem_once('on/ONCE_NOP/secret', '{"secret": "s3cr3t"}');
SELECT idem_once('on/ONCE_NOP/secret', '{"secret": "s3cr3t"}');
SELECT idem_once('on/ONCE_NOP/secret', '{"secret": "t0ps3cr3t"}');
SELECT idem_once('on/ONCE_INC/1', '{"m": 1}');

-- settled before, in whatever way
BEGIN;
SELECT outcome FROM idem_claim('on/ONCE/4', '{}');
SELECT idem_complete('on/ONCE/4', 1);
COMMIT;
BEGIN;
SELECT outcome FROM idem_claim('on/ONCE/5', '{}');
SELECT idem_reject('on/ONCE/5', 1);
COMMIT;
SELECT idem_cancel('on/ONCE/6');
SELECT idem_once('on/ONCE/4', '{}') AS completed, idem_once('on/ONCE/5', '{}') AS rejected,
       idem_once('on/ONCE/6', '{"any": 1}') AS cancelled;
-- claimed by this very transaction
BEGIN;
SELECT outcome FROM idem_claim('on/ONCE/7', '{}');
SELECT idem_once('on/ONCE/7', '{}');
ROLLBACK;
-- what is for local operations only
SELECT idem_once('on/ONCE_X/1', '{}');
\set VERBOSITY sqlstate
SELECT idem_once('on/ONCE_X/1', '{}');
SELECT idem_call('on/ONCE_X/1', '{}', 'once_handler');
SELECT idem_once('on/ONCE_UNDEFINED/1', '{}');
BEGIN READ ONLY;
SELECT idem_once('on/ONCE/1', '{"amount": 10}');
ROLLBACK;
BEGIN READ ONLY;
SELECT idem_call('on/ONCE/1', '{"amount": 10}', 'once_handler');
ROLLBACK;
\set VERBOSITY default
-- when it occurred is recorded
SELECT idem_once('on/ONCE/8', '{}', '2026-01-01 00:00+00');
SELECT occurred_at = '2026-01-01 00:00+00' AS recorded FROM idem_action WHERE key = 'on/ONCE/8';

-- in a condition it is evaluated last, whatever its place, so it settles nothing for rows that
-- another condition refuses
CREATE TABLE once_row (id int, status text);
INSERT INTO once_row VALUES (1, 'new'), (2, 'old'), (3, 'new');
EXPLAIN (COSTS OFF)
UPDATE once_row SET status = 'done' WHERE idem_once(idem_key('on', 'ONCE', 'row-' || id), '{}')
    AND status = 'new';
UPDATE once_row SET status = 'done' WHERE idem_once(idem_key('on', 'ONCE', 'row-' || id), '{}')
    AND status = 'new';
SELECT id, status, (SELECT state FROM idem_status(idem_key('on', 'ONCE', 'row-' || id))) AS settled
FROM once_row ORDER BY id;

-- call: the handler runs once, and its result is the answer ever after
CREATE TABLE once_effect (n int);
CREATE FUNCTION once_handler(params jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO once_effect VALUES ((params ->> 'n')::int);
    RETURN jsonb_build_object('effects', (SELECT count(*) FROM once_effect));
END $$;
SELECT idem_call('on/ONCE/c1', '{"n": 1}', 'once_handler');
SELECT idem_call('on/ONCE/c1', '{"n": 1.0}', 'once_handler');
SELECT idem_call('on/ONCE/c2', '{"n": 2}', 'once_handler');
SELECT idem_call('on/ONCE/c1', '{"n": 1}', 'once_handler');
SELECT idem_call('on/ONCE/c1', '{"n": 2}', 'once_handler');
SELECT count(*) FROM once_effect;
SELECT state, generation, attempt, result FROM idem_status('on/ONCE/c1');
SELECT outcome, result FROM idem_claim('on/ONCE/c1', '{"n": 1}');
-- it sees what the caller's transaction did so far, and the caller sees what it did
BEGIN;
INSERT INTO once_effect VALUES (0);
SELECT idem_call('on/ONCE/c3', '{"n": 3}', 'once_handler');
SELECT count(*) FROM once_effect;
ROLLBACK;
-- also one that takes no snapshot of its own
CREATE FUNCTION once_reads(params jsonb) RETURNS jsonb LANGUAGE sql STABLE
    AS 'SELECT to_jsonb(count(*)) FROM once_effect';
SELECT idem_call('on/ONCE/written', '{"n": 4}', 'once_handler') AS written,
       idem_call('on/ONCE/read', '{}', 'once_reads') AS read;
-- several in one statement
SELECT i, idem_call(idem_key('on', 'ONCE', 'many-' || i), '{"n": 0}', 'once_handler')
FROM generate_series(1, 3) i;

-- a handler that raises: nothing is on record, and it runs again
CREATE FUNCTION once_raises(params jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO once_effect VALUES (99);
    RAISE EXCEPTION 'not today' USING errcode = 'UU001';
END $$;
\set VERBOSITY sqlstate
SELECT idem_call('on/ONCE/raise', '{"n": 1}', 'once_raises');
\set VERBOSITY default
DO $$
BEGIN
    PERFORM idem_call('on/ONCE/raise', '{"n": 1}', 'once_raises');
EXCEPTION WHEN SQLSTATE 'UU001' THEN
    RAISE NOTICE 'it raised';
END $$;
SELECT count(*) FROM idem_status('on/ONCE/raise');
SELECT count(*) FROM once_effect WHERE n = 99;
SELECT idem_call('on/ONCE/raise', '{"n": 1}', 'once_handler') IS NOT NULL AS ran;
-- one that catches an error of its own
CREATE FUNCTION once_catches(params jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    BEGIN
        INSERT INTO once_effect VALUES (98);
        PERFORM 1 / 0;
    EXCEPTION WHEN division_by_zero THEN
        NULL;
    END;
    RETURN '"caught"';
END $$;
SELECT idem_call('on/ONCE/catch', '{}', 'once_catches');
SELECT count(*) FROM once_effect WHERE n = 98;

-- one that returns null, and one that returns JSON null
CREATE FUNCTION once_null(params jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT NULL::jsonb';
CREATE FUNCTION once_json_null(params jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT ''null''::jsonb';
SELECT idem_call('on/ONCE/null', '{}', 'once_null') IS NULL AS first,
       idem_call('on/ONCE/null', '{}', 'once_null') IS NULL AS again;
SELECT idem_call('on/ONCE/jnull', '{}', 'once_json_null') AS first,
       idem_call('on/ONCE/jnull', '{}', 'once_json_null') AS again;
-- an echo, of any size
CREATE FUNCTION once_echo(params jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT params';
CREATE TEMPORARY TABLE document AS SELECT jsonb_build_object('n', string_agg(md5(i::text), '')) AS d
FROM generate_series(1, 3000) i;
SELECT idem_call('on/ONCE/large', d, 'once_echo') = d AS first FROM document;
SELECT idem_call('on/ONCE/large', d, 'once_echo') = d AS again FROM document;

-- reaching its own key, by whichever way
CREATE FUNCTION once_self(params jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    CASE params ->> 'by'
        WHEN 'once' THEN PERFORM idem_once('on/ONCE/self', params);
        WHEN 'call' THEN PERFORM idem_call('on/ONCE/self', params, 'once_self');
        WHEN 'claim' THEN PERFORM idem_claim('on/ONCE/self', params);
    END CASE;
    RETURN NULL;
END $$;
\set VERBOSITY sqlstate
SELECT idem_call('on/ONCE/self', '{"by": "once"}', 'once_self');
SELECT idem_call('on/ONCE/self', '{"by": "call"}', 'once_self');
SELECT idem_call('on/ONCE/self', '{"by": "claim"}', 'once_self');
\set VERBOSITY default
SELECT count(*) FROM idem_status('on/ONCE/self');
-- another key is fine, to any depth
CREATE FUNCTION once_nested(params jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    IF (params ->> 'depth')::int = 0 THEN
        RETURN '[]';
    END IF;
    RETURN idem_call(idem_key('on', 'ONCE', 'depth-' || (params ->> 'depth')),
                     jsonb_build_object('depth', (params ->> 'depth')::int - 1), 'once_nested')
                         || params;
END $$;
SELECT idem_call('on/ONCE/nested', '{"depth": 3}', 'once_nested');
SELECT count(*) FROM idem_action WHERE idem_key_id(key) LIKE 'depth-%';
-- a claim that the handler leaves open is owed at commit
CREATE FUNCTION once_leaves(params jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    PERFORM idem_claim('on/ONCE/left', '{}');
    RETURN NULL;
END $$;
\set VERBOSITY sqlstate
SELECT idem_call('on/ONCE/leaves', '{}', 'once_leaves');
\set VERBOSITY default
SELECT count(*) FROM idem_status('on/ONCE/leaves');

-- found by the caller's search_path, or qualified, or quoted
CREATE SCHEMA "Once Schema";
CREATE FUNCTION "Once Schema"."Echo.It"(params jsonb) RETURNS jsonb
    LANGUAGE sql AS 'SELECT ''"quoted"''::jsonb';
CREATE FUNCTION "Once Schema".once_echo(params jsonb) RETURNS jsonb
    LANGUAGE sql AS 'SELECT ''"schema"''::jsonb';
SELECT idem_call('on/ONCE/q1', '{}', '"Once Schema"."Echo.It"');
SELECT idem_call('on/ONCE/q2', '{}', 'ONCE_ECHO');
BEGIN;
SET LOCAL search_path = "Once Schema", public;
SELECT idem_call('on/ONCE/q3', '{}', '"Echo.It"');
SELECT idem_call('on/ONCE/q4', '{}', 'once_echo');
-- and sees it itself
CREATE FUNCTION once_path(params jsonb) RETURNS jsonb
    LANGUAGE sql AS 'SELECT to_jsonb(current_setting(''search_path''))';
SELECT idem_call('on/ONCE/q5', '{}', 'once_path');
ROLLBACK;
-- the right one among functions of one name
CREATE FUNCTION once_echo(params text) RETURNS jsonb LANGUAGE sql AS 'SELECT ''"text"''::jsonb';
CREATE FUNCTION once_echo(params jsonb, n int) RETURNS jsonb
    LANGUAGE sql AS 'SELECT ''"two"''::jsonb';
SELECT idem_call('on/ONCE/q6', '{}', 'once_echo');

-- what is no handler
CREATE FUNCTION once_json(params jsonb) RETURNS json LANGUAGE sql AS 'SELECT params::json';
CREATE FUNCTION once_set(params jsonb) RETURNS SETOF jsonb LANGUAGE sql AS 'SELECT params';
CREATE FUNCTION once_void(params jsonb) RETURNS void LANGUAGE sql AS 'SELECT 1';
CREATE PROCEDURE once_procedure(params jsonb) LANGUAGE sql AS 'SELECT 1';
CREATE AGGREGATE once_aggregate(jsonb) (sfunc = jsonb_concat, stype = jsonb);
SELECT idem_call('on/ONCE/bad', '{}', 'once_json');
SELECT idem_call('on/ONCE/bad', '{}', 'once_set');
SELECT idem_call('on/ONCE/bad', '{}', 'once_void');
SELECT idem_call('on/ONCE/bad', '{}', 'once_aggregate');
SELECT idem_call('on/ONCE/bad', '{}', 'once_missing');
SELECT idem_call('on/ONCE/bad', '{}', 'nowhere.once_echo');
\set VERBOSITY sqlstate
SELECT idem_call('on/ONCE/bad', '{}', 'once_json');
SELECT idem_call('on/ONCE/bad', '{}', 'once_set');
SELECT idem_call('on/ONCE/bad', '{}', 'once_procedure');
SELECT idem_call('on/ONCE/bad', '{}', 'once_aggregate');
SELECT idem_call('on/ONCE/bad', '{}', 'once_missing');
SELECT idem_call('on/ONCE/bad', '{}', 'nowhere.once_echo');
SELECT idem_call('on/ONCE/bad', '{}', '');
SELECT idem_call('on/ONCE/bad', '{}', 'a..b');
SELECT idem_call('on/ONCE/bad', '{}', '"unterminated');
SELECT idem_call('on/ONCE/bad', '{}', 'once_echo(jsonb)');
SELECT idem_call('on/ONCE/bad', '{}', 'once_echo; DROP TABLE once_effect');
SELECT idem_call('on/ONCE/bad', '{}', NULL);
\set VERBOSITY default
SELECT count(*) FROM idem_status('on/ONCE/bad');

-- rejected or cancelled: there is no result
SELECT idem_call('on/ONCE/5', '{}', 'once_handler');
SELECT idem_call('on/ONCE/6', '{}', 'once_handler');
\set VERBOSITY sqlstate
SELECT idem_call('on/ONCE/5', '{}', 'once_handler');
\set VERBOSITY default
-- settled without a result
SELECT idem_call('on/ONCE/2', '{"amount": 10}', 'once_handler') IS NULL AS nothing;

-- the handler runs as the caller, who needs EXECUTE on it; he needs nothing on the tables
CREATE FUNCTION once_who(params jsonb) RETURNS jsonb
    LANGUAGE sql AS 'SELECT to_jsonb(current_user::text)';
CREATE FUNCTION once_peeks(params jsonb) RETURNS jsonb
    LANGUAGE sql AS 'SELECT to_jsonb(count(*)) FROM idem_action';
CREATE FUNCTION once_guarded(params jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT params';
REVOKE ALL ON FUNCTION once_guarded(jsonb) FROM PUBLIC;
CREATE ROLE regress_idem_once;
SELECT idem_grant('regress_idem_once', 'application', 'on');
SET ROLE regress_idem_once;
SELECT idem_call('on/ONCE/who', '{}', 'once_who');
SELECT idem_once('on/ONCE/who-once', '{}');
\set VERBOSITY sqlstate
SELECT idem_call('on/ONCE/peeks', '{}', 'once_peeks');
SELECT idem_call('on/ONCE/guarded', '{}', 'once_guarded');
\set VERBOSITY default
RESET ROLE;
SELECT count(*) FROM idem_action WHERE key IN ('on/ONCE/peeks', 'on/ONCE/guarded');
DROP OWNED BY regress_idem_once;
DROP ROLE regress_idem_once;

-- a duplicate takes no transaction id
BEGIN;
SELECT idem_once('on/ONCE/4', '{}');
SELECT idem_call('on/ONCE/c1', '{"n": 1}', 'once_handler');
SELECT pg_current_xact_id_if_assigned();
COMMIT;

DROP TABLE once_account, once_row, once_effect;
SET client_min_messages = warning;
DROP SCHEMA "Once Schema" CASCADE;
DROP ROUTINE once_credit, once_handler, once_reads, once_raises, once_catches, once_null,
    once_json_null, once_self, once_nested, once_leaves, once_json, once_set, once_void,
    once_procedure, once_aggregate, once_who, once_peeks, once_guarded, once_echo(jsonb),
    once_echo(text), once_echo(jsonb, int);
