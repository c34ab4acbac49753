-- check.sql
--      What both sides must answer alike, or a comparison of their speed says nothing.
--
-- Run by psql with the variable "side" set to "idem" or "rival", "evidence" to its table and
-- "replay_batch" to its setting; the output of either is compared with check.out.  Errors count by
-- their SQLSTATE.

\set QUIET on
\set VERBOSITY sqlstate
\pset tuples_only on
\pset format unaligned
\pset null '-'
\set claim :side '_claim'
\set complete :side '_complete'
\set once :side '_once'

\echo first claim, completed
BEGIN;
SELECT outcome, generation, result, attempt, state
FROM :claim('acme/PAY/c-1', '{"amount": 10, "to": "b"}');
SELECT :complete('acme/PAY/c-1', 1, '{"receipt": 7}');
COMMIT;

\echo duplicate, members in another order
SELECT outcome, generation, result, error, state, channel_ref, differs
FROM :claim('acme/PAY/c-1', '{"to": "b", "amount": 10}');

\echo conflict names the pointers
SELECT outcome, generation, result, differs
FROM :claim('acme/PAY/c-1', '{"amount": 100, "to": "b"}');
SELECT outcome, differs
FROM :claim('acme/PAY/c-1', '{"amount": 10, "to": "b", "by/hand": {"x": 1}}');

\echo completed again: the same result, another one
SELECT :complete('acme/PAY/c-1', 1, '{"receipt": 7}');
SELECT :complete('acme/PAY/c-1', 1, '{"receipt": 8}');
\echo :SQLSTATE

\echo stale, higher, null and zero generation; an unknown key
SELECT :complete('acme/PAY/c-1', 2, '{"receipt": 7}');
\echo :SQLSTATE
SELECT :complete('acme/PAY/c-1', NULL, '{"receipt": 7}');
\echo :SQLSTATE
SELECT :complete('acme/PAY/c-1', 0, '{"receipt": 7}');
\echo :SQLSTATE
SELECT :complete('acme/PAY/c-none', 1, '{"receipt": 7}');
\echo :SQLSTATE

\echo rolled back: as if never claimed
BEGIN;
SELECT outcome FROM :claim('acme/PAY/c-2', '{"amount": 1}');
ROLLBACK;
BEGIN;
SELECT outcome, generation FROM :claim('acme/PAY/c-2', '{"amount": 2}');
\echo claimed twice in one transaction
SELECT outcome FROM :claim('acme/PAY/c-2', '{"amount": 2}');
\echo :SQLSTATE
ROLLBACK;

\echo once: true, false, another amount, then as a claim
SELECT :once('acme/PAY/c-3', '{"amount": 3}');
SELECT :once('acme/PAY/c-3', '{"amount": 3}');
SELECT :once('acme/PAY/c-3', '{"amount": 4}');
\echo :SQLSTATE
SELECT outcome, generation, result, state FROM :claim('acme/PAY/c-3', '{"amount": 3}');

\echo parameters that count, and one that is missing
SELECT :once('acme/PART/c-4', '{"amount": 4, "to": {"account": "b"}, "note": 1}');
SELECT :once('acme/PART/c-4', '{"amount": 4, "to": {"account": "b"}, "note": 2}');
SELECT :once('acme/PART/c-4', '{"amount": 4, "to": {"account": "c"}}');
\echo :SQLSTATE
SELECT :once('acme/PART/c-5', '{"amount": 4}');
\echo :SQLSTATE
\echo parameters that do not count
SELECT :once('acme/LOOSE/c-6', '{"amount": 6, "trace": "a", "meta": {"sent": 1}}');
SELECT :once('acme/LOOSE/c-6', '{"amount": 6, "trace": "b", "meta": {"sent": 2}}');
SELECT :once('acme/LOOSE/c-6', '{"amount": 7, "trace": "b", "meta": {"sent": 2}}');
\echo :SQLSTATE

\echo nulls, malformed keys, an undefined operation
SELECT :once(NULL, '{}');
\echo :SQLSTATE
SELECT :once('acme/PAY/c-7', NULL);
\echo :SQLSTATE
SELECT :once('acme/PAY', '{}');
\echo :SQLSTATE
SELECT :once('acme/PAY/c-7 ', '{}');
\echo :SQLSTATE
SELECT :once('ac me/PAY/c-7', '{}');
\echo :SQLSTATE
SELECT :once('acme/PAID/c-7', '{}');
\echo :SQLSTATE

\echo external: granted, busy to others, completed after its commit
SELECT outcome, generation, attempt, state, lease_until > clock_timestamp()
FROM :claim('acme/SEND/c-8', '{"to": "b"}');
SELECT outcome, generation, state FROM :claim('acme/SEND/c-8', '{"to": "b"}');
SELECT outcome, differs FROM :claim('acme/SEND/c-8', '{"to": "c"}');
SELECT :complete('acme/SEND/c-8', 1, '{"id": 5}', 'ref-5');
SELECT outcome, generation, result, state, channel_ref FROM :claim('acme/SEND/c-8', '{"to": "b"}');
\echo external: once, and completed in the transaction of its grant
SELECT :once('acme/SEND/c-9', '{}');
\echo :SQLSTATE
BEGIN;
SELECT outcome FROM :claim('acme/SEND/c-9', '{"to": "b"}');
SELECT :complete('acme/SEND/c-9', 1, '{"id": 6}');
\echo :SQLSTATE
ROLLBACK;

\echo evidence of grants and moves, with transport, owner and replay batch
BEGIN;
SET LOCAL :replay_batch = 'b-1';
SELECT outcome
FROM :claim('acme/SEND/c-10', '{"to": "b"}', owner => 'w-1', transport => '{"n": 1}');
COMMIT;
SELECT :complete('acme/SEND/c-10', 1, '{"id": 7}', 'ref-7');
SELECT call, outcome, state, generation, attempt, worker, role_name = current_user,
    lease_until IS NOT NULL, detail, channel_ref, digest, transport, replay_batch, note
FROM :evidence WHERE key = 'acme/SEND/c-10' ORDER BY recorded_at;
\echo one row a conflict, at most sixteen
SELECT outcome FROM :claim('acme/SEND/c-10', '{"to": 1}', owner => 'w-2');
SELECT outcome FROM :claim('acme/SEND/c-10', '{"to": 1}', owner => 'w-3');
SELECT call, state, generation, worker, digest IS NOT NULL
FROM :evidence WHERE key = 'acme/SEND/c-10' AND call = 'conflict';
SELECT count(v.outcome) FROM generate_series(1, 20) AS n
CROSS JOIN LATERAL :claim('acme/SEND/c-10', jsonb_build_object('to', n)) AS v;
SELECT count(*), count(DISTINCT digest)
FROM :evidence WHERE key = 'acme/SEND/c-10' AND call = 'conflict';
\echo none of local actions, and none is changed
SELECT count(*) FROM :evidence WHERE key = 'acme/PAY/c-3' AND call <> 'conflict';
UPDATE :evidence SET note = 'n';
\echo :SQLSTATE
DELETE FROM :evidence;
\echo :SQLSTATE
