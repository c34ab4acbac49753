-- verdict: the answer to whoever asks to act
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS idem_action;
RESET client_min_messages;

-- the first thing a newcomer types teaches: what defines an operation, and then the two ways out
SELECT * FROM idem_claim('acme/REFUND/r-1', '{}');
SELECT idem_define_operation('REFUND', effect => 'local');
SELECT * FROM idem_claim('acme/REFUND/r-1', '{}');
SELECT count(*) FROM idem_status('acme/REFUND/r-1');
BEGIN;
SELECT generation FROM idem_claim('acme/REFUND/r-1', '{}') \gset
SELECT idem_complete('acme/REFUND/r-1', :generation);
COMMIT;
SELECT idem_once('acme/REFUND/r-2', '{}');
SELECT state FROM idem_status('acme/REFUND/r-1')
UNION ALL SELECT state FROM idem_status('acme/REFUND/r-2');

-- what a driver sees: the columns, and their order
SELECT attname, format_type(atttypid, atttypmod) AS type
FROM pg_attribute WHERE attrelid = 'idem_verdict'::regclass AND attnum > 0 ORDER BY attnum;

-- Each outcome, whole: every column that is not null.  An end of a lease or a wait shows as how
-- long after the row's own updated_at it is; absence_conclusive_at depends on the clock here.
SELECT idem_define_operation('VER', 'external', channel => 'psp', lease => '60 s',
                             backoff_base => '0', channel_queryable => true,
                             absence_visible_after => '90 s');
SELECT idem_define_operation('VER_I', 'external', lease => '60 s', channel_idempotent => true,
                             channel_key_ttl => '1 day');
SELECT idem_define_operation('VER_N', 'external');
CREATE FUNCTION verdict_show(k idem_key, v idem_verdict) RETURNS text LANGUAGE sql AS $$
    SELECT string_agg(name || '=' || value, ' ' ORDER BY n)
    FROM (SELECT max(updated_at) AS at FROM idem_action WHERE key = k) AS a,
        LATERAL (VALUES
            (1, 'outcome', v.outcome), (2, 'generation', v.generation::text),
            (3, 'result', v.result::text), (4, 'error', v.error::text),
            (5, 'retry_at', (v.retry_at - a.at)::text), (6, 'attempt', v.attempt::text),
            (7, 'state', v.state), (8, 'lease_until', (v.lease_until - a.at)::text),
            (9, 'absence_conclusive_at', 'set' || left(v.absence_conclusive_at::text, 0)),
            (10, 'channel', v.channel), (11, 'channel_ref', v.channel_ref),
            (12, 'params', v.params::text), (13, 'differs', v.differs::text)) AS f (n, name, value)
$$;
CREATE FUNCTION verdict_pass(k idem_key, by interval) RETURNS void LANGUAGE sql AS $$
    UPDATE idem_lease SET granted_at = granted_at - by, lease_until = lease_until - by,
        due_at = due_at - by, first_granted_at = first_granted_at - by,
        call_until = call_until - by WHERE key = k $$;

-- accepted, execute, busy, conflict, and accepted once more
SELECT verdict_show('v/VER/1', v) FROM idem_submit('v/VER/1', '{"a": 1}') v;
SELECT verdict_show('v/VER/1', v) FROM idem_claim('v/VER/1', '{"a": 1}') v;
SELECT verdict_show('v/VER/1', v) FROM idem_claim('v/VER/1', '{"a": 1}') v;
SELECT verdict_show('v/VER/1', v) FROM idem_claim('v/VER/1', '{"a": 2, "b": 1}') v;
SELECT verdict_show('v/VER/1', v) FROM idem_submit('v/VER/1', '{"a": 1}') v;
SELECT verdict_show('v/VER/1', v) FROM idem_submit('v/VER/1', '{"a": 2}') v;
-- verify
SELECT verdict_pass('v/VER/1', '2 min');
SELECT verdict_show('v/VER/1', v) FROM idem_claim('v/VER/1', '{"a": 1}', lease => '70 s') v;
-- busy while somebody verifies, and after an absence that is not conclusive
SELECT verdict_show('v/VER/1', v) FROM idem_claim('v/VER/1', '{"a": 1}') v;
-- (60 s of lease and 90 s of waiting since a grant two minutes ago)
SELECT v.outcome, v.generation, v.state, v.attempt,
    v.retry_at = v.absence_conclusive_at AS till_then,
       v.absence_conclusive_at - l.call_until AS after_last_call, v.lease_until, v.params, v.channel
FROM idem_absent('v/VER/1', 3) v, idem_lease l WHERE l.key = 'v/VER/1';
SELECT v.outcome, v.generation, v.state, v.retry_at = v.absence_conclusive_at AS till_then
FROM idem_claim('v/VER/1', '{"a": 1}') v;
-- execute anew, from whoever verified late enough
SELECT verdict_pass('v/VER/1', '2 min');
SELECT outcome, generation FROM idem_claim('v/VER/1', '{"a": 1}');
SELECT verdict_show('v/VER/1', v) FROM idem_absent('v/VER/1', 4) v;
-- succeeded
SELECT idem_complete('v/VER/1', 5, '{"ok": true}', 'ref-1');
SELECT verdict_show('v/VER/1', v) FROM idem_claim('v/VER/1', '{"a": 1}') v;
SELECT verdict_show('v/VER/1', v) FROM idem_submit('v/VER/1', '{"a": 1}') v;
SELECT verdict_show('v/VER/1', v) FROM idem_reclaim('v/VER/1') v;
SELECT verdict_show('v/VER/1', v) FROM idem_claim('v/VER/1', '{"a": 1.5}') v;

-- repeat
SELECT verdict_show('v/VER_I/1', v) FROM idem_claim('v/VER_I/1', '{"a": 1}') v;
SELECT verdict_pass('v/VER_I/1', '2 min');
SELECT verdict_show('v/VER_I/1', v) FROM idem_claim('v/VER_I/1', '{"a": 1}') v;
-- busy while backing off
SELECT idem_mark_unknown('v/VER_I/1', 2, retry_after => '7 min');
SELECT verdict_show('v/VER_I/1', v) FROM idem_claim('v/VER_I/1', '{"a": 1}') v;
-- rejected
SELECT idem_reject('v/VER_I/1', 2, '"no"');
SELECT verdict_show('v/VER_I/1', v) FROM idem_claim('v/VER_I/1', '{"a": 1}') v;
SELECT verdict_show('v/VER_I/1', v) FROM idem_claim('v/VER_I/1', '{}') v;
SELECT idem_cancel('v/VER_I/2', '{"why": "tried"}');
SELECT verdict_show('v/VER_I/2', v) FROM idem_claim('v/VER_I/2', '{"any": 1}') v;
SELECT verdict_show('v/VER_I/2', v) FROM idem_reclaim('v/VER_I/2') v;

-- review
SELECT verdict_show('v/VER_N/1', v) FROM idem_claim('v/VER_N/1', '{"a": 1}') v;
SELECT verdict_pass('v/VER_N/1', '2 min');
SELECT verdict_show('v/VER_N/1', v) FROM idem_claim('v/VER_N/1', '{"a": 1}') v;
SELECT verdict_show('v/VER_N/1', v) FROM idem_claim('v/VER_N/1', '{"a": 1}') v;
SELECT verdict_show('v/VER_N/1', v) FROM idem_claim('v/VER_N/1', '{}') v;

-- a grant by key alone brings the parameters along
SELECT outcome FROM idem_submit('v/VER/2', '{"a": 1}');
SELECT verdict_show('v/VER/2', v) FROM idem_reclaim('v/VER/2') v;
SELECT verdict_show('v/VER/2', v) FROM idem_reclaim('v/VER/2') v;

-- local
BEGIN;
SELECT verdict_show('v/REFUND/1', v) FROM idem_claim('v/REFUND/1', '{"a": 1}') v;
SELECT idem_complete('v/REFUND/1', 1, '1');
SELECT verdict_show('v/REFUND/1', v) FROM idem_claim('v/REFUND/1', '{"a": 1}') v;
SELECT verdict_show('v/REFUND/1', v) FROM idem_claim('v/REFUND/1', '{"a": 2}') v;
COMMIT;

-- what differs: pointers, at most 16 of them, and never a value; unknown if nothing was kept
SELECT idem_define_operation('VER_K', 'external', keep_params => false);
SELECT outcome FROM idem_claim('v/VER_K/1', '{"secret": "s3cr3t"}');
SELECT verdict_show('v/VER_K/1', v) FROM idem_claim('v/VER_K/1', '{"secret": "other"}') v;
SELECT outcome FROM idem_claim('v/VER_N/d', '{"a": {"b": [1, 2]}, "c": 1, "d": null, "e/f": 1}');
SELECT outcome, differs
FROM idem_claim('v/VER_N/d', '{"a": {"b": [1, 3]}, "c": "1", "g": 1, "e/f": 2}');
SELECT outcome, differs FROM idem_claim('v/VER_N/d', '[]');
SELECT outcome, differs FROM idem_claim('v/VER_N/d', '1');
SELECT outcome, array_length(differs, 1)
FROM idem_claim('v/VER_N/d', (SELECT jsonb_object_agg('k' || i, i) FROM generate_series(1, 50) i));
DROP FUNCTION verdict_show, verdict_pass;
