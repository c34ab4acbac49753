#!/usr/bin/env python3
"""
redis_filter.py: Redis before the inbox, as doc/patterns/redis.md has it: whatever becomes of
its marks, the outcome is the same.  And what a mark or a lock alone does in the same misfortune,
without idem_action.
"""

# packages: redis-server python3-redis python3-psycopg
# minutes: 4

import json
import os
import signal
import subprocess
import sys
import time

import psycopg
import redis

import e2e

PATTERNS = os.path.join(e2e.SOURCE, "doc", "patterns")
PROGRAMS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "redis_filter")
sys.path.insert(0, PATTERNS)

import filter as pattern

SET_UP = """
    SELECT idem_define_consumer('shop');
    CREATE TABLE taken (item text NOT NULL);
    SELECT idem_define_operation('REFUND', effect => 'external', channel_queryable => true,
        absence_visible_after => '1 second', backoff_max => '1 second', max_attempts => 1000);
    CREATE TABLE refund_entry (key text PRIMARY KEY, reference text NOT NULL);
"""


def answers(port):
    try:
        return redis.Redis(port=port).ping()
    except redis.RedisError:
        return False


class Shop:
    def __init__(self):
        self.server = e2e.Server("redis", lambda port: [
            "redis-server", "--bind", "127.0.0.1", "--port", str(port), "--save", "",
            "--appendonly", "no"], answers)
        self.redis = redis.Redis(port=self.server.port)
        e2e.execute(SET_UP)

    def deliver(self, event, item="book", dies=None, ttl=3600):
        """One delivery to a process of its own; what it says, or None if it died."""
        command = [sys.executable, "-B", os.path.join(PROGRAMS, "consume.py"),
                   str(self.server.port), "acme/shop/" + event, item]
        done = subprocess.run(command + ([dies] if dies else []), text=True, check=False,
                              stdout=subprocess.PIPE,
                              env=dict(os.environ, PATTERNS=PATTERNS, MARKS_TTL=str(ttl)))
        if done.returncode not in (0, -signal.SIGKILL):
            raise e2e.Trouble("the consumer fails")
        return done.stdout.strip() or None

    def marked(self):
        """The events that are marked."""
        return {key.decode()[len("consumed:"):] for key in self.redis.keys("consumed:*")}


def taken():
    return e2e.query("SELECT count(*) AS n FROM taken")[0]["n"]


def asked():
    """How often the database was asked about an event."""
    return e2e.query("SELECT first + duplicate + conflict AS n FROM idem_stat_consumers"
                     " WHERE consumer = 'shop'")[0]["n"]


def on_record():
    return {row["key"] for row in e2e.query("SELECT key FROM idem_event")}


# ---- the filter ----

def spared(shop):
    e2e.equal(shop.deliver("one"), "first", "the first delivery")
    before = asked()
    e2e.equal([shop.deliver("one"), shop.deliver("one")], ["hit", "hit"],
              "what is marked is a duplicate")
    e2e.equal(asked(), before, "and the database is not asked")
    e2e.equal(shop.deliver("one", item="pen"), "conflict",
              "the same event with another payload is no hit")
    e2e.equal(taken(), 1, "one thing was taken")


def lost(shop):
    shop.redis.flushall()
    e2e.equal([shop.deliver("one"), shop.deliver("one")], ["duplicate", "hit"],
              "marks are lost: the database knows")
    shop.server.kill()
    e2e.equal([shop.deliver("one"), shop.deliver("two"), shop.deliver("two")],
              ["duplicate", "first", "duplicate"], "Redis is away: all goes on without it")
    shop.server.start()
    e2e.equal(shop.deliver("two"), "duplicate", "and when it is back")
    shop.redis.flushall()
    e2e.equal(shop.deliver("two", ttl=1), "duplicate", "a mark for a second")
    e2e.wait_for("its end", lambda: not shop.marked())
    e2e.equal(shop.deliver("two"), "duplicate", "has expired: the database knows")
    e2e.equal(taken(), 2, "two things were taken")


def died(shop):
    e2e.equal(shop.deliver("three", dies="before-commit"), None, "a consumer dies in its work")
    e2e.ok("acme/shop/three" not in shop.marked(), "nothing is marked")
    e2e.equal(shop.deliver("three", dies="before-mark"), None,
              "the next dies between COMMIT and mark")
    e2e.ok("acme/shop/three" not in shop.marked(), "nothing is marked")
    e2e.equal(shop.deliver("three"), "duplicate", "the database knows that it was done")
    e2e.equal(shop.deliver("four", dies="after-mark"), None,
              "one dies between mark and acknowledgement")
    e2e.crash_server()
    e2e.equal(shop.deliver("four"), "hit", "the mark is true, also after a crash of the database")
    e2e.equal(taken(), 4, "four things were taken")
    e2e.ok(shop.marked() <= on_record(), "whatever is marked is on record")


def not_committed(shop):
    """A mark must not be set in a transaction that may yet roll back."""
    marks = pattern.Marks(redis.Redis(port=shop.server.port))
    with psycopg.connect("") as database:   # not in autocommit mode
        database.execute("SELECT 1")
        try:
            pattern.consume(database, marks, "acme/shop/five", '{"item": "book"}',
                            lambda *_: None)
        except ValueError:
            pass
        database.rollback()
    e2e.ok("acme/shop/five" not in shop.marked(), "in an open transaction nothing is marked")
    e2e.equal(shop.deliver("five"), "first", "and nothing is lost when it rolls back")


def rounded(shop):
    """Two bodies that a double cannot tell apart."""
    marks = pattern.Marks(redis.Redis(port=shop.server.port))
    with psycopg.connect("", autocommit=True) as database:
        e2e.equal([pattern.consume(database, marks, "acme/shop/six", '{"amount": %s}' % amount,
                                   lambda *_: None)
                   for amount in ("12345678901234567.89", "12345678901234567.88")],
                  ["first", "conflict"], "what differs by a cent is no hit")


def at_random(shop):
    """Events that come up to five times, while marks come and go."""
    numbers = e2e.random_numbers()
    before = taken()
    deliveries = ["random-%d" % number for number in range(200)
                  for _ in range(numbers.randint(1, 5))]
    numbers.shuffle(deliveries)
    marks = pattern.Marks(redis.Redis(port=shop.server.port, socket_timeout=1))
    found = []
    with psycopg.connect("", autocommit=True) as database:
        for event in deliveries:
            chance = numbers.random()
            if chance < 0.02:
                shop.redis.flushall()
            elif chance < 0.03:
                shop.server.kill()
                shop.server.start()
            elif chance < 0.1 and shop.marked():
                shop.redis.delete("consumed:" + numbers.choice(sorted(shop.marked())))
            found.append(pattern.consume(
                database, marks, "acme/shop/" + event, json.dumps({"item": event}),
                lambda connection, payload: connection.execute("INSERT INTO taken VALUES (%s)",
                                                               (payload["item"],))))
    e2e.note({what: found.count(what) for what in set(found)})
    e2e.equal([found.count("first"), taken() - before], [200, 200],
              "at random: each event once, whatever became of the marks")
    e2e.ok(set(found) == {"first", "duplicate", "hit"}, "some were spared, some were not")
    e2e.ok(shop.marked() <= on_record(), "whatever is marked is on record")


# ---- the control group, and the same with idem_action ----

def by_hand(shop, channel, way, refund, *misfortune):
    return e2e.Child("%s-%s" % (way, refund + "".join(misfortune)), [
        sys.executable, "-B", os.path.join(PROGRAMS, "by_hand.py"), way, str(shop.server.port),
        channel.address, refund, *misfortune], {"PATTERNS": PATTERNS})


def worker(program, channel):
    return e2e.Child(os.path.basename(program), [sys.executable, "-B", program, "REFUND",
                                                 channel.address],
                     {"PATTERNS": PATTERNS, "WORKER_LEASE": "2"})


def paid(channel, refund):
    return sum(entry["key"] == refund for entry in channel.ledger())


def mark_alone(shop, channel):
    by_hand(shop, channel, "mark", "r-1", "die").wait()
    again = by_hand(shop, channel, "mark", "r-1")
    again.wait()
    e2e.equal(again.printed().strip(), "duplicate",
              "a mark alone: set, and its setter dies; the next takes the refund for paid")
    e2e.equal(paid(channel, "r-1"), 0, "and it is lost")


def lock_alone(shop, channel):
    first = by_hand(shop, channel, "lock", "r-2", "sleep")
    e2e.wait_for("its sleep", first.is_frozen)
    e2e.wait_for("the end of the lock", lambda: not shop.redis.exists("lock:r-2"))
    by_hand(shop, channel, "lock", "r-2").wait()
    e2e.equal(paid(channel, "r-2"), 1, "a lock alone: its owner sleeps, it expires, another pays")
    first.signal(signal.SIGCONT)
    first.wait()
    e2e.equal(paid(channel, "r-2"), 2, "the owner wakes up, and the refund is doubled")


def with_idem_action(channel):
    for refund, wakes in (("acme/REFUND/r-1", False), ("acme/REFUND/r-2", True)):
        e2e.execute("SELECT idem_submit('%s', '{\"amount\": 10}')" % refund)
        first = worker(os.path.join(PROGRAMS, "sleeper.py"), channel)
        e2e.wait_for("its sleep", first.is_frozen)
        if not wakes:
            first.kill()
        second = worker(os.path.join(PATTERNS, "worker.py"), channel)
        e2e.wait_for("the refund", lambda: e2e.query(
            "SELECT state FROM idem_status('%s')" % refund)[0]["state"] == "succeeded")
        if wakes:
            first.signal(signal.SIGCONT)
            time.sleep(2)                   # it has nothing to say, so there is nothing to await
            e2e.ok(first.is_running(), "idem_action: the sleeper wakes up, and goes on")
        e2e.equal(paid(channel, refund), 1, "idem_action: an owner who %s: paid once"
                  % ("sleeps" if wakes else "dies"))
        first.kill()
        second.crash()
    e2e.audit("REFUND", {"acme/REFUND/r-1": 10, "acme/REFUND/r-2": 10},
              [entry for entry in channel.ledger() if entry["key"].startswith("acme/")],
              "SELECT key, 10 AS amount, reference FROM refund_entry")


def story():
    shop = Shop()
    spared(shop)
    lost(shop)
    died(shop)
    not_committed(shop)
    rounded(shop)
    at_random(shop)
    channel = e2e.Channel(is_forgetful=True)
    mark_alone(shop, channel)
    lock_alone(shop, channel)
    with_idem_action(channel)


e2e.main(story)
