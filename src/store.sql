/* store: the permanent record of every action, and what is in flight of it */

CREATE TABLE idem_action (
    key idem_key PRIMARY KEY,
    state text NOT NULL,
    last_call text NOT NULL,
    generation bigint NOT NULL,
    revision integer NOT NULL,
    attempt integer NOT NULL,
    digest idem_digest,
    occurred_at timestamptz,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    params jsonb,
    result jsonb,
    error jsonb,
    channel_ref text,
    result_digest idem_digest
) WITH (fillfactor = 70);

COMMENT ON TABLE idem_action IS 'one row an action, kept after it is terminal; written by the functions of idem_action only';
COMMENT ON COLUMN idem_action.last_call IS 'the call that brought the action into its state';
COMMENT ON COLUMN idem_action.generation IS 'the fencing token: the newest generation, 1 or more, only ever raised';
COMMENT ON COLUMN idem_action.revision IS 'the revision of the contract under which the parameters were digested';
COMMENT ON COLUMN idem_action.attempt IS 'grants so far';
COMMENT ON COLUMN idem_action.digest IS 'of the parameters; null for an action cancelled before anybody asked for it, which equals any';
COMMENT ON COLUMN idem_action.result_digest IS 'of the result or error that was dropped after the contract''s result_retention';

CREATE TABLE idem_lease (
    key idem_key PRIMARY KEY,
    owner text,
    granted text,
    granted_at timestamptz,
    lease_until timestamptz,
    due_at timestamptz,
    first_granted_at timestamptz,
    first_revision integer,
    call_until timestamptz,
    is_ambiguous boolean NOT NULL
) WITH (fillfactor = 50);

CREATE INDEX idem_lease_due ON idem_lease
    (idem_key_operation(key) COLLATE "C", lease_until, due_at);

COMMENT ON TABLE idem_lease IS 'one row an action of an external operation that is not terminal: who owns it, when it is due, what its attempts did';
COMMENT ON INDEX idem_lease_due IS 'what is due of an operation, oldest first: lapsed leases, and waits that are over';
COMMENT ON COLUMN idem_lease.granted IS 'kind of the newest grant: execute, repeat or verify';
COMMENT ON COLUMN idem_lease.call_until IS 'until when a call of the channel could last have started';
COMMENT ON COLUMN idem_lease.is_ambiguous IS 'whether an attempt before the newest grant may have executed the action';

CREATE FUNCTION idem_keep_in_flight() RETURNS trigger
    AS 'MODULE_PATHNAME' LANGUAGE c VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION idem_keep_in_flight() IS
    'trigger that refuses with 55000 to delete an action in flight: its key would be granted anew';

CREATE TRIGGER idem_in_flight BEFORE DELETE ON idem_action FOR EACH ROW
    WHEN (OLD.state NOT IN ('succeeded', 'rejected')) EXECUTE FUNCTION idem_keep_in_flight();

REVOKE ALL ON FUNCTION idem_keep_in_flight() FROM PUBLIC;

SELECT pg_catalog.pg_extension_config_dump('idem_action', '');
SELECT pg_catalog.pg_extension_config_dump('idem_lease', '');

REVOKE ALL ON idem_action, idem_lease FROM PUBLIC;
