-- guard: tables that defend their state
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS idem_action;
RESET client_min_messages;
CREATE TABLE guard_order (
    id text PRIMARY KEY, state text NOT NULL DEFAULT 'UNPAID', generation bigint NOT NULL DEFAULT 0,
    customer text, note text);
SELECT idem_define_machine('guard_order', 'state',
    transitions => ARRAY[['UNPAID','PAID'], ['UNPAID','CLOSED'], ['PAID','SHIPPED'],
                         ['SHIPPED','PAID'], ['PAID','REFUNDED']],
    initial => ARRAY['UNPAID'], terminal => ARRAY['CLOSED', 'REFUNDED'],
    generation_column => 'generation', immutable_columns => ARRAY['customer']);

-- the machine stands with the table
SELECT pg_get_triggerdef(oid), tgenabled FROM pg_trigger WHERE tgrelid = 'guard_order'::regclass
ORDER BY tgname;

-- rows begin where the machine says
INSERT INTO guard_order (id, customer) VALUES ('o-1', 'c-1'), ('o-2', 'c-2');
INSERT INTO guard_order (id, state) VALUES ('o-3', 'PAID');
INSERT INTO guard_order (id, state) VALUES ('o-3', 'UNPAYED');
-- and move along it
UPDATE guard_order SET state = 'PAID' WHERE id = 'o-1';
UPDATE guard_order SET state = 'CLOSED' WHERE id = 'o-1';
UPDATE guard_order SET state = 'SHIPPED';
UPDATE guard_order SET state = 'SHIPPED' WHERE id = 'o-1';
UPDATE guard_order SET state = 'PAID' WHERE id = 'o-1';
UPDATE guard_order SET state = 'REFUNDED', note = 'late' WHERE id = 'o-1';
-- no terminal state is left, the row's other columns may change
UPDATE guard_order SET state = 'PAID' WHERE id = 'o-1';
UPDATE guard_order SET note = 'very late' WHERE id = 'o-1';
-- a generation only grows
UPDATE guard_order SET generation = 5 WHERE id = 'o-2';
UPDATE guard_order SET generation = 5, note = 'same' WHERE id = 'o-2';
UPDATE guard_order SET generation = 4 WHERE id = 'o-2';
-- an immutable column keeps its value, null as well
UPDATE guard_order SET customer = 'c-2' WHERE id = 'o-2';
UPDATE guard_order SET customer = 'c-9' WHERE id = 'o-2';
\set VERBOSITY sqlstate
INSERT INTO guard_order (id) VALUES ('o-4');
UPDATE guard_order SET customer = 'c-4' WHERE id = 'o-4';
UPDATE guard_order SET customer = NULL WHERE id = 'o-2';

-- whatever SQL does it
INSERT INTO guard_order (id) VALUES ('o-1') ON CONFLICT (id) DO UPDATE SET state = 'PAID';
INSERT INTO guard_order (id) VALUES ('o-2') ON CONFLICT (id) DO UPDATE SET state = 'PAID';
MERGE INTO guard_order o USING (VALUES ('o-2', 'UNPAID')) v (id, state) ON o.id = v.id
    WHEN MATCHED THEN UPDATE SET state = v.state;
WITH moved AS (UPDATE guard_order SET state = 'UNPAID' WHERE id = 'o-2' RETURNING id)
    SELECT * FROM moved;
COPY guard_order (id, state) FROM stdin;
o-5	UNPAID
o-6	PAID
\.
SELECT id, state, generation, customer, note FROM guard_order ORDER BY id;

-- rows that move between partitions are judged as what they were
CREATE TABLE guard_parted (id int, month int, state text) PARTITION BY LIST (month);
CREATE TABLE guard_parted_1 PARTITION OF guard_parted FOR VALUES IN (1);
CREATE TABLE guard_parted_2 (state text, month int, id int);
ALTER TABLE guard_parted ATTACH PARTITION guard_parted_2 FOR VALUES IN (2);
SELECT idem_define_machine('guard_parted', 'state', '{{OPEN,DONE}}', '{OPEN}', '{DONE}');
INSERT INTO guard_parted VALUES (1, 1, 'OPEN'), (2, 1, 'OPEN'), (3, 2, 'OPEN');
INSERT INTO guard_parted VALUES (4, 2, 'DONE');
UPDATE guard_parted SET month = 3 - month, state = 'DONE' WHERE id <> 2;
UPDATE guard_parted SET month = 3 - month;
UPDATE guard_parted SET month = 3 - month, state = 'OPEN';
SELECT tableoid::regclass, * FROM guard_parted ORDER BY id;

-- an enum
CREATE TYPE guard_state AS ENUM ('OPEN', 'DONE', 'LOST');
CREATE TABLE guard_enum (id int, state guard_state);
SELECT idem_define_machine('guard_enum', 'state', '{{OPEN,GONE}}', '{OPEN}');
SELECT idem_define_machine('guard_enum', 'state', '{{OPEN,DONE}}', '{OPEN}');
INSERT INTO guard_enum VALUES (1, 'OPEN');
UPDATE guard_enum SET state = 'LOST';
UPDATE guard_enum SET state = NULL;
UPDATE guard_enum SET state = 'DONE';

-- names are followed
ALTER TABLE guard_enum RENAME state TO stage;
ALTER TABLE guard_enum RENAME TO guard_renamed;
UPDATE guard_renamed SET stage = 'OPEN';
INSERT INTO guard_renamed VALUES (2, 'OPEN');
ALTER TABLE guard_renamed DROP stage;

-- a definition must fit the table
\set VERBOSITY terse
SELECT idem_define_machine('guard_order', 'stat', '{{A,B}}', '{A}');
SELECT idem_define_machine('guard_order', 'generation', '{{A,B}}', '{A}');
SELECT idem_define_machine('guard_order', 'state', '{A,B}', '{A}');
SELECT idem_define_machine('guard_order', 'state', '{{A,B},{B,A},{C,B}}', '{A}');
SELECT idem_define_machine('guard_order', 'state', '{{A,B},{B,A}}', '{A}', '{B}');
SELECT idem_define_machine('guard_order', 'state', '{{A,A},{A,B}}', '{A}');
SELECT idem_define_machine('guard_order', 'state', '{{A,B}}', '{A}', NULL, 'note');
SELECT idem_define_machine('guard_order', 'state', '{{A,B}}', '{A}', NULL, NULL, '{state}');
SELECT idem_define_machine('guard_order', 'state', '{{A,B}}', '{A}');
\set VERBOSITY sqlstate
SELECT idem_define_machine(NULL, 'state', '{{A,B}}', '{A}');
SELECT idem_define_machine('guard_order', NULL, '{{A,B}}', '{A}');
SELECT idem_define_machine('guard_order', 'state', NULL, '{A}');
SELECT idem_define_machine('guard_order', 'state', '{{A,B}}', NULL);
SELECT idem_define_machine('guard_order_pkey', 'state', '{{A,B}}', '{A}');

-- the newest definition counts, until it is dropped
SELECT idem_define_machine('guard_order', 'state', '{{UNPAID,PAID},{PAID,UNPAID},{REFUNDED,PAID}}',
                           '{UNPAID,REFUNDED}');
UPDATE guard_order SET state = 'PAID', customer = NULL, generation = 0 WHERE id = 'o-1';
SELECT idem_drop_machine('guard_order');
SELECT idem_drop_machine('guard_order');
UPDATE guard_order SET state = 'ANYTHING' WHERE id = 'o-1';
SELECT count(*) FROM pg_trigger WHERE tgrelid = 'guard_order'::regclass;

DROP TABLE guard_order, guard_parted, guard_renamed;
DROP TYPE guard_state;
