/* owner: what the owner of a generation, or an operator, reports */

CREATE FUNCTION idem_renew(key idem_key, generation bigint, lease interval DEFAULT NULL)
    RETURNS timestamptz
    AS 'MODULE_PATHNAME' LANGUAGE c VOLATILE PARALLEL UNSAFE COST 10000;

COMMENT ON FUNCTION idem_renew(idem_key, bigint, interval) IS
    'prolongs the lease of the newest generation from now on; returns its new end; under repeat never past the life of the channel''s key; ID002, ID003, ID005; source: doc/owner.md';

CREATE FUNCTION idem_complete(key idem_key, generation bigint, result jsonb DEFAULT NULL,
    channel_ref text DEFAULT NULL) RETURNS void
    AS 'MODULE_PATHNAME' LANGUAGE c VOLATILE PARALLEL UNSAFE COST 10000;

COMMENT ON FUNCTION idem_complete(idem_key, bigint, jsonb, text) IS
    'the action was executed: terminal, with its result and the channel''s reference; repeated with the same ones a success, with others ID004; ID002 for any generation but the newest, ID003, ID005; source: doc/owner.md';

CREATE FUNCTION idem_reject(key idem_key, generation bigint, error jsonb DEFAULT NULL) RETURNS void
    AS 'MODULE_PATHNAME' LANGUAGE c VOLATILE PARALLEL UNSAFE COST 10000;

COMMENT ON FUNCTION idem_reject(idem_key, bigint, jsonb) IS
    'no attempt executed the action and none will: terminal, with the error; repeated with the same one a success, with another ID004; ID002, ID003, ID005; source: doc/owner.md';

CREATE FUNCTION idem_mark_unknown(key idem_key, generation bigint, detail jsonb DEFAULT NULL,
    retry_after interval DEFAULT NULL) RETURNS void
    AS 'MODULE_PATHNAME' LANGUAGE c VOLATILE PARALLEL UNSAFE COST 10000;

COMMENT ON FUNCTION idem_mark_unknown(idem_key, bigint, jsonb, interval) IS
    'the channel was called and the answer is not known; due again after retry_after (0 to 30 days) or the contract''s back-off; ID002, ID003, ID005; source: doc/owner.md';

CREATE FUNCTION idem_release(key idem_key, generation bigint, detail jsonb DEFAULT NULL,
    retry_after interval DEFAULT NULL) RETURNS void
    AS 'MODULE_PATHNAME' LANGUAGE c VOLATILE PARALLEL UNSAFE COST 10000;

COMMENT ON FUNCTION idem_release(idem_key, bigint, jsonb, interval) IS
    'this attempt made no call, or the channel said that it did not do it; due again after retry_after (0 to 30 days) or the contract''s back-off; ID002, ID003, ID005; source: doc/owner.md';

CREATE FUNCTION idem_absent(key idem_key, generation bigint, detail jsonb DEFAULT NULL)
    RETURNS idem_verdict
    AS 'MODULE_PATHNAME' LANGUAGE c VOLATILE PARALLEL UNSAFE COST 10000;

COMMENT ON FUNCTION idem_absent(idem_key, bigint, jsonb) IS
    'under verify: the channel does not know the key; execute with a new generation if verify was granted late enough for that to be conclusive, else busy, or review where nothing is left to try; ID002, ID003, ID005; source: doc/owner.md';

CREATE FUNCTION idem_escalate(key idem_key, generation bigint, detail jsonb DEFAULT NULL)
    RETURNS void
    AS 'MODULE_PATHNAME' LANGUAGE c VOLATILE PARALLEL UNSAFE COST 10000;

COMMENT ON FUNCTION idem_escalate(idem_key, bigint, jsonb) IS
    'puts the action in review, where only a person moves it on; ID002, ID003, ID005; source: doc/owner.md';

CREATE FUNCTION idem_resolve(key idem_key, generation bigint, state text, note text,
    result jsonb DEFAULT NULL, channel_ref text DEFAULT NULL) RETURNS void
    AS 'MODULE_PATHNAME' LANGUAGE c VOLATILE PARALLEL UNSAFE COST 10000;

COMMENT ON FUNCTION idem_resolve(idem_key, bigint, text, text, jsonb, text) IS
    'an operator decides an action in review, seen at a generation: succeeded (result, channel_ref), rejected (result is its error) or pending (vouching that it was not executed); rejected and pending name the channel_ref on record, if there is one; raises the generation; the note is required; ID002, ID003, ID005; source: doc/owner.md';

REVOKE ALL ON FUNCTION idem_renew(idem_key, bigint, interval) FROM PUBLIC;
REVOKE ALL ON FUNCTION idem_complete(idem_key, bigint, jsonb, text) FROM PUBLIC;
REVOKE ALL ON FUNCTION idem_reject(idem_key, bigint, jsonb) FROM PUBLIC;
REVOKE ALL ON FUNCTION idem_mark_unknown(idem_key, bigint, jsonb, interval) FROM PUBLIC;
REVOKE ALL ON FUNCTION idem_release(idem_key, bigint, jsonb, interval) FROM PUBLIC;
REVOKE ALL ON FUNCTION idem_absent(idem_key, bigint, jsonb) FROM PUBLIC;
REVOKE ALL ON FUNCTION idem_escalate(idem_key, bigint, jsonb) FROM PUBLIC;
REVOKE ALL ON FUNCTION idem_resolve(idem_key, bigint, text, text, jsonb, text) FROM PUBLIC;
