/* transition: moving a guarded row once */

CREATE TYPE idem_transitioned AS (
    outcome text,
    state text
);

COMMENT ON TYPE idem_transitioned IS
    'what idem_transition answers: outcome is applied, already or refused; state is the row''s now, null if there is no such row; source: doc/guard.md';

REVOKE ALL ON TYPE idem_transitioned FROM PUBLIC;

CREATE FUNCTION idem_transition("table" regclass, id text, from_state text, to_state text,
    generation bigint DEFAULT NULL) RETURNS idem_transitioned
    AS 'MODULE_PATHNAME', 'idem_transition_text' LANGUAGE c VOLATILE PARALLEL UNSAFE COST 10000;

CREATE FUNCTION idem_transition("table" regclass, id bigint, from_state text, to_state text,
    generation bigint DEFAULT NULL) RETURNS idem_transitioned
    AS 'MODULE_PATHNAME', 'idem_transition_bigint' LANGUAGE c VOLATILE PARALLEL UNSAFE COST 10000;

CREATE FUNCTION idem_transition("table" regclass, id uuid, from_state text, to_state text,
    generation bigint DEFAULT NULL) RETURNS idem_transitioned
    AS 'MODULE_PATHNAME', 'idem_transition_uuid' LANGUAGE c VOLATILE PARALLEL UNSAFE COST 10000;

COMMENT ON FUNCTION idem_transition(regclass, text, text, text, bigint) IS
    'moves the row with this primary key, as the caller, if it is in from_state: applied; already if it is in to_state, refused otherwise; the table needs a machine and a primary key of one column; ID002 for an older generation, ID003 for a move that the machine does not have; source: doc/guard.md';
COMMENT ON FUNCTION idem_transition(regclass, bigint, text, text, bigint) IS
    'the same for an integer primary key; source: doc/guard.md';
COMMENT ON FUNCTION idem_transition(regclass, uuid, text, text, bigint) IS
    'the same for a uuid primary key; source: doc/guard.md';

REVOKE ALL ON FUNCTION idem_transition(regclass, text, text, text, bigint) FROM PUBLIC;
REVOKE ALL ON FUNCTION idem_transition(regclass, bigint, text, text, bigint) FROM PUBLIC;
REVOKE ALL ON FUNCTION idem_transition(regclass, uuid, text, text, bigint) FROM PUBLIC;
