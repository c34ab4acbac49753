/* access: which roles may call what, and for whose keys */

CREATE TABLE idem_access (
    role regrole NOT NULL,
    kind text NOT NULL CHECK (kind IN ('application', 'operator', 'monitor')),
    tenant text NOT NULL,
    granted_at timestamptz NOT NULL,
    granted_by text NOT NULL,
    PRIMARY KEY (role, kind, tenant)
);

COMMENT ON TABLE idem_access IS 'what idem_grant gave: a role may call the functions of a kind for the keys of a tenant; written by idem_grant and idem_revoke';
COMMENT ON COLUMN idem_access.tenant IS 'the first part of keys; * stands for every tenant';

CREATE FUNCTION idem_access_changed() RETURNS trigger
    AS 'MODULE_PATHNAME' LANGUAGE c VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION idem_access_changed() IS
    'trigger that tells every session that bindings have changed';

CREATE TRIGGER idem_access_changed AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON idem_access
    FOR EACH STATEMENT EXECUTE FUNCTION idem_access_changed();

ALTER TABLE idem_access ENABLE ALWAYS TRIGGER idem_access_changed;

-- what is left of a role that was dropped would be a number that no other server knows
SELECT pg_catalog.pg_extension_config_dump('idem_access',
    'WHERE role::oid IN (SELECT oid FROM pg_catalog.pg_roles)');

REVOKE ALL ON idem_access FROM PUBLIC;
REVOKE ALL ON FUNCTION idem_access_changed() FROM PUBLIC;

CREATE FUNCTION idem_may_see(key idem_key) RETURNS boolean
    AS 'MODULE_PATHNAME' LANGUAGE c STABLE STRICT PARALLEL UNSAFE COST 10;

COMMENT ON FUNCTION idem_may_see(idem_key) IS
    'may the current role, and the session''s where it is bound to any tenant, see this tenant''s keys; what every view asks of each row; source: doc/access.md';

CREATE FUNCTION idem_may_see_all() RETURNS boolean
    AS 'MODULE_PATHNAME' LANGUAGE c STABLE STRICT PARALLEL UNSAFE COST 10;

COMMENT ON FUNCTION idem_may_see_all() IS
    'the same of what concerns every tenant; source: doc/access.md';

CREATE FUNCTION idem_grant(role name, kind text, tenant text) RETURNS void
    AS 'MODULE_PATHNAME' LANGUAGE c VOLATILE PARALLEL UNSAFE COST 10000;

COMMENT ON FUNCTION idem_grant(name, text, text) IS
    'lets a role call the functions of a kind (application, operator, monitor) for the keys of a tenant, or of all (*), and puts that on record; for superusers and the owner of the extension, 42501 otherwise; 22023, 22004, 42704; source: doc/access.md';

CREATE FUNCTION idem_revoke(role name, kind text, tenant text) RETURNS void
    AS 'MODULE_PATHNAME' LANGUAGE c VOLATILE PARALLEL UNSAFE COST 10000;

COMMENT ON FUNCTION idem_revoke(name, text, text) IS
    'takes one grant back, and the privileges with the last of its kind; 42704 if it was not granted; 42501, 22023, 22004; source: doc/access.md';

CREATE FUNCTION idem_grant_replay() RETURNS void
    AS 'MODULE_PATHNAME' LANGUAGE c VOLATILE PARALLEL UNSAFE COST 10000;

COMMENT ON FUNCTION idem_grant_replay() IS
    'gives again the privileges of all that is on record, for functions that an update made anew; 42501; source: doc/access.md';

REVOKE ALL ON FUNCTION idem_may_see(idem_key) FROM PUBLIC;
REVOKE ALL ON FUNCTION idem_may_see_all() FROM PUBLIC;
REVOKE ALL ON FUNCTION idem_grant(name, text, text) FROM PUBLIC;
REVOKE ALL ON FUNCTION idem_revoke(name, text, text) FROM PUBLIC;
REVOKE ALL ON FUNCTION idem_grant_replay() FROM PUBLIC;
