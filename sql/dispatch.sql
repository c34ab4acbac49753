-- dispatch: handing out what is due
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS idem_action;
RESET client_min_messages;
\set VERBOSITY sqlstate
SELECT idem_define_operation('NEXT', 'external', channel => 'mailer'),
       idem_define_operation('NEXT_I', 'external', channel_idempotent => true, channel_key_ttl => '1 h'),
       idem_define_operation('NEXT_Q', 'external', channel_queryable => true,
                             absence_visible_after => '1 min', max_attempts => 3),
       idem_define_operation('NEXT_L'),
       idem_define_operation('NEXT_LEAN', 'external', keep_params => false);
-- instead of waiting
CREATE FUNCTION next_pass(k text, by interval) RETURNS void LANGUAGE sql AS $$
    UPDATE idem_lease SET granted_at = granted_at - by, lease_until = lease_until - by,
        due_at = due_at - by, first_granted_at = first_granted_at - by,
        call_until = call_until - by WHERE key = k::idem_key $$;
-- a hundred at a time, of which the keys are shown
CREATE FUNCTION next_keys(operation text, max_rows integer DEFAULT 100, tenant text DEFAULT NULL)
    RETURNS TABLE (keys text, outcomes text) LANGUAGE sql AS $$
    SELECT string_agg(idem_key_id(n.key), ' ' ORDER BY n.nth), string_agg(DISTINCT n.outcome, ' ')
    FROM ROWS FROM (idem_claim_next(operation, max_rows, tenant => tenant)) WITH ORDINALITY
        AS n (key, outcome, generation, result, error, retry_at, attempt, state, lease_until,
              absence_conclusive_at, channel, channel_ref, params, differs,
              result_digest, nth) $$;

-- nothing is due
SELECT * FROM idem_claim_next('NEXT');

-- one row: the key, then the verdict's columns, the recorded parameters with it
SELECT outcome FROM idem_submit('d/NEXT/1', '{"to": "anna"}');
SELECT key, outcome, generation, attempt, state, channel, channel_ref, params, result, error, differs,
       retry_at, absence_conclusive_at, lease_until > clock_timestamp() + '29 s' AS leased
FROM idem_claim_next('NEXT') \gx
SELECT key, owner = current_setting('application_name') || ':' || pg_backend_pid() AS mine,
       granted FROM idem_lease WHERE key = 'd/NEXT/1';
SELECT count(*) FROM idem_claim_next('NEXT', 10);
SELECT idem_complete('d/NEXT/1', 2);

-- its columns are the key and those of idem_verdict
SELECT p.attname, v.attname, format_type(p.type, NULL) = format_type(v.atttypid, v.atttypmod) AS same
FROM (SELECT unnest(proargnames[6:]) AS attname, unnest(proallargtypes[6:]) AS type,
             generate_series(0, 14) AS n
      FROM pg_proc WHERE proname = 'idem_claim_next') AS p
FULL JOIN (SELECT * FROM pg_attribute WHERE attrelid = 'idem_verdict'::regclass AND attnum > 0) AS v
ON v.attnum = p.n ORDER BY p.n;

-- owner and lease as asked for
SELECT outcome FROM idem_submit('d/NEXT/2', '{}');
SELECT lease_until < clock_timestamp() + '6 s' AS short FROM idem_claim_next('NEXT', 1, 'sender 1', '5 s');
SELECT owner FROM idem_status('d/NEXT/2');
SELECT idem_complete('d/NEXT/2', 2);

-- it is on record as evidence, and counted
SELECT call, outcome, state, generation, attempt, worker FROM idem_evidence WHERE key = 'd/NEXT/2' ORDER BY recorded_at;
SELECT execute, review, takeover FROM idem_stat_operations WHERE operation = 'NEXT';

-- the oldest first, whether it waited, lapsed, or was released, and as many as asked for
SELECT count(idem_submit('d/NEXT_I/' || n, '{}')) FROM generate_series(1, 6) AS n;
SELECT idem_claim('d/NEXT_I/5', '{}') IS NULL,
       idem_claim('d/NEXT_I/2', '{}') IS NULL,
       idem_claim('d/NEXT_I/3', '{}') IS NULL,
       idem_claim('d/NEXT_I/6', '{}') IS NULL;
SELECT idem_mark_unknown('d/NEXT_I/3', 2, retry_after => '0');
SELECT idem_release('d/NEXT_I/6', 2, retry_after => '1 h');
SELECT next_pass('d/NEXT_I/' || n, interval '1 min' * n) FROM generate_series(1, 5) AS n;
SELECT * FROM next_keys('NEXT_I', 2);
SELECT * FROM next_keys('NEXT_I', 2);
SELECT * FROM next_keys('NEXT_I', 2);
SELECT * FROM next_keys('NEXT_I', 2);
SELECT idem_key_id(key) AS id, granted, attempt, generation FROM idem_action JOIN idem_lease USING (key)
WHERE idem_key_operation(key) = 'NEXT_I' ORDER BY key;
-- a running lease, a back-off and a finished action are nobody's to take
SELECT idem_complete('d/NEXT_I/5', 3);
SELECT * FROM next_keys('NEXT_I');

-- a time that the clock cannot explain counts as over, and comes first; up to the bounds it does not
SELECT next_pass('d/NEXT_I/6', '1 h');
SELECT next_pass('d/NEXT_I/4', '1 h');
SELECT count(idem_submit('d/NEXT_I/' || n, '{}')) FROM generate_series(7, 8) AS n;
UPDATE idem_lease SET lease_until = clock_timestamp() + '24 h 1 min' WHERE key = 'd/NEXT_I/1';
UPDATE idem_lease SET lease_until = clock_timestamp() + '23 h 59 min' WHERE key = 'd/NEXT_I/2';
UPDATE idem_lease SET due_at = clock_timestamp() + '31 days 1 min' WHERE key = 'd/NEXT_I/7';
UPDATE idem_lease SET due_at = clock_timestamp() + '30 days 23 h' WHERE key = 'd/NEXT_I/8';
SELECT * FROM next_keys('NEXT_I');
SELECT * FROM next_keys('NEXT_I');

-- what the contract allows nothing for goes to review, and does not count
SELECT count(idem_submit('d/NEXT/h' || n, '{}')) FROM generate_series(1, 3) AS n;
SELECT count(*) FROM idem_claim_next('NEXT', 3);
SELECT next_pass('d/NEXT/h' || n, '1 min') FROM generate_series(1, 3) AS n;
SELECT outcome FROM idem_submit('d/NEXT/good', '{}');
SELECT * FROM next_keys('NEXT', 1);
SELECT state, count(*) FROM idem_action WHERE key::text LIKE 'd/NEXT/h_' GROUP BY state;
SELECT lease_until, due_at FROM idem_lease WHERE key = 'd/NEXT/h1';
SELECT call, outcome, state, generation, attempt FROM idem_evidence WHERE key = 'd/NEXT/h1' ORDER BY recorded_at;
SELECT execute, review, takeover FROM idem_stat_operations WHERE operation = 'NEXT';

-- 200 of them, older than one that is good: a dispatcher that takes 100 serves it in the second
-- round, and one that takes one at a time too, since what a call moves is bounded but not by that
CREATE FUNCTION next_hopeless(name text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM idem_submit(format('%s/NEXT/%s', name, n), '{}') FROM generate_series(1, 200) AS n;
    PERFORM idem_claim_next('NEXT', 200, tenant => name);
    PERFORM next_pass(format('%s/NEXT/%s', name, n), '1 min') FROM generate_series(1, 200) AS n;
    PERFORM idem_submit(name || '/NEXT/good', '{}');
END $$;
SELECT next_hopeless('h1');
SELECT * FROM next_keys('NEXT', 100, 'h1');
SELECT * FROM next_keys('NEXT', 100, 'h1');
SELECT next_hopeless('h2');
SELECT * FROM next_keys('NEXT', 1, 'h2');
SELECT count(*) FROM idem_action WHERE key::text LIKE 'h2/%' AND state = 'review';
SELECT * FROM next_keys('NEXT', 1, 'h2');

-- a channel that answers "don't know" for ever: every grant counts, then it is review
SELECT outcome FROM idem_submit('d/NEXT_Q/1', '{}');
CREATE FUNCTION next_unknown(k text) RETURNS TABLE (outcome text, attempt integer) LANGUAGE plpgsql AS $$
DECLARE
    v record;
BEGIN
    SELECT * INTO v FROM idem_claim_next('NEXT_Q') AS n WHERE n.key = k::idem_key;
    RETURN QUERY SELECT v.outcome, v.attempt;
END $$;
SELECT * FROM next_unknown('d/NEXT_Q/1');
SELECT idem_mark_unknown('d/NEXT_Q/1', 2, retry_after => '0');
SELECT * FROM next_unknown('d/NEXT_Q/1');
SELECT idem_mark_unknown('d/NEXT_Q/1', 3, '{"channel": "do not know"}', retry_after => '0');
SELECT * FROM next_unknown('d/NEXT_Q/1');
SELECT idem_mark_unknown('d/NEXT_Q/1', 4, '{"channel": "do not know"}', retry_after => '0');
SELECT * FROM next_unknown('d/NEXT_Q/1');
SELECT state, attempt FROM idem_status('d/NEXT_Q/1');

-- recovery without evidence: unknown until its absence is conclusive, however often it is asked
SELECT outcome FROM idem_submit('d/NEXT_Q/2', '{}');
SELECT outcome FROM idem_claim_next('NEXT_Q');
SELECT next_pass('d/NEXT_Q/2', '1 min');
SELECT outcome, absence_conclusive_at > clock_timestamp() AS later FROM idem_claim_next('NEXT_Q');
SELECT outcome, state FROM idem_absent('d/NEXT_Q/2', 3);
SELECT count(*) FROM idem_claim_next('NEXT_Q');
SELECT next_pass('d/NEXT_Q/2', '1 min');
SELECT outcome, absence_conclusive_at <= clock_timestamp() AS now, attempt FROM idem_claim_next('NEXT_Q');
SELECT idem_complete('d/NEXT_Q/2', 4, '{"found": true}', 'ref-2');

-- one tenant's only
SELECT idem_submit('t1/NEXT/1', '{}') IS NULL, idem_submit('t2/NEXT/1', '{}') IS NULL,
       idem_submit('t10/NEXT/1', '{}') IS NULL;
SELECT key FROM idem_claim_next('NEXT', 10, tenant => 't1');
SELECT key FROM idem_claim_next('NEXT', 10, tenant => 't3');
SELECT key FROM idem_claim_next('NEXT', 10);

-- without one, those that the caller is bound to as an application
CREATE ROLE regress_next_app;
CREATE ROLE regress_next_none;
CREATE ROLE regress_next_operator;
SELECT idem_grant('regress_next_app', 'application', 't2'), idem_grant('regress_next_app', 'application', 't1'),
       idem_grant('regress_next_app', 'monitor', '*'), idem_grant('regress_next_operator', 'operator', '*');
GRANT EXECUTE ON FUNCTION idem_claim_next TO regress_next_none, regress_next_operator;
SELECT count(idem_submit(t || '/NEXT/mine', '{}')) FROM unnest('{t1,t2,t3,t10}'::text[]) AS t;
SET ROLE regress_next_none;
SELECT key FROM idem_claim_next('NEXT', 10);
SELECT key FROM idem_claim_next('NEXT_X', 10);
SET ROLE regress_next_operator;
SELECT key FROM idem_claim_next('NEXT', 10, tenant => 't1');
SET ROLE regress_next_app;
SELECT key FROM idem_claim_next('NEXT', 10, tenant => 't3');
SELECT key FROM idem_claim_next('NEXT', 10, tenant => 't2');
SELECT key FROM idem_claim_next('NEXT', 10);
SELECT key FROM idem_claim_next('NEXT', 10);
RESET ROLE;
SELECT key FROM idem_claim_next('NEXT', 10);
SET client_min_messages = warning;
DROP OWNED BY regress_next_app, regress_next_none, regress_next_operator;
SELECT idem_revoke('regress_next_app', 'application', 't2'), idem_revoke('regress_next_app', 'application', 't1'),
       idem_revoke('regress_next_app', 'monitor', '*'), idem_revoke('regress_next_operator', 'operator', '*');
DROP ROLE regress_next_app, regress_next_none, regress_next_operator;
RESET client_min_messages;

-- an operation's name is a whole one
SELECT key FROM idem_claim_next('NEXT_LEAN', 10);

-- where the contract keeps no parameters there are none to return
SELECT idem_claim('d/NEXT_LEAN/1', '{"a": 1}') IS NULL;
SELECT idem_release('d/NEXT_LEAN/1', 1, retry_after => '0');
SELECT key, outcome, params FROM idem_claim_next('NEXT_LEAN', 10);

-- in one transaction: what it submitted it may be granted, what it was granted it is not again
BEGIN;
SELECT outcome FROM idem_submit('d/NEXT_I/tx', '{}');
SELECT key, outcome FROM idem_claim_next('NEXT_I', 10);
UPDATE idem_lease SET lease_until = clock_timestamp() - interval '1 s' WHERE key = 'd/NEXT_I/tx';
SELECT key, outcome FROM idem_claim_next('NEXT_I', 10);
SELECT idem_complete('d/NEXT_I/tx', 2);
ROLLBACK;
-- rolled back to a savepoint it is as if never taken
SELECT outcome FROM idem_submit('d/NEXT/sp', '{}');
BEGIN;
SAVEPOINT s;
SELECT key, outcome, generation FROM idem_claim_next('NEXT', 10);
ROLLBACK TO s;
SELECT key, outcome, generation FROM idem_claim_next('NEXT', 10);
COMMIT;
SELECT idem_complete('d/NEXT/sp', 2);

-- an orphan left by a deletion by hand is nobody's action
SELECT outcome FROM idem_submit('d/NEXT/orphan', '{}');
ALTER TABLE idem_action DISABLE TRIGGER idem_in_flight;
DELETE FROM idem_action WHERE key = 'd/NEXT/orphan';
ALTER TABLE idem_action ENABLE TRIGGER idem_in_flight;
SELECT key FROM idem_claim_next('NEXT', 10);
DELETE FROM idem_lease WHERE key = 'd/NEXT/orphan';

-- thousands in one call
SELECT count(idem_submit('many/NEXT/' || n, '{}')) FROM generate_series(1, 3000) AS n;
SELECT count(*), count(DISTINCT key) FROM idem_claim_next('NEXT', 10000, tenant => 'many');

-- refusals
SELECT idem_claim_next('NEXT_L');
SELECT idem_claim_next('NEXT_X');
SELECT idem_claim_next(NULL);
SELECT idem_claim_next('');
SELECT idem_claim_next('NEXT', 0);
SELECT idem_claim_next('NEXT', 10001);
SELECT idem_claim_next('NEXT', NULL);
SELECT idem_claim_next('NEXT', lease => '0');
SELECT idem_claim_next('NEXT', owner => '');
SELECT idem_claim_next('NEXT', tenant => 'a/b');
BEGIN READ ONLY;
SELECT idem_claim_next('NEXT');
ROLLBACK;
SELECT idem_define_consumer('next_rebuilding', rebuild => true);
BEGIN;
SELECT outcome FROM idem_consume('d/next_rebuilding/1', '{}');
SELECT idem_claim_next('NEXT');
ROLLBACK;
-- without its index nothing is looked for
BEGIN;
DROP INDEX idem_lease_due;
SELECT idem_claim_next('NEXT');
ROLLBACK;

-- the back-off of an owner who names none: full jitter within the contract's bounds
SELECT idem_define_operation('NEXT_B', 'external', backoff_base => '10 s', backoff_max => '40 s',
                             max_attempts => 10);
CREATE FUNCTION next_waits(call text, prepare integer) RETURNS TABLE (step interval, within boolean, spread boolean)
    LANGUAGE plpgsql AS $$
DECLARE
    v record;
    k text;
BEGIN
    CREATE TEMPORARY TABLE wait (n integer, wait interval) ON COMMIT DROP;
    FOR n IN 1..60 LOOP
        k := format('b/NEXT_B/%s-%s-%s', call, prepare, n);
        SELECT * INTO v FROM idem_claim(k, '{}');
        FOR i IN 2..prepare LOOP
            PERFORM idem_release(k, v.generation, retry_after => '0');
            SELECT * INTO v FROM idem_reclaim(k);
        END LOOP;
        EXECUTE format('SELECT idem_%s($1, $2)', call) USING k::idem_key, v.generation;
        INSERT INTO wait SELECT n, due_at - updated_at FROM idem_lease JOIN idem_action USING (key)
            WHERE key = k::idem_key;
    END LOOP;
    step := least(interval '10 s' * 2 ^ (prepare - 1), '40 s'::interval);
    RETURN QUERY SELECT step, min(wait) >= '0' AND max(wait) <= step,
        max(wait) > 0.5 * step AND min(wait) < 0.5 * step FROM wait;
    DROP TABLE wait;
END $$;
SELECT * FROM next_waits('release', 1);
SELECT * FROM next_waits('release', 2);
SELECT * FROM next_waits('release', 6);
-- mark_unknown is for grants that are committed
SELECT count(idem_submit('u/NEXT_B/' || n, '{}')) FROM generate_series(1, 60) AS n;
SELECT count(*) FROM idem_claim_next('NEXT_B', 60, tenant => 'u');
SELECT count(idem_mark_unknown(key, generation)) FROM idem_action WHERE key::text LIKE 'u/NEXT\_B/%';
SELECT min(due_at - updated_at) >= '0' AND max(due_at - updated_at) <= '10 s' AS within,
       max(due_at - updated_at) > '5 s' AND min(due_at - updated_at) < '5 s' AS spread
FROM idem_lease JOIN idem_action USING (key) WHERE key::text LIKE 'u/NEXT\_B/%';

-- what a call reads depends on what is in flight, not on what ever was; a session counts from its start
SELECT idem_define_operation('NEXT_C', 'external');
SELECT count(idem_submit('c/NEXT_C/' || n, '{}')) FROM generate_series(1, 500) AS n;
SELECT count(*) FROM idem_claim_next('NEXT_C', 497);
SELECT count(idem_complete(key, generation)) FROM idem_action WHERE key::text LIKE 'c/NEXT\_C/%' AND state = 'processing';
\c -
BEGIN;
SELECT * FROM next_keys('NEXT_C');
SELECT relname, seq_scan, seq_tup_read, idx_tup_fetch < 20 AS few FROM pg_stat_xact_user_tables
WHERE relid IN ('idem_action'::regclass, 'idem_lease'::regclass) ORDER BY 1;
ROLLBACK;

DROP FUNCTION next_pass, next_keys, next_hopeless, next_unknown, next_waits;
