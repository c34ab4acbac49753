-- cases_parameters.sql: adversarial cases of parameters; each test is named by the case's number.
--
-- Not in one transaction, since a grant counts from its commit.  The file starts by removing what
-- an earlier run of it left behind.
\set ON_ERROR_STOP on
\set ON_ERROR_ROLLBACK off
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pgtap;
CREATE EXTENSION IF NOT EXISTS idem_action;
SET session_replication_role = replica;		-- lets go of actions in flight
DELETE FROM idem_lease WHERE idem_key_tenant(key) = 'case-p';
DELETE FROM idem_action WHERE idem_key_tenant(key) = 'case-p';
RESET session_replication_role;
CREATE FUNCTION pg_temp.echo(params jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT params';
SELECT plan(62);

-- P1: other parameters after success
SELECT FROM idem_define_operation('CASE_P1', 'external');
SELECT is((SELECT outcome FROM idem_claim('case-p/CASE_P1/r-17', '{"amount": 10}')), 'execute',
          'P1: the first claim');
SELECT FROM idem_complete('case-p/CASE_P1/r-17', 1, '{"paid": 10}', 'ref-1');
CREATE TEMPORARY TABLE p1 AS
    SELECT ctid AS row, a.*::text AS value FROM idem_action a WHERE key = 'case-p/CASE_P1/r-17';
CREATE TEMPORARY TABLE p1_verdict AS
    SELECT * FROM idem_claim('case-p/CASE_P1/r-17', '{"amount": 100}');
SELECT is(outcome, 'conflict', 'P1: conflict') FROM p1_verdict;
SELECT is(differs, '{/amount}', 'P1: names /amount') FROM p1_verdict;
SELECT is(generation, 0::bigint, 'P1: grants nothing') FROM p1_verdict;
SELECT ok(result IS NULL AND error IS NULL AND params IS NULL, 'P1: no result and no parameters')
FROM p1_verdict;
SELECT ok(to_jsonb(v)::text !~ '10\M', 'P1: no value of either parameters') FROM
    (SELECT outcome, generation, result, error, state, channel, params, differs FROM p1_verdict) v;
SELECT results_eq(
    $$SELECT ctid, a.*::text FROM idem_action a WHERE key = 'case-p/CASE_P1/r-17'$$,
    'TABLE p1', 'P1: the stored row is unchanged');
SELECT is((SELECT result FROM idem_claim('case-p/CASE_P1/r-17', '{"amount": 10.00}')),
          '{"paid": 10}', 'P1: the first request still gets its result');
SELECT throws_ok($$SELECT idem_complete('case-p/CASE_P1/r-17', 0, '{"paid": 100}')$$, 'ID002',
                 NULL, 'P1: whoever ignores the outcome fails at complete');

-- P2: in every state, and before everything else that a claim could be told
SELECT FROM idem_define_operation('CASE_P2', 'external');
SELECT FROM idem_submit('case-p/CASE_P2/pending', '{"amount": 10}');
SELECT FROM unnest(ARRAY['processing', 'lapsed', 'released', 'due', 'unknown', 'unknown due',
                         'review', 'succeeded', 'rejected']) AS s,
    LATERAL idem_claim(idem_key('case-p', 'CASE_P2', s), '{"amount": 10}');
SELECT FROM idem_release('case-p/CASE_P2/released', 1, retry_after => '1 h');
SELECT FROM idem_release('case-p/CASE_P2/due', 1, retry_after => '0');
SELECT FROM idem_mark_unknown('case-p/CASE_P2/unknown', 1, retry_after => '1 h');
SELECT FROM idem_mark_unknown('case-p/CASE_P2/unknown due', 1, retry_after => '0');
SELECT FROM idem_escalate('case-p/CASE_P2/review', 1);
SELECT FROM idem_complete('case-p/CASE_P2/succeeded', 1);
SELECT FROM idem_reject('case-p/CASE_P2/rejected', 1);
UPDATE idem_lease SET lease_until = lease_until - interval '1 h'
WHERE key = 'case-p/CASE_P2/lapsed';
CREATE TEMPORARY TABLE p2 AS
    SELECT a.ctid AS row, a.key, a.*::text AS action, l.*::text AS lease
    FROM idem_action a LEFT JOIN idem_lease l USING (key)
    WHERE idem_key_operation(a.key) = 'CASE_P2';
SELECT is(v.outcome || ' ' || v.generation || ' ' || v.differs::text, 'conflict 0 {/amount}',
          'P2: claim of what is ' || idem_key_id(key))
FROM p2, LATERAL idem_claim(key, '{"amount": 11}') v ORDER BY key;
SELECT is(v.outcome || ' ' || v.generation || ' ' || v.differs::text, 'conflict 0 {/more}',
          'P2: submit of what is ' || idem_key_id(key))
FROM p2, LATERAL idem_submit(key, '{"amount": 10, "more": 1}') v ORDER BY key;
SELECT results_eq(
    $$SELECT a.ctid AS row, a.key, a.*::text, l.*::text
      FROM idem_action a LEFT JOIN idem_lease l USING (key)
      WHERE idem_key_operation(a.key) = 'CASE_P2' ORDER BY a.key$$,
    'SELECT * FROM p2 ORDER BY key', 'P2: nothing changed');
-- while this very transaction holds it, and for local operations
BEGIN;
SELECT FROM idem_claim('case-p/CASE_P2/own', '{"amount": 10}');
SELECT is((SELECT outcome FROM idem_claim('case-p/CASE_P2/own', '{"amount": 11}')), 'conflict',
          'P2: claimed by the same transaction');
ROLLBACK;
SELECT FROM idem_define_operation('CASE_P2L');
SELECT FROM idem_once('case-p/CASE_P2L/1', '{"amount": 10}');
SELECT is((SELECT outcome FROM idem_claim('case-p/CASE_P2L/1', '{"amount": 11}')), 'conflict',
          'P2: a local action');
SELECT throws_ok($$SELECT idem_once('case-p/CASE_P2L/1', '{"amount": 11}')$$, 'ID001', NULL,
                 'P2: idem_once');
SELECT throws_ok($$SELECT idem_call('case-p/CASE_P2L/1', '{"amount": 11}', 'pg_temp.echo')$$,
                 'ID001', NULL, 'P2: idem_call');
-- what was cancelled before anybody asked equals any parameters
SELECT FROM idem_cancel('case-p/CASE_P2/tombstone', '"no"');
SELECT is((SELECT outcome || error::text FROM idem_claim('case-p/CASE_P2/tombstone', p)),
          'rejected"no"', 'P2: a tombstone equals ' || p::text)
FROM unnest(ARRAY['{"amount": 10}', '{"amount": 11}', '[]', 'null']::jsonb[]) AS p;

-- P9: what does not count differs; then the contract changes
SELECT FROM idem_define_operation('CASE_P9', 'external', digest_exclude => '{/trace,/sent}');
SELECT FROM idem_claim('case-p/CASE_P9/old', '{"amount": 10, "trace": "a", "sent": 1}');
SELECT FROM idem_complete('case-p/CASE_P9/old', 1, '"old"');
SELECT is((SELECT outcome || result::text FROM idem_claim('case-p/CASE_P9/old', p)),
          'succeeded"old"', 'P9: an excluded difference is none: ' || p::text)
FROM unnest(ARRAY['{"amount": 10, "trace": "b", "sent": 2}', '{"amount": 10}',
                  '{"amount": 10, "trace": {"deep": [1]}}']::jsonb[]) AS p;
SELECT FROM idem_define_operation('CASE_P9', 'external', digest_exclude => '{/trace}');
SELECT is((SELECT outcome || result::text
           FROM idem_claim('case-p/CASE_P9/old', '{"amount": 10, "trace": "c", "sent": 3}')),
          'succeeded"old"', 'P9: the row from before is judged under its own revision');
SELECT is((SELECT outcome FROM idem_claim('case-p/CASE_P9/old', '{"amount": 11, "sent": 1}')),
          'conflict', 'P9: which still sees what it counts');
SELECT FROM idem_claim('case-p/CASE_P9/new', '{"amount": 10, "sent": 1}');
SELECT is((SELECT outcome || differs::text
           FROM idem_claim('case-p/CASE_P9/new', '{"amount": 10, "sent": 2}')),
          'conflict{/sent}', 'P9: a row from after counts what counts now');
-- from everything to named ones: a pointer that is missing is a difference under an older
-- revision, and a mistake under the one in force
SELECT FROM idem_define_operation('CASE_P9', 'external', digest_include => '{/amount,/to}');
SELECT FROM idem_claim('case-p/CASE_P9/include', '{"amount": 10, "to": "x"}');
SELECT throws_ok($$SELECT idem_claim('case-p/CASE_P9/include', '{"amount": 10}')$$, 'ID007', NULL,
                 'P9: a pointer of the contract in force is missing');
SELECT FROM idem_define_operation('CASE_P9', 'external', digest_include => '{/amount}');
SELECT is((SELECT outcome || differs::text
           FROM idem_claim('case-p/CASE_P9/include', '{"amount": 10}')),
          'conflict{/to}', 'P9: a pointer of the row''s own revision is missing');
SELECT is((SELECT outcome FROM idem_claim('case-p/CASE_P9/include', '{"amount": 10, "to": "x"}')),
          'busy', 'P9: and the same parameters are the same');
SELECT is((SELECT outcome FROM idem_claim('case-p/CASE_P9/old', '{"amount": 10}')), 'succeeded',
          'P9: three revisions later');
SELECT is((SELECT outcome FROM idem_claim('case-p/CASE_P9/old', '{"no": "amount"}')), 'conflict',
          'P9: a pointer that only the contract in force includes is no mistake for an old row');

-- P10: an included pointer that leads nowhere
SELECT
FROM idem_define_operation('CASE_P10', 'external', digest_include => '{/amount,/to/iban,/list/0}');
SELECT throws_ok(format($$SELECT idem_claim('case-p/CASE_P10/1', %L)$$, p), 'ID007', NULL, 'P10: '
                 || what)
FROM (VALUES
    ('{"to": {"iban": "x"}, "list": [1]}', 'missing'),
    ('{"Amount": 10, "to": {"iban": "x"}, "list": [1]}', 'misspelt'),
    ('{"amount": 10, "to": "x", "list": [1]}', 'crosses a string'),
    ('{"amount": 10, "to": null, "list": [1]}', 'crosses null'),
    ('{"amount": 10, "to": ["iban"], "list": [1]}', 'crosses an array'),
    ('{"amount": 10, "to": {"iban": "x"}, "list": []}', 'behind the end of an array'),
    ('[10]', 'an array'), ('10', 'a number'), ('null', 'JSON null')) AS bad (p, what);
SELECT throws_ok($$SELECT idem_submit('case-p/CASE_P10/1', '{"amount": 10}')$$, 'ID007', NULL,
                 'P10: submit');
SELECT is_empty($$SELECT * FROM idem_status('case-p/CASE_P10/1')$$,
                'P10: no record is left behind');
SELECT is((SELECT outcome
           FROM idem_claim('case-p/CASE_P10/1',
                           '{"amount": null, "to": {"iban": null}, "list": [null]}')),
          'execute', 'P10: null is there');
SELECT throws_ok($$SELECT idem_claim('case-p/CASE_P10/1', '{"to": {"iban": null}, "list": [null]}')$$,
                 'ID007', NULL, 'P10: also once the key is on record');

SELECT * FROM finish();
