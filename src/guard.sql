/* guard: application tables that defend their state */

CREATE FUNCTION idem_guard() RETURNS trigger
    AS 'MODULE_PATHNAME' LANGUAGE c VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION idem_guard() IS
    'trigger of a table with a machine, made by idem_define_machine; ID003 for an illegal move, ID002 for a lowered generation, 23514 for a changed immutable column; source: doc/guard.md';

CREATE FUNCTION idem_define_machine("table" regclass, state_column name, transitions text[],
    initial text[], terminal text[] DEFAULT NULL, generation_column name DEFAULT NULL,
    immutable_columns text[] DEFAULT NULL) RETURNS void
    AS 'MODULE_PATHNAME' LANGUAGE c VOLATILE PARALLEL UNSAFE COST 10000;

COMMENT ON FUNCTION idem_define_machine(regclass, name, text[], text[], text[], name, text[]) IS
    'guards a table of the caller: transitions are pairs of states, initial where rows may begin, terminal what is never left; replaces an earlier machine; 22023 for what does not fit, 23514 if a row is in no state of it; source: doc/guard.md';

CREATE FUNCTION idem_drop_machine("table" regclass) RETURNS void
    AS 'MODULE_PATHNAME' LANGUAGE c VOLATILE PARALLEL UNSAFE COST 10000;

COMMENT ON FUNCTION idem_drop_machine(regclass) IS
    'takes the guard off a table of the caller; 42704 if it has none; source: doc/guard.md';

REVOKE ALL ON FUNCTION idem_guard() FROM PUBLIC;
REVOKE ALL ON FUNCTION idem_define_machine(regclass, name, text[], text[], text[], name, text[]) FROM PUBLIC;
REVOKE ALL ON FUNCTION idem_drop_machine(regclass) FROM PUBLIC;
