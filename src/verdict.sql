/* verdict: the answer to whoever asks to act, one row */

CREATE TYPE idem_verdict AS (
    outcome text,
    generation bigint,
    result jsonb,
    error jsonb,
    retry_at timestamptz,
    attempt integer,
    state text,
    lease_until timestamptz,
    absence_conclusive_at timestamptz,
    channel text,
    channel_ref text,
    params jsonb,
    differs text[],
    result_digest idem_digest
);

COMMENT ON TYPE idem_verdict IS
    'what an asking call answers: outcome is one of execute, repeat, verify (granted), accepted, succeeded, rejected, busy, review, conflict, expired; generation is 0 where nothing was granted; source: doc/verdict.md';

REVOKE ALL ON TYPE idem_verdict FROM PUBLIC;
