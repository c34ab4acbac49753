-- canonical.sql: one text for equal parameters

CREATE FUNCTION idem_canonical(params jsonb) RETURNS text
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE
    AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION idem_canonical(jsonb) IS
    'canonical text of a document: RFC 8785 with exact decimals; the digest is over these characters in UTF-8; source: doc/digest.md';

-- Nothing is granted to PUBLIC.

REVOKE ALL ON FUNCTION idem_canonical(jsonb) FROM PUBLIC;
