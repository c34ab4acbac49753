-- fence: keeps replaced owners of any resource out
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS idem_action;
RESET client_min_messages;

-- a newer generation is remembered, an equal one passes, an older one does not
CREATE TABLE fence_ledger (n int);
SELECT idem_fence('fe/PARTITION/1', 3);
SELECT idem_fence('fe/PARTITION/1', 3);
SELECT idem_fence('fe/PARTITION/1', 7);
SELECT idem_fence('fe/PARTITION/1', 3);
SELECT idem_fence('fe/PARTITION/1', 7);
SELECT generation FROM idem_fence WHERE key = 'fe/PARTITION/1';
-- and what was written beside the call rolls back with it
BEGIN;
INSERT INTO fence_ledger VALUES (6);
SELECT idem_fence('fe/PARTITION/1', 6);
COMMIT;
BEGIN;
INSERT INTO fence_ledger VALUES (7);
SELECT idem_fence('fe/PARTITION/1', 7);
COMMIT;
SELECT * FROM fence_ledger;

-- any resource, of any tenant, each for itself; no operation or consumer need be defined
SELECT idem_fence('fe/PARTITION/2', 1), idem_fence('other/PARTITION/1', 1),
    idem_fence('fe/SHARD/a/b', 9223372036854775807);
SELECT idem_fence('fe/SHARD/a/b', 9223372036854775807);
SELECT key, generation FROM idem_fence WHERE idem_key_tenant(key) IN ('fe', 'other') ORDER BY key;

-- remembered in the caller's transaction
BEGIN;
SELECT idem_fence('fe/PARTITION/1', 8);
SELECT idem_fence('fe/PARTITION/3', 8);
ROLLBACK;
SELECT idem_fence('fe/PARTITION/1', 7);
SELECT idem_fence('fe/PARTITION/3', 1);
BEGIN;
SELECT idem_fence('fe/PARTITION/1', 7);
SAVEPOINT a;
SELECT idem_fence('fe/PARTITION/1', 9);
\set VERBOSITY sqlstate
SELECT idem_fence('fe/PARTITION/1', 8);
ROLLBACK TO a;
SELECT idem_fence('fe/PARTITION/1', 8);
SELECT idem_fence('fe/PARTITION/1', 8);
SELECT idem_fence('fe/PARTITION/1', 9);
SELECT idem_fence('fe/PARTITION/1', 8);
\set VERBOSITY default
COMMIT;
SELECT generation FROM idem_fence WHERE key = 'fe/PARTITION/1';
-- several in one statement
SELECT g, idem_fence('fe/PARTITION/4', g) FROM generate_series(1, 3) g;
\set VERBOSITY sqlstate
SELECT g, idem_fence('fe/PARTITION/4', g) FROM generate_series(4, 3, -1) g;
\set VERBOSITY default
SELECT generation FROM idem_fence WHERE key = 'fe/PARTITION/4';

-- raised over and over it stays on its page
CREATE PROCEDURE fence_raise(n int) LANGUAGE plpgsql AS $$
BEGIN
    FOR i IN 1 .. n LOOP
        PERFORM idem_fence('fe/PARTITION/hot', i);
        COMMIT;
    END LOOP;
END $$;
CALL fence_raise(500);
SELECT generation FROM idem_fence WHERE key = 'fe/PARTITION/hot';
SELECT pg_relation_size('idem_fence') <= 2 * current_setting('block_size')::int AS small;

-- what is no generation: nothing was granted
SELECT idem_fence('fe/PARTITION/1', 0);
\set VERBOSITY sqlstate
SELECT idem_fence('fe/PARTITION/1', NULL);
SELECT idem_fence('fe/PARTITION/1', -1);
SELECT idem_fence('fe/PARTITION/new', NULL);
SELECT idem_fence('fe/PARTITION/new', 0);
-- or no key
SELECT idem_fence(NULL, 1);
SELECT idem_fence('fe/PARTITION', 1);
SELECT idem_fence('', 1);
-- nothing to write, and refused all the same
BEGIN READ ONLY;
SELECT idem_fence('fe/PARTITION/4', 3);
ROLLBACK;
\set VERBOSITY default
SELECT count(*) FROM idem_fence WHERE key = 'fe/PARTITION/new';

-- one index, and a dump takes it along
SELECT count(*), bool_and(indisprimary) FROM pg_index WHERE indrelid = 'idem_fence'::regclass;
SELECT 'idem_fence'::regclass = ANY (extconfig) AS dumped
FROM pg_extension WHERE extname = 'idem_action';

-- whoever passes is bound to the tenant, and needs nothing on the table
CREATE ROLE regress_idem_fence;
SET ROLE regress_idem_fence;
\set VERBOSITY sqlstate
SELECT idem_fence('fe/PARTITION/1', 9);
SELECT count(*) FROM idem_fence;
\set VERBOSITY default
RESET ROLE;
SELECT idem_grant('regress_idem_fence', 'application', 'fe');
SET ROLE regress_idem_fence;
SELECT idem_fence('fe/PARTITION/role', 1);
SELECT idem_fence('fe/PARTITION/role', 1);
SELECT idem_fence('fe/PARTITION/role', 2);
RESET ROLE;
DROP OWNED BY regress_idem_fence;
DROP ROLE regress_idem_fence;

DROP TABLE fence_ledger;
DROP PROCEDURE fence_raise;
