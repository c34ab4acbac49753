-- check_inbox.sql
--      What both sides must answer alike about events, guarded rows and transitions.
--
-- Run by psql with the variables "consume", "keep" and "orders", the functions and the table of one
-- side, and "transition", the beginning of its call; the output is compared with check_inbox.out.

\set QUIET on
\set VERBOSITY sqlstate
\pset tuples_only on
\pset format unaligned
\pset null '-'

\echo first, with a result that its duplicates are told
BEGIN;
SELECT * FROM :consume('acme/stock/c-1', '{"amount": 10, "to": "b"}', now(), '{"offset": 7}');
SELECT :keep('acme/stock/c-1', '{"reserved": 3}');
SELECT :keep('acme/stock/c-1', '{"reserved": 3}');
SELECT * FROM :consume('acme/stock/c-1', '{"amount": 10, "to": "b"}');
COMMIT;
SELECT * FROM :consume('acme/stock/c-1', '{"to": "b", "amount": 10}');

\echo conflict names the pointers
SELECT * FROM :consume('acme/stock/c-1', '{"amount": 100, "to": "b"}');
SELECT * FROM :consume('acme/stock/c-1', '{"amount": 10, "to": "b", "by/hand": {"x": 1}}');

\echo another result, another transaction, an unknown event
BEGIN;
SELECT * FROM :consume('acme/stock/c-2', '{}');
SELECT :keep('acme/stock/c-2', '1');
SELECT :keep('acme/stock/c-2', '2');
\echo :SQLSTATE
ROLLBACK;
SELECT :keep('acme/stock/c-1', '{"reserved": 3}');
\echo :SQLSTATE
SELECT :keep('acme/stock/c-none', '1');
\echo :SQLSTATE

\echo rolled back: as if never consumed; the payload not kept
SELECT outcome FROM :consume('acme/stock/c-2', '{"n": 2}');
SELECT outcome FROM :consume('acme/lean/c-2', '{"n": 2}');
SELECT outcome FROM :consume('acme/lean/c-2', '{"n": 2}');
SELECT * FROM :consume('acme/lean/c-2', '{"n": 3}');

\echo what counts of the payload, and what does not
SELECT outcome FROM :consume('acme/part/c-3', '{"amount": 4, "to": {"account": "b"}, "note": 1}');
SELECT outcome FROM :consume('acme/part/c-3', '{"amount": 4, "to": {"account": "b"}, "note": 2}');
SELECT outcome FROM :consume('acme/part/c-3', '{"amount": 4, "to": {"account": "c"}}');
SELECT outcome FROM :consume('acme/part/c-4', '{"amount": 4}');
\echo :SQLSTATE
SELECT outcome FROM :consume('acme/loose/c-3', '{"amount": 6, "trace": "a", "meta": {"sent": 1}}');
SELECT outcome FROM :consume('acme/loose/c-3', '{"amount": 6, "trace": "b", "meta": {"sent": 2}}');

\echo nulls, malformed keys, an undefined consumer
SELECT outcome FROM :consume(NULL, '{}');
\echo :SQLSTATE
SELECT outcome FROM :consume('acme/stock/c-5', NULL);
\echo :SQLSTATE
SELECT outcome FROM :consume('acme/stock', '{}');
\echo :SQLSTATE
SELECT outcome FROM :consume('acme/stock/c-5 ', '{}');
\echo :SQLSTATE
SELECT outcome FROM :consume('acme/stok/c-5', '{}');
\echo :SQLSTATE

\echo rows begin where they may, and move as they may
INSERT INTO :orders VALUES (-1, 'c', 10, 'PAID');
\echo :SQLSTATE
INSERT INTO :orders
VALUES (-1, 'c', 10, 'UNPAID'), (-2, 'c', 10, 'UNPAID'), (-3, 'c', 10, 'UNPAID');
UPDATE :orders SET state = 'DONE' WHERE id = -1;
\echo :SQLSTATE
UPDATE :orders SET state = 'CLOSED' WHERE id = -2 RETURNING state;
UPDATE :orders SET state = 'PAID' WHERE id = -2;
\echo :SQLSTATE
UPDATE :orders SET state = 'NONE' WHERE id = -1;
\echo :SQLSTATE
\echo generations grow, some columns never change
UPDATE :orders SET generation = 5 WHERE id = -1 RETURNING generation;
UPDATE :orders SET generation = 4 WHERE id = -1;
\echo :SQLSTATE
UPDATE :orders SET amount = 11 WHERE id = -1;
\echo :SQLSTATE
UPDATE :orders SET note = 'x', amount = 10 WHERE id = -1 RETURNING note;

\echo applied, already, refused; older generations, moves that there are not, no such row
SELECT * FROM :transition -1, 'UNPAID', 'PAID', 6);
SELECT * FROM :transition -1, 'UNPAID', 'PAID', 6);
SELECT * FROM :transition -1, 'UNPAID', 'CLOSED', 6);
SELECT * FROM :transition -1, 'PAID', 'SHIPPED', 5);
\echo :SQLSTATE
SELECT * FROM :transition -1, 'PAID', 'DONE');
\echo :SQLSTATE
SELECT * FROM :transition -1, 'PAID', 'SHIPPED');
SELECT * FROM :transition -9, 'UNPAID', 'PAID');
SELECT * FROM :transition -3, NULL, 'PAID');
\echo :SQLSTATE
SELECT id, state, generation FROM :orders WHERE id < 0 ORDER BY id;
