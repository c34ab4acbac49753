/* era: which life of the data this is; one row, written by the first grant and dumped */

CREATE TABLE idem_era (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    era integer NOT NULL,
    system_identifier bigint NOT NULL,
    timeline bigint NOT NULL,
    database_oid oid NOT NULL,
    table_oid oid NOT NULL
);

COMMENT ON TABLE idem_era IS 'the upper half of generations; raised when the server, its timeline, the database or this very table is not the recorded one, so that grants of lost time are stale';

SELECT pg_catalog.pg_extension_config_dump('idem_era', '');

REVOKE ALL ON idem_era FROM PUBLIC;
