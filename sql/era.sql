-- era: the upper half of every generation.  What a failover or a restore does to the recorded
-- place is played by changing the record, in a transaction that is rolled back.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS idem_action;
RESET client_min_messages;

-- a fresh installation has no record; whoever first needs it writes era 0 and where it is
SELECT count(*) FROM idem_era;
SELECT idem_define_operation('ERA', effect => 'external', channel_queryable => true,
                             absence_visible_after => '1 s');
SELECT outcome, generation FROM idem_claim('era/ERA/old', '{}');
CREATE VIEW era_row AS
    SELECT era, system_identifier = (SELECT system_identifier FROM pg_control_system()) AS system,
           timeline = (SELECT timeline_id FROM pg_control_checkpoint()) AS timeline,
           database_oid = (SELECT oid FROM pg_database
                           WHERE datname = current_database()) AS database,
           table_oid = 'idem_era'::regclass AS "table"
    FROM idem_era;
TABLE era_row;

-- there is one row and never a second
\set VERBOSITY sqlstate
INSERT INTO idem_era SELECT * FROM idem_era;
INSERT INTO idem_era SELECT false, era, system_identifier, timeline, database_oid, table_oid
FROM idem_era;
\set VERBOSITY default

-- The era goes up to the seconds since 2026, so a generation shows as its two halves: whether the upper is
-- the era on record and the lower.
CREATE FUNCTION era_show(generation bigint) RETURNS text LANGUAGE sql AS $$
    SELECT CASE WHEN generation >> 32 = era THEN 'era' ELSE (generation >> 32)::text END
           || '+' || (generation & 4294967295) FROM idem_era $$;

-- another timeline: every grant from now on is above all that the lost one can have made
BEGIN;
UPDATE idem_era SET timeline = timeline + 1;
ALTER TABLE idem_era SET (fillfactor = 90);		-- tells the cache
SELECT outcome, era_show(generation) FROM idem_claim('era/ERA/new', '{}');
SELECT abs(era - extract(epoch FROM clock_timestamp() - '2026-01-01 00:00+00')) < 60 AS raised, system, timeline, database, "table" FROM era_row;
SELECT era FROM idem_era \gset
-- once, not at every grant
SELECT outcome, era_show(generation) FROM idem_claim('era/ERA/newer', '{}');
SELECT era = :era AS same FROM idem_era;
-- a known action is taken over above the old era, and its old owner is refused
UPDATE idem_lease SET lease_until = lease_until - interval '1 hour' WHERE key = 'era/ERA/old';
SELECT outcome, era_show(generation) FROM idem_claim('era/ERA/old', '{}');
\set VERBOSITY sqlstate
SELECT idem_complete('era/ERA/old', 1);
\set VERBOSITY default
ROLLBACK;

-- the same for another system, and within the era generations go on by one
BEGIN;
UPDATE idem_era SET system_identifier = system_identifier + 1;
ALTER TABLE idem_era SET (fillfactor = 90);
SELECT outcome, era_show(generation), generation FROM idem_claim('era/ERA/new', '{}') \gset
SELECT :'outcome' AS outcome, :'era_show' AS generation;
SELECT idem_release('era/ERA/new', :generation, retry_after => '0');
SELECT outcome, era_show(generation) FROM idem_claim('era/ERA/new', '{}');
\set VERBOSITY sqlstate
SELECT idem_release('era/ERA/new', :generation);
\set VERBOSITY default
ROLLBACK;

-- another database, and another table in it: a dump that was restored beside its origin
BEGIN;
UPDATE idem_era SET database_oid = 1;
ALTER TABLE idem_era SET (fillfactor = 90);
SELECT outcome, era_show(generation) FROM idem_claim('era/ERA/new', '{}');
SELECT abs(era - extract(epoch FROM clock_timestamp() - '2026-01-01 00:00+00')) < 60 AS raised, system, timeline, database, "table" FROM era_row;
ROLLBACK;
BEGIN;
UPDATE idem_era SET table_oid = 1;
ALTER TABLE idem_era SET (fillfactor = 90);
SELECT outcome, era_show(generation) FROM idem_claim('era/ERA/new', '{}');
SELECT abs(era - extract(epoch FROM clock_timestamp() - '2026-01-01 00:00+00')) < 60 AS raised, system, timeline, database, "table" FROM era_row;
ROLLBACK;

-- a grant that was not lost, and that nobody replaced, is still the newest
BEGIN;
UPDATE idem_era SET timeline = timeline + 1;
ALTER TABLE idem_era SET (fillfactor = 90);
SELECT outcome, era_show(generation) FROM idem_claim('era/ERA/new', '{}');
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
TABLE era_row;
SELECT outcome, generation FROM idem_claim('era/ERA/after', '{}');
DROP FUNCTION era_show;
DROP VIEW era_row;
