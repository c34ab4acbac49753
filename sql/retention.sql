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
