/* event: what was consumed, one row an event and consumer, never updated once committed */

CREATE TABLE idem_event (
    key idem_key PRIMARY KEY,
    revision integer NOT NULL,
    digest idem_digest NOT NULL,
    occurred_at timestamptz,
    recorded_at timestamptz NOT NULL,
    params jsonb,
    result jsonb,
    transport jsonb,
    replay_batch text,
    result_digest idem_digest
);

COMMENT ON TABLE idem_event IS 'the inbox: one row for each event that a consumer has consumed; written by the functions of idem_action only';
COMMENT ON COLUMN idem_event.revision IS 'the revision of the consumer''s contract under which the payload was digested';
COMMENT ON COLUMN idem_event.params IS 'the payload, where the contract keeps it';
COMMENT ON COLUMN idem_event.transport IS 'identity of the message that brought it; evidence, never compared';
COMMENT ON COLUMN idem_event.replay_batch IS 'the setting idem_action.replay_batch of whoever replayed it';
COMMENT ON COLUMN idem_event.result_digest IS 'of the result that was dropped after the contract''s result_retention';

SELECT pg_catalog.pg_extension_config_dump('idem_event', '');

REVOKE ALL ON idem_event FROM PUBLIC;
