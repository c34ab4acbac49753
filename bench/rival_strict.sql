-- rival_strict.sql
--      The rival's answer to a local claim that is left open: committing it is an error (ID008).
--
-- Only a deferred constraint trigger can see the end of the transaction from PL/pgSQL.  It costs a
-- look at the row for each claim, so the rival is measured without it, and once with it.

CREATE FUNCTION rival.refuse_open_claim() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM rival.action AS a
               WHERE a.key = NEW.key AND a.generation = NEW.generation
                 AND a.state = 'processing') THEN
        RAISE 'action "%" is claimed and not completed', NEW.key USING ERRCODE = 'ID008';
    END IF;
    RETURN NULL;
END
$$;

CREATE CONSTRAINT TRIGGER refuse_open_claim AFTER INSERT ON rival.action
DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
WHEN (NEW.effect = 'local' AND NEW.state = 'processing')
EXECUTE FUNCTION rival.refuse_open_claim();
