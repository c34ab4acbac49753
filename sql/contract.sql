-- contract: declaring operations
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS idem_action;
RESET client_min_messages;

-- what is left out takes its default
SELECT idem_define_operation('CON');
SELECT revision, effect, channel, lease, digest_include, digest_exclude, channel_idempotent,
       channel_key_ttl, channel_queryable, absence_visible_after
FROM idem_contract WHERE operation = 'CON';
SELECT max_attempts, backoff_base, backoff_max, keep_params,
       defined_by = current_user AS by_me, defined_at <= clock_timestamp() AS by_now
FROM idem_contract WHERE operation = 'CON';

-- every field is kept as given
SELECT idem_define_operation('CON_ALL', 'external', 'psp', '45 s', ARRAY['/a', '/b/0'], NULL,
                             true, '1 day', true, '90 s', 3, '2 s', '3 min', true);
SELECT revision, effect, channel, lease, digest_include, digest_exclude, channel_idempotent,
       channel_key_ttl, channel_queryable, absence_visible_after, max_attempts, backoff_base,
       backoff_max, keep_params
FROM idem_contract WHERE operation = 'CON_ALL' \gx

-- a revision is written only if something changed, whatever it looks like
SELECT idem_define_operation('CON', 'local') AS same,
       idem_define_operation('CON', channel => 'CON') AS also_same,
       idem_define_operation('CON', lease => '00:00:30') AS still_same;
SELECT idem_define_operation('CON', lease => '31 s') AS changed,
       idem_define_operation('CON', lease => '31000 ms') AS same;
SELECT idem_define_operation('CON') AS default_again;
-- one field at a time: how many revisions a change is, and how many the way back
CREATE FUNCTION contract_change(base text, field text, OUT change int, OUT back int)
LANGUAGE plpgsql AS $$
DECLARE
    before int;
    meanwhile int;
    after int;
BEGIN
    EXECUTE format('SELECT idem_define_operation(''CON_ONE'', %s)', base) INTO before;
    EXECUTE format('SELECT idem_define_operation(''CON_ONE'', %s, %s)', base, field) INTO meanwhile;
    EXECUTE format('SELECT idem_define_operation(''CON_ONE'', %s)', base) INTO after;
    change := meanwhile - before;
    back := after - meanwhile;
END $$;
SET client_min_messages = warning;
SELECT field, c.* FROM (VALUES
    ('lease => ''31 s'''), ('lease => ''30000 ms'''), ('channel => ''other'''),
        ('channel => ''CON_ONE'''),
    ('digest_include => ''{/a}'''), ('digest_exclude => ''{/a}'''), ('max_attempts => 9'),
    ('max_attempts => 10'), ('backoff_base => ''2 s'''), ('backoff_max => ''6 min'''),
    ('keep_params => false'), ('keep_params => true'),
    ('channel_idempotent => true, channel_key_ttl => ''1 h'''),
    ('channel_queryable => true, absence_visible_after => ''1 h''')) AS f (field),
    LATERAL contract_change('''external''', field) c;
SELECT idem_define_operation('CON_ONE', 'external', digest_exclude => '{/a}') <
       idem_define_operation('CON_ONE', 'external',
                             digest_exclude => '{/a,/b}') AS one_more_pointer,
       idem_define_operation('CON_ONE', 'external', digest_exclude => '{/a,/b}') <
       idem_define_operation('CON_ONE', 'external', digest_include => '{/a,/b}') AS other_list,
       idem_define_operation('CON_ONE', 'external', channel_idempotent => true,
                             channel_key_ttl => '1 h') <
       idem_define_operation('CON_ONE', 'external', channel_idempotent => true,
                             channel_key_ttl => '2 h') AS key_ttl,
       idem_define_operation('CON_ONE', 'external', channel_queryable => true,
                             absence_visible_after => '1 h') <
       idem_define_operation('CON_ONE', 'external', channel_queryable => true,
                             absence_visible_after => '2 h') AS absence,
       idem_define_operation('CON_ONE', 'external') < idem_define_operation('CON_ONE') AS effect;
RESET client_min_messages;
DROP FUNCTION contract_change;
SELECT count(*) = max(revision) AS without_gaps FROM idem_contract WHERE operation = 'CON_ONE';
-- what promises less than before says so: a definition is whole
SELECT idem_define_operation('CON_LESS', 'external', channel_idempotent => true,
                             channel_key_ttl => '1 h');
SELECT idem_define_operation('CON_LESS', 'external');
SELECT idem_define_operation('CON_LESS', 'external', lease => '1 min');
-- all of it at once
SELECT idem_define_operation('CON_LESS', 'external', channel_idempotent => true, channel_key_ttl => '1 h',
                             channel_queryable => true, absence_visible_after => '1 min');
SELECT idem_define_operation('CON_LESS', 'external', channel_idempotent => true, channel_key_ttl => '59 min',
                             channel_queryable => true, absence_visible_after => '2 min');
SELECT idem_define_operation('CON_LESS', 'external', channel => 'elsewhere');

-- names are not folded, and may hold what a key's operation may
SELECT idem_define_operation('con') AS "con", idem_define_operation('Überweisung-"1"') AS quoted;
SELECT idem_once('con/Überweisung-"1"/1', '{}');

-- what is no operation
\set VERBOSITY terse
SELECT idem_define_operation(NULL);
SELECT idem_define_operation('');
SELECT idem_define_operation('A B');
SELECT idem_define_operation(' A');
SELECT idem_define_operation('A/B');
SELECT idem_define_operation(E'A\x01');
SELECT idem_define_operation(repeat('x', 600));
\set VERBOSITY sqlstate
SELECT idem_define_operation(NULL);
SELECT idem_define_operation('');
SELECT idem_define_operation('A/B');
SELECT idem_define_operation(repeat('x', 600));
\set VERBOSITY terse

-- effect and channel
SELECT idem_define_operation('CON_BAD', NULL);
SELECT idem_define_operation('CON_BAD', '');
SELECT idem_define_operation('CON_BAD', 'Local');
SELECT idem_define_operation('CON_BAD', 'external', channel => '');
SELECT idem_define_operation('CON_BAD', 'external', channel => repeat('x', 513));
SELECT idem_define_operation('CON_BAD', 'external', channel => E'a\nb');

-- times
SELECT idem_define_operation('CON_BAD', lease => NULL);
SELECT idem_define_operation('CON_BAD', lease => '0');
SELECT idem_define_operation('CON_BAD', lease => '-30 s');
SELECT idem_define_operation('CON_BAD', lease => '99 ms');
SELECT idem_define_operation('CON_BAD', lease => '24 h 1 us');
SELECT idem_define_operation('CON_BAD', lease => '1 month');
SELECT idem_define_operation('CON_BAD', lease => '178000000 years');
SELECT idem_define_operation('CON_BAD', lease => '-178000000 years');
SELECT idem_define_operation('CON_BAD', backoff_base => NULL);
SELECT idem_define_operation('CON_BAD', backoff_base => '-1 us');
SELECT idem_define_operation('CON_BAD', backoff_base => '31 days', backoff_max => '31 days');
SELECT idem_define_operation('CON_BAD', backoff_max => NULL);
SELECT idem_define_operation('CON_BAD', backoff_base => '2 s', backoff_max => '1 s');
SELECT idem_define_operation('CON_BAD', backoff_max => '30 days 1 us');
SELECT idem_define_operation('CON_BAD', 'external', channel_idempotent => true,
                             channel_key_ttl => '0');
SELECT idem_define_operation('CON_BAD', 'external', channel_idempotent => true,
                             channel_key_ttl => '-1 day');
SELECT idem_define_operation('CON_BAD', 'external', channel_queryable => true,
                             absence_visible_after => '-1 s');
SELECT idem_define_operation('CON_BAD', 'external', channel_queryable => true,
                             absence_visible_after => '31 days');

-- promises
SELECT idem_define_operation('CON_BAD', 'external', channel_idempotent => NULL);
SELECT idem_define_operation('CON_BAD', 'external', channel_idempotent => true);
SELECT idem_define_operation('CON_BAD', 'external', channel_key_ttl => '1 day');
SELECT idem_define_operation('CON_BAD', 'external', channel_queryable => NULL);
SELECT idem_define_operation('CON_BAD', 'external', channel_queryable => true);
SELECT idem_define_operation('CON_BAD', 'external', absence_visible_after => '1 day');
SELECT idem_define_operation('CON_BAD', channel_idempotent => true, channel_key_ttl => '1 day');
SELECT idem_define_operation('CON_BAD', channel_queryable => true, absence_visible_after => '1 s');

-- attempts and parameters
SELECT idem_define_operation('CON_BAD', max_attempts => NULL);
SELECT idem_define_operation('CON_BAD', max_attempts => 0);
SELECT idem_define_operation('CON_BAD', max_attempts => -1);
SELECT idem_define_operation('CON_BAD', max_attempts => 1000001);
SELECT idem_define_operation('CON_BAD', keep_params => NULL);
SELECT idem_define_operation('CON_BAD', 'external', channel_idempotent => true,
                             channel_key_ttl => '1 day', keep_params => false);

-- pointers
\set VERBOSITY sqlstate
SELECT idem_define_operation('CON_BAD', digest_include => '{}');
SELECT idem_define_operation('CON_BAD', digest_exclude => '{}');
SELECT idem_define_operation('CON_BAD', digest_include => '{/a}', digest_exclude => '{/b}');
SELECT idem_define_operation('CON_BAD', digest_include => '{{/a},{/b}}');
SELECT idem_define_operation('CON_BAD', digest_include => '{/a,NULL}');
SELECT idem_define_operation('CON_BAD', digest_include => '{/a,/a}');
SELECT idem_define_operation('CON_BAD', digest_include => '{a}');
SELECT idem_define_operation('CON_BAD', digest_include => '{/a~2}');
SELECT idem_define_operation('CON_BAD', digest_include => ARRAY['']);
SELECT idem_define_operation('CON_BAD', digest_exclude => ARRAY['']);
SELECT count(*) FROM idem_contract WHERE operation = 'CON_BAD';

-- the codes: 22004 for a null, 22023 for what does not fit
\set VERBOSITY sqlstate
SELECT idem_define_operation('CON_BAD', NULL);
SELECT idem_define_operation('CON_BAD', lease => NULL);
SELECT idem_define_operation('CON_BAD', 'Local');
SELECT idem_define_operation('CON_BAD', lease => '0');
SELECT idem_define_operation('CON_BAD', channel => '');
SELECT idem_define_operation('CON_BAD', max_attempts => 0);
SELECT idem_define_operation('CON_BAD', 'external', channel_idempotent => true);
SELECT idem_define_operation('CON_BAD', lease => 'soon');
BEGIN READ ONLY;
SELECT idem_define_operation('CON');
ROLLBACK;
BEGIN READ ONLY;
SELECT idem_drop_operation('CON');
ROLLBACK;
\set VERBOSITY default

-- bounds that are allowed
SELECT idem_define_operation('CON_EDGE', 'external', lease => '100 ms', max_attempts => 1,
                             backoff_base => '0', backoff_max => '0');
SELECT idem_define_operation('CON_EDGE', 'external', lease => '24 h', max_attempts => 1000000,
                             backoff_base => '30 days', backoff_max => '30 days');
SELECT idem_define_operation('CON_EDGE', 'external',
                             channel_idempotent => true, channel_key_ttl => '178000000 years',
                             channel_queryable => true, absence_visible_after => '0');
SELECT idem_define_operation('CON_EDGE', 'external',
                             channel_queryable => true, absence_visible_after => '30 days');

-- a contract counts at once, also in the transaction that writes it, and not once it is undone
SELECT idem_define_operation('CON_NOW', 'external', lease => '10 s');
BEGIN;
SELECT idem_define_operation('CON_NOW', 'external', lease => '20 s');
SELECT outcome FROM idem_claim('con/CON_NOW/1', '{}');
SELECT lease_until - granted_at AS lease FROM idem_lease WHERE key = 'con/CON_NOW/1';
SAVEPOINT a;
SELECT idem_define_operation('CON_NOW', 'external', lease => '40 s');
SELECT outcome FROM idem_claim('con/CON_NOW/2', '{}');
SELECT lease_until - granted_at AS lease FROM idem_lease WHERE key = 'con/CON_NOW/2';
ROLLBACK TO a;
SELECT outcome FROM idem_claim('con/CON_NOW/3', '{}');
SELECT lease_until - granted_at AS lease FROM idem_lease WHERE key = 'con/CON_NOW/3';
ROLLBACK;
SELECT outcome FROM idem_claim('con/CON_NOW/4', '{}');
SELECT lease_until - granted_at AS lease FROM idem_lease WHERE key = 'con/CON_NOW/4';
SELECT idem_define_operation('CON_NOW', 'external', lease => '20 s') AS revision;

-- effect cannot change while an action exists, whatever its state; other fields can
SELECT idem_define_operation('CON_NOW', 'local');
SELECT idem_cancel('con/CON/tombstone');
\set VERBOSITY sqlstate
SELECT idem_define_operation('CON', 'external');
\set VERBOSITY default
SELECT idem_define_operation('CON', max_attempts => 2) AS revision;
-- and can where all there was is another operation's
SELECT idem_define_operation('CON_EDGE', 'local');

-- an operation with actions cannot be dropped, one without can, and starts anew
SELECT idem_drop_operation('CON');
SELECT idem_drop_operation('CON_EDGE');
SELECT idem_drop_operation('CON_EDGE');
SELECT count(*) FROM idem_contract WHERE operation = 'CON_EDGE';
\set VERBOSITY sqlstate
SELECT idem_claim('con/CON_EDGE/1', '{}');
SELECT idem_drop_operation('CON');
SELECT idem_drop_operation('CON_EDGE');
SELECT idem_drop_operation(NULL);
SELECT idem_drop_operation('A/B');
\set VERBOSITY default
SELECT idem_define_operation('CON_EDGE');
-- undone with its transaction
BEGIN;
SELECT idem_drop_operation('CON_EDGE');
\set VERBOSITY sqlstate
SAVEPOINT a;
SELECT idem_once('con/CON_EDGE/1', '{}');
ROLLBACK TO a;
\set VERBOSITY default
ROLLBACK;
SELECT idem_once('con/CON_EDGE/1', '{}');

-- what each side of a change counts: rows are judged under their own revision
SELECT idem_define_operation('CON_REV', digest_include => '{/a}');
SELECT idem_once('con/CON_REV/1', '{"a": 1, "b": 1}');
SELECT idem_define_operation('CON_REV', digest_include => '{/b}');
SELECT idem_once('con/CON_REV/1', '{"a": 1, "b": 2}');
SELECT idem_once('con/CON_REV/1', '{"a": 1}');
SELECT idem_once('con/CON_REV/2', '{"b": 1}');
SELECT idem_once('con/CON_REV/2', '{"a": 2, "b": 1}');
-- a pointer that only the row's own revision demands is a difference
SELECT idem_once('con/CON_REV/1', '{"b": 2}');
-- one that the contract in force demands is a mistake
SELECT idem_once('con/CON_REV/2', '{"a": 1}');
SELECT idem_once('con/CON_REV/3', '{"a": 1}');
