/* observe: what happened, counted, and what is in flight */

CREATE FUNCTION idem_stat_operation(operation text,
    OUT execute bigint, OUT repeat bigint, OUT verify bigint, OUT accepted bigint,
    OUT succeeded bigint, OUT rejected bigint, OUT busy bigint, OUT review bigint,
    OUT conflict bigint, OUT expired bigint, OUT takeover bigint, OUT stale bigint,
    OUT illegal bigint, OUT result_conflict bigint, OUT stats_reset timestamptz)
    AS 'MODULE_PATHNAME' LANGUAGE c STABLE PARALLEL UNSAFE;

COMMENT ON FUNCTION idem_stat_operation(text) IS
    'what idem_stat_operations shows of one operation; null: of those that share a slot';

CREATE FUNCTION idem_stat_consumer(consumer text,
    OUT first bigint, OUT duplicate bigint, OUT conflict bigint, OUT expired bigint,
    OUT stats_reset timestamptz)
    AS 'MODULE_PATHNAME' LANGUAGE c STABLE PARALLEL UNSAFE;

COMMENT ON FUNCTION idem_stat_consumer(text) IS
    'what idem_stat_consumers shows of one consumer; null: of those that share a slot';

CREATE FUNCTION idem_stat_reset() RETURNS void
    AS 'MODULE_PATHNAME' LANGUAGE c VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION idem_stat_reset() IS
    'sets the counters of this database''s operations and consumers to zero, on this server; for operators of every tenant, 42501; source: doc/observe.md';

CREATE VIEW idem_stat_operations WITH (security_barrier) AS
SELECT o.operation, c.*
FROM (SELECT DISTINCT operation FROM idem_contract WHERE idem_may_see_all()) AS o
    CROSS JOIN LATERAL idem_stat_operation(o.operation) AS c
UNION ALL
SELECT '(other operations)', c.*
FROM (SELECT WHERE idem_may_see_all()) AS o
    CROSS JOIN LATERAL idem_stat_operation(NULL) AS c
WHERE c.stats_reset IS NOT NULL;

COMMENT ON VIEW idem_stat_operations IS
    'what each operation''s callers, of all tenants, were answered since stats_reset, on this server, rolled back or not; null: counted under (other operations); source: doc/observe.md';

CREATE VIEW idem_stat_consumers WITH (security_barrier) AS
SELECT o.consumer, c.*
FROM (SELECT DISTINCT consumer FROM idem_consumer WHERE idem_may_see_all()) AS o
    CROSS JOIN LATERAL idem_stat_consumer(o.consumer) AS c
UNION ALL
SELECT '(other consumers)', c.*
FROM (SELECT WHERE idem_may_see_all()) AS o
    CROSS JOIN LATERAL idem_stat_consumer(NULL) AS c
WHERE c.stats_reset IS NOT NULL;

COMMENT ON VIEW idem_stat_consumers IS
    'what became of the events of each consumer, of all tenants, since stats_reset, on this server, rolled back or not; null: counted under (other consumers); source: doc/observe.md';

/* each lease finds its action by the key: the cost depends on what is in flight only */
CREATE VIEW idem_in_flight WITH (security_barrier) AS
SELECT f.key, f.tenant, f.operation, f.state, f.granted, f.owner, f.generation, f.attempt,
    extract(epoch FROM f.now - f.created_at)::float8 AS age_seconds,
    f.since, f.granted_at, f.first_granted_at, f.lease_until, f.is_lapsed, f.retry_at,
    f.state IN ('pending', 'unknown') AND f.is_past AS is_due,
    f.is_ambiguous OR f.channel_ref IS NOT NULL
        OR (f.is_lapsed AND f.granted IN ('execute', 'repeat')) AS is_in_doubt,
    f.last_call, f.channel_ref
FROM (
    SELECT l.key, idem_key_tenant(l.key) AS tenant, idem_key_operation(l.key) AS operation,
        a.state, a.last_call, a.generation, a.attempt, a.created_at, a.channel_ref,
        coalesce(a.moved_at, a.updated_at) AS since,
        l.owner, l.granted, l.granted_at, l.first_granted_at, l.lease_until, l.due_at AS retry_at,
        l.is_ambiguous, n.now,
        a.state = 'processing' AND (l.lease_until <= n.now
            OR l.lease_until > n.now + interval '24 hours') AS is_lapsed,
        l.due_at <= n.now OR l.due_at > n.now + interval '744 hours' AS is_past
    FROM idem_lease AS l
        CROSS JOIN (SELECT statement_timestamp() AS now) AS n
        CROSS JOIN LATERAL (
            SELECT b.state, b.last_call, b.generation, b.attempt, b.created_at, b.updated_at,
                b.channel_ref,
                /* a reference that is reported later updates the record, and is no move */
                CASE b.state WHEN 'review' THEN (
                    SELECT max(e.recorded_at)
                    FROM idem_evidence AS e
                    WHERE e.key = l.key AND e.call = b.last_call AND e.state = b.state
                ) END AS moved_at
            FROM idem_action AS b
            WHERE b.key = l.key
            OFFSET 0
        ) AS a
    WHERE idem_may_see(l.key)
    OFFSET 0    /* a reader's condition must not reach keys that he may not see: EXPLAIN would count them */
) AS f;

COMMENT ON VIEW idem_in_flight IS
    'every action of an external operation that is not terminal: who owns it, since when, until when, and whether an attempt may have executed it; source: doc/observe.md';

CREATE VIEW idem_health WITH (security_barrier) AS
SELECT o.operation,
    count(f.key) AS in_flight,
    count(*) FILTER (WHERE f.state = 'pending') AS pending,
    count(*) FILTER (WHERE f.state = 'processing') AS processing,
    count(*) FILTER (WHERE f.state = 'unknown') AS unknown,
    count(*) FILTER (WHERE f.state = 'review') AS review,
    count(*) FILTER (WHERE f.is_due) AS due,
    count(*) FILTER (WHERE f.is_lapsed) AS lapsed,
    count(*) FILTER (WHERE f.granted IN ('repeat', 'verify') AND f.last_call <> 'absent'
        AND (f.state = 'unknown' OR f.is_lapsed)) AS recovery_failures,
    coalesce(max(f.waited) FILTER (WHERE f.state = 'pending' AND f.is_due), 0)
        AS oldest_pending_seconds,
    coalesce(max(f.granted_for) FILTER (WHERE f.state = 'processing'), 0)
        AS oldest_processing_seconds,
    coalesce(max(f.called_for) FILTER (WHERE f.is_in_doubt AND f.state <> 'review'), 0)
        AS oldest_unknown_seconds,
    coalesce(max(f.decided_for) FILTER (WHERE f.state = 'review'), 0) AS oldest_review_seconds,
    coalesce(max(f.age_seconds) FILTER (WHERE f.state <> 'review'), 0) AS oldest_seconds
FROM (
    SELECT DISTINCT ON (c.operation) c.operation, c.effect
    FROM idem_contract AS c
    ORDER BY c.operation, c.revision DESC
) AS o
    LEFT JOIN (
        SELECT i.*,
            extract(epoch FROM statement_timestamp() - i.retry_at)::float8 AS waited,
            extract(epoch FROM statement_timestamp() - i.granted_at)::float8 AS granted_for,
            extract(epoch FROM statement_timestamp()
                - coalesce(i.first_granted_at, i.since))::float8 AS called_for,
            extract(epoch FROM statement_timestamp() - i.since)::float8 AS decided_for
        FROM idem_in_flight AS i
    ) AS f ON f.operation = o.operation
WHERE o.effect = 'external'
GROUP BY o.operation;

COMMENT ON VIEW idem_health IS
    'one row an external operation: how much is in flight in which state, and how old the oldest is; seconds are 0 where there is none; source: doc/observe.md';

/*
 * Reads all evidence that has a reference, so it is to be asked now and then.
 * Who may not see a key is not told by another row that it is there.
 */
CREATE VIEW idem_violations WITH (security_barrier) AS
WITH reference AS MATERIALIZED (
    /* which are those that no operator has set aside */
    SELECT DISTINCT e.key, idem_key_operation(e.key) AS operation, e.channel_ref
    FROM idem_evidence AS e
    WHERE e.channel_ref IS NOT NULL AND idem_may_see(e.key) AND NOT EXISTS (
        SELECT FROM idem_evidence AS r
        WHERE r.key = e.key AND r.recorded_at > e.recorded_at
            AND r.call = 'resolve' AND r.state = 'pending')
), shared AS (
    SELECT r.key, r.channel_ref,
        count(*) OVER (PARTITION BY r.operation, r.channel_ref) AS actions
    FROM reference AS r
), violation (kind, key, detail) AS (
    SELECT 'several_references', r.key,
        jsonb_build_object('channel_refs', jsonb_agg(r.channel_ref ORDER BY r.channel_ref))
    FROM reference AS r
    GROUP BY r.key
    HAVING count(*) > 1
    UNION ALL
    SELECT 'shared_reference', s.key,
        jsonb_build_object('channel_ref', s.channel_ref, 'actions', s.actions)
    FROM shared AS s
    WHERE s.actions > 1
    UNION ALL
    SELECT 'rejected_with_reference', r.key,
        jsonb_build_object('channel_refs', jsonb_agg(r.channel_ref ORDER BY r.channel_ref))
    FROM reference AS r
        JOIN idem_action AS a ON a.key = r.key
    WHERE a.state = 'rejected'
    GROUP BY r.key
    UNION ALL
    SELECT 'contradicted', e.key,
        jsonb_build_object('state', a.state, 'evidence', jsonb_agg(DISTINCT e.state))
    FROM idem_evidence AS e
        LEFT JOIN idem_action AS a ON a.key = e.key
    WHERE e.state IN ('succeeded', 'rejected') AND a.state IS DISTINCT FROM e.state
        AND idem_may_see(e.key)
    GROUP BY e.key, a.state
    OFFSET 0    /* as in idem_in_flight */
)
SELECT v.kind, v.key, idem_key_tenant(v.key) AS tenant, idem_key_operation(v.key) AS operation,
    v.detail
FROM violation AS v;

COMMENT ON VIEW idem_violations IS
    'what must never be: several references for one action, one reference on several actions, a rejected action that the channel knows, a record that its evidence contradicts; source: doc/observe.md';

REVOKE ALL ON FUNCTION idem_stat_operation(text) FROM PUBLIC;
REVOKE ALL ON FUNCTION idem_stat_consumer(text) FROM PUBLIC;
REVOKE ALL ON FUNCTION idem_stat_reset() FROM PUBLIC;
REVOKE ALL ON idem_stat_operations, idem_stat_consumers, idem_in_flight, idem_health,
    idem_violations FROM PUBLIC;
