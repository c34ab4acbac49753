-- raw.sql
--      The bare statements below any such layer: a key, a state, no rule.
--
-- Nothing is compared, fenced or refused.  It shows what the table, the index and the commit cost.

CREATE SCHEMA raw;

CREATE TABLE raw.action (
    key text COLLATE "C" PRIMARY KEY,
    state text NOT NULL,
    params jsonb,
    result jsonb
) WITH (fillfactor = 70);

CREATE TABLE raw.event (
    key text COLLATE "C" PRIMARY KEY,
    params jsonb,
    result jsonb
);
