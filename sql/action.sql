-- action: asking to act, taking back, and looking
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS idem_action;
RESET client_min_messages;
SELECT idem_define_operation('ACT', 'external', lease => '30 s'),
       idem_define_operation('ACT_L'),
       idem_define_operation('ACT_INC', 'external', digest_include => '{/amount,/to/iban}'),
       idem_define_operation('ACT_EXC', 'external', digest_exclude => '{/trace}'),
       idem_define_operation('ACT_NOP', 'external', keep_params => false);
CREATE FUNCTION action_pass(k idem_key, by interval) RETURNS void LANGUAGE sql AS $$
    UPDATE idem_lease SET granted_at = granted_at - by, lease_until = lease_until - by,
        due_at = due_at - by, first_granted_at = first_granted_at - by,
        call_until = call_until - by WHERE key = k $$;

-- submit, then a worker claims by the key alone, then everybody is told
SELECT outcome, generation, state, attempt FROM idem_submit('a/ACT/1', '{"n": 1}');
SELECT outcome, generation, state, attempt FROM idem_submit('a/ACT/1', '{"n": 1}');
SELECT outcome, generation, state, attempt, params FROM idem_reclaim('a/ACT/1', 'worker 1');
SELECT state, generation, attempt, owner, lease_until > clock_timestamp() AS leased, retry_at,
       result, error, channel_ref, digest = idem_digest('{"n": 1}'::jsonb) AS digest,
       created_at < updated_at AS moved
FROM idem_status('a/ACT/1');
SELECT outcome, generation, state FROM idem_submit('a/ACT/1', '{"n": 1}');
SELECT outcome, generation, retry_at = lease_until AS at_end FROM idem_reclaim('a/ACT/1');
SELECT outcome, generation, retry_at = lease_until AS at_end FROM idem_claim('a/ACT/1', '{"n": 1}');
SELECT idem_complete('a/ACT/1', 2, '{"ok": 1}', 'ref');
SELECT outcome, result, channel_ref FROM idem_submit('a/ACT/1', '{"n": 1}');
SELECT outcome, result, channel_ref FROM idem_claim('a/ACT/1', '{"n": 1}');
SELECT outcome, result, channel_ref FROM idem_reclaim('a/ACT/1');
SELECT state, generation, attempt, owner, lease_until, retry_at, result, error, channel_ref
FROM idem_status('a/ACT/1');

-- an unknown key
SELECT count(*) FROM idem_status('a/ACT/none');
SELECT outcome FROM idem_reclaim('a/ACT/none');

-- a lapsed lease is taken over: a new generation, and the old one is stale
SELECT outcome, generation FROM idem_submit('a/ACT/2', '{}');
SELECT outcome, generation FROM idem_claim('a/ACT/2', '{}');
SELECT idem_release('a/ACT/2', 2, retry_after => '0');
SELECT outcome, generation, attempt FROM idem_claim('a/ACT/2', '{}', owner => 'me', lease => '5 s');
SELECT owner, granted, lease_until - granted_at AS lease FROM idem_lease WHERE key = 'a/ACT/2';
-- without an owner's name it is application_name:pid
SELECT idem_release('a/ACT/2', 3, retry_after => '0');
SET application_name = 'worker';
SELECT outcome, generation FROM idem_claim('a/ACT/2', '{}');
SELECT owner = 'worker:' || pg_backend_pid() AS named FROM idem_status('a/ACT/2');
RESET application_name;
-- nobody is granted what is not due
SELECT idem_release('a/ACT/2', 4, retry_after => '1 h');
SELECT outcome, generation, state, retry_at > clock_timestamp() + '59 min' AS later
FROM idem_claim('a/ACT/2', '{}');
SELECT outcome, generation FROM idem_reclaim('a/ACT/2');
SELECT action_pass('a/ACT/2', '2 h');
SELECT outcome, generation FROM idem_reclaim('a/ACT/2');

-- a time that the clock cannot explain counts as over: the bounds are 24 h for a lease and
-- 31 days for a wait
SELECT idem_release('a/ACT/2', 5, retry_after => '0');
UPDATE idem_lease SET due_at = clock_timestamp() + '32 days' WHERE key = 'a/ACT/2';
SELECT outcome, generation FROM idem_claim('a/ACT/2', '{}');
UPDATE idem_lease SET lease_until = clock_timestamp() + '25 h' WHERE key = 'a/ACT/2';
SELECT outcome, state FROM idem_claim('a/ACT/2', '{}');

-- other parameters: conflict, whatever the state, and nothing changes
SELECT count(*) FROM unnest(ARRAY['processing', 'unknown', 'review', 'succeeded', 'rejected']) AS s,
    LATERAL idem_claim(idem_key('a', 'ACT', s), '{"n": 1}');
SELECT outcome FROM idem_submit('a/ACT/pending', '{"n": 1}');
SELECT idem_mark_unknown('a/ACT/unknown', 1), idem_escalate('a/ACT/review', 1),
       idem_complete('a/ACT/succeeded', 1, '1'), idem_reject('a/ACT/rejected', 1, '2');
CREATE TEMPORARY TABLE before AS SELECT ctid AS row, * FROM idem_action;
CREATE TEMPORARY TABLE lease_before AS SELECT ctid AS row, * FROM idem_lease;
SELECT s AS key, c.outcome AS claim, u.outcome AS submit, c.generation, c.state, c.differs,
       c.result, c.error, c.params, c.retry_at, c.lease_until
FROM unnest(ARRAY['pending', 'processing', 'unknown', 'review', 'succeeded', 'rejected']) AS s,
    LATERAL idem_claim(idem_key('a', 'ACT', s), '{"n": 2}') c,
    LATERAL idem_submit(idem_key('a', 'ACT', s), '{"n": 1, "m": null}') u;
SELECT count(*) FROM before FULL JOIN idem_action a ON a.key = before.key AND a.ctid = before.row
WHERE a.key IS NULL OR before.key IS NULL;
SELECT count(*) FROM lease_before b FULL JOIN idem_lease a ON a.key = b.key AND a.ctid = b.row
WHERE a.key IS NULL OR b.key IS NULL;
-- 10 and 10.0 are one number, 1 and "1" are not
SELECT outcome FROM idem_claim('a/ACT/succeeded', '{"n": 1.0}');
SELECT outcome FROM idem_claim('a/ACT/succeeded', '{"n": "1"}');

-- what counts is the contract's business
SELECT outcome FROM idem_claim('a/ACT_EXC/1', '{"n": 1, "trace": "x"}');
SELECT outcome FROM idem_claim('a/ACT_EXC/1', '{"n": 1, "trace": "y"}');
SELECT outcome FROM idem_claim('a/ACT_EXC/1', '{"n": 1}');
SELECT outcome, differs FROM idem_claim('a/ACT_EXC/1', '{"n": 2}');
SELECT outcome FROM idem_claim('a/ACT_INC/1', '{"amount": 10, "to": {"iban": "x"}, "n": 1}');
SELECT outcome FROM idem_claim('a/ACT_INC/1', '{"amount": 10.00, "to": {"iban": "x"}, "n": 2}');
SELECT outcome, differs FROM idem_claim('a/ACT_INC/1', '{"amount": 10, "to": {"iban": "y"}}');
-- an included pointer that is missing is a mistake, for a new key and for a known one
SELECT outcome FROM idem_claim('a/ACT_INC/2', '{"amount": 10}');
SELECT outcome FROM idem_claim('a/ACT_INC/2', '{"amount": 10, "to": "iban"}');
SELECT outcome FROM idem_submit('a/ACT_INC/2', '{"Amount": 10, "to": {"iban": "x"}}');
SELECT outcome FROM idem_claim('a/ACT_INC/1', '{"amount": 10}');
SELECT outcome FROM idem_claim('a/ACT_INC/2', '[]');
\set VERBOSITY sqlstate
SELECT outcome FROM idem_claim('a/ACT_INC/2', '{}');
\set VERBOSITY default
SELECT count(*) FROM idem_status('a/ACT_INC/2');
-- null is a value
SELECT outcome FROM idem_claim('a/ACT_INC/2', '{"amount": null, "to": {"iban": "x"}}');
-- none is said aloud
SELECT outcome FROM idem_claim('a/ACT_INC/3', NULL);
\echo :SQLSTATE
SELECT outcome, differs FROM idem_claim('a/ACT_INC/2', '{"amount": 0, "to": {"iban": "x"}}');

-- cancel: true for a new key, a pending one and one cancelled before; false once it is too late
SELECT idem_cancel('a/ACT/new', '{"by": "me"}');
SELECT idem_cancel('a/ACT/new', '{"by": "you"}');
SELECT outcome, error, state, attempt FROM idem_claim('a/ACT/new', '{"n": 1}');
SELECT outcome, error FROM idem_claim('a/ACT/new', '{"n": 2}');
SELECT outcome, error FROM idem_submit('a/ACT/new', '{"n": 3}');
SELECT idem_cancel('a/ACT_INC/cancelled');
SELECT outcome, error FROM idem_claim('a/ACT_INC/cancelled', '{"amount": 1, "to": {"iban": "x"}}');
SELECT state, generation, attempt, owner, retry_at, error, digest FROM idem_status('a/ACT/new');
SELECT idem_cancel('a/ACT/pending', '{"by": "me"}');
SELECT idem_cancel('a/ACT/pending');
SELECT outcome, error FROM idem_claim('a/ACT/pending', '{"n": 1}');
SELECT outcome, differs FROM idem_claim('a/ACT/pending', '{"n": 2}');
SELECT s AS key, idem_cancel(idem_key('a', 'ACT', s)) AS cancelled,
       (SELECT state FROM idem_status(idem_key('a', 'ACT', s))) AS state
FROM unnest(ARRAY['processing', 'unknown', 'review', 'succeeded', 'rejected']) AS s;
-- pending again after an attempt that made no call: not too late
SELECT outcome FROM idem_claim('a/ACT/released', '{}');
SELECT idem_release('a/ACT/released', 1);
SELECT idem_cancel('a/ACT/released');
SELECT idem_cancel('a/ACT_L/cancelled'), idem_cancel('a/ACT_L/cancelled');
SELECT idem_once('a/ACT_L/done', '{}'), idem_cancel('a/ACT_L/done');
SELECT outcome, generation, state FROM idem_claim('a/ACT_L/cancelled', '{"n": 1}');
-- the owner who comes late
SELECT idem_complete('a/ACT/new', 1);

-- a second claim of what this transaction holds
BEGIN;
SELECT outcome FROM idem_claim('a/ACT/twice', '{"n": 1}');
SELECT outcome, differs FROM idem_claim('a/ACT/twice', '{"n": 2}');
SELECT outcome FROM idem_claim('a/ACT/twice', '{"n": 1}');
ROLLBACK;
BEGIN;
SELECT outcome FROM idem_claim('a/ACT_L/twice', '{"n": 1}');
SELECT outcome FROM idem_claim('a/ACT_L/twice', '{"n": 1}', nowait => true);
ROLLBACK;
BEGIN;
SELECT outcome FROM idem_claim('a/ACT/twice', '{"n": 1}');
SELECT outcome FROM idem_reclaim('a/ACT/twice');
ROLLBACK;
-- submitted and claimed in one transaction, or released and claimed again, is no second claim
BEGIN;
SELECT outcome FROM idem_submit('a/ACT/twice', '{"n": 1}');
SELECT outcome, generation FROM idem_claim('a/ACT/twice', '{"n": 1}');
SELECT idem_release('a/ACT/twice', 2, retry_after => '0');
SELECT outcome, generation FROM idem_claim('a/ACT/twice', '{"n": 1}');
COMMIT;
-- on record, whoever holds it: so says submit, also to the holder
BEGIN;
SELECT outcome FROM idem_claim('a/ACT/holder', '{"n": 1}');
SELECT outcome, state FROM idem_submit('a/ACT/holder', '{"n": 1}');
ROLLBACK;

-- savepoints: rolling back withdraws the claims made since, and reopens what was completed since
BEGIN;
SAVEPOINT a;
SELECT outcome, generation FROM idem_claim('a/ACT_L/savepoint', '{"n": 1}');
ROLLBACK TO a;
SELECT outcome, generation FROM idem_claim('a/ACT_L/savepoint', '{"n": 2}');
SELECT idem_complete('a/ACT_L/savepoint', 1, '2');
COMMIT;
SELECT outcome, result FROM idem_claim('a/ACT_L/savepoint', '{"n": 2}');
BEGIN;
SELECT outcome FROM idem_claim('a/ACT_L/reopened', '{}');
SAVEPOINT a;
SELECT idem_complete('a/ACT_L/reopened', 1);
ROLLBACK TO a;
COMMIT;
BEGIN;
SELECT outcome FROM idem_claim('a/ACT_L/reopened', '{}');
SAVEPOINT a;
SELECT idem_reject('a/ACT_L/reopened', 1);
RELEASE a;
SAVEPOINT b;
ROLLBACK TO b;
COMMIT;
SELECT outcome FROM idem_claim('a/ACT_L/reopened', '{}');
-- a claim withdrawn with its savepoint is owed nothing
BEGIN;
SAVEPOINT a;
SELECT outcome FROM idem_claim('a/ACT_L/withdrawn', '{}');
ROLLBACK TO a;
COMMIT;
SELECT count(*) FROM idem_status('a/ACT_L/withdrawn');
-- one made in a savepoint that was released is
BEGIN;
SAVEPOINT a;
SELECT outcome FROM idem_claim('a/ACT_L/withdrawn', '{}');
RELEASE a;
\set VERBOSITY sqlstate
COMMIT;
\set VERBOSITY default
-- two levels: completed in the inner one, rolled back with the outer one
BEGIN;
SELECT outcome FROM idem_claim('a/ACT_L/levels', '{}');
SAVEPOINT a;
SAVEPOINT b;
SELECT idem_complete('a/ACT_L/levels', 1);
RELEASE b;
ROLLBACK TO a;
\set VERBOSITY sqlstate
COMMIT;
\set VERBOSITY default
-- an exception block is a savepoint
BEGIN;
DO $$
BEGIN
    PERFORM idem_claim('a/ACT_L/block', '{}');
    RAISE EXCEPTION 'no';
EXCEPTION WHEN raise_exception THEN
    PERFORM idem_complete('a/ACT_L/block', generation) FROM idem_claim('a/ACT_L/block', '{}');
END $$;
COMMIT;
SELECT state FROM idem_status('a/ACT_L/block');
-- several claims, of which one is left open; the message names it
BEGIN;
SELECT outcome FROM idem_claim('a/ACT_L/open-1', '{}');
SELECT outcome FROM idem_claim('a/ACT_L/open-2', '{}');
SELECT outcome FROM idem_claim('a/ACT_L/open-3', '{}');
SELECT idem_complete('a/ACT_L/open-1', 1), idem_complete('a/ACT_L/open-3', 1);
COMMIT;
SELECT count(*) FROM idem_action WHERE key >= 'a/ACT_L/open' AND key < 'a/ACT_L/open.';
-- many
BEGIN;
SELECT count(*) FROM generate_series(1, 100) i,
    LATERAL idem_claim(idem_key('a', 'ACT_L', 'm-' || i), '{}');
SELECT count(idem_complete(idem_key('a', 'ACT_L', 'm-' || i), 1)::text)
FROM generate_series(1, 99) i;
\set VERBOSITY terse
COMMIT;
\set VERBOSITY default

-- preparing: neither an open local claim nor anything external (so there is nothing to roll back)
\set VERBOSITY terse
BEGIN;
SELECT outcome FROM idem_claim('a/ACT_L/prepared', '{}');
PREPARE TRANSACTION 'idem_action_regress';
ROLLBACK PREPARED 'idem_action_regress';
BEGIN;
SELECT outcome FROM idem_claim('a/ACT/prepared', '{}');
PREPARE TRANSACTION 'idem_action_regress';
ROLLBACK PREPARED 'idem_action_regress';
BEGIN;
SELECT idem_cancel('a/ACT/prepared');
PREPARE TRANSACTION 'idem_action_regress';
ROLLBACK PREPARED 'idem_action_regress';
\set VERBOSITY default

-- what may be asked of which operation
SELECT outcome FROM idem_submit('a/ACT_L/x', '{}');
SELECT outcome FROM idem_reclaim('a/ACT_L/x');
SELECT outcome FROM idem_submit('a/ACT_NOP/x', '{}');
\set VERBOSITY sqlstate
SELECT outcome FROM idem_submit('a/ACT_L/x', '{}');
SELECT outcome FROM idem_reclaim('a/ACT_L/x');
SELECT outcome FROM idem_submit('a/ACT_NOP/x', '{}');
SELECT outcome FROM idem_submit('a/ACT_UNDEFINED/x', '{}');
SELECT outcome FROM idem_claim('a/ACT_UNDEFINED/x', '{}');
SELECT outcome FROM idem_reclaim('a/ACT_UNDEFINED/x');
SELECT idem_cancel('a/ACT_UNDEFINED/x');
SELECT count(*) FROM idem_status('a/ACT_UNDEFINED/x');

-- a read-only transaction may look and nothing else
BEGIN READ ONLY;
SELECT state FROM idem_status('a/ACT/1');
SELECT outcome FROM idem_claim('a/ACT/1', '{"n": 1}');
ROLLBACK;
BEGIN READ ONLY;
SELECT outcome FROM idem_submit('a/ACT/1', '{"n": 1}');
ROLLBACK;
BEGIN READ ONLY;
SELECT outcome FROM idem_reclaim('a/ACT/1');
ROLLBACK;
BEGIN READ ONLY;
SELECT idem_cancel('a/ACT/1');
ROLLBACK;
\set VERBOSITY default

-- beside other work: what is asked never ends the caller's transaction
CREATE TEMPORARY TABLE business (n int);
BEGIN;
INSERT INTO business VALUES (1);
SELECT outcome FROM idem_claim('a/ACT/1', '{"n": 1}');
SELECT outcome FROM idem_claim('a/ACT/1', '{"n": 2}');
SELECT outcome FROM idem_claim('a/ACT/review', '{"n": 1}');
INSERT INTO business VALUES (2);
COMMIT;
SELECT count(*) FROM business;

-- synchronous_commit is raised for the transaction that wrote an external action, and only there
SET synchronous_commit = off;
SELECT outcome FROM idem_claim('a/ACT/sync', '{}');
SHOW synchronous_commit;
RESET synchronous_commit;
DROP FUNCTION action_pass;
