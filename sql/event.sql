-- event: the record of what was consumed
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS idem_action;
RESET client_min_messages;
SELECT idem_define_consumer('event'), idem_define_consumer('event_nop', keep_params => false);

-- one row in, with one index entry
SELECT conname, contype FROM pg_constraint WHERE conrelid = 'idem_event'::regclass
    AND contype <> 'n';
SELECT count(*), bool_and(indisprimary) FROM pg_index WHERE indrelid = 'idem_event'::regclass;
SELECT 'idem_event'::regclass = ANY (extconfig) AND 'idem_consumer'::regclass = ANY (extconfig)
    AS dumped
FROM pg_extension WHERE extname = 'idem_action';

-- what is kept of an event: the digest always, the payload if the contract says so, and how it came
SELECT outcome FROM idem_consume('ev/event/1', '{"n": 1.50}');
SELECT outcome FROM idem_consume('ev/event/2', '{"n": 1.50}', '2026-01-01 00:00+00',
    '{"topic": "t", "offset": 7}');
SELECT outcome FROM idem_consume('ev/event_nop/1', '{"n": 1.50}', transport => '{"delivery": 1}');
SELECT outcome FROM idem_consume_batch('{ev/event/4,ev/event/3}', '{"{\"n\": 4}","{\"n\": 3}"}',
                                       ARRAY[NULL, '2026-01-03 00:00+00']::timestamptz[],
                                       ARRAY['{"offset": 8}', NULL]::jsonb[]);
SELECT outcome FROM idem_consume_batch('{ev/event_nop/2}', '{"{\"n\": 1.5}"}');
SELECT key, revision, digest = idem_digest('{"n": 1.5}'::jsonb) AS digest,
       occurred_at AT TIME ZONE 'UTC' AS occurred_at, params, result, transport,
       recorded_at BETWEEN now() - interval '1 h' AND clock_timestamp() AS recorded
FROM idem_event WHERE idem_key_tenant(key) = 'ev' ORDER BY key;

-- how and when it came is never compared: neither hides another event, nor makes one of two
SELECT outcome FROM idem_consume('ev/event/5', '{"n": 1}', '2026-01-01 00:00+00',
    '{"topic": "t", "offset": 7}')
UNION ALL SELECT outcome FROM idem_consume('ev/event/2', '{"n": 1.5}', '2027-01-01 00:00+00',
    '{"offset": 9}')
UNION ALL SELECT outcome FROM idem_consume('ev/event/2', '{"n": 1.5}')
UNION ALL SELECT outcome FROM idem_consume_batch('{ev/event/2}', '{"{\"n\": 1.5}"}', NULL,
    '{"{\"offset\": 10}"}');
SELECT transport FROM idem_event WHERE key = 'ev/event/2';

-- whoever comes again writes nothing and takes no transaction id
CREATE TEMPORARY TABLE before AS
    SELECT ctid AS row, xmin::text AS writer, e::text AS value FROM idem_event e;
BEGIN;
SELECT outcome FROM idem_consume('ev/event/1', '{"n": 1.5}')
UNION ALL SELECT outcome FROM idem_consume('ev/event/1', '{"n": 2}')
UNION ALL SELECT outcome FROM idem_consume('ev/event_nop/1', '{"n": 1.5}')
UNION ALL SELECT outcome FROM idem_consume('ev/event_nop/1', '{"n": 2}')
UNION ALL SELECT outcome FROM idem_consume_batch('{ev/event/4,ev/event/1,ev/event/4,ev/event/3}',
    '{"{\"n\": 4}","{\"n\": 2}","{\"n\": 4.0}","{\"n\": 3}"}');
SELECT pg_current_xact_id_if_assigned();
COMMIT;
-- under other isolation levels too
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT outcome FROM idem_consume('ev/event/1', '{"n": 1.5}')
UNION ALL SELECT outcome FROM idem_consume_batch('{ev/event/4,ev/event/3}',
    '{"{\"n\": 4}","{\"n\": 2}"}');
SELECT pg_current_xact_id_if_assigned();
COMMIT;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT outcome FROM idem_consume('ev/event/1', '{"n": 1.5}')
UNION ALL SELECT outcome FROM idem_consume_batch('{ev/event/4,ev/event/3}',
    '{"{\"n\": 4}","{\"n\": 2}"}');
SELECT pg_current_xact_id_if_assigned();
COMMIT;
SELECT count(*)
FROM (SELECT ctid, xmin::text, e::text FROM idem_event e EXCEPT TABLE before) changed;
-- beside a write of its own it touches nothing either: a row for each first, no more
BEGIN;
SELECT pg_stat_get_xact_tuples_inserted('idem_event'::regclass) AS inserted,
       pg_stat_get_xact_tuples_updated('idem_event'::regclass) AS updated,
       pg_stat_get_xact_tuples_deleted('idem_event'::regclass) AS deleted \gset before_
SELECT outcome FROM idem_consume('ev/event/6', '1');
SELECT outcome FROM idem_consume('ev/event/6', '1')
UNION ALL SELECT outcome FROM idem_consume('ev/event/6', '2')
UNION ALL SELECT outcome FROM idem_consume('ev/event/1', '{"n": 1.5}')
UNION ALL SELECT outcome FROM idem_consume_batch('{ev/event/6,ev/event/1,ev/event/7,ev/event/7}',
    '{1,"{\"n\": 1.5}",7,7}');
SELECT pg_stat_get_xact_tuples_inserted('idem_event'::regclass) - :before_inserted AS inserted,
       pg_stat_get_xact_tuples_updated('idem_event'::regclass) - :before_updated AS updated,
       pg_stat_get_xact_tuples_deleted('idem_event'::regclass) - :before_deleted AS deleted;
COMMIT;

-- documents of any size come back as they were
CREATE TEMPORARY TABLE document AS
    SELECT n, jsonb_build_object('n', (SELECT string_agg(md5(i::text), '')
                                       FROM generate_series(1, n) i)) AS d
    FROM unnest(ARRAY[1, 100, 3000, 30000]) n;
SELECT n, (SELECT outcome FROM idem_consume(idem_key('ev', 'event', 'size-' || n), d,
                                            transport => d)) AS single
FROM document ORDER BY n;
SELECT n, (SELECT outcome FROM idem_consume(idem_key('ev', 'event', 'size-' || n), d || '{"m": 1}'))
    AS single
FROM document ORDER BY n;
SELECT b.position, b.outcome, b.payload = d AS same
FROM (SELECT array_agg(idem_key('ev', 'event', 'batch-' || n) ORDER BY n) AS keys,
             array_agg(d ORDER BY n) AS payloads FROM document) a,
     idem_consume_batch(a.keys || a.keys, a.payloads || a.payloads, NULL,
         a.payloads || a.payloads) b,
     document WHERE b.key = idem_key('ev', 'event', 'batch-' || n) ORDER BY b.position;
SELECT n, params = d AS params, transport = d AS transport
FROM document JOIN idem_event ON key IN (idem_key('ev', 'event', 'size-' || n),
                                         idem_key('ev', 'event', 'batch-' || n))
ORDER BY n, key;
BEGIN;
SELECT outcome FROM idem_consume('ev/event/result', '1');
SELECT idem_consume_result('ev/event/result', d) FROM document WHERE n = 30000;
COMMIT;
SELECT outcome, result = d AS same FROM document, idem_consume('ev/event/result', '1')
    WHERE n = 30000;
SELECT outcome, result = d AS same FROM document, idem_consume_batch('{ev/event/result}', '{1}')
    WHERE n = 30000;

-- many, and keys that differ late or in length only
SELECT count(*), count(DISTINCT position), min(position), max(position),
       bool_and(outcome = 'first') AS first
FROM (SELECT array_agg(idem_key('ev', 'event', 'many-' || i) ORDER BY md5(i::text)) AS keys,
             array_agg(to_jsonb(i) ORDER BY md5(i::text)) AS payloads
      FROM generate_series(1, 5000) i) a, idem_consume_batch(a.keys, a.payloads);
SELECT outcome, count(*)
FROM (SELECT array_agg(idem_key('ev', 'event', 'many-' || i % 6000 + 1) ORDER BY i) AS keys,
             array_agg(to_jsonb(i % 6000 + 1) ORDER BY i) AS payloads
      FROM generate_series(1, 12000) i) a, idem_consume_batch(a.keys, a.payloads)
GROUP BY 1 ORDER BY 1;
SELECT count(*) FROM idem_event WHERE idem_key_id(key) LIKE 'many-%'
    AND params::text = substr(idem_key_id(key), 6);
SELECT outcome, count(*)
FROM (SELECT array_agg(idem_key('ev', 'event', repeat('x', 503 - i))) AS keys,
             array_agg(to_jsonb(1)) AS payloads
      FROM generate_series(0, 20) i) a, idem_consume_batch(a.keys, a.payloads) GROUP BY 1;

-- deleted by hand, it is new
DELETE FROM idem_event WHERE key = 'ev/event/1';
SELECT outcome FROM idem_consume('ev/event/1', '{"n": 2}');

-- applications have nothing to do with the table
CREATE ROLE regress_idem_event;
SET ROLE regress_idem_event;
\set VERBOSITY sqlstate
SELECT count(*) FROM idem_event;
INSERT INTO idem_event SELECT * FROM idem_event;
DELETE FROM idem_event;
\set VERBOSITY default
RESET ROLE;
DROP ROLE regress_idem_event;

-- what the library does not know how to read is refused, a column that a later release adds is not
BEGIN;
ALTER TABLE idem_event ADD COLUMN later text;
SELECT outcome FROM idem_consume('ev/event/1', '{"n": 2}') UNION ALL SELECT outcome
    FROM idem_consume('ev/event/later', '1');
SELECT outcome FROM idem_consume_batch('{ev/event/1,ev/event/later2}', '{"{\"n\": 2}",1}');
\set VERBOSITY sqlstate
ALTER TABLE idem_event DROP COLUMN transport;
SELECT outcome FROM idem_consume('ev/event/1', '{"n": 2}');
ROLLBACK;
BEGIN;
ALTER TABLE idem_event SET UNLOGGED;
SELECT outcome FROM idem_consume('ev/event/1', '{"n": 2}');
ROLLBACK;
BEGIN;
ALTER TABLE idem_event DROP CONSTRAINT idem_event_pkey;
SELECT outcome FROM idem_consume('ev/event/1', '{"n": 2}');
ROLLBACK;
\set VERBOSITY default
SELECT outcome FROM idem_consume('ev/event/1', '{"n": 2}');
