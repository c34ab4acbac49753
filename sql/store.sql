-- store: the permanent record, and what is in flight
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS idem_action;
RESET client_min_messages;
SELECT idem_define_operation('STORE', 'external'), idem_define_operation('STORE_L');

-- a dump takes every table and sequence along, but for the place where the next purge goes on
SELECT c.oid::regclass
FROM pg_class c JOIN pg_depend d ON d.classid = 'pg_class'::regclass AND d.objid = c.oid
    JOIN pg_extension e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid
WHERE e.extname = 'idem_action' AND c.relkind IN ('r', 'p', 'S') AND c.oid <> ALL (e.extconfig)
ORDER BY 1;
SELECT count(*)
FROM pg_extension, unnest(ARRAY['idem_action', 'idem_lease', 'idem_contract', 'idem_era']) AS name
WHERE extname = 'idem_action' AND name::regclass = ANY (extconfig);

-- of an action the primary key is the only index, so that an update can stay on its page
SELECT c.relname, indexrelid::regclass
FROM pg_index i JOIN pg_class c ON c.oid = indrelid
WHERE c.relname IN ('idem_action', 'idem_lease') ORDER BY indexrelid::regclass::text;

-- an external action has a lease row until it is terminal
CREATE VIEW store_rows AS
    SELECT a.key, a.state, a.last_call, l.key IS NOT NULL AS has_lease
    FROM idem_action a LEFT JOIN idem_lease l USING (key);
SELECT outcome FROM idem_claim('st/STORE/1', '{}');
SELECT * FROM store_rows WHERE key = 'st/STORE/1';
SELECT idem_mark_unknown('st/STORE/1', 1);
SELECT * FROM store_rows WHERE key = 'st/STORE/1';
SELECT idem_escalate('st/STORE/1', 1);
SELECT * FROM store_rows WHERE key = 'st/STORE/1';
SELECT idem_complete('st/STORE/1', 1);
SELECT * FROM store_rows WHERE key = 'st/STORE/1';
SELECT outcome FROM idem_submit('st/STORE/2', '{}');
SELECT * FROM store_rows WHERE key = 'st/STORE/2';
SELECT idem_cancel('st/STORE/2');
SELECT idem_cancel('st/STORE/3');
SELECT * FROM store_rows WHERE key IN ('st/STORE/2', 'st/STORE/3') ORDER BY key;

-- a local one never has
BEGIN;
SELECT outcome FROM idem_claim('st/STORE_L/1', '{}');
SELECT * FROM store_rows WHERE key = 'st/STORE_L/1';
SELECT idem_complete('st/STORE_L/1', 1);
COMMIT;
SELECT idem_once('st/STORE_L/2', '{}');
SELECT * FROM store_rows WHERE key IN ('st/STORE_L/1', 'st/STORE_L/2') ORDER BY key;

-- documents of any size come back as they were
CREATE TEMPORARY TABLE document AS
    SELECT n, jsonb_build_object('n', (SELECT string_agg(md5(i::text), '')
                                       FROM generate_series(1, n) i)) AS d
    FROM unnest(ARRAY[1, 100, 3000]) n;
SELECT n, idem_once(idem_key('st', 'STORE_L', 'size-' || n), d) FROM document;
SELECT n, idem_once(idem_key('st', 'STORE_L', 'size-' || n), d) FROM document;
SELECT n, outcome
FROM document, LATERAL idem_claim(idem_key('st', 'STORE', 'size-' || n), d) ORDER BY n;
SELECT n, params = d AS same
FROM document JOIN idem_action ON key = idem_key('st', 'STORE', 'size-' || n) ORDER BY n;
SELECT n, idem_complete(idem_key('st', 'STORE', 'size-' || n), 1, d) FROM document;
SELECT n, outcome, result = d AS same
FROM document, LATERAL idem_claim(idem_key('st', 'STORE', 'size-' || n), d) ORDER BY n;

-- whoever asks again writes nothing and takes no transaction id
SELECT outcome FROM idem_claim('st/STORE/busy', '{"a": 1}');
BEGIN;
SELECT outcome FROM idem_claim('st/STORE/1', '{}')
UNION ALL SELECT outcome FROM idem_claim('st/STORE/3', '{}')
UNION ALL SELECT outcome FROM idem_claim('st/STORE/busy', '{"a": 1}')
UNION ALL SELECT outcome FROM idem_claim('st/STORE/busy', '{"a": 1}', nowait => true)
UNION ALL SELECT outcome FROM idem_submit('st/STORE/busy', '{"a": 1}')
UNION ALL SELECT outcome FROM idem_reclaim('st/STORE/busy')
UNION ALL SELECT outcome FROM idem_claim('st/STORE_L/1', '{}')
UNION ALL SELECT idem_once('st/STORE_L/1', '{}')::text
UNION ALL SELECT idem_cancel('st/STORE/3')::text
UNION ALL SELECT state FROM idem_status('st/STORE/busy');
SELECT idem_complete('st/STORE/1', 1);
SELECT pg_current_xact_id_if_assigned();
COMMIT;

-- an action in flight is not deleted by hand, one that has ended may be: then it is new
DELETE FROM idem_action WHERE key = 'st/STORE/busy';
\set VERBOSITY sqlstate
DELETE FROM idem_action WHERE idem_key_operation(key) = 'STORE';
\set VERBOSITY default
DELETE FROM idem_action WHERE key = 'st/STORE/2';
SELECT outcome, state FROM idem_claim('st/STORE/2', '{}');
-- a row that vanished all the same: asked again it is new, whatever it left behind
SET session_replication_role = replica;
DELETE FROM idem_action WHERE key = 'st/STORE/busy';
RESET session_replication_role;
\set VERBOSITY sqlstate
SELECT idem_complete('st/STORE/busy', 1);
SELECT outcome FROM idem_reclaim('st/STORE/busy');
\set VERBOSITY default
SELECT count(*) FROM idem_status('st/STORE/busy');
SELECT outcome, generation, attempt, state FROM idem_claim('st/STORE/busy', '{"a": 3}');
SELECT owner IS NOT NULL AS owned, is_ambiguous FROM idem_lease WHERE key = 'st/STORE/busy';

-- the index may be replaced under a session
REINDEX INDEX CONCURRENTLY idem_action_pkey;
REINDEX INDEX CONCURRENTLY idem_lease_pkey;
SELECT outcome FROM idem_claim('st/STORE/busy', '{"a": 3}');
SELECT outcome FROM idem_claim('st/STORE/1', '{}');
SELECT outcome FROM idem_claim('st/STORE/reindexed', '{}');

-- no dependence on search_path: not on objects found first, nor on operators
CREATE SCHEMA store_trap;
CREATE TABLE store_trap.idem_action (key text, state text);
CREATE FUNCTION store_trap.never(bigint, bigint) RETURNS boolean
    LANGUAGE sql AS 'SELECT pg_catalog.int8eq(1, 0)';
CREATE OPERATOR store_trap.= (FUNCTION = store_trap.never, LEFTARG = bigint, RIGHTARG = bigint);
SELECT current_schema() AS home \gset
SET search_path = store_trap, pg_catalog, :home;
SELECT outcome FROM idem_claim('st/STORE/trap', '{}');
SELECT idem_complete('st/STORE/trap', 1);
SET search_path = '';
SELECT outcome FROM :home.idem_claim('st/STORE/trap', '{}');
RESET search_path;
SELECT state FROM idem_status('st/STORE/trap');
SELECT count(*) FROM store_trap.idem_action;
SET client_min_messages = warning;
DROP SCHEMA store_trap CASCADE;
RESET client_min_messages;

-- nothing is granted to PUBLIC; to whoever is bound the tables stay out of reach
CREATE ROLE regress_idem_store;
SET ROLE regress_idem_store;
\set VERBOSITY sqlstate
SELECT idem_claim('st/STORE/role', '{}');
SELECT idem_status('st/STORE/role');
TABLE idem_action;
TABLE idem_lease;
TABLE idem_contract;
TABLE idem_era;
RESET ROLE;
SELECT idem_grant('regress_idem_store', 'application', 'st');
SET ROLE regress_idem_store;
SELECT outcome FROM idem_claim('st/STORE/role', '{}');
SELECT idem_complete('st/STORE/role', 1, '1');
SELECT state, result FROM idem_status('st/STORE/role');
SELECT current_user = 'regress_idem_store' AS still_me;
TABLE idem_action;
UPDATE idem_action SET state = 'pending';
SELECT idem_resolve('st/STORE/role', 1, 'pending', 'note');
RESET ROLE;
DROP OWNED BY regress_idem_store;
DROP ROLE regress_idem_store;

-- no function of the extension may be called by PUBLIC
SELECT p.oid::regprocedure
FROM pg_proc p JOIN pg_depend d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid
    JOIN pg_extension e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid
WHERE e.extname = 'idem_action'
    AND (p.proacl IS NULL OR EXISTS (SELECT FROM aclexplode(p.proacl) WHERE grantee = 0))
ORDER BY 1;

-- whoever writes is volatile, parallel unsafe, not strict, and dear enough to be evaluated last
SELECT DISTINCT p.provolatile, p.proparallel, p.proisstrict, p.procost, p.prosecdef
FROM pg_proc p
WHERE p.proname IN ('idem_submit', 'idem_claim', 'idem_reclaim', 'idem_renew', 'idem_complete',
    'idem_reject', 'idem_mark_unknown', 'idem_release', 'idem_absent', 'idem_escalate',
    'idem_cancel', 'idem_resolve', 'idem_once', 'idem_call', 'idem_define_operation',
    'idem_drop_operation');

-- tables must be plain heap tables
BEGIN;
ALTER TABLE idem_action RENAME TO elsewhere;
CREATE VIEW idem_action AS TABLE elsewhere;
SELECT outcome FROM idem_claim('st/STORE/1', '{}');
ROLLBACK;
BEGIN;
ALTER TABLE idem_lease RENAME TO elsewhere;
CREATE TABLE idem_lease (LIKE elsewhere) PARTITION BY HASH (key);
SELECT outcome FROM idem_claim('st/STORE/busy', '{"a": 3}');
ROLLBACK;
BEGIN;
ALTER TABLE idem_lease RENAME TO elsewhere;
SELECT outcome FROM idem_claim('st/STORE/busy', '{"a": 3}');
ROLLBACK;
BEGIN;
ALTER TABLE idem_action SET UNLOGGED;
SELECT outcome FROM idem_claim('st/STORE/1', '{}');
ROLLBACK;
BEGIN;
ALTER TABLE idem_action DROP CONSTRAINT idem_action_pkey;
SELECT outcome FROM idem_claim('st/STORE/1', '{}');
ROLLBACK;
DROP VIEW store_rows;
