"""
at_random.py: the refunds of doc/patterns/kafka.md, from the outbox through Kafka to the channel,
while whatever may happen does, at random; and the audit.
"""

import json
import os
import signal
import time

import e2e

PATTERNS = os.path.join(e2e.SOURCE, "doc", "patterns")
REFUNDS = 2000
STEPS = 40


class Crowd:
    """The processes of the run at random: who is killed is started again at once."""

    def __init__(self, story, channel, numbers):
        self.numbers = numbers
        self.story = story
        start = numbers.choice(("database", "broker"))
        e2e.note("consumers start from the %s" % start)
        self.makers = {
            "consumer": lambda name: story.refunds(name, "refunds", start),
            "sender": lambda name: story.start(
                name, os.path.join(PATTERNS, "kafka_sender.py"), "EVENTS",
                "bootstrap.servers=" + story.broker.address, SENDER_LEASE="4"),
            "worker": lambda name: story.start(
                name, os.path.join(PATTERNS, "worker.py"), "REFUND", channel.address,
                WORKER_LEASE="4"),
        }
        self.members = {name: self.makers[name.split("-")[0]](name) for name in (
            "consumer-1", "consumer-2", "sender-1", "sender-2", "worker-1", "worker-2")}
        self.frozen = []                    # (until, child)

    def kill(self, kind):
        name = self.numbers.choice([name for name in self.members if name.startswith(kind)])
        self.members[name].crash()
        self.members[name] = self.makers[kind](name)
        return 1

    def freeze(self):
        """For longer than the broker waits for it: its partitions are given to others."""
        child = self.members[self.numbers.choice(["consumer-1", "consumer-2"])]
        child.freeze()
        self.frozen.append((time.monotonic() + 3, child))
        return 1

    def thaw(self, now=None):
        for until, child in self.frozen:
            if now is None or until < now:
                child.signal(signal.SIGCONT)
        self.frozen = [(until, child) for until, child in self.frozen
                       if now is not None and until >= now]

    def join_or_leave(self):
        """A third consumer comes and goes, well or not."""
        child = self.members.pop("consumer-3", None)
        if child is None:
            self.members["consumer-3"] = self.makers["consumer"]("consumer-3")
        else:
            child.stop()
        return 1

    def cut(self):
        """All connections of one that has any."""
        connected = self.story.database.column(
            "SELECT DISTINCT application_name FROM pg_stat_activity WHERE application_name"
            " = ANY (%s) ORDER BY 1", list(self.members))
        if not connected:
            return 0
        return self.story.database.value(
            "SELECT count(*) FROM (SELECT pg_terminate_backend(pid) AS is_cut FROM"
            " pg_stat_activity WHERE application_name = %s) AS connection WHERE is_cut",
            self.numbers.choice(connected))

    def dead(self):
        """Who has ended although nobody killed it."""
        return [name for name, child in self.members.items() if not child.is_running()]


def amount(number):
    return number % 97 + 1


def ask_for(story, first, last):
    """Refunds are decided, each with the event that will tell of it."""
    story.database.rows("""
        SELECT idem_submit('acme/EVENTS/e-' || n, jsonb_build_object('topic', 'refunds',
            'key', 'r-' || n, 'body',
            jsonb_build_object('refund', 'r-' || n, 'amount', n %% 97 + 1)))
        FROM generate_series(%s::int, %s) AS n""", first, last)
    story.asked_for.update(("acme/REFUND/r-%d" % n, amount(n)) for n in range(first, last + 1))


def resend(producer, number):
    """The same event again, by a producer that does not know better."""
    body = json.dumps({"refund": "r-%d" % number, "amount": amount(number)})
    producer.produce("refunds", body, "r-%d" % number,
                     headers={"event-id": "e-%d" % number})
    producer.poll(0)


def everything_at_random(story):
    numbers = e2e.random_numbers()
    channel = e2e.Channel(is_forgetful=True)
    story.broker.create("refunds", 2)
    crowd = Crowd(story, channel, numbers)
    producer = story.broker.producer()

    def disturb_channel():
        channel.order(fault=numbers.choice(("lose", "drop", "refuse")), method="POST", times=10)
        return 1

    faults = e2e.Faults(numbers, {
        "consumer killed": lambda: crowd.kill("consumer"),
        "sender killed": lambda: crowd.kill("sender"),
        "worker killed": lambda: crowd.kill("worker"),
        "consumer frozen": crowd.freeze,
        "third consumer": crowd.join_or_leave,
        "connection cut": crowd.cut,
        "channel out of order": disturb_channel,
    })
    for step in range(STEPS):
        crowd.thaw(time.monotonic())
        size = REFUNDS // STEPS
        ask_for(story, step * size + 1, (step + 1) * size)
        for _ in range(size // 5):
            resend(producer, numbers.randint(1, (step + 1) * size))
        if step == STEPS // 3:
            story.broker.server.child.crash()
            story.broker.server.start()
        if step == 2 * STEPS // 3:
            story.database.connection.close()
            e2e.crash_server()
        faults.strike()
        time.sleep(numbers.uniform(0, 1.2))
    crowd.thaw()
    producer.flush(e2e.PATIENCE)
    e2e.wait_for("the outbox to be empty", lambda: story.database.value(
        "SELECT count(*) FROM idem_action WHERE idem_key_operation(key) = 'EVENTS'"
        " AND state NOT IN ('succeeded', 'rejected')") == 0, 120)
    log = [story.broker.records("refunds", partition) for partition in (0, 1)]
    e2e.wait_for("all to be consumed", lambda: story.database.column(
        "SELECT idem_progress_committable(key) FROM idem_progress"
        " WHERE key IN ('acme/refunds/refunds/0', 'acme/refunds/refunds/1') ORDER BY key")
                 == [records[-1][0] + 1 for records in log], 120)
    e2e.wait_for("all to be paid", lambda: story.database.value(
        "SELECT count(*) FROM idem_lease") == 0, 120)
    e2e.equal(crowd.dead(), [], "nobody has ended by itself")
    for child in crowd.members.values():
        child.crash()
    faults.have_happened(3)
    e2e.ok(channel.met() > 0, "and the channel was asked while it was out of order")
    again = e2e.granted_again("REFUND")
    e2e.ok(again > 0, "refunds were granted more than once: %d" % again)
    owners = story.database.value(
        "SELECT max(generation) FROM idem_progress WHERE key::text LIKE 'acme/refunds/refunds/%'")
    e2e.ok(owners > 5, "a partition had many owners: %d" % owners)
    records = sum(map(len, log))
    e2e.note("%d refunds in %d records" % (REFUNDS, records))
    e2e.ok(records >= REFUNDS * 1.2, "at least a fifth more records than refunds")
    e2e.equal(story.database.rows("SELECT count(*), count(DISTINCT event) FROM refund_event"
                                  " WHERE event LIKE 'e-%'"),
              [(REFUNDS, REFUNDS)], "each event is booked once")
    e2e.equal(story.database.rows("SELECT * FROM parked WHERE event LIKE 'e-%'"), [],
              "and none is parked")
    e2e.audit("REFUND", story.asked_for, channel.ledger(),
              "SELECT entry.key, event.amount, entry.reference FROM"
              " refund_entry AS entry JOIN refund_event AS event USING (key)")
