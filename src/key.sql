-- key.sql: the type idem_key, "tenant/operation/id"

CREATE TYPE idem_key;

CREATE FUNCTION idem_key_in(cstring) RETURNS idem_key
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE
    AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION idem_key_in(cstring) IS 'input function of idem_key; raises 22P02';

CREATE FUNCTION idem_key_out(idem_key) RETURNS cstring
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE
    AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION idem_key_out(idem_key) IS 'output function of idem_key';

CREATE FUNCTION idem_key_recv(internal) RETURNS idem_key
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE
    AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION idem_key_recv(internal) IS 'binary input function of idem_key; raises 22P02';

CREATE FUNCTION idem_key_send(idem_key) RETURNS bytea
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE
    AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION idem_key_send(idem_key) IS 'binary output function of idem_key';

CREATE TYPE idem_key (
    INPUT = idem_key_in,
    OUTPUT = idem_key_out,
    RECEIVE = idem_key_recv,
    SEND = idem_key_send,
    INTERNALLENGTH = VARIABLE,
    ALIGNMENT = int4,
    STORAGE = main,
    CATEGORY = 'U',
    COLLATABLE = false
);
COMMENT ON TYPE idem_key IS
    'identity of an action, "tenant/operation/id", or of an event, "tenant/consumer/id"; '
    'at most 512 bytes, compared bytewise';

-- constructor and accessors

CREATE FUNCTION idem_key(tenant text, operation text, id text) RETURNS idem_key
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE
    AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION idem_key(text, text, text) IS
    'the key of these three parts; raises 22P02 where one is not allowed, '
    'or where tenant or operation holds a slash';

CREATE FUNCTION idem_key_tenant(key idem_key) RETURNS text
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE
    AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION idem_key_tenant(idem_key) IS 'the part of the key before its first slash';

CREATE FUNCTION idem_key_operation(key idem_key) RETURNS text
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE
    AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION idem_key_operation(idem_key) IS
    'the part of the key between its first and its second slash';

CREATE FUNCTION idem_key_id(key idem_key) RETURNS text
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE
    AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION idem_key_id(idem_key) IS
    'the part of the key behind its second slash; it may hold slashes itself';

-- Casts.  Those to idem_key are implicit, so that a parameter bound as text or
-- varchar needs no cast.  The one to text is not: were both directions implicit,
-- "key = text" could mean either comparison.

CREATE FUNCTION idem_key(text) RETURNS idem_key
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE
    AS 'MODULE_PATHNAME', 'idem_key_from_text';
COMMENT ON FUNCTION idem_key(text) IS 'the text as a key; raises 22P02 where it is none';

CREATE CAST (text AS idem_key) WITH FUNCTION idem_key(text) AS IMPLICIT;
COMMENT ON CAST (text AS idem_key) IS
    'lets a parameter bound as text be a key; raises 22P02 where it is none';

CREATE CAST (varchar AS idem_key) WITH FUNCTION idem_key(text) AS IMPLICIT;
COMMENT ON CAST (varchar AS idem_key) IS
    'lets a parameter bound as varchar be a key; raises 22P02 where it is none';

-- Not WITHOUT FUNCTION, although the bytes are the same: the planner of
-- PostgreSQL 18 looks through such a cast, finds the index on the key for a
-- LIKE, and fails over the collation that a key does not have.
CREATE CAST (idem_key AS text) WITH INOUT AS ASSIGNMENT;
COMMENT ON CAST (idem_key AS text) IS 'the key as it is written';

-- Comparison.  Leakproof, as that of text is: none of these functions can say
-- anything about a key but its result, and a security barrier view must be able
-- to use an index.

CREATE FUNCTION idem_key_eq(idem_key, idem_key) RETURNS boolean
    LANGUAGE c IMMUTABLE STRICT LEAKPROOF PARALLEL SAFE
    AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION idem_key_eq(idem_key, idem_key) IS 'implementation of = operator';

CREATE FUNCTION idem_key_ne(idem_key, idem_key) RETURNS boolean
    LANGUAGE c IMMUTABLE STRICT LEAKPROOF PARALLEL SAFE
    AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION idem_key_ne(idem_key, idem_key) IS 'implementation of <> operator';

CREATE FUNCTION idem_key_lt(idem_key, idem_key) RETURNS boolean
    LANGUAGE c IMMUTABLE STRICT LEAKPROOF PARALLEL SAFE
    AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION idem_key_lt(idem_key, idem_key) IS 'implementation of < operator';

CREATE FUNCTION idem_key_le(idem_key, idem_key) RETURNS boolean
    LANGUAGE c IMMUTABLE STRICT LEAKPROOF PARALLEL SAFE
    AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION idem_key_le(idem_key, idem_key) IS 'implementation of <= operator';

CREATE FUNCTION idem_key_gt(idem_key, idem_key) RETURNS boolean
    LANGUAGE c IMMUTABLE STRICT LEAKPROOF PARALLEL SAFE
    AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION idem_key_gt(idem_key, idem_key) IS 'implementation of > operator';

CREATE FUNCTION idem_key_ge(idem_key, idem_key) RETURNS boolean
    LANGUAGE c IMMUTABLE STRICT LEAKPROOF PARALLEL SAFE
    AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION idem_key_ge(idem_key, idem_key) IS 'implementation of >= operator';

CREATE FUNCTION idem_key_cmp(idem_key, idem_key) RETURNS integer
    LANGUAGE c IMMUTABLE STRICT LEAKPROOF PARALLEL SAFE
    AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION idem_key_cmp(idem_key, idem_key) IS
    'less than, equal to or greater than zero, '
    'as the first key sorts before, with or after the second';

CREATE FUNCTION idem_key_sortsupport(internal) RETURNS void
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE
    AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION idem_key_sortsupport(internal) IS 'sort support of idem_key';

CREATE FUNCTION idem_key_equalimage(oid) RETURNS boolean
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE
    AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION idem_key_equalimage(oid) IS 'B-tree deduplication support of idem_key';

CREATE FUNCTION idem_key_hash(idem_key) RETURNS integer
    LANGUAGE c IMMUTABLE STRICT LEAKPROOF PARALLEL SAFE
    AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION idem_key_hash(idem_key) IS 'hash of the bytes of a key';

CREATE FUNCTION idem_key_hash_extended(idem_key, bigint) RETURNS bigint
    LANGUAGE c IMMUTABLE STRICT LEAKPROOF PARALLEL SAFE
    AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION idem_key_hash_extended(idem_key, bigint) IS
    'hash of the bytes of a key, with a seed';

CREATE OPERATOR = (
    FUNCTION = idem_key_eq, LEFTARG = idem_key, RIGHTARG = idem_key,
    COMMUTATOR = =, NEGATOR = <>,
    RESTRICT = eqsel, JOIN = eqjoinsel, HASHES, MERGES
);
COMMENT ON OPERATOR = (idem_key, idem_key) IS 'equal';

CREATE OPERATOR <> (
    FUNCTION = idem_key_ne, LEFTARG = idem_key, RIGHTARG = idem_key,
    COMMUTATOR = <>, NEGATOR = =,
    RESTRICT = neqsel, JOIN = neqjoinsel
);
COMMENT ON OPERATOR <> (idem_key, idem_key) IS 'not equal';

CREATE OPERATOR < (
    FUNCTION = idem_key_lt, LEFTARG = idem_key, RIGHTARG = idem_key,
    COMMUTATOR = >, NEGATOR = >=,
    RESTRICT = scalarltsel, JOIN = scalarltjoinsel
);
COMMENT ON OPERATOR < (idem_key, idem_key) IS 'less than, bytewise';

CREATE OPERATOR <= (
    FUNCTION = idem_key_le, LEFTARG = idem_key, RIGHTARG = idem_key,
    COMMUTATOR = >=, NEGATOR = >,
    RESTRICT = scalarlesel, JOIN = scalarlejoinsel
);
COMMENT ON OPERATOR <= (idem_key, idem_key) IS 'less than or equal, bytewise';

CREATE OPERATOR > (
    FUNCTION = idem_key_gt, LEFTARG = idem_key, RIGHTARG = idem_key,
    COMMUTATOR = <, NEGATOR = <=,
    RESTRICT = scalargtsel, JOIN = scalargtjoinsel
);
COMMENT ON OPERATOR > (idem_key, idem_key) IS 'greater than, bytewise';

CREATE OPERATOR >= (
    FUNCTION = idem_key_ge, LEFTARG = idem_key, RIGHTARG = idem_key,
    COMMUTATOR = <=, NEGATOR = <,
    RESTRICT = scalargesel, JOIN = scalargejoinsel
);
COMMENT ON OPERATOR >= (idem_key, idem_key) IS 'greater than or equal, bytewise';

CREATE OPERATOR CLASS idem_key_ops DEFAULT FOR TYPE idem_key USING btree AS
    OPERATOR 1 <,
    OPERATOR 2 <=,
    OPERATOR 3 =,
    OPERATOR 4 >=,
    OPERATOR 5 >,
    FUNCTION 1 idem_key_cmp(idem_key, idem_key),
    FUNCTION 2 idem_key_sortsupport(internal),
    FUNCTION 4 idem_key_equalimage(oid);
COMMENT ON OPERATOR CLASS idem_key_ops USING btree IS 'bytewise order of keys; deduplicates';
COMMENT ON OPERATOR FAMILY idem_key_ops USING btree IS 'bytewise order of keys';

CREATE OPERATOR CLASS idem_key_ops DEFAULT FOR TYPE idem_key USING hash AS
    OPERATOR 1 =,
    FUNCTION 1 idem_key_hash(idem_key),
    FUNCTION 2 idem_key_hash_extended(idem_key, bigint);
COMMENT ON OPERATOR CLASS idem_key_ops USING hash IS 'hash of keys; also for hash partitioning';
COMMENT ON OPERATOR FAMILY idem_key_ops USING hash IS 'hash of keys';

-- Nothing is granted to PUBLIC.

REVOKE ALL ON TYPE idem_key FROM PUBLIC;

REVOKE ALL ON FUNCTION
    idem_key_in(cstring),
    idem_key_out(idem_key),
    idem_key_recv(internal),
    idem_key_send(idem_key),
    idem_key(text, text, text),
    idem_key_tenant(idem_key),
    idem_key_operation(idem_key),
    idem_key_id(idem_key),
    idem_key(text),
    idem_key_eq(idem_key, idem_key),
    idem_key_ne(idem_key, idem_key),
    idem_key_lt(idem_key, idem_key),
    idem_key_le(idem_key, idem_key),
    idem_key_gt(idem_key, idem_key),
    idem_key_ge(idem_key, idem_key),
    idem_key_cmp(idem_key, idem_key),
    idem_key_sortsupport(internal),
    idem_key_equalimage(oid),
    idem_key_hash(idem_key),
    idem_key_hash_extended(idem_key, bigint)
FROM PUBLIC;
