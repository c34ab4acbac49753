#!/usr/bin/env python3
"""Machines of application tables against a model, written from the definition alone.

Two hundred random machines, each on a table of its own with random types, and
a random stream of statements for each: inserts, updates, upserts, MERGE,
deletes, rows that move between partitions, transitions, redefinitions.  The
model foretells the answer to every statement, an outcome or an SQLSTATE, and
what the table holds in the end.  Asks the server of PGHOST by psql.  The seed
is printed; GUARD_SEED repeats a run.  Speaks TAP; needs nothing but the
standard library.
"""
import os
import random
import subprocess
import sys

MACHINES = 200
STATEMENTS = 40
IDS = range(1, 7)
PARTS = (1, 2, 3)
NAMES = ["UNPAID", "PAID", "CLOSED", "it's", "NULL", "a,b", "{c}", 'd"e', "f\\g", "é", " "]
NOWHERE = "NOWHERE"  # a value of the type, but of no machine
IMMUTABLE = {"a": ("text", ["x", "y", None]), "b": ("numeric", ["1", "1.0", None]),
             "c": ("jsonb", ["[1, 2]", '{"k": null}', None]), "d": ("integer", ["0", "7", None])}


# ---- the model ----

class Machine:
    def __init__(self, states, moves, initial, terminal, has_generation, immutable):
        self.states = states
        self.moves = moves
        self.initial = initial
        self.terminal = terminal
        self.has_generation = has_generation
        self.immutable = immutable

    def is_sound(self):
        """Every state can be reached, no terminal one is left, none leads to itself."""
        named = {s for move in self.moves for s in move} | self.initial | self.terminal
        reached = set(self.initial)
        for _ in named:
            reached |= {to for origin, to in self.moves if origin in reached}
        return (bool(self.moves) and bool(self.initial) and reached == named and
                all(origin not in self.terminal and origin != to for origin, to in self.moves))

    def named(self):
        return {s for move in self.moves for s in move} | self.initial | self.terminal

    def judge(self, old, new):
        """The SQLSTATE that refuses a row's new version; None: it stands."""
        if new["state"] not in self.named():
            return "ID003"
        if old is None:
            return None if new["state"] in self.initial else "ID003"
        if old["state"] != new["state"] and (old["state"], new["state"]) not in self.moves:
            return "ID003"
        if self.has_generation and old["gen"] is not None and (
                new["gen"] is None or new["gen"] < old["gen"]):
            return "ID002"
        if any(old[column] != new[column] for column in self.immutable):
            return "23514"
        return None

    def transition(self, row, origin, to, generation):
        """Outcome and state, or an SQLSTATE, and the row's new version, None if it stays."""
        if generation is not None and not self.has_generation:
            return "22023", None
        if (origin, to) not in self.moves:
            return "ID003", None
        if row is None:
            return "refused:", None
        if generation is not None and row["gen"] is not None and generation < row["gen"]:
            return "ID002", None
        if row["state"] == origin:
            new = dict(row, state=to)
            if generation is not None:
                new["gen"] = generation
            return "applied:" + to, new
        return ("already:" if row["state"] == to else "refused:") + row["state"], None


# ---- random machines and tables ----

def random_machine(rng, states, has_generation):
    count = rng.randint(1, 2 * len(states))
    moves = {tuple(rng.choices(states, k=2) if rng.random() < 0.05 else rng.sample(states, 2))
             for _ in range(count)}
    initial = set(rng.sample(states, rng.choice([1, 1, 1, 2])))
    last = [s for s in states if all(origin != s for origin, _ in moves)]
    terminal = {s for s in last if rng.random() < 0.7}
    if rng.random() < 0.05:
        terminal.add(rng.choice(states))
    immutable = [column for column in IMMUTABLE if rng.random() < 0.4]
    return Machine(states, moves, initial, terminal, has_generation, immutable)


def sound_machine(rng, states, has_generation):
    while True:
        machine = random_machine(rng, states, has_generation)
        if machine.is_sound():
            return machine


class Table:
    """One table, its rows as the model has them, and what is asked of the server about it."""

    def __init__(self, rng, number):
        self.rng = rng
        self.name = "guard_model_%d" % number
        self.states = rng.sample(NAMES, rng.randint(2, 6))
        self.state_type = rng.choice(["text", "varchar", "varchar(20)", self.name + "_state"])
        self.generation_type = rng.choice([None, "integer", "bigint"])
        self.kind = rng.choice(["plain", "plain", "list", "hash"])
        self.machine = None
        self.rows = {}  # by id
        self.questions = []  # SQL that answers with one line
        self.expected = []  # the lines that are right, a set of them for each

    # -- SQL --

    def create(self):
        key = "PRIMARY KEY (id, part)" if self.kind == "list" else "PRIMARY KEY (id)"
        columns = ", ".join("%s %s" % (c, kind) for c, (kind, _) in IMMUTABLE.items())
        gen = "" if self.generation_type is None else "gen %s, " % self.generation_type
        by = {"plain": "", "list": " PARTITION BY LIST (part)",
              "hash": " PARTITION BY HASH (id)"}[self.kind]
        sql = ""
        if self.state_type.endswith("_state"):
            sql += "CREATE TYPE %s AS ENUM (%s);\n" % (
                self.state_type, ", ".join(literal(s) for s in NAMES + [NOWHERE]))
        sql += ("CREATE TABLE %s (id integer, part integer, state %s, %s%s, note integer,"
                " %s)%s;\n") % (
            self.name, self.state_type, gen, columns, key, by)
        if self.kind == "list":
            for part in PARTS:
                # another order of columns, and a dropped one
                sql += ("CREATE TABLE {0}_{1} (note integer, gone integer, {2}{3}, state {4},"
                        " part integer NOT NULL, id integer NOT NULL);\n"
                        "ALTER TABLE {0}_{1} DROP gone;\n"
                        "ALTER TABLE {0} ATTACH PARTITION {0}_{1} FOR VALUES IN ({1});\n").format(
                            self.name, part, gen, columns, self.state_type)
        elif self.kind == "hash":
            for part in PARTS:
                sql += ("CREATE TABLE {0}_{1} PARTITION OF {0}"
                        " FOR VALUES WITH (MODULUS {2}, REMAINDER {3});\n").format(
                            self.name, part, len(PARTS), part - 1)
        return sql

    def definition(self, machine):
        return "idem_define_machine(%s, 'state', %s, %s, %s, %s, %s)" % (
            literal(self.name),
            "ARRAY[%s]::text[]" % ", ".join("ARRAY[%s, %s]" % (literal(a), literal(b))
                                            for a, b in sorted(machine.moves)),
            array(sorted(machine.initial)), array(sorted(machine.terminal)),
            "'gen'" if machine.has_generation else "NULL", array(machine.immutable))

    def ask(self, sql, expected, is_answer=False):
        self.questions.append("pg_temp.try(%s, %s)" % (literal(sql), str(is_answer).lower()))
        self.expected.append(expected if isinstance(expected, set) else {expected})

    # -- random values --

    def state(self):
        return self.rng.choice(self.states * 4 + [NOWHERE, None])

    def generation(self):
        return self.rng.choice([None, 1, 2, 3, 3, 4, 5])

    def row(self, number):
        row = {column: self.rng.choice(values) for column, (_, values) in IMMUTABLE.items()}
        begin = sorted(self.machine.initial)
        return dict(row, id=number, part=self.rng.choice(PARTS), note=self.rng.randint(0, 99),
                    gen=self.generation() if self.generation_type else None,
                    state=self.state() if self.rng.random() < 0.2 else self.rng.choice(begin))

    def changes(self):
        """Column → new value, as an update sets them."""
        rng = self.rng
        changed = {}
        if rng.random() < 0.7:
            changed["state"] = self.state()
        if self.generation_type and rng.random() < 0.3:
            changed["gen"] = self.generation()
        for column, (_, values) in IMMUTABLE.items():
            if rng.random() < 0.1:
                changed[column] = rng.choice(values)
        if self.kind == "list" and rng.random() < 0.4:
            changed["part"] = rng.choice(PARTS)
        return changed or {"note": rng.randint(0, 99)}

    # -- statements --

    def columns(self):
        return [c for c in ["id", "part", "state", "gen", "note", *IMMUTABLE]
                if c != "gen" or self.generation_type]

    def value(self, column, value):
        if value is None:
            return "NULL"
        if column == "state":
            return "%s::%s" % (literal(value), self.state_type)
        if column in IMMUTABLE:
            return "%s::%s" % (literal(value), IMMUTABLE[column][0])
        return str(value)

    def values(self, row):
        return "(%s)" % ", ".join(self.value(c, row[c]) for c in self.columns())

    def set_list(self, changed):
        return ", ".join("%s = %s" % (c, self.value(c, v)) for c, v in changed.items())

    def write(self, sql, events):
        """A statement that makes new versions of rows, of (old or None, new)."""
        refused = {self.machine.judge(old, new) for old, new in events} - {None}
        gone = {old["id"] for old, _ in events if old is not None}
        kept = [number for number in self.rows if number not in gone]
        born = [new["id"] for _, new in events]
        if len(set(born + kept)) != len(born + kept):
            refused = {"23505"}  # the index is asked before the guard
        if not refused:
            for number in gone:
                del self.rows[number]
            for _, new in events:
                self.rows[new["id"]] = new
        self.ask(sql, refused or "00000")

    def insert(self):
        numbers = self.rng.sample(IDS, self.rng.choice([1, 1, 1, 2, 3]))
        if self.kind == "list":
            # the key is of two columns there: keep the model's of one
            numbers = [n for n in numbers if n not in self.rows] or numbers[:1]
            if numbers[0] in self.rows:
                return self.update()
        rows = [self.row(number) for number in numbers]
        self.write("INSERT INTO %s (%s) VALUES %s" % (
            self.name, ", ".join(self.columns()), ", ".join(map(self.values, rows))),
            [(None, row) for row in rows])

    def update(self):
        changed = self.changes()
        if self.kind == "hash" and self.rng.random() < 0.3:
            changed["id"] = self.rng.choice(IDS)
            chosen = [self.rng.choice(IDS)]
        else:
            chosen = self.rng.sample(IDS, self.rng.choice([1, 1, 1, 2, 6]))
        hit = [self.rows[n] for n in chosen if n in self.rows]
        form = self.rng.choice(["UPDATE {0} SET {1} WHERE id IN ({2})",
                                "WITH u AS (UPDATE {0} SET {1} WHERE id IN ({2}) RETURNING 1)"
                                " SELECT count(*) FROM u"])
        self.write(form.format(self.name, self.set_list(changed), ", ".join(map(str, chosen))),
                   [(row, dict(row, **changed)) for row in hit])

    def put(self):
        """An upsert or a MERGE: an update if the row is there, else an insert."""
        row = self.row(self.rng.choice(IDS))
        changed = self.changes()
        changed.pop("part", None)  # no upsert moves a row to another partition
        changed = changed or {"note": self.rng.randint(0, 99)}
        old = self.rows.get(row["id"])
        if old is not None and self.kind == "list":
            row["part"] = old["part"]  # else it conflicts with nothing
        if self.rng.random() < 0.5:
            sql = "INSERT INTO %s (%s) VALUES %s ON CONFLICT (id%s) DO UPDATE SET %s" % (
                self.name, ", ".join(self.columns()), self.values(row),
                ", part" if self.kind == "list" else "", self.set_list(changed))
        else:
            sql = ("MERGE INTO %s t USING (VALUES (%d)) v (id) ON t.id = v.id"
                   " WHEN MATCHED THEN UPDATE SET %s"
                   " WHEN NOT MATCHED THEN INSERT (%s) VALUES %s") % (
                       self.name, row["id"], self.set_list(changed),
                       ", ".join(self.columns()), self.values(row))
        self.write(sql, [(None, row) if old is None else (old, dict(old, **changed))])

    def delete(self):
        number = self.rng.choice(IDS)
        self.rows.pop(number, None)
        self.ask("DELETE FROM %s WHERE id = %d" % (self.name, number), "00000")

    def transition(self):
        rng = self.rng
        number = rng.choice(IDS)
        row = self.rows.get(number)
        origin, to = rng.choice(sorted(self.machine.moves))
        if row is not None and rng.random() < 0.5:
            origin, to = rng.choice([m for m in sorted(self.machine.moves)
                                     if m[0] == row["state"]] or [(origin, to)])
        if rng.random() < 0.2:
            origin, to = rng.choices(self.states + [NOWHERE], k=2)
        generation = self.generation() if rng.random() < 0.4 else None
        if self.kind == "list":
            answer, new = "0A000", None
        else:
            answer, new = self.machine.transition(row, origin, to, generation)
        if new is not None:
            self.rows[number] = new
        self.ask("SELECT outcome || ':' || coalesce(state, '') FROM"
                 " idem_transition(%s, %s, %s, %s%s)" % (
                     literal(self.name),
                     "%d" % number if rng.random() < 0.5 else "'%d'" % number,
                     literal(origin), literal(to),
                     "" if generation is None else ", %d" % generation), answer, True)

    def define(self, machine):
        if not machine.is_sound():
            self.ask("SELECT " + self.definition(machine), "22023")
        elif not {row["state"] for row in self.rows.values()} <= machine.named():
            self.ask("SELECT " + self.definition(machine), "23514")
        else:
            self.machine = machine
            self.ask("SELECT " + self.definition(machine), "00000")

    def redefine(self):
        self.define(random_machine(self.rng, self.states, self.machine.has_generation))

    def play(self):
        has_generation = self.generation_type is not None and self.rng.random() < 0.9
        self.machine = sound_machine(self.rng, self.states, has_generation)
        while self.rng.random() < 0.5:
            unsound = random_machine(self.rng, self.states, has_generation)
            if not unsound.is_sound():
                self.ask("SELECT " + self.definition(unsound), "22023")
        self.define(self.machine)
        for _ in range(STATEMENTS):
            self.rng.choice([self.insert] * 3 + [self.update] * 4 + [self.put] * 3 +
                            [self.transition] * 4 + [self.delete, self.redefine])()

    def contents(self):
        """The rows as the model has them, as the server is asked for them."""
        return "\n".join("|".join("" if row[c] is None else str(row[c]) for c in self.columns())
                         for _, row in sorted(self.rows.items()))

    def script(self):
        return ("BEGIN;\n" + self.create() +
                "".join("SELECT %s;\n" % question for question in self.questions) +
                "SELECT %s FROM %s ORDER BY id;\n" % (", ".join(self.columns()), self.name) +
                "ROLLBACK;\n\\echo %s\n" % END)


# ---- the server ----

END = "-- end of a machine --"

SETUP = """
\\set ON_ERROR_STOP on
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS idem_action;
CREATE FUNCTION pg_temp.try(statement text, is_answer boolean) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    answer text;
BEGIN
    IF is_answer THEN
        EXECUTE statement INTO answer;
        RETURN answer;
    END IF;
    EXECUTE statement;
    RETURN '00000';
EXCEPTION WHEN OTHERS THEN
    RETURN SQLSTATE;
END $$;
"""


def literal(text):
    return "E'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


def array(texts):
    return "ARRAY[" + ", ".join(map(literal, texts)) + "]::text[]"


def ask_server(tables):
    """One psql for all; for each table its lines."""
    script = SETUP + "".join(table.script() for table in tables)
    psql = subprocess.run(["psql", "-XqAt", "-f", "-"], input=script.encode("utf-8"),
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          env=dict(os.environ, PGCLIENTENCODING="UTF8"), check=False)
    answers = psql.stdout.decode("utf-8").split(END + "\n")[:-1]
    if psql.returncode != 0 or len(answers) != len(tables):
        sys.exit("Bail out! psql: " + psql.stderr.decode("utf-8", "replace")[:2000])
    return [answer.split("\n")[:-1] for answer in answers]


# ---- the tests ----

def differences(table, lines):
    """What the server answered otherwise than the model, as diagnostics."""
    found = []
    count = len(table.questions)
    for question, right, got in zip(table.questions, table.expected, lines):
        if got not in right:
            found.append("%s\n#   got %s, expected %s" % (question, ascii(got), sorted(right)))
    if "\n".join(lines[count:]) != table.contents():
        found.append("the table holds\n%s\n#   expected\n%s" % (
            "\n".join(lines[count:]), table.contents()))
    return found


def main():
    sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")
    if not os.environ.get("PGHOST"):
        print("1..0 # SKIP PGHOST is not set: there is no server to ask")
        return 0
    seed = int(os.environ.get("GUARD_SEED") or random.randrange(2 ** 32))
    print("# GUARD_SEED=%d" % seed)
    rng = random.Random(seed)
    tables = [Table(rng, number) for number in range(MACHINES)]
    for table in tables:
        table.play()
    failed = False
    for number, (table, lines) in enumerate(zip(tables, ask_server(tables)), 1):
        found = differences(table, lines)
        failed = failed or bool(found)
        print("%s %d - %d statements, %s table, %d rows left" % (
            "not ok" if found else "ok", number, len(table.questions), table.kind,
            len(table.rows)))
        for text in found[:5]:
            print("# " + text.replace("\n", "\n# "))
    statements = sum(len(table.questions) for table in tables)
    codes = {code for table in tables for right in table.expected for code in right}
    print("# %d statements; foretold: %s" % (statements, " ".join(sorted(
        {code.split(":")[0] for code in codes}))))
    print("1..%d" % MACHINES)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
