-- what happened to each action
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS idem_action;
RESET client_min_messages;
SELECT idem_define_operation('EV', 'external', channel_queryable => true, absence_visible_after => '1 s',
           max_attempts => 4, backoff_base => '0', backoff_max => '0'),
       idem_define_operation('EV_N', 'external', digest_include => '{/n}'),
       idem_define_operation('EV_L'),
       idem_define_consumer('ev');
-- instead of waiting
CREATE FUNCTION ev_pass(k idem_key, by interval) RETURNS void LANGUAGE sql AS $$
    UPDATE idem_lease SET granted_at = granted_at - by, lease_until = lease_until - by,
        due_at = due_at - by, first_granted_at = first_granted_at - by,
        call_until = call_until - by WHERE key = k $$;
CREATE VIEW ev_rows AS
    SELECT key, call, outcome, state, generation, attempt, worker, role_name = current_user AS by_me,
           lease_until IS NOT NULL AS leased, detail, channel_ref, digest IS NOT NULL AS digest,
           transport, replay_batch, note
    FROM idem_evidence WHERE idem_key_tenant(key) = 'e' ORDER BY recorded_at;

-- every grant and every move, with who, what he said and which message
SELECT outcome FROM idem_submit('e/EV/1', '{"n": 1}', transport => '{"id": "m-1"}');
SELECT outcome FROM idem_claim('e/EV/1', '{"n": 1}', owner => 'w1', transport => '{"id": "m-2"}');
SELECT idem_mark_unknown('e/EV/1', 2, '{"why": "time-out"}');
SELECT outcome FROM idem_reclaim('e/EV/1', 'w2');
SELECT outcome FROM idem_absent('e/EV/1', 3, '{"http": 404}');
SELECT ev_pass('e/EV/1', '2 min');
SELECT outcome FROM idem_reclaim('e/EV/1', 'w3');
SELECT outcome FROM idem_absent('e/EV/1', 4, '{"http": 404}');
SELECT idem_release('e/EV/1', 5, '"shutting down"');
SELECT outcome FROM idem_claim('e/EV/1', '{"n": 1}', owner => 'w4');
SELECT idem_resolve('e/EV/1', 5, 'succeeded', 'asked the bank', '{"ok": 1}', 'ref-1');
SELECT call, outcome, state, generation, attempt, worker, by_me, leased, detail, channel_ref, transport, note
FROM ev_rows WHERE key = 'e/EV/1';
SELECT outcome FROM idem_claim('e/EV/2', '{}');
SELECT idem_escalate('e/EV/2', 1, '"odd"');
SELECT idem_resolve('e/EV/2', 1, 'pending', 'never arrived');
SELECT outcome FROM idem_reclaim('e/EV/2');
SELECT idem_reject('e/EV/2', 3, '{"code": "closed"}');
SELECT outcome FROM idem_submit('e/EV/3', '{}');
SELECT idem_cancel('e/EV/3', '"changed my mind"'), idem_cancel('e/EV/4');
SELECT key, call, outcome, state, generation, attempt, detail, note FROM ev_rows
WHERE key IN ('e/EV/2', 'e/EV/3', 'e/EV/4');

-- nothing is written where nothing moves: renewals, duplicates, repetitions, refusals, rollbacks
SELECT count(*) AS rows FROM idem_evidence \gset
SELECT outcome FROM idem_claim('e/EV/1', '{"n": 1}')
UNION ALL SELECT outcome FROM idem_submit('e/EV/1', '{"n": 1}');
SELECT idem_reject('e/EV/2', 3, '{"code": "closed"}');
\set VERBOSITY sqlstate
SELECT idem_complete('e/EV/2', 3);
SELECT idem_complete('e/EV/2', 1);
\set VERBOSITY default
BEGIN; SELECT outcome FROM idem_submit('e/EV/5', '{}'); ROLLBACK;
SELECT count(*) - :rows AS more FROM idem_evidence;
SELECT outcome FROM idem_claim('e/EV/6', '{}');
SELECT idem_renew('e/EV/6', 1) IS NOT NULL AS renewed;
SELECT count(*) - :rows AS more FROM idem_evidence;

-- a local action is its own evidence, but for the message that led to it
SELECT idem_once('e/EV_L/1', '{"n": 1}');
BEGIN;
SELECT outcome FROM idem_claim('e/EV_L/2', '{}');
SELECT idem_reject('e/EV_L/2', 1, '"no"');
COMMIT;
BEGIN;
SELECT outcome FROM idem_claim('e/EV_L/3', '{}', transport => '{"id": "m-3"}');
SELECT idem_complete('e/EV_L/3', 1);
COMMIT;
SELECT idem_cancel('e/EV_L/4');
SELECT key, call, outcome, state, transport FROM ev_rows WHERE idem_key_operation(key) = 'EV_L';

-- conflicts that are answered: one row for each other digest, 16 at the most
SELECT outcome FROM idem_claim('e/EV_L/1', '{"n": 2}', transport => '{"id": "m-4"}'), generate_series(1, 3);
SELECT key, call, state, digest, transport FROM ev_rows WHERE call = 'conflict';
SELECT digest = idem_digest('{"n": 2}'::jsonb) AS of_what_was_asked FROM idem_evidence WHERE call = 'conflict' AND idem_key_tenant(key) = 'e';
SELECT outcome, count(*) FROM generate_series(2, 40) n, idem_claim('e/EV_L/1', jsonb_build_object('n', n))
GROUP BY 1;
SELECT count(*), count(DISTINCT digest) FROM idem_evidence WHERE call = 'conflict' AND idem_key_tenant(key) = 'e';
SELECT outcome, count(*) FROM generate_series(2, 40) n, idem_submit('e/EV/1', jsonb_build_object('n', n))
GROUP BY 1;
SELECT key, count(*), count(DISTINCT digest) FROM idem_evidence WHERE call = 'conflict' AND idem_key_tenant(key) = 'e' GROUP BY key ORDER BY key;
-- one that cannot even be digested as the first was
SELECT outcome FROM idem_submit('e/EV_N/1', '{"n": 1}');
SELECT idem_define_operation('EV_N', 'external');
SELECT outcome FROM idem_submit('e/EV_N/1', '{}'), generate_series(1, 2);
SELECT key, call, digest FROM ev_rows WHERE key = 'e/EV_N/1';
-- what is an error is not recorded
\set VERBOSITY sqlstate
SELECT idem_once('e/EV_L/2', '{"n": 2}');
\set VERBOSITY default
SELECT count(*) FROM idem_evidence WHERE key = 'e/EV_L/2';

-- late evidence: a former owner and somebody who never owned it; state does not move
SELECT outcome, generation FROM idem_claim('e/EV/10', '{}', owner => 'w1');
SELECT idem_mark_unknown('e/EV/10', 1);
SELECT outcome, generation FROM idem_reclaim('e/EV/10', 'w2');
SELECT state, updated_at FROM idem_status('e/EV/10') \gset before_
SELECT idem_add_evidence('e/EV/10', 1, '{"http": 200}');
SELECT state = :'before_state' AND updated_at = :'before_updated_at' AS unmoved FROM idem_status('e/EV/10');
SELECT idem_add_evidence('e/EV/10', NULL, '{"webhook": true}', 'ref-10');
SELECT state, generation, channel_ref FROM idem_status('e/EV/10');
SELECT call, state, generation, attempt, worker, detail, channel_ref FROM ev_rows WHERE key = 'e/EV/10';
-- the channel knows it: nobody says absent or gives it back any more, and nobody is granted execute
\set VERBOSITY sqlstate
SELECT idem_absent('e/EV/10', 2);
SELECT idem_release('e/EV/10', 2);
\set VERBOSITY default
SELECT ev_pass('e/EV/10', '1 h');
SELECT outcome, channel_ref FROM idem_reclaim('e/EV/10', 'w3');
-- the first reference stays on record; another one is evidence of two
SELECT idem_add_evidence('e/EV/10', NULL, NULL, 'ref-11');
SELECT channel_ref FROM idem_status('e/EV/10');
-- a pending action whose reference arrives is verified, not executed
SELECT outcome FROM idem_submit('e/EV/11', '{}');
SELECT idem_add_evidence('e/EV/11', NULL, NULL, 'ref-12');
SELECT outcome, channel_ref FROM idem_claim('e/EV/11', '{}');
-- a terminal record is left alone, also one without a reference
SELECT outcome FROM idem_claim('e/EV/12', '{}');
SELECT idem_complete('e/EV/12', 1, '1');
SELECT idem_add_evidence('e/EV/12', 1, '{"late": true}', 'ref-13');
SELECT idem_complete('e/EV/12', 1, '1');
SELECT state, channel_ref FROM idem_status('e/EV/12');
SELECT channel_ref FROM idem_evidence WHERE key = 'e/EV/12' AND call = 'evidence';

-- bad input
\set VERBOSITY sqlstate
SELECT idem_add_evidence(NULL, 1, '1');
SELECT idem_add_evidence('e/EV/10', NULL, NULL);
SELECT idem_add_evidence('e/EV/10', 0, '1');
SELECT idem_add_evidence('e/EV/10', -1, '1');
SELECT idem_add_evidence('e/EV/10', 4, '1');
SELECT idem_add_evidence('e/EV/10', NULL, '1', '');
SELECT idem_add_evidence('e/EV/10', NULL, '1', E'a\nb');
SELECT idem_add_evidence('e/EV/10', NULL, '1', repeat('x', 513));
SELECT idem_add_evidence('e/EV/none', NULL, '1');
SELECT idem_add_evidence('e/EV_NONE/1', NULL, '1');
SELECT idem_add_evidence('e/EV_L/1', NULL, '1');
BEGIN READ ONLY; SELECT idem_add_evidence('e/EV/10', NULL, '1'); ROLLBACK;
-- counts as writing an external action
BEGIN; SELECT idem_add_evidence('e/EV/10', NULL, '1'); PREPARE TRANSACTION 'ev'; ROLLBACK;
\set VERBOSITY default

-- nobody changes it
\set VERBOSITY sqlstate
UPDATE idem_evidence SET note = 'x';
DELETE FROM idem_evidence;
TRUNCATE idem_evidence;
\set VERBOSITY default

-- the replay batch, of the transaction
BEGIN;
SET LOCAL idem_action.replay_batch = 'rb-2026-12-01';
SELECT outcome FROM idem_reclaim('e/EV/2');
SELECT outcome FROM idem_claim('e/EV/20', '{}');
SELECT outcome FROM idem_claim('e/EV/1', '{"n": -1}');
SELECT outcome FROM idem_claim('e/EV_L/2', '{"n": 5}');
SELECT outcome FROM idem_consume('e/ev/1', '{}');
SELECT outcome FROM idem_consume_batch('{e/ev/1,e/ev/2}', '{"{}","{}"}');
COMMIT;
SELECT outcome FROM idem_consume('e/ev/3', '{}');
SELECT idem_release('e/EV/20', 1);
SELECT key, call, replay_batch FROM ev_rows WHERE key IN ('e/EV/20', 'e/EV_L/2');
SELECT key, replay_batch FROM idem_event WHERE idem_key_operation(key) = 'ev' ORDER BY key;
\set VERBOSITY sqlstate
SET idem_action.replay_batch = E'a\nb';
SELECT set_config('idem_action.replay_batch', repeat('x', 513), true);
SET idem_action.replay_bach = 'rb';
\set VERBOSITY default

-- one action's life
SELECT regexp_replace(event, 'until .*', 'until …') AS event, state, generation, worker, channel_ref,
    detail, note, transport
FROM idem_history('e/EV/1') WHERE event NOT LIKE 'refused%';
SELECT regexp_replace(event, 'until .*', 'until …') AS event, state, generation
FROM (VALUES ('e/EV/2'), ('e/EV/3'), ('e/EV/10'), ('e/EV_L/1'), ('e/EV_L/2'), ('e/EV_L/3'), ('e/EV_L/4'), ('e/EV/none')) k (key),
    LATERAL idem_history(k.key) WHERE event NOT LIKE 'refused%';
BEGIN READ ONLY; SELECT count(*) FROM idem_history('e/EV_L/1'); COMMIT;
\set VERBOSITY sqlstate
SELECT * FROM idem_history(NULL);
\set VERBOSITY default

DROP VIEW ev_rows;
DROP FUNCTION ev_pass;
