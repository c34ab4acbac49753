-- who may call what, for whose keys
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS idem_action;
RESET client_min_messages;
CREATE ROLE regress_ac_a;
CREATE ROLE regress_ac_b;
CREATE ROLE regress_ac_op;
CREATE ROLE regress_ac_mon;
CREATE ROLE regress_ac_none;
SELECT idem_define_operation('AC_LOCAL'),
    idem_define_operation('AC_REFUND', effect => 'external', lease => '1 hour'),
    idem_define_consumer('ac_stock');

-- what idem_grant takes
\set VERBOSITY sqlstate
SELECT idem_grant(NULL, 'application', 'ac_a');
SELECT idem_grant('regress_ac_a', NULL, 'ac_a');
SELECT idem_grant('regress_ac_a', 'application', NULL);
SELECT idem_grant('regress_ac_a', 'application');
SELECT idem_grant('regress_ac_a', 'owner', 'ac_a');
SELECT idem_grant('regress_ac_a', 'application', '');
SELECT idem_grant('regress_ac_a', 'application', 'ac/a');
SELECT idem_grant('regress_ac_a', 'application', 'ac a');
SELECT idem_grant('regress_ac_missing', 'application', 'ac_a');
SELECT idem_grant('public', 'application', 'ac_a');
SELECT idem_revoke('regress_ac_a', 'application', 'ac_a');
BEGIN READ ONLY;
SELECT idem_grant('regress_ac_a', 'application', 'ac_a');
ROLLBACK;
\set VERBOSITY default
SELECT count(*) FROM idem_access WHERE role::text LIKE 'regress_ac%';

SELECT idem_grant('regress_ac_a', 'application', 'ac_a'),
    idem_grant('regress_ac_b'::text, 'application', 'ac_b'),
    idem_grant('regress_ac_op'::name, 'operator', 'ac_a'),
    idem_grant('regress_ac_mon', 'monitor', 'ac_a');
-- again is the same
SELECT idem_grant('regress_ac_a', 'application', 'ac_a');
SELECT role, kind, tenant, granted_by = current_user AS by_me, granted_at <= clock_timestamp() AS is_past
FROM idem_access WHERE role::text LIKE 'regress_ac%' ORDER BY role::text, kind, tenant;

-- every function that SQL can call is given to somebody or is the owner's alone; who adds one finds it here
SELECT p.oid::regprocedure AS nobody_may
FROM pg_depend d JOIN pg_proc p ON p.oid = d.objid
WHERE d.classid = 'pg_proc'::regclass AND d.deptype = 'e'
    AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'idem_action')
    AND p.prorettype <> 'trigger'::regtype
    AND NOT EXISTS (SELECT FROM pg_roles WHERE rolname ~ '^regress_ac_(a|op|mon)$'
        AND has_function_privilege(pg_roles.oid, p.oid, 'EXECUTE'))
ORDER BY 1::text;
-- what changes anything, and who may call it
SELECT p.proname, string_agg(DISTINCT substr(rolname, 12), ' ' ORDER BY substr(rolname, 12)) AS may
FROM pg_depend d JOIN pg_proc p ON p.oid = d.objid,
    pg_roles
WHERE d.classid = 'pg_proc'::regclass AND d.deptype = 'e'
    AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'idem_action')
    AND p.provolatile <> 'i' AND rolname ~ '^regress_ac_(a|op|mon|none)$'
    AND has_function_privilege(pg_roles.oid, p.oid, 'EXECUTE')
GROUP BY 1 ORDER BY 1;
-- tables are given to nobody, views to operators and monitors, types to everybody
SELECT rolname, c.relname AS wrong
FROM pg_roles r, pg_depend d JOIN pg_class c ON c.oid = d.objid
WHERE d.classid = 'pg_class'::regclass AND d.deptype = 'e'
    AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'idem_action')
    AND rolname LIKE 'regress_ac%' AND (
        c.relkind = 'v' AND has_table_privilege(r.oid, c.oid, 'SELECT')
            <> (rolname ~ '_op$' OR rolname ~ '_mon$' AND c.relname <> 'idem_review')
        OR c.relkind <> 'S' AND has_table_privilege(r.oid, c.oid, 'INSERT, UPDATE, DELETE, TRUNCATE, REFERENCES, TRIGGER')
        OR c.relkind = 'r' AND has_table_privilege(r.oid, c.oid, 'SELECT')
        OR c.relkind = 'S' AND has_sequence_privilege(r.oid, c.oid, 'SELECT, USAGE, UPDATE'))
ORDER BY 1, 2;
SELECT rolname, has_type_privilege(oid, 'idem_key', 'USAGE') AND has_type_privilege(oid, 'idem_verdict', 'USAGE')
    AND has_type_privilege(oid, 'idem_consumption', 'USAGE') AS has_types
FROM pg_roles WHERE rolname LIKE 'regress_ac%' ORDER BY 1;

-- both tenants have an r-17, and know nothing of each other
SET ROLE regress_ac_a;
SELECT outcome, generation FROM idem_claim('ac_a/AC_REFUND/r-17', '{"of": "a"}');
SELECT idem_once('ac_a/AC_LOCAL/r-17', '1');
SELECT outcome FROM idem_consume('ac_a/ac_stock/r-17', '1');
SELECT idem_fence('ac_a/AC_PARTITION/r-17', 7);
SET ROLE regress_ac_b;
SELECT outcome, generation FROM idem_claim('ac_b/AC_REFUND/r-17', '{"of": "b"}');
SELECT idem_once('ac_b/AC_LOCAL/r-17', '2');
SELECT outcome FROM idem_consume('ac_b/ac_stock/r-17', '2');
SELECT idem_fence('ac_b/AC_PARTITION/r-17', 3);

-- the same answer whether the other tenant's key is on record or not
SELECT state FROM idem_status('ac_a/AC_REFUND/r-17');
SELECT state FROM idem_status('ac_a/AC_REFUND/nothing');
SELECT state FROM idem_status('nobody/AC_REFUND/nothing');
RESET ROLE;
-- through every function that takes a key: as b, of a's key that is there, and of one that is not
CREATE FUNCTION ac_answer(command text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    message text;
    detail text;
    hint text;
BEGIN
    EXECUTE command;
    RETURN 'no error';
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
    RETURN concat_ws(' / ', SQLSTATE, message, detail, hint);
END $$;
CREATE TABLE ac_calls AS
SELECT p.oid::regproc::text AS name,
    -- keys, arrays of keys, and for the rest a null of its type
    (SELECT string_agg(CASE WHEN t.type = 'idem_key'::regtype THEN '%1$L::idem_key'
            WHEN t.type = 'idem_key[]'::regtype THEN 'ARRAY[%1$L]::idem_key[]'
            WHEN t.type = 'jsonb[]'::regtype AND t.n = 2 THEN 'ARRAY[''1'']::jsonb[]'
            WHEN t.type = 'jsonb'::regtype AND p.proname <> 'idem_resolve' THEN '''1''::jsonb'
            WHEN p.proname = 'idem_resolve' AND t.n = 3 THEN '''pending'''
            WHEN p.proname = 'idem_resolve' AND t.n = 4 THEN '''note'''
            WHEN p.proname = 'idem_admit' AND t.n = 3 THEN '''note'''
            WHEN p.proname = 'idem_call' AND t.n = 3 THEN '''ac_handler'''
            ELSE 'NULL::' || format_type(t.type, NULL) END, ', ' ORDER BY t.n)
        FROM unnest(p.proargtypes) WITH ORDINALITY t (type, n)) AS arguments
FROM pg_depend d JOIN pg_proc p ON p.oid = d.objid
WHERE d.classid = 'pg_proc'::regclass AND d.deptype = 'e'
    AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'idem_action')
    AND p.provolatile <> 'i' AND p.proname <> 'idem_may_see'
    AND ('idem_key'::regtype = ANY (p.proargtypes) OR 'idem_key[]'::regtype = ANY (p.proargtypes));
CREATE FUNCTION ac_handler(jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT $1';
GRANT SELECT ON ac_calls TO PUBLIC;
SELECT count(*) >= 20 AS many FROM ac_calls;
-- a role with every kind of another tenant, so that only the tenant is missing
SELECT idem_grant('regress_ac_b', 'operator', 'ac_b'), idem_grant('regress_ac_b', 'monitor', 'ac_b');
SET ROLE regress_ac_b;
SELECT name, there, missing FROM ac_calls,
    LATERAL ac_answer('SELECT ' || name || '(' || format(arguments, 'ac_a/AC_REFUND/r-17') || ')') AS there,
    LATERAL ac_answer('SELECT ' || name || '(' || format(arguments, 'ac_a/NOTHING/x') || ')') AS missing
WHERE there <> missing OR there NOT LIKE '42501 / permission denied for tenant "ac_a" / Role "regress_ac_b" %';
-- of one's own they get as far as the key
SELECT name, own FROM ac_calls,
    LATERAL ac_answer('SELECT ' || name || '(' || format(arguments, 'ac_b/NOTHING/x') || ')') AS own
WHERE own LIKE '42501%';
SELECT * FROM ac_answer($$SELECT idem_claim('ac_a/AC_REFUND/r-17', '1')$$);
SELECT * FROM ac_answer($$SELECT idem_resolve('ac_a/AC_REFUND/r-17', 1, 'pending', 'note')$$);
SELECT * FROM ac_answer($$SELECT idem_cancel('ac_a/AC_REFUND/r-17')$$);
-- one foreign key in a batch is enough, wherever it stands
SELECT ac_answer($$SELECT idem_consume_batch('{ac_b/ac_stock/1,ac_a/ac_stock/r-17}', '{1,1}')$$);
SELECT idem_may_see('ac_a/AC_REFUND/r-17'), idem_may_see('ac_b/AC_REFUND/r-17'), idem_may_see_all();
RESET ROLE;
SELECT idem_revoke('regress_ac_b', 'operator', 'ac_b'), idem_revoke('regress_ac_b', 'monitor', 'ac_b');

-- tenants are compared byte by byte, and whole
SET ROLE regress_ac_a;
SELECT name, ac_answer('SELECT idem_status(''' || name || ''')') AS answer
FROM unnest('{ac_a/X/1,AC_A/X/1,ac_/X/1,ac_ab/X/1,*/X/1,ac_a/X/1}'::text[]) AS name;
RESET ROLE;

-- kinds: who may report may not decide, and the other way round
SELECT rolname, string_agg(c.call, ' ' ORDER BY c.call) FILTER (WHERE has_function_privilege(r.oid, p.oid, 'EXECUTE')) AS may
FROM pg_roles r, (VALUES ('idem_claim'), ('idem_resolve'), ('idem_status'), ('idem_escalate'), ('idem_grant')) AS c (call)
    JOIN pg_proc p ON p.proname = c.call
WHERE rolname LIKE 'regress_ac%' GROUP BY 1 ORDER BY 1;
SET ROLE regress_ac_op;
SELECT idem_escalate('ac_a/AC_REFUND/r-17', 1);
SELECT idem_resolve('ac_a/AC_REFUND/r-17', 1, 'pending', 'not executed');
SET ROLE regress_ac_mon;
SELECT state FROM idem_status('ac_a/AC_REFUND/r-17');
\set VERBOSITY sqlstate
SELECT idem_escalate('ac_a/AC_REFUND/r-17', 2);
SELECT state FROM idem_status('ac_b/AC_REFUND/r-17');
\set VERBOSITY default
RESET ROLE;
-- EXECUTE alone is not enough, nor is being bound under another kind
GRANT EXECUTE ON FUNCTION idem_reclaim, idem_resolve, idem_status TO regress_ac_none, regress_ac_mon, regress_ac_a;
SET ROLE regress_ac_none;
SELECT ac_answer($$SELECT idem_reclaim('ac_a/AC_REFUND/r-17')$$);
SELECT ac_answer($$SELECT idem_status('ac_a/AC_REFUND/r-17')$$);
SET ROLE regress_ac_mon;
SELECT ac_answer($$SELECT idem_reclaim('ac_a/AC_REFUND/r-17')$$);
SET ROLE regress_ac_a;
SELECT ac_answer($$SELECT idem_resolve('ac_a/AC_REFUND/r-17', 2, 'pending', 'note')$$);
RESET ROLE;
REVOKE EXECUTE ON FUNCTION idem_reclaim, idem_resolve, idem_status FROM regress_ac_none, regress_ac_mon, regress_ac_a;
SELECT idem_grant('regress_ac_mon', 'monitor', 'ac_a'), idem_grant('regress_ac_a', 'application', 'ac_a');

-- what concerns every tenant needs '*'
SET ROLE regress_ac_op;
SELECT ac_answer($$SELECT idem_define_operation('AC_NEW')$$);
SELECT ac_answer($$SELECT idem_drop_operation('AC_LOCAL')$$);
SELECT ac_answer($$SELECT idem_drop_operation('AC_NOBODY')$$);
SELECT ac_answer($$SELECT idem_define_consumer('ac_new')$$);
SELECT ac_answer($$SELECT idem_purge()$$);
SELECT ac_answer($$SELECT idem_declare_loss(now() - interval '1 hour', now(), now())$$);
RESET ROLE;
SELECT idem_grant('regress_ac_op', 'operator', '*');
SET ROLE regress_ac_op;
SELECT idem_define_operation('AC_NEW'), idem_define_consumer('ac_new');
SELECT idem_drop_operation('AC_NEW');
SELECT state FROM idem_status('ac_b/AC_REFUND/r-17');
SELECT idem_may_see('ac_b/AC_REFUND/r-17'), idem_may_see_all();
RESET ROLE;
SELECT idem_revoke('regress_ac_op', 'operator', '*');
SET ROLE regress_ac_op;
SELECT ac_answer($$SELECT idem_status('ac_b/AC_REFUND/r-17')$$);
SELECT state FROM idem_status('ac_a/AC_REFUND/r-17');
RESET ROLE;

-- only a superuser or the owner of the extension binds roles, whatever he was granted
GRANT EXECUTE ON FUNCTION idem_grant, idem_revoke, idem_grant_replay TO regress_ac_op;
SET ROLE regress_ac_op;
SELECT ac_answer($$SELECT idem_grant('regress_ac_op', 'operator', '*')$$);
SELECT ac_answer($$SELECT idem_revoke('regress_ac_a', 'application', 'ac_a')$$);
SELECT ac_answer($$SELECT idem_grant_replay()$$);
\set VERBOSITY sqlstate
INSERT INTO idem_access VALUES ('regress_ac_op', 'operator', '*', now(), 'me');
SELECT count(*) FROM idem_access;
\set VERBOSITY default
RESET ROLE;
REVOKE EXECUTE ON FUNCTION idem_grant, idem_revoke, idem_grant_replay FROM regress_ac_op;

-- views: of one's own tenants, for who looks and for who decides; and what is counted of all tenants for who may see all
SET ROLE regress_ac_b;
SELECT outcome FROM idem_claim('ac_b/AC_REFUND/r-18', '1');
SELECT idem_add_evidence('ac_b/AC_REFUND/r-18', 1, NULL, 'ref-1'), idem_add_evidence('ac_b/AC_REFUND/r-18', 1, NULL, 'ref-2');
RESET ROLE;
SELECT idem_add_evidence('ac_a/AC_REFUND/r-17', NULL, NULL, 'ref-1');
CREATE TABLE ac_views AS
SELECT c.oid::regclass::text AS name, a.attname IS NOT NULL AS has_key
FROM pg_depend d JOIN pg_class c ON c.oid = d.objid AND c.relkind = 'v'
    LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'key'
WHERE d.classid = 'pg_class'::regclass AND d.deptype = 'e'
    AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'idem_action');
GRANT SELECT ON ac_views TO PUBLIC;
SELECT c.oid::regclass AS is_no_barrier FROM pg_class c JOIN ac_views v ON c.oid = v.name::regclass
WHERE 'security_barrier=true' <> ALL (coalesce(reloptions, '{}'));
CREATE FUNCTION ac_plan(view text) RETURNS SETOF text LANGUAGE plpgsql SET enable_seqscan = off AS $$
BEGIN
    RETURN QUERY EXECUTE format('EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF)
        SELECT key FROM %s WHERE key >= %L AND key < %L', view, 'ac_b/AC_REFUND/!', 'ac_b/AC_REFUND/~');
END $$;
-- the tenants that a view shows, asked with a condition that fails for those that it should not
CREATE FUNCTION ac_seen(name text, expected text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    seen text;
BEGIN
    EXECUTE format('SELECT string_agg(DISTINCT idem_key_tenant(key), '' '' ORDER BY idem_key_tenant(key))
        FILTER (WHERE idem_key_tenant(key) LIKE ''ac%%'') FROM %s
        WHERE 1 / CASE WHEN idem_key_tenant(key) LIKE %L THEN 1 ELSE 0 END = 1', name, expected) INTO seen;
    RETURN seen;
END $$;
SELECT name, ac_seen(name, '%') FROM ac_views WHERE name IN ('idem_in_flight', 'idem_violations') ORDER BY 1;
SET ROLE regress_ac_mon;
SELECT name AS wrong, ac_seen(name, 'ac_a') FROM ac_views WHERE has_key AND name <> 'idem_review' AND ac_seen(name, 'ac_a') <> 'ac_a';
SELECT ac_seen('idem_in_flight', 'ac_a');
-- nor does EXPLAIN count what a condition of the reader's would find of others: none reaches an index
SELECT name AS wrong, line FROM ac_views, ac_plan(name) AS line
WHERE has_key AND name <> 'idem_review' AND line LIKE '%Index Cond%ac_b%';
-- that a reference is another tenant's, too, is not told
SELECT kind, key FROM idem_violations;
SELECT in_flight FROM idem_health WHERE operation = 'AC_REFUND';
SELECT count(*) FROM idem_stat_operations;
SELECT count(*) FROM idem_stat_consumers;
SELECT ac_answer($$SELECT idem_stat_operation('AC_REFUND')$$);
SELECT ac_answer($$SELECT idem_stat_consumer(NULL)$$);
SET ROLE regress_ac_op;
SELECT ac_seen('idem_in_flight', 'ac_a');
SELECT ac_answer($$SELECT idem_stat_reset()$$);
SET ROLE regress_ac_a;
SELECT ac_answer('TABLE ' || name) FROM ac_views WHERE ac_answer('TABLE ' || name) NOT LIKE '42501%';
RESET ROLE;
SELECT idem_grant('regress_ac_mon', 'monitor', '*');
SET ROLE regress_ac_mon;
SELECT name, ac_seen(name, '%') FROM ac_views WHERE name IN ('idem_in_flight', 'idem_violations') ORDER BY 1;
SELECT in_flight FROM idem_health WHERE operation = 'AC_REFUND';
SELECT DISTINCT operation FROM idem_stat_operations WHERE operation LIKE 'AC%' ORDER BY 1;
SELECT DISTINCT consumer FROM idem_stat_consumers WHERE consumer = 'ac_stock';
RESET ROLE;
SELECT idem_revoke('regress_ac_mon', 'monitor', '*');

-- revoking: privileges go with the last grant of a kind, bindings one by one
SELECT idem_grant('regress_ac_a', 'application', 'ac_a2'), idem_grant('regress_ac_a', 'operator', 'ac_a');
SELECT idem_revoke('regress_ac_a', 'application', 'ac_a');
SET ROLE regress_ac_a;
SELECT ac_answer($$SELECT idem_claim('ac_a/AC_REFUND/r-17', '{"of": "a"}')$$);
SELECT ac_answer($$SELECT idem_claim('ac_a2/AC_REFUND/r-17', '{"of": "a"}')$$);
SELECT idem_cancel('ac_a/AC_REFUND/r-18');
RESET ROLE;
CREATE VIEW ac_may AS
SELECT string_agg(p.proname, ' ' ORDER BY p.proname) AS regress_ac_a_may,
    has_type_privilege('regress_ac_a', 'idem_key', 'USAGE') AS has_type
FROM pg_proc p WHERE p.proname IN ('idem_claim', 'idem_escalate', 'idem_resolve', 'idem_status', 'idem_key_eq')
    AND has_function_privilege('regress_ac_a', p.oid, 'EXECUTE');
TABLE ac_may;
SELECT idem_revoke('regress_ac_a', 'application', 'ac_a2');
TABLE ac_may;
SELECT idem_revoke('regress_ac_a', 'operator', 'ac_a');
TABLE ac_may;
SELECT ac_answer($$SELECT idem_revoke('regress_ac_a', 'operator', 'ac_a')$$);

-- in one transaction, and not at all if that is rolled back
SET ROLE regress_ac_b;
SELECT state FROM idem_status('ac_b/AC_REFUND/r-17');
RESET ROLE;
BEGIN;
SELECT idem_revoke('regress_ac_b', 'application', 'ac_b'), idem_grant('regress_ac_b', 'application', 'ac_a');
SET LOCAL ROLE regress_ac_b;
SELECT ac_answer($$SELECT idem_status('ac_b/AC_REFUND/r-17')$$);
SELECT state FROM idem_status('ac_a/AC_REFUND/r-17');
ROLLBACK;
SET ROLE regress_ac_b;
SELECT state FROM idem_status('ac_b/AC_REFUND/r-17');
SELECT ac_answer($$SELECT idem_status('ac_a/AC_REFUND/r-17')$$);
RESET ROLE;

-- written by hand it counts at once, too
DELETE FROM idem_access WHERE role = 'regress_ac_b'::regrole;
SET ROLE regress_ac_b;
SELECT ac_answer($$SELECT idem_status('ac_b/AC_REFUND/r-17')$$);
RESET ROLE;
SELECT idem_grant('regress_ac_b', 'application', 'ac_b');
\set VERBOSITY sqlstate
INSERT INTO idem_access VALUES ('regress_ac_b', 'owner', '*', now(), 'me');
SELECT idem_access_changed();
\set VERBOSITY default

-- membership: with inheritance a role has what its roles have
CREATE ROLE regress_ac_both IN ROLE regress_ac_b, regress_ac_mon;
CREATE ROLE regress_ac_login NOINHERIT IN ROLE regress_ac_b, regress_ac_mon;
SET ROLE regress_ac_both;
SELECT state FROM idem_status('ac_b/AC_REFUND/r-17');
SELECT state FROM idem_status('ac_a/AC_REFUND/r-17');
SELECT outcome FROM idem_claim('ac_b/AC_REFUND/r-20', '1');
SELECT ac_answer($$SELECT idem_claim('ac_a/AC_REFUND/r-20', '1')$$);
RESET ROLE;
-- a membership that ends, and one that begins
REVOKE regress_ac_mon FROM regress_ac_both;
SET ROLE regress_ac_both;
SELECT ac_answer($$SELECT idem_status('ac_a/AC_REFUND/r-17')$$);
RESET ROLE;
ALTER ROLE regress_ac_both SUPERUSER;
SET ROLE regress_ac_both;
SELECT state FROM idem_status('ac_a/AC_REFUND/r-17');
RESET ROLE;
ALTER ROLE regress_ac_both NOSUPERUSER;
SET ROLE regress_ac_both;
SELECT ac_answer($$SELECT idem_status('ac_a/AC_REFUND/r-17')$$);
RESET ROLE;
-- without it he must set the role, and has then that one's alone
SET SESSION AUTHORIZATION regress_ac_login;
SELECT has_function_privilege('idem_status(idem_key)', 'EXECUTE');
SET ROLE regress_ac_b;
SELECT state FROM idem_status('ac_b/AC_REFUND/r-17');
SELECT ac_answer($$SELECT idem_status('ac_a/AC_REFUND/r-17')$$);
SET ROLE regress_ac_mon;
SELECT state FROM idem_status('ac_a/AC_REFUND/r-17');
SELECT ac_answer($$SELECT idem_status('ac_b/AC_REFUND/r-17')$$);
RESET SESSION AUTHORIZATION;

-- a session that is bound does not get away from it: not by a role that it sets
SELECT idem_grant('regress_ac_login', 'monitor', 'ac_c');
-- (what was allowed to the same role in another session does not count)
SET ROLE regress_ac_b;
SELECT state FROM idem_status('ac_b/AC_REFUND/r-17');
SET SESSION AUTHORIZATION regress_ac_login;
SET ROLE regress_ac_b;
SELECT ac_answer($$SELECT idem_status('ac_b/AC_REFUND/r-17')$$);
RESET ROLE;
SELECT state FROM idem_status('ac_c/AC_REFUND/r-17');
SET ROLE regress_ac_b;
SELECT ac_answer($$SELECT idem_status('ac_b/AC_REFUND/r-17')$$);
SELECT ac_answer($$SELECT idem_status('ac_c/AC_REFUND/r-17')$$);
SELECT idem_may_see('ac_b/AC_REFUND/r-17'), idem_may_see('ac_c/AC_REFUND/r-17'), idem_may_see_all();
RESET SESSION AUTHORIZATION;
-- nor by a function that runs as somebody with more
CREATE ROLE regress_ac_star;
SELECT idem_grant('regress_ac_star', 'operator', '*');
GRANT CREATE ON SCHEMA public TO regress_ac_star;
SET ROLE regress_ac_star;
CREATE FUNCTION ac_definer(key idem_key) RETURNS text LANGUAGE sql SECURITY DEFINER
    AS 'SELECT state FROM public.idem_status(key)';
RESET ROLE;
CREATE FUNCTION ac_superuser(key idem_key) RETURNS text LANGUAGE sql SECURITY DEFINER
    AS 'SELECT state FROM public.idem_status(key)';
CREATE FUNCTION ac_defines() RETURNS integer LANGUAGE sql SECURITY DEFINER
    AS $$SELECT public.idem_define_operation('AC_NEW')$$;
SET SESSION AUTHORIZATION regress_ac_login;
SELECT ac_answer($$SELECT ac_definer('ac_b/AC_REFUND/r-17')$$);
SELECT ac_answer($$SELECT ac_superuser('ac_b/AC_REFUND/r-17')$$);
SELECT ac_answer($$SELECT ac_defines()$$);
SELECT ac_answer($$SELECT ac_definer('ac_c/AC_REFUND/r-17')$$);
RESET SESSION AUTHORIZATION;
-- looking for work is narrowed likewise
SELECT idem_grant('regress_ac_star', 'application', '*');
SELECT idem_submit('ac_b/AC_REFUND/due', '1'), idem_submit('ac_c/AC_REFUND/due', '1') \g /dev/null
SET ROLE regress_ac_star;
CREATE FUNCTION ac_takes() RETURNS SETOF text LANGUAGE sql SECURITY DEFINER
    AS $$SELECT key::text FROM public.idem_claim_next('AC_REFUND', 10) WHERE key::text LIKE 'ac%/due' ORDER BY 1$$;
RESET ROLE;
SET SESSION AUTHORIZATION regress_ac_login;
SELECT ac_takes();
SET SESSION AUTHORIZATION regress_ac_none;
SELECT ac_takes();
RESET SESSION AUTHORIZATION;
SELECT idem_revoke('regress_ac_star', 'application', '*');
-- who is bound to nothing uses what he was lent
SET SESSION AUTHORIZATION regress_ac_none;
SELECT ac_definer('ac_b/AC_REFUND/r-17'), ac_superuser('ac_b/AC_REFUND/r-17');
RESET SESSION AUTHORIZATION;
-- and a session of '*' is not narrowed
SET SESSION AUTHORIZATION regress_ac_star;
SELECT ac_superuser('ac_b/AC_REFUND/r-17');
RESET SESSION AUTHORIZATION;

-- a handler is run as who calls it
CREATE FUNCTION ac_hostile(params jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    RETURN jsonb_build_array(current_user,
        ac_answer('UPDATE idem_action SET state = ''pending'''),
        ac_answer('SELECT idem_grant(current_user, ''operator'', ''*'')'),
        ac_answer('SET ROLE regress_ac_a'),
        ac_answer('SELECT idem_status(''ac_a/AC_REFUND/r-17'')'));
END $$;
SET SESSION AUTHORIZATION regress_ac_b;
SELECT jsonb_array_elements(idem_call('ac_b/AC_LOCAL/hostile', '{}', 'ac_hostile'));
SELECT current_user;
RESET SESSION AUTHORIZATION;

-- what stands on the search_path, or among temporary objects, is not looked at
CREATE SCHEMA ac_trap;
CREATE TABLE ac_trap.idem_access (role oid, kind text, tenant text);
INSERT INTO ac_trap.idem_access SELECT 'regress_ac_b'::regrole, 'application', '*';
GRANT ALL ON SCHEMA ac_trap TO PUBLIC;
GRANT ALL ON ac_trap.idem_access TO PUBLIC;
CREATE FUNCTION ac_trap.always(anyelement, anyelement) RETURNS boolean LANGUAGE sql AS 'SELECT true';
CREATE OPERATOR ac_trap.= (FUNCTION = ac_trap.always, LEFTARG = anyelement, RIGHTARG = anyelement);
CREATE FUNCTION ac_trap.idem_may_see(idem_key) RETURNS boolean LANGUAGE sql AS 'SELECT true';
SET SESSION AUTHORIZATION regress_ac_b;
CREATE TEMPORARY TABLE idem_access AS SELECT 'regress_ac_b'::regrole::oid AS role, 'application' AS kind, '*' AS tenant;
SET search_path = ac_trap, pg_temp, public, pg_catalog;
SELECT public.ac_answer($$SELECT public.idem_status('ac_a/AC_REFUND/r-17')$$);
SELECT state FROM public.idem_status('ac_b/AC_REFUND/r-17');
RESET search_path;
DROP TABLE pg_temp.idem_access;
RESET SESSION AUTHORIZATION;
-- nor is a planted operator run while the superuser grants
SET search_path = ac_trap, public, pg_catalog;
SELECT public.idem_grant('regress_ac_a', 'monitor', 'ac_a');
SELECT public.idem_revoke('regress_ac_a', 'monitor', 'ac_a');
RESET search_path;
SELECT count(*) FROM idem_access WHERE role = 'regress_ac_a'::regrole;

-- a role with a name that wants quoting
CREATE ROLE "regress_ac ""q"", PUBLIC";
SELECT idem_grant('regress_ac "q", PUBLIC', 'application', 'ac_q');
SET ROLE "regress_ac ""q"", PUBLIC";
SELECT idem_once('ac_q/AC_LOCAL/1', '1');
RESET ROLE;
SELECT has_function_privilege('regress_ac_none', 'idem_once(idem_key, jsonb, timestamptz)', 'EXECUTE');

-- a tenant among many
SELECT count(idem_grant('regress_ac_star', 'application', 'ac_m' || n)) FROM generate_series(1, 50) n;
SELECT idem_revoke('regress_ac_star', 'operator', '*');
SET ROLE regress_ac_star;
SELECT count(*) FILTER (WHERE idem_may_see(('ac_m' || n || '/X/1')::idem_key)) FROM generate_series(-50, 100) n;
RESET ROLE;

-- what is left of roles that were dropped goes with the next grant
DROP OWNED BY regress_ac_star;
DROP ROLE regress_ac_star;
SELECT count(*) FROM idem_access WHERE NOT EXISTS (SELECT FROM pg_roles WHERE oid = role);
SELECT idem_grant('regress_ac_a', 'monitor', 'ac_a');
SELECT count(*) FROM idem_access WHERE NOT EXISTS (SELECT FROM pg_roles WHERE oid = role);

SET client_min_messages = warning;
DROP SCHEMA ac_trap CASCADE;
DROP FUNCTION ac_superuser, ac_defines, ac_hostile, ac_handler, ac_answer, ac_seen, ac_plan;
DROP TABLE ac_calls, ac_views;
DROP VIEW ac_may;
DELETE FROM idem_access WHERE role::text LIKE '%regress_ac%';
DROP OWNED BY regress_ac_a, regress_ac_b, regress_ac_op, regress_ac_mon, regress_ac_none, regress_ac_both,
    regress_ac_login, "regress_ac ""q"", PUBLIC";
DROP ROLE regress_ac_a, regress_ac_b, regress_ac_op, regress_ac_mon, regress_ac_none, regress_ac_both,
    regress_ac_login, "regress_ac ""q"", PUBLIC";
