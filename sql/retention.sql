-- retention: what is old, and how a key that was deleted is told from a new one
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS idem_action;
RESET client_min_messages;
SET timezone = 'UTC';

-- a contract says how long, within bounds, and a change is a revision
SELECT idem_define_operation('RET', retention => '30 days', result_retention => '7 days') AS revision,
       idem_define_operation('RET', retention => '30 days', result_retention => '168 h') AS same,
       idem_define_operation('RET', retention => '30 days') AS changed,
       idem_define_operation('RET', retention => '31 days') AS again,
       idem_define_operation('RET', result_retention => '7 days') AS results_only,
       idem_define_operation('RET', retention => '30 days', result_retention => '7 days') AS back;
SELECT revision, retention, result_retention FROM idem_contract WHERE operation = 'RET' ORDER BY revision;
SELECT idem_define_operation('RET', retention => '7 days', result_retention => '8 days');
\set VERBOSITY sqlstate
SELECT idem_define_operation('RET', retention => '0');
SELECT idem_define_operation('RET', retention => '-1 day');
SELECT idem_define_operation('RET', retention => '1100 years');
SELECT idem_define_operation('RET', result_retention => '0');
SELECT idem_define_operation('RET', result_retention => '1100 years');
\set VERBOSITY default

-- under a retention, when it occurred must be said, and counts
SELECT idem_define_operation('RET_X', 'external', retention => '30 days');
CREATE FUNCTION ret_echo(params jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT params';
SELECT idem_once('ret/RET/once', '1', '2026-01-01 00:00Z');
SELECT idem_once('ret/RET/once', '1', '2026-01-01 01:00+01');
SELECT idem_once('ret/RET/once', '1', '2026-01-02 00:00Z');
SELECT idem_once('ret/RET/once', '2', '2026-01-01 00:00Z');
SELECT idem_call('ret/RET/call', '1', 'ret_echo', '2026-01-01 00:00Z');
SELECT idem_call('ret/RET/call', '1', 'ret_echo', '2026-01-01 00:00Z');
SELECT outcome FROM idem_submit('ret/RET_X/1', '{"n": 1}', '2026-01-01 00:00Z');
SELECT outcome FROM idem_submit('ret/RET_X/1', '{"n": 1}', '2026-01-01 00:00Z');
SELECT outcome, differs FROM idem_submit('ret/RET_X/1', '{"n": 1}', '2026-01-02 00:00Z');
SELECT outcome, differs FROM idem_claim('ret/RET_X/1', '{"n": 1}', '2026-01-02 00:00Z');
SELECT outcome, differs FROM idem_claim('ret/RET_X/1', '{"n": 2}', '2026-01-02 00:00Z');
SELECT outcome, generation FROM idem_claim('ret/RET_X/1', '{"n": 1}', '2026-01-01 00:00Z');
-- by key alone nothing is compared
SELECT idem_release('ret/RET_X/1', 2, retry_after => '0');
SELECT outcome, generation FROM idem_reclaim('ret/RET_X/1');
SELECT idem_once('ret/RET/undated', '1');
\set VERBOSITY sqlstate
SELECT idem_once('ret/RET/once', '1');
SELECT idem_call('ret/RET/call', '1', 'ret_echo');
SELECT idem_call('ret/RET/call', '1', 'ret_echo', '2026-01-02 00:00Z');
SELECT idem_call('ret/RET/call2', '1', 'ret_echo');
SELECT idem_submit('ret/RET_X/1', '{"n": 1}');
SELECT idem_submit('ret/RET_X/2', '{"n": 1}');
SELECT idem_claim('ret/RET_X/1', '{"n": 1}');
SELECT idem_claim('ret/RET_X/2', '{"n": 1}');
-- also by whoever cancels what is not on record
SELECT idem_cancel('ret/RET_X/2');
\set VERBOSITY default
SELECT idem_cancel('ret/RET_X/cancelled', occurred_at => '2026-01-01 00:00Z');
SELECT idem_cancel('ret/RET_X/cancelled');
-- which equals everything
SELECT outcome FROM idem_claim('ret/RET_X/cancelled', '{"n": 1}');
SELECT outcome FROM idem_claim('ret/RET_X/cancelled', '{"n": 1}', '2026-01-02 00:00Z');
SELECT outcome FROM idem_submit('ret/RET_X/3', '{}', '2026-01-01 00:00Z');
SELECT idem_cancel('ret/RET_X/3');

-- judged under the revision of the record
SELECT idem_define_operation('RET_REV');
SELECT idem_once('ret/RET_REV/1', '1');
SELECT idem_once('ret/RET_REV/2', '1', '2026-01-01 00:00Z');
SELECT idem_define_operation('RET_REV', retention => '30 days');
SELECT idem_once('ret/RET_REV/1', '1'), idem_once('ret/RET_REV/1', '1', '2026-01-01 00:00Z'),
       idem_once('ret/RET_REV/2', '1'), idem_once('ret/RET_REV/2', '1', '2026-01-02 00:00Z');
SELECT idem_once('ret/RET_REV/3', '1', '2026-01-01 00:00Z');
SELECT idem_define_operation('RET_REV');
SELECT idem_once('ret/RET_REV/3', '1', '2026-01-01 00:00Z'), idem_once('ret/RET_REV/4', '1');
SELECT idem_once('ret/RET_REV/3', '1', '2026-01-02 00:00Z');
-- what the contract in force no longer demands may be missing, which is a difference
SELECT idem_once('ret/RET_REV/3', '1');
-- without the first parameters it cannot be told what differs
SELECT idem_define_operation('RET_REV', retention => '30 days', keep_params => false);
SELECT idem_once('ret/RET_REV/5', '1', '2026-01-01 00:00Z');
SELECT idem_once('ret/RET_REV/5', '1', '2026-01-02 00:00Z');

-- a key not on record that occurred no later than the watermark is expired; the table by hand
SELECT idem_define_consumer('ret_in', retention => '30 days') AS ret_in,
       idem_define_consumer('RET', retention => '30 days') AS same_name;
INSERT INTO idem_watermark VALUES
    ('ret/RET/a', '2026-02-01 00:00Z'), ('ret/RET_X/a', '2026-02-01 00:00Z'),
    ('ret/ret_in/e', '2026-02-01 00:00Z'), ('ret/RET_REV/a', '2026-02-01 00:00Z');
SELECT idem_once('ret/RET/once', '1', '2026-01-01 00:00Z') AS still_on_record;
SELECT idem_once('ret/RET/old', '1', '2026-02-01 00:00Z');
\set VERBOSITY sqlstate
SELECT idem_once('ret/RET/old', '1', '2026-02-01 00:00Z');
SELECT idem_call('ret/RET/old', '1', 'ret_echo', '2026-02-01 00:00Z');
\set VERBOSITY default
SELECT idem_once('ret/RET/newer', '1', '2026-02-01 00:00:00.000001Z');
SELECT * FROM idem_claim('ret/RET_X/old', '{}', '2026-02-01 00:00Z') \gx
SELECT outcome, generation, state FROM idem_submit('ret/RET_X/old', '{}', '1999-12-31 00:00Z');
SELECT outcome, generation, state FROM idem_claim('ret/RET_X/newer', '{}', '2026-02-01 00:00:00.000001Z');
SELECT outcome FROM idem_claim('ret/RET_X/1', '{"n": 2}', '2026-01-01 00:00Z');
-- nobody knows what became of it, so it cannot be cancelled
SELECT idem_cancel('ret/RET_X/old', occurred_at => '2026-02-01 00:00Z'),
       idem_cancel('ret/RET_X/new', occurred_at => '2026-02-02 00:00Z');
SELECT key FROM idem_action WHERE idem_key_id(key) IN ('old', 'new', 'newer') AND idem_key_tenant(key) = 'ret'
ORDER BY key;
-- of another tenant, another name, another kind nothing was purged
SELECT idem_once('ret2/RET/old', '1', '2026-01-01 00:00Z') AS tenant;
SELECT outcome FROM idem_consume('ret/RET/old', '1', '2026-01-01 00:00Z');
-- the watermark outlives the retention
SELECT idem_once('ret/RET_REV/old', '1', '2026-01-01 00:00Z');
SELECT idem_define_operation('RET_REV');
SELECT idem_once('ret/RET_REV/old', '1', '2026-01-01 00:00Z');
SELECT idem_once('ret/RET_REV/old', '1');
SELECT idem_once('ret/RET_REV/newer', '1', '2026-02-02 00:00Z');
SELECT idem_once('ret2/RET_REV/old', '1') AS tenant;
-- and keeps its operation
SELECT idem_define_operation('RET_GONE'), idem_define_operation('RET_EVENT');
INSERT INTO idem_watermark VALUES ('ret/RET_GONE/a', '2026-02-01 00:00Z'), ('ret/RET_EVENT/e', '2026-02-01 00:00Z');
SELECT idem_drop_operation('RET_EVENT');
SELECT idem_drop_operation('RET_GONE');
\set VERBOSITY sqlstate
SELECT idem_drop_operation('RET_GONE');
\set VERBOSITY default

-- events
SELECT outcome, result, differs FROM idem_consume('ret/ret_in/old', '1', '2026-02-01 00:00Z');
SELECT outcome FROM idem_consume('ret/ret_in/newer', '1', '2026-02-02 00:00Z');
SELECT outcome FROM idem_consume('ret2/ret_in/old', '1', '2026-02-01 00:00Z');
INSERT INTO idem_watermark VALUES ('ret2/ret_in/e', '2026-02-03 00:00Z');
-- on record, stamped anew, new, expired; a key twice; each judged as if it came alone
SELECT position, outcome, result FROM idem_consume_batch(
    ARRAY['ret/ret_in/newer', 'ret/ret_in/newer', 'ret/ret_in/b1', 'ret/ret_in/b2', 'ret/ret_in/b3',
          'ret/ret_in/b3', 'ret/ret_in/b4', 'ret/ret_in/b4', 'ret2/ret_in/old', 'ret2/ret_in/b5',
          'ret3/ret_in/b6', 'ret2/ret_in/b7', 'ret/ret_in/b2'],
    array_fill('1'::jsonb, ARRAY[13]),
    ARRAY['2026-02-02', '2026-02-03', '2026-02-04', '2026-01-04', '2026-01-05', '2026-02-05', '2026-02-06',
          '2026-01-06', '2026-02-01', '2026-02-03', '2026-01-01', '2026-02-04', '2026-01-04']::timestamptz[]);
SELECT key, occurred_at FROM idem_event WHERE idem_key_operation(key) = 'ret_in' ORDER BY key;
\set VERBOSITY sqlstate
SELECT * FROM idem_consume_batch('{ret/ret_in/newer,ret/ret_in/b8}', '{1,1}', '{2026-02-02,NULL}');
SELECT * FROM idem_consume_batch('{ret/ret_in/b8,ret/ret_in/newer}', '{1,1}', '{2026-02-02,NULL}');
\set VERBOSITY default
SELECT idem_define_consumer('ret_in');
SELECT position, outcome FROM idem_consume_batch('{ret/ret_in/b9,ret/ret_in/b8,ret3/ret_in/b8}', '{1,1,1}',
    '{2026-02-02,2026-01-02,NULL}');
\set VERBOSITY sqlstate
SELECT * FROM idem_consume('ret/ret_in/b10', '1');
SELECT * FROM idem_consume_batch('{ret/ret_in/b10}', '{1}');
\set VERBOSITY default

-- the purge: everything is older than a microsecond, unless it occurs in 2099
SELECT idem_define_operation('PUR', retention => '1 us'),
       idem_define_operation('PUR_X', 'external', retention => '1 us'),
       idem_define_operation('PUR_OFF'), idem_define_operation('PUR_LONG', retention => '900 years'),
       idem_define_consumer('pur_in', retention => '1 us'), idem_define_consumer('pur_off'),
       idem_define_consumer('PUR', retention => '1 us');
SELECT count(idem_once(idem_key(t, o, i::text), '1', '2026-01-01 00:00Z'))
FROM unnest('{pur,pur2}'::text[]) t, unnest('{PUR,PUR_OFF,PUR_LONG}'::text[]) o, generate_series(1, 3) i;
SELECT idem_once('pur/PUR/2099', '1', '2099-01-01 00:00Z');
-- never what is not finished
BEGIN;
SELECT outcome FROM idem_submit('pur/PUR_X/pending', '1', '2026-01-01 00:00Z');
SELECT outcome FROM idem_claim('pur/PUR_X/processing', '1', '2026-01-01 00:00Z');
SELECT outcome FROM idem_claim('pur/PUR_X/unknown', '1', '2026-01-01 00:00Z');
SELECT outcome FROM idem_claim('pur/PUR_X/review', '1', '2026-01-01 00:00Z');
SELECT outcome FROM idem_claim('pur/PUR_X/done', '1', '2026-01-01 00:00Z');
SELECT outcome FROM idem_claim('pur/PUR_X/rejected', '1', '2026-01-01 00:00Z');
COMMIT;
SELECT idem_mark_unknown('pur/PUR_X/unknown', 1), idem_escalate('pur/PUR_X/review', 1),
       idem_complete('pur/PUR_X/done', 1, '{"n": 1}', 'ref'), idem_reject('pur/PUR_X/rejected', 1),
       idem_cancel('pur/PUR_X/cancelled', occurred_at => '2026-01-01 00:00Z');
SELECT count(*) FROM idem_consume_batch(
    '{pur/pur_in/1,pur/pur_in/2,pur2/pur_in/1,pur/pur_off/1,pur/PUR/1,pur/pur_in/2099}', array_fill('1'::jsonb, ARRAY[6]),
    '{2026-01-01,2026-01-01,2026-01-01,2026-01-01,2026-01-01,2099-01-01}');
SELECT idem_key_id(key) AS id, count(*) > 0 AS has_evidence FROM idem_evidence WHERE idem_key_tenant(key) = 'pur'
GROUP BY key ORDER BY key;
-- of one name
SELECT * FROM idem_purge(name => 'PUR');
SELECT key FROM idem_action WHERE idem_key_operation(key) = 'PUR';
SELECT key FROM idem_event WHERE idem_key_operation(key) = 'PUR';
SELECT * FROM idem_purge(name => 'PUR');
-- of all
SELECT actions_deleted, events_deleted, evidence_deleted > 0 AS evidence_deleted, is_done FROM idem_purge();
SELECT key FROM idem_action WHERE idem_key_tenant(key) IN ('pur', 'pur2') ORDER BY key;
SELECT key FROM idem_event WHERE idem_key_tenant(key) IN ('pur', 'pur2') ORDER BY key;
SELECT DISTINCT idem_key_id(key) AS id FROM idem_evidence WHERE idem_key_tenant(key) = 'pur' ORDER BY id;
SELECT key, until BETWEEN now() - interval '1 hour' AND now() AS is_cutoff FROM idem_watermark
WHERE idem_key_tenant(key) IN ('pur', 'pur2') ORDER BY key;
-- an old message comes again, as it was and stamped anew
SELECT outcome FROM idem_claim('pur/PUR_X/done', '1', '2026-01-01 00:00Z');
SELECT outcome FROM idem_claim('pur/PUR_X/done', '1', '2099-01-01 00:00Z');
SELECT outcome FROM idem_consume('pur/pur_in/1', '1', '2026-01-01 00:00Z');
SELECT outcome FROM idem_consume('pur/pur_in/2099', '1', '2099-01-01 00:00Z');
SELECT idem_once('pur/PUR_OFF/1', '1', '2026-01-01 00:00Z') AS off, idem_once('pur2/PUR_LONG/1', '1', '2026-01-01 00:00Z') AS long;
\set VERBOSITY sqlstate
SELECT idem_once('pur2/PUR/1', '1', '2026-01-01 00:00Z');
SELECT idem_once('pur2/PUR/1', '1');
SELECT idem_complete('pur/PUR_X/rejected', 1);
SELECT idem_drop_operation('PUR_X');
\set VERBOSITY default
-- a watermark never falls, also where a longer retention moves the cut-off back
SELECT idem_define_operation('PUR', retention => '1 day'), idem_once('pur3/PUR/1', '1', '2026-01-01 00:00Z');
UPDATE idem_action SET created_at = '2026-01-01 00:00Z' WHERE key = 'pur3/PUR/1'::idem_key;
UPDATE idem_watermark SET until = '2030-01-01 00:00Z' WHERE key = 'pur2/PUR/a'::idem_key;
INSERT INTO idem_watermark VALUES ('pur3/PUR/a', '2030-01-01 00:00Z');
SELECT * FROM idem_purge(name => 'PUR');
SELECT key, until FROM idem_watermark WHERE until = '2030-01-01 00:00Z' ORDER BY key;

-- results go earlier, and leave their digest
SELECT idem_define_operation('PUR', retention => '30 days', result_retention => '1 us'),
       idem_define_operation('PUR_X', 'external', result_retention => '1 us'),
       idem_define_consumer('pur_in', result_retention => '1 us');
SELECT idem_call('pur/PUR/call', '{"n": 1}', 'ret_echo', '2098-01-01 00:00Z');
SELECT outcome FROM idem_claim('pur/PUR_X/result', '{"n": 1}', '2098-01-01 00:00Z');
SELECT outcome FROM idem_claim('pur/PUR_X/error', '{"n": 1}', '2098-01-01 00:00Z');
SELECT outcome FROM idem_claim('pur/PUR_X/none', '{"n": 1}', '2098-01-01 00:00Z');
SELECT idem_complete('pur/PUR_X/result', 1, '{"b": 1.0, "a": 2}', 'ref2'), idem_reject('pur/PUR_X/error', 1, '{"code": 7}'),
       idem_complete('pur/PUR_X/none', 1);
BEGIN;
SELECT outcome FROM idem_consume('pur/pur_in/result', '{"n": 1}', '2098-01-01 00:00Z');
SELECT idem_consume_result('pur/pur_in/result', '[1]');
COMMIT;
SELECT * FROM idem_purge();
SELECT * FROM idem_purge();
SELECT key, params, result, error, result_digest = idem_digest(CASE idem_key_id(key) WHEN 'call' THEN '{"n": 1}'
       WHEN 'result' THEN '{"a": 2, "b": 1}' WHEN 'error' THEN '{"code": 7}' END::jsonb) AS is_digest
FROM idem_action WHERE idem_key_tenant(key) = 'pur' AND idem_key_id(key) IN ('call', 'result', 'error', 'none', 'processing')
ORDER BY key;
SELECT outcome, result, error, result_digest FROM idem_claim('pur/PUR_X/result', '{"n": 1.0}', '2098-01-01 00:00Z') \gx
SELECT outcome, result, error, result_digest FROM idem_claim('pur/PUR_X/error', '{"n": 1.0}', '2098-01-01 00:00Z') \gx
SELECT outcome, result, result_digest FROM idem_claim('pur/PUR_X/none', '{"n": 1.0}', '2098-01-01 00:00Z');
SELECT outcome, differs, result_digest FROM idem_claim('pur/PUR_X/result', '{"n": 2}', '2098-01-01 00:00Z');
SELECT state, result, result_digest IS NOT NULL AS is_dropped FROM idem_status('pur/PUR_X/result');
SELECT outcome, result, differs, result_digest FROM idem_consume('pur/pur_in/result', '{"n": 1}', '2098-01-01 00:00Z') \gx
SELECT outcome, result, differs, result_digest FROM idem_consume('pur/pur_in/result', '{"n": 2}', '2098-01-01 00:00Z');
SELECT outcome, result, result_digest = idem_digest('[1]'::jsonb) AS is_digest
FROM idem_consume_batch('{pur/pur_in/result}', '{"{\"n\": 1}"}', '{2098-01-01}');
SELECT key, params, result FROM idem_event WHERE key = 'pur/pur_in/result'::idem_key;
-- reported again, the same and another
SELECT idem_complete('pur/PUR_X/result', 1, '{"a": 2.0, "b": 1}'), idem_reject('pur/PUR_X/error', 1, '{"code": 7}'),
       idem_complete('pur/PUR_X/none', 1);
SELECT idem_call('pur/PUR/call', '{"n": 1}', 'ret_echo', '2098-01-01 00:00Z');
\set VERBOSITY sqlstate
SELECT idem_complete('pur/PUR_X/result', 1, '{"a": 2, "b": 2}');
SELECT idem_complete('pur/PUR_X/result', 1);
SELECT idem_complete('pur/PUR_X/result', 1, '{"a": 2.0, "b": 1}', 'ref3');
SELECT idem_complete('pur/PUR_X/none', 1, 'null');
SELECT idem_reject('pur/PUR_X/error', 1, '{"code": 8}');
SELECT idem_call('pur/PUR/call', '{"n": 1}', 'ret_echo', '2098-01-01 00:00Z');
\set VERBOSITY default

-- bounded: so many rows, and from where it stopped
SELECT idem_define_operation('PUR_N', retention => '1 us', result_retention => '1 us');
SELECT count(idem_once('pur/PUR_N/' || i, '1', '2026-01-01 00:00Z')) FROM generate_series(1, 10) i;
SELECT actions_deleted, is_done FROM idem_purge(4, 'PUR_N');
SELECT actions_deleted, is_done FROM idem_purge(4, 'PUR_N');
SELECT actions_deleted, is_done FROM idem_purge(4, 'PUR_N');
SELECT actions_deleted, is_done FROM idem_purge(4, 'PUR_N');
SELECT count(*) FROM idem_action WHERE idem_key_operation(key) = 'PUR_N';
-- rolled back, it has done nothing
SELECT idem_once('pur4/PUR_N/1', '1', '2026-01-01 00:00Z');
BEGIN;
SELECT actions_deleted, is_done FROM idem_purge(name => 'PUR_N');
ROLLBACK;
SELECT count(*) FROM idem_watermark WHERE key = 'pur4/PUR_N/a'::idem_key;
SELECT idem_once('pur4/PUR_N/1', '1', '2026-01-01 00:00Z');
-- twice in one transaction, and seen by it
BEGIN;
SELECT actions_deleted, is_done FROM idem_purge(name => 'PUR_N');
SELECT actions_deleted, is_done FROM idem_purge(name => 'PUR_N');
SAVEPOINT a;
SELECT idem_once('pur4/PUR_N/1', '1', '2026-01-01 00:00Z');
ROLLBACK TO a;
SELECT idem_once('pur4/PUR_N/2', '1', '2098-01-01 00:00Z');
COMMIT;
-- evidence goes with its action only
\set VERBOSITY sqlstate
DELETE FROM idem_evidence;
SELECT idem_purge(0);
SELECT idem_purge(1000001);
SELECT idem_purge(NULL);
SELECT idem_purge(name => 'PUR_NOBODY');
SELECT idem_purge(name => '');
BEGIN READ ONLY;
SELECT idem_purge();
ROLLBACK;
\set VERBOSITY default
-- a document that has no digest, so that it could never be dropped, is not taken
SELECT idem_define_operation('PUR_DEEP');
CREATE FUNCTION ret_deep(params jsonb) RETURNS jsonb LANGUAGE sql
AS $$ SELECT (repeat('[', params::int) || repeat(']', params::int))::jsonb $$;
CREATE FUNCTION ret_too_deep() RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    FOR depth IN 1..50 LOOP
        BEGIN
            PERFORM idem_call('pur/PUR_DEEP/' || depth, to_jsonb(depth * 1000), 'ret_deep');
        EXCEPTION WHEN statement_too_complex THEN
            RETURN 'refused';
        END;
    END LOOP;
    RETURN 'taken';
END $$;
SELECT ret_too_deep();
SELECT count(*) > 3 AS taken, count(*) FILTER (WHERE idem_digest(result) IS NULL) AS without_digest FROM idem_action
WHERE idem_key_operation(key) = 'PUR_DEEP';
DROP FUNCTION ret_echo, ret_deep, ret_too_deep;
SELECT idem_define_operation('PUR_X', 'external');

-- 1,000 events replayed of which 5 have been purged and 5 carry another payload, and 3 that are new:
-- the batch is on what is written, and what was on record is as it was
SELECT idem_define_consumer('ret_replay', retention => '900 days'),
       idem_define_operation('RET_REPLAY', 'external', retention => '900 days');
CREATE TABLE ret_message AS
SELECT i, idem_key('replay', 'ret_replay', 'e-' || i) AS key, jsonb_build_object('n', i) AS payload,
       CASE WHEN i <= 5 THEN '2020-01-01 00:00Z' ELSE '2026-01-01 00:00Z' END::timestamptz AS occurred_at,
       jsonb_build_object('offset', i) AS transport
FROM generate_series(1, 1000) i;
CREATE FUNCTION ret_consume_all(OUT outcome text, OUT events bigint) RETURNS SETOF record LANGUAGE sql AS $$
    SELECT b.outcome, count(*)
    FROM (SELECT array_agg(key ORDER BY i) AS keys, array_agg(payload ORDER BY i) AS payloads,
                 array_agg(occurred_at ORDER BY i) AS moments, array_agg(transport ORDER BY i) AS transports
          FROM ret_message) m,
         LATERAL idem_consume_batch(keys, payloads, moments, transports) b
    GROUP BY 1 ORDER BY 1
$$;
SELECT * FROM ret_consume_all();
UPDATE idem_event SET recorded_at = '2020-01-01 00:00Z' WHERE occurred_at = '2020-01-01 00:00Z';
SELECT events_deleted FROM idem_purge(name => 'ret_replay');
CREATE TABLE ret_before AS SELECT * FROM idem_event WHERE idem_key_operation(key) = 'ret_replay';
UPDATE ret_message SET payload = '{"n": 0}' WHERE i BETWEEN 6 AND 10;
INSERT INTO ret_message
SELECT i, idem_key('replay', 'ret_replay', 'e-' || i), '{}', '2026-01-01 00:00Z', '{}' FROM generate_series(1001, 1003) i;
SELECT outcome FROM idem_submit('replay/RET_REPLAY/a-1', '1', '2026-01-01 00:00Z');
BEGIN;
SET LOCAL idem_action.replay_batch = 'rb-1';
SELECT * FROM ret_consume_all();
SELECT outcome FROM idem_claim('replay/RET_REPLAY/a-1', '2', '2026-01-01 00:00Z');
SELECT outcome FROM idem_submit('replay/RET_REPLAY/a-2', '2', '2026-01-01 00:00Z');
SELECT outcome FROM idem_submit('replay/RET_REPLAY/a-1', '1', '2026-01-01 00:00Z');
COMMIT;
SELECT key, replay_batch FROM idem_event WHERE replay_batch IS NOT NULL AND idem_key_tenant(key) = 'replay' ORDER BY key;
SELECT count(*) AS as_before FROM ret_before b JOIN idem_event e ON (b::text) = (e::text);
SELECT key, call, state, replay_batch FROM idem_evidence WHERE idem_key_tenant(key) = 'replay' ORDER BY key, recorded_at;
DROP TABLE ret_message, ret_before;
DROP FUNCTION ret_consume_all;
