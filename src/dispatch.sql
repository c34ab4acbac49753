/* dispatch: handing out what is due */

CREATE FUNCTION idem_claim_next(operation text, max_rows integer DEFAULT 1,
    owner text DEFAULT NULL, lease interval DEFAULT NULL, tenant text DEFAULT NULL,
    OUT key idem_key, OUT outcome text, OUT generation bigint, OUT result jsonb, OUT error jsonb,
    OUT retry_at timestamptz, OUT attempt integer, OUT state text, OUT lease_until timestamptz,
    OUT absence_conclusive_at timestamptz, OUT channel text, OUT channel_ref text,
    OUT params jsonb, OUT differs text[], OUT result_digest idem_digest)
    RETURNS SETOF record
    AS 'MODULE_PATHNAME' LANGUAGE c VOLATILE PARALLEL UNSAFE COST 10000 ROWS 10;

COMMENT ON FUNCTION idem_claim_next(text, integer, text, interval, text) IS
    'claims up to max_rows (1 to 10000) actions of an external operation that are due, oldest first, passing over those that others hold; one row a grant: the key, then the verdict with the recorded params; what the contract allows nothing for goes to review; of the tenant, if one is given, else of all that the caller is bound to; 42501, ID003, ID006, 22023; source: doc/dispatch.md';

REVOKE ALL ON FUNCTION idem_claim_next(text, integer, text, interval, text) FROM PUBLIC;
