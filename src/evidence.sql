/* evidence: what happened to each action, one row a fact, never changed */

CREATE TABLE idem_evidence (
    key idem_key NOT NULL,
    recorded_at timestamptz NOT NULL,
    call text NOT NULL,
    outcome text,
    state text NOT NULL,
    generation bigint NOT NULL,
    attempt integer NOT NULL,
    worker text,
    role_name text NOT NULL,
    lease_until timestamptz,
    detail jsonb,
    channel_ref text,
    digest idem_digest,
    transport jsonb,
    replay_batch text,
    note text
);

CREATE INDEX idem_evidence_key ON idem_evidence (key, recorded_at);

ALTER TABLE idem_evidence REPLICA IDENTITY FULL;

COMMENT ON TABLE idem_evidence IS 'what happened to each action: grants, moves, conflicts answered, what others reported, what operators decided; only added to, and deleted with the action by idem_purge()';
COMMENT ON COLUMN idem_evidence.call IS 'the call that caused it: submit, claim, complete, reject, mark_unknown, release, absent, escalate, cancel, resolve, admit, declare_loss; conflict: a call with other parameters was refused; evidence: idem_add_evidence()';
COMMENT ON COLUMN idem_evidence.outcome IS 'of a grant: execute, repeat or verify';
COMMENT ON COLUMN idem_evidence.state IS 'of the action afterwards, as generation and attempt';
COMMENT ON COLUMN idem_evidence.generation IS 'the newest afterwards; of late evidence: that of whoever reports it, 0 if he has none';
COMMENT ON COLUMN idem_evidence.worker IS 'the owner of the newest grant';
COMMENT ON COLUMN idem_evidence.role_name IS 'the role that called';
COMMENT ON COLUMN idem_evidence.detail IS 'what the caller said of it';
COMMENT ON COLUMN idem_evidence.digest IS 'of the parameters that were refused';
COMMENT ON COLUMN idem_evidence.transport IS 'identity of the message that led to it; never used to tell duplicates';
COMMENT ON COLUMN idem_evidence.replay_batch IS 'the setting idem_action.replay_batch of whoever replayed';
COMMENT ON COLUMN idem_evidence.note IS 'of the operator who decided it';

CREATE FUNCTION idem_keep_evidence() RETURNS trigger
    AS 'MODULE_PATHNAME' LANGUAGE c VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION idem_keep_evidence() IS
    'trigger that refuses with 55000 to change or delete evidence, to everybody but idem_purge()';

CREATE TRIGGER idem_append_only BEFORE UPDATE OR DELETE ON idem_evidence FOR EACH ROW
    EXECUTE FUNCTION idem_keep_evidence();
CREATE TRIGGER idem_append_only_all BEFORE TRUNCATE ON idem_evidence FOR EACH STATEMENT
    EXECUTE FUNCTION idem_keep_evidence();

SELECT pg_catalog.pg_extension_config_dump('idem_evidence', '');

REVOKE ALL ON idem_evidence FROM PUBLIC;
REVOKE ALL ON FUNCTION idem_keep_evidence() FROM PUBLIC;

CREATE FUNCTION idem_add_evidence(key idem_key, generation bigint, detail jsonb,
    channel_ref text DEFAULT NULL) RETURNS void
    AS 'MODULE_PATHNAME' LANGUAGE c VOLATILE PARALLEL UNSAFE COST 10000;

COMMENT ON FUNCTION idem_add_evidence(idem_key, bigint, jsonb, text) IS
    'adds what is known of an external action to its evidence, in any state: by whoever once owned it (generation) or by somebody else, such as a webhook (null); a channel_ref counts in every later verdict; 22004 if it says nothing, ID002 for a generation that was never granted, ID003, ID005; source: doc/evidence.md';

CREATE FUNCTION idem_history(key idem_key,
    OUT at timestamptz, OUT event text, OUT state text, OUT generation bigint, OUT worker text,
    OUT channel_ref text, OUT detail jsonb, OUT note text, OUT transport jsonb,
    OUT replay_batch text)
    RETURNS SETOF record
    AS 'MODULE_PATHNAME' LANGUAGE c VOLATILE PARALLEL UNSAFE COST 1000 ROWS 10;

COMMENT ON FUNCTION idem_history(idem_key) IS
    'the life of an action, oldest event first, as a person would read it; no row for an unknown key; works in read-only transactions and on a standby; source: doc/evidence.md';

REVOKE ALL ON FUNCTION idem_add_evidence(idem_key, bigint, jsonb, text) FROM PUBLIC;
REVOKE ALL ON FUNCTION idem_history(idem_key) FROM PUBLIC;
