-- rival_inbox.sql
--      The inbox that idem_action is measured against, in PL/pgSQL.
--
-- A table of events whose primary key decides who is first, the payload compared by SHA-256 under
-- the revision stored, and a contract for each consumer.  What rival.sql says about the forms
-- chosen holds here: rival_consume() inserts first, which is the cheapest way for a first event,
-- and rival_consume_again() looks first, which is the cheapest way for a duplicate.  Consumers that
-- rebuild are left out.

CREATE TYPE rival.consumption AS (
    outcome text,
    result jsonb,
    differs text[],
    result_digest bytea
);

CREATE TABLE rival.consumer (
    consumer text COLLATE "C" NOT NULL,
    revision integer NOT NULL,
    is_current boolean NOT NULL DEFAULT true,
    digest_include text[],
    digest_exclude text[],
    keep_params boolean NOT NULL DEFAULT true,
    PRIMARY KEY (consumer, revision)
);

CREATE UNIQUE INDEX consumer_current ON rival.consumer (consumer) WHERE is_current;

CREATE TABLE rival.event (
    key text COLLATE "C" PRIMARY KEY,
    revision integer NOT NULL,
    digest bytea NOT NULL,
    occurred_at timestamptz,
    recorded_at timestamptz NOT NULL,
    params jsonb,
    result jsonb,
    transport jsonb,
    result_digest bytea
);

-- What keeps an event from being recorded, said as an error.
CREATE FUNCTION rival.refuse_event(key text, payload jsonb) RETURNS void
LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF key IS NULL OR payload IS NULL THEN
        RAISE 'key and payload must not be null' USING ERRCODE = 'null_value_not_allowed';
    ELSIF NOT rival.is_key(key) THEN
        RAISE 'malformed key "%"', key USING ERRCODE = 'invalid_text_representation',
            HINT = 'Write a key as tenant/consumer/id.';
    ELSIF NOT EXISTS (SELECT FROM rival.consumer AS c
                      WHERE c.consumer = split_part(refuse_event.key, '/', 2)
                        AND c.is_current) THEN
        RAISE 'consumer "%" is not defined', split_part(key, '/', 2) USING ERRCODE = 'ID006',
            HINT = 'Insert its contract into rival.consumer.';
    END IF;
    RAISE 'a parameter that must count is missing' USING ERRCODE = 'ID007';
END
$$;

CREATE FUNCTION rival_consume(key text, payload jsonb, occurred_at timestamptz DEFAULT NULL,
                              transport jsonb DEFAULT NULL)
RETURNS rival.consumption LANGUAGE plpgsql AS $$
DECLARE
    contract_revision integer;
    contract_keep_params boolean;
    include text[];
    exclude text[];
    given_digest bytea;
    event rival.event;
BEGIN
    SELECT c.revision, c.keep_params, c.digest_include, c.digest_exclude
    INTO contract_revision, contract_keep_params, include, exclude
    FROM rival.consumer AS c
    WHERE c.consumer = split_part(rival_consume.key, '/', 2) AND c.is_current;
    IF include IS NULL AND exclude IS NULL THEN
        given_digest := sha256(convert_to(payload::text, 'UTF8'));
    ELSE
        given_digest := rival.digest(payload, include, exclude);
    END IF;
    IF contract_revision IS NULL OR given_digest IS NULL OR NOT rival.is_key(key) THEN
        PERFORM rival.refuse_event(key, payload);
    END IF;

    LOOP
        INSERT INTO rival.event
            (key, revision, digest, occurred_at, recorded_at, params, transport)
        VALUES
            (rival_consume.key, contract_revision, given_digest, rival_consume.occurred_at,
             clock_timestamp(), CASE WHEN contract_keep_params THEN rival_consume.payload END,
             rival_consume.transport)
        ON CONFLICT DO NOTHING;
        IF FOUND THEN
            RETURN ROW('first', NULL, NULL, NULL)::rival.consumption;
        END IF;

        SELECT * INTO event FROM rival.event AS e WHERE e.key = rival_consume.key;
        CONTINUE WHEN NOT FOUND;
        IF event.revision <> contract_revision THEN
            SELECT CASE WHEN c.digest_include IS NULL AND c.digest_exclude IS NULL
                        THEN sha256(convert_to(rival_consume.payload::text, 'UTF8'))
                        ELSE rival.digest(rival_consume.payload, c.digest_include,
                                          c.digest_exclude)
                   END
            INTO given_digest
            FROM rival.consumer AS c
            WHERE c.consumer = split_part(rival_consume.key, '/', 2)
              AND c.revision = event.revision;
        END IF;
        IF given_digest IS DISTINCT FROM event.digest THEN
            RETURN ROW('conflict', NULL,
                       CASE WHEN event.params IS NOT NULL
                            THEN ARRAY(SELECT rival.differences(event.params, payload))
                       END,
                       NULL)::rival.consumption;
        END IF;
        RETURN ROW('duplicate', event.result, NULL, event.result_digest)::rival.consumption;
    END LOOP;
END
$$;

-- As rival_consume(), for a caller that expects a duplicate.
CREATE FUNCTION rival_consume_again(key text, payload jsonb, occurred_at timestamptz DEFAULT NULL,
                                    transport jsonb DEFAULT NULL)
RETURNS rival.consumption LANGUAGE plpgsql AS $$
DECLARE
    stored_revision integer;
    stored_digest bytea;
    stored_result jsonb;
    stored_result_digest bytea;
    include text[];
    exclude text[];
    given_digest bytea;
BEGIN
    SELECT e.revision, e.digest, e.result, e.result_digest
    INTO stored_revision, stored_digest, stored_result, stored_result_digest
    FROM rival.event AS e WHERE e.key = rival_consume_again.key;
    IF FOUND THEN
        SELECT c.digest_include, c.digest_exclude INTO include, exclude
        FROM rival.consumer AS c
        WHERE c.consumer = split_part(rival_consume_again.key, '/', 2)
          AND c.revision = stored_revision;
        IF include IS NULL AND exclude IS NULL THEN
            given_digest := sha256(convert_to(payload::text, 'UTF8'));
        ELSE
            given_digest := rival.digest(payload, include, exclude);
        END IF;
        IF given_digest = stored_digest THEN
            RETURN ROW('duplicate', stored_result, NULL, stored_result_digest)::rival.consumption;
        END IF;
    END IF;
    RETURN rival_consume(key, payload, occurred_at, transport);
END
$$;

-- Keeps a result with an event that this transaction consumed.
CREATE FUNCTION rival_consume_result(key text, result jsonb) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE rival.event AS e SET result = rival_consume_result.result
    WHERE e.key = rival_consume_result.key AND e.xmin = pg_current_xact_id()::xid
      AND e.result IS NULL;
    IF FOUND THEN
        RETURN;
    ELSIF NOT EXISTS (SELECT FROM rival.event AS e WHERE e.key = rival_consume_result.key) THEN
        RAISE 'event "%" is not on record', key USING ERRCODE = 'ID005';
    ELSIF NOT EXISTS (SELECT FROM rival.event AS e
                      WHERE e.key = rival_consume_result.key
                        AND e.xmin = pg_current_xact_id()::xid) THEN
        RAISE 'event "%" was consumed by another transaction', key USING ERRCODE = 'ID003';
    ELSIF NOT EXISTS (SELECT FROM rival.event AS e
                      WHERE e.key = rival_consume_result.key
                        AND e.result IS NOT DISTINCT FROM rival_consume_result.result) THEN
        RAISE 'event "%" has another result already', key USING ERRCODE = 'ID004';
    END IF;
END
$$;
