-- progress: how far a consumer has come in a partition of a log
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS idem_action;
RESET client_min_messages;
SELECT idem_define_consumer('pr');

-- what is on record of a partition: its row, and the offsets that are open
CREATE FUNCTION pr_look(partition text) RETURNS text LANGUAGE sql AS $$
    SELECT format('generation %s epoch "%s" position %s delivered %s open %s', generation, epoch,
        coalesce("position"::text, 'null'), delivered,
        ARRAY(SELECT record_offset FROM idem_progress_offset o WHERE o.key = p.key ORDER BY 1))
    FROM idem_progress p WHERE p.key = idem_key(partition)
$$;

-- nothing is known of it: the consumer starts where the broker says
SELECT * FROM idem_progress_assign('pr/pr/orders/3');
SELECT idem_progress_committable('pr/pr/orders/3') IS NULL AS unknown;

-- delivered 100, 101, 102; done 102 and 101, then 100
SELECT idem_progress_fetched('pr/pr/orders/3', 1, '{100,101,102}');
SELECT idem_progress_committable('pr/pr/orders/3');
SELECT idem_progress_done('pr/pr/orders/3', 1, '{102}'), idem_progress_done('pr/pr/orders/3', 1, '{101}');
SELECT idem_progress_committable('pr/pr/orders/3');
SELECT key, generation, record_offset, fetched_at <= clock_timestamp() AS fetched FROM idem_progress_open WHERE key = 'pr/pr/orders/3';
SELECT idem_progress_done('pr/pr/orders/3', 1, '{100}');
SELECT idem_progress_committable('pr/pr/orders/3');
SELECT count(*) FROM idem_progress_offset WHERE key = 'pr/pr/orders/3';

-- gaps
SELECT idem_progress_assign('pr/pr/gaps/0');
SELECT idem_progress_fetched('pr/pr/gaps/0', 1, '{100,103,107}');
SELECT idem_progress_done('pr/pr/gaps/0', 1, '{100,107}');
SELECT idem_progress_committable('pr/pr/gaps/0');
SELECT idem_progress_done('pr/pr/gaps/0', 1, '{103}');
SELECT idem_progress_committable('pr/pr/gaps/0');

-- an offset that was never delivered, one in a gap, one that is done: nothing moves
SELECT idem_progress_fetched('pr/pr/orders/3', 1, '{103,104}');
SELECT idem_progress_done('pr/pr/orders/3', 1, '{200}');
SELECT idem_progress_done('pr/pr/orders/3', 1, '{105}');
SELECT idem_progress_done('pr/pr/orders/3', 1, '{100}');
\set VERBOSITY sqlstate
SELECT idem_progress_done('pr/pr/orders/3', 1, '{103,200}');
SELECT idem_progress_done('pr/pr/orders/3', 1, '{103,102}');
SELECT idem_progress_done('pr/pr/orders/3', 1, '{105}');
SELECT idem_progress_done('pr/pr/orders/3', 1, '{0}');
SELECT idem_progress_done('pr/pr/gaps/0', 1, '{101}');
\set VERBOSITY default
SELECT pr_look('pr/pr/orders/3');
SELECT idem_progress_done('pr/pr/orders/3', 1, '{103,104,103}');
SELECT pr_look('pr/pr/orders/3');

-- what is written beside a refusal rolls back with it, and what is done with its transaction
CREATE TABLE pr_ledger (record bigint);
BEGIN;
INSERT INTO pr_ledger VALUES (102);
SELECT idem_progress_done('pr/pr/orders/3', 1, '{102}');
COMMIT;
BEGIN;
INSERT INTO pr_ledger VALUES (103);
SELECT idem_progress_done('pr/pr/orders/3', 1, '{103}');
SELECT idem_progress_committable('pr/pr/orders/3');
ROLLBACK;
SELECT idem_progress_committable('pr/pr/orders/3');
BEGIN;
SELECT idem_progress_done('pr/pr/orders/3', 1, '{103}');
SAVEPOINT a;
SELECT idem_progress_done('pr/pr/orders/3', 1, '{104}');
ROLLBACK TO a;
SELECT idem_progress_committable('pr/pr/orders/3');
\set VERBOSITY sqlstate
SELECT idem_progress_done('pr/pr/orders/3', 1, '{103}');
\set VERBOSITY default
ROLLBACK;
SELECT count(*) FROM pr_ledger;

-- delivered again: what is done is not handed out again, what is open is
SELECT idem_progress_done('pr/pr/orders/3', 1, '{104}');
SELECT idem_progress_fetched('pr/pr/orders/3', 1, '{99,100,101,102,103,104,105}');
SELECT idem_progress_fetched('pr/pr/orders/3', 1, '{100,101}');
SELECT pr_look('pr/pr/orders/3');

-- in any order, each once
SELECT idem_progress_fetched('pr/pr/orders/3', 1, '{107,106,107,105}');
SELECT idem_progress_fetched('pr/pr/orders/3', 1, '{}'), idem_progress_done('pr/pr/orders/3', 1, '{}');
SELECT pr_look('pr/pr/orders/3');

-- somebody else is assigned it: 103 is where he starts, and what was done above it stays done
SELECT idem_progress_done('pr/pr/orders/3', 1, '{106}');
SELECT * FROM idem_progress_assign('pr/pr/orders/3');
SELECT idem_progress_committable('pr/pr/orders/3');
SELECT count(*) FROM idem_progress_open WHERE key = 'pr/pr/orders/3';
-- the former owner is refused, whatever he says
SELECT idem_progress_done('pr/pr/orders/3', 1, '{103}');
\set VERBOSITY sqlstate
SELECT idem_progress_fetched('pr/pr/orders/3', 1, '{108}');
SELECT idem_progress_advance('pr/pr/orders/3', 1, 108);
SELECT idem_progress_done('pr/pr/orders/3', 1, '{}');
-- and so is a generation that was never granted, or none
SELECT idem_progress_done('pr/pr/orders/3', 3, '{103}');
SELECT idem_progress_done('pr/pr/orders/3', 0, '{103}');
SELECT idem_progress_fetched('pr/pr/orders/3', NULL, '{103}');
SELECT idem_progress_advance('pr/pr/orders/3', -1, 104);
-- what he was not delivered himself he cannot have done
SELECT idem_progress_done('pr/pr/orders/3', 2, '{103}');
SELECT idem_progress_done('pr/pr/orders/3', 2, '{106}');
\set VERBOSITY default
SELECT pr_look('pr/pr/orders/3');
-- he starts a little before, 105 does not come again (compacted): it does not hold him back
SELECT idem_progress_fetched('pr/pr/orders/3', 2, '{101,102,103,104,106,108}');
SELECT pr_look('pr/pr/orders/3');
SELECT idem_progress_committable('pr/pr/orders/3');
SELECT idem_progress_done('pr/pr/orders/3', 2, '{103}');
SELECT idem_progress_committable('pr/pr/orders/3');
SELECT idem_progress_done('pr/pr/orders/3', 2, '{108}');
SELECT idem_progress_committable('pr/pr/orders/3');

-- batches: what is open of a former owner counts for nothing until it is delivered again
SELECT idem_progress_fetched('pr/pr/orders/3', 2, '{109,110,111,112,113}');
SELECT idem_progress_done('pr/pr/orders/3', 2, '{110,112}');
SELECT * FROM idem_progress_assign('pr/pr/orders/3');
SELECT idem_progress_fetched('pr/pr/orders/3', 3, '{109,110}');
SELECT record_offset FROM idem_progress_open WHERE key = 'pr/pr/orders/3' ORDER BY 1;
SELECT idem_progress_done('pr/pr/orders/3', 3, '{109}');
SELECT idem_progress_committable('pr/pr/orders/3');
SELECT idem_progress_fetched('pr/pr/orders/3', 3, '{111,112,113}');
SELECT pr_look('pr/pr/orders/3');

-- a topic that was created anew
SELECT * FROM idem_progress_assign('pr/pr/orders/3', 'topic-id-2');
SELECT idem_progress_committable('pr/pr/orders/3') IS NULL AS unknown;
SELECT idem_progress_fetched('pr/pr/orders/3', 4, '{0,1,5}');
SELECT idem_progress_done('pr/pr/orders/3', 4, '{0,1}');
SELECT idem_progress_committable('pr/pr/orders/3');
SELECT * FROM idem_progress_assign('pr/pr/orders/3', 'topic-id-2');
-- and nobody returns to an epoch that is over
SELECT idem_progress_assign('pr/pr/orders/3');
SELECT pr_look('pr/pr/orders/3');
SELECT count(idem_progress_assign('pr/pr/epochs/0', n::text)) FROM generate_series(1, 40) n;
-- nor leaves the epoch out where it was passed before
SELECT idem_progress_assign('pr/pr/epochs/0');
SELECT generation, epoch, cardinality(former_epochs), former_epochs[1] FROM idem_progress WHERE key = 'pr/pr/epochs/0';

-- a serial consumer, who keeps his place with his results
SELECT * FROM idem_progress_assign('pr/pr/serial/0');
SELECT idem_progress_advance('pr/pr/serial/0', 1, 500);
BEGIN;
INSERT INTO pr_ledger VALUES (500);
SELECT idem_progress_advance('pr/pr/serial/0', 1, 501);
COMMIT;
-- the record is delivered again
BEGIN;
INSERT INTO pr_ledger VALUES (500);
SELECT idem_progress_advance('pr/pr/serial/0', 1, 501);
COMMIT;
\set VERBOSITY sqlstate
SELECT idem_progress_advance('pr/pr/serial/0', 1, 400);
\set VERBOSITY default
SELECT idem_progress_advance('pr/pr/serial/0', 1, 510);
SELECT * FROM idem_progress_assign('pr/pr/serial/0');
SELECT pr_look('pr/pr/serial/0');
SELECT record FROM pr_ledger;
-- by what was fetched, part by part
SELECT idem_progress_fetched('pr/pr/serial/0', 2, '{510,511,515}');
SELECT idem_progress_advance('pr/pr/serial/0', 2, 511);
SELECT idem_progress_committable('pr/pr/serial/0');
SELECT idem_progress_advance('pr/pr/serial/0', 2, 512);
SELECT idem_progress_committable('pr/pr/serial/0');
SELECT idem_progress_advance('pr/pr/serial/0', 2, 520);
SELECT pr_look('pr/pr/serial/0');
-- after workers that did some of it out of order he must ask
SELECT idem_progress_fetched('pr/pr/serial/0', 2, '{520,521,522,523}');
SELECT idem_progress_done('pr/pr/serial/0', 2, '{521}');
SELECT * FROM idem_progress_assign('pr/pr/serial/0');
SELECT idem_progress_advance('pr/pr/serial/0', 3, 521);
SELECT idem_progress_fetched('pr/pr/serial/0', 3, '{520,521,522,523}');
SELECT idem_progress_advance('pr/pr/serial/0', 3, 521);
SELECT idem_progress_committable('pr/pr/serial/0');
\set VERBOSITY sqlstate
SELECT idem_progress_advance('pr/pr/serial/0', 3, 522);
\set VERBOSITY default
SELECT idem_progress_advance('pr/pr/serial/0', 3, 523), idem_progress_advance('pr/pr/serial/0', 3, 524);
SELECT pr_look('pr/pr/serial/0');

-- partitions, consumers and tenants do not know of each other
SELECT idem_define_consumer('pr2');
SELECT idem_progress_assign('pr/pr/orders/4'), idem_progress_assign('pr/pr2/orders/3'), idem_progress_assign('other/pr/orders/3');
SELECT key, generation FROM idem_progress WHERE idem_key_id(key) LIKE 'orders/%' AND idem_key_operation(key) LIKE 'pr%' ORDER BY key;

-- what cannot be
SELECT idem_progress_assign('pr/nobody/orders/3');
SELECT idem_progress_fetched('pr/pr/nowhere/0', 1, '{1}');
\set VERBOSITY sqlstate
SELECT idem_progress_done('pr/pr/nowhere/0', 1, '{1}');
SELECT idem_progress_advance('pr/pr/nowhere/0', 1, 1);
SELECT idem_progress_committable('pr/pr/nowhere/0');
SELECT idem_progress_fetched('pr/nobody/orders/3', 1, '{1}');
SELECT idem_progress_done('pr/nobody/orders/3', 1, '{1}');
SELECT idem_progress_advance('pr/nobody/orders/3', 1, 1);
SELECT idem_progress_committable('pr/nobody/orders/3');
SELECT idem_progress_assign('pr/pr');
SELECT idem_progress_assign(NULL);
SELECT idem_progress_assign('pr/pr/orders/3', NULL);
SELECT idem_progress_assign('pr/pr/orders/3', E'a\nb');
SELECT idem_progress_assign('pr/pr/orders/3', repeat('x', 513));
SELECT idem_progress_fetched(NULL, 5, '{1}');
SELECT idem_progress_fetched('pr/pr/orders/3', 5, NULL);
SELECT idem_progress_fetched('pr/pr/orders/3', 5, '{1,NULL}');
SELECT idem_progress_fetched('pr/pr/orders/3', 5, '{-1}');
SELECT idem_progress_fetched('pr/pr/orders/3', 5, '{9223372036854775807}');
SELECT idem_progress_fetched('pr/pr/orders/3', 5, '{{1,2},{3,4}}');
SELECT idem_progress_fetched('pr/pr/orders/3', 5, ARRAY(SELECT generate_series(1, 10001)));
SELECT idem_progress_done(NULL, 5, '{1}');
SELECT idem_progress_done('pr/pr/orders/3', 5, NULL);
SELECT idem_progress_done('pr/pr/orders/3', 5, '{NULL}');
SELECT idem_progress_done('pr/pr/orders/3', 5, '{-1}');
SELECT idem_progress_done('pr/pr/orders/3', 5, ARRAY(SELECT generate_series(1, 10001)));
SELECT idem_progress_advance(NULL, 5, 1);
SELECT idem_progress_advance('pr/pr/orders/3', 5, NULL);
SELECT idem_progress_advance('pr/pr/orders/3', 5, -1);
SELECT idem_progress_committable(NULL);
\set VERBOSITY default
SELECT pr_look('pr/pr/orders/3');
-- the highest offset there is
SELECT idem_progress_fetched('pr/pr/orders/4', 1, '{9223372036854775806}'), idem_progress_done('pr/pr/orders/4', 1, '{9223372036854775806}');
SELECT idem_progress_committable('pr/pr/orders/4');
SELECT * FROM idem_progress_assign('pr/pr/orders/4');

-- ten thousand may be open, not one more
SELECT idem_progress_assign('pr/pr/many/0');
SELECT cardinality(idem_progress_fetched('pr/pr/many/0', 1, ARRAY(SELECT generate_series(1, 20000, 2))));
SELECT idem_progress_fetched('pr/pr/many/0', 1, '{20000,20002}');
SELECT idem_progress_done('pr/pr/many/0', 1, '{9999}');
SELECT idem_progress_fetched('pr/pr/many/0', 1, '{20000}');
SELECT idem_progress_done('pr/pr/many/0', 1, ARRAY(SELECT generate_series(1, 9997, 2)));
SELECT idem_progress_committable('pr/pr/many/0');
SELECT * FROM idem_progress_assign('pr/pr/many/0', 'another');
SELECT count(*) FROM idem_progress_offset WHERE key = 'pr/pr/many/0';

-- what is kept depends on what is open, not on what ever was
CREATE PROCEDURE pr_run(n int) LANGUAGE plpgsql AS $$
BEGIN
    FOR i IN 1 .. n LOOP
        PERFORM idem_progress_fetched('pr/pr/run/0', 1, ARRAY[2 * i, 2 * i + 1]);
        COMMIT;
        PERFORM idem_progress_done('pr/pr/run/0', 1, ARRAY[2 * i + 1, 2 * i]);
        COMMIT;
    END LOOP;
END $$;
SELECT idem_progress_assign('pr/pr/run/0');
CALL pr_run(500);
SELECT pr_look('pr/pr/run/0');
SELECT pg_relation_size('idem_progress') <= 2 * current_setting('block_size')::int AS small;

-- a rebuilding consumer starts no side effect
SELECT idem_define_consumer('pr3', rebuild => true), idem_define_operation('PR');
SELECT idem_progress_assign('pr/pr3/orders/3');
SELECT idem_progress_fetched('pr/pr3/orders/3', 1, '{1,2}');
\set VERBOSITY sqlstate
BEGIN;
SELECT idem_progress_done('pr/pr3/orders/3', 1, '{1}');
SELECT idem_once('pr/PR/1', '{}');
ROLLBACK;
BEGIN;
SELECT idem_once('pr/PR/1', '{}');
SELECT idem_progress_advance('pr/pr3/orders/3', 1, 2);
ROLLBACK;

-- nothing is written in a read-only transaction; asking is allowed
BEGIN READ ONLY;
SELECT idem_progress_assign('pr/pr/orders/3');
ROLLBACK;
BEGIN READ ONLY;
SELECT idem_progress_fetched('pr/pr/orders/3', 5, '{}');
ROLLBACK;
BEGIN READ ONLY;
SELECT idem_progress_done('pr/pr/orders/3', 5, '{}');
ROLLBACK;
BEGIN READ ONLY;
SELECT idem_progress_advance('pr/pr/orders/3', 5, 6);
ROLLBACK;
BEGIN READ ONLY;
SELECT idem_progress_committable('pr/pr/orders/3');
COMMIT;

-- a dump takes both tables along
SELECT count(*) FROM pg_extension, unnest(extconfig) c
WHERE extname = 'idem_action' AND c IN ('idem_progress'::regclass, 'idem_progress_offset'::regclass);

-- who may call it, for whose keys; nothing is granted on the tables
CREATE ROLE regress_idem_progress;
SET ROLE regress_idem_progress;
SELECT idem_progress_assign('pr/pr/role/0');
SELECT idem_progress_committable('pr/pr/orders/3');
SELECT count(*) FROM idem_progress;
SELECT count(*) FROM idem_progress_offset;
SELECT count(*) FROM idem_progress_open;
RESET ROLE;
SELECT idem_progress_fetched('other/pr/orders/3', 1, '{7}');
SELECT idem_grant('regress_idem_progress', 'application', 'other'), idem_grant('regress_idem_progress', 'monitor', 'other');
SET ROLE regress_idem_progress;
SELECT idem_progress_assign('pr/pr/orders/3', NULL);
SELECT idem_progress_fetched('pr/pr/orders/3', 5, NULL);
SELECT idem_progress_done('pr/pr/orders/3', 5, NULL);
SELECT idem_progress_advance('pr/pr/orders/3', 5, NULL);
SELECT idem_progress_committable('pr/nobody/orders/3');
SELECT key, record_offset FROM idem_progress_open;
SELECT * FROM idem_progress_assign('other/pr/orders/3');
SELECT idem_progress_fetched('other/pr/orders/3', 2, '{7,8}');
SELECT idem_progress_done('other/pr/orders/3', 2, '{7}');
SELECT idem_progress_advance('other/pr/orders/3', 2, 9);
SELECT idem_progress_committable('other/pr/orders/3');
SELECT count(*) FROM idem_progress;
SELECT count(*) FROM idem_progress_offset;
RESET ROLE;
SELECT idem_revoke('regress_idem_progress', 'application', 'other'), idem_revoke('regress_idem_progress', 'monitor', 'other');
\set VERBOSITY default

DROP ROLE regress_idem_progress;
DROP TABLE pr_ledger;
DROP PROCEDURE pr_run;
DROP FUNCTION pr_look;
