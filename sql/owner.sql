-- owner: what the owner of a generation reports, and what an operator decides
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS idem_action;
RESET client_min_messages;
SELECT idem_define_operation('OWN', 'external', lease => '30 s'),
       idem_define_operation('OWN_Q', 'external', lease => '30 s', channel_queryable => true,
                             absence_visible_after => '60 s'),
       idem_define_operation('OWN_I', 'external', lease => '30 s', channel_idempotent => true,
                             channel_key_ttl => '1 h'),
       idem_define_operation('OWN_B', 'external', backoff_base => '10 s', backoff_max => '40 s'),
       idem_define_operation('OWN_L');
-- instead of waiting
CREATE FUNCTION owner_pass(k idem_key, by interval) RETURNS void LANGUAGE sql AS $$
    UPDATE idem_lease SET granted_at = granted_at - by, lease_until = lease_until - by,
        due_at = due_at - by, first_granted_at = first_granted_at - by,
        call_until = call_until - by WHERE key = k $$;
CREATE VIEW owner_rows AS
    SELECT key, state, last_call, generation, attempt, result, error, channel_ref, granted,
           lease_until IS NOT NULL AS leased, due_at IS NOT NULL AS waits,
           is_ambiguous, (SELECT e.detail FROM idem_evidence e WHERE e.key = idem_action.key
                          ORDER BY recorded_at DESC LIMIT 1) AS last_detail,
           (SELECT e.note FROM idem_evidence e WHERE e.key = idem_action.key
            ORDER BY recorded_at DESC LIMIT 1) AS last_note
    FROM idem_action LEFT JOIN idem_lease USING (key);
-- every row as it stands, to see what a repetition changes
CREATE FUNCTION owner_row(k idem_key) RETURNS text LANGUAGE sql AS $$
    SELECT a.ctid || ' ' || coalesce(l.ctid::text, '') FROM idem_action a LEFT JOIN idem_lease l
    USING (key) WHERE a.key = k $$;

-- complete: terminal; repeated with the same it changes nothing, with another it is refused
SELECT outcome, generation FROM idem_claim('o/OWN/1', '{}');
SELECT idem_complete('o/OWN/1', 1, '{"ok": 1, "n": 1.0}', 'ref');
SELECT * FROM owner_rows WHERE key = 'o/OWN/1' \gx
SELECT owner_row('o/OWN/1') AS row \gset
SELECT idem_complete('o/OWN/1', 1, '{"n": 1, "ok": 1}', 'ref');
SELECT owner_row('o/OWN/1') = :'row' AS unchanged;
SELECT idem_complete('o/OWN/1', 1, '{"ok": 2, "secret": "s3cr3t"}', 'ref');
SELECT idem_complete('o/OWN/1', 1, '{"ok": 1, "n": 1.0}', 'other');
-- without a reference it says nothing of it
SELECT idem_complete('o/OWN/1', 1, '{"ok": 1, "n": 1.0}');
\set VERBOSITY sqlstate
SELECT idem_complete('o/OWN/1', 1, NULL, 'ref');
SELECT idem_complete('o/OWN/1', 2, '{"ok": 1, "n": 1.0}', 'ref');
SELECT idem_reject('o/OWN/1', 1);
SELECT idem_mark_unknown('o/OWN/1', 1);
SELECT idem_release('o/OWN/1', 1);
SELECT idem_absent('o/OWN/1', 1);
SELECT idem_escalate('o/OWN/1', 1);
SELECT idem_renew('o/OWN/1', 1);
SELECT idem_resolve('o/OWN/1', 1, 'pending', 'note');
\set VERBOSITY default
SELECT idem_reject('o/OWN/1', 1);
SELECT owner_row('o/OWN/1') = :'row' AS unchanged;
-- null and JSON null are two results
SELECT outcome, generation FROM idem_claim('o/OWN/null', '{}');
SELECT idem_complete('o/OWN/null', 1);
SELECT idem_complete('o/OWN/null', 1);
\set VERBOSITY sqlstate
SELECT idem_complete('o/OWN/null', 1, 'null');
\set VERBOSITY default
SELECT outcome, result FROM idem_claim('o/OWN/null', '{}');

-- reject: likewise, with its error
SELECT outcome, generation FROM idem_claim('o/OWN/2', '{}');
SELECT idem_reject('o/OWN/2', 1, '{"code": "no"}');
SELECT * FROM owner_rows WHERE key = 'o/OWN/2' \gx
SELECT owner_row('o/OWN/2') AS row \gset
SELECT idem_reject('o/OWN/2', 1, '{"code": "no"}');
SELECT owner_row('o/OWN/2') = :'row' AS unchanged;
SELECT idem_reject('o/OWN/2', 1, '{"code": "other"}');
\set VERBOSITY sqlstate
SELECT idem_reject('o/OWN/2', 1);
SELECT idem_reject('o/OWN/2', 2, '{"code": "no"}');
SELECT idem_complete('o/OWN/2', 1);
SELECT idem_mark_unknown('o/OWN/2', 1);
SELECT idem_release('o/OWN/2', 1);
SELECT idem_escalate('o/OWN/2', 1);
SELECT idem_renew('o/OWN/2', 1);
\set VERBOSITY default
SELECT outcome, error FROM idem_claim('o/OWN/2', '{}');
-- what was cancelled was not rejected by an owner
SELECT idem_cancel('o/OWN/cancelled');
\set VERBOSITY sqlstate
SELECT idem_reject('o/OWN/cancelled', 1);
\set VERBOSITY default

-- mark_unknown: nobody knows; repeated it changes nothing
SELECT outcome, generation FROM idem_claim('o/OWN_Q/3', '{}');
SELECT idem_mark_unknown('o/OWN_Q/3', 1, '"timeout"', '5 min');
SELECT * FROM owner_rows WHERE key = 'o/OWN_Q/3' \gx
SELECT owner_row('o/OWN_Q/3') AS row \gset
SELECT idem_mark_unknown('o/OWN_Q/3', 1, '"again"', '0');
SELECT owner_row('o/OWN_Q/3') = :'row' AS unchanged;
-- a release would contradict it, and nobody owns it any more
\set VERBOSITY sqlstate
SELECT idem_release('o/OWN_Q/3', 1);
SELECT idem_renew('o/OWN_Q/3', 1);
SELECT idem_absent('o/OWN_Q/3', 1);
SELECT idem_resolve('o/OWN_Q/3', 1, 'succeeded', 'note');
\set VERBOSITY default
-- a call could have started until it said so, not until its lease would have ended
SELECT call_until - updated_at AS since_said, due_at - updated_at AS wait
FROM idem_action JOIN idem_lease USING (key) WHERE key = 'o/OWN_Q/3';
-- it is never a failure by age: verify once due, and unknown again
SELECT outcome, retry_at - updated_at AS wait FROM idem_claim('o/OWN_Q/3', '{}'), idem_action
WHERE key = 'o/OWN_Q/3';
SELECT owner_pass('o/OWN_Q/3', '5 min');
SELECT outcome, generation, params FROM idem_claim('o/OWN_Q/3', '{}');
-- verify moves nothing of what acting attempts did
SELECT granted, call_until < granted_at AS before, first_granted_at < granted_at AS first_before,
    is_ambiguous
FROM idem_lease WHERE key = 'o/OWN_Q/3';
SELECT call_until, first_granted_at FROM idem_lease WHERE key = 'o/OWN_Q/3' \gset
SELECT idem_mark_unknown('o/OWN_Q/3', 2, retry_after => '0');
SELECT call_until = :'call_until' AS same, first_granted_at = :'first_granted_at' AS same
FROM idem_lease WHERE key = 'o/OWN_Q/3';
-- what is unknown may turn out
SELECT idem_complete('o/OWN_Q/3', 2, '1', 'found');
SELECT state, result, channel_ref FROM idem_status('o/OWN_Q/3');
SELECT outcome FROM idem_claim('o/OWN_Q/3b', '{}');
SELECT idem_mark_unknown('o/OWN_Q/3b', 1);
SELECT idem_reject('o/OWN_Q/3b', 1, '"refused after all"');
SELECT state, error FROM idem_status('o/OWN_Q/3b');

-- release: pending again, with its detail; repeated it changes nothing
SELECT outcome FROM idem_claim('o/OWN/4', '{}');
SELECT idem_release('o/OWN/4', 1, '"busy"', '1 min');
SELECT * FROM owner_rows WHERE key = 'o/OWN/4' \gx
SELECT owner_row('o/OWN/4') AS row \gset
SELECT idem_release('o/OWN/4', 1);
SELECT owner_row('o/OWN/4') = :'row' AS unchanged;
\set VERBOSITY sqlstate
SELECT idem_complete('o/OWN/4', 1);
SELECT idem_reject('o/OWN/4', 1);
SELECT idem_mark_unknown('o/OWN/4', 1);
SELECT idem_renew('o/OWN/4', 1);
\set VERBOSITY default
-- unknown if an earlier attempt may have executed
SELECT outcome FROM idem_claim('o/OWN_I/4', '{}');
SELECT owner_pass('o/OWN_I/4', '1 min');
SELECT outcome, generation FROM idem_claim('o/OWN_I/4', '{}');
SELECT idem_release('o/OWN_I/4', 2, retry_after => '0');
SELECT state, last_call, is_ambiguous FROM owner_rows WHERE key = 'o/OWN_I/4';
SELECT owner_row('o/OWN_I/4') AS row \gset
SELECT idem_release('o/OWN_I/4', 2);
SELECT owner_row('o/OWN_I/4') = :'row' AS unchanged;
SELECT outcome, generation FROM idem_claim('o/OWN_I/4', '{}');
-- a released attempt is none that may have executed
SELECT outcome FROM idem_claim('o/OWN_I/5', '{}');
SELECT idem_release('o/OWN_I/5', 1, retry_after => '0');
SELECT outcome, generation FROM idem_claim('o/OWN_I/5', '{}');
-- released in the transaction of its grant
BEGIN;
SELECT outcome FROM idem_claim('o/OWN/5', '{}');
SELECT idem_release('o/OWN/5', 1);
COMMIT;
SELECT state FROM idem_status('o/OWN/5');

-- without retry_after the wait is between 0 and a step that doubles: 10 s, 20 s, then 40 s
CREATE TABLE owner_waits (attempt int, wait interval);
DO $$
DECLARE
    k idem_key;
    g bigint;
BEGIN
    FOR i IN 1 .. 40 LOOP
        k := idem_key('o', 'OWN_B', 'b-' || i);
        FOR n IN 1 .. 5 LOOP
            SELECT generation INTO STRICT g FROM idem_claim(k, '{}');
            PERFORM idem_release(k, g);
            INSERT INTO owner_waits SELECT n, due_at - updated_at FROM idem_action
                JOIN idem_lease USING (key) WHERE key = k;
            PERFORM owner_pass(k, '1 min');
        END LOOP;
    END LOOP;
END $$;
SELECT attempt, min(wait) >= '0' AS not_negative,
    max(wait) <= least(10 * 2 ^ (attempt - 1), 40) * interval '1 s' AS within,
       max(wait) > least(10 * 2 ^ (attempt - 1), 40) * interval '0.5 s' AS spread_above,
       min(wait) < least(10 * 2 ^ (attempt - 1), 40) * interval '0.5 s' AS spread_below
FROM owner_waits GROUP BY attempt ORDER BY attempt;
DROP TABLE owner_waits;

-- absent: only under verify, and conclusive only if asked late enough after the last call
SELECT outcome FROM idem_claim('o/OWN_Q/6', '{"n": 1}');
\set VERBOSITY sqlstate
SELECT idem_absent('o/OWN_Q/6', 1);
\set VERBOSITY default
SELECT idem_absent('o/OWN_Q/6', 1);
SELECT owner_pass('o/OWN_Q/6', '61 s');		-- of 30 s lease and 60 s until absence shows
SELECT outcome, generation, params, absence_conclusive_at - call_until AS after_last_call
FROM idem_claim('o/OWN_Q/6', '{"n": 1}'), idem_lease WHERE key = 'o/OWN_Q/6';
SELECT outcome, generation, state, retry_at = absence_conclusive_at AS till_then
FROM idem_absent('o/OWN_Q/6', 2, '"not found"');
SELECT * FROM owner_rows WHERE key = 'o/OWN_Q/6' \gx
-- said again it changes nothing
SELECT owner_row('o/OWN_Q/6') AS row \gset
SELECT outcome, generation, retry_at = absence_conclusive_at AS till_then
FROM idem_absent('o/OWN_Q/6', 2);
SELECT owner_row('o/OWN_Q/6') = :'row' AS unchanged;
-- everybody waits, and asking again later is conclusive
SELECT outcome, retry_at = absence_conclusive_at AS till_then
FROM idem_claim('o/OWN_Q/6', '{"n": 1}');
SELECT owner_pass('o/OWN_Q/6', '30 s');
SELECT outcome, generation FROM idem_claim('o/OWN_Q/6', '{"n": 1}');
SELECT outcome, generation, attempt, state, lease_until > clock_timestamp() AS leased, channel,
    params
FROM idem_absent('o/OWN_Q/6', 3);
-- the attempts before are known not to have executed, the clocks of the history go on
SELECT granted, is_ambiguous, first_granted_at < granted_at AS first_kept,
    call_until = lease_until AS call_moved
FROM idem_lease WHERE key = 'o/OWN_Q/6';
-- the generation that asked is stale, and the new one may be released to pending
\set VERBOSITY sqlstate
SELECT idem_absent('o/OWN_Q/6', 3);
SELECT idem_complete('o/OWN_Q/6', 3);
\set VERBOSITY default
SELECT idem_release('o/OWN_Q/6', 4);
SELECT state FROM idem_status('o/OWN_Q/6');
-- a worker that asked before that moment and says so after it is not conclusive either
SELECT outcome FROM idem_claim('o/OWN_Q/7', '{}');
SELECT owner_pass('o/OWN_Q/7', '31 s');
SELECT outcome FROM idem_claim('o/OWN_Q/7', '{}');
SELECT owner_pass('o/OWN_Q/7', '90 s');
SELECT outcome, retry_at <= clock_timestamp() AS at_once FROM idem_absent('o/OWN_Q/7', 2);
SELECT outcome FROM idem_claim('o/OWN_Q/7', '{}');
-- once a reference is on record the channel knows it (put there by hand)
UPDATE idem_action SET channel_ref = 'ref' WHERE key = 'o/OWN_Q/7';
SELECT idem_absent('o/OWN_Q/7', 3);
SELECT idem_release('o/OWN_Q/7', 3);
SELECT owner_pass('o/OWN_Q/7', '1 day');
SELECT outcome, channel_ref FROM idem_claim('o/OWN_Q/7', '{}');
SELECT idem_complete('o/OWN_Q/7', 4, NULL, 'ref');
-- also where the channel cannot be asked by key
SELECT outcome FROM idem_claim('o/OWN/7', '{}');
UPDATE idem_action SET channel_ref = 'ref' WHERE key = 'o/OWN/7';
SELECT owner_pass('o/OWN/7', '1 min');
SELECT outcome, channel_ref FROM idem_claim('o/OWN/7', '{}');
-- a report without a reference leaves the recorded one in place, and so does its repetition
SELECT idem_complete('o/OWN/7', 2, '1');
SELECT idem_complete('o/OWN/7', 2, '1');
SELECT state, channel_ref FROM idem_status('o/OWN/7');

-- escalate: from pending, processing and unknown, also with the generation of birth
SELECT outcome FROM idem_submit('o/OWN/8', '{}');
SELECT idem_escalate('o/OWN/8', 1, '"strange"');
SELECT * FROM owner_rows WHERE key = 'o/OWN/8' \gx
SELECT owner_row('o/OWN/8') AS row \gset
SELECT idem_escalate('o/OWN/8', 1);
SELECT owner_row('o/OWN/8') = :'row' AS unchanged;
SELECT outcome, generation FROM idem_claim('o/OWN/8', '{}');
\set VERBOSITY sqlstate
SELECT idem_release('o/OWN/8', 1);
SELECT idem_mark_unknown('o/OWN/8', 1);
SELECT idem_renew('o/OWN/8', 1);
SELECT idem_absent('o/OWN/8', 1);
\set VERBOSITY default
SELECT outcome FROM idem_claim('o/OWN/9', '{}');
SELECT idem_mark_unknown('o/OWN/9', 1);
SELECT idem_escalate('o/OWN/9', 1);
SELECT state, is_ambiguous FROM owner_rows WHERE key = 'o/OWN/9';
-- who escalates what a claim put in review has what he wants
SELECT outcome FROM idem_claim('o/OWN/10', '{}');
SELECT owner_pass('o/OWN/10', '1 min');
SELECT outcome, generation FROM idem_claim('o/OWN/10', '{}');
SELECT idem_escalate('o/OWN/10', 1);
-- what is in review may still be reported by its newest generation
SELECT idem_complete('o/OWN/10', 1, '1');
SELECT idem_reject('o/OWN/9', 1);
SELECT key, state FROM owner_rows WHERE key IN ('o/OWN/9', 'o/OWN/10') ORDER BY key;

-- resolve, to each of three: a note, the generation that was seen, and a new one
SELECT outcome FROM idem_claim('o/OWN/s', '{}')
UNION ALL SELECT outcome FROM idem_claim('o/OWN/r', '{}')
UNION ALL SELECT outcome FROM idem_claim('o/OWN/p', '{}');
SELECT idem_escalate('o/OWN/s', 1), idem_escalate('o/OWN/r', 1), idem_escalate('o/OWN/p', 1);
UPDATE idem_action SET channel_ref = 'old ref' WHERE key = 'o/OWN/p';
SELECT idem_resolve('o/OWN/s', 1, 'succeeded', 'asked the bank', '{"ok": 1}', 'ref');
SELECT idem_resolve('o/OWN/r', 1, 'rejected', 'asked the bank', '{"code": "no"}');
\set VERBOSITY sqlstate
SELECT idem_resolve('o/OWN/p', 1, 'pending', 'never arrived');
SELECT idem_resolve('o/OWN/p', 1, 'rejected', 'never arrived', NULL, 'another ref');
\set VERBOSITY default
SELECT idem_resolve('o/OWN/p', 1, 'pending', 'never arrived, says the bank of old ref', NULL, 'old ref');
SELECT key, state, last_call, generation, attempt, result, error, channel_ref, last_note FROM owner_rows
WHERE key IN ('o/OWN/s', 'o/OWN/r', 'o/OWN/p') ORDER BY key;
-- pending starts a fresh history: due at once, attempts from 1, execute whatever was before
SELECT owner, first_granted_at, first_revision, call_until, is_ambiguous,
    due_at <= clock_timestamp() AS due
FROM idem_lease WHERE key = 'o/OWN/p';
SELECT outcome, generation, attempt, channel_ref FROM idem_claim('o/OWN/p', '{}');
-- who had it before is stale, and the decision is not made twice
\set VERBOSITY sqlstate
SELECT idem_complete('o/OWN/s', 1, '{"ok": 1}', 'ref');
SELECT idem_complete('o/OWN/p', 1);
SELECT idem_resolve('o/OWN/s', 1, 'succeeded', 'asked the bank', '{"ok": 1}', 'ref');
SELECT idem_resolve('o/OWN/s', 2, 'rejected', 'asked again');
SELECT idem_resolve('o/OWN/p', 3, 'pending', 'once more');
SELECT idem_resolve('o/OWN/none', 1, 'pending', 'note');
\set VERBOSITY default
SELECT outcome, result, channel_ref FROM idem_claim('o/OWN/s', '{}');
SELECT outcome, error FROM idem_claim('o/OWN/r', '{}');
-- what does not fit
\set VERBOSITY terse
SELECT idem_resolve('o/OWN/8', 1, NULL, 'note');
SELECT idem_resolve('o/OWN/8', 1, 'review', 'note');
SELECT idem_resolve('o/OWN/8', 1, 'Succeeded', 'note');
SELECT idem_resolve('o/OWN/8', 1, 'pending', NULL);
SELECT idem_resolve('o/OWN/8', 1, 'pending', '');
SELECT idem_resolve('o/OWN/8', 1, 'pending', 'note', '1');
SELECT idem_resolve('o/OWN/8', 1, 'pending', 'note', NULL, 'ref');
SELECT idem_resolve('o/OWN/8', 1, 'rejected', 'note', '1', 'ref');
SELECT idem_resolve('o/OWN/8', 2, 'pending', 'note');
SELECT state, generation FROM idem_status('o/OWN/8');
-- of an action never granted
SELECT idem_resolve('o/OWN/8', 1, 'pending', 'go on');
SELECT outcome, generation, attempt FROM idem_claim('o/OWN/8', '{}');

-- renew: from now on, for the contract's lease or another, also after a lapse, also shorter
\set VERBOSITY default
SELECT outcome FROM idem_claim('o/OWN/11', '{}', lease => '1 h');
SELECT r AS renewed, r - interval '30 s' BETWEEN now() AND clock_timestamp() AS contracts
FROM idem_renew('o/OWN/11', 1) r \gset
SELECT :'contracts' AS contracts, lease_until = :'renewed' AS recorded,
    call_until > lease_until AS call_until_kept
FROM idem_lease WHERE key = 'o/OWN/11';
SELECT r - interval '2 h' BETWEEN now() AND clock_timestamp() AS longer
FROM idem_renew('o/OWN/11', 1, '2 h') r;
SELECT lease_until = call_until AS call_until_moved FROM idem_lease WHERE key = 'o/OWN/11';
SELECT owner_pass('o/OWN/11', '3 h');
SELECT idem_renew('o/OWN/11', 1) > clock_timestamp() AS taken_up_again;
SELECT outcome FROM idem_claim('o/OWN/11', '{}');
SELECT generation, attempt, state FROM idem_status('o/OWN/11');
\set VERBOSITY sqlstate
SELECT idem_renew('o/OWN/11', 1, '0');
SELECT idem_renew('o/OWN/11', 1, '-1 s');
SELECT idem_renew('o/OWN/11', 1, '25 h');
SELECT idem_renew('o/OWN/11', 2);
SELECT idem_renew('o/OWN/none', 1);
\set VERBOSITY default
-- under repeat never past the life of the channel's key, and not at all after it
SELECT outcome FROM idem_claim('o/OWN_I/12', '{}');
SELECT owner_pass('o/OWN_I/12', '59 min');
SELECT outcome, generation FROM idem_claim('o/OWN_I/12', '{}', lease => '30 s');
SELECT idem_renew('o/OWN_I/12', 2, '5 min') = first_granted_at + '1 h' AS end_of_key
FROM idem_lease WHERE key = 'o/OWN_I/12';
SELECT owner_pass('o/OWN_I/12', '2 min');
SELECT idem_renew('o/OWN_I/12', 2, '5 min');
-- the first attempt has no such bound
SELECT outcome FROM idem_claim('o/OWN_I/13', '{}');
SELECT owner_pass('o/OWN_I/13', '2 h');
SELECT idem_renew('o/OWN_I/13', 1, '5 min') > clock_timestamp() + '4 min' AS unbounded;

-- a grant may be acted on only after its commit
BEGIN;
SELECT outcome FROM idem_claim('o/OWN/14', '{}');
SELECT idem_complete('o/OWN/14', 1);
ROLLBACK;
\set VERBOSITY sqlstate
BEGIN;
SELECT outcome FROM idem_claim('o/OWN/14', '{}');
SELECT idem_mark_unknown('o/OWN/14', 1);
ROLLBACK;
BEGIN;
SELECT outcome FROM idem_submit('o/OWN/14', '{}');
SELECT outcome, generation FROM idem_reclaim('o/OWN/14');
SELECT idem_complete('o/OWN/14', 2);
ROLLBACK;
-- also in a savepoint; reject and escalate say nothing of the channel
BEGIN;
SELECT outcome FROM idem_claim('o/OWN/14', '{}');
SAVEPOINT a;
SELECT idem_complete('o/OWN/14', 1);
ROLLBACK TO a;
SELECT idem_escalate('o/OWN/14', 1);
COMMIT;
BEGIN;
SELECT outcome FROM idem_claim('o/OWN/15', '{}');
SELECT idem_reject('o/OWN/15', 1);
COMMIT;
SELECT state FROM idem_status('o/OWN/14') UNION ALL SELECT state FROM idem_status('o/OWN/15');
-- the generation of a grant before it is not this transaction's
SELECT outcome FROM idem_claim('o/OWN/16', '{}');
BEGIN;
SELECT idem_complete('o/OWN/16', 1);
SELECT idem_complete('o/OWN/16', 1);
COMMIT;
\set VERBOSITY default

-- any generation but the newest, and none at all
SELECT outcome FROM idem_claim('o/OWN_Q/17', '{}');
SELECT owner_pass('o/OWN_Q/17', '1 min');
SELECT outcome, generation FROM idem_claim('o/OWN_Q/17', '{}');
SELECT idem_complete('o/OWN_Q/17', 1, '{"secret": "s3cr3t"}');
SELECT idem_complete('o/OWN_Q/17', 3);
SELECT idem_complete('o/OWN_Q/17', NULL, '{"secret": "s3cr3t"}');
SELECT idem_complete('o/OWN_Q/17', 0);
\set VERBOSITY sqlstate
SELECT idem_complete('o/OWN_Q/17', -1);
SELECT idem_complete('o/OWN_Q/17', 9223372036854775807);
\set VERBOSITY default
SELECT generation, state FROM idem_status('o/OWN_Q/17');

-- an unknown key
SELECT idem_complete('o/OWN/none', 1);

-- local operations know claim, complete, reject and cancel
BEGIN;
SELECT outcome FROM idem_claim('o/OWN_L/1', '{}');
SAVEPOINT a;
SELECT idem_release('o/OWN_L/1', 1);
ROLLBACK TO a;
\set VERBOSITY sqlstate
SELECT idem_renew('o/OWN_L/1', 1);
ROLLBACK TO a;
SELECT idem_mark_unknown('o/OWN_L/1', 1);
ROLLBACK TO a;
SELECT idem_absent('o/OWN_L/1', 1);
ROLLBACK TO a;
SELECT idem_escalate('o/OWN_L/1', 1);
ROLLBACK TO a;
SELECT idem_resolve('o/OWN_L/1', 1, 'pending', 'note');
ROLLBACK TO a;
SELECT idem_complete('o/OWN_L/1', 2);
ROLLBACK TO a;
SELECT idem_complete('o/OWN_L/1', 1, '1');
SELECT idem_complete('o/OWN_L/1', 1, '1');
SAVEPOINT a;
SELECT idem_complete('o/OWN_L/1', 1, '2');
ROLLBACK TO a;
COMMIT;
SELECT idem_complete('o/OWN_L/1', 1, '1');
SELECT idem_complete('o/OWN_L/1', 1, '2');
SELECT idem_reject('o/OWN_L/1', 1);
SELECT idem_release('o/OWN_L/1', 1);
-- rejected, and so answered ever after
BEGIN;
SELECT outcome FROM idem_claim('o/OWN_L/2', '{}');
SELECT idem_reject('o/OWN_L/2', 1, '"no"');
COMMIT;
SELECT idem_reject('o/OWN_L/2', 1, '"no"');
SELECT outcome, error FROM idem_claim('o/OWN_L/2', '{}');

-- a read-only transaction reports nothing
BEGIN READ ONLY; SELECT idem_complete('o/OWN_Q/17', 2); ROLLBACK;
BEGIN READ ONLY; SELECT idem_reject('o/OWN_Q/17', 2); ROLLBACK;
BEGIN READ ONLY; SELECT idem_mark_unknown('o/OWN_Q/17', 2); ROLLBACK;
BEGIN READ ONLY; SELECT idem_release('o/OWN_Q/17', 2); ROLLBACK;
BEGIN READ ONLY; SELECT idem_absent('o/OWN_Q/17', 2); ROLLBACK;
BEGIN READ ONLY; SELECT idem_escalate('o/OWN_Q/17', 2); ROLLBACK;
BEGIN READ ONLY; SELECT idem_renew('o/OWN_Q/17', 2); ROLLBACK;
BEGIN READ ONLY; SELECT idem_resolve('o/OWN_Q/17', 2, 'pending', 'note'); ROLLBACK;
\set VERBOSITY default

-- what is written beside a refused report rolls back with it
CREATE TEMPORARY TABLE business (n int);
BEGIN;
INSERT INTO business VALUES (1);
SELECT idem_complete('o/OWN_Q/17', 1);
COMMIT;
SELECT count(*) FROM business;

DROP VIEW owner_rows;
DROP FUNCTION owner_pass, owner_row;
