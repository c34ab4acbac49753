/* contract: what an operation promises, one row a revision; rows are never changed */

CREATE TABLE idem_contract (
    operation text NOT NULL,
    revision integer NOT NULL,
    effect text NOT NULL,
    channel text NOT NULL,
    lease interval NOT NULL,
    digest_include text[],
    digest_exclude text[],
    channel_idempotent boolean NOT NULL,
    channel_key_ttl interval,
    channel_queryable boolean NOT NULL,
    absence_visible_after interval,
    max_attempts integer NOT NULL,
    backoff_base interval NOT NULL,
    backoff_max interval NOT NULL,
    keep_params boolean NOT NULL,
    retention interval,
    result_retention interval,
    defined_at timestamptz NOT NULL,
    defined_by text NOT NULL,
    PRIMARY KEY (operation, revision)
);

COMMENT ON TABLE idem_contract IS 'what each operation promises; the highest revision is in force, older ones judge the actions recorded under them';
COMMENT ON COLUMN idem_contract.retention IS 'how long identity is kept; null: for ever; where it is not, occurred_at is required and compared';
COMMENT ON COLUMN idem_contract.result_retention IS 'how long results and parameters are kept; null: as long as identity';

SELECT pg_catalog.pg_extension_config_dump('idem_contract', '');

REVOKE ALL ON idem_contract FROM PUBLIC;

CREATE FUNCTION idem_define_operation(
    operation text,
    effect text DEFAULT 'local',
    channel text DEFAULT NULL,
    lease interval DEFAULT '30 seconds',
    digest_include text[] DEFAULT NULL,
    digest_exclude text[] DEFAULT NULL,
    channel_idempotent boolean DEFAULT false,
    channel_key_ttl interval DEFAULT NULL,
    channel_queryable boolean DEFAULT false,
    absence_visible_after interval DEFAULT NULL,
    max_attempts integer DEFAULT 10,
    backoff_base interval DEFAULT '1 second',
    backoff_max interval DEFAULT '5 minutes',
    keep_params boolean DEFAULT true,
    retention interval DEFAULT NULL,
    result_retention interval DEFAULT NULL
) RETURNS integer
    AS 'MODULE_PATHNAME' LANGUAGE c VOLATILE PARALLEL UNSAFE COST 10000;

COMMENT ON FUNCTION idem_define_operation(text, text, text, interval, text[], text[], boolean, interval, boolean, interval, integer, interval, interval, boolean, interval, interval) IS
    'declares what an operation promises, whole: what is left out takes its default; returns the revision in force, a new one only if something changed; 22023 for a field that does not fit, ID003 to change effect while actions exist; source: doc/contract.md';

CREATE FUNCTION idem_drop_operation(operation text) RETURNS void
    AS 'MODULE_PATHNAME' LANGUAGE c VOLATILE PARALLEL UNSAFE COST 10000;

COMMENT ON FUNCTION idem_drop_operation(text) IS
    'forgets an operation and its contract; ID006 if it is not defined, 2BP01 while actions of it, or the watermark of purged ones, are on record; source: doc/contract.md';

REVOKE ALL ON FUNCTION idem_define_operation(text, text, text, interval, text[], text[], boolean, interval, boolean, interval, integer, interval, interval, boolean, interval, interval) FROM PUBLIC;
REVOKE ALL ON FUNCTION idem_drop_operation(text) FROM PUBLIC;
