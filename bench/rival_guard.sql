-- rival_guard.sql
--      Tables of orders: one bare, one guarded by the extension, the others by PL/pgSQL.
--
-- The rival is written for this one table, rule by rule, and fires after the row is written, as the
-- extension's guard does: before it, a trigger with a later name could still change the row behind
-- its back.  Three other forms are measured beside it: the same fired before the row is written;
-- all rules in one expression, what was wrong being found out afterwards; and one for any table,
-- which finds columns by name and has its machine in the trigger's arguments.
--
-- rival_transition() is written for this table as well; rival_transition_any() takes the table as
-- an argument, as idem_transition() does, and must leave the statement to EXECUTE.
--
-- Half of each page is free, so that every update stays on its page: where an index entry must be
-- written too, a guard weighs less.

CREATE SCHEMA orders;

CREATE TYPE orders.transitioned AS (
    outcome text,
    state text
);

CREATE TABLE orders.bare (
    id bigint PRIMARY KEY,
    customer text NOT NULL,
    amount numeric NOT NULL,
    state text NOT NULL,
    generation bigint NOT NULL DEFAULT 1,
    note text
) WITH (fillfactor = 45);

CREATE TABLE orders.idem (LIKE orders.bare INCLUDING ALL) WITH (fillfactor = 45);
CREATE TABLE orders.rival (LIKE orders.bare INCLUDING ALL) WITH (fillfactor = 45);
CREATE TABLE orders.rival_before (LIKE orders.bare INCLUDING ALL) WITH (fillfactor = 45);
CREATE TABLE orders.rival_terse (LIKE orders.bare INCLUDING ALL) WITH (fillfactor = 45);
CREATE TABLE orders.rival_any (LIKE orders.bare INCLUDING ALL) WITH (fillfactor = 45);

SELECT idem_define_machine('orders.idem', 'state',
    transitions => ARRAY[['UNPAID', 'PAID'], ['UNPAID', 'CLOSED'], ['PAID', 'SHIPPED'],
                         ['PAID', 'REFUNDED'], ['SHIPPED', 'DONE'], ['SHIPPED', 'RETURNED'],
                         ['RETURNED', 'REFUNDED']],
    initial => ARRAY['UNPAID'], terminal => ARRAY['CLOSED', 'DONE', 'REFUNDED'],
    generation_column => 'generation', immutable_columns => ARRAY['id', 'customer', 'amount']);

CREATE FUNCTION orders.guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        IF NEW.state <> 'UNPAID' THEN
            RAISE 'row cannot begin in state "%"', NEW.state USING ERRCODE = 'ID003';
        END IF;
        RETURN NEW;
    END IF;

    IF NEW.state <> OLD.state
        AND (OLD.state, NEW.state) NOT IN (('UNPAID', 'PAID'), ('UNPAID', 'CLOSED'),
            ('PAID', 'SHIPPED'), ('PAID', 'REFUNDED'), ('SHIPPED', 'DONE'),
            ('SHIPPED', 'RETURNED'), ('RETURNED', 'REFUNDED'))
    THEN
        RAISE 'row cannot move from state "%" to "%"', OLD.state, NEW.state
            USING ERRCODE = 'ID003';
    END IF;
    IF NEW.generation < OLD.generation THEN
        RAISE 'generation cannot be lowered' USING ERRCODE = 'ID002';
    END IF;
    IF NEW.id <> OLD.id OR NEW.customer <> OLD.customer OR NEW.amount <> OLD.amount THEN
        RAISE 'an immutable column was changed' USING ERRCODE = 'check_violation';
    END IF;
    RETURN NEW;
END
$$;

-- What was wrong with an update that the terse form has refused.
CREATE FUNCTION orders.refuse_update(was orders.rival_terse, wanted orders.rival_terse) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF wanted.state NOT IN ('UNPAID', 'PAID', 'CLOSED', 'SHIPPED', 'REFUNDED', 'DONE',
                            'RETURNED') THEN
        RAISE 'row is in no state of its machine' USING ERRCODE = 'ID003';
    ELSIF was.state IN ('CLOSED', 'DONE', 'REFUNDED') AND wanted.state <> was.state THEN
        RAISE 'row cannot move from terminal state "%"', was.state USING ERRCODE = 'ID003';
    ELSIF wanted.generation < was.generation THEN
        RAISE 'generation cannot be lowered' USING ERRCODE = 'ID002';
    ELSIF (wanted.id, wanted.customer, wanted.amount)
          IS DISTINCT FROM (was.id, was.customer, was.amount) THEN
        RAISE 'an immutable column was changed' USING ERRCODE = 'check_violation';
    END IF;
    RAISE 'row cannot move from state "%" to "%"', was.state, wanted.state
        USING ERRCODE = 'ID003';
END
$$;

CREATE FUNCTION orders.guard_terse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' THEN
        IF (NEW.state = OLD.state
            OR CASE OLD.state
                   WHEN 'UNPAID' THEN NEW.state IN ('PAID', 'CLOSED')
                   WHEN 'PAID' THEN NEW.state IN ('SHIPPED', 'REFUNDED')
                   WHEN 'SHIPPED' THEN NEW.state IN ('DONE', 'RETURNED')
                   WHEN 'RETURNED' THEN NEW.state = 'REFUNDED'
                   ELSE false
               END)
            AND NEW.generation >= OLD.generation
            AND NEW.id = OLD.id AND NEW.customer = OLD.customer AND NEW.amount = OLD.amount
        THEN
            RETURN NEW;
        END IF;
        PERFORM orders.refuse_update(OLD, NEW);
    ELSIF NEW.state <> 'UNPAID' THEN
        RAISE 'row cannot begin in state "%"', NEW.state USING ERRCODE = 'ID003';
    END IF;
    RETURN NEW;
END
$$;

-- For any table: arguments are the state column, transitions, initial states, the generation column
-- and the immutable ones.
CREATE FUNCTION orders.guard_any() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    wanted jsonb := to_jsonb(NEW);
    to_state text := wanted ->> TG_ARGV[0];
    was jsonb;
    from_state text;
    name text;
BEGIN
    IF TG_OP = 'INSERT' THEN
        IF to_state IS NULL OR to_state <> ALL (TG_ARGV[2]::text[]) THEN
            RAISE 'row cannot begin in state "%"', to_state USING ERRCODE = 'ID003';
        END IF;
        RETURN NEW;
    END IF;
    was := to_jsonb(OLD);
    from_state := was ->> TG_ARGV[0];
    IF from_state IS DISTINCT FROM to_state
        AND coalesce(from_state || '>' || to_state <> ALL (TG_ARGV[1]::text[]), true) THEN
        RAISE 'row cannot move from state "%" to "%"', from_state, to_state
            USING ERRCODE = 'ID003';
    END IF;
    IF (wanted ->> TG_ARGV[3])::bigint < (was ->> TG_ARGV[3])::bigint THEN
        RAISE 'generation cannot be lowered' USING ERRCODE = 'ID002';
    END IF;
    FOREACH name IN ARRAY TG_ARGV[4]::text[] LOOP
        IF was -> name IS DISTINCT FROM wanted -> name THEN
            RAISE 'column "%" is immutable', name USING ERRCODE = 'check_violation';
        END IF;
    END LOOP;
    RETURN NEW;
END
$$;

CREATE TRIGGER guard AFTER INSERT OR UPDATE ON orders.rival
FOR EACH ROW EXECUTE FUNCTION orders.guard();

CREATE TRIGGER guard BEFORE INSERT OR UPDATE ON orders.rival_before
FOR EACH ROW EXECUTE FUNCTION orders.guard();

CREATE TRIGGER guard BEFORE INSERT OR UPDATE ON orders.rival_terse
FOR EACH ROW EXECUTE FUNCTION orders.guard_terse();

CREATE TRIGGER guard BEFORE INSERT OR UPDATE ON orders.rival_any
FOR EACH ROW EXECUTE FUNCTION orders.guard_any('state',
    '{UNPAID>PAID,UNPAID>CLOSED,PAID>SHIPPED,PAID>REFUNDED,SHIPPED>DONE,SHIPPED>RETURNED,'
    'RETURNED>REFUNDED}',
    '{UNPAID}', 'generation', '{id,customer,amount}');

CREATE FUNCTION rival_transition(id bigint, from_state text, to_state text,
                                 generation bigint DEFAULT NULL)
RETURNS orders.transitioned LANGUAGE plpgsql AS $$
DECLARE
    found_state text;
    found_generation bigint;
BEGIN
    FOR round IN 1..10 LOOP
        UPDATE orders.rival AS o
        SET state = to_state, generation = coalesce(rival_transition.generation, o.generation)
        WHERE o.id = rival_transition.id AND o.state = from_state
          AND (rival_transition.generation IS NULL
               OR o.generation <= rival_transition.generation);
        IF FOUND THEN
            RETURN ROW('applied', to_state)::orders.transitioned;
        ELSIF id IS NULL OR from_state IS NULL OR to_state IS NULL THEN
            RAISE 'id and states must not be null' USING ERRCODE = 'null_value_not_allowed';
        END IF;
        SELECT o.state, o.generation INTO found_state, found_generation
        FROM orders.rival AS o WHERE o.id = rival_transition.id;
        IF found_generation > generation THEN
            RAISE 'generation % is older than that of the row', generation USING ERRCODE = 'ID002';
        ELSIF found_state = to_state THEN
            RETURN ROW('already', found_state)::orders.transitioned;
        END IF;
        EXIT WHEN found_state IS DISTINCT FROM from_state;
    END LOOP;
    RETURN ROW('refused', found_state)::orders.transitioned;
END
$$;

CREATE FUNCTION rival_transition_any("table" regclass, id bigint, from_state text, to_state text,
                                     generation bigint DEFAULT NULL)
RETURNS orders.transitioned LANGUAGE plpgsql AS $$
DECLARE
    moved integer;
    found_state text;
    found_generation bigint;
BEGIN
    FOR round IN 1..10 LOOP
        EXECUTE format('UPDATE %s SET state = $3, generation = coalesce($4, generation) '
                       'WHERE id = $1 AND state = $2 AND ($4 IS NULL OR generation <= $4)', "table")
        USING id, from_state, to_state, generation;
        GET DIAGNOSTICS moved = ROW_COUNT;
        IF moved > 0 THEN
            RETURN ROW('applied', to_state)::orders.transitioned;
        ELSIF id IS NULL OR from_state IS NULL OR to_state IS NULL THEN
            RAISE 'id and states must not be null' USING ERRCODE = 'null_value_not_allowed';
        END IF;
        EXECUTE format('SELECT state, generation FROM %s WHERE id = $1', "table")
        INTO found_state, found_generation USING id;
        IF found_generation > generation THEN
            RAISE 'generation % is older than that of the row', generation USING ERRCODE = 'ID002';
        ELSIF found_state = to_state THEN
            RETURN ROW('already', found_state)::orders.transitioned;
        END IF;
        EXIT WHEN found_state IS DISTINCT FROM from_state;
    END LOOP;
    RETURN ROW('refused', found_state)::orders.transitioned;
END
$$;
