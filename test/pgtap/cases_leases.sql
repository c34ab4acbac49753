-- cases_leases.sql: adversarial cases of leases and generations; each test is named by the case's
-- number.
--
-- Nothing waits: where time has to pass, the superuser who runs this shifts the times on record in
-- idem_lease into the past (pg_temp.pass).  Not in one transaction, since a grant counts from its
-- commit.  The file starts by removing what an earlier run of it left behind.
\set ON_ERROR_STOP on
\set ON_ERROR_ROLLBACK off
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pgtap;
CREATE EXTENSION IF NOT EXISTS idem_action;
SET session_replication_role = replica;		-- lets go of actions in flight
DELETE FROM idem_lease WHERE idem_key_tenant(key) = 'case-l';
DELETE FROM idem_action WHERE idem_key_tenant(key) = 'case-l';
RESET session_replication_role;
CREATE FUNCTION pg_temp.pass(k idem_key, by interval) RETURNS void LANGUAGE sql AS $$
    UPDATE idem_lease SET granted_at = granted_at - by, lease_until = lease_until - by,
        due_at = due_at - by, first_granted_at = first_granted_at - by,
        call_until = call_until - by WHERE key = k $$;
SELECT FROM idem_define_operation('CASE_L', 'external', lease => '30 s');
SELECT FROM idem_define_operation('CASE_LL');
SELECT FROM idem_define_operation('CASE_LQ', 'external', lease => '30 s', channel_queryable => true,
                                  absence_visible_after => '60 s');
SELECT FROM idem_define_operation('CASE_LI', 'external', lease => '30 s',
                                  channel_idempotent => true,
                                  channel_key_ttl => '1 h');
-- what is on record of a key, to see whether anything was written
CREATE FUNCTION pg_temp.record(k idem_key) RETURNS text LANGUAGE sql AS $$
    SELECT a.ctid::text || a::text || coalesce(l.ctid::text || l::text, '')
    FROM idem_action a LEFT JOIN idem_lease l USING (key) WHERE a.key = k $$;
-- every owner's call, for a key and a generation
CREATE FUNCTION pg_temp.calls(k text, g text) RETURNS TABLE (name text, call text)
LANGUAGE sql AS $$
    SELECT n, format('SELECT idem_%s(%L, %s%s)', n, k, coalesce(g, 'NULL'), more)
    FROM (VALUES ('complete', ', ''1'''), ('reject', ', ''1'''), ('renew', ''), ('release', ''),
                 ('mark_unknown', ''), ('escalate', ''), ('absent', ''),
                 ('resolve', ', ''pending'', ''note''')) AS c (n, more) $$;
SELECT plan(98);

-- L1: the first owner wakes up after a takeover
SELECT FROM idem_claim('case-l/CASE_LQ/l1', '{}', owner => 'w1');
SELECT pg_temp.pass('case-l/CASE_LQ/l1', '31 s');
SELECT is((SELECT outcome || generation FROM idem_claim('case-l/CASE_LQ/l1', '{}', owner => 'w2')),
          'verify2',
          'L1: the second takes over');
SELECT pg_temp.record('case-l/CASE_LQ/l1') AS l1 \gset
SELECT throws_ok(call, 'ID002', NULL, 'L1: the first is refused: ' || name)
FROM pg_temp.calls('case-l/CASE_LQ/l1', '1');
SELECT is(pg_temp.record('case-l/CASE_LQ/l1'), :'l1', 'L1: the record is as it was');
SELECT is((SELECT owner || generation FROM idem_status('case-l/CASE_LQ/l1')), 'w22',
          'L1: and the second''s');
CREATE TEMPORARY TABLE business (n int);
SELECT throws_ok($$WITH w AS (INSERT INTO business VALUES (1) RETURNING n)
                   SELECT idem_complete('case-l/CASE_LQ/l1', 1) FROM w$$, 'ID002', NULL,
                 'L1: refused beside a write');
SELECT is_empty('TABLE business', 'L1: which rolled back');
SELECT lives_ok($$SELECT idem_complete('case-l/CASE_LQ/l1', 2, '"second"')$$,
                'L1: the second completes');
SELECT throws_ok(call, 'ID002', NULL, 'L1: and the first is refused after that: ' || name)
FROM pg_temp.calls('case-l/CASE_LQ/l1', '1');
-- an owner of the same name is somebody else
SELECT FROM idem_claim('case-l/CASE_LQ/l1b', '{}', owner => 'w');
SELECT pg_temp.pass('case-l/CASE_LQ/l1b', '31 s');
SELECT FROM idem_claim('case-l/CASE_LQ/l1b', '{}', owner => 'w');
SELECT throws_ok($$SELECT idem_complete('case-l/CASE_LQ/l1b', 1)$$, 'ID002', NULL,
                 'L1: the same name makes no difference');

-- L3: how long a lease may be
SELECT FROM idem_claim('case-l/CASE_L/l3', '{}', lease => NULL);
SELECT is((SELECT lease_until - granted_at FROM idem_lease WHERE key = 'case-l/CASE_L/l3'), '30 s',
          'L3: null is the contract''s');
SELECT throws_ok(format($$SELECT idem_claim('case-l/CASE_L/l3b', '{}', lease => %L)$$, bad),
                 '22023', NULL, 'L3: claim for ' || bad)
FROM unnest(ARRAY['0', '-1 s', '99 ms', '24 h 1 us', '1000 years', '178000000 years',
                  '-178000000 years']) AS bad;
SELECT throws_ok(format($$SELECT idem_renew('case-l/CASE_L/l3', 1, %L)$$, bad), '22023', NULL,
                 'L3: renew for ' || bad)
FROM unnest(ARRAY['0', '-1 s', '99 ms', '24 h 1 us', '1000 years', '178000000 years',
                  '-178000000 years']) AS bad;
SELECT throws_ok($$SELECT idem_reclaim('case-l/CASE_L/l3', lease => '0')$$, '22023', NULL,
                 'L3: reclaim for 0');
SELECT is_empty($$SELECT * FROM idem_status('case-l/CASE_L/l3b')$$, 'L3: nothing is on record');
SELECT is((SELECT lease_until - granted_at FROM idem_lease WHERE key = 'case-l/CASE_L/l3'), '30 s',
          'L3: the lease is as it was');
SELECT lives_ok(format($$SELECT idem_renew('case-l/CASE_L/l3', 1, %L)$$, good),
                'L3: renew for ' || good)
FROM unnest(ARRAY['100 ms', '24 h', '1 day']) AS good;

-- L4, as far as one session goes: renewed after a lapse that nobody used
SELECT FROM idem_claim('case-l/CASE_L/l4', '{}');
SELECT pg_temp.pass('case-l/CASE_L/l4', '1 h');
SELECT ok(idem_renew('case-l/CASE_L/l4', 1) > clock_timestamp(), 'L4: renewed after a lapse');
SELECT is((SELECT outcome FROM idem_claim('case-l/CASE_L/l4', '{}')), 'busy',
          'L4: so nobody gets it');
SELECT is((SELECT generation FROM idem_status('case-l/CASE_L/l4')), 1::bigint,
          'L4: with the same generation');

-- L4b: no generation
SELECT FROM idem_claim('case-l/CASE_LQ/l4b', '{}');
SELECT pg_temp.record('case-l/CASE_LQ/l4b') AS l4b \gset
SELECT throws_ok(call, 'ID002', NULL, 'L4b: ' || coalesce(g, 'null') || ' as generation: ' || name)
FROM unnest(ARRAY[NULL, '0']) AS g, LATERAL pg_temp.calls('case-l/CASE_LQ/l4b', g);
SELECT is(pg_temp.record('case-l/CASE_LQ/l4b'), :'l4b', 'L4b: nothing is written');
CREATE FUNCTION pg_temp.hint(call text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    h text;
BEGIN
    EXECUTE call;
    RETURN NULL;
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS h = PG_EXCEPTION_HINT;
    RETURN h;
END $$;
SELECT matches(pg_temp.hint($$SELECT idem_complete('case-l/CASE_LQ/l4b', 0)$$), 'outcome',
               'L4b: the hint says to look at the outcome');

-- L5: a lapse alone takes nothing away
SELECT FROM idem_claim('case-l/CASE_L/l5', '{}');
SELECT pg_temp.pass('case-l/CASE_L/l5', '10 days');
SELECT lives_ok($$SELECT idem_complete('case-l/CASE_L/l5', 1, '1')$$, 'L5: complete after a lapse');
SELECT is((SELECT state FROM idem_status('case-l/CASE_L/l5')), 'succeeded', 'L5: is recorded');
SELECT FROM unnest(ARRAY['reject', 'mark_unknown', 'release', 'escalate']) AS c,
    LATERAL idem_claim(idem_key('case-l', 'CASE_L', 'l5-' || c), '{}');
SELECT pg_temp.pass(key, '10 days') FROM idem_lease WHERE key::text LIKE 'case-l/CASE_L/l5-%';
SELECT lives_ok(format('SELECT idem_%s(%L, 1)', c, 'case-l/CASE_L/l5-' || c), 'L5: so is ' || c)
FROM unnest(ARRAY['reject', 'mark_unknown', 'release', 'escalate']) AS c;

-- L6: complete, repeated
SELECT FROM idem_claim('case-l/CASE_LQ/l6', '{}');
SELECT pg_temp.pass('case-l/CASE_LQ/l6', '31 s');
SELECT FROM idem_claim('case-l/CASE_LQ/l6', '{}');
SELECT FROM idem_complete('case-l/CASE_LQ/l6', 2, '{"n": 1}', 'ref');
SELECT pg_temp.record('case-l/CASE_LQ/l6') AS l6 \gset
SELECT lives_ok($$SELECT idem_complete('case-l/CASE_LQ/l6', 2, '{"n": 1}', 'ref')$$,
                'L6: the same');
SELECT throws_ok($$SELECT idem_complete('case-l/CASE_LQ/l6', 2, '{"n": 2}', 'ref')$$, 'ID004', NULL,
                 'L6: another result');
SELECT throws_ok($$SELECT idem_complete('case-l/CASE_LQ/l6', 2, NULL, 'ref')$$, 'ID004', NULL,
                 'L6: no result');
SELECT throws_ok($$SELECT idem_complete('case-l/CASE_LQ/l6', 2, '{"n": 1}', 'other')$$, 'ID004',
                 NULL,
                 'L6: another reference');
SELECT throws_ok($$SELECT idem_complete('case-l/CASE_LQ/l6', 1, '{"n": 1}', 'ref')$$, 'ID002', NULL,
                 'L6: the same by an older generation');
SELECT is(pg_temp.record('case-l/CASE_LQ/l6'), :'l6', 'L6: the record is unchanged by all of them');

-- L9: a generation higher than the newest; and the one an action was born with
SELECT FROM idem_claim('case-l/CASE_LQ/l9', '{}');
SELECT pg_temp.record('case-l/CASE_LQ/l9') AS l9 \gset
SELECT throws_ok(call, 'ID002', NULL, 'L9: a higher generation: ' || name)
FROM pg_temp.calls('case-l/CASE_LQ/l9', '4294967297');
SELECT is(pg_temp.record('case-l/CASE_LQ/l9'), :'l9', 'L9: nothing is written');
SELECT FROM idem_submit('case-l/CASE_L/l9', '{}');
SELECT generation AS born FROM idem_status('case-l/CASE_L/l9') \gset
SELECT ok(:born >= 1, 'L9: a record has a generation from its birth');
SELECT lives_ok(format($$SELECT idem_escalate('case-l/CASE_L/l9', %s)$$, :born),
                'L9: escalate with it');
SELECT lives_ok(format($$SELECT idem_resolve('case-l/CASE_L/l9', %s, 'pending', 'go on')$$, :born),
                'L9: resolve with it');
SELECT ok((SELECT generation FROM idem_claim('case-l/CASE_L/l9', '{}')) > :born,
          'L9: a grant is above it');

-- L10: in review by somebody else's claim
SELECT FROM idem_claim('case-l/CASE_L/l10', '{}', owner => 'w1');
SELECT pg_temp.pass('case-l/CASE_L/l10', '31 s');
SELECT is((SELECT outcome FROM idem_claim('case-l/CASE_L/l10', '{}', owner => 'w2')), 'review',
          'L10: the claim puts it in review');
SELECT lives_ok($$SELECT idem_complete('case-l/CASE_L/l10', 1, '"late"', 'ref')$$,
                'L10: the newest generation completes');
SELECT is((SELECT state || result::text || channel_ref FROM idem_status('case-l/CASE_L/l10')),
          'succeeded"late"ref',
          'L10: which is recorded');

-- L11: renewed under repeat
SELECT FROM idem_claim('case-l/CASE_LI/l11', '{}');
SELECT pg_temp.pass('case-l/CASE_LI/l11', '59 min');
SELECT is((SELECT outcome FROM idem_claim('case-l/CASE_LI/l11', '{}', lease => '50 s')), 'repeat',
          'L11: repeat a minute before the key ends');
SELECT is(idem_renew('case-l/CASE_LI/l11', 2, '10 min'),
          (SELECT first_granted_at + interval '1 h' FROM idem_lease
           WHERE key = 'case-l/CASE_LI/l11'),
          'L11: renewed to the end of the key');
SELECT is((SELECT lease_until FROM idem_status('case-l/CASE_LI/l11')),
          (SELECT first_granted_at + interval '1 h' FROM idem_lease
           WHERE key = 'case-l/CASE_LI/l11'),
          'L11: so it is on record');
SELECT pg_temp.pass('case-l/CASE_LI/l11', '2 min');
SELECT throws_ok($$SELECT idem_renew('case-l/CASE_LI/l11', 2)$$, 'ID003', NULL,
                 'L11: not at all after it');
SELECT lives_ok($$SELECT idem_complete('case-l/CASE_LI/l11', 2)$$,
                'L11: what it knows it may still report');

SELECT * FROM finish();
