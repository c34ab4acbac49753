-- cases_guard.sql: tables that defend their state, whatever SQL is used; what idem_transition
-- answers; and bad input of every argument of idem_define_machine, idem_drop_machine and
-- idem_transition, by SQLSTATE.  Case O7 is named.
--
-- Not in one transaction, since sessions of an application are not.  The file starts by removing
-- what an earlier run of it left behind.
\set ON_ERROR_STOP on
\set ON_ERROR_ROLLBACK off
\set VERBOSITY sqlstate
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pgtap;
CREATE EXTENSION IF NOT EXISTS idem_action;
DROP SCHEMA IF EXISTS case_guard, impostors, "odd ""schema" CASCADE;
CREATE SCHEMA case_guard;
SET search_path = case_guard, public;

-- the code of a statement, which is undone if it raised one
CREATE FUNCTION code(statement text, as_role text DEFAULT NULL) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    IF as_role IS NOT NULL THEN
        EXECUTE format('SET LOCAL ROLE %I', as_role);
    END IF;
    EXECUTE statement;
    RESET ROLE;
    RETURN '00000';
EXCEPTION WHEN OTHERS THEN
    RETURN SQLSTATE;
END $$;
-- outcome and state of a transition, or its code
CREATE FUNCTION moved(arguments text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    answer text;
BEGIN
    EXECUTE format('SELECT outcome || '' '' || coalesce(state, ''-'') FROM idem_transition(%s)',
                   arguments) INTO STRICT answer;
    RETURN answer;
EXCEPTION WHEN OTHERS THEN
    RETURN SQLSTATE;
END $$;
-- the machine of most tables here
CREATE FUNCTION define(t regclass, gen name DEFAULT NULL, immutable text[] DEFAULT NULL)
RETURNS void LANGUAGE sql AS $$
    SELECT idem_define_machine(t, 'state',
        '{{UNPAID,PAID},{UNPAID,CLOSED},{PAID,SHIPPED},{SHIPPED,PAID},{PAID,REFUNDED}}',
        '{UNPAID}', '{CLOSED,REFUNDED}', gen, immutable)
$$;

SELECT * FROM no_plan();

-- ---- O7: a payment that comes twice, and one that comes too late ----

CREATE TABLE orders (id text PRIMARY KEY, state text NOT NULL DEFAULT 'UNPAID');
SELECT FROM define('orders');
CREATE TABLE coupon_outbox (order_id text);
CREATE FUNCTION pay(order_id text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    moved idem_transitioned;
BEGIN
    moved := idem_transition('orders', order_id, 'UNPAID', 'PAID');
    IF moved.outcome = 'applied' THEN
        INSERT INTO coupon_outbox VALUES (order_id);
    END IF;
    RETURN moved.outcome || ' ' || moved.state;
END $$;
INSERT INTO orders VALUES ('o-1'), ('o-2');
SELECT is(pay('o-1'), 'applied PAID', 'O7: UNPAID to PAID');
SELECT is(pay('o-1'), 'already PAID', 'O7: and again');
SELECT is(moved($$'orders', 'o-2', 'UNPAID', 'CLOSED'$$), 'applied CLOSED', 'O7: closed');
SELECT is(pay('o-2'), 'refused CLOSED', 'O7: a late payment');
SELECT results_eq('TABLE coupon_outbox', $$VALUES ('o-1')$$, 'O7: one outbox row');

-- ---- what idem_transition answers ----

CREATE TABLE moves (id bigint PRIMARY KEY, state text, gen bigint, note text);
SELECT FROM define('moves', 'gen');
INSERT INTO moves VALUES (1, 'UNPAID', 5), (2, 'UNPAID', NULL), (3, 'UNPAID', 5), (4, 'UNPAID', 5),
    (5, 'UNPAID', 5);
SELECT is(moved(args), answer, 'idem_transition(' || args || ')') FROM (VALUES
    (1, $$'moves', 1, 'UNPAID', 'PAID', 4$$, 'ID002'),
    (2, $$'moves', 1, 'UNPAID', 'PAID', 5$$, 'applied PAID'),
    (3, $$'moves', 1, 'UNPAID', 'PAID', 5$$, 'already PAID'),
    (4, $$'moves', 1, 'UNPAID', 'PAID', 4$$, 'ID002'),
    (5, $$'moves', 1, 'UNPAID', 'CLOSED', 5$$, 'refused PAID'),
    (6, $$'moves', 1, 'UNPAID', 'CLOSED', 4$$, 'ID002'),
    (7, $$'moves', 1, 'UNPAID', 'PAID'$$, 'already PAID'),
    (8, $$'moves', 1, 'PAID', 'SHIPPED', 7$$, 'applied SHIPPED'),
    (9, $$'moves', 1, 'SHIPPED', 'PAID', 6$$, 'ID002'),
    (10, $$'moves', 1, 'SHIPPED', 'PAID'$$, 'applied PAID'),
    -- a cycle: who comes late with a move that was made before is not told so
    (11, $$'moves', 1, 'PAID', 'SHIPPED'$$, 'applied SHIPPED'),
    (12, $$'moves', 1, 'PAID', 'SHIPPED'$$, 'already SHIPPED'),
    -- no generation yet, then one
    (13, $$'moves', 2, 'UNPAID', 'PAID'$$, 'applied PAID'),
    (14, $$'moves', 2, 'PAID', 'SHIPPED', -3$$, 'applied SHIPPED'),
    (15, $$'moves', 2, 'SHIPPED', 'PAID', -4$$, 'ID002'),
    -- no such row
    (16, $$'moves', 99, 'UNPAID', 'PAID'$$, 'refused -'),
    (17, $$'moves', 99, 'UNPAID', 'PAID', 1$$, 'refused -'),
    -- moves that the machine does not have, wherever the row is and whether there is one
    (18, $$'moves', 3, 'UNPAID', 'SHIPPED'$$, 'ID003'),
    (19, $$'moves', 3, 'PAID', 'UNPAID'$$, 'ID003'),
    (20, $$'moves', 3, 'CLOSED', 'UNPAID'$$, 'ID003'),
    (21, $$'moves', 3, 'UNPAYED', 'PAID'$$, 'ID003'),
    (22, $$'moves', 3, 'UNPAID', 'PIAD'$$, 'ID003'),
    (23, $$'moves', 3, 'PIAD', 'UNPAID'$$, 'ID003'),
    (24, $$'moves', 3, '', 'PAID'$$, 'ID003'),
    (25, $$'moves', 3, 'unpaid', 'PAID'$$, 'ID003'),
    (26, $$'moves', 3, 'UNPAID ', 'PAID'$$, 'ID003'),
    (27, $$'moves', 99, 'UNPAID', 'SHIPPED'$$, 'ID003'),
    -- from a state to itself is no transition
    (28, $$'moves', 3, 'UNPAID', 'UNPAID'$$, 'ID003'),
    (29, $$'moves', 3, 'PAID', 'PAID'$$, 'ID003')) v (n, args, answer)
ORDER BY n;
SELECT results_eq('SELECT id, state, gen FROM moves ORDER BY id',
    $$VALUES (1::bigint, 'SHIPPED', 7::bigint), (2, 'SHIPPED', -3), (3, 'UNPAID', 5),
             (4, 'UNPAID', 5), (5, 'UNPAID', 5)$$,
    'and this is what they left');

-- whatever the type of the id and of the state
CREATE TYPE order_state AS ENUM ('UNPAID', 'PAID', 'CLOSED', 'SHIPPED', 'REFUNDED', 'LOST');
CREATE DOMAIN order_id AS text CHECK (VALUE <> '');
CREATE TABLE kinds (kind text, id_type text, id text, other text);
INSERT INTO kinds VALUES ('text', 'text', $$'a/1'$$, $$'a/2'$$), ('varchar', 'varchar(9)', $$'a'$$, $$'b'$$),
    ('char', 'char(3)', $$'a'$$, $$'b'$$), ('domain', 'order_id', $$'a'$$, $$'b'$$),
    ('bigint', 'bigint', '9223372036854775807', '-9223372036854775808'),
    ('integer', 'integer', '1', '2'), ('smallint', 'smallint', '1', '2'),
    ('numeric', 'numeric(12,2)', '1', '2'), ('integer given as text', 'integer', $$'1'$$, $$'2'$$),
    ('uuid', 'uuid', $$'00000000-0000-0000-0000-000000000001'::uuid$$,
     $$'00000000-0000-0000-0000-000000000002'::uuid$$),
    ('uuid given as text', 'uuid', $$'{00000000-0000-0000-0000-00000000000A}'$$,
     $$'00000000-0000-0000-0000-000000000002'$$);
CREATE FUNCTION try_kind(id_type text, state_type text, id text, other text) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    answers text;
BEGIN
    EXECUTE format('CREATE TABLE of_kind (id %s PRIMARY KEY, state %s)', id_type, state_type);
    PERFORM define('of_kind');
    EXECUTE format('INSERT INTO of_kind VALUES (%s, %L), (%s, %L)', id, 'UNPAID', other, 'UNPAID');
    answers := concat_ws(', ', moved(format('''of_kind'', %s, ''UNPAID'', ''PAID''', id)),
        moved(format('''of_kind'', %s, ''UNPAID'', ''PAID''', id)),
        moved(format('''of_kind'', %s, ''UNPAID'', ''CLOSED''', id)),
        moved(format('''of_kind'', %s, ''UNPAID'', ''LOST''', id)),
        moved(format('''of_kind'', %s, ''UNPAID'', ''NONSENSE''', id)),
        moved(format('''of_kind'', %s, ''NONSENSE'', ''UNPAID''', id)),
        code('UPDATE of_kind SET state = ''LOST'''), code('UPDATE of_kind SET state = ''PAID'''));
    DROP TABLE of_kind;
    RETURN answers;
END $$;
SELECT is(try_kind(id_type, state_type, id, other),
          'applied PAID, already PAID, refused PAID, ID003, ID003, ID003, ID003, 00000',
          format('id is %s, state is %s', kind, state_type))
FROM kinds, unnest('{text, varchar, varchar(8), order_state}'::text[]) s (state_type);

-- bad input
CREATE TABLE no_machine (id int PRIMARY KEY, state text);
CREATE TABLE no_key (id int, state text);
CREATE TABLE long_key (id int, part int, state text, PRIMARY KEY (id, part));
CREATE TABLE integers (id int PRIMARY KEY, state text);
CREATE VIEW seen AS TABLE orders;
SELECT FROM define('no_key') a, define('long_key') b, define('integers') c;
SELECT is(moved(args), answer, 'idem_transition(' || args || ')') FROM (VALUES
    ($$NULL::regclass, 1, 'UNPAID', 'PAID'$$, '22004'),
    ($$'moves', NULL::bigint, 'UNPAID', 'PAID'$$, '22004'),
    ($$'moves', NULL::text, 'UNPAID', 'PAID'$$, '22004'),
    ($$'moves', NULL::uuid, 'UNPAID', 'PAID'$$, '22004'),
    ($$'moves', 3, NULL, 'PAID'$$, '22004'),
    ($$'moves', 3, 'UNPAID', NULL$$, '22004'),
    ($$'moves', '', 'UNPAID', 'PAID'$$, '22P02'),
    ($$'moves', 'x', 'UNPAID', 'PAID'$$, '22P02'),
    ($$'moves', '00000000-0000-0000-0000-000000000001'::uuid, 'UNPAID', 'PAID'$$, '42846'),
    ($$'moves', 3, 'UNPAID', 'PAID', 'x'$$, '22P02'),
    ($$'moves', 3, 'UNPAID', 'PAID', 1.5$$, '42883'),
    ($$'moves', true, 'UNPAID', 'PAID'$$, '42883'),
    ($$'orders', 'o-1', 'UNPAID', 'PAID', 1$$, '22023'),
    ($$'no_machine', 1, 'UNPAID', 'PAID'$$, '55000'),
    ($$'no_key', 1, 'UNPAID', 'PAID'$$, '0A000'),
    ($$'long_key', 1, 'UNPAID', 'PAID'$$, '0A000'),
    ($$'no_such_table', 1, 'UNPAID', 'PAID'$$, '42P01'),
    ($$4000000000::oid::regclass, 1, 'UNPAID', 'PAID'$$, '42P01')) v (args, answer);
SELECT ok(moved($$'seen', 1, 'UNPAID', 'PAID'$$) IN ('55000', '0A000', '42809'),
          'idem_transition of a view');
SELECT is(code($$SET LOCAL transaction_read_only = on;
          SELECT idem_transition('moves', 3, 'UNPAID', 'PAID')$$), '25006',
           'idem_transition: read-only');

-- ---- whatever SQL does it ----

CREATE TABLE guarded (id int PRIMARY KEY, state text, gen int, fixed text, note text);
SELECT FROM define('guarded', 'gen', '{fixed}');
CREATE FUNCTION again() RETURNS void LANGUAGE sql AS $$
    TRUNCATE guarded;
    INSERT INTO guarded SELECT id, 'UNPAID', 5, 'f', 'n' FROM generate_series(1, 6) id;
    UPDATE guarded SET state = 'PAID' WHERE id IN (2, 3);
    UPDATE guarded SET state = 'CLOSED' WHERE id = 4;
    UPDATE guarded SET state = 'SHIPPED' WHERE id = 3;
$$;
-- 1 is UNPAID, 2 PAID, 3 SHIPPED, 4 CLOSED, 5 and 6 are UNPAID
SELECT FROM again();
CREATE TABLE guarded_before AS TABLE guarded;
CREATE FUNCTION try_sql(statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    answer text;
BEGIN
    PERFORM again();
    answer := code(statement);
    -- what was refused left nothing
    IF answer <> '00000' AND EXISTS (TABLE guarded EXCEPT TABLE guarded_before) THEN
        RETURN answer || ' but written';
    END IF;
    RETURN answer;
END $$;
SELECT is(try_sql(statement), right_code, statement) FROM (VALUES
    -- inserts
    ($$INSERT INTO guarded VALUES (7, 'UNPAID')$$, '00000'),
    ($$INSERT INTO guarded VALUES (7, 'PAID')$$, 'ID003'),
    ($$INSERT INTO guarded VALUES (7, 'CLOSED')$$, 'ID003'),
    ($$INSERT INTO guarded VALUES (7, 'NONSENSE')$$, 'ID003'),
    ($$INSERT INTO guarded VALUES (7, '')$$, 'ID003'),
    ($$INSERT INTO guarded VALUES (7, 'UNPAID ')$$, 'ID003'),
    ($$INSERT INTO guarded VALUES (7, 'UNPAI')$$, 'ID003'),
    ($$INSERT INTO guarded VALUES (7, NULL)$$, 'ID003'),
    ($$INSERT INTO guarded VALUES (7, 'UNPAID'), (8, 'PAID'), (9, 'UNPAID')$$, 'ID003'),
    ($$INSERT INTO guarded SELECT id + 10, state FROM guarded$$, 'ID003'),
    ($$INSERT INTO guarded SELECT id + 10, 'UNPAID' FROM guarded$$, '00000'),
    -- updates of the state
    ($$UPDATE guarded SET state = 'PAID' WHERE id = 1$$, '00000'),
    ($$UPDATE guarded SET state = 'SHIPPED' WHERE id = 1$$, 'ID003'),
    ($$UPDATE guarded SET state = 'UNPAID' WHERE id = 2$$, 'ID003'),
    ($$UPDATE guarded SET state = 'PAID' WHERE id = 3$$, '00000'),
    ($$UPDATE guarded SET state = 'PAID' WHERE id = 4$$, 'ID003'),
    ($$UPDATE guarded SET state = 'UNPAID' WHERE id = 4$$, 'ID003'),
    ($$UPDATE guarded SET state = 'NONSENSE' WHERE id = 1$$, 'ID003'),
    ($$UPDATE guarded SET state = NULL WHERE id = 1$$, 'ID003'),
    -- a terminal row keeps its state; its other columns are nobody's business here
    ($$UPDATE guarded SET note = 'x', state = 'CLOSED' WHERE id = 4$$, '00000'),
    ($$UPDATE guarded SET note = 'x', id = 44, gen = 6 WHERE id = 4$$, '00000'),
    -- many rows: one illegal move refuses all
    ($$UPDATE guarded SET state = 'PAID' WHERE id IN (1, 2, 3, 5, 6)$$, '00000'),
    ($$UPDATE guarded SET state = 'PAID'$$, 'ID003'),
    ($$UPDATE guarded SET state = CASE id WHEN 1 THEN 'CLOSED' WHEN 2 THEN 'REFUNDED'
       WHEN 3 THEN 'PAID' ELSE state END$$, '00000'),
    ($$UPDATE guarded SET state = CASE id WHEN 1 THEN 'CLOSED' WHEN 2 THEN 'CLOSED'
       ELSE state END$$, 'ID003'),
    ($$UPDATE guarded g SET state = v.state FROM (VALUES (1, 'PAID'), (6, 'SHIPPED')) v (id, state)
       WHERE g.id = v.id$$, 'ID003'),
    -- two legal moves, one after the other, and back within one transaction
    ($$UPDATE guarded SET state = 'PAID' WHERE id = 1;
       UPDATE guarded SET state = 'SHIPPED' WHERE id = 1$$, '00000'),
    ($$UPDATE guarded SET state = 'PAID' WHERE id = 1;
       UPDATE guarded SET state = 'UNPAID' WHERE id = 1$$, 'ID003'),
    ($$DELETE FROM guarded WHERE id = 4; INSERT INTO guarded VALUES (4, 'UNPAID')$$, '00000'),
    ($$DELETE FROM guarded WHERE id = 2; INSERT INTO guarded VALUES (2, 'PAID')$$, 'ID003'),
    -- upserts
    ($$INSERT INTO guarded VALUES (1, 'UNPAID') ON CONFLICT (id) DO UPDATE SET state = 'PAID'$$,
     '00000'),
    ($$INSERT INTO guarded VALUES (4, 'UNPAID') ON CONFLICT (id) DO UPDATE SET state = 'PAID'$$,
     'ID003'),
    ($$INSERT INTO guarded VALUES (4, 'PAID') ON CONFLICT (id) DO UPDATE SET state = excluded.state$$,
     'ID003'),
    ($$INSERT INTO guarded VALUES (1, 'PAID') ON CONFLICT (id) DO UPDATE SET state = excluded.state$$,
     '00000'),
    ($$INSERT INTO guarded VALUES (7, 'PAID') ON CONFLICT (id) DO UPDATE SET state = excluded.state$$,
     'ID003'),
    ($$INSERT INTO guarded VALUES (4, 'PAID') ON CONFLICT DO NOTHING$$, '00000'),
    ($$INSERT INTO guarded VALUES (1, 'UNPAID', 4) ON CONFLICT (id) DO UPDATE SET gen = excluded.gen$$,
     'ID002'),
    ($$INSERT INTO guarded VALUES (1, 'UNPAID') ON CONFLICT (id) DO UPDATE SET fixed = 'g'$$,
     '23514'),
    -- MERGE
    ($$MERGE INTO guarded g USING (VALUES (1, 'PAID'), (7, 'UNPAID')) v (id, state) ON g.id = v.id
       WHEN MATCHED THEN UPDATE SET state = v.state
       WHEN NOT MATCHED THEN INSERT (id, state) VALUES (v.id, v.state)$$, '00000'),
    ($$MERGE INTO guarded g USING (VALUES (1, 'PAID'), (7, 'PAID')) v (id, state) ON g.id = v.id
       WHEN MATCHED THEN UPDATE SET state = v.state
       WHEN NOT MATCHED THEN INSERT (id, state) VALUES (v.id, v.state)$$, 'ID003'),
    ($$MERGE INTO guarded g USING (VALUES (4, 'PAID')) v (id, state) ON g.id = v.id
       WHEN MATCHED THEN UPDATE SET state = v.state$$, 'ID003'),
    ($$MERGE INTO guarded g USING (VALUES (4)) v (id) ON g.id = v.id
       WHEN MATCHED THEN DELETE$$, '00000'),
    -- common table expressions
    ($$WITH u AS (UPDATE guarded SET state = 'PAID' WHERE id = 1 RETURNING id)
       INSERT INTO guarded SELECT id + 10, 'UNPAID' FROM u$$, '00000'),
    ($$WITH u AS (UPDATE guarded SET state = 'PAID' WHERE id = 1 RETURNING id, state)
       INSERT INTO guarded SELECT id + 10, state FROM u$$, 'ID003'),
    ($$WITH u AS (UPDATE guarded SET state = 'UNPAID' WHERE id = 4 RETURNING id)
       SELECT count(*) FROM u$$, 'ID003'),
    ($$WITH d AS (DELETE FROM guarded WHERE id = 2 RETURNING *)
       INSERT INTO guarded SELECT id + 10, state FROM d$$, 'ID003'),
    -- a view of it
    ($$CREATE VIEW guarded_view AS SELECT id, state FROM guarded;
       UPDATE guarded_view SET state = 'UNPAID' WHERE id = 4$$, 'ID003'),
    -- generations: equal and higher ones only; none is lower than any
    ($$UPDATE guarded SET gen = 5 WHERE id = 1$$, '00000'),
    ($$UPDATE guarded SET gen = 2147483647 WHERE id = 1$$, '00000'),
    ($$UPDATE guarded SET gen = 4 WHERE id = 1$$, 'ID002'),
    ($$UPDATE guarded SET gen = NULL WHERE id = 1$$, 'ID002'),
    ($$UPDATE guarded SET gen = -1, state = 'PAID' WHERE id = 1$$, 'ID002'),
    ($$INSERT INTO guarded VALUES (7, 'UNPAID', NULL); UPDATE guarded SET gen = -5 WHERE id = 7$$,
     '00000'),
    ($$INSERT INTO guarded VALUES (7, 'UNPAID', -5); UPDATE guarded SET gen = -6 WHERE id = 7$$,
     'ID002'),
    ($$UPDATE guarded SET gen = CASE id WHEN 6 THEN 4 ELSE 6 END$$, 'ID002'),
    ($$UPDATE guarded SET gen = 4 WHERE id = 4$$, 'ID002'),
    -- immutable columns
    ($$UPDATE guarded SET fixed = 'f' WHERE id = 1$$, '00000'),
    ($$UPDATE guarded SET fixed = 'F' WHERE id = 1$$, '23514'),
    ($$UPDATE guarded SET fixed = 'f ' WHERE id = 1$$, '23514'),
    ($$UPDATE guarded SET fixed = NULL WHERE id = 1$$, '23514'),
    ($$INSERT INTO guarded VALUES (7, 'UNPAID'); UPDATE guarded SET fixed = NULL WHERE id = 7$$,
     '00000'),
    ($$INSERT INTO guarded VALUES (7, 'UNPAID'); UPDATE guarded SET fixed = 'f' WHERE id = 7$$,
     '23514'),
    -- what else writes
    ($$TRUNCATE guarded$$, '00000'),
    ($$DELETE FROM guarded$$, '00000'),
    ($$ALTER TABLE guarded ALTER note TYPE varchar(7)$$, '00000')) v (statement, right_code);

-- COPY: all or nothing
SELECT is(try_sql(format('COPY guarded (id, state) FROM PROGRAM %L', 'printf "' || rows || '"')),
          right_code, 'COPY of ' || rows)
FROM (VALUES ('11\tUNPAID\n12\tUNPAID\n', '00000'), ('13\tUNPAID\n14\tPAID\n15\tUNPAID\n', 'ID003'),
    ('16\t\\N\n', 'ID003')) v (rows, right_code);

-- foreign keys that write
CREATE TABLE parents (id text PRIMARY KEY);
CREATE TABLE children (id int PRIMARY KEY, state text DEFAULT 'PAID',
    cascades text REFERENCES parents ON UPDATE CASCADE,
    resets text REFERENCES parents ON DELETE SET NULL,
    by_parent text REFERENCES parents ON DELETE CASCADE,
    state_of text REFERENCES parents (id) ON DELETE SET DEFAULT DEFAULT 'default');
INSERT INTO parents VALUES ('a'), ('b'), ('c'), ('d'), ('default'), ('UNPAID'), ('PAID');
SELECT FROM define('children', NULL, '{cascades, resets, state_of}');
INSERT INTO children VALUES (1, 'UNPAID', 'a', 'b', 'c', 'd');
SELECT is(code($$UPDATE parents SET id = 'z' WHERE id = 'a'$$), '23514', 'ON UPDATE CASCADE');
SELECT is(code($$DELETE FROM parents WHERE id = 'b'$$), '23514', 'ON DELETE SET NULL');
SELECT is(code($$DELETE FROM parents WHERE id = 'd'$$), '23514', 'ON DELETE SET DEFAULT');
SELECT is(code($$DELETE FROM parents WHERE id = 'c'$$), '00000', 'ON DELETE CASCADE');
ALTER TABLE children ADD FOREIGN KEY (state) REFERENCES parents ON UPDATE CASCADE;
INSERT INTO children VALUES (2, 'UNPAID');
SELECT is(code($$UPDATE parents SET id = 'LATE' WHERE id = 'UNPAID'$$), 'ID003',
          'ON UPDATE CASCADE of the state');

-- other triggers: what is stored is judged, not what was asked for
CREATE TABLE meddled (id int PRIMARY KEY, state text, fixed int);
SELECT FROM define('meddled', NULL, '{fixed}');
CREATE FUNCTION meddle() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.state := coalesce(nullif(current_setting('case_guard.state'), ''), NEW.state);
    NEW.fixed := coalesce(nullif(current_setting('case_guard.fixed'), '')::int, NEW.fixed);
    RETURN NEW;
END $$;
CREATE TRIGGER zz BEFORE INSERT OR UPDATE ON meddled FOR EACH ROW EXECUTE FUNCTION meddle();
SET case_guard.state = '';
SET case_guard.fixed = '';
INSERT INTO meddled VALUES (1, 'UNPAID', 1);
SET case_guard.state = 'CLOSED';
SELECT is(code($$INSERT INTO meddled VALUES (2, 'UNPAID', 1)$$), 'ID003',
          'a trigger makes it illegal');
SELECT is(code($$UPDATE meddled SET state = 'SHIPPED'$$), '00000', 'a trigger makes it legal');
SELECT is(code($$UPDATE meddled SET state = 'CLOSED'$$), '00000', 'a trigger changes nothing');
SET case_guard.state = 'PAID';
SELECT is(code($$UPDATE meddled SET fixed = fixed$$), 'ID003', 'a trigger leaves a terminal state');
SET case_guard.state = '';
SET case_guard.fixed = '2';
SELECT is(code($$UPDATE meddled SET id = 1$$), '23514', 'a trigger changes an immutable column');
SET case_guard.fixed = '';
SELECT results_eq('TABLE meddled', $$VALUES (1, 'CLOSED', 1)$$, 'and this is what they left');

-- a trigger that moves other rows of the table by idem_transition, while the table is altered:
-- plans are not freed under a call that is under way
CREATE TABLE chain (id int PRIMARY KEY, state text);
SELECT FROM define('chain');
CREATE FUNCTION next_in_chain() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.id > 1 THEN
        GRANT SELECT ON case_guard.chain TO PUBLIC;
        REVOKE SELECT ON case_guard.chain FROM PUBLIC;
        PERFORM idem_transition('chain', NEW.id - 1, 'UNPAID', 'PAID');
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER zz AFTER UPDATE ON chain FOR EACH ROW EXECUTE FUNCTION next_in_chain();
INSERT INTO chain SELECT id, 'UNPAID' FROM generate_series(1, 9) id;
SELECT is(moved($$'chain', 9, 'UNPAID', 'PAID'$$), 'applied PAID',
          'transitions within transitions');
SELECT results_eq('SELECT DISTINCT state FROM chain', $$VALUES ('PAID')$$, 'move every row');

-- generated columns
CREATE TABLE generated (id int PRIMARY KEY, paid int NOT NULL, closed boolean DEFAULT false,
    state text GENERATED ALWAYS AS (CASE WHEN closed THEN 'CLOSED' WHEN paid > 0 THEN 'PAID'
                                    ELSE 'UNPAID' END) STORED,
    fixed int GENERATED ALWAYS AS (abs(paid) / 100) STORED);
SELECT FROM define('generated', NULL, '{fixed}');
SELECT is(code('INSERT INTO generated VALUES (1, 0)'), '00000', 'generated state: initial');
SELECT is(code('INSERT INTO generated VALUES (2, 1)'), 'ID003', 'generated state: not initial');
SELECT is(code('UPDATE generated SET paid = 7'), '00000', 'generated state: moved');
SELECT is(code('UPDATE generated SET closed = true'), 'ID003', 'generated state: illegally');
SELECT is(code('UPDATE generated SET paid = 100'), '23514', 'generated immutable column: changed');
SELECT is(code('UPDATE generated SET paid = 8'), '00000', 'generated immutable column: the same');

-- immutable columns of many types: a change is one of the bytes, not of what an operator holds equal
CREATE DOMAIN positive AS numeric CHECK (VALUE > 0);
CREATE TYPE pair AS (a int, b text);
CREATE FUNCTION try_immutable(type text, value text, other text) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    answers text;
BEGIN
    EXECUTE format('CREATE TABLE of_type (id int PRIMARY KEY, state text, note int, fixed %s)', type);
    PERFORM define('of_type', NULL, '{fixed}');
    EXECUTE format('INSERT INTO of_type VALUES (1, ''UNPAID'', 0, %s)', value);
    answers := concat_ws(' ', code('UPDATE of_type SET note = 1'),
        code('UPDATE of_type SET state = ''PAID'''),
        code(format('UPDATE of_type SET fixed = %s', value)),
        code(format('UPDATE of_type SET fixed = %s', other)),
        code('UPDATE of_type SET fixed = NULL'));
    DROP TABLE of_type;
    RETURN answers;
END $$;
SELECT is(try_immutable(type, value, other), '00000 00000 00000 23514 23514',
          format('immutable %s: %s, %s', type, left(value, 20), left(other, 20)))
FROM (VALUES ('boolean', 'true', 'false'), ('"char"', $$'a'$$, $$'b'$$), ('smallint', '1', '2'),
    ('bigint', '1', '4294967297'), ('real', '0', $$'-0'$$), ('numeric', '1.0', '1.00'),
    ('float8', $$'NaN'$$, '0'), ('text', $$'a'$$, $$'A'$$), ('text', $$''$$, $$' '$$),
    ('varchar(9)', $$'a'$$, $$'a '$$), ('char(3)', $$'a'$$, $$'b'$$), ('name', $$'a'$$, $$'b'$$),
    ('bytea', $$'\x00'$$, $$'\x0000'$$), ('uuid', 'md5(''1'')::uuid', 'md5(''2'')::uuid'),
    ('date', $$'2024-01-01'$$, $$'2024-01-02'$$), ('timestamptz', $$'2024-01-01'$$, $$'infinity'$$),
    ('interval', $$'1 day'$$, $$'24 hours'$$), ('json', $$'{"a": 1}'$$, $$'{"a":1}'$$),
    ('jsonb', $$'{"a": 1}'$$, $$'{"a": 1.0}'$$), ('int[]', $$'{1,2}'$$, $$'[0:1]={1,2}'$$),
    ('text[]', $$'{a,NULL}'$$, $$'{a,"NULL"}'$$), ('pair', $$'(1,x)'$$, $$'(1,)'$$),
    ('positive', '1.5', '1.50'), ('order_id', $$'a'$$, $$'b'$$), ('order_state', $$'PAID'$$, $$'LOST'$$),
    ('int4range', $$'[1,3]'$$, $$'[1,3)'$$), ('inet', $$'::1'$$, $$'::1/127'$$),
    ('text', $$repeat('a', 100000)$$, $$repeat('a', 99999) || 'b'$$)) v (type, value, other);
CREATE FUNCTION apart(first int, last int) RETURNS text LANGUAGE sql AS $$
    SELECT string_agg(md5(i::text), '') FROM generate_series(first, last) i
$$;
SELECT is(try_immutable(type, value, other), '00000 00000 00000 23514 23514',
          format('immutable %s, stored apart', type))
FROM (VALUES ('text', 'apart(1, 2000)', 'apart(2, 2001)'),
    ('bytea', 'apart(1, 2000)::bytea', 'apart(1, 1999)::bytea'),
    ('jsonb', 'to_jsonb(apart(1, 2000))', 'to_jsonb(apart(2, 2000))'),
    ('pair', 'ROW(1, apart(1, 2000))::pair', 'ROW(2, apart(1, 2000))::pair'),
    ('text[]', 'ARRAY[apart(1, 2000)]', 'ARRAY[apart(1, 1000), apart(1001, 2000)]'))
    v (type, value, other);
SELECT is(code($$
    CREATE TABLE external (id int PRIMARY KEY, state text, fixed text);
    ALTER TABLE external ALTER fixed SET STORAGE EXTERNAL;
    SELECT define('external', NULL, '{fixed}');
    INSERT INTO external VALUES (1, 'UNPAID', repeat('a', 100000));
    ALTER TABLE external ALTER fixed SET STORAGE EXTENDED;
    UPDATE external SET fixed = fixed || ''$$), '00000',
     'immutable: stored otherwise is not changed');

-- an integer and a bigint generation
SELECT is(code(format($$DROP TABLE IF EXISTS of_gen;
        CREATE TABLE of_gen (id int PRIMARY KEY, state text, gen %s);
        SELECT define('of_gen', 'gen');
        INSERT INTO of_gen VALUES (1, 'UNPAID', %s);
        UPDATE of_gen SET gen = %s$$, type, gen, later)), right_code, format('%s: %s to %s', type, gen, later))
FROM (VALUES ('integer', '1', '2', '00000'), ('integer', '2', '1', 'ID002'),
    ('integer', '-2147483648', '2147483647', '00000'), ('integer', '2147483647', '-2147483648',
     'ID002'),
    ('bigint', '4294967297', '4294967298', '00000'), ('bigint', '4294967298', '4294967297',
     'ID002'),
    ('bigint', '4294967296', '1', 'ID002'), ('bigint', '9223372036854775807', '-9223372036854775808',
     'ID002'))
    v (type, gen, later, right_code);

-- names and states that must be quoted
CREATE SCHEMA "odd ""schema";
CREATE TABLE "odd ""schema"."odd 'table" (id int PRIMARY KEY, "St ""a" text, "g'" int, "Fix\" int);
CREATE FUNCTION odd(n int) RETURNS text LANGUAGE sql AS $$
    SELECT (ARRAY['a''b"c\d,{e}', 'NULL', '', E'x\ny', '€'])[n]
$$;
SELECT is(code($$SELECT idem_define_machine('"odd ""schema"."odd ''table"', 'St "a',
    ARRAY[[odd(1), odd(2)], [odd(2), odd(3)], [odd(3), odd(4)], [odd(4), odd(5)]], ARRAY[odd(1)],
    ARRAY[odd(5)], 'g''', ARRAY['Fix\'])$$), '00000', 'odd names are defined');
INSERT INTO "odd ""schema"."odd 'table" VALUES (1, odd(1), 1, 1);
SELECT is((SELECT outcome || state FROM
    idem_transition('"odd ""schema"."odd ''table"', 1, odd(n), odd(n + 1), n)), 'applied' || odd(n + 1),
    format('from odd state %s to %s', n, n + 1)) FROM generate_series(1, 4) n;
SELECT is(code($$UPDATE "odd ""schema"."odd 'table" SET "Fix\" = 2$$), '23514',
          'odd immutable column');
SELECT is(code($$INSERT INTO "odd ""schema"."odd 'table" VALUES (2, 'null')$$), 'ID003',
          'odd state');
DROP SCHEMA "odd ""schema" CASCADE;

-- a search path with impostors
CREATE SCHEMA impostors;
CREATE FUNCTION impostors.never(text, text) RETURNS boolean LANGUAGE sql AS 'SELECT false';
CREATE OPERATOR impostors.= (FUNCTION = impostors.never, LEFTARG = text, RIGHTARG = text);
CREATE OPERATOR impostors.<> (FUNCTION = impostors.never, LEFTARG = text, RIGHTARG = text);
CREATE DOMAIN impostors.text AS pg_catalog.text CHECK (VALUE IS NULL);
INSERT INTO orders VALUES ('o-3');
SELECT is((SELECT outcome FROM idem_transition('orders', 'o-3', 'UNPAID', 'PAID')), 'applied',
          'before the search path is changed');
INSERT INTO orders VALUES ('o-4');
SET search_path = impostors, pg_catalog, case_guard, public;
SELECT outcome AS kept FROM idem_transition('orders', 'o-4'::pg_catalog.text, 'UNPAID', 'PAID') \gset
INSERT INTO integers VALUES (1, 'UNPAID');
SELECT outcome AS new FROM idem_transition('integers', 1, 'UNPAID', 'PAID') \gset
SELECT code($$INSERT INTO integers VALUES (2, 'PAID')$$) AS guard,
       code($$SELECT idem_define_machine('integers', 'state', '{{UNPAID,OPEN}}', '{UNPAID}')$$)
           AS definition \gset
SET search_path = case_guard, public;
SELECT is(:'kept'::text, 'applied', 'impostors: a kept plan');
SELECT is(:'new'::text, 'applied', 'impostors: a new plan');
SELECT is(:'guard'::text, 'ID003', 'impostors: the guard');
SELECT is(:'definition'::text, '23514', 'impostors: a definition');
DROP SCHEMA impostors CASCADE;

-- ---- partitions ----

CREATE TABLE parted (id int, part int, state text, gen bigint, fixed text) PARTITION BY LIST (part);
CREATE TABLE parted_1 PARTITION OF parted FOR VALUES IN (1);
-- another order of columns, and one dropped
CREATE TABLE parted_2 (gone int, fixed text, gen bigint, state text, part int, id int);
ALTER TABLE parted_2 DROP gone;
ALTER TABLE parted ATTACH PARTITION parted_2 FOR VALUES IN (2);
CREATE TABLE parted_3 PARTITION OF parted FOR VALUES IN (3, 4) PARTITION BY LIST (part);
CREATE TABLE parted_33 PARTITION OF parted_3 FOR VALUES IN (3);
SELECT FROM define('parted', 'gen', '{id, fixed}');
CREATE TABLE parted_34 PARTITION OF parted_3 FOR VALUES IN (4);
CREATE FUNCTION again_parted() RETURNS void LANGUAGE sql AS $$
    DELETE FROM parted;
    INSERT INTO parted SELECT part, part, 'UNPAID', 5, repeat('f', 9000) FROM generate_series(1, 4) part;
    INSERT INTO parted SELECT part + 4, part, 'UNPAID', 5, apart(1, 300) FROM generate_series(1, 4) part;
    UPDATE parted SET state = 'PAID' WHERE id > 4;
$$;
CREATE FUNCTION try_parted(statement text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    PERFORM again_parted();
    RETURN code(statement);
END $$;
SELECT is(try_parted(statement), right_code, 'partitions: ' || statement) FROM (VALUES
    ($$INSERT INTO parted VALUES (9, 1, 'UNPAID'), (10, 2, 'UNPAID'), (11, 3, 'UNPAID'), (12, 4, 'UNPAID')$$,
     '00000'),
    ($$INSERT INTO parted VALUES (9, 1, 'PAID')$$, 'ID003'),
    ($$INSERT INTO parted VALUES (9, 2, 'PAID')$$, 'ID003'),
    ($$INSERT INTO parted VALUES (9, 4, 'PAID')$$, 'ID003'),
    ($$INSERT INTO parted_2 (id, part, state) VALUES (9, 2, 'PAID')$$, 'ID003'),
    ($$INSERT INTO parted_34 (id, part, state) VALUES (9, 4, 'PAID')$$, 'ID003'),
    ($$UPDATE parted SET state = 'SHIPPED' WHERE id > 4$$, '00000'),
    ($$UPDATE parted SET state = 'SHIPPED' WHERE id = 2$$, 'ID003'),
    ($$UPDATE parted_2 SET state = 'SHIPPED' WHERE id = 2$$, 'ID003'),
    ($$UPDATE parted_2 SET gen = 4$$, 'ID002'),
    ($$UPDATE parted_2 SET fixed = 'g'$$, '23514'),
    -- rows that move
    ($$UPDATE parted SET part = 5 - part$$, '00000'),
    ($$UPDATE parted SET part = 1 + part % 4$$, '00000'),
    ($$UPDATE parted SET part = 3 WHERE id IN (5, 6)$$, '00000'),
    ($$UPDATE parted SET part = 5 - part, state = 'SHIPPED' WHERE id > 4$$, '00000'),
    ($$UPDATE parted SET part = 5 - part, state = 'SHIPPED'$$, 'ID003'),
    ($$UPDATE parted SET part = 5 - part, state = 'UNPAID' WHERE id = 6$$, 'ID003'),
    ($$UPDATE parted SET part = 5 - part, state = NULL WHERE id = 6$$, 'ID003'),
    ($$UPDATE parted SET part = 5 - part, gen = 6$$, '00000'),
    ($$UPDATE parted SET part = 5 - part, gen = CASE id WHEN 7 THEN 4 ELSE 6 END$$, 'ID002'),
    ($$UPDATE parted SET part = 5 - part, gen = NULL WHERE id = 2$$, 'ID002'),
    ($$UPDATE parted SET part = 5 - part, fixed = fixed || ''$$, '00000'),
    ($$UPDATE parted SET part = 5 - part, fixed = fixed || 'x' WHERE id = 7$$, '23514'),
    ($$UPDATE parted SET part = 5 - part, fixed = NULL WHERE id = 7$$, '23514'),
    ($$UPDATE parted SET part = 5 - part, id = id + 10 WHERE id = 7$$, '23514'),
    -- some move, some stay
    ($$UPDATE parted SET part = 2, state = 'REFUNDED' WHERE id > 4$$, '00000'),
    ($$UPDATE parted SET part = 2, state = 'REFUNDED'$$, 'ID003'),
    ($$UPDATE parted SET part = 2, state = 'REFUNDED' WHERE id > 4;
       UPDATE parted SET part = 1, state = 'PAID' WHERE id = 5$$, 'ID003'),
    ($$MERGE INTO parted p USING (VALUES (5, 4, 'SHIPPED'), (9, 2,
     'UNPAID')) v (id, part, state) ON p.id = v.id
       WHEN MATCHED THEN UPDATE SET part = v.part, state = v.state
       WHEN NOT MATCHED THEN INSERT (id, part, state) VALUES (v.id, v.part, v.state)$$, '00000'),
    ($$MERGE INTO parted p USING (VALUES (5, 4, 'SHIPPED'), (9, 2,
     'PAID')) v (id, part, state) ON p.id = v.id
       WHEN MATCHED THEN UPDATE SET part = v.part, state = v.state
       WHEN NOT MATCHED THEN INSERT (id, part, state) VALUES (v.id, v.part, v.state)$$, 'ID003'),
    ($$MERGE INTO parted p USING (VALUES (5, 4, 'UNPAID')) v (id, part, state) ON p.id = v.id
       WHEN MATCHED THEN UPDATE SET part = v.part, state = v.state$$, 'ID003'),
    -- a move does not open the door for the next insertion
    ($$UPDATE parted SET part = 2 WHERE id = 1; INSERT INTO parted VALUES (9, 1, 'PAID')$$,
     'ID003'),
    ($$WITH u AS (UPDATE parted SET part = 2 WHERE id = 1 RETURNING id)
       INSERT INTO parted SELECT 9, 1, 'PAID' FROM u$$, 'ID003'),
    ($$WITH u AS (UPDATE parted SET part = 2 WHERE id = 5 RETURNING id)
       INSERT INTO parted SELECT 9, 1, 'UNPAID' FROM u$$, '00000'),
    -- a row deleted and inserted anew is a new row
    ($$DELETE FROM parted WHERE id = 5; INSERT INTO parted VALUES (5, 2, 'PAID')$$, 'ID003'),
    ($$WITH d AS (DELETE FROM parted WHERE id = 5 RETURNING *)
       INSERT INTO parted SELECT id, 2, state FROM d$$, 'ID003')) v (statement, right_code);

-- a row that vanishes on its way does not lend its state to the next one
SELECT FROM again_parted();
CREATE FUNCTION swallow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
CREATE TRIGGER swallow BEFORE INSERT ON parted_2 FOR EACH ROW EXECUTE FUNCTION swallow();
SELECT is(code($$UPDATE parted SET part = 2 WHERE id = 1$$), '00000', 'partitions: a row vanishes');
BEGIN;
UPDATE parted SET part = 2 WHERE id = 5;
\set ON_ERROR_STOP off
INSERT INTO parted VALUES (9, 1, 'SHIPPED');
\set got :SQLSTATE
\set ON_ERROR_STOP on
ROLLBACK;
SELECT is(:'got'::text, 'ID003', 'partitions: and lends its state to no other');
DROP TRIGGER swallow ON parted_2;
-- nor does one whose trigger inserts another meanwhile
CREATE FUNCTION insert_other() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO case_guard.parted VALUES (99, 4, current_setting('case_guard.state'));
    RETURN NULL;
END $$;
CREATE TRIGGER zz AFTER DELETE ON parted_1 FOR EACH ROW EXECUTE FUNCTION insert_other();
SET case_guard.state = 'SHIPPED';
SELECT is(code('UPDATE parted SET part = 2 WHERE id = 5'), 'ID003',
          'partitions: another row inserted on the way is judged for itself');
SET case_guard.state = 'UNPAID';
SELECT is(code('UPDATE parted SET part = 2 WHERE id = 5'), '00000',
          'partitions: and so is the one that moves');
DROP TRIGGER zz ON parted_1;
CREATE FUNCTION write_others() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO case_guard.orders VALUES ('by ' || OLD.id);
    DELETE FROM case_guard.parted WHERE id = OLD.id + 1;
    RETURN NULL;
END $$;
CREATE TRIGGER zz AFTER DELETE ON parted_1 FOR EACH ROW EXECUTE FUNCTION write_others();
SELECT is(try_parted('UPDATE parted SET part = 4, state = ''SHIPPED'' WHERE id = 5'), '00000',
          'partitions: nor is a move forgotten when other guarded rows are written meanwhile');
DROP TRIGGER zz ON parted_1;

-- attached and detached
SELECT is(code($$INSERT INTO parted VALUES (70, 1, 'UNPAID'); ALTER TABLE parted DETACH PARTITION parted_1;
    INSERT INTO parted_1 VALUES (71, 1, 'NONSENSE')$$), '00000',
     'a detached partition has no guard');
CREATE TABLE parted_5 (fixed text, state text, gone int, id int, gen bigint, part int);
ALTER TABLE parted_5 DROP gone;
INSERT INTO parted_5 (id, part, state, gen, fixed)
VALUES (51, 5, 'PAID', 1, 'f'), (52, 5, 'NONSENSE', 1, 'f'), (53, 5, NULL, NULL, NULL);
ALTER TABLE parted ATTACH PARTITION parted_5 FOR VALUES IN (5);
SELECT is(code(statement), right_code, 'attached: ' || statement) FROM (VALUES
    ($$UPDATE parted SET state = 'SHIPPED' WHERE id = 51$$, '00000'),
    ($$UPDATE parted SET state = 'UNPAID' WHERE id = 51$$, 'ID003'),
    ($$INSERT INTO parted VALUES (54, 5, 'PAID')$$, 'ID003'),
    ($$UPDATE parted SET gen = 0 WHERE id = 51$$, 'ID002'),
    ($$UPDATE parted SET fixed = 'g' WHERE id = 51$$, '23514'),
    ($$UPDATE parted SET part = 2, gen = 0 WHERE id = 51$$, 'ID002'),
    -- a row in no state of the machine stays where it is until it is deleted
    ($$UPDATE parted SET gen = 2 WHERE id = 52$$, 'ID003'),
    ($$UPDATE parted SET state = 'UNPAID' WHERE id = 52$$, 'ID003'),
    ($$UPDATE parted SET state = 'UNPAID' WHERE id = 53$$, 'ID003'),
    ($$UPDATE parted SET part = 2, state = 'UNPAID' WHERE id = 53$$, 'ID003'),
    ($$SELECT define('parted')$$, '23514'),
    ($$DELETE FROM parted WHERE id IN (52, 53)$$, '00000'),
    ($$SELECT define('parted')$$, '00000')) v (statement, right_code);

-- machines of partitions
SELECT is(code($$SELECT idem_drop_machine('parted_5')$$), '2BP01',
          'a partition keeps its parent''s machine');
CREATE TABLE tree (id int, part int, state text) PARTITION BY LIST (part);
CREATE TABLE tree_1 PARTITION OF tree FOR VALUES IN (1, 2) PARTITION BY LIST (part);
CREATE TABLE tree_11 PARTITION OF tree_1 FOR VALUES IN (1);
CREATE TABLE tree_12 PARTITION OF tree_1 FOR VALUES IN (2);
CREATE TABLE tree_3 PARTITION OF tree FOR VALUES IN (3);
SELECT FROM define('tree_1');
SELECT is(code(statement), right_code, 'a machine in the middle: ' || statement) FROM (VALUES
    (1, $$INSERT INTO tree VALUES (1, 1, 'UNPAID'), (2, 2, 'UNPAID'), (3, 3, 'ANYTHING')$$,
     '00000'),
    (2, $$INSERT INTO tree VALUES (4, 2, 'PAID')$$, 'ID003'),
    (3, $$UPDATE tree SET part = 3 - part, state = 'PAID' WHERE part < 3$$, '00000'),
    (4, $$UPDATE tree SET part = 3 - part, state = 'UNPAID' WHERE part < 3$$, 'ID003'),
    -- into its realm and out of it
    (5, $$UPDATE tree SET part = 1 WHERE id = 3$$, 'ID003'),
    (6, $$UPDATE tree SET part = 1, state = 'UNPAID' WHERE id = 3$$, '00000'),
    (7, $$UPDATE tree SET part = 3, state = 'ANYTHING' WHERE id = 3$$,
     '00000')) v (n, statement, right_code)
ORDER BY n;
CREATE TABLE leaves (id int, part int, state text) PARTITION BY LIST (part);
CREATE TABLE leaves_1 PARTITION OF leaves FOR VALUES IN (1);
CREATE TABLE leaves_2 PARTITION OF leaves FOR VALUES IN (2);
SELECT FROM define('leaves_1') a, define('leaves_2') b;
INSERT INTO leaves VALUES (1, 1, 'UNPAID'), (2, 1, 'UNPAID');
UPDATE leaves SET state = 'PAID' WHERE id = 2;
SELECT is(code($$UPDATE leaves SET part = 2 WHERE id = 1$$), '00000',
          'two machines: a row arrives in an initial state');
SELECT is(code($$UPDATE leaves SET part = 2 WHERE id = 2$$), 'ID003',
          'two machines: to each the row is a new one');

-- transitions of a partitioned table, whose rows stay in their partition
CREATE TABLE hashed (id int PRIMARY KEY, state text) PARTITION BY HASH (id);
CREATE TABLE hashed_0 PARTITION OF hashed FOR VALUES WITH (MODULUS 2, REMAINDER 0);
CREATE TABLE hashed_1 PARTITION OF hashed FOR VALUES WITH (MODULUS 2, REMAINDER 1);
SELECT FROM define('hashed');
INSERT INTO hashed SELECT id, 'UNPAID' FROM generate_series(1, 8) id;
SELECT is(moved(format($$'hashed', %s, 'UNPAID', 'PAID'$$, id)), 'applied PAID',
          format('partitions: transition of %s', id)) FROM generate_series(1, 8) id;
SELECT is(moved($$'hashed_0', 9, 'UNPAID', 'PAID'$$), 'refused -',
          'a transition of a partition alone');

-- ---- inheritance: children of a table are not guarded by its machine ----

CREATE TABLE ancestor (id int PRIMARY KEY, state text);
CREATE TABLE descendant (more int) INHERITS (ancestor);
SELECT FROM define('ancestor');
INSERT INTO ancestor VALUES (1, 'UNPAID');
SELECT is(code($$INSERT INTO descendant VALUES (2, 'NONSENSE')$$), '00000',
          'inheritance: a child has no guard');
SELECT is(code($$UPDATE ancestor SET state = 'CLOSED' WHERE id = 2$$), '00000',
          'nor through its parent');
SELECT is(code($$UPDATE ancestor SET state = 'SHIPPED'$$), 'ID003', 'the parent''s own rows have');
SELECT FROM define('descendant');
SELECT is(code($$UPDATE ancestor SET state = 'PAID' WHERE id = 2$$), 'ID003',
          'unless it has a machine of its own');

-- ---- defining ----

CREATE FUNCTION defined(arguments jsonb) RETURNS text LANGUAGE sql AS $body$
    SELECT code(format('SELECT idem_define_machine(%s)', string_agg(format('%I => %s', key, value),
     ', ')))
    FROM jsonb_each_text($${"table": "'draft'", "state_column": "'state'", "transitions": "'{{A,B},{B,C}}'",
                            "initial": "'{A}'", "terminal": "'{C}'"}$$::jsonb || arguments)
$body$;
CREATE TABLE draft (id int PRIMARY KEY, state text, gen bigint, small smallint, plain varchar(3),
    kind order_state, dom order_id, fixed text, made int GENERATED ALWAYS AS (id + 1) STORED,
    chars char(3), many text[]);
CREATE MATERIALIZED VIEW kept_view AS TABLE draft;
CREATE SEQUENCE numbers;
CREATE TYPE composite AS (state text);
SELECT is(defined('{}'), '00000', 'the machine that the following are made of');
SELECT is(defined(arguments::jsonb), right_code, 'defining: ' || arguments) FROM (VALUES
    -- the table
    ('{"table": "NULL"}', '22004'),
    ('{"table": "''no_such_table''"}', '42P01'),
    ('{"table": "4000000000::oid::regclass"}', '42P01'),
    ('{"table": "''seen''"}', '42809'),
    ('{"table": "''kept_view''"}', '42809'),
    ('{"table": "''numbers''"}', '42809'),
    ('{"table": "''draft_pkey''"}', '42809'),
    ('{"table": "''composite''"}', '42809'),
    ('{"table": "''pg_catalog.pg_seclabel''", "state_column": "''label''"}', '42501'),
    -- the state's column
    ('{"state_column": "NULL"}', '22004'),
    ('{"state_column": "''''"}', '42703'),
    ('{"state_column": "''nothing''"}', '42703'),
    ('{"state_column": "''STATE''"}', '42703'),
    ('{"state_column": "''ctid''"}', '42703'),
    ('{"state_column": "''tableoid''"}', '42703'),
    ('{"state_column": "''id''"}', '22023'),
    ('{"state_column": "''chars''"}', '22023'),
    ('{"state_column": "''dom''"}', '22023'),
    ('{"state_column": "''many''"}', '22023'),
    ('{"state_column": "''plain''"}', '00000'),
    ('{"state_column": "''kind''"}', '22023'),
    ('{"state_column": "''kind''", "transitions": "''{{UNPAID,PAID}}''", "initial": "''{UNPAID}''", "terminal": "''{PAID}''"}', '00000'),
    ('{"state_column": "''kind''", "transitions": "''{{UNPAID,PAID}}''", "initial": "''{UNPAID}''", "terminal": "''{B}''"}', '22023'),
    ('{"state_column": "''kind''", "transitions": "''{{UNPAID,paid}}''", "initial": "''{UNPAID}''", "terminal": "NULL"}', '22023'),
    -- transitions
    ('{"transitions": "NULL"}', '22004'),
    ('{"transitions": "''{}''"}', '22023'),
    ('{"transitions": "''{A,B}''"}', '22023'),
    ('{"transitions": "''{{A},{B}}''"}', '22023'),
    ('{"transitions": "''{{A,B,C}}''"}', '22023'),
    ('{"transitions": "''{{{A,B},{B,C}}}''"}', '22023'),
    ('{"transitions": "''{{A,NULL},{B,C}}''"}', '22023'),
    ('{"transitions": "''{{NULL,NULL}}''"}', '22023'),
    ('{"transitions": "''[7:8][2:3]={{A,B},{B,C}}''"}', '00000'),
    ('{"transitions": "''{{A,B},{B,C},{A,B}}''"}', '00000'),
    ('{"transitions": "''{{A,A},{A,B},{B,C}}''"}', '22023'),
    ('{"transitions": "''{{A,B},{B,B},{B,C}}''"}', '22023'),
    ('{"transitions": "42"}', '42883'),
    -- reachable, and final
    ('{"transitions": "''{{A,C},{B,C}}''"}', '22023'),
    ('{"transitions": "''{{A,C},{B,D},{D,B}}''"}', '22023'),
    ('{"transitions": "''{{A,B}}''"}', '22023'),
    ('{"transitions": "''{{A,B},{B,C},{C,A}}''"}', '22023'),
    ('{"transitions": "''{{A,B},{B,C},{C,C}}''"}', '22023'),
    ('{"transitions": "''{{A,B},{B,A},{B,C}}''"}', '00000'),
    ('{"transitions": "''{{A,B},{B,C},{C,A}}''", "terminal": "NULL"}', '00000'),
    -- initial
    ('{"initial": "NULL"}', '22004'),
    ('{"initial": "''{}''"}', '22023'),
    ('{"initial": "''{NULL}''"}', '22023'),
    ('{"initial": "''{A,NULL}''"}', '22023'),
    ('{"initial": "''{{A}}''"}', '22023'),
    ('{"initial": "''{B}''"}', '22023'),
    ('{"initial": "''{a}''"}', '22023'),
    ('{"initial": "''{A,B,C}''"}', '00000'),
    ('{"initial": "''{A,ELSEWHERE}''"}', '00000'),
    -- terminal
    ('{"terminal": "NULL"}', '00000'),
    ('{"terminal": "''{}''"}', '00000'),
    ('{"terminal": "''{NULL}''"}', '22023'),
    ('{"terminal": "''{{C}}''"}', '22023'),
    ('{"terminal": "''{B}''"}', '22023'),
    ('{"terminal": "''{A}''"}', '22023'),
    ('{"terminal": "''{C,ELSEWHERE}''"}', '22023'),
    ('{"terminal": "''{c}''"}', '22023'),
    -- generation_column
    ('{"generation_column": "NULL"}', '00000'),
    ('{"generation_column": "''''"}', '42703'),
    ('{"generation_column": "''nothing''"}', '42703'),
    ('{"generation_column": "''xmin''"}', '42703'),
    ('{"generation_column": "''small''"}', '22023'),
    ('{"generation_column": "''fixed''"}', '22023'),
    ('{"generation_column": "''state''"}', '22023'),
    ('{"generation_column": "''gen''"}', '00000'),
    ('{"generation_column": "''id''"}', '00000'),
    -- immutable_columns
    ('{"immutable_columns": "NULL"}', '00000'),
    ('{"immutable_columns": "''{}''"}', '00000'),
    ('{"immutable_columns": "''{NULL}''"}', '22023'),
    ('{"immutable_columns": "''{{fixed,id}}''"}', '22023'),
    ('{"immutable_columns": "''{fixed,nothing}''"}', '42703'),
    ('{"immutable_columns": "''{\"\"}''"}', '42703'),
    ('{"immutable_columns": "''{ctid}''"}', '42703'),
    ('{"immutable_columns": "''{state}''"}', '22023'),
    ('{"immutable_columns": "''{gen}''", "generation_column": "''gen''"}', '22023'),
    ('{"immutable_columns": "''{gen}''"}', '00000'),
    ('{"immutable_columns": "''{id,small,plain,kind,dom,fixed,made,chars,many}''"}', '00000'))
    v (arguments, right_code);
SELECT ok(defined('{"immutable_columns": "''{fixed,fixed}''"}') IN ('22023', '42701'),
          'defining: an immutable column twice');
SELECT is(code($$SET LOCAL transaction_read_only = on; SELECT define('draft')$$), '25006',
          'defining: read-only transaction');
SELECT is(code($$SET LOCAL transaction_read_only = on; SELECT idem_drop_machine('draft')$$),
          '25006',
          'dropping: read-only transaction');

-- virtual generated columns hold nothing that a trigger could compare
SELECT current_setting('server_version_num')::int >= 180000 AS has_virtual \gset
\if :has_virtual
CREATE TABLE virtual (id int PRIMARY KEY, n int, state text, v int GENERATED ALWAYS AS (n + 1) VIRTUAL,
    v_state text GENERATED ALWAYS AS ('A') VIRTUAL);
SELECT is(defined('{"table": "''virtual''", "immutable_columns": "''{v}''"}'), '22023',
          'defining: an immutable virtual column');
SELECT is(defined('{"table": "''virtual''", "state_column": "''v_state''"}'), '22023',
          'defining: a virtual state');
SELECT is(defined('{"table": "''virtual''", "generation_column": "''v''"}'), '22023',
          'defining: a virtual generation');
\endif

-- redefinition: the newest machine counts, and rows must be in a state of it
CREATE TABLE redefined (id int PRIMARY KEY, state text, gen int, fixed int);
SELECT is(code(statement), right_code, 'redefinition: ' || statement) FROM (VALUES
    (1, $$INSERT INTO redefined VALUES (1, 'OLD', 1, 1)$$, '00000'),
    (2, $$SELECT define('redefined')$$, '23514'),
    (3, $$UPDATE redefined SET state = NULL$$, '00000'),
    (4, $$SELECT define('redefined')$$, '23514'),
    (5, $$UPDATE redefined SET state = 'PAID'$$, '00000'),
    (6, $$SELECT define('redefined', 'gen', '{fixed}')$$, '00000'),
    (7, $$UPDATE redefined SET fixed = 2$$, '23514'),
    (8, $$UPDATE redefined SET state = 'UNPAID'$$, 'ID003'),
    (9, $$SELECT idem_define_machine('redefined', 'state', '{{UNPAID,OPEN}}', '{UNPAID}')$$,
     '23514'),
    (10, $$UPDATE redefined SET state = 'UNPAID'$$, 'ID003'),
    (11, $$SELECT idem_define_machine('redefined', 'state', '{{PAID,UNPAID}}', '{PAID}')$$,
     '00000'),
    (12, $$UPDATE redefined SET fixed = 2, gen = 0$$, '00000'),
    (13, $$INSERT INTO redefined VALUES (2, 'UNPAID')$$, 'ID003'),
    (14, $$UPDATE redefined SET state = 'UNPAID'$$, '00000'),
    (15, $$SELECT idem_drop_machine('redefined')$$, '00000'),
    (16, $$SELECT idem_drop_machine('redefined')$$, '42704'),
    (17, $$UPDATE redefined SET state = 'ANYTHING'$$, '00000'),
    (18, $$SELECT idem_define_machine('redefined', 'fixed', '{{A,B}}', '{A}')$$, '22023'),
    (19, $$SELECT idem_drop_machine('redefined')$$,
     '42704')) v (n, statement, right_code) ORDER BY n;
SELECT is((SELECT count(*) FROM pg_trigger WHERE tgrelid = 'redefined'::regclass), 0::bigint,
          'redefinition: nothing is left of a machine that was dropped');
BEGIN;
SELECT FROM define('redefined') WHERE false;
UPDATE redefined SET state = 'PAID';
SELECT FROM define('redefined');
SAVEPOINT a;
SELECT FROM idem_define_machine('redefined', 'state', '{{PAID,LOST}}', '{PAID}');
ROLLBACK TO a;
SELECT is(code($$UPDATE redefined SET state = 'LOST'$$), 'ID003',
          'redefinition: rolled back to a savepoint');
ROLLBACK;
SELECT is(code($$UPDATE redefined SET state = 'LOST'$$), '00000', 'definition: rolled back');

SELECT is(code(statement), right_code, statement) FROM (VALUES
    ($$SELECT idem_drop_machine(NULL)$$, '22004'),
    ($$SELECT idem_drop_machine('seen')$$, '42809'),
    ($$SELECT idem_drop_machine('no_machine')$$, '42704'),
    ($$SELECT idem_drop_machine('no_such_table')$$, '42P01'),
    ($$SELECT idem_drop_machine(4000000000::oid::regclass)$$, '42P01'),
    ($$SELECT idem_drop_machine('pg_catalog.pg_seclabel')$$, '42704')) v (statement, right_code);

-- a machine is where its owner put it: only he may change it
DROP ROLE IF EXISTS idem_action_guard;
CREATE ROLE idem_action_guard;
GRANT USAGE ON SCHEMA case_guard TO idem_action_guard;
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA case_guard TO idem_action_guard;
SELECT is(code($$SELECT define('draft')$$, 'idem_action_guard'), '42501', 'defining needs EXECUTE');
SELECT is(code($$SELECT idem_drop_machine('draft')$$, 'idem_action_guard'), '42501',
          'dropping needs EXECUTE');
SELECT is(code($$SELECT idem_transition('moves', 3, 'UNPAID', 'PAID')$$, 'idem_action_guard'),
          '42501',
          'a transition needs EXECUTE');
DO $$
BEGIN
    EXECUTE (SELECT string_agg(format('GRANT EXECUTE ON FUNCTION %s TO idem_action_guard', oid::regprocedure),
     ';')
             FROM pg_proc WHERE proname IN ('idem_define_machine', 'idem_drop_machine', 'idem_transition',
              'idem_guard'));
END $$;
-- whoever may make triggers of his own may not define machines
GRANT SELECT, TRIGGER ON draft, moves TO idem_action_guard;
SELECT is(code($$SELECT define('draft')$$, 'idem_action_guard'), '42501',
          'defining needs the table');
SELECT is(code($$SELECT idem_drop_machine('draft')$$, 'idem_action_guard'), '42501',
          'dropping needs the table');
SELECT is(code($$SELECT idem_transition('moves', 3, 'UNPAID', 'PAID')$$, 'idem_action_guard'),
          '42501',
          'a transition needs UPDATE of the table');
SELECT is(code($$SELECT idem_define_machine('pg_catalog.pg_seclabel', 'label', '{{A,B}}', '{A}')$$,
               'idem_action_guard'), '42501', 'a system table is nobody''s');
DROP OWNED BY idem_action_guard;
DROP ROLE idem_action_guard;

-- a trigger that somebody made by hand, or that a restore brought in a damaged form, is refused
CREATE TABLE forged (id int, state text);
CREATE TRIGGER idem_guard_columns AFTER UPDATE OF state ON forged
    FOR EACH ROW EXECUTE FUNCTION idem_guard();
CREATE FUNCTION try_forged(arguments text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('CREATE OR REPLACE TRIGGER idem_guard AFTER INSERT OR UPDATE ON forged FOR EACH ROW EXECUTE FUNCTION idem_guard(%s)',
                   arguments);
    RETURN code('INSERT INTO forged VALUES (1, ''A'')') NOT IN ('00000', 'XX000');
END $$;
SELECT ok(try_forged(arguments), 'forged: ' || arguments) FROM (VALUES
    ($$'a'$$), ($$'{{A,B}}', '{A}', '{}'$$), ($$'', '', '', ''$$),
    ($$'{A}', '{A}', '{}', 'false'$$), ($$'{A,B,C}', '{A}', '{}', 'false'$$),
    ($$'{{A,B,A}}', '{A}', '{}', 'false'$$), ($$'{{A,NULL}}', '{A}', '{}', 'false'$$),
    ($$'{{A,B}}', '{}', '{}', 'false'$$), ($$'{}', '{}', '{}', 'false'$$),
    ($$'{{A,B}}', '{{A},{B},{C},{D},{E}}', '{}', 'false'$$),
    ($$'{{A,B}}', '{A}', '{{B},{C},{D},{E}}', 'false'$$), ($$'{{A,B}}', '{A}', '{NULL}', 'false'$$),
    ($$'{{A,B}}', '{A}', '{}', 'true'$$), ($$'{{A,B', '{A}', '{}', 'false'$$)) v (arguments);
CREATE TRIGGER zz BEFORE INSERT ON orders FOR EACH ROW EXECUTE FUNCTION idem_guard('{{A,B}}', '{A}', '{}',
 'false');
SELECT is(code($$INSERT INTO orders VALUES ('o-9')$$), '39P01', 'forged: a BEFORE trigger');
DROP TRIGGER zz ON orders;
SELECT isnt(code('SELECT idem_guard()'), '00000', 'idem_guard is no function to call');

SELECT * FROM finish();
DROP SCHEMA case_guard CASCADE;
