-- cases_claims.sql: adversarial cases of claims, transactions and savepoints, as far as one
-- session can play them; each test is named by the case's number.
--
-- Not in one transaction, since what is tested happens at commit.  The file starts by removing
-- what an earlier run of it left behind.
-- The errors that psql prints meanwhile are those that are tested.
\set ON_ERROR_STOP on
\set ON_ERROR_ROLLBACK off
\set VERBOSITY sqlstate
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pgtap;
CREATE EXTENSION IF NOT EXISTS idem_action;
SET session_replication_role = replica;		-- lets go of actions in flight
DELETE FROM idem_lease WHERE idem_key_tenant(key) = 'case-c';
DELETE FROM idem_action WHERE idem_key_tenant(key) = 'case-c';
RESET session_replication_role;
SELECT FROM idem_define_operation('CASE_CL');
SELECT FROM idem_define_operation('CASE_CX', 'external');
CREATE TEMPORARY TABLE business (n int);
CREATE FUNCTION pg_temp.echo(params jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT params';
SELECT plan(47);

-- C2: business write, duplicate claim, another statement, commit
SELECT FROM idem_once('case-c/CASE_CL/c2', '{}');
SELECT FROM idem_claim('case-c/CASE_CX/c2', '{}');
BEGIN;
INSERT INTO business VALUES (1);
SELECT is((SELECT outcome FROM idem_claim('case-c/CASE_CL/c2', '{}')), 'succeeded',
          'C2: duplicate');
SELECT is((SELECT outcome FROM idem_claim('case-c/CASE_CL/c2', '{"n": 1}')), 'conflict',
          'C2: conflict');
SELECT is((SELECT outcome FROM idem_claim('case-c/CASE_CX/c2', '{}')), 'busy', 'C2: busy');
INSERT INTO business VALUES (2);
COMMIT;
SELECT is((SELECT count(*) FROM business), 2::bigint, 'C2: all committed');
BEGIN;
SELECT is((SELECT outcome FROM idem_claim('case-c/CASE_CL/c2', '{}')), 'succeeded',
          'C2: duplicate alone');
SELECT is((SELECT outcome FROM idem_claim('case-c/CASE_CX/c2', '{}', nowait => true)), 'busy',
          'C2: busy, nowait');
SELECT is(idem_once('case-c/CASE_CL/c2', '{}'), false, 'C2: idem_once');
COMMIT;
-- pgTAP writes a table itself, so the transaction id is looked at before it is asked
BEGIN;
SELECT FROM idem_claim('case-c/CASE_CL/c2', '{}');
SELECT FROM idem_claim('case-c/CASE_CX/c2', '{}');
SELECT FROM idem_once('case-c/CASE_CL/c2', '{}');
SELECT FROM idem_claim('case-c/CASE_CX/c2', '{}', nowait => true);
SELECT FROM idem_submit('case-c/CASE_CX/c2', '{}');
SELECT pg_current_xact_id_if_assigned() IS NULL AS c2_none \gset
COMMIT;
SELECT ok(:'c2_none', 'C2: no transaction id is taken');

-- C4: savepoints
BEGIN;
SAVEPOINT a;
SELECT FROM idem_claim('case-c/CASE_CL/c4', '{"n": 1}');
ROLLBACK TO a;
SELECT is((SELECT outcome || generation FROM idem_claim('case-c/CASE_CL/c4', '{"n": 2}')),
          'execute1',
          'C4: claimed again after a rollback, as if never done');
SELECT FROM idem_complete('case-c/CASE_CL/c4', 1);
COMMIT;
SELECT is((SELECT state FROM idem_status('case-c/CASE_CL/c4')), 'succeeded', 'C4: and committed');
BEGIN;
SELECT FROM idem_claim('case-c/CASE_CL/c4b', '{}');
SAVEPOINT a;
SELECT FROM idem_complete('case-c/CASE_CL/c4b', 1);
ROLLBACK TO a;
\set ON_ERROR_STOP off
COMMIT;
\set got :SQLSTATE
\set ON_ERROR_STOP on
SELECT is(:'got'::text, 'ID008', 'C4: completed in a savepoint that was rolled back: open again');
SELECT is_empty($$SELECT * FROM idem_status('case-c/CASE_CL/c4b')$$, 'C4: nothing was committed');
BEGIN;
SELECT FROM idem_claim('case-c/CASE_CL/c4b', '{}');
SAVEPOINT a;
SELECT FROM idem_complete('case-c/CASE_CL/c4b', 1);
ROLLBACK TO a;
SELECT lives_ok($$SELECT idem_complete('case-c/CASE_CL/c4b', 1, '2')$$,
                'C4: and may be completed anew');
COMMIT;
SELECT is((SELECT result FROM idem_status('case-c/CASE_CL/c4b')), '2', 'C4: with another result');
BEGIN;
SAVEPOINT a;
SELECT FROM idem_claim('case-c/CASE_CL/c4c', '{}');
ROLLBACK TO a;
COMMIT;
SELECT is_empty($$SELECT * FROM idem_status('case-c/CASE_CL/c4c')$$,
                'C4: a withdrawn claim is owed nothing');
BEGIN;
SAVEPOINT a;
SELECT FROM idem_claim('case-c/CASE_CL/c4c', '{}');
RELEASE a;
\set ON_ERROR_STOP off
COMMIT;
\set got :SQLSTATE
\set ON_ERROR_STOP on
SELECT is(:'got'::text, 'ID008', 'C4: a claim of a released savepoint is owed');
-- an external grant that is withdrawn is not this transaction's; one that is not is
BEGIN;
SAVEPOINT a;
SELECT FROM idem_claim('case-c/CASE_CX/c4', '{}');
ROLLBACK TO a;
SELECT is((SELECT outcome FROM idem_claim('case-c/CASE_CX/c4', '{}')), 'execute',
          'C4: an external claim, withdrawn and claimed again');
SAVEPOINT b;
SELECT throws_ok($$SELECT idem_complete('case-c/CASE_CX/c4', 1)$$, 'ID003', NULL,
                 'C4: which may not be completed before its commit');
ROLLBACK TO b;
SELECT FROM idem_release('case-c/CASE_CX/c4', 1, retry_after => '0');
SELECT is((SELECT outcome || generation FROM idem_claim('case-c/CASE_CX/c4', '{}')), 'execute2',
          'C4: released and claimed again');
ROLLBACK TO b;
SELECT throws_ok($$SELECT idem_complete('case-c/CASE_CX/c4', 1)$$, 'ID003', NULL,
                 'C4: the release is undone with its savepoint, so the first grant counts');
COMMIT;
SELECT lives_ok($$SELECT idem_complete('case-c/CASE_CX/c4', 1)$$, 'C4: after the commit it may');

-- C7: the handler raises, rollback, redelivery
CREATE FUNCTION pg_temp.c7(fails boolean) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    v idem_verdict;
BEGIN
    SELECT * INTO STRICT v FROM idem_claim('case-c/CASE_CL/c7', '{}');
    IF v.outcome = 'execute' THEN
        INSERT INTO business VALUES (7);
        IF fails THEN
            RAISE EXCEPTION 'no' USING errcode = 'UU007';
        END IF;
        PERFORM idem_complete('case-c/CASE_CL/c7', v.generation);
    END IF;
    RETURN v.outcome;
END $$;
SELECT throws_ok('SELECT pg_temp.c7(true)', 'UU007', NULL, 'C7: the handler raises');
SELECT is_empty($$SELECT * FROM idem_status('case-c/CASE_CL/c7')$$, 'C7: nothing is on record');
SELECT is(pg_temp.c7(false), 'execute', 'C7: the redelivery runs');
SELECT is(pg_temp.c7(false), 'succeeded', 'C7: and the next one does not');
SELECT is((SELECT count(*) FROM business WHERE n = 7), 1::bigint, 'C7: one effect');

-- C11: external actions are not claimed and completed in one transaction, nor prepared
BEGIN;
SELECT FROM idem_claim('case-c/CASE_CX/c11', '{}');
SELECT throws_ok($$SELECT idem_complete('case-c/CASE_CX/c11', 1)$$, 'ID003', NULL, 'C11: complete');
SELECT throws_ok($$SELECT idem_mark_unknown('case-c/CASE_CX/c11', 1)$$, 'ID003', NULL,
                 'C11: mark_unknown');
COMMIT;
SELECT is((SELECT state FROM idem_status('case-c/CASE_CX/c11')), 'processing',
          'C11: the grant stands');
SELECT lives_ok($$SELECT idem_complete('case-c/CASE_CX/c11', 1)$$,
                'C11: in another transaction it is legal');
\set ON_ERROR_STOP off
BEGIN;
SELECT FROM idem_claim('case-c/CASE_CX/c11b', '{}');
PREPARE TRANSACTION 'idem_action_c11';
\set got :SQLSTATE
SELECT is(:'got'::text, 'ID003', 'C11: prepared with a claim');
BEGIN;
SELECT FROM idem_submit('case-c/CASE_CX/c11b', '{}');
PREPARE TRANSACTION 'idem_action_c11';
\set got :SQLSTATE
SELECT is(:'got'::text, 'ID003', 'C11: prepared with a submit');
BEGIN;
SELECT FROM idem_claim('case-c/CASE_CL/c11', '{}');
PREPARE TRANSACTION 'idem_action_c11';
\set got :SQLSTATE
SELECT is(:'got'::text, 'ID008', 'C11: prepared with an open local claim');
\set ON_ERROR_STOP on
SELECT FROM idem_claim('case-c/CASE_CX/c11c', '{}');
BEGIN;
SELECT FROM idem_complete('case-c/CASE_CX/c11c', 1);
\set ON_ERROR_STOP off
PREPARE TRANSACTION 'idem_action_c11';
\set got :SQLSTATE
\set ON_ERROR_STOP on
SELECT is(:'got'::text, 'ID003', 'C11: prepared with a complete');
SELECT is((SELECT state FROM idem_status('case-c/CASE_CX/c11c')), 'processing',
          'C11: which was rolled back');
SELECT throws_ok($$SELECT idem_once('case-c/CASE_CX/c11d', '{}')$$, 'ID003', NULL,
                 'C11: once is local only');
SELECT throws_ok($$SELECT idem_call('case-c/CASE_CX/c11d', '{}', 'pg_temp.echo')$$, 'ID003',
                 NULL,
                 'C11: call is local only');

-- C12: nobody waits for himself
BEGIN;
SELECT FROM idem_claim('case-c/CASE_CL/c12', '{}');
SELECT throws_ok($$SELECT idem_claim('case-c/CASE_CL/c12', '{}')$$, 'ID003', NULL,
                 'C12: a local key, twice');
SELECT throws_ok($$SELECT idem_once('case-c/CASE_CL/c12', '{}')$$, 'ID003', NULL, 'C12: then once');
SELECT throws_ok($$SELECT idem_call('case-c/CASE_CL/c12', '{}', 'pg_temp.echo')$$, 'ID003',
                 NULL,
                 'C12: then call');
ROLLBACK;
BEGIN;
SELECT FROM idem_claim('case-c/CASE_CX/c12', '{}');
SELECT throws_ok($$SELECT idem_claim('case-c/CASE_CX/c12', '{}')$$, 'ID003', NULL,
                 'C12: an external key, twice');
SELECT throws_ok($$SELECT idem_reclaim('case-c/CASE_CX/c12')$$, 'ID003', NULL, 'C12: then reclaim');
COMMIT;
SELECT is((SELECT outcome FROM idem_claim('case-c/CASE_CX/c12', '{}')), 'busy',
          'C12: another transaction of the same session is somebody else');
CREATE FUNCTION public.case_c12(params jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    RETURN to_jsonb(v) FROM idem_claim('case-c/CASE_CL/c12', params) v;
END $$;
SELECT throws_ok($$SELECT idem_call('case-c/CASE_CL/c12', '{}', 'public.case_c12')$$, 'ID003', NULL,
                 'C12: a handler that claims its own key');
DROP FUNCTION public.case_c12(jsonb);

-- C13: idem_once beside a cheaper condition
CREATE TEMPORARY TABLE c13 (id int, status text);
INSERT INTO c13 SELECT i, CASE WHEN i % 2 = 0 THEN 'new' ELSE 'old' END
FROM generate_series(1, 20) i;
WITH done AS (
    UPDATE c13 SET status = 'done'
    WHERE idem_once(idem_key('case-c', 'CASE_CL', 'c13-' || id), '{}') AND status = 'new'
    RETURNING id)
SELECT is(count(*), 10::bigint, 'C13: every row that fits') FROM done;
SELECT is((SELECT count(*) FROM idem_action WHERE key::text LIKE 'case-c/CASE_CL/c13-%'),
          10::bigint,
          'C13: and no key of another row is settled');
WITH done AS (
    UPDATE c13 SET status = 'again'
    WHERE idem_once(idem_key('case-c', 'CASE_CL', 'c13-' || id), '{}') AND status = 'done'
    RETURNING id)
SELECT is(count(*), 0::bigint, 'C13: the second time none') FROM done;

SELECT * FROM finish();
