/* once: local effects in one call */

CREATE FUNCTION idem_once(key idem_key, params jsonb, occurred_at timestamptz DEFAULT NULL)
    RETURNS boolean
    AS 'MODULE_PATHNAME' LANGUAGE c VOLATILE PARALLEL UNSAFE COST 10000;

COMMENT ON FUNCTION idem_once(idem_key, jsonb, timestamptz) IS
    'true exactly once, committed with the caller''s writes; false if the local action was settled before; ID001 if its parameters were others, ID003, ID006, ID007, ID009; source: doc/once.md';

CREATE FUNCTION idem_call(key idem_key, params jsonb, handler text,
    occurred_at timestamptz DEFAULT NULL) RETURNS jsonb
    AS 'MODULE_PATHNAME' LANGUAGE c VOLATILE PARALLEL UNSAFE COST 10000;

COMMENT ON FUNCTION idem_call(idem_key, jsonb, text, timestamptz) IS
    'runs handler(params jsonb) returns jsonb once, as the caller, and returns its stored result ever after; ID001 if the parameters were others, ID003 if the action was rejected or the handler reaches its own key, ID006, ID007, ID009; source: doc/once.md';

REVOKE ALL ON FUNCTION idem_once(idem_key, jsonb, timestamptz) FROM PUBLIC;
REVOKE ALL ON FUNCTION idem_call(idem_key, jsonb, text, timestamptz) FROM PUBLIC;
