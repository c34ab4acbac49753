/* progress: how far a consumer has come in a partition of a log */

CREATE TABLE idem_progress (
    key idem_key PRIMARY KEY,
    generation bigint NOT NULL,
    epoch text NOT NULL,
    former_epochs text[] NOT NULL,
    "position" bigint,
    delivered bigint NOT NULL,
    lowest bigint NOT NULL
) WITH (fillfactor = 50);

COMMENT ON TABLE idem_progress IS 'one row for each consumer and partition of a log; written by the functions of idem_action only';
COMMENT ON COLUMN idem_progress.key IS 'tenant/consumer/topic/partition';
COMMENT ON COLUMN idem_progress.generation IS 'of the newest owner; every call but the asking one must present it';
COMMENT ON COLUMN idem_progress.epoch IS 'the life of the topic in which the offsets count';
COMMENT ON COLUMN idem_progress.former_epochs IS 'the last 16 that are over, the oldest first';
COMMENT ON COLUMN idem_progress."position" IS 'the owner was delivered what is below; what of it is not open is done; null: nothing is known';
COMMENT ON COLUMN idem_progress.delivered IS 'the owner or one before him was delivered what is below';
COMMENT ON COLUMN idem_progress.lowest IS 'no offset below is open: where looking begins';

CREATE TABLE idem_progress_offset (
    key idem_key,
    record_offset bigint,
    fetched_at timestamptz NOT NULL,
    PRIMARY KEY (key, record_offset)
);

COMMENT ON TABLE idem_progress_offset IS 'the offsets that were delivered and are not done; being done deletes the row';
COMMENT ON COLUMN idem_progress_offset.fetched_at IS 'when it was delivered first';

SELECT pg_catalog.pg_extension_config_dump('idem_progress', '');
SELECT pg_catalog.pg_extension_config_dump('idem_progress_offset', '');

CREATE VIEW idem_progress_open WITH (security_barrier) AS
    SELECT o.key, p.generation, o.record_offset, o.fetched_at
    FROM idem_progress_offset o JOIN idem_progress p ON p.key = o.key
    WHERE o.record_offset < p."position" AND idem_may_see(o.key)
    OFFSET 0;    /* as in idem_in_flight */

COMMENT ON VIEW idem_progress_open IS
    'what the owner of each partition was delivered and has not done, with its generation; source: doc/progress.md';

CREATE TYPE idem_assignment AS (
    generation bigint,
    next_offset bigint
);

COMMENT ON TYPE idem_assignment IS
    'what being assigned a partition answers: the generation to present in every call, and the offset to start from, null where nothing is known of the partition in this epoch; source: doc/progress.md';

CREATE FUNCTION idem_progress_assign(key idem_key, epoch text DEFAULT '') RETURNS idem_assignment
    AS 'MODULE_PATHNAME' LANGUAGE c VOLATILE PARALLEL UNSAFE COST 10000;

COMMENT ON FUNCTION idem_progress_assign(idem_key, text) IS
    'makes the caller the owner of a partition (key tenant/consumer/topic/partition), under a generation higher than any before; waits for the transactions of the owner before; another epoch starts afresh, one that is over, or left out where one was passed, is ID003; ID006; source: doc/progress.md';

CREATE FUNCTION idem_progress_fetched(key idem_key, generation bigint, offsets bigint[])
    RETURNS bigint[]
    AS 'MODULE_PATHNAME' LANGUAGE c VOLATILE PARALLEL UNSAFE COST 10000;

COMMENT ON FUNCTION idem_progress_fetched(idem_key, bigint, bigint[]) IS
    'records the offsets of all records that were delivered; answers those still to be done, rising; 54000 for more than 10000 in a call or open; ID002, ID005, ID006; source: doc/progress.md';

CREATE FUNCTION idem_progress_done(key idem_key, generation bigint, offsets bigint[])
    RETURNS void
    AS 'MODULE_PATHNAME' LANGUAGE c VOLATILE PARALLEL UNSAFE COST 10000;

COMMENT ON FUNCTION idem_progress_done(idem_key, bigint, bigint[]) IS
    'records in the caller''s transaction that its writes are all that these offsets cause; ID003 where one is done already or was not fetched; ID002, ID005, ID006, ID010; source: doc/progress.md';

CREATE FUNCTION idem_progress_advance(key idem_key, generation bigint, next_offset bigint)
    RETURNS void
    AS 'MODULE_PATHNAME' LANGUAGE c VOLATILE PARALLEL UNSAFE COST 10000;

COMMENT ON FUNCTION idem_progress_advance(idem_key, bigint, bigint) IS
    'the same for everything below an offset, for who works alone on a partition; ID003 where that is done already; ID002, ID005, ID006, ID010; source: doc/progress.md';

CREATE FUNCTION idem_progress_committable(key idem_key) RETURNS bigint
    AS 'MODULE_PATHNAME' LANGUAGE c VOLATILE PARALLEL UNSAFE COST 100;

COMMENT ON FUNCTION idem_progress_committable(idem_key) IS
    'the offset to commit to the broker: everything delivered below it is done; null where nothing is known; works in read-only transactions and on a standby; ID005, ID006; source: doc/progress.md';

REVOKE ALL ON idem_progress, idem_progress_offset, idem_progress_open FROM PUBLIC;
REVOKE ALL ON TYPE idem_assignment FROM PUBLIC;
REVOKE ALL ON FUNCTION idem_progress_assign(idem_key, text) FROM PUBLIC;
REVOKE ALL ON FUNCTION idem_progress_fetched(idem_key, bigint, bigint[]) FROM PUBLIC;
REVOKE ALL ON FUNCTION idem_progress_done(idem_key, bigint, bigint[]) FROM PUBLIC;
REVOKE ALL ON FUNCTION idem_progress_advance(idem_key, bigint, bigint) FROM PUBLIC;
REVOKE ALL ON FUNCTION idem_progress_committable(idem_key) FROM PUBLIC;
