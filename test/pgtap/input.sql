-- input.sql: bad input.  Every argument of every function with null, empty, oversized, malformed
-- and wrongly typed values, unknown keys and undefined operations, without privileges and in a
-- read-only transaction: the right SQLSTATE, nothing written, and no word of params or results.
\set ON_ERROR_STOP on
\set ON_ERROR_ROLLBACK off
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pgtap;
CREATE EXTENSION IF NOT EXISTS idem_action;
SET session_replication_role = replica;		-- lets go of actions in flight
DELETE FROM idem_lease WHERE idem_key_tenant(key) = 'input';
DELETE FROM idem_action WHERE idem_key_tenant(key) = 'input';
RESET session_replication_role;
SELECT FROM idem_define_operation('INPUT', 'external');
SELECT FROM idem_define_operation('INPUT_L');
SELECT FROM idem_define_operation('INPUT_Q', 'external', channel_queryable => true,
                                  absence_visible_after => '0');
CREATE FUNCTION public.input_handler(params jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT params';

-- a call of each function that is legal but for what replaces one of its arguments
CREATE TEMPORARY TABLE legal (name text, args jsonb);
INSERT INTO legal VALUES
    ('idem_submit',
     $${"key": "'input/INPUT/1'", "params": "'{\"a\": \"s3cr3t\"}'", "occurred_at": "NULL"}$$),
    ('idem_claim', $${"key": "'input/INPUT/2'", "params": "'{\"a\": \"s3cr3t\"}'", "occurred_at": "NULL",
                      "owner": "NULL", "lease": "NULL", "nowait": "false"}$$),
    ('idem_reclaim', $${"key": "'input/INPUT/pending'", "owner": "NULL", "lease": "NULL"}$$),
    ('idem_cancel', $${"key": "'input/INPUT/3'", "detail": "'\"s3cr3t\"'"}$$),
    ('idem_status', $${"key": "'input/INPUT/4'"}$$),
    ('idem_renew', $${"key": "'input/INPUT/owned'", "generation": "1", "lease": "NULL"}$$),
    ('idem_complete', $${"key": "'input/INPUT/owned'", "generation": "1", "result": "'\"s3cr3t\"'",
                         "channel_ref": "'ref'"}$$),
    ('idem_reject', $${"key": "'input/INPUT/owned'", "generation": "1", "error": "'\"s3cr3t\"'"}$$),
    ('idem_mark_unknown', $${"key": "'input/INPUT/owned'", "generation": "1", "detail": "'\"s3cr3t\"'",
                             "retry_after": "NULL"}$$),
    ('idem_release', $${"key": "'input/INPUT/owned'", "generation": "1", "detail": "'\"s3cr3t\"'",
                        "retry_after": "NULL"}$$),
    ('idem_absent',
     $${"key": "'input/INPUT_Q/verified'", "generation": "2", "detail": "'\"s3cr3t\"'"}$$),
    ('idem_escalate',
     $${"key": "'input/INPUT/owned'", "generation": "1", "detail": "'\"s3cr3t\"'"}$$),
    ('idem_resolve', $${"key": "'input/INPUT/review'", "generation": "1", "state": "'succeeded'",
                        "note": "'s3cr3t'", "result": "'\"s3cr3t\"'", "channel_ref": "'ref'"}$$),
    ('idem_once',
     $${"key": "'input/INPUT_L/1'", "params": "'{\"a\": \"s3cr3t\"}'", "occurred_at": "NULL"}$$),
    ('idem_call', $${"key": "'input/INPUT_L/2'", "params": "'{\"a\": \"s3cr3t\"}'",
                     "handler": "'input_handler'", "occurred_at": "NULL"}$$);
SELECT FROM idem_submit('input/INPUT/pending', '{"a": "s3cr3t"}');
SELECT FROM idem_claim('input/INPUT/owned', '{"a": "s3cr3t"}');
SELECT FROM idem_claim('input/INPUT/review', '{"a": "s3cr3t"}');
SELECT FROM idem_escalate('input/INPUT/review', 1);
SELECT FROM idem_claim('input/INPUT_Q/verified', '{"a": "s3cr3t"}');
UPDATE idem_lease SET lease_until = lease_until - interval '1 h',
    call_until = call_until - interval '1 h'
WHERE key = 'input/INPUT_Q/verified';
SELECT FROM idem_claim('input/INPUT_Q/verified', '{"a": "s3cr3t"}');

-- what is tried, and the code that is right for it
CREATE TEMPORARY TABLE bad (argument text, value text, code text);
INSERT INTO bad VALUES
    ('key', 'NULL', '22004'), ('key', $$''$$, '22P02'), ('key', $$'input'$$, '22P02'),
    ('key', $$'input/INPUT'$$, '22P02'), ('key', $$'input/INPUT/'$$, '22P02'),
    ('key', $$'input/INPUT/1 '$$, '22P02'), ('key', $$E'input/INPUT/1\n'$$, '22P02'),
    ('key', $$'input/INPUT/' || repeat('x', 512)$$, '22P02'), ('key', '42', '42883'),
    ('params', 'NULL', '22004'), ('params', $$''$$, '22P02'), ('params', $$'{"a": '$$, '22P02'),
    ('params', $$'"\ud800"'$$, '22P02'), ('params', $$'"\u0000"'$$, '22P05'),
    ('params', $$'1e200000'$$, '22003'), ('params', '42', '42883'),
    ('occurred_at', $$'infinity'$$, '22023'), ('occurred_at', $$'-infinity'$$, '22023'),
    ('occurred_at', $$'soon'$$, '22007'), ('occurred_at', $$''$$, '22007'),
        ('occurred_at', '42', '42883'),
    ('owner', $$''$$, '22023'), ('owner', $$repeat('x', 513)$$, '22023'),
        ('owner', $$E'a\nb'$$, '22023'),
    ('owner', '42', '42883'),
    ('lease', $$'0'$$, '22023'), ('lease', $$'-1 s'$$, '22023'), ('lease', $$'25 h'$$, '22023'),
    ('lease', $$'1000 years'$$, '22023'), ('lease', $$'-178000000 years'$$, '22023'),
    ('lease', $$'soon'$$, '22007'), ('lease', '42', '42883'),
    ('nowait', $$'perhaps'$$, '22P02'), ('nowait', '42', '42883'),
    ('generation', 'NULL', 'ID002'), ('generation', '0', 'ID002'), ('generation', '-1', 'ID002'),
    ('generation', '9223372036854775807', 'ID002'), ('generation', $$'one'$$, '22P02'),
    ('generation', $$''$$, '22P02'), ('generation', '1.5', '42883'),
    ('generation', '9223372036854775808', '42883'),
    ('result', $$''$$, '22P02'), ('result', $$'{"a": '$$, '22P02'), ('result', '42', '42883'),
    ('error', $$''$$, '22P02'), ('error', $$'{"a": '$$, '22P02'), ('error', '42', '42883'),
    ('detail', $$''$$, '22P02'), ('detail', $$'{"a": '$$, '22P02'), ('detail', '42', '42883'),
    ('channel_ref', $$''$$, '22023'), ('channel_ref', $$repeat('x', 513)$$, '22023'),
    ('channel_ref', $$E'a\x01b'$$, '22023'), ('channel_ref', '42', '42883'),
    ('retry_after', $$'-1 s'$$, '22023'), ('retry_after', $$'30 days 1 us'$$, '22023'),
    ('retry_after', $$'178000000 years'$$, '22023'), ('retry_after', $$'soon'$$, '22007'),
    ('retry_after', '42', '42883'),
    ('state', 'NULL', '22004'), ('state', $$''$$, '22023'), ('state', $$'review'$$, '22023'),
    ('state', $$'PENDING'$$, '22023'), ('state', '42', '42883'),
    ('note', 'NULL', '22004'), ('note', $$''$$, '22023'), ('note', '42', '42883'),
    ('handler', 'NULL', '22004'), ('handler', $$''$$, '42602'), ('handler', $$'a..b'$$, '42602'),
    ('handler', $$'no_such_handler'$$, '42883'), ('handler', $$'no_such_schema.f'$$, '42883'),
    ('handler', $$'now'$$, '42883'), ('handler', $$repeat('x', 10000)$$, '42883'),
    ('handler', $$'jsonb_array_elements'$$, '42809'), ('handler', $$'jsonb_typeof'$$, '42809'),
    ('handler', '42', '42883');
CREATE TEMPORARY TABLE tries AS
    SELECT name || ': ' || argument || ' is ' || value AS what, code,
           name AS function, jsonb_set(args, ARRAY[argument], to_jsonb(value)) AS args
    FROM legal, bad WHERE args ? argument
    UNION ALL
    -- nobody defined the operation, or nobody knows the key
    SELECT name || ': undefined operation', 'ID006', name,
        jsonb_set(args, '{key}', $$"'input/UNDEFINED/1'"$$)
    FROM legal WHERE name <> 'idem_status'
    UNION ALL
    SELECT name || ': unknown key', 'ID005', name,
        jsonb_set(args, '{key}', $$"'input/INPUT/unknown'"$$)
    FROM legal WHERE args ? 'generation' OR name = 'idem_reclaim'
    UNION ALL
    -- the other kind of operation
    SELECT name || ': the operation is local', 'ID003', name,
           jsonb_set(jsonb_set(args, '{key}', $$"'input/INPUT_L/done'"$$), '{generation}', '"1"',
                     args ? 'generation')
    FROM legal WHERE name NOT IN ('idem_claim', 'idem_complete', 'idem_reject', 'idem_cancel',
                                  'idem_status', 'idem_once', 'idem_call')
    UNION ALL
    SELECT name || ': the operation is external', 'ID003', name,
        jsonb_set(args, '{key}', $$"'input/INPUT/5'"$$)
    FROM legal WHERE name IN ('idem_once', 'idem_call');
SELECT FROM idem_once('input/INPUT_L/done', '{}');

-- The code of what was raised, and all that was said, which must not show a secret.  A call that
-- raises nothing is undone too.
CREATE FUNCTION pg_temp.try(function text, args jsonb, as_role text, read_only boolean)
RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    given text;
    message text;
    detail text;
    hint text;
BEGIN
    SELECT string_agg(key || ' => ' || value, ', ') INTO given FROM jsonb_each_text(args);
    IF read_only THEN
        SET LOCAL transaction_read_only = on;
    END IF;
    IF as_role IS NOT NULL THEN
        EXECUTE format('SET LOCAL ROLE %I', as_role);
    END IF;
    EXECUTE format('SELECT * FROM %s(%s)', function, given);
    RAISE EXCEPTION 'nothing was raised' USING errcode = 'UU000';
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL,
        hint = PG_EXCEPTION_HINT;
    RETURN SQLSTATE || CASE WHEN message || detail
        || hint LIKE '%s3cr3t%' THEN ' leaks' ELSE '' END;
END $$;
CREATE TEMPORARY TABLE before AS SELECT ctid AS row, a.*::text AS value FROM idem_action a;
CREATE TEMPORARY TABLE leases_before AS SELECT ctid AS row, l.*::text AS value FROM idem_lease l;
SELECT plan((SELECT count(*) FROM tries)::int + 3 * (SELECT count(*) FROM legal)::int + 5);

SELECT is(pg_temp.try(function, args, NULL, false), code, what) FROM tries;

-- each is legal as it stands, so that it was the bad argument that was refused
SELECT is(pg_temp.try(name, args, NULL, false), 'UU000', name || ': legal') FROM legal;

-- a status of a key that nobody knows is no row, not an error
SELECT is_empty($$SELECT * FROM idem_status('input/UNDEFINED/1')$$,
                'idem_status: undefined operation');
SELECT is_empty($$SELECT * FROM idem_status('input/INPUT/unknown')$$, 'idem_status: unknown key');

-- without privileges, and in a read-only transaction
CREATE ROLE idem_action_input;
SELECT is(pg_temp.try(name, args, 'idem_action_input', false), '42501', name || ': no privilege')
FROM legal;
DROP ROLE idem_action_input;
SELECT is(pg_temp.try(name, args, NULL, true),
          CASE name WHEN 'idem_status' THEN 'UU000' ELSE '25006' END,
          name || ': read-only transaction') FROM legal;

SELECT results_eq('SELECT ctid, a.*::text FROM idem_action a', 'TABLE before',
                  'no action was written');
SELECT results_eq('SELECT ctid, l.*::text FROM idem_lease l', 'TABLE leases_before',
                  'no lease was written');
-- the next call of the session works
SELECT is((SELECT outcome FROM idem_claim('input/INPUT/last', '{}')), 'execute',
          'the next call works');

SELECT * FROM finish();
DROP FUNCTION public.input_handler(jsonb);
