/* action: asking to act */

CREATE FUNCTION idem_submit(key idem_key, params jsonb, occurred_at timestamptz DEFAULT NULL,
    transport jsonb DEFAULT NULL)
    RETURNS idem_verdict
    AS 'MODULE_PATHNAME' LANGUAGE c VOLATILE PARALLEL UNSAFE COST 10000;

COMMENT ON FUNCTION idem_submit(idem_key, jsonb, timestamptz, jsonb) IS
    'puts an external action on record for a worker to claim; answers accepted, succeeded, rejected, conflict or expired; transport, the identity of the message, is kept as evidence; ID006, ID007; source: doc/action.md';

CREATE FUNCTION idem_claim(key idem_key, params jsonb, occurred_at timestamptz DEFAULT NULL,
    owner text DEFAULT NULL, lease interval DEFAULT NULL, nowait boolean DEFAULT false,
    transport jsonb DEFAULT NULL)
    RETURNS idem_verdict
    AS 'MODULE_PATHNAME' LANGUAGE c VOLATILE PARALLEL UNSAFE COST 10000;

COMMENT ON FUNCTION idem_claim(idem_key, jsonb, timestamptz, text, interval, boolean, jsonb) IS
    'asks to act; grants execute, repeat or verify with a generation, or answers succeeded, rejected, busy, review, conflict or expired; owner is application_name:pid and lease the contract''s unless given (100 ms to 24 h); transport, the identity of the message, is kept as evidence of a grant; ID003 for a key this transaction holds, ID006, ID007; source: doc/action.md';

CREATE FUNCTION idem_reclaim(key idem_key, owner text DEFAULT NULL, lease interval DEFAULT NULL)
    RETURNS idem_verdict
    AS 'MODULE_PATHNAME' LANGUAGE c VOLATILE PARALLEL UNSAFE COST 10000;

COMMENT ON FUNCTION idem_reclaim(idem_key, text, interval) IS
    'asks to act on an external action that is on record, by its key alone; the verdict of a grant carries the recorded params; ID005 for an unknown key; source: doc/action.md';

CREATE FUNCTION idem_cancel(key idem_key, detail jsonb DEFAULT NULL,
    occurred_at timestamptz DEFAULT NULL) RETURNS boolean
    AS 'MODULE_PATHNAME' LANGUAGE c VOLATILE PARALLEL UNSAFE COST 10000;

COMMENT ON FUNCTION idem_cancel(idem_key, jsonb, timestamptz) IS
    'rejects an action that nobody was granted yet, also one not on record; true: cancelled now or before, false: too late, or too old to tell; ID007; source: doc/action.md';

CREATE FUNCTION idem_status(key idem_key,
    OUT key idem_key, OUT state text, OUT generation bigint, OUT attempt integer, OUT owner text,
    OUT lease_until timestamptz, OUT retry_at timestamptz, OUT result jsonb, OUT error jsonb,
    OUT channel_ref text, OUT digest idem_digest, OUT created_at timestamptz,
    OUT updated_at timestamptz, OUT result_digest idem_digest)
    RETURNS SETOF record
    AS 'MODULE_PATHNAME' LANGUAGE c VOLATILE PARALLEL UNSAFE COST 100 ROWS 1;

COMMENT ON FUNCTION idem_status(idem_key) IS
    'what is on record of an action; no row for an unknown key; works in read-only transactions and on a standby; source: doc/action.md';

REVOKE ALL ON FUNCTION idem_submit(idem_key, jsonb, timestamptz, jsonb) FROM PUBLIC;
REVOKE ALL ON FUNCTION idem_claim(idem_key, jsonb, timestamptz, text, interval, boolean, jsonb) FROM PUBLIC;
REVOKE ALL ON FUNCTION idem_reclaim(idem_key, text, interval) FROM PUBLIC;
REVOKE ALL ON FUNCTION idem_cancel(idem_key, jsonb, timestamptz) FROM PUBLIC;
REVOKE ALL ON FUNCTION idem_status(idem_key) FROM PUBLIC;
