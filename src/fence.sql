/* fence: keeps replaced owners of any resource out */

CREATE TABLE idem_fence (
    key idem_key PRIMARY KEY,
    generation bigint NOT NULL
) WITH (fillfactor = 50);

COMMENT ON TABLE idem_fence IS 'the newest generation seen of each fenced resource';

SELECT pg_catalog.pg_extension_config_dump('idem_fence', '');

REVOKE ALL ON idem_fence FROM PUBLIC;

CREATE FUNCTION idem_fence(key idem_key, generation bigint) RETURNS void
    AS 'MODULE_PATHNAME' LANGUAGE c VOLATILE PARALLEL UNSAFE COST 10000;

COMMENT ON FUNCTION idem_fence(idem_key, bigint) IS
    'lets the caller''s transaction go on only if no newer generation of the resource was seen; ID002 otherwise; equal ones share a lock until their transactions end, a newer one waits for them and is remembered; source: doc/fence.md';

REVOKE ALL ON FUNCTION idem_fence(idem_key, bigint) FROM PUBLIC;
