-- loss: commits that were lost, as operators declare them.  In a database of its own, since a
-- declaration counts for everything in it.
SELECT current_database() AS home \gset
CREATE DATABASE idem_loss;
\c idem_loss
CREATE EXTENSION idem_action;
SELECT idem_define_operation('NONE', effect => 'external'),
       idem_define_operation('ASK', effect => 'external', lease => '30 s',
                             channel_queryable => true, absence_visible_after => '60 s'),
       idem_define_operation('KEY', effect => 'external', lease => '30 s',
                             channel_idempotent => true, channel_key_ttl => '30 days'),
       idem_define_operation('DAY', effect => 'external', lease => '30 s',
                             channel_idempotent => true, channel_key_ttl => '24 hours'),
       idem_define_operation('LOCAL');
SELECT date_trunc('second', clock_timestamp() - interval '2 hours') AS lost_from,
       date_trunc('second', clock_timestamp() - interval '1 hour') AS lost_to,
       date_trunc('second', clock_timestamp() - interval '90 minutes') AS inside,
       date_trunc('second', clock_timestamp() - interval '121 minutes') AS before,
       date_trunc('second', clock_timestamp() - interval '59 minutes') AS after,
       date_trunc('second', clock_timestamp() + interval '1 day') AS until \gset

-- what cannot be a declaration
\set VERBOSITY sqlstate
SELECT idem_declare_loss(NULL, :'lost_to', :'until');
SELECT idem_declare_loss(:'lost_from', NULL, :'until');
SELECT idem_declare_loss(:'lost_from', :'lost_to', NULL);
SELECT idem_declare_loss('-infinity', :'lost_to', :'until');
SELECT idem_declare_loss(:'lost_from', 'infinity', :'until');
SELECT idem_declare_loss(:'lost_from', :'lost_to', 'infinity');
SELECT idem_declare_loss(:'lost_from', :'lost_to', :'until', '  ');
\set VERBOSITY default
SELECT idem_declare_loss(:'lost_to', :'lost_from', :'until');
SELECT idem_declare_loss(:'lost_from', clock_timestamp() + interval '1 minute', :'until');
SELECT idem_declare_loss(:'lost_from', :'lost_to', :'lost_from');
SELECT count(*) FROM idem_loss;

-- what is on record when it is declared, in every state
SELECT outcome FROM idem_submit('a/NONE/pending', '{}')
UNION ALL SELECT outcome FROM idem_submit('a/ASK/pending', '{}')
UNION ALL SELECT outcome FROM idem_submit('a/KEY/pending', '{}')
UNION ALL SELECT outcome FROM idem_submit('a/DAY/pending', '{}')
UNION ALL SELECT outcome FROM idem_submit('a/ASK/resolved', '{}')
UNION ALL SELECT outcome FROM idem_claim('a/ASK/processing', '{}', lease => '1 hour')
UNION ALL SELECT outcome FROM idem_claim('a/ASK/released', '{}')
UNION ALL SELECT outcome FROM idem_claim('a/ASK/unknown', '{}')
UNION ALL SELECT outcome FROM idem_claim('a/ASK/review', '{}')
UNION ALL SELECT outcome FROM idem_claim('a/ASK/done', '{}');
SELECT idem_mark_unknown('a/ASK/unknown', 1), idem_escalate('a/ASK/review', 1),
       idem_release('a/ASK/released', 1, retry_after => '0'), idem_complete('a/ASK/done', 1, '1');
SELECT idem_cancel('a/ASK/cancelled'), idem_once('a/LOCAL/done', '{}');
-- left of an action that was deleted by hand: no action in flight
INSERT INTO idem_lease (key, is_ambiguous) VALUES ('a/ASK/orphan', false);
-- attempts that may have executed are known from before the loss, and until after it
UPDATE idem_lease SET first_granted_at = timestamptz :'lost_from' - interval '1 hour',
    call_until = timestamptz :'lost_to' + interval '30 hours' WHERE key = 'a/ASK/unknown';

-- rolled back it did not happen
BEGIN;
SELECT idem_declare_loss(:'lost_from', :'lost_to', :'until');
SELECT outcome FROM idem_claim('a/ASK/rolled-back', '{}');
ROLLBACK;
SELECT outcome, generation FROM idem_claim('a/ASK/rolled-back', '{}');
SELECT idem_complete('a/ASK/rolled-back', 1);
SELECT count(*), max(era) FROM idem_loss, idem_era;

SELECT idem_declare_loss(:'lost_from', :'lost_to', :'until', 'failover to db-2');
SELECT declared_by = current_user AS by_me, declared_at <= clock_timestamp() AS declared,
       lost_from = :'lost_from' AS lost_from, lost_to = :'lost_to' AS lost_to, until = :'until' AS until,
       note
FROM idem_loss;
SELECT era > 1 AS raised FROM idem_era;
-- no state moves; what a lost attempt may have done is in the history
SELECT key, state, last_call, generation, attempt, is_ambiguous, first_revision,
       first_granted_at - :'lost_from' AS first_granted, call_until - :'lost_to' AS call_until
FROM idem_action LEFT JOIN idem_lease USING (key) ORDER BY key;
SELECT key, is_ambiguous, first_granted_at FROM idem_lease WHERE key = 'a/ASK/orphan';
-- and each of them has evidence of it, with the note of the operator
SELECT key, call, outcome, e.state, e.generation, attempt, worker IS NOT NULL AS worker, e.note,
       recorded_at = declared_at AS then
FROM idem_evidence e, idem_loss WHERE call = 'declare_loss' ORDER BY key;
SELECT event, note FROM idem_history('a/ASK/pending');

-- pending: repeat, verify or review, as the contract says, and never execute; a key that a lost
-- owner's lease can outlive is not repeated
SELECT outcome, attempt, state, channel,
       absence_conclusive_at - :'lost_to' AS conclusive FROM idem_claim('a/ASK/pending', '{}');
SELECT outcome, attempt, state FROM idem_claim('a/KEY/pending', '{}');
SELECT outcome, attempt, state FROM idem_claim('a/DAY/pending', '{}');
SELECT outcome, attempt, state, generation FROM idem_claim('a/NONE/pending', '{}');
SELECT outcome FROM idem_claim('a/ASK/released', '{}');
-- "not found" is no answer before the longest lease of a lost owner has ended
SELECT generation FROM idem_reclaim('a/ASK/resolved') \gset
SELECT outcome, state, retry_at - :'lost_to' AS retry_at FROM idem_absent('a/ASK/resolved', :generation);
SELECT outcome FROM idem_claim('a/ASK/resolved', '{}');
-- nor is anything cancelled
SELECT outcome FROM idem_submit('a/ASK/cancel', '{}');
SELECT idem_cancel('a/ASK/cancel'), idem_cancel('a/ASK/pending'), idem_cancel('a/ASK/cancelled');
-- an owner whose grant is on record still is the owner, but somebody else may have been: no
-- further call, and its release speaks for itself only
SELECT idem_renew('a/ASK/processing', 1);
SELECT idem_release('a/ASK/processing', 1);
SELECT state FROM idem_status('a/ASK/processing');

-- not on record: in doubt if it occurred then, or at a time that is not known
SELECT outcome, generation >> 32 = era AS new_era, channel, params
FROM idem_claim('b/ASK/inside', '{"n": 1}', :'inside'), idem_era;
SELECT outcome FROM idem_claim('b/ASK/first', '{}', :'lost_from');
SELECT outcome FROM idem_claim('b/ASK/last', '{}', :'lost_to');
SELECT outcome FROM idem_claim('b/ASK/never', '{}');
SELECT outcome FROM idem_claim('b/ASK/before', '{}', :'before');
SELECT outcome FROM idem_claim('b/ASK/after', '{}', :'after');
SELECT outcome FROM idem_claim('b/KEY/inside', '{}', :'inside');
SELECT outcome, state, generation, attempt FROM idem_claim('b/DAY/inside', '{}', :'inside');
SELECT outcome, state, generation, attempt FROM idem_claim('b/NONE/inside', '{}', :'inside');
SELECT outcome, state FROM idem_submit('b/KEY/submitted', '{}', :'inside');
SELECT outcome FROM idem_reclaim('b/KEY/submitted');
SELECT key, state, last_call, attempt, granted, is_ambiguous, first_revision,
       first_granted_at - :'lost_from' AS first_granted, call_until - :'lost_to' AS call_until
FROM idem_action JOIN idem_lease USING (key)
WHERE key IN ('b/ASK/inside', 'b/NONE/inside', 'b/KEY/submitted') ORDER BY key;
SELECT key, is_ambiguous, first_granted_at > :'lost_to' AS now FROM idem_lease
WHERE key IN ('b/ASK/before', 'b/ASK/after') ORDER BY key;
-- nor is any of it cancelled, and no tombstone is written
SELECT idem_cancel('b/ASK/new'), idem_cancel('b/ASK/new', occurred_at => :'inside'),
       idem_cancel('b/ASK/newer', occurred_at => :'after');
SELECT count(*) FROM idem_status('b/ASK/new');
SELECT state FROM idem_status('b/ASK/newer');
-- what is in review may be decided; to pending it is new, and no doubt is left
SELECT generation AS g FROM idem_status('b/NONE/inside') \gset
SELECT idem_resolve('b/NONE/inside', :g, 'pending', 'not in the ledger of the bank');
SELECT is_ambiguous, first_granted_at, first_revision, call_until FROM idem_lease
WHERE key = 'b/NONE/inside';
SELECT outcome, attempt FROM idem_claim('b/NONE/inside', '{}', :'inside');
-- local actions are never in doubt
SELECT idem_once('b/LOCAL/inside', '{}', :'inside'), idem_once('b/LOCAL/never', '{}');
SELECT idem_cancel('b/LOCAL/new');

-- after until, a key of no known time is new
UPDATE idem_loss SET until = lost_to;
ALTER TABLE idem_loss SET (fillfactor = 100);		-- tells the cache
SELECT outcome FROM idem_claim('c/ASK/never', '{}');
SELECT outcome FROM idem_claim('c/ASK/inside', '{}', :'inside');
SELECT idem_cancel('c/ASK/new'), idem_cancel('c/ASK/newer', occurred_at => :'inside');

-- declarations that overlap count together, each for the keys that it covers
SELECT idem_declare_loss(timestamptz :'lost_from' - interval '1 hour', :'inside', :'lost_to',
                         'the backup of the night') > 0 AS declared;
CREATE FUNCTION loss_span(k idem_key, OUT first_granted interval, OUT call_until interval)
    LANGUAGE sql AS $$
    SELECT first_granted_at - min(lost_from), l.call_until - max(lost_to)
    FROM idem_lease l, idem_loss WHERE key = k GROUP BY l.key, l.first_granted_at, l.call_until $$;
SELECT outcome FROM idem_submit('d/ASK/both', '{}', :'inside');
SELECT * FROM loss_span('d/ASK/both');
SELECT outcome FROM idem_submit('d/ASK/earlier', '{}', :'before');
SELECT * FROM loss_span('d/ASK/earlier');
SELECT outcome FROM idem_submit('d/ASK/later', '{}', :'lost_to');
SELECT * FROM loss_span('d/ASK/later');
-- a dispatcher hands it out as what it is
SELECT outcome FROM idem_submit('d/KEY/next', '{"n": 1}', :'inside')
UNION ALL SELECT outcome FROM idem_submit('d/KEY/new', '{"n": 2}', :'after');
SELECT key, outcome, params FROM idem_claim_next('KEY', 10, tenant => 'd') ORDER BY key;
-- what was known not to be executed may have been since: by the channel of now
SELECT idem_define_operation('MOVED', effect => 'external', channel => 'old',
                             channel_queryable => true, absence_visible_after => '0');
SELECT outcome, generation AS g FROM idem_claim('d/MOVED/released', '{}') \gset
SELECT outcome, generation AS h FROM idem_claim('d/MOVED/unknown', '{}') \gset
SELECT idem_release('d/MOVED/released', :g, retry_after => '0'),
       idem_mark_unknown('d/MOVED/unknown', :h, retry_after => '0');
SET client_min_messages = warning;
SELECT idem_define_operation('MOVED', effect => 'external', channel => 'new',
                             channel_queryable => true, absence_visible_after => '0');
RESET client_min_messages;
SELECT idem_declare_loss(:'inside', :'inside', :'inside') > 0 AS declared;
SELECT outcome, channel FROM idem_claim('d/MOVED/released', '{}');
SELECT outcome, channel FROM idem_claim('d/MOVED/unknown', '{}');

\c :home
DROP DATABASE idem_loss;
