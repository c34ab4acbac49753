-- cases_recovery.sql: adversarial cases of outcomes and recovery; each test is named by the case's
-- number.
--
-- Nothing waits: where time has to pass, the superuser who runs this shifts the times on record in
-- idem_lease into the past (pg_temp.pass).  Not in one transaction, since a grant counts from its
-- commit.  The file starts by removing what an earlier run of it left behind.
-- The errors that psql prints meanwhile are those that are tested.
\set ON_ERROR_STOP on
\set ON_ERROR_ROLLBACK off
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pgtap;
CREATE EXTENSION IF NOT EXISTS idem_action;
SET session_replication_role = replica;		-- lets go of actions in flight
DELETE FROM idem_lease WHERE idem_key_tenant(key) = 'case-o';
DELETE FROM idem_action WHERE idem_key_tenant(key) = 'case-o';
DELETE FROM idem_evidence WHERE idem_key_tenant(key) = 'case-o';
RESET session_replication_role;
CREATE FUNCTION pg_temp.pass(k idem_key, by interval) RETURNS void LANGUAGE sql AS $$
    UPDATE idem_lease SET granted_at = granted_at - by, lease_until = lease_until - by,
        due_at = due_at - by, first_granted_at = first_granted_at - by,
        call_until = call_until - by WHERE key = k $$;
-- what a claim is answered, in one word and its generation
CREATE FUNCTION pg_temp.ask(k idem_key, lease interval DEFAULT NULL) RETURNS text LANGUAGE sql AS $$
    SELECT outcome || ' ' || generation FROM idem_claim(k, '{"n": 1}', lease => lease) $$;
CREATE FUNCTION pg_temp.state(k idem_key) RETURNS text LANGUAGE sql AS $$
    SELECT state FROM idem_status(k) $$;
SELECT FROM idem_define_operation('CASE_O', 'external', lease => '30 s');
SELECT FROM idem_define_operation('CASE_OQ', 'external', lease => '30 s', channel_queryable => true,
                                  absence_visible_after => '60 s');
SELECT FROM idem_define_operation('CASE_OI', 'external', lease => '30 s',
                                  channel_idempotent => true,
                                  channel_key_ttl => '24 h');
SELECT FROM idem_define_operation('CASE_OIQ', 'external', lease => '30 s',
                                  channel_idempotent => true,
                                  channel_key_ttl => '24 h', channel_queryable => true,
                                  absence_visible_after => '60 s');
SELECT plan(118);

-- O1: the channel timed out; recovery without evidence, with "not found yet", with "found"
SELECT is(pg_temp.ask('case-o/CASE_OQ/o1'), 'execute 1', 'O1: the first attempt');
SELECT FROM idem_mark_unknown('case-o/CASE_OQ/o1', 1, '"timeout"', '10 s');
SELECT is(pg_temp.ask('case-o/CASE_OQ/o1'), 'busy 0', 'O1: backing off');
SELECT pg_temp.pass('case-o/CASE_OQ/o1', '10 s');
SELECT is(pg_temp.ask('case-o/CASE_OQ/o1'), 'verify 2', 'O1: then whoever comes asks the channel');
SELECT FROM idem_mark_unknown('case-o/CASE_OQ/o1', 2, '"no answer"', '0');
SELECT is(pg_temp.state('case-o/CASE_OQ/o1'), 'unknown', 'O1: without evidence it stays unknown');
SELECT is(pg_temp.ask('case-o/CASE_OQ/o1'), 'verify 3', 'O1: asked again');
SELECT is((SELECT outcome || state FROM idem_absent('case-o/CASE_OQ/o1', 3)), 'busyunknown',
          'O1: not found yet is no answer');
SELECT is(pg_temp.ask('case-o/CASE_OQ/o1'), 'busy 0', 'O1: until absence is conclusive');
SELECT pg_temp.pass('case-o/CASE_OQ/o1', '50 s');
SELECT is(pg_temp.ask('case-o/CASE_OQ/o1'), 'verify 4', 'O1: asked once more');
SELECT FROM idem_complete('case-o/CASE_OQ/o1', 4, '{"paid": 1}', 'ref-1');
SELECT is((SELECT outcome || channel_ref || result::text
           FROM idem_claim('case-o/CASE_OQ/o1', '{"n": 1}')),
          'succeededref-1{"paid": 1}', 'O1: found: succeeded with the reference');
SELECT FROM pg_temp.ask('case-o/CASE_OQ/o1b');
SELECT FROM idem_mark_unknown('case-o/CASE_OQ/o1b', 1);
SELECT pg_temp.pass('case-o/CASE_OQ/o1b', '10 years');
SELECT is(pg_temp.state('case-o/CASE_OQ/o1b'), 'unknown',
          'O1: ten years later it is still unknown');
SELECT is(pg_temp.ask('case-o/CASE_OQ/o1b'), 'verify 2', 'O1: age alone never makes a failure');

-- O2: redelivery after the end
SELECT FROM pg_temp.ask('case-o/CASE_O/o2');
SELECT FROM idem_complete('case-o/CASE_O/o2', 1, '"done"');
SELECT is((SELECT outcome || result::text FROM idem_claim('case-o/CASE_O/o2', '{"n": 1}')),
          'succeeded"done"',
          'O2: succeeded with its result');
SELECT FROM pg_temp.ask('case-o/CASE_O/o2b');
SELECT FROM idem_reject('case-o/CASE_O/o2b', 1, '"no"');
SELECT is((SELECT outcome || error::text FROM idem_claim('case-o/CASE_O/o2b', '{"n": 1}')),
          'rejected"no"',
          'O2: rejected with its error');
SELECT is((SELECT outcome || result::text FROM idem_submit('case-o/CASE_O/o2', '{"n": 1}')),
          'succeeded"done"',
          'O2: submit too');
SELECT is((SELECT outcome || error::text FROM idem_reclaim('case-o/CASE_O/o2b')), 'rejected"no"',
          'O2: reclaim too');

-- O3: nothing leaves a terminal state
SELECT a.ctid || a::text AS o3 FROM idem_action a WHERE key = 'case-o/CASE_O/o2' \gset
SELECT throws_ok(format('SELECT idem_%s', call), code, NULL, 'O3: ' || call)
FROM (VALUES
    ($$complete('case-o/CASE_O/o2', 1, '"other"')$$, 'ID004'),
    ($$complete('case-o/CASE_O/o2', 1, '"done"', 'ref-2')$$, 'ID004'),
    ($$reject('case-o/CASE_O/o2', 1, '"no"')$$, 'ID003'),
    ($$mark_unknown('case-o/CASE_O/o2', 1)$$, 'ID003'),
    ($$release('case-o/CASE_O/o2', 1)$$, 'ID003'),
    ($$renew('case-o/CASE_O/o2', 1)$$, 'ID003'),
    ($$absent('case-o/CASE_O/o2', 1)$$, 'ID003'),
    ($$escalate('case-o/CASE_O/o2', 1)$$, 'ID003'),
    ($$resolve('case-o/CASE_O/o2', 1, 'pending', 'note')$$, 'ID003'),
    ($$resolve('case-o/CASE_O/o2', 1, 'rejected', 'note')$$, 'ID003'),
    ($$complete('case-o/CASE_O/o2b', 1)$$, 'ID003'),
    ($$resolve('case-o/CASE_O/o2b', 1, 'succeeded', 'note')$$, 'ID003')) AS late (call, code);
SELECT is(idem_cancel('case-o/CASE_O/o2'), false, 'O3: cancel comes too late');
SELECT is((SELECT a.ctid || a::text FROM idem_action a WHERE key = 'case-o/CASE_O/o2'), :'o3',
          'O3: the record is unchanged by all of them');

-- O4: the channel promises nothing
SELECT FROM pg_temp.ask('case-o/CASE_O/o4');
SELECT pg_temp.pass('case-o/CASE_O/o4', '29 s');
SELECT is(pg_temp.ask('case-o/CASE_O/o4'), 'busy 0', 'O4: while the owner is presumed alive');
SELECT pg_temp.pass('case-o/CASE_O/o4', '2 s');
SELECT is(pg_temp.ask('case-o/CASE_O/o4'), 'review 0', 'O4: he died: review');
SELECT pg_temp.pass('case-o/CASE_O/o4', '1 year');
SELECT is(pg_temp.ask('case-o/CASE_O/o4'), 'review 0', 'O4: and nothing moves it by itself');
SELECT is((SELECT outcome FROM idem_reclaim('case-o/CASE_O/o4')), 'review', 'O4: nor by its key');
SELECT is((SELECT generation FROM idem_status('case-o/CASE_O/o4')), 1::bigint,
          'O4: nobody was granted it');
SELECT FROM pg_temp.ask('case-o/CASE_O/o4b');
SELECT FROM idem_mark_unknown('case-o/CASE_O/o4b', 1, retry_after => '0');
SELECT is(pg_temp.ask('case-o/CASE_O/o4b'), 'review 0', 'O4: likewise what is unknown');
SELECT FROM idem_resolve('case-o/CASE_O/o4b', 1, 'pending', 'the channel never had it');
SELECT is(pg_temp.ask('case-o/CASE_O/o4b'), 'execute 3', 'O4: until an operator vouches');
-- an attempt that made no call is not one that may have executed
SELECT FROM pg_temp.ask('case-o/CASE_O/o4c');
SELECT FROM idem_release('case-o/CASE_O/o4c', 1, retry_after => '0');
SELECT is(pg_temp.ask('case-o/CASE_O/o4c'), 'execute 2', 'O4: released is not ambiguous');

-- O5: the channel's key is valid for 24 h from the first grant
SELECT pg_temp.ask(k) FROM (VALUES ('case-o/CASE_OI/o5-25h'::idem_key), ('case-o/CASE_OIQ/o5-25h'),
    ('case-o/CASE_OI/o5-10s'), ('case-o/CASE_OIQ/o5-10s'), ('case-o/CASE_OI/o5-60s'),
    ('case-o/CASE_OIQ/o5-60s'), ('case-o/CASE_OI/o5-ahead')) AS o5 (k);
SELECT pg_temp.pass('case-o/CASE_OI/o5-25h', '25 h');
SELECT pg_temp.pass('case-o/CASE_OIQ/o5-25h', '25 h');
SELECT pg_temp.pass('case-o/CASE_OI/o5-10s', '23 h 59 min 50 s');
SELECT pg_temp.pass('case-o/CASE_OIQ/o5-10s', '23 h 59 min 50 s');
SELECT pg_temp.pass('case-o/CASE_OI/o5-60s', '23 h 59 min');
SELECT pg_temp.pass('case-o/CASE_OIQ/o5-60s', '23 h 59 min');
SELECT is(pg_temp.ask('case-o/CASE_OI/o5-25h'), 'review 0', 'O5: 25 h ago');
SELECT is(pg_temp.ask('case-o/CASE_OIQ/o5-25h'), 'verify 2', 'O5: 25 h ago, queryable');
SELECT is(pg_temp.ask('case-o/CASE_OI/o5-10s'), 'review 0', 'O5: 10 s before the end, for 30 s');
SELECT is(pg_temp.ask('case-o/CASE_OIQ/o5-10s'), 'verify 2',
          'O5: 10 s before the end, for 30 s, queryable');
SELECT is(pg_temp.ask('case-o/CASE_OIQ/o5-60s', '5 min'), 'verify 2',
          'O5: a minute before the end, for 5 min');
SELECT is(pg_temp.ask('case-o/CASE_OI/o5-60s'), 'repeat 2',
          'O5: a minute before the end, for 30 s');
-- it counts from the first grant, whatever came after
SELECT pg_temp.pass('case-o/CASE_OI/o5-60s', '31 s');
SELECT is(pg_temp.ask('case-o/CASE_OI/o5-60s', '1 s'), 'repeat 3',
          'O5: a repeat does not prolong the key');
SELECT pg_temp.pass('case-o/CASE_OI/o5-60s', '29 s');
SELECT is(pg_temp.ask('case-o/CASE_OI/o5-60s', '1 s'), 'review 0', 'O5: which has ended now');
-- a first grant that lies ahead of the clock proves nothing
UPDATE idem_lease SET first_granted_at = first_granted_at + interval '1 h',
    lease_until = granted_at - interval '1 s'
WHERE key = 'case-o/CASE_OI/o5-ahead';
SELECT is(pg_temp.ask('case-o/CASE_OI/o5-ahead'), 'review 0', 'O5: first granted later than now');

-- O5b: lease 30 s, absence conclusive after 60 s, granted at 0, verified at 61
SELECT FROM pg_temp.ask('case-o/CASE_OQ/o5b');
SELECT pg_temp.pass('case-o/CASE_OQ/o5b', '61 s');
SELECT is(pg_temp.ask('case-o/CASE_OQ/o5b'), 'verify 2', 'O5b: verify at 61');
SELECT is((SELECT absence_conclusive_at - l.first_granted_at
           FROM idem_absent('case-o/CASE_OQ/o5b', 2),
           idem_lease l WHERE l.key = 'case-o/CASE_OQ/o5b'), '90 s',
               'O5b: not conclusive before 90');
SELECT is(pg_temp.state('case-o/CASE_OQ/o5b'), 'unknown', 'O5b: so it is unknown');
SELECT pg_temp.pass('case-o/CASE_OQ/o5b', '28 s');
SELECT is(pg_temp.ask('case-o/CASE_OQ/o5b'), 'busy 0', 'O5b: at 89 everybody waits');
SELECT is((SELECT retry_at - first_granted_at FROM idem_claim('case-o/CASE_OQ/o5b', '{"n": 1}'),
           idem_lease l WHERE l.key = 'case-o/CASE_OQ/o5b'), '90 s',
               'O5b: asking does not move that moment');
SELECT pg_temp.pass('case-o/CASE_OQ/o5b', '2 s');
SELECT is(pg_temp.ask('case-o/CASE_OQ/o5b'), 'verify 3', 'O5b: at 91 it is verified again');
SELECT is((SELECT outcome || ' ' || generation || ' ' || state
           FROM idem_absent('case-o/CASE_OQ/o5b', 3)),
          'execute 4 processing', 'O5b: then execute under a new generation');
SELECT throws_ok($$SELECT idem_complete('case-o/CASE_OQ/o5b', 3)$$, 'ID002', NULL,
                 'O5b: the one that verified is stale');
SELECT lives_ok($$SELECT idem_complete('case-o/CASE_OQ/o5b', 4)$$, 'O5b: the new one completes');
-- a worker that was granted verify before that moment and speaks after it
SELECT FROM pg_temp.ask('case-o/CASE_OQ/o5b-slow');
SELECT pg_temp.pass('case-o/CASE_OQ/o5b-slow', '61 s');
SELECT is(pg_temp.ask('case-o/CASE_OQ/o5b-slow', '10 min'), 'verify 2',
          'O5b: verify at 61, for long');
SELECT pg_temp.pass('case-o/CASE_OQ/o5b-slow', '60 s');
SELECT is((SELECT outcome FROM idem_absent('case-o/CASE_OQ/o5b-slow', 2)), 'busy',
          'O5b: said at 121 it may have been asked at 62');
SELECT is(pg_temp.ask('case-o/CASE_OQ/o5b-slow'), 'verify 3', 'O5b: so it is asked again');
-- a call that was renewed could start later
SELECT FROM pg_temp.ask('case-o/CASE_OQ/o5b-renewed');
SELECT FROM idem_renew('case-o/CASE_OQ/o5b-renewed', 1, '10 min');
SELECT pg_temp.pass('case-o/CASE_OQ/o5b-renewed', '10 min 30 s');
SELECT is(pg_temp.ask('case-o/CASE_OQ/o5b-renewed'), 'verify 2', 'O5b: renewed for 10 min');
SELECT is((SELECT outcome FROM idem_absent('case-o/CASE_OQ/o5b-renewed', 2)), 'busy',
          'O5b: then absence is conclusive at 11 min');
-- a clock that was set back is no proof
SELECT FROM pg_temp.ask('case-o/CASE_OQ/o5b-back');
SELECT pg_temp.pass('case-o/CASE_OQ/o5b-back', '1 h');
SELECT FROM pg_temp.ask('case-o/CASE_OQ/o5b-back');
UPDATE idem_lease SET first_granted_at = clock_timestamp() + interval '1 h'
WHERE key = 'case-o/CASE_OQ/o5b-back';
SELECT is((SELECT outcome FROM idem_absent('case-o/CASE_OQ/o5b-back', 2)), 'busy',
          'O5b: first granted later than now: not conclusive');

-- O5c: the first may have executed, the second made no call
SELECT FROM pg_temp.ask('case-o/CASE_OI/o5c');
SELECT pg_temp.pass('case-o/CASE_OI/o5c', '31 s');
SELECT is(pg_temp.ask('case-o/CASE_OI/o5c'), 'repeat 2', 'O5c: the second attempt');
SELECT FROM idem_release('case-o/CASE_OI/o5c', 2, retry_after => '0');
SELECT is(pg_temp.state('case-o/CASE_OI/o5c'), 'unknown', 'O5c: released to unknown, not pending');
SELECT is(idem_cancel('case-o/CASE_OI/o5c'), false, 'O5c: so it cannot be cancelled');
SELECT is(pg_temp.ask('case-o/CASE_OI/o5c'), 'repeat 3', 'O5c: nobody gets execute');
SELECT FROM pg_temp.ask('case-o/CASE_OQ/o5c');
SELECT pg_temp.pass('case-o/CASE_OQ/o5c', '31 s');
SELECT FROM pg_temp.ask('case-o/CASE_OQ/o5c');
SELECT FROM idem_release('case-o/CASE_OQ/o5c', 2, retry_after => '0');
SELECT is(pg_temp.state('case-o/CASE_OQ/o5c'), 'unknown', 'O5c: likewise under verify');

-- O5e: the weaker of what was promised at the first grant and what is promised now
CREATE TEMPORARY TABLE promises (name text, promise text);
INSERT INTO promises VALUES ('nothing', ''),
    ('idempotent', ', channel_idempotent => true, channel_key_ttl => ''24 h'''),
    ('idempotent 1 h', ', channel_idempotent => true, channel_key_ttl => ''1 h'''),
    ('queryable', ', channel_queryable => true, absence_visible_after => ''60 s'''),
    ('queryable 1 day', ', channel_queryable => true, absence_visible_after => ''1 day'''),
    ('both', ', channel_idempotent => true, channel_key_ttl => ''24 h'','
             ' channel_queryable => true, absence_visible_after => ''60 s''');
CREATE TEMPORARY TABLE o5e (first text, now text, answer text, got text);
INSERT INTO o5e VALUES ('nothing', 'idempotent', 'review'), ('nothing', 'queryable', 'review'),
    ('nothing', 'both', 'review'), ('idempotent', 'nothing', 'review'),
    ('idempotent', 'queryable', 'review'), ('idempotent', 'idempotent', 'repeat'),
    ('idempotent', 'both', 'repeat'), ('idempotent', 'idempotent 1 h', 'review'),
    ('idempotent 1 h', 'idempotent', 'review'), ('queryable', 'idempotent', 'review'),
    ('queryable', 'queryable', 'verify'), ('both', 'queryable', 'verify'),
    ('queryable', 'both', 'verify'), ('queryable', 'queryable 1 day', 'verify'),
    ('queryable 1 day', 'queryable', 'verify');
-- each is claimed, left for an hour, and claimed again under the other contract
DO $$
DECLARE
    r record;
    k idem_key;
BEGIN
    FOR r IN SELECT first, now, f.promise AS old, n.promise AS new
             FROM o5e JOIN promises f ON f.name = first JOIN promises n ON n.name = now LOOP
        k := idem_key('case-o', 'CASE_O5E', r.first || '/' || r.now);
        EXECUTE 'SELECT idem_define_operation(''CASE_O5E'', ''external'', channel => ''psp'''
            || r.old || ')';
        PERFORM idem_claim(k, '{"n": 1}');
        PERFORM pg_temp.pass(k, '1 h 1 min');
        COMMIT;
        EXECUTE 'SELECT idem_define_operation(''CASE_O5E'', ''external'', channel => ''psp'''
            || r.new || ')';
        UPDATE o5e SET got = (SELECT outcome FROM idem_claim(k, '{"n": 1}'))
        WHERE first = r.first AND now = r.now;
        COMMIT;
    END LOOP;
END $$;
SELECT is(got, answer, format('O5e: first %s, now %s', first, now)) FROM o5e;
-- the longer wait until absence shows
SELECT FROM idem_define_operation('CASE_O5E', 'external', channel => 'psp',
                                  channel_queryable => true,
                                  absence_visible_after => '60 s');
SELECT is((SELECT outcome FROM idem_absent('case-o/CASE_O5E/queryable 1 day/queryable', 2)), 'busy',
          'O5e: a wait that became shorter does not count');
SELECT FROM idem_define_operation('CASE_O5E', 'external', channel => 'psp',
                                  channel_queryable => true,
                                  absence_visible_after => '1 day');
SELECT is((SELECT outcome FROM idem_absent('case-o/CASE_O5E/queryable/queryable 1 day', 2)), 'busy',
          'O5e: one that became longer does');
SELECT is((SELECT outcome FROM idem_absent('case-o/CASE_O5E/queryable/queryable', 2)), 'busy',
          'O5e: at whatever time it did');
-- what was only submitted under the old contract is first granted under the new one
SELECT FROM idem_define_operation('CASE_O5E', 'external', channel => 'psp');
SELECT FROM idem_submit('case-o/CASE_O5E/submitted', '{"n": 1}');
SELECT FROM idem_define_operation('CASE_O5E', 'external', channel => 'psp',
                                  channel_idempotent => true,
                                  channel_key_ttl => '24 h');
SELECT FROM pg_temp.ask('case-o/CASE_O5E/submitted');
SELECT pg_temp.pass('case-o/CASE_O5E/submitted', '1 min');
SELECT is(pg_temp.ask('case-o/CASE_O5E/submitted'), 'repeat 3',
          'O5e: it counts from the first grant');

-- O8: a worker that lost its lease, beside a stale complete
CREATE TEMPORARY TABLE business (n int);
SELECT FROM pg_temp.ask('case-o/CASE_OQ/o8');
SELECT pg_temp.pass('case-o/CASE_OQ/o8', '31 s');
SELECT FROM pg_temp.ask('case-o/CASE_OQ/o8');
\set ON_ERROR_STOP off
\set VERBOSITY sqlstate
BEGIN;
INSERT INTO business VALUES (8);
SELECT FROM idem_complete('case-o/CASE_OQ/o8', 1);
\set got :SQLSTATE
COMMIT;
\set ON_ERROR_STOP on
SELECT is(:'got'::text, 'ID002', 'O8: the complete is refused');
SELECT is_empty('TABLE business', 'O8: and the business write with it');

-- O9: the channel never knows
SELECT FROM idem_define_operation('CASE_O9', 'external', max_attempts => 3,
                                  channel_queryable => true,
                                  absence_visible_after => '60 s');
SELECT is(pg_temp.ask('case-o/CASE_O9/1'), 'execute 1', 'O9: attempt 1');
SELECT FROM idem_mark_unknown('case-o/CASE_O9/1', 1, retry_after => '0');
SELECT is(pg_temp.ask('case-o/CASE_O9/1'), 'verify 2', 'O9: attempt 2');
SELECT FROM idem_mark_unknown('case-o/CASE_O9/1', 2, retry_after => '0');
SELECT is(pg_temp.ask('case-o/CASE_O9/1'), 'verify 3', 'O9: attempt 3');
SELECT FROM idem_mark_unknown('case-o/CASE_O9/1', 3, retry_after => '0');
SELECT is(pg_temp.ask('case-o/CASE_O9/1'), 'review 0', 'O9: every grant counts, so review');
SELECT is(pg_temp.state('case-o/CASE_O9/1'), 'review', 'O9: on record');
-- also where nothing is ambiguous, and for an absence that would grant a fourth
SELECT FROM pg_temp.ask('case-o/CASE_O9/released');
SELECT FROM idem_release('case-o/CASE_O9/released', 1, retry_after => '0');
SELECT FROM pg_temp.ask('case-o/CASE_O9/released');
SELECT FROM idem_release('case-o/CASE_O9/released', 2, retry_after => '0');
SELECT FROM pg_temp.ask('case-o/CASE_O9/released');
SELECT FROM idem_release('case-o/CASE_O9/released', 3, retry_after => '0');
SELECT is(pg_temp.ask('case-o/CASE_O9/released'), 'review 0', 'O9: three that made no call');
SELECT FROM pg_temp.ask('case-o/CASE_O9/absent');
SELECT pg_temp.pass('case-o/CASE_O9/absent', '1 h');
SELECT FROM pg_temp.ask('case-o/CASE_O9/absent');
SELECT FROM idem_mark_unknown('case-o/CASE_O9/absent', 2, retry_after => '0');
SELECT FROM pg_temp.ask('case-o/CASE_O9/absent');
SELECT is((SELECT outcome || ' ' || generation || ' ' || state
           FROM idem_absent('case-o/CASE_O9/absent', 3)),
          'review 0 review', 'O9: absence after the last attempt');
SELECT FROM idem_resolve('case-o/CASE_O9/absent', 3, 'pending', 'surely not executed');
SELECT is((SELECT outcome || ' ' || generation || ' ' || attempt
           FROM idem_claim('case-o/CASE_O9/absent', '{"n": 1}')),
          'execute 5 1', 'O9: an operator starts a fresh history');

-- O10: another channel with the same promises, while an attempt is ambiguous
SELECT FROM idem_define_operation('CASE_O10', 'external', channel => 'old',
                                  channel_idempotent => true,
    channel_key_ttl => '24 h', channel_queryable => true, absence_visible_after => '60 s');
SELECT FROM pg_temp.ask('case-o/CASE_O10/ambiguous');
SELECT FROM pg_temp.ask('case-o/CASE_O10/verified');
SELECT FROM pg_temp.ask('case-o/CASE_O10/released');
SELECT FROM idem_release('case-o/CASE_O10/released', 1, retry_after => '0');
SELECT pg_temp.pass('case-o/CASE_O10/ambiguous', '31 s');
SELECT pg_temp.pass('case-o/CASE_O10/verified', '24 h');
SELECT is(pg_temp.ask('case-o/CASE_O10/verified'), 'verify 2',
          'O10: verify, as long as it is the old channel');
SELECT FROM idem_define_operation('CASE_O10', 'external', channel => 'new',
                                  channel_idempotent => true,
    channel_key_ttl => '24 h', channel_queryable => true, absence_visible_after => '60 s');
SELECT is(pg_temp.ask('case-o/CASE_O10/ambiguous'), 'review 0',
          'O10: the promise belongs to the old channel');
SELECT is((SELECT channel FROM idem_claim('case-o/CASE_O10/ambiguous', '{"n": 1}')), 'old',
          'O10: the verdict names the channel that may have executed it');
SELECT is((SELECT outcome FROM idem_absent('case-o/CASE_O10/verified', 2)), 'review',
          'O10: what the new channel does not know proves nothing');
SELECT is((SELECT outcome || ' ' || channel FROM idem_claim('case-o/CASE_O10/released',
                                                            '{"n": 1}')), 'execute new',
          'O10: where nothing is ambiguous the new channel is called');
-- moved while an attempt is owed, and moved back: the attempt was the other channel's
SELECT pg_temp.pass('case-o/CASE_O10/released', '1 h');
SELECT FROM idem_define_operation('CASE_O10', 'external', channel => 'old',
                                  channel_idempotent => true,
    channel_key_ttl => '24 h', channel_queryable => true, absence_visible_after => '60 s');
SELECT is(pg_temp.ask('case-o/CASE_O10/released'), 'review 0', 'O10: moved, and moved back');

-- O5d: the success of a replaced owner, or what a webhook knows, arrives late with a reference
SELECT is(pg_temp.ask('case-o/CASE_OQ/o5d'), 'execute 1', 'O5d: W1 is granted it, and pauses');
SELECT pg_temp.pass('case-o/CASE_OQ/o5d', '2 min');
SELECT is(pg_temp.ask('case-o/CASE_OQ/o5d'), 'verify 2', 'O5d: W2 asks, and does not find it');
SELECT throws_ok($$SELECT idem_complete('case-o/CASE_OQ/o5d', 1, '1', 'ref-5')$$, 'ID002', NULL,
                 'O5d: late state is not welcome');
SELECT lives_ok($$SELECT idem_add_evidence('case-o/CASE_OQ/o5d', 1, '{"http": 200}', 'ref-5')$$,
                'O5d: late evidence is');
SELECT throws_ok($$SELECT idem_absent('case-o/CASE_OQ/o5d', 2)$$, 'ID003', NULL,
                 'O5d: absent would contradict it');
SELECT throws_ok($$SELECT idem_release('case-o/CASE_OQ/o5d', 2)$$, 'ID003', NULL,
                 'O5d: so would a release');
SELECT pg_temp.pass('case-o/CASE_OQ/o5d', '30 days');
SELECT is(pg_temp.ask('case-o/CASE_OQ/o5d'), 'verify 3', 'O5d: nobody is granted execute any more');
SELECT is((SELECT state || channel_ref FROM idem_status('case-o/CASE_OQ/o5d')), 'processingref-5',
          'O5d: the reference is on record');
SELECT FROM pg_temp.ask('case-o/CASE_O/o5d-unknown');
SELECT FROM pg_temp.ask('case-o/CASE_O/o5d-pending');
SELECT FROM idem_mark_unknown('case-o/CASE_O/o5d-unknown', 1, NULL, '0'),
            idem_release('case-o/CASE_O/o5d-pending', 1, NULL, '0');
SELECT FROM idem_add_evidence('case-o/CASE_O/o5d-unknown', NULL, NULL, 'ref-6');
SELECT FROM idem_add_evidence('case-o/CASE_O/o5d-pending', NULL, NULL, 'ref-7');
SELECT is(idem_cancel('case-o/CASE_O/o5d-pending'), false, 'O5d: nor is it cancelled');
SELECT is(pg_temp.ask('case-o/CASE_O/o5d-unknown'), 'verify 2',
          'O5d: from a webhook, while unknown: whoever comes verifies, whatever the contract');
SELECT is(pg_temp.ask('case-o/CASE_O/o5d-pending'), 'verify 2', 'O5d: and while pending');
SELECT FROM idem_escalate('case-o/CASE_O/o5d-pending', 2);
SELECT is((SELECT channel_refs::text || is_in_doubt FROM idem_review
           WHERE key = 'case-o/CASE_O/o5d-pending'), '{ref-7}true',
          'O5d: an operator sees the reference');
SELECT FROM idem_resolve('case-o/CASE_O/o5d-pending', 2, 'pending', 'it is another shop''s', NULL, 'ref-7');
SELECT is(pg_temp.ask('case-o/CASE_O/o5d-pending'), 'execute 4',
          'O5d: and sets it aside by naming it and resolving to pending');

-- S2: released or unknown, dead-lettered, replayed with the same ids
SELECT FROM pg_temp.ask('case-o/CASE_O/s2-released');
SELECT FROM pg_temp.ask('case-o/CASE_OQ/s2-unknown');
SELECT FROM idem_release('case-o/CASE_O/s2-released', 1, NULL, '0'),
            idem_mark_unknown('case-o/CASE_OQ/s2-unknown', 1, NULL, '0');
BEGIN;
SET LOCAL idem_action.replay_batch = 'rb-1';
SELECT pg_temp.ask('case-o/CASE_O/s2-released') AS s2_released,
       pg_temp.ask('case-o/CASE_OQ/s2-unknown') AS s2_unknown \gset
COMMIT;
SELECT is(:'s2_released'::text, 'execute 2', 'S2: what was released is executed, under a new generation');
SELECT is(:'s2_unknown'::text, 'verify 2', 'S2: what is unknown is verified');
SELECT is((SELECT string_agg(generation || coalesce(replay_batch, ''), ' ' ORDER BY recorded_at)
           FROM idem_evidence WHERE key = 'case-o/CASE_O/s2-released'), '1 1 2rb-1',
          'S2: the batch is in the evidence of the replay only');
SELECT is((SELECT count(*) FROM idem_evidence WHERE replay_batch = 'rb-1'
           AND idem_key_tenant(key) = 'case-o'), 2::bigint, 'S2: for both');

SELECT * FROM finish();
