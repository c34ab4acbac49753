-- rival.sql
--      What idem_action is measured against: the same answers in PL/pgSQL.
--
-- This is what an engineer who knows PostgreSQL would write instead of installing an extension: a
-- table of actions whose primary key decides the winner, a lease only for what is in flight, and a
-- contract per operation with its revisions, and evidence of what happened to external actions.  It
-- answers claim, complete and once for local and external operations; the moves that the
-- measurement does not call are left out.
--
-- Wherever two forms were possible both were measured and the cheaper one was taken:
--  * The key is checked by an expression of the function and states are enums.  A CHECK constraint
--    is read from its stored text again by every statement; it doubles the cost of the insert.
--  * The contract is read by a statement of its own.  Reading it inside the INSERT costs as much
--    for a first call and makes a duplicate read it again; a join with the action costs more.
--  * A choice that is seldom taken stands in an IF, not in a CASE: each transaction prepares every
--    simple expression that it meets, whole.
--  * A lease and its evidence are written by two statements; a WITH that writes both costs as much
--    or more.
--  * A verdict is one ROW() returned; filling it by RETURNING … INTO or OUT parameters costs more.
--  * The functions are neither SECURITY DEFINER nor do they SET search_path: every name is
--    qualified instead, and an application needs privileges on the tables.  The extension does
--    better there, and pays for it.
--  * Nothing refuses to commit an open local claim; rival_strict.sql adds that, as a deferred
--    constraint trigger, and is measured beside it.
--
-- rival_claim() inserts first, which is the cheapest way for a first call; rival_claim_again()
-- looks first, which is the cheapest way for a duplicate.  Each row of the table takes the one that
-- suits it.

CREATE SCHEMA rival;

CREATE TYPE rival.effect AS ENUM ('local', 'external');

CREATE TYPE rival.state AS ENUM
    ('pending', 'processing', 'unknown', 'review', 'succeeded', 'rejected');

CREATE TYPE rival.verdict AS (
    outcome text,
    generation bigint,
    result jsonb,
    error jsonb,
    retry_at timestamptz,
    attempt integer,
    state rival.state,
    lease_until timestamptz,
    absence_conclusive_at timestamptz,
    channel text,
    channel_ref text,
    params jsonb,
    differs text[],
    result_digest bytea
);

CREATE TABLE rival.contract (
    operation text COLLATE "C" NOT NULL,
    revision integer NOT NULL,
    is_current boolean NOT NULL DEFAULT true,
    effect rival.effect NOT NULL DEFAULT 'local',
    channel text NOT NULL,
    lease interval NOT NULL DEFAULT '30 seconds',
    digest_include text[],
    digest_exclude text[],
    channel_idempotent boolean NOT NULL DEFAULT false,
    channel_key_ttl interval,
    channel_queryable boolean NOT NULL DEFAULT false,
    absence_visible_after interval,
    max_attempts integer NOT NULL DEFAULT 10,
    keep_params boolean NOT NULL DEFAULT true,
    PRIMARY KEY (operation, revision)
);

CREATE UNIQUE INDEX contract_current ON rival.contract (operation) WHERE is_current;

CREATE TABLE rival.action (
    key text COLLATE "C" PRIMARY KEY,
    generation bigint NOT NULL,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    occurred_at timestamptz,
    state rival.state NOT NULL,
    effect rival.effect NOT NULL,
    revision integer NOT NULL,
    attempt integer NOT NULL,
    digest bytea NOT NULL,
    channel_ref text,
    params jsonb,
    result jsonb,
    error jsonb,
    result_digest bytea
) WITH (fillfactor = 70);

CREATE TABLE rival.lease (
    key text COLLATE "C" PRIMARY KEY REFERENCES rival.action,
    owner text NOT NULL,
    lease_until timestamptz NOT NULL,
    granted_by xid8 NOT NULL,
    first_granted_at timestamptz NOT NULL,
    last_call_until timestamptz NOT NULL
) WITH (fillfactor = 70);

CREATE INDEX lease_due ON rival.lease (split_part(key, '/', 2), lease_until);

CREATE TABLE rival.evidence (
    key text COLLATE "C" NOT NULL,
    recorded_at timestamptz NOT NULL,
    call text NOT NULL,
    outcome text,
    state rival.state NOT NULL,
    generation bigint NOT NULL,
    attempt integer NOT NULL,
    worker text,
    role_name text NOT NULL,
    lease_until timestamptz,
    detail jsonb,
    channel_ref text,
    digest bytea,
    transport jsonb,
    replay_batch text,
    note text
);

CREATE INDEX evidence_key ON rival.evidence (key, recorded_at);

CREATE FUNCTION rival.keep_evidence() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE 'evidence is only added to' USING ERRCODE = 'object_not_in_prerequisite_state';
END
$$;

CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON rival.evidence
FOR EACH ROW EXECUTE FUNCTION rival.keep_evidence();
CREATE TRIGGER append_only_all BEFORE TRUNCATE ON rival.evidence
FOR EACH STATEMENT EXECUTE FUNCTION rival.keep_evidence();

-- A JSON Pointer as the path that #> and #- take.
CREATE FUNCTION rival.pointer_path(pointer text) RETURNS text[]
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
    SELECT coalesce(array_agg(replace(replace(token, '~1', '/'), '~0', '~') ORDER BY place), '{}')
    FROM string_to_table(substr(pointer, 2), '/') WITH ORDINALITY AS t (token, place)
    WHERE pointer <> ''
$$;

-- The digest under a rule; SQL null if an included pointer is absent.  Where everything counts the
-- callers compute it themselves, without this call.
CREATE FUNCTION rival.digest(params jsonb, include text[], exclude text[]) RETURNS bytea
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
DECLARE
    counted jsonb := CASE WHEN include IS NULL THEN params ELSE '{}' END;
    pointer text;
    member jsonb;
BEGIN
    FOREACH pointer IN ARRAY coalesce(include, '{}') LOOP
        member := params #> rival.pointer_path(pointer);
        IF member IS NULL THEN
            RETURN NULL;
        END IF;
        counted := counted || jsonb_build_object(pointer, member);
    END LOOP;
    FOREACH pointer IN ARRAY coalesce(exclude, '{}') LOOP
        counted := counted #- rival.pointer_path(pointer);
    END LOOP;
    RETURN sha256(convert_to(counted::text, 'UTF8'));
END
$$;

-- The pointers at which two documents differ, never their values.
CREATE FUNCTION rival.differences(stored jsonb, given jsonb, path text DEFAULT '')
RETURNS SETOF text LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
DECLARE
    member text;
BEGIN
    IF stored IS NOT DISTINCT FROM given THEN
        RETURN;
    ELSIF jsonb_typeof(stored) = 'object' AND jsonb_typeof(given) = 'object' THEN
        FOR member IN
            SELECT jsonb_object_keys(stored) UNION SELECT jsonb_object_keys(given) ORDER BY 1
        LOOP
            RETURN QUERY SELECT rival.differences(stored -> member, given -> member,
                path || '/' || replace(replace(member, '~', '~0'), '/', '~1'));
        END LOOP;
    ELSE
        RETURN NEXT path;
    END IF;
END
$$;

-- What keeps a call from being recorded, said as an error.
CREATE FUNCTION rival.refuse(key text, params jsonb) RETURNS void
LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF key IS NULL OR params IS NULL THEN
        RAISE 'key and parameters must not be null' USING ERRCODE = 'null_value_not_allowed';
    ELSIF NOT rival.is_key(key) THEN
        RAISE 'malformed key "%"', key USING ERRCODE = 'invalid_text_representation',
            HINT = 'Write a key as tenant/operation/id.';
    ELSIF NOT EXISTS (SELECT FROM rival.contract AS c
                      WHERE c.operation = split_part(refuse.key, '/', 2) AND c.is_current) THEN
        RAISE 'operation "%" is not defined', split_part(key, '/', 2) USING ERRCODE = 'ID006',
            HINT = 'Insert its contract into rival.contract.';
    END IF;
    RAISE 'a parameter that must count is missing' USING ERRCODE = 'ID007';
END
$$;

-- Tenant, operation, id; a single expression, so that the callers' expressions inline it.
CREATE FUNCTION rival.is_key(key text) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT key COLLATE "C" ~ ('^[^/\s[:cntrl:]]+/[^/\s[:cntrl:]]+/'
                              '[^\s[:cntrl:]](?:[^[:cntrl:]]*[^\s[:cntrl:]])?$')
        AND octet_length(key) <= 512
$$;

-- A conflict that is answered, unless it is on record or enough others are.
CREATE FUNCTION rival.record_conflict(refused rival.action, given_digest bytea, owner text,
                                      transport jsonb)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM rival.action AS a WHERE a.key = refused.key FOR KEY SHARE;
    PERFORM pg_advisory_xact_lock(hashtextextended(refused.key, 0));
    IF (SELECT count(*) < 16 AND count(*) FILTER (WHERE e.digest = given_digest) = 0
        FROM rival.evidence AS e WHERE e.key = refused.key AND e.call = 'conflict') THEN
        INSERT INTO rival.evidence
            (key, recorded_at, call, state, generation, attempt, worker, role_name, digest,
             transport, replay_batch)
        VALUES (refused.key, clock_timestamp(), 'conflict', refused.state, refused.generation,
                refused.attempt, coalesce(owner, current_setting('application_name')),
                current_user, given_digest, record_conflict.transport,
                nullif(current_setting('rival.replay_batch', true), ''));
    END IF;
END
$$;

-- What may be done about an action that is on record, equal and not terminal.  An empty outcome
-- means that the row moved meanwhile: look again.
CREATE FUNCTION rival.take_over(key text, owner text, lease interval, transport jsonb)
RETURNS rival.verdict
LANGUAGE plpgsql AS $$
DECLARE
    now_at timestamptz := clock_timestamp();
    verdict rival.verdict;
    action rival.action;
    held rival.lease;
    contract rival.contract;
    granted_until timestamptz;
BEGIN
    SELECT * INTO held FROM rival.lease AS l WHERE l.key = take_over.key FOR UPDATE;
    SELECT * INTO action FROM rival.action AS a WHERE a.key = take_over.key FOR UPDATE;
    IF action.state IS NULL OR action.state IN ('succeeded', 'rejected') THEN
        RETURN verdict;
    END IF;
    IF action.effect = 'local' OR held.granted_by = pg_current_xact_id() THEN
        RAISE 'action "%" is already claimed in this transaction', key USING ERRCODE = 'ID003';
    END IF;
    SELECT * INTO STRICT contract FROM rival.contract AS c
    WHERE c.operation = split_part(take_over.key, '/', 2) AND c.is_current;

    verdict := ROW('review', 0, NULL, NULL, NULL, action.attempt, action.state, held.lease_until,
        held.last_call_until + contract.absence_visible_after, contract.channel,
        action.channel_ref, NULL, NULL, NULL)::rival.verdict;
    IF action.state = 'review' THEN
        RETURN verdict;
    END IF;
    IF held.lease_until > now_at THEN
        verdict.outcome := 'busy';
        verdict.retry_at := held.lease_until;
        RETURN verdict;
    END IF;

    granted_until := now_at + coalesce(lease, contract.lease);
    IF action.attempt >= contract.max_attempts THEN
        verdict.outcome := 'review';
    ELSIF action.state = 'pending' THEN
        verdict.outcome := 'execute';
    ELSIF contract.channel_idempotent
        AND held.first_granted_at + contract.channel_key_ttl > granted_until THEN
        verdict.outcome := 'repeat';
        verdict.params := action.params;
    ELSIF contract.channel_queryable OR action.channel_ref IS NOT NULL THEN
        verdict.outcome := 'verify';
    END IF;

    IF verdict.outcome = 'review' THEN
        UPDATE rival.action AS a SET state = 'review', updated_at = now_at
        WHERE a.key = take_over.key;
        DELETE FROM rival.lease AS l WHERE l.key = take_over.key;
        verdict.state := 'review';
        INSERT INTO rival.evidence
            (key, recorded_at, call, state, generation, attempt, worker, role_name, transport,
             replay_batch)
        VALUES (take_over.key, now_at, 'claim', 'review', action.generation, action.attempt,
                held.owner, current_user, take_over.transport,
                nullif(current_setting('rival.replay_batch', true), ''));
        RETURN verdict;
    END IF;

    UPDATE rival.action AS a
    SET state = 'processing', generation = a.generation + 1, attempt = a.attempt + 1,
        updated_at = now_at
    WHERE a.key = take_over.key
    RETURNING a.generation, a.attempt, a.state
    INTO verdict.generation, verdict.attempt, verdict.state;
    INSERT INTO rival.lease AS l
    VALUES (key, coalesce(owner, current_setting('application_name')), granted_until,
            pg_current_xact_id(), now_at, granted_until)
    ON CONFLICT ON CONSTRAINT lease_pkey DO UPDATE
    SET owner = excluded.owner, lease_until = excluded.lease_until,
        granted_by = excluded.granted_by,
        last_call_until = CASE WHEN verdict.outcome = 'verify' THEN l.last_call_until
                               ELSE greatest(l.last_call_until, excluded.last_call_until) END;
    INSERT INTO rival.evidence
        (key, recorded_at, call, outcome, state, generation, attempt, worker, role_name,
         lease_until, transport, replay_batch)
    VALUES (take_over.key, now_at, 'claim', verdict.outcome, verdict.state, verdict.generation,
            verdict.attempt, coalesce(owner, current_setting('application_name')), current_user,
            granted_until, take_over.transport,
            nullif(current_setting('rival.replay_batch', true), ''));
    verdict.lease_until := granted_until;
    RETURN verdict;
END
$$;

CREATE FUNCTION rival_claim(key text, params jsonb, occurred_at timestamptz DEFAULT NULL,
                            owner text DEFAULT NULL, lease interval DEFAULT NULL,
                            transport jsonb DEFAULT NULL)
RETURNS rival.verdict LANGUAGE plpgsql AS $$
DECLARE
    now_at timestamptz := clock_timestamp();
    contract_effect rival.effect;
    contract_revision integer;
    contract_lease interval;
    contract_keep_params boolean;
    include text[];
    exclude text[];
    given_digest bytea;
    granted_until timestamptz;
    action rival.action;
    verdict rival.verdict;
BEGIN
    SELECT c.effect, c.revision, c.lease, c.keep_params, c.digest_include, c.digest_exclude
    INTO contract_effect, contract_revision, contract_lease, contract_keep_params, include, exclude
    FROM rival.contract AS c
    WHERE c.operation = split_part(rival_claim.key, '/', 2) AND c.is_current;
    IF include IS NULL AND exclude IS NULL THEN
        given_digest := sha256(convert_to(params::text, 'UTF8'));
    ELSE
        given_digest := rival.digest(params, include, exclude);
    END IF;
    IF contract_revision IS NULL OR given_digest IS NULL OR NOT rival.is_key(key) THEN
        PERFORM rival.refuse(key, params);
    END IF;

    LOOP
        INSERT INTO rival.action
            (key, generation, created_at, updated_at, occurred_at, state, effect, revision, attempt,
             digest, params)
        VALUES
            (rival_claim.key, 1, now_at, now_at, rival_claim.occurred_at, 'processing',
             contract_effect, contract_revision, 1, given_digest,
             CASE WHEN contract_keep_params THEN rival_claim.params END)
        ON CONFLICT DO NOTHING;
        IF FOUND THEN
            IF contract_effect = 'external' THEN
                granted_until := now_at + coalesce(lease, contract_lease);
                INSERT INTO rival.lease
                VALUES (rival_claim.key,
                        coalesce(rival_claim.owner, current_setting('application_name')),
                        granted_until, pg_current_xact_id(), now_at, granted_until);
                INSERT INTO rival.evidence
                    (key, recorded_at, call, outcome, state, generation, attempt, worker,
                     role_name, lease_until, transport, replay_batch)
                VALUES (rival_claim.key, now_at, 'claim', 'execute', 'processing', 1, 1,
                        coalesce(rival_claim.owner, current_setting('application_name')),
                        current_user, granted_until, rival_claim.transport,
                        nullif(current_setting('rival.replay_batch', true), ''));
            END IF;
            RETURN ROW('execute', 1, NULL, NULL, NULL, 1, 'processing'::rival.state, granted_until,
                       NULL, NULL, NULL, NULL, NULL, NULL)::rival.verdict;
        END IF;

        SELECT * INTO action FROM rival.action AS a WHERE a.key = rival_claim.key;
        CONTINUE WHEN NOT FOUND;
        IF action.revision <> contract_revision THEN
            SELECT CASE WHEN c.digest_include IS NULL AND c.digest_exclude IS NULL
                        THEN sha256(convert_to(rival_claim.params::text, 'UTF8'))
                        ELSE rival.digest(rival_claim.params, c.digest_include, c.digest_exclude)
                   END
            INTO given_digest
            FROM rival.contract AS c
            WHERE c.operation = split_part(rival_claim.key, '/', 2)
              AND c.revision = action.revision;
        END IF;
        IF given_digest IS DISTINCT FROM action.digest THEN
            PERFORM rival.record_conflict(action, given_digest, rival_claim.owner,
                                          rival_claim.transport);
            RETURN ROW('conflict', 0, NULL, NULL, NULL, action.attempt, action.state, NULL, NULL,
                       NULL, NULL, NULL,
                       ARRAY(SELECT rival.differences(action.params, params)),
                       NULL)::rival.verdict;
        END IF;
        IF action.state IN ('succeeded', 'rejected') THEN
            RETURN ROW(action.state, 0, action.result, action.error, NULL, action.attempt,
                       action.state, NULL, NULL, NULL, action.channel_ref, NULL, NULL,
                       action.result_digest)::rival.verdict;
        END IF;
        verdict := rival.take_over(key, owner, lease, transport);
        IF verdict.outcome IS NOT NULL THEN
            RETURN verdict;
        END IF;
    END LOOP;
END
$$;

-- As rival_claim(), for a caller that expects a duplicate.
CREATE FUNCTION rival_claim_again(key text, params jsonb, occurred_at timestamptz DEFAULT NULL,
                                  owner text DEFAULT NULL, lease interval DEFAULT NULL,
                                  transport jsonb DEFAULT NULL)
RETURNS rival.verdict LANGUAGE plpgsql AS $$
DECLARE
    stored_state rival.state;
    stored_revision integer;
    stored_digest bytea;
    stored_attempt integer;
    stored_result jsonb;
    stored_error jsonb;
    stored_channel_ref text;
    stored_result_digest bytea;
    include text[];
    exclude text[];
    given_digest bytea;
BEGIN
    SELECT a.state, a.revision, a.digest, a.attempt, a.result, a.error, a.channel_ref,
           a.result_digest
    INTO stored_state, stored_revision, stored_digest, stored_attempt, stored_result, stored_error,
         stored_channel_ref, stored_result_digest
    FROM rival.action AS a WHERE a.key = rival_claim_again.key;
    IF stored_state IN ('succeeded', 'rejected') THEN
        SELECT c.digest_include, c.digest_exclude INTO include, exclude
        FROM rival.contract AS c
        WHERE c.operation = split_part(rival_claim_again.key, '/', 2)
          AND c.revision = stored_revision;
        IF include IS NULL AND exclude IS NULL THEN
            given_digest := sha256(convert_to(params::text, 'UTF8'));
        ELSE
            given_digest := rival.digest(params, include, exclude);
        END IF;
        IF given_digest = stored_digest THEN
            RETURN ROW(stored_state, 0, stored_result, stored_error, NULL, stored_attempt,
                       stored_state, NULL, NULL, NULL, stored_channel_ref, NULL, NULL,
                       stored_result_digest)::rival.verdict;
        END IF;
    END IF;
    RETURN rival_claim(key, params, occurred_at, owner, lease, transport);
END
$$;

CREATE FUNCTION rival_complete(key text, generation bigint, result jsonb DEFAULT NULL,
                               channel_ref text DEFAULT NULL)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    completed_effect rival.effect;
    completed_attempt integer;
    worker text;
    granted_by xid8;
    action rival.action;
BEGIN
    UPDATE rival.action AS a
    SET state = 'succeeded', result = rival_complete.result,
        channel_ref = coalesce(rival_complete.channel_ref, a.channel_ref),
        updated_at = clock_timestamp()
    WHERE a.key = rival_complete.key AND a.generation = rival_complete.generation
      AND a.state IN ('processing', 'unknown', 'review')
    RETURNING a.effect, a.attempt INTO completed_effect, completed_attempt;
    IF FOUND THEN
        IF completed_effect = 'external' THEN
            DELETE FROM rival.lease AS l WHERE l.key = rival_complete.key
            RETURNING l.owner, l.granted_by INTO worker, granted_by;
            INSERT INTO rival.evidence
                (key, recorded_at, call, state, generation, attempt, worker, role_name,
                 channel_ref, replay_batch)
            VALUES (rival_complete.key, clock_timestamp(), 'complete', 'succeeded',
                    rival_complete.generation, completed_attempt, worker, current_user,
                    rival_complete.channel_ref,
                    nullif(current_setting('rival.replay_batch', true), ''));
            IF granted_by = pg_current_xact_id() THEN
                RAISE 'external action "%" was granted in this transaction', key
                    USING ERRCODE = 'ID003', HINT = 'Commit the claim before calling the channel.';
            END IF;
        END IF;
        RETURN;
    END IF;

    SELECT * INTO action FROM rival.action AS a WHERE a.key = rival_complete.key;
    IF NOT FOUND THEN
        RAISE 'action "%" is not on record', key USING ERRCODE = 'ID005';
    ELSIF generation IS DISTINCT FROM action.generation THEN
        RAISE 'generation % of action "%" is not the newest', generation, key
            USING ERRCODE = 'ID002', HINT = 'Look at the outcome of the claim.';
    ELSIF action.state <> 'succeeded' THEN
        RAISE 'action "%" is %', key, action.state USING ERRCODE = 'ID003';
    ELSIF action.result IS DISTINCT FROM rival_complete.result
        OR action.channel_ref IS DISTINCT FROM rival_complete.channel_ref THEN
        RAISE 'action "%" was completed with another result', key USING ERRCODE = 'ID004';
    END IF;
END
$$;

CREATE FUNCTION rival_once(key text, params jsonb, occurred_at timestamptz DEFAULT NULL)
RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    now_at timestamptz := clock_timestamp();
    contract_effect rival.effect;
    contract_revision integer;
    contract_keep_params boolean;
    include text[];
    exclude text[];
    given_digest bytea;
    verdict rival.verdict;
BEGIN
    SELECT c.effect, c.revision, c.keep_params, c.digest_include, c.digest_exclude
    INTO contract_effect, contract_revision, contract_keep_params, include, exclude
    FROM rival.contract AS c
    WHERE c.operation = split_part(rival_once.key, '/', 2) AND c.is_current;
    IF include IS NULL AND exclude IS NULL THEN
        given_digest := sha256(convert_to(params::text, 'UTF8'));
    ELSE
        given_digest := rival.digest(params, include, exclude);
    END IF;
    IF contract_revision IS NULL OR given_digest IS NULL OR NOT rival.is_key(key) THEN
        PERFORM rival.refuse(key, params);
    ELSIF contract_effect <> 'local' THEN
        RAISE 'operation "%" is external', split_part(key, '/', 2) USING ERRCODE = 'ID003';
    END IF;

    INSERT INTO rival.action
        (key, generation, created_at, updated_at, occurred_at, state, effect, revision, attempt,
         digest, params)
    VALUES
        (rival_once.key, 1, now_at, now_at, rival_once.occurred_at, 'succeeded', contract_effect,
         contract_revision, 1, given_digest,
         CASE WHEN contract_keep_params THEN rival_once.params END)
    ON CONFLICT DO NOTHING;
    IF FOUND THEN
        RETURN true;
    END IF;

    verdict := rival_claim_again(key, params, occurred_at);
    IF verdict.outcome = 'conflict' THEN
        RAISE 'action "%" is on record with other parameters', key USING ERRCODE = 'ID001',
            DETAIL = 'They differ at ' || array_to_string(verdict.differs, ', ') || '.';
    ELSIF verdict.outcome = 'execute' THEN
        -- another transaction's row vanished between the insert and the look
        PERFORM rival_complete(key, verdict.generation);
        RETURN true;
    END IF;
    RETURN false;
END
$$;
