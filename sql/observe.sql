-- observe: what happened, counted, and what is in flight
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS idem_action;
RESET client_min_messages;
SELECT idem_define_operation('OBSERVED');
SELECT idem_define_operation('OBSERVED-OUT', effect => 'external', lease => '1 hour',
    channel_queryable => true, absence_visible_after => '0', backoff_base => '0', backoff_max => '0');
SELECT idem_define_consumer('observed');
CREATE FUNCTION observed_echo(params jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT params';
CREATE FUNCTION observed_fails(params jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RAISE 'no'; END $$;
CREATE VIEW observed AS SELECT * FROM idem_stat_operations WHERE operation LIKE 'OBSERVED%' ORDER BY operation;

-- the counters that are not zero
CREATE FUNCTION observed_counts(counts jsonb) RETURNS text LANGUAGE sql AS $$
    SELECT string_agg(key || ' ' || value, ', ' ORDER BY key) FROM jsonb_each(counts)
    WHERE jsonb_typeof(value) = 'number' AND value <> '0' $$;

-- nothing yet, but zeros
SELECT operation, execute, repeat, verify, accepted, succeeded, rejected, busy, review, conflict,
    expired, takeover, stale, illegal, result_conflict, stats_reset <= clock_timestamp() AS has_begun FROM observed;
SELECT consumer, first, duplicate, conflict, expired, stats_reset <= clock_timestamp() AS has_begun
FROM idem_stat_consumers WHERE consumer = 'observed';

-- local: every answer is counted, of once and call too
SELECT outcome FROM idem_claim('ob/OBSERVED/1', '{}'), LATERAL idem_complete('ob/OBSERVED/1', generation, '1');
SELECT outcome FROM idem_claim('ob/OBSERVED/1', '{}');
SELECT outcome FROM idem_claim('ob/OBSERVED/1', '[]');
SELECT execute, succeeded, conflict FROM observed WHERE operation = 'OBSERVED';
SELECT idem_once('ob/OBSERVED/2', '{}');
SELECT idem_once('ob/OBSERVED/2', '{}');
SELECT idem_call('ob/OBSERVED/3', '{}', 'observed_echo');
SELECT idem_call('ob/OBSERVED/3', '{}', 'observed_echo');
SELECT idem_cancel('ob/OBSERVED/4');
SELECT idem_once('ob/OBSERVED/4', '{}');
\set VERBOSITY sqlstate
SELECT idem_once('ob/OBSERVED/2', '[]');
SELECT idem_call('ob/OBSERVED/5', '{}', 'observed_fails');
\set VERBOSITY default
SELECT execute, succeeded, rejected, conflict, illegal FROM observed WHERE operation = 'OBSERVED';

-- what was answered was answered, whatever became of it
BEGIN;
SELECT outcome FROM idem_claim('ob/OBSERVED/6', '{}');
SAVEPOINT a;
SELECT outcome FROM idem_claim('ob/OBSERVED/7', '{}');
ROLLBACK TO a;
SELECT outcome FROM idem_claim('ob/OBSERVED/2', '{}');
ROLLBACK;
SELECT execute, succeeded FROM observed WHERE operation = 'OBSERVED';

-- external: a life with every counter in it
SELECT outcome FROM idem_submit('ob/OBSERVED-OUT/1', '{}');
SELECT outcome FROM idem_submit('ob/OBSERVED-OUT/1', '{}');
SELECT outcome, generation FROM idem_reclaim('ob/OBSERVED-OUT/1');
SELECT outcome FROM idem_claim('ob/OBSERVED-OUT/1', '{}');
SELECT idem_mark_unknown('ob/OBSERVED-OUT/1', 2);
SELECT outcome, generation FROM idem_claim('ob/OBSERVED-OUT/1', '{}');
SELECT outcome, generation FROM idem_absent('ob/OBSERVED-OUT/1', 3);
SELECT idem_escalate('ob/OBSERVED-OUT/1', 4);
SELECT outcome FROM idem_claim('ob/OBSERVED-OUT/1', '{}');
\set VERBOSITY sqlstate
SELECT idem_complete('ob/OBSERVED-OUT/1', 3);
SELECT idem_complete('ob/OBSERVED-OUT/1', 5);
SELECT idem_complete('ob/OBSERVED-OUT/1', 0);
SELECT idem_renew('ob/OBSERVED-OUT/1', 4);
SELECT idem_complete('ob/OBSERVED-OUT/1', 4, '1');
SELECT idem_complete('ob/OBSERVED-OUT/1', 4, '1');
SELECT idem_complete('ob/OBSERVED-OUT/1', 4, '2');
SELECT idem_reject('ob/OBSERVED-OUT/1', 4);
SELECT idem_complete('ob/OBSERVED-OUT/none', 1);
SELECT idem_add_evidence('ob/OBSERVED-OUT/1', 5, '{}');
\set VERBOSITY default
SELECT outcome FROM idem_claim('ob/OBSERVED-OUT/1', '{}');
SELECT outcome FROM idem_claim('ob/OBSERVED-OUT/1', '[]');
SELECT observed_counts(to_jsonb(o)) FROM observed AS o WHERE operation = 'OBSERVED-OUT';

-- what a dispatcher hands out is counted likewise, and nothing due is nothing counted
SELECT outcome FROM idem_submit('ob/OBSERVED-OUT/8', '{}');
SELECT key, outcome FROM idem_claim_next('OBSERVED-OUT', tenant => 'ob');
SELECT idem_complete('ob/OBSERVED-OUT/8', 2);
SELECT key, outcome FROM idem_claim_next('OBSERVED-OUT', tenant => 'ob');
SELECT execute, accepted, busy FROM observed WHERE operation = 'OBSERVED-OUT';

-- a takeover is a grant of what somebody still held
SELECT outcome FROM idem_claim('ob/OBSERVED-OUT/2', '{}', owner => 'w');
UPDATE idem_lease SET lease_until = now() - interval '1 minute' WHERE key = 'ob/OBSERVED-OUT/2';
SELECT outcome FROM idem_claim('ob/OBSERVED-OUT/2', '{}', owner => 'v');
SELECT verify, takeover FROM observed WHERE operation = 'OBSERVED-OUT';

-- a new revision goes on with the counters of the old one
SELECT idem_define_operation('OBSERVED', lease => '1 minute');
SELECT idem_once('ob/OBSERVED/2', '{}');
SELECT execute, succeeded FROM observed WHERE operation = 'OBSERVED';

-- events, one by one and in batches
SELECT outcome FROM idem_consume('ob/observed/1', '{}');
SELECT outcome FROM idem_consume('ob/observed/1', '{}');
SELECT outcome FROM idem_consume('ob/observed/1', '[]');
SELECT outcome FROM idem_consume_batch(
    ARRAY['ob/observed/1', 'ob/observed/2', 'ob/observed/2', 'ob/observed/3', 'ob/observed/2']::idem_key[],
    ARRAY['{}', '{}', '{}', '{}', '[]']::jsonb[]);
SELECT first, duplicate, conflict FROM idem_stat_consumers WHERE consumer = 'observed';

-- expired: older than what was purged
SELECT idem_define_operation('OBSERVED-GONE', retention => '1 day');
SELECT idem_define_consumer('observed-gone', retention => '1 day');
INSERT INTO idem_watermark VALUES ('ob/OBSERVED-GONE/a', '2026-02-01'), ('ob/observed-gone/e', '2026-02-01');
SELECT outcome FROM idem_claim('ob/OBSERVED-GONE/1', '{}', '2026-01-01');
\set VERBOSITY sqlstate
SELECT idem_once('ob/OBSERVED-GONE/1', '{}', '2026-01-01');
\set VERBOSITY default
SELECT outcome FROM idem_consume('ob/observed-gone/1', '{}', '2026-01-01');
SELECT outcome FROM idem_consume_batch(ARRAY['ob/observed-gone/1', 'ob/observed-gone/2']::idem_key[],
    ARRAY['{}', '{}']::jsonb[], ARRAY['2026-01-01', '2026-03-01']::timestamptz[]);
SELECT observed_counts(to_jsonb(o)) FROM observed AS o WHERE operation = 'OBSERVED-GONE';
SELECT observed_counts(to_jsonb(c)) FROM idem_stat_consumers AS c WHERE consumer = 'observed-gone';

-- in flight: what is not terminal, and whether an attempt may have executed it
SELECT outcome FROM idem_submit('ob/OBSERVED-OUT/3', '{}');
SELECT outcome FROM idem_claim('ob/OBSERVED-OUT/4', '{}', owner => 'w');
SELECT idem_mark_unknown('ob/OBSERVED-OUT/4', 1, NULL, '1 day');
SELECT outcome FROM idem_claim('ob/OBSERVED-OUT/5', '{}', owner => 'w');
SELECT idem_escalate('ob/OBSERVED-OUT/5', 1);
SELECT outcome FROM idem_claim('ob/OBSERVED-OUT/6', '{}', owner => 'w');
SELECT idem_escalate(key, 1) FROM (SELECT outcome, 'ob/OBSERVED-OUT/7'::idem_key AS key
    FROM idem_submit('ob/OBSERVED-OUT/7', '{}') OFFSET 0) AS s;
SELECT key, tenant, operation, state, granted, owner, generation, attempt, age_seconds >= 0 AS has_age,
    is_lapsed, is_due, is_in_doubt, lease_until > now() AS leased, retry_at > now() AS later
FROM idem_in_flight WHERE tenant = 'ob' ORDER BY key;

-- health: how much, and how old; times are set, so that nothing has to be waited for
UPDATE idem_lease SET due_at = now() - interval '10 seconds' WHERE key = 'ob/OBSERVED-OUT/3';
UPDATE idem_lease SET first_granted_at = now() - interval '40 seconds' WHERE key = 'ob/OBSERVED-OUT/4';
UPDATE idem_lease SET granted_at = now() - interval '30 seconds' WHERE key = 'ob/OBSERVED-OUT/6';
UPDATE idem_action SET created_at = now() - interval '1 minute' * CASE key WHEN 'ob/OBSERVED-OUT/3' THEN 2 ELSE 3 END
WHERE key IN ('ob/OBSERVED-OUT/3', 'ob/OBSERVED-OUT/5');
BEGIN;
SET LOCAL session_replication_role = replica;
UPDATE idem_evidence SET recorded_at = now() - interval '50 seconds'
WHERE key = 'ob/OBSERVED-OUT/5' AND call = 'escalate';
COMMIT;
-- what is reported of it later makes it no younger
SELECT idem_add_evidence('ob/OBSERVED-OUT/5', NULL, NULL, 'ref-5');
CREATE FUNCTION observed_health() RETURNS TABLE (counts text, seconds text) LANGUAGE sql AS $$
    SELECT concat_ws(' ', in_flight, pending, processing, unknown, review, due, lapsed, recovery_failures),
        concat_ws(' ', floor(oldest_pending_seconds / 10) * 10, floor(oldest_processing_seconds / 10) * 10,
            floor(oldest_unknown_seconds / 10) * 10, floor(oldest_review_seconds / 10) * 10,
            floor(oldest_seconds / 10) * 10)
    FROM idem_health WHERE operation = 'OBSERVED-OUT' $$;
SELECT * FROM observed_health();
SELECT count(*) FROM idem_health WHERE operation = 'OBSERVED';
-- a lapsed lease; of an acting grant it is in doubt from then on
UPDATE idem_lease SET lease_until = now(), first_granted_at = now() - interval '70 seconds'
WHERE key = 'ob/OBSERVED-OUT/6';
SELECT is_lapsed, is_in_doubt FROM idem_in_flight WHERE key = 'ob/OBSERVED-OUT/6';
SELECT * FROM observed_health();
-- one whose end cannot have been granted is lapsed too, and likewise due
UPDATE idem_lease SET lease_until = now() + interval '2 days' WHERE key = 'ob/OBSERVED-OUT/6';
UPDATE idem_lease SET due_at = now() + interval '32 days' WHERE key = 'ob/OBSERVED-OUT/4';
SELECT key, is_lapsed, is_due FROM idem_in_flight WHERE key IN ('ob/OBSERVED-OUT/4', 'ob/OBSERVED-OUT/6') ORDER BY key;
-- a recovery fails when a grant to repeat or verify ends and nobody knows more than before
SELECT outcome, generation FROM idem_claim('ob/OBSERVED-OUT/4', '{}', owner => 'w');
SELECT * FROM observed_health();
SELECT idem_mark_unknown('ob/OBSERVED-OUT/4', 2, NULL, '0');
SELECT * FROM observed_health();
SELECT outcome, generation FROM idem_claim('ob/OBSERVED-OUT/4', '{}', owner => 'w');
UPDATE idem_lease SET lease_until = now() - interval '1 second' WHERE key = 'ob/OBSERVED-OUT/4';
SELECT * FROM observed_health();
-- one that settles it is none, and nothing terminal is in flight
SELECT idem_complete('ob/OBSERVED-OUT/4', 3);
SELECT * FROM observed_health();
SELECT count(*) FROM idem_in_flight WHERE key IN ('ob/OBSERVED-OUT/4', 'ob/OBSERVED-OUT/1');
-- an operation is listed where it is external, with nothing in flight too
SELECT idem_define_operation('OBSERVED-IDLE', effect => 'external');
SELECT to_jsonb(h)::text AS health FROM idem_health AS h WHERE operation = 'OBSERVED-IDLE';
-- a dropped operation and an undefined one are not
SELECT idem_drop_operation('OBSERVED-IDLE');
SELECT count(*) FROM idem_health WHERE operation = 'OBSERVED-IDLE';
SELECT count(*) FROM idem_stat_operations WHERE operation IN ('OBSERVED-IDLE', 'NONE', '(other operations)');

-- violations: none so far
CREATE VIEW observed_violations AS SELECT kind, key, tenant, operation, detail FROM idem_violations
    WHERE tenant IN ('ob', 'ob2') ORDER BY kind, key;
SELECT * FROM observed_violations;
-- two references for one action: the second is late evidence
SELECT outcome FROM idem_claim('ob/OBSERVED-OUT/10', '{}');
SELECT idem_complete('ob/OBSERVED-OUT/10', 1, NULL, 'ref-10');
SELECT idem_add_evidence('ob/OBSERVED-OUT/10', NULL, NULL, 'ref-10');
SELECT * FROM observed_violations;
SELECT idem_add_evidence('ob/OBSERVED-OUT/10', 1, '{"by": "webhook"}', 'ref-10b');
-- one reference on several actions, of whichever tenant; of another operation it may be the same
SELECT outcome FROM idem_claim('ob/OBSERVED-OUT/11', '{}');
SELECT idem_complete('ob/OBSERVED-OUT/11', 1, NULL, 'ref-11');
SELECT outcome FROM idem_claim('ob2/OBSERVED-OUT/11', '{}');
SELECT idem_complete('ob2/OBSERVED-OUT/11', 1, NULL, 'ref-11');
SELECT idem_define_operation('OBSERVED-TOO', effect => 'external');
SELECT outcome FROM idem_claim('ob/OBSERVED-TOO/11', '{}');
SELECT idem_complete('ob/OBSERVED-TOO/11', 1, NULL, 'ref-11');
-- rejected, and the channel knows it
SELECT outcome FROM idem_claim('ob/OBSERVED-OUT/12', '{}');
SELECT idem_reject('ob/OBSERVED-OUT/12', 1);
SELECT idem_add_evidence('ob/OBSERVED-OUT/12', NULL, NULL, 'ref-12');
SELECT * FROM observed_violations;
-- references that an operator set aside count no more, unless they turn up again
SELECT outcome FROM idem_claim('ob/OBSERVED-OUT/13', '{}');
SELECT idem_add_evidence('ob/OBSERVED-OUT/13', 1, NULL, 'ref-13');
SELECT idem_escalate('ob/OBSERVED-OUT/13', 1);
SELECT idem_resolve('ob/OBSERVED-OUT/13', 1, 'pending', 'a typo', NULL, 'ref-13');
SELECT outcome, generation FROM idem_reclaim('ob/OBSERVED-OUT/13');
SELECT idem_complete('ob/OBSERVED-OUT/13', 3, NULL, 'ref-13b');
SELECT count(*) FROM observed_violations WHERE key = 'ob/OBSERVED-OUT/13';
SELECT idem_add_evidence('ob/OBSERVED-OUT/13', 1, NULL, 'ref-13');
SELECT kind, detail FROM observed_violations WHERE key = 'ob/OBSERVED-OUT/13';
-- a record that was changed, or lost, after it was settled
UPDATE idem_action SET state = 'rejected' WHERE key = 'ob2/OBSERVED-OUT/11';
DELETE FROM idem_action WHERE key = 'ob/OBSERVED-TOO/11';
SELECT kind, key, detail FROM observed_violations WHERE kind = 'contradicted';
UPDATE idem_action SET state = 'succeeded' WHERE key = 'ob2/OBSERVED-OUT/11';

-- in a transaction that only reads
BEGIN READ ONLY;
SELECT count(*) > 0 AS is_seen FROM idem_violations WHERE tenant = 'ob';
SELECT execute > 0 AS counted FROM observed WHERE operation = 'OBSERVED';
SELECT count(*) > 0 AS is_seen FROM idem_in_flight WHERE tenant = 'ob';
SELECT in_flight > 0 AS is_seen FROM idem_health WHERE operation = 'OBSERVED-OUT';
SELECT idem_stat_reset();
ROLLBACK;
-- a reset is not rolled back either
SELECT execute, succeeded, stats_reset > now() - interval '1 minute' AS reset FROM observed
WHERE operation = 'OBSERVED';
SELECT first, duplicate, conflict FROM idem_stat_consumers WHERE consumer = 'observed';
SELECT idem_once('ob/OBSERVED/2', '{}');
SELECT execute, succeeded FROM observed WHERE operation = 'OBSERVED';

-- looking costs what is in flight, not what is on record
CREATE FUNCTION observed_plan(query text) RETURNS SETOF text LANGUAGE plpgsql
    SET enable_seqscan = off AS $$ BEGIN RETURN QUERY EXECUTE 'EXPLAIN (COSTS OFF) ' || query; END $$;
SELECT count(*) > 0 AS finds_by_key FROM observed_plan('SELECT * FROM idem_health') AS line
WHERE line LIKE '%Index Cond: (key = l.key)%';

-- nobody but the owner may look
CREATE ROLE observed_stranger;
SET ROLE observed_stranger;
\set VERBOSITY sqlstate
SELECT * FROM idem_stat_operations;
SELECT * FROM idem_stat_consumers;
SELECT * FROM idem_in_flight;
SELECT * FROM idem_health;
SELECT * FROM idem_violations;
SELECT idem_stat_operation('OBSERVED');
SELECT idem_stat_consumer('observed');
SELECT idem_stat_reset();
\set VERBOSITY default
RESET ROLE;


-- a tenant's monitor sees its own; what is counted of all tenants is for those of all
CREATE ROLE observed_monitor;
CREATE ROLE observed_all;
SELECT idem_grant('observed_monitor', 'monitor', 'ob2');
SELECT idem_grant('observed_all', 'monitor', '*');
SELECT outcome FROM idem_submit('ob2/OBSERVED-OUT/20', '{}');
SELECT idem_add_evidence('ob2/OBSERVED-OUT/20', NULL, NULL, 'ref-10');
SELECT count(*) FROM observed_violations WHERE detail->>'channel_ref' = 'ref-10';
SET ROLE observed_monitor;
SELECT count(*) FROM idem_stat_operations;
SELECT count(*) FROM idem_stat_consumers;
SELECT DISTINCT tenant, key FROM idem_in_flight;
SELECT in_flight FROM idem_health WHERE operation = 'OBSERVED-OUT';
SELECT kind, key FROM idem_violations;
\set VERBOSITY sqlstate
SELECT idem_stat_operation('OBSERVED');
SELECT idem_stat_consumer(NULL);
SELECT idem_stat_reset();
\set VERBOSITY default
SET ROLE observed_all;
SELECT succeeded FROM idem_stat_operations WHERE operation = 'OBSERVED';
SELECT first FROM idem_stat_consumers WHERE consumer = 'observed';
SELECT DISTINCT tenant FROM idem_in_flight WHERE tenant IN ('ob', 'ob2') ORDER BY 1;
SELECT DISTINCT tenant FROM idem_violations WHERE tenant IN ('ob', 'ob2') ORDER BY 1;
\set VERBOSITY sqlstate
SELECT idem_stat_reset();
\set VERBOSITY default
RESET ROLE;
SELECT idem_revoke('observed_monitor', 'monitor', 'ob2'), idem_revoke('observed_all', 'monitor', '*');
DROP ROLE observed_stranger, observed_monitor, observed_all;
DROP VIEW observed, observed_violations;
DROP FUNCTION observed_echo, observed_fails, observed_counts, observed_health, observed_plan;
