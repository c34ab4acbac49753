-- cases_progress.sql: adversarial cases of progress in a log, as far as one session can play them,
-- each test named by the case's number.  The rest, and S8 with two sessions, is in the isolation
-- spec of progress.
\set ON_ERROR_STOP on
\set VERBOSITY sqlstate
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pgtap;
CREATE EXTENSION IF NOT EXISTS idem_action;
BEGIN;
SELECT FROM idem_define_consumer('case_log');
CREATE TEMPORARY TABLE ledger (record bigint);

CREATE FUNCTION pg_temp.partition(case_number text) RETURNS idem_key LANGUAGE sql AS $$
    SELECT idem_key('case-p', 'case_log', 'orders/' || case_number)
$$;

-- A poll: the records that the log has of the offsets, delivered in order.
CREATE FUNCTION pg_temp.poll(case_number text, generation bigint, VARIADIC offsets bigint[])
RETURNS bigint[] LANGUAGE sql AS $$
    SELECT idem_progress_fetched(pg_temp.partition(case_number), generation, offsets)
$$;

-- A worker: the effect of a record, and that it is done.
CREATE FUNCTION pg_temp.work(case_number text, generation bigint, record bigint) RETURNS text
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO ledger VALUES (record);
    PERFORM idem_progress_done(pg_temp.partition(case_number), generation, ARRAY[record]);
    RETURN 'done';
EXCEPTION WHEN OTHERS THEN
    RETURN SQLSTATE;
END $$;

CREATE FUNCTION pg_temp.committable(case_number text) RETURNS bigint LANGUAGE sql AS $$
    SELECT idem_progress_committable(pg_temp.partition(case_number))
$$;

SELECT plan(38);

-- S3: topic recreated, offsets restart at 0
SELECT is((SELECT a::text FROM idem_progress_assign(pg_temp.partition('s3'), 'first') a), '(1,)',
          'S3: nothing is known');
SELECT is(pg_temp.poll('s3', 1, 5, 6), '{5,6}', 'S3: of the first topic');
SELECT is(pg_temp.work('s3', 1, 5), 'done', 'S3: its offset 5');
SELECT is((SELECT a::text FROM idem_progress_assign(pg_temp.partition('s3'), 'second') a), '(2,)',
          'S3: nothing is known of the second topic');
SELECT is(pg_temp.committable('s3'), NULL, 'S3: nothing may be committed');
SELECT is(pg_temp.poll('s3', 2, 0, 5, 6), '{0,5,6}', 'S3: offset 5 was not seen');
SELECT is(pg_temp.work('s3', 2, 5), 'done', 'S3: and is done once more');
SELECT is(pg_temp.committable('s3'), 0::bigint, 'S3: offsets count from 0');
SELECT throws_ok($$SELECT idem_progress_assign(pg_temp.partition('s3'), 'first')$$, 'ID003', NULL,
                 'S3: the first topic is over');

-- S5: delivered 100, 101, 102, done 102, 101 / then 100
SELECT FROM idem_progress_assign(pg_temp.partition('s5'));
SELECT is(pg_temp.poll('s5', 1, 100, 101, 102), '{100,101,102}', 'S5: delivered');
SELECT is(pg_temp.work('s5', 1, 102), 'done', 'S5: 102');
SELECT is(pg_temp.work('s5', 1, 101), 'done', 'S5: 101');
SELECT is(pg_temp.committable('s5'), 100::bigint, 'S5: 100 holds it back');
SELECT is(pg_temp.work('s5', 1, 100), 'done', 'S5: 100');
SELECT is(pg_temp.committable('s5'), 103::bigint, 'S5: all of it');
SELECT is(pg_temp.work('s5', 1, 101), 'ID003', 'S5: once only');

-- S6: delivered 100, 103, 107, all done
SELECT FROM idem_progress_assign(pg_temp.partition('s6'));
SELECT is(pg_temp.poll('s6', 1, 100, 103, 107), '{100,103,107}', 'S6: delivered');
SELECT is(pg_temp.work('s6', 1, record), 'done', 'S6: done')
FROM unnest('{107,103,100}'::bigint[]) record;
SELECT is(pg_temp.committable('s6'), 108::bigint, 'S6: over the gaps');

-- S7: done for 200 when it was never delivered
CREATE TEMPORARY TABLE before AS SELECT * FROM ledger;
SELECT is(pg_temp.work('s5', 1, 200), 'ID003', 'S7: refused');
SELECT is(pg_temp.work('s6', 1, 101), 'ID003', 'S7: in a gap');
SELECT is(pg_temp.committable('s5'), 103::bigint, 'S7: nothing moves');
SELECT results_eq('SELECT record FROM ledger ORDER BY 1', 'SELECT record FROM before ORDER BY 1',
                  'S7: nor is anything written');

-- S8: a late done-call for an older assignment
SELECT FROM idem_progress_assign(pg_temp.partition('s8'));
SELECT is(pg_temp.poll('s8', 1, 100, 101), '{100,101}', 'S8: delivered to the first owner');
SELECT is((SELECT a::text FROM idem_progress_assign(pg_temp.partition('s8')) a), '(2,100)',
          'S8: the second one starts there');
SELECT is(pg_temp.work('s8', 1, 100), 'ID002', 'S8: the first one is refused');
SELECT is(pg_temp.poll('s8', 2, 100, 101), '{100,101}', 'S8: the second one has it all to do');
SELECT is(pg_temp.work('s8', 1, 100), 'ID002', 'S8: the first one stays refused');

-- S9: redelivery after a lost offset commit; an offset delivered to the old owner and never again
SELECT FROM idem_progress_assign(pg_temp.partition('s9'));
SELECT is(pg_temp.poll('s9', 1, 100, 101, 102, 103), '{100,101,102,103}', 'S9: delivered');
SELECT is(pg_temp.work('s9', 1, 100), 'done', 'S9: 100, of which the broker does not hear');
SELECT is(pg_temp.work('s9', 1, 102), 'done', 'S9: 102');
SELECT is((SELECT a::text FROM idem_progress_assign(pg_temp.partition('s9')) a), '(2,101)',
          'S9: another owner');
SELECT is(pg_temp.poll('s9', 2, 100, 102, 103), '{103}',
          'S9: 101 is gone; what is done is not handed out again');
SELECT is(pg_temp.committable('s9'), 103::bigint, 'S9: 101 does not hold the new owner back');
SELECT is(pg_temp.work('s9', 2, 101), 'ID003', 'S9: nor can it be done');
SELECT is(pg_temp.work('s9', 2, 103), 'done', 'S9: the rest');

SELECT * FROM finish();
ROLLBACK;
