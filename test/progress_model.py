#!/usr/bin/env python3
"""Progress in partitions against a model, written from the definition alone.

Random walks: owners come and go, read on, read again from where they are told
or from before it, skip what was compacted away; workers finish in any order,
twice, or what they were never given; serial consumers advance; topics are
created anew; savepoints are rolled back.  The model foretells each answer or
SQLSTATE, and what is open in the end.  Asks the server of PGHOST by psql.  The
seed is printed; PROGRESS_SEED repeats a run.  Speaks TAP; needs nothing but the
standard library.
"""
import copy
import os
import random
import subprocess
import sys

WALKS = 100
STEPS = 150


# ---- the model ----

class Refused(Exception):
    """The SQLSTATE of a call that moves nothing."""


class Partition:
    """One partition in one epoch, as the page describes it, with sets instead of marks."""

    def __init__(self):
        self.generation = 0
        self.epoch = None
        self.former = []
        self.begin()

    def begin(self):
        self.position = None    # what the owner was delivered ends before it
        self.seen = -1          # the highest offset that anybody was delivered
        self.open = set()       # delivered to the owner and not done
        self.left = set()       # left open by owners before him

    def committable(self):
        return min(self.open, default=self.position)

    def assign(self, epoch):
        if epoch in self.former:
            raise Refused("ID003")
        self.generation += 1
        if epoch != self.epoch:
            if self.epoch is not None:
                self.former.append(self.epoch)
            self.epoch = epoch
            self.begin()
        self.position = self.committable()
        self.left |= self.open
        self.open = set()
        return "(%d,%s)" % (self.generation, "" if self.position is None else self.position)

    def check_owner(self, generation):
        if generation != self.generation:
            raise Refused("ID002")

    def fetched(self, generation, offsets):
        self.check_owner(generation)
        to_do = []
        for offset in sorted(set(offsets)):
            if self.position is not None and offset < self.position:
                if offset in self.open:
                    to_do.append(offset)
            elif offset in self.left or offset > self.seen:
                to_do.append(offset)
        if offsets and max(offsets) >= (self.position or 0):
            self.position = max(offsets) + 1
            self.seen = max(self.seen, max(offsets))
        self.left = {o for o in self.left if not offsets or o > max(offsets)}
        self.open |= set(to_do)
        return "{%s}" % ",".join(map(str, to_do))

    def done(self, generation, offsets):
        self.check_owner(generation)
        if len(set(offsets)) < len(offsets) or not set(offsets) <= self.open:
            raise Refused("ID003")
        self.open -= set(offsets)
        return ""

    def advance(self, generation, next_offset):
        self.check_owner(generation)
        if self.position is not None and next_offset <= self.committable():
            raise Refused("ID003")
        if next_offset > (self.position or 0) and (self.position or 0) <= self.seen:
            raise Refused("ID003")
        self.open = {o for o in self.open if o >= next_offset}
        self.position = max(self.position or 0, next_offset)
        self.seen = max(self.seen, next_offset - 1)
        return ""


# ---- random walks ----

class Walk:
    """What is asked of the server about one partition, and the answers that are right."""

    def __init__(self, rng, number):
        self.rng = rng
        self.key = "model/progress_model/walk/%d" % number
        self.partition = Partition()
        self.log = sorted(rng.sample(range(400), 250))  # the gaps are those of the log
        self.next = 0           # where the owner reads on
        self.saved = None       # at the savepoint
        self.statements = []
        self.expected = []      # None: nothing is asked

    def say(self, statement):
        self.statements.append(statement + ";")
        self.expected.append(None)

    def ask(self, call, judge):
        before = copy.deepcopy(self.partition)
        try:
            right = judge()
        except Refused as refused:
            self.partition = before
            right = str(refused)
        self.statements.append("SELECT pg_temp.try(%s);" % literal("SELECT " + call))
        self.expected.append(right)

    def generation(self):
        newest = self.partition.generation
        return self.rng.choice([newest] * 20 + [newest - 1, newest + 1, 0])

    def assign(self):
        number = self.rng.choice([len(self.partition.former)] * 12 + [0, 1, 2])
        epoch = "e%d" % number
        before = self.partition.epoch
        self.ask("idem_progress_assign('%s', '%s')" % (self.key, epoch),
                 lambda: self.partition.assign(epoch))
        if self.partition.epoch != before:
            self.next = 0
        # from where he is told, or from an older offset that the broker has
        start = self.partition.position
        if start is not None:
            self.next = max(0, start - self.rng.choice([0, 0, 1, 5, 30]))

    def fetched(self):
        self.log = [o for o in self.log if self.rng.random() > 0.01]
        offsets = [o for o in self.log if o >= self.next][:self.rng.randint(0, 8)]
        self.rng.shuffle(offsets)
        if offsets and self.rng.random() < 0.1:
            offsets.append(self.rng.choice(offsets))
        generation = self.generation()
        self.ask("idem_progress_fetched('%s', %d, '{%s}')" % (
            self.key, generation, ",".join(map(str, offsets))),
                 lambda: self.partition.fetched(generation, offsets))
        if offsets and generation == self.partition.generation:
            self.next = max(offsets) + 1
        if self.rng.random() < 0.1:     # and the next poll brings some of it again
            self.next = max(0, self.next - self.rng.randint(1, 10))

    def done(self):
        is_open = sorted(self.partition.open)
        count = min(self.rng.choice([0, 1, 1, 1, 2, 4]), len(is_open))
        offsets = self.rng.sample(is_open, count)
        if self.rng.random() < 0.15:
            offsets.append(self.rng.randrange(400))
        if offsets and self.rng.random() < 0.05:
            offsets.append(offsets[0])
        generation = self.generation()
        self.ask("idem_progress_done('%s', %d, '{%s}')" % (
            self.key, generation, ",".join(map(str, offsets))),
                 lambda: self.partition.done(generation, offsets))

    def advance(self):
        start = self.partition.committable() or 0
        next_offset = max(0, start + self.rng.choice([-1, 0, 1, 1, 2, 5]))
        generation = self.generation()
        self.ask("idem_progress_advance('%s', %d, %d)" % (self.key, generation, next_offset),
                 lambda: self.partition.advance(generation, next_offset))
        self.next = max(self.next, self.partition.position or 0)

    def committable(self):
        self.ask("coalesce(idem_progress_committable('%s')::text, 'null')" % self.key,
                 lambda: "null" if self.partition.position is None
                 else str(self.partition.committable()))

    def savepoint(self):
        if self.saved is None:
            self.say("SAVEPOINT s")
            self.saved = copy.deepcopy(self.partition), self.next
        elif self.rng.random() < 0.5:
            self.say("ROLLBACK TO s")
            self.partition, self.next = copy.deepcopy(self.saved)
        else:
            self.say("RELEASE s")
            self.saved = None

    def play(self):
        self.assign()
        for _ in range(STEPS):
            self.rng.choice([self.fetched] * 6 + [self.done] * 8 + [self.committable] * 3 +
                            [self.assign, self.advance, self.savepoint])()

    def contents(self):
        return ["%d" % o for o in sorted(self.partition.open)]

    def script(self):
        return ("BEGIN;\n" + "\n".join(self.statements) +
                "\nSELECT record_offset FROM idem_progress_open WHERE key = '%s'"
                " ORDER BY 1;\nROLLBACK;\n\\echo %s\n" % (self.key, END))


# ---- the server ----

END = "-- end of a walk --"

SETUP = """
\\set ON_ERROR_STOP on
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS idem_action;
DO $$ BEGIN PERFORM idem_define_consumer('progress_model'); END $$;
CREATE FUNCTION pg_temp.try(statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    answer text;
BEGIN
    EXECUTE statement INTO answer;
    RETURN answer;
EXCEPTION WHEN OTHERS THEN
    RETURN SQLSTATE;
END $$;
"""


def literal(text):
    return "'" + text.replace("'", "''") + "'"


def ask_server(walks):
    """One psql for all; for each walk its lines."""
    script = SETUP + "".join(walk.script() for walk in walks)
    psql = subprocess.run(["psql", "-XqAt", "-f", "-"], input=script.encode("utf-8"),
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    answers = psql.stdout.decode("utf-8").split(END + "\n")[:-1]
    if psql.returncode != 0 or len(answers) != len(walks):
        sys.exit("Bail out! psql: " + psql.stderr.decode("utf-8", "replace")[:2000])
    return [answer.split("\n")[:-1] for answer in answers]


# ---- the tests ----

def differences(walk, lines):
    """What the server answered otherwise than the model, as diagnostics."""
    asked = [(s, right) for s, right in zip(walk.statements, walk.expected) if right is not None]
    found = ["%s\n#   got %s, expected %s" % (statement, got, right)
             for (statement, right), got in zip(asked, lines) if got != right]
    if lines[len(asked):] != walk.contents():
        found.append("open: %s\n#   expected %s" % (lines[len(asked):], walk.contents()))
    return found


def main():
    if not os.environ.get("PGHOST"):
        print("1..0 # SKIP PGHOST is not set: there is no server to ask")
        return 0
    seed = int(os.environ.get("PROGRESS_SEED") or random.randrange(2 ** 32))
    print("# PROGRESS_SEED=%d" % seed)
    rng = random.Random(seed)
    walks = [Walk(rng, number) for number in range(WALKS)]
    for walk in walks:
        walk.play()
    failed = False
    for number, (walk, lines) in enumerate(zip(walks, ask_server(walks)), 1):
        found = differences(walk, lines)
        failed = failed or bool(found)
        print("%s %d - %d statements, generation %d" % (
            "not ok" if found else "ok", number, len(walk.statements), walk.partition.generation))
        for text in found[:5]:
            print("# " + text)
    answers = [right for walk in walks for right in walk.expected if right is not None]
    print("# %d answers, %d of them refusals" % (
        len(answers), sum(answer.startswith("ID") for answer in answers)))
    print("1..%d" % WALKS)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
