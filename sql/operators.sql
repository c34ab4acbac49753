-- operators: what awaits a person, and what only a person lets in
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS idem_action;
RESET client_min_messages;
SET timezone = 'UTC';
SELECT idem_define_operation('OP_N', 'external'),
       idem_define_operation('OP_Q', 'external', lease => '30 s', channel_queryable => true,
                             absence_visible_after => '60 s', max_attempts => 3,
                             backoff_base => '0', backoff_max => '0'),
       idem_define_operation('OP_M', 'external', channel => 'old', channel_queryable => true,
                             absence_visible_after => '0'),
       idem_define_operation('OP_R', 'external', retention => '30 days'),
       idem_define_operation('OP_L', 'local', retention => '30 days'),
       idem_define_operation('OP_P', 'external', retention => '30 days', keep_params => false);
-- instead of waiting
CREATE FUNCTION op_pass(k idem_key, by interval) RETURNS void LANGUAGE sql AS $$
    UPDATE idem_lease SET granted_at = granted_at - by, lease_until = lease_until - by,
        due_at = due_at - by, first_granted_at = first_granted_at - by,
        call_until = call_until - by WHERE key = k $$;
CREATE VIEW op_review AS
    SELECT r.key, r.operation, r.generation, r.attempt, r.since = a.updated_at AS since_move,
           replace(r.why, current_user, 'me') AS why, r.is_in_doubt, r.channel, r.channel_refs, r.owner,
           r.detail, r.params
    FROM idem_review r JOIN idem_action a USING (key) WHERE r.tenant = 'op';

-- why: escalated, by its owner or by whoever looked at it
SELECT outcome FROM idem_claim('op/OP_N/owner', '{"n": 1}', owner => 'w1');
SELECT idem_escalate('op/OP_N/owner', 1, '"strange account"');
SELECT outcome FROM idem_submit('op/OP_N/submitted', '{"n": 2}');
SELECT idem_escalate('op/OP_N/submitted', 1);
-- the contract allows nothing
SELECT outcome FROM idem_claim('op/OP_N/nothing', '{}', owner => 'w1');
SELECT idem_mark_unknown('op/OP_N/nothing', 1, '{"http": 504}', '0');
SELECT outcome FROM idem_reclaim('op/OP_N/nothing', 'w2');
-- attempts are used up, where the last one asked and where it did not
SELECT outcome FROM idem_claim('op/OP_Q/attempts', '{}', owner => 'w1');
SELECT idem_mark_unknown('op/OP_Q/attempts', 1, '1', '0');
SELECT outcome FROM idem_reclaim('op/OP_Q/attempts', 'w2');
SELECT idem_mark_unknown('op/OP_Q/attempts', 2, '2', '0');
SELECT outcome FROM idem_reclaim('op/OP_Q/attempts', 'w3');
SELECT idem_mark_unknown('op/OP_Q/attempts', 3, '3', '0');
SELECT outcome FROM idem_reclaim('op/OP_Q/attempts', 'w4');
SELECT outcome FROM idem_claim('op/OP_Q/absent', '{}', owner => 'w1');
SELECT op_pass('op/OP_Q/absent', '31 s');
SELECT outcome FROM idem_reclaim('op/OP_Q/absent', 'w2');
SELECT op_pass('op/OP_Q/absent', '31 s');
SELECT outcome FROM idem_reclaim('op/OP_Q/absent', 'w3');
SELECT outcome FROM idem_absent('op/OP_Q/absent', 3, '{"http": 404}');
-- the operation has moved to another channel, before and while somebody asks
SELECT outcome FROM idem_claim('op/OP_M/moved', '{}', owner => 'w1')
UNION ALL SELECT outcome FROM idem_claim('op/OP_M/asked', '{}', owner => 'w1');
SELECT idem_mark_unknown('op/OP_M/moved', 1, NULL, '0'), idem_mark_unknown('op/OP_M/asked', 1, NULL, '0');
SELECT outcome FROM idem_reclaim('op/OP_M/asked', 'w2');
SET client_min_messages = warning;
SELECT idem_define_operation('OP_M', 'external', channel => 'new', channel_queryable => true,
                             absence_visible_after => '0');
RESET client_min_messages;
SELECT outcome FROM idem_reclaim('op/OP_M/moved', 'w2');
SELECT outcome FROM idem_absent('op/OP_M/asked', 2);
SELECT key, generation, attempt, since_move, why, is_in_doubt, channel, owner, detail, params FROM op_review ORDER BY key;
-- when it was first granted and could last have been called
SELECT key, r.first_granted_at = l.first_granted_at AS first, r.call_until = l.call_until AS last
FROM idem_review r JOIN idem_lease l USING (key) WHERE r.tenant = 'op' ORDER BY key;

-- references that arrived, and what was said last; since is the move, not what came after it
SELECT idem_add_evidence('op/OP_N/nothing', NULL, '{"webhook": 1}', 're_2'),
       idem_add_evidence('op/OP_N/nothing', NULL, NULL, 're_1'),
       idem_add_evidence('op/OP_N/nothing', 1, NULL, 're_2');
SELECT channel_refs, detail, since_move FROM op_review WHERE key = 'op/OP_N/nothing';
-- a decision takes it off the list; what was before it is set aside if it comes again
\set VERBOSITY sqlstate
SELECT idem_resolve(key, generation, 'pending', 'looked before they arrived') FROM idem_review
WHERE key = 'op/OP_N/nothing';
\set VERBOSITY default
SELECT idem_resolve(key, generation, 'pending', 'both references are of another shop', NULL, channel_ref)
FROM idem_review WHERE key = 'op/OP_N/nothing';
SELECT count(*) FROM op_review WHERE key = 'op/OP_N/nothing';
SELECT idem_escalate('op/OP_N/nothing', 2);
SELECT generation, attempt, why, is_in_doubt, channel_refs, detail FROM op_review WHERE key = 'op/OP_N/nothing';
-- decisions of all three kinds, with the generation that the list shows
SELECT idem_resolve(key, generation, 'succeeded', 'in their ledger', '{"ok": true}', 're_3') FROM idem_review WHERE key = 'op/OP_Q/attempts';
SELECT idem_resolve(key, generation, 'rejected', 'customer asked again elsewhere', '"withdrawn"') FROM idem_review WHERE key = 'op/OP_Q/absent';
SELECT idem_resolve(key, generation, 'pending', 'not in their ledger') FROM idem_review WHERE key = 'op/OP_M/moved';
SELECT key, state, generation, result, error, channel_ref FROM idem_action
WHERE key IN ('op/OP_Q/attempts', 'op/OP_Q/absent', 'op/OP_M/moved') ORDER BY key;
SELECT key, state, generation, channel_ref, note FROM idem_evidence WHERE call = 'resolve' AND idem_key_tenant(key) = 'op'
ORDER BY recorded_at;
-- with another one, and with one of another state, nothing is decided
\set VERBOSITY sqlstate
SELECT idem_resolve('op/OP_N/owner', 2, 'pending', 'note');
SELECT idem_resolve('op/OP_N/owner', NULL, 'pending', 'note');
SELECT idem_resolve('op/OP_M/moved', 2, 'pending', 'note');
SELECT idem_resolve('op/OP_Q/attempts', 4, 'rejected', 'note');
SELECT idem_resolve('op/OP_N/owner', 1, 'unknown', 'note');
SELECT idem_resolve('op/OP_N/owner', 1, 'rejected', NULL);
SELECT idem_resolve('op/OP_N/owner', 1, 'rejected', ' ');
SELECT idem_resolve('op/OP_N/owner', 1, 'rejected', 'note', NULL, 'ref');
SELECT idem_resolve('op/OP_N/owner', 1, 'pending', 'note', '1');
\set VERBOSITY default
SELECT count(*) FROM idem_evidence WHERE key = 'op/OP_N/owner' AND call = 'resolve';

-- admitting: what occurred before the watermark (put there by hand) is expired
INSERT INTO idem_watermark VALUES ('op/OP_R/a', '2026-01-01 00:00Z'), ('op/OP_L/a', '2026-01-01 00:00Z'),
    ('op/OP_P/a', '2026-01-01 00:00Z');
SELECT outcome FROM idem_claim('op/OP_R/old', '{"n": 1}', '2025-12-31 00:00Z');
SELECT idem_admit('op/OP_R/old', '{"n": 1}', 'dead letter, never sent: see ticket 17', '2025-12-31 00:00Z');
SELECT key, state, last_call, attempt, params, occurred_at FROM idem_action WHERE key = 'op/OP_R/old';
SELECT call, state, generation, worker, note FROM idem_evidence WHERE key = 'op/OP_R/old';
SELECT event, note FROM idem_history('op/OP_R/old');
-- an action like any other
SELECT outcome, differs FROM idem_claim('op/OP_R/old', '{"n": 2}', '2025-12-31 00:00Z');
SELECT outcome, generation, attempt, params FROM idem_claim('op/OP_R/old', '{"n": 1}', '2025-12-31 00:00Z');
SELECT idem_complete('op/OP_R/old', 2, '1', 'ref');
SELECT outcome, result FROM idem_claim('op/OP_R/old', '{"n": 1}', '2025-12-31 00:00Z');
-- without the time at which it occurred
SELECT idem_admit('op/OP_R/undated', '{}', 'from the paper files');
SELECT outcome, generation FROM idem_claim('op/OP_R/undated', '{}', '2025-11-30 00:00Z');
-- what is on record, is not expired, or is local
SELECT idem_admit('op/OP_R/old', '{"n": 1}', 'again', '2025-12-31 00:00Z');
SELECT idem_admit('op/OP_R/new', '{}', 'note', '2026-01-01 00:00:01Z');
SELECT idem_admit('op/OP_L/old', '{}', 'note', '2025-12-31 00:00Z');
\set VERBOSITY sqlstate
SELECT idem_admit('other/OP_R/new', '{}', 'note', '2025-12-31 00:00Z');
SELECT idem_admit('other/OP_R/new', '{}', 'note');
SELECT idem_admit('op/OP_N/new', '{}', 'note', '2025-12-31 00:00Z');
SELECT idem_admit('op/OP_P/old', '{}', 'note', '2025-12-31 00:00Z');
SELECT idem_admit('op/OP_NONE/old', '{}', 'note', '2025-12-31 00:00Z');
SELECT idem_admit(NULL, '{}', 'note', '2025-12-31 00:00Z');
SELECT idem_admit('op/OP_R/x', NULL, 'note', '2025-12-31 00:00Z');
SELECT idem_admit('op/OP_R/x', '{}', NULL, '2025-12-31 00:00Z');
SELECT idem_admit('op/OP_R/x', '{}', '', '2025-12-31 00:00Z');
SELECT idem_admit('op/OP_R/x', '{}', 'note', 'infinity');
BEGIN READ ONLY; SELECT idem_admit('op/OP_R/x', '{}', 'note', '2025-12-31 00:00Z'); ROLLBACK;
BEGIN; SELECT idem_admit('op/OP_R/x', '{}', 'note', '2025-12-31 00:00Z'); PREPARE TRANSACTION 'op'; ROLLBACK;
\set VERBOSITY default
SELECT count(*) FROM idem_status('op/OP_R/x');

-- an operator of one tenant sees and admits what is his; who only monitors admits nothing
CREATE ROLE regress_op_one;
CREATE ROLE regress_op_monitor;
SELECT idem_grant('regress_op_one', 'operator', 'op'), idem_grant('regress_op_monitor', 'monitor', 'op');
SELECT outcome FROM idem_submit('other/OP_N/1', '{}');
SELECT idem_escalate('other/OP_N/1', 1);
SELECT count(DISTINCT tenant) > 1 AS several FROM idem_review;
SET ROLE regress_op_one;
SELECT DISTINCT tenant FROM idem_review;
\set VERBOSITY sqlstate
SELECT idem_admit('other/OP_R/x', '{}', 'note', '2025-12-31 00:00Z');
SELECT idem_resolve('other/OP_N/1', 1, 'pending', 'note');
SELECT idem_declare_loss(now(), now(), now());
SELECT * FROM idem_loss;
\set VERBOSITY default
SELECT idem_admit('op/OP_R/his', '{}', 'not executed', '2025-12-31 00:00Z');
RESET ROLE;
SELECT role_name, note FROM idem_evidence WHERE key = 'op/OP_R/his';
SET ROLE regress_op_monitor;
\set VERBOSITY sqlstate
SELECT count(*) FROM idem_review;
SELECT idem_admit('op/OP_R/x', '{}', 'note', '2025-12-31 00:00Z');
\set VERBOSITY default
RESET ROLE;
SELECT idem_revoke('regress_op_one', 'operator', 'op'), idem_revoke('regress_op_monitor', 'monitor', 'op');
REVOKE ALL ON SCHEMA public FROM regress_op_one, regress_op_monitor;
DROP ROLE regress_op_one, regress_op_monitor;

-- an action whose message died, one released and one unknown, replayed with the same ids
SELECT outcome FROM idem_claim('op/OP_N/s2-released', '{}', owner => 'w1')
UNION ALL SELECT outcome FROM idem_claim('op/OP_Q/s2-unknown', '{}', owner => 'w1');
SELECT idem_release('op/OP_N/s2-released', 1, '"shut down"', '0'), idem_mark_unknown('op/OP_Q/s2-unknown', 1, '"time-out"', '0');
BEGIN;
SET LOCAL idem_action.replay_batch = 'rb-7';
SELECT outcome, generation, attempt FROM idem_claim('op/OP_N/s2-released', '{}', owner => 'replay')
UNION ALL SELECT outcome, generation, attempt FROM idem_claim('op/OP_Q/s2-unknown', '{}', owner => 'replay');
COMMIT;
SELECT key, call, outcome, state, generation, replay_batch FROM idem_evidence
WHERE key IN ('op/OP_N/s2-released', 'op/OP_Q/s2-unknown') ORDER BY key, recorded_at;

DROP VIEW op_review;
DROP FUNCTION op_pass;
