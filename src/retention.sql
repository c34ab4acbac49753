/* retention: what is old, and how a key that was deleted is told from a new one */

CREATE TABLE idem_watermark (
    key idem_key PRIMARY KEY,
    until timestamptz NOT NULL
) WITH (fillfactor = 50);

COMMENT ON TABLE idem_watermark IS 'up to when records were purged, for each tenant and name; only ever raised; a key not on record that occurred no later is expired';
COMMENT ON COLUMN idem_watermark.key IS 'tenant/operation/a of actions, tenant/consumer/e of events';

SELECT pg_catalog.pg_extension_config_dump('idem_watermark', '');

REVOKE ALL ON idem_watermark FROM PUBLIC;

CREATE TABLE idem_purge_position (
    relation text NOT NULL,
    name text NOT NULL,
    block bigint NOT NULL,
    PRIMARY KEY (relation, name)
) WITH (fillfactor = 50);

COMMENT ON TABLE idem_purge_position IS 'where the next call of idem_purge() goes on; one purge at a time holds the row of a table without a name; no part of a dump';

INSERT INTO idem_purge_position VALUES ('idem_action', '', 0), ('idem_event', '', 0);

REVOKE ALL ON idem_purge_position FROM PUBLIC;

CREATE TYPE idem_purged AS (
    results_dropped bigint,
    actions_deleted bigint,
    events_deleted bigint,
    evidence_deleted bigint,
    is_done boolean
);

COMMENT ON TYPE idem_purged IS
    'what a call of idem_purge() did; is_done: it came to the end of the tables, so everything that was due when the first call after the last end began is gone, but what others held; source: doc/retention.md';

REVOKE ALL ON TYPE idem_purged FROM PUBLIC;

CREATE FUNCTION idem_purge(max_rows integer DEFAULT 10000, name text DEFAULT NULL)
    RETURNS idem_purged
    AS 'MODULE_PATHNAME' LANGUAGE c VOLATILE PARALLEL UNSAFE COST 10000;

COMMENT ON FUNCTION idem_purge(integer, text) IS
    'drops results and deletes records that are older than their contracts say, of one operation and consumer or of all; at most max_rows rows (1 to 1000000) and as many pages are looked at, going on where the last call stopped; raises the watermarks; skips what others hold; 22023, ID006; source: doc/retention.md';

REVOKE ALL ON FUNCTION idem_purge(integer, text) FROM PUBLIC;
