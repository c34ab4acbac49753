/* inbox: each event once per consumer */

CREATE TYPE idem_consumption AS (
    outcome text,
    result jsonb,
    differs text[],
    result_digest idem_digest
);

COMMENT ON TYPE idem_consumption IS
    'what consuming an event answers: outcome is first, duplicate (with the result kept by the first, or its digest once it was dropped), conflict (with the pointers that differ, if the first payload was kept), or expired; source: doc/inbox.md';

REVOKE ALL ON TYPE idem_consumption FROM PUBLIC;

CREATE FUNCTION idem_consume(key idem_key, payload jsonb, occurred_at timestamptz DEFAULT NULL,
    transport jsonb DEFAULT NULL) RETURNS idem_consumption
    AS 'MODULE_PATHNAME' LANGUAGE c VOLATILE PARALLEL UNSAFE COST 10000;

COMMENT ON FUNCTION idem_consume(idem_key, jsonb, timestamptz, jsonb) IS
    'records that a consumer consumes an event (key tenant/consumer/event-id), committed with the caller''s writes or not at all; answers first, duplicate, conflict or expired; transport is kept as evidence; ID006, ID007; source: doc/inbox.md';

CREATE FUNCTION idem_consume_batch(keys idem_key[], payloads jsonb[],
    occurred_at timestamptz[] DEFAULT NULL, transport jsonb[] DEFAULT NULL,
    OUT "position" integer, OUT key idem_key, OUT payload jsonb, OUT outcome text, OUT result jsonb,
    OUT result_digest idem_digest)
    RETURNS SETOF record
    AS 'MODULE_PATHNAME' LANGUAGE c VOLATILE PARALLEL UNSAFE COST 10000 ROWS 100;

COMMENT ON FUNCTION idem_consume_batch(idem_key[], jsonb[], timestamptz[], jsonb[]) IS
    'consumes many events at once; one row each, in input order, position counting from 1; a key that comes twice is judged against its first; arrays of unequal length are 22023; ID006, ID007; source: doc/inbox.md';

CREATE FUNCTION idem_consume_result(key idem_key, result jsonb) RETURNS void
    AS 'MODULE_PATHNAME' LANGUAGE c VOLATILE PARALLEL UNSAFE COST 10000;

COMMENT ON FUNCTION idem_consume_result(idem_key, jsonb) IS
    'keeps a result with an event that this transaction consumed first, for its duplicates; repeated with the same one a success, with another ID004; ID003 in any other transaction, ID005; source: doc/inbox.md';

CREATE FUNCTION idem_unconsume(key idem_key) RETURNS void
    AS 'MODULE_PATHNAME' LANGUAGE c VOLATILE PARALLEL UNSAFE COST 10000;

COMMENT ON FUNCTION idem_unconsume(idem_key) IS
    'withdraws the record of an event that this transaction consumed first; ID003 in any other transaction, ID005; source: doc/inbox.md';

REVOKE ALL ON FUNCTION idem_consume(idem_key, jsonb, timestamptz, jsonb) FROM PUBLIC;
REVOKE ALL ON FUNCTION idem_consume_batch(idem_key[], jsonb[], timestamptz[], jsonb[]) FROM PUBLIC;
REVOKE ALL ON FUNCTION idem_consume_result(idem_key, jsonb) FROM PUBLIC;
REVOKE ALL ON FUNCTION idem_unconsume(idem_key) FROM PUBLIC;
