-- transition: moving a guarded row once
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS idem_action;
RESET client_min_messages;
CREATE TABLE transition_order (id text PRIMARY KEY, state text, generation bigint);
SELECT idem_define_machine('transition_order', 'state',
    '{{UNPAID,PAID},{UNPAID,CLOSED},{PAID,SHIPPED},{SHIPPED,PAID}}', '{UNPAID}', '{CLOSED}',
    'generation');
CREATE TABLE transition_outbox (order_id text);
INSERT INTO transition_order VALUES ('o-1', 'UNPAID'), ('o-2', 'UNPAID'), ('o-3', 'UNPAID');

-- the winner writes the coupon
CREATE FUNCTION transition_pay(order_id text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    moved idem_transitioned;
BEGIN
    moved := idem_transition('transition_order', order_id, 'UNPAID', 'PAID');
    IF moved.outcome = 'applied' THEN
        INSERT INTO transition_outbox VALUES (order_id);
    END IF;
    RETURN moved.outcome;
END $$;
SELECT transition_pay('o-1');
SELECT transition_pay('o-1');
SELECT * FROM idem_transition('transition_order', 'o-2', 'UNPAID', 'CLOSED');
SELECT transition_pay('o-2');
SELECT * FROM idem_transition('transition_order', 'o-2', 'UNPAID', 'PAID');
SELECT * FROM idem_transition('transition_order', 'o-9', 'UNPAID', 'PAID');
TABLE transition_outbox;

-- once more after a rollback
BEGIN;
SELECT transition_pay('o-3');
ROLLBACK;
SELECT transition_pay('o-3');

-- generations
SELECT * FROM idem_transition('transition_order', 'o-1', 'PAID', 'SHIPPED', 2);
SELECT * FROM idem_transition('transition_order', 'o-1', 'PAID', 'SHIPPED', 2);
SELECT * FROM idem_transition('transition_order', 'o-1', 'SHIPPED', 'PAID', 3);
SELECT * FROM idem_transition('transition_order', 'o-1', 'PAID', 'SHIPPED');
\set VERBOSITY terse
SELECT * FROM idem_transition('transition_order', 'o-1', 'SHIPPED', 'PAID', 2);
\set VERBOSITY sqlstate
SELECT * FROM idem_transition('transition_order', 'o-1', 'PAID', 'SHIPPED', 2);
-- a move that the machine does not have
SELECT * FROM idem_transition('transition_order', 'o-1', 'SHIPPED', 'UNPAID');
SELECT * FROM idem_transition('transition_order', 'o-1', 'SHIPED', 'PAID');
SELECT * FROM idem_transition('transition_order', 'o-9', 'UNPAID', 'SHIPPED');
SELECT * FROM idem_transition('transition_order', 'o-1', 'SHIPPED', 'SHIPPED');
SELECT id, state, generation FROM transition_order ORDER BY id;

-- integers and uuids; an enum
CREATE TYPE transition_state AS ENUM ('OPEN', 'DONE', 'LOST');
CREATE TABLE transition_bigint (id bigint PRIMARY KEY, state varchar);
CREATE TABLE transition_uuid (id uuid PRIMARY KEY, state transition_state);
SELECT idem_define_machine(t, 'state', '{{OPEN,DONE},{OPEN,LOST}}', '{OPEN}')
FROM unnest('{transition_bigint,transition_uuid}'::regclass[]) t;
INSERT INTO transition_bigint VALUES (1, 'OPEN');
INSERT INTO transition_uuid VALUES ('00000000-0000-0000-0000-000000000001', 'OPEN');
SELECT * FROM idem_transition('transition_bigint', 1, 'OPEN', 'DONE');
SELECT * FROM idem_transition('transition_bigint', 1, 'OPEN', 'DONE');
SELECT * FROM idem_transition('transition_bigint', 1, 'OPEN', 'LOST');
SELECT * FROM idem_transition('transition_uuid', '00000000-0000-0000-0000-000000000001'::uuid,
                              'OPEN', 'DONE');
SELECT * FROM idem_transition('transition_uuid', '00000000-0000-0000-0000-000000000001',
                              'OPEN', 'DONE');

-- kept plans follow names
INSERT INTO transition_uuid VALUES ('00000000-0000-0000-0000-000000000002', 'OPEN');
ALTER TABLE transition_uuid RENAME id TO number;
ALTER TABLE transition_uuid RENAME state TO stage;
SELECT * FROM idem_transition('transition_uuid', '00000000-0000-0000-0000-000000000002'::uuid,
                              'OPEN', 'LOST');
ALTER TYPE transition_state RENAME TO transition_stage;
SELECT * FROM idem_transition('transition_uuid', '00000000-0000-0000-0000-000000000002'::uuid,
                              'OPEN', 'LOST');
CREATE SCHEMA transition_there;
ALTER TABLE transition_uuid SET SCHEMA transition_there;
SELECT * FROM idem_transition('transition_there.transition_uuid',
                              '00000000-0000-0000-0000-000000000002'::uuid, 'OPEN', 'LOST');
ALTER SCHEMA transition_there RENAME TO transition_here;
SELECT * FROM idem_transition('transition_here.transition_uuid',
                              '00000000-0000-0000-0000-000000000002'::uuid, 'OPEN', 'DONE');

-- what is asked wrongly
SELECT * FROM idem_transition(NULL, 'o-1', 'UNPAID', 'PAID');
SELECT * FROM idem_transition('transition_order', NULL::text, 'UNPAID', 'PAID');
SELECT * FROM idem_transition('transition_order', 'o-1', NULL, 'PAID');
SELECT * FROM idem_transition('transition_order', 'o-1', 'UNPAID', NULL);
SELECT * FROM idem_transition('transition_bigint', 1, 'OPEN', 'DONE', 1);
SELECT * FROM idem_transition('transition_bigint', 'x', 'OPEN', 'DONE');
SELECT * FROM idem_transition('transition_outbox', 'o-1', 'UNPAID', 'PAID');
SELECT idem_drop_machine('transition_bigint');
SELECT * FROM idem_transition('transition_bigint', 1, 'OPEN', 'DONE');
BEGIN READ ONLY;
SELECT * FROM idem_transition('transition_order', 'o-1', 'SHIPPED', 'PAID');
ROLLBACK;

DROP FUNCTION transition_pay;
DROP TABLE transition_order, transition_outbox, transition_bigint, transition_here.transition_uuid;
DROP SCHEMA transition_here;
DROP TYPE transition_stage;
