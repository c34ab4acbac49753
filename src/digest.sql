-- digest.sql: the type idem_digest, 33 bytes for what counts of the parameters

CREATE TYPE idem_digest;

CREATE FUNCTION idem_digest_in(cstring) RETURNS idem_digest
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE
    AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION idem_digest_in(cstring) IS 'input function of idem_digest; raises 22P02';

CREATE FUNCTION idem_digest_out(idem_digest) RETURNS cstring
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE
    AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION idem_digest_out(idem_digest) IS 'output function of idem_digest';

CREATE FUNCTION idem_digest_recv(internal) RETURNS idem_digest
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE
    AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION idem_digest_recv(internal) IS
    'binary input function of idem_digest; raises 22P03';

CREATE FUNCTION idem_digest_send(idem_digest) RETURNS bytea
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE
    AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION idem_digest_send(idem_digest) IS 'binary output function of idem_digest';

CREATE TYPE idem_digest (
    INPUT = idem_digest_in,
    OUTPUT = idem_digest_out,
    RECEIVE = idem_digest_recv,
    SEND = idem_digest_send,
    INTERNALLENGTH = 33,
    ALIGNMENT = char,
    STORAGE = plain,
    CATEGORY = 'U',
    COLLATABLE = false
);
COMMENT ON TYPE idem_digest IS
    'digest of parameters: a version byte and the SHA-256 of their canonical text; written v1: and 64 hexadecimal digits';

-- what makes one, and what tells two documents apart

CREATE FUNCTION idem_digest(params jsonb) RETURNS idem_digest
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE
    AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION idem_digest(jsonb) IS
    'digest of a whole document: SHA-256 of its canonical text; source: doc/digest.md';

CREATE FUNCTION idem_digest(
        params jsonb,
        digest_include text[],
        digest_exclude text[] DEFAULT NULL) RETURNS idem_digest
    LANGUAGE c IMMUTABLE PARALLEL SAFE
    AS 'MODULE_PATHNAME', 'idem_digest_under_rule';
COMMENT ON FUNCTION idem_digest(jsonb, text[], text[]) IS
    'digest of what counts of the parameters, by JSON Pointers; raises 22023 for what is no rule, ID007 where an included pointer is absent, 22004; source: doc/digest.md';

CREATE FUNCTION idem_differences(
        stored jsonb,
        given jsonb,
        digest_include text[] DEFAULT NULL,
        digest_exclude text[] DEFAULT NULL) RETURNS text[]
    LANGUAGE c IMMUTABLE PARALLEL SAFE
    AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION idem_differences(jsonb, jsonb, text[], text[]) IS
    'JSON Pointers, at most 16 and never values, at which two documents differ in what counts; raises 22023 and 22004; source: doc/digest.md';

-- Comparison.  Leakproof: none of these functions can say anything about a
-- digest but its result, and a security barrier view must be able to use an
-- index.

CREATE FUNCTION idem_digest_eq(idem_digest, idem_digest) RETURNS boolean
    LANGUAGE c IMMUTABLE STRICT LEAKPROOF PARALLEL SAFE
    AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION idem_digest_eq(idem_digest, idem_digest) IS 'implementation of = operator';

CREATE FUNCTION idem_digest_ne(idem_digest, idem_digest) RETURNS boolean
    LANGUAGE c IMMUTABLE STRICT LEAKPROOF PARALLEL SAFE
    AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION idem_digest_ne(idem_digest, idem_digest) IS 'implementation of <> operator';

CREATE FUNCTION idem_digest_lt(idem_digest, idem_digest) RETURNS boolean
    LANGUAGE c IMMUTABLE STRICT LEAKPROOF PARALLEL SAFE
    AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION idem_digest_lt(idem_digest, idem_digest) IS 'implementation of < operator';

CREATE FUNCTION idem_digest_le(idem_digest, idem_digest) RETURNS boolean
    LANGUAGE c IMMUTABLE STRICT LEAKPROOF PARALLEL SAFE
    AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION idem_digest_le(idem_digest, idem_digest) IS 'implementation of <= operator';

CREATE FUNCTION idem_digest_gt(idem_digest, idem_digest) RETURNS boolean
    LANGUAGE c IMMUTABLE STRICT LEAKPROOF PARALLEL SAFE
    AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION idem_digest_gt(idem_digest, idem_digest) IS 'implementation of > operator';

CREATE FUNCTION idem_digest_ge(idem_digest, idem_digest) RETURNS boolean
    LANGUAGE c IMMUTABLE STRICT LEAKPROOF PARALLEL SAFE
    AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION idem_digest_ge(idem_digest, idem_digest) IS 'implementation of >= operator';

CREATE FUNCTION idem_digest_cmp(idem_digest, idem_digest) RETURNS integer
    LANGUAGE c IMMUTABLE STRICT LEAKPROOF PARALLEL SAFE
    AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION idem_digest_cmp(idem_digest, idem_digest) IS
    'less than, equal to or greater than zero, as the first digest sorts before, with or after the second';

CREATE FUNCTION idem_digest_sortsupport(internal) RETURNS void
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE
    AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION idem_digest_sortsupport(internal) IS 'sort support of idem_digest';

CREATE FUNCTION idem_digest_hash(idem_digest) RETURNS integer
    LANGUAGE c IMMUTABLE STRICT LEAKPROOF PARALLEL SAFE
    AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION idem_digest_hash(idem_digest) IS 'hash of the bytes of a digest';

CREATE FUNCTION idem_digest_hash_extended(idem_digest, bigint) RETURNS bigint
    LANGUAGE c IMMUTABLE STRICT LEAKPROOF PARALLEL SAFE
    AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION idem_digest_hash_extended(idem_digest, bigint) IS
    'hash of the bytes of a digest, with a seed';

CREATE OPERATOR = (
    FUNCTION = idem_digest_eq, LEFTARG = idem_digest, RIGHTARG = idem_digest,
    COMMUTATOR = =, NEGATOR = <>,
    RESTRICT = eqsel, JOIN = eqjoinsel, HASHES, MERGES
);
COMMENT ON OPERATOR = (idem_digest, idem_digest) IS 'equal';

CREATE OPERATOR <> (
    FUNCTION = idem_digest_ne, LEFTARG = idem_digest, RIGHTARG = idem_digest,
    COMMUTATOR = <>, NEGATOR = =,
    RESTRICT = neqsel, JOIN = neqjoinsel
);
COMMENT ON OPERATOR <> (idem_digest, idem_digest) IS 'not equal';

CREATE OPERATOR < (
    FUNCTION = idem_digest_lt, LEFTARG = idem_digest, RIGHTARG = idem_digest,
    COMMUTATOR = >, NEGATOR = >=,
    RESTRICT = scalarltsel, JOIN = scalarltjoinsel
);
COMMENT ON OPERATOR < (idem_digest, idem_digest) IS 'less than, bytewise';

CREATE OPERATOR <= (
    FUNCTION = idem_digest_le, LEFTARG = idem_digest, RIGHTARG = idem_digest,
    COMMUTATOR = >=, NEGATOR = >,
    RESTRICT = scalarlesel, JOIN = scalarlejoinsel
);
COMMENT ON OPERATOR <= (idem_digest, idem_digest) IS 'less than or equal, bytewise';

CREATE OPERATOR > (
    FUNCTION = idem_digest_gt, LEFTARG = idem_digest, RIGHTARG = idem_digest,
    COMMUTATOR = <, NEGATOR = <=,
    RESTRICT = scalargtsel, JOIN = scalargtjoinsel
);
COMMENT ON OPERATOR > (idem_digest, idem_digest) IS 'greater than, bytewise';

CREATE OPERATOR >= (
    FUNCTION = idem_digest_ge, LEFTARG = idem_digest, RIGHTARG = idem_digest,
    COMMUTATOR = <=, NEGATOR = <,
    RESTRICT = scalargesel, JOIN = scalargejoinsel
);
COMMENT ON OPERATOR >= (idem_digest, idem_digest) IS 'greater than or equal, bytewise';

CREATE OPERATOR CLASS idem_digest_ops DEFAULT FOR TYPE idem_digest USING btree AS
    OPERATOR 1 <,
    OPERATOR 2 <=,
    OPERATOR 3 =,
    OPERATOR 4 >=,
    OPERATOR 5 >,
    FUNCTION 1 idem_digest_cmp(idem_digest, idem_digest),
    FUNCTION 2 idem_digest_sortsupport(internal),
    FUNCTION 4 btequalimage(oid);
COMMENT ON OPERATOR CLASS idem_digest_ops USING btree IS 'bytewise order of digests; deduplicates';
COMMENT ON OPERATOR FAMILY idem_digest_ops USING btree IS 'bytewise order of digests';

CREATE OPERATOR CLASS idem_digest_ops DEFAULT FOR TYPE idem_digest USING hash AS
    OPERATOR 1 =,
    FUNCTION 1 idem_digest_hash(idem_digest),
    FUNCTION 2 idem_digest_hash_extended(idem_digest, bigint);
COMMENT ON OPERATOR CLASS idem_digest_ops USING hash IS 'hash of digests; also for hash partitioning';
COMMENT ON OPERATOR FAMILY idem_digest_ops USING hash IS 'hash of digests';

-- Nothing is granted to PUBLIC.

REVOKE ALL ON TYPE idem_digest FROM PUBLIC;

REVOKE ALL ON FUNCTION
    idem_digest_in(cstring),
    idem_digest_out(idem_digest),
    idem_digest_recv(internal),
    idem_digest_send(idem_digest),
    idem_digest(jsonb),
    idem_digest(jsonb, text[], text[]),
    idem_differences(jsonb, jsonb, text[], text[]),
    idem_digest_eq(idem_digest, idem_digest),
    idem_digest_ne(idem_digest, idem_digest),
    idem_digest_lt(idem_digest, idem_digest),
    idem_digest_le(idem_digest, idem_digest),
    idem_digest_gt(idem_digest, idem_digest),
    idem_digest_ge(idem_digest, idem_digest),
    idem_digest_cmp(idem_digest, idem_digest),
    idem_digest_sortsupport(internal),
    idem_digest_hash(idem_digest),
    idem_digest_hash_extended(idem_digest, bigint)
FROM PUBLIC;
