/* consumer: what counts of an event, for each of those who consume it; one row a revision */

CREATE TABLE idem_consumer (
    consumer text NOT NULL,
    revision integer NOT NULL,
    digest_include text[],
    digest_exclude text[],
    keep_params boolean NOT NULL,
    rebuild boolean NOT NULL,
    retention interval,
    result_retention interval,
    defined_at timestamptz NOT NULL,
    defined_by text NOT NULL,
    PRIMARY KEY (consumer, revision)
);

COMMENT ON TABLE idem_consumer IS 'the contract of each consumer; the highest revision is in force, older ones judge the events recorded under them';
COMMENT ON COLUMN idem_consumer.retention IS 'how long identity is kept; null: for ever; where it is not, occurred_at is required and compared';
COMMENT ON COLUMN idem_consumer.result_retention IS 'how long results and payloads are kept; null: as long as identity';
COMMENT ON COLUMN idem_consumer.rebuild IS 'a transaction that consumes under it can start no side effect';

SELECT pg_catalog.pg_extension_config_dump('idem_consumer', '');

REVOKE ALL ON idem_consumer FROM PUBLIC;

CREATE FUNCTION idem_define_consumer(
    consumer text,
    digest_include text[] DEFAULT NULL,
    digest_exclude text[] DEFAULT NULL,
    keep_params boolean DEFAULT true,
    rebuild boolean DEFAULT false,
    retention interval DEFAULT NULL,
    result_retention interval DEFAULT NULL
) RETURNS integer
    AS 'MODULE_PATHNAME' LANGUAGE c VOLATILE PARALLEL UNSAFE COST 10000;

COMMENT ON FUNCTION idem_define_consumer(text, text[], text[], boolean, boolean, interval, interval) IS
    'declares what counts of an event for a consumer, whole: what is left out takes its default; returns the revision in force, a new one only if something changed; 22023 for a field that does not fit; source: doc/inbox.md';

REVOKE ALL ON FUNCTION idem_define_consumer(text, text[], text[], boolean, boolean, interval, interval) FROM PUBLIC;
