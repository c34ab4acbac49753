-- era: the upper half of every generation.  What a failover or a restore does to the recorded
-- server is played by changing the record, in a transaction that is rolled back.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS idem_action;
RESET client_min_messages;

-- a fresh installation has no record; whoever first needs it writes era 0
SELECT count(*) FROM idem_era;
SELECT idem_define_operation('ERA', effect => 'external');
SELECT outcome, generation FROM idem_claim('era/ERA/old', '{}');
SELECT era, system_identifier = (SELECT system_identifier FROM pg_control_system()) AS same_system,
       timeline = (SELECT timeline_id FROM pg_control_checkpoint()) AS same_timeline
FROM idem_era;

-- there is one row and never a second
\set VERBOSITY sqlstate
INSERT INTO idem_era VALUES (true, 7, 1, 1);
INSERT INTO idem_era VALUES (false, 7, 1, 1);
\set VERBOSITY default

-- another timeline: every grant from now on is above all that the lost one can have made
BEGIN;
UPDATE idem_era SET timeline = timeline + 1;
ALTER TABLE idem_era SET (fillfactor = 90);		-- tells the cache
SELECT outcome, generation FROM idem_claim('era/ERA/new', '{}');
SELECT era, timeline = (SELECT timeline_id FROM pg_control_checkpoint()) AS same_timeline
FROM idem_era;
-- once, not at every grant
SELECT outcome, generation FROM idem_claim('era/ERA/newer', '{}');
SELECT era FROM idem_era;
-- a known action is taken over above the old era, and its old owner is refused
UPDATE idem_lease SET lease_until = lease_until - interval '1 hour' WHERE key = 'era/ERA/old';
SELECT idem_define_operation('ERA', effect => 'external', channel_queryable => true,
                             absence_visible_after => '1 s');
SELECT outcome FROM idem_claim('era/ERA/old', '{}');
SELECT generation, state FROM idem_status('era/ERA/old');
ROLLBACK;

-- the same for another system, and within the era generations go on by one
BEGIN;
UPDATE idem_era SET system_identifier = system_identifier + 1;
ALTER TABLE idem_era SET (fillfactor = 90);
SELECT outcome, generation FROM idem_claim('era/ERA/new', '{}');
SELECT idem_release('era/ERA/new', 4294967297, retry_after => '0');
SELECT outcome, generation FROM idem_claim('era/ERA/new', '{}');
\set VERBOSITY sqlstate
SELECT idem_release('era/ERA/new', 4294967297);
\set VERBOSITY default
ROLLBACK;

-- a grant that was not lost, and that nobody replaced, is still the newest
BEGIN;
UPDATE idem_era SET timeline = timeline + 1;
ALTER TABLE idem_era SET (fillfactor = 90);
SELECT outcome, generation FROM idem_claim('era/ERA/new', '{}');
SELECT idem_complete('era/ERA/old', 1, '"done"');
SELECT state, generation FROM idem_status('era/ERA/old');
ROLLBACK;

-- a generation that is above the era's first goes up by one, never down
BEGIN;
UPDATE idem_action SET generation = 99999999999 WHERE key = 'era/ERA/old';
SELECT idem_release('era/ERA/old', 99999999999, retry_after => '0');
SELECT outcome, generation FROM idem_claim('era/ERA/old', '{}');
ROLLBACK;

-- what was rolled back did not happen
SELECT era FROM idem_era;
SELECT outcome, generation FROM idem_claim('era/ERA/after', '{}');
