/* operators: what awaits a person, and what only a person lets in */

/* each lease finds its action by the key: the cost depends on what is in flight only */
CREATE VIEW idem_review WITH (security_barrier) AS
SELECT r.key, idem_key_tenant(r.key) AS tenant, r.operation, r.generation, r.attempt,
    coalesce(m.recorded_at, r.updated_at) AS since,
    CASE
        WHEN r.last_call = 'escalate' THEN 'escalated by ' || coalesce(m.role_name, 'somebody')
        WHEN r.attempt >= c.max_attempts AND r.last_call = 'absent' THEN
            'the channel does not know it, and all attempts are used up'
        WHEN r.attempt >= c.max_attempts THEN 'all attempts are used up'
        WHEN r.last_call = 'absent' THEN
            'the channel does not know it, which settles nothing under its contract'
        WHEN f.channel <> c.channel THEN
            'may have been executed by a channel that the operation has left'
        WHEN r.attempt = 0 OR d.is_declared THEN
            'may have been executed in commits that were lost, and its contract allows nothing'
        ELSE 'may have been executed, and its contract allows nothing'
    END AS why,
    r.is_ambiguous OR r.channel_ref IS NOT NULL AS is_in_doubt,
    r.first_granted_at, r.call_until, coalesce(f.channel, c.channel) AS channel,
    r.channel_ref, d.channel_refs, r.owner, d.detail, r.params
FROM (
    SELECT l.key, idem_key_operation(l.key) AS operation, l.owner, l.first_granted_at,
        l.first_revision, l.call_until, l.is_ambiguous, a.generation, a.attempt, a.last_call,
        a.updated_at, a.params, a.channel_ref
    FROM idem_lease AS l
        CROSS JOIN LATERAL (
            SELECT b.state, b.generation, b.attempt, b.last_call, b.updated_at, b.params,
                b.channel_ref
            FROM idem_action AS b
            WHERE b.key = l.key
            OFFSET 0
        ) AS a
    WHERE a.state = 'review' AND idem_may_see(l.key)
    OFFSET 0    /* as in idem_in_flight */
) AS r
    CROSS JOIN LATERAL (
        SELECT t.channel, t.max_attempts
        FROM idem_contract AS t
        WHERE t.operation = r.operation
        ORDER BY t.revision DESC
        LIMIT 1
    ) AS c
    LEFT JOIN idem_contract AS f ON f.operation = r.operation AND f.revision = r.first_revision
    LEFT JOIN LATERAL (
        /* the move to review */
        SELECT e.recorded_at, e.role_name
        FROM idem_evidence AS e
        WHERE e.key = r.key AND e.state = 'review' AND e.call = r.last_call
        ORDER BY e.recorded_at DESC
        LIMIT 1
    ) AS m ON true
    CROSS JOIN LATERAL (
        /* what was said since an operator last vouched that it was not executed */
        SELECT bool_or(e.call = 'declare_loss') AS is_declared,
            array_agg(DISTINCT e.channel_ref) FILTER (WHERE e.channel_ref IS NOT NULL)
                AS channel_refs,
            (array_agg(e.detail ORDER BY e.recorded_at DESC) FILTER (WHERE e.detail IS NOT NULL))[1]
                AS detail
        FROM idem_evidence AS e
        WHERE e.key = r.key AND e.recorded_at >= coalesce((
            SELECT max(v.recorded_at)
            FROM idem_evidence AS v
            WHERE v.key = r.key AND v.call = 'resolve'), '-infinity')
    ) AS d;

COMMENT ON VIEW idem_review IS
    'every action that awaits a person''s decision, with what is known of it: why, since when, what may have been called when, the channel and its references, what was said last, the parameters; generation is the one to pass to idem_resolve; source: doc/operators.md';

REVOKE ALL ON idem_review FROM PUBLIC;

CREATE FUNCTION idem_admit(key idem_key, params jsonb, note text,
    occurred_at timestamptz DEFAULT NULL) RETURNS void
    AS 'MODULE_PATHNAME' LANGUAGE c VOLATILE PARALLEL UNSAFE COST 10000;

COMMENT ON FUNCTION idem_admit(idem_key, jsonb, text, timestamptz) IS
    'an operator puts an external action on record as pending whose key was answered expired, vouching that it was not executed; the note is required; ID003 if the key is on record or not expired, ID006, ID007; source: doc/operators.md';

REVOKE ALL ON FUNCTION idem_admit(idem_key, jsonb, text, timestamptz) FROM PUBLIC;
