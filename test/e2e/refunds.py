#!/usr/bin/env python3
"""
refunds.py: two thousand refunds, all the way from the outbox to the payment provider, with a
real RabbitMQ in between, while everybody on the way is killed at random.

    outbox → sender.py → RabbitMQ → consumer.py → action → worker.py → channel

The programs are those of doc/patterns as they stand there.  Every fifth message comes twice.
The channel pays whenever it is asked to, so whatever is called twice is paid twice.
"""

# packages: rabbitmq-server python3-pika python3-psycopg
# minutes: 8

import json
import os
import sys
import time

import pika

import e2e
import rabbit

PATTERNS = os.path.join(e2e.SOURCE, "doc", "patterns")
COUNT = 2000
ROUND = 200                                 # submitted at a time
PAIRS = COUNT // 5                          # messages that come twice
LIMIT = 1000                                # of what the channel pays

SET_UP = """
    SELECT idem_define_operation('EVENTS', effect => 'external', channel => 'rabbitmq',
        channel_idempotent => true, channel_key_ttl => '1000 years', max_attempts => 1000000,
        backoff_max => '1 second');
    SELECT idem_define_operation('REFUND', effect => 'external', channel => 'payments',
        channel_queryable => true, absence_visible_after => '6 seconds', max_attempts => 1000,
        backoff_base => '100 ms', backoff_max => '1 second');
    SELECT idem_define_consumer('shop');
    CREATE TABLE refund_request (key text PRIMARY KEY, amount numeric NOT NULL);
    CREATE TABLE refund_entry (key text PRIMARY KEY, reference text NOT NULL);
"""
ENTRIES = ("SELECT key, amount, reference FROM refund_entry JOIN refund_request USING (key)")


class Business:
    def __init__(self, numbers):
        self.random = numbers
        self.channel = e2e.Channel(is_forgetful=True)
        self.broker = rabbit.Rabbit()
        with self.broker.connect() as connection:
            channel = connection.channel()
            channel.exchange_declare("events", "topic", durable=True)
            for queue in ("shop", "shop.dead", "shop.parked"):
                channel.queue_declare(queue, durable=True)
            channel.queue_bind("shop", "events", "refund.*")
        e2e.execute(SET_UP)
        self.amounts = {}                   # by refund
        self.started = 0
        self.pairs = 0
        self.crew = [self.start(role) for role in
                     ("sender", "sender", "consumer", "consumer", "worker", "worker", "worker")]
        self.faults = e2e.Faults(numbers, {
            "sender killed": lambda: self.kill_one("sender"),
            "consumer killed": lambda: self.kill_one("consumer"),
            "worker killed": lambda: self.kill_one("worker"),
            "channel out of order": self.fault_of_channel,
            "connection to the database lost": self.connections_lost})

    def start(self, role):
        """One more process of that role."""
        self.started += 1
        arguments, environment = {
            "sender": (["sender.py", "EVENTS", "events"],
                       {"AMQP_URL": self.broker.url(), "SENDER_LEASE": "3"}),
            "consumer": (["consumer.py", "shop", "shop"],
                         {"AMQP_URL": self.broker.url(), "CONSUMER_PAUSE": "0.5"}),
            "worker": (["worker.py", "REFUND", self.channel.address], {"WORKER_LEASE": "4"}),
        }[role]
        child = e2e.Child("%s-%d" % (role, self.started),
                          [sys.executable, "-B", os.path.join(PATTERNS, arguments[0])]
                          + arguments[1:], environment)
        return role, child

    def submit(self):
        """A business transaction that decides a number of refunds, and tells of each."""
        first = len(self.amounts)
        more = {"r-%d" % number: self.random.choice((10, 25.5, 99, LIMIT, LIMIT + 1))
                for number in range(first, first + ROUND)}
        e2e.execute("SELECT idem_submit(idem_key('acme', 'EVENTS', refund || '-requested'),"
                    " jsonb_build_object('type', 'refund.requested', 'body',"
                    " jsonb_build_object('refund', refund, 'amount', amount)))"
                    " FROM jsonb_each_text('%s') AS asked (refund, text),"
                    " LATERAL (SELECT text::numeric AS amount) AS number;" % json.dumps(more))
        self.amounts.update(more)

    def send_again(self, count):
        """As a producer does who did not hear of the confirm; some under another event's id."""
        with self.broker.connect() as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            for refund in self.random.sample(sorted(self.amounts), count):
                event = "%s-%s" % (refund, self.random.choice(("requested", "requested", "urged")))
                channel.basic_publish(
                    "events", "refund.requested",
                    json.dumps({"refund": refund, "amount": self.amounts[refund]}),
                    pika.BasicProperties(message_id=event, type="refund.requested",
                                         headers={"tenant": "acme"}, delivery_mode=2))
        self.pairs += count

    def kill_one(self, role):
        place = self.random.choice([place for place, (what, _) in enumerate(self.crew)
                                    if what == role])
        self.crew[place][1].crash()
        self.crew[place] = self.start(role)
        return 1

    def fault_of_channel(self):
        self.channel.order(fault=self.random.choice(("lose", "drop", "refuse", "slow")),
                           method=self.random.choice(("POST", "POST", "GET")),
                           times=self.random.randint(1, 3), seconds=1)
        return 1

    def connections_lost(self):
        return e2e.query("SELECT count(*) AS n FROM (SELECT pg_terminate_backend(pid) AS is_lost"
                         " FROM pg_stat_activity WHERE datname = current_database()"
                         " AND pid <> pg_backend_pid()) AS connection WHERE is_lost")[0]["n"]

    def duplicates(self):
        """How often a consumer, of whichever process, was told that an event was consumed."""
        return sum(child.printed(1000000).count(": duplicate, ack\n") for child in e2e.started
                   if child.name.startswith("consumer-"))

    def settled(self):
        """How many refunds nobody will move any more; in review is for the audit to find."""
        return e2e.query("SELECT count(*) AS n FROM idem_action WHERE state IN"
                         " ('succeeded', 'rejected', 'review')"
                         " AND idem_key_operation(key) = 'REFUND'")[0]["n"]

    def in_queues(self):
        with self.broker.connect() as connection:
            channel = connection.channel()
            return [channel.queue_declare(queue, passive=True).method.message_count
                    for queue in ("shop", "shop.dead", "shop.parked")]

    def is_over(self):
        return self.settled() == COUNT and e2e.query(
            "SELECT count(*) AS n FROM idem_action WHERE state IN"
            " ('pending', 'processing', 'unknown')")[0]["n"] == 0 and self.in_queues()[0] == 0


def story():
    business = Business(e2e.random_numbers())
    began = time.monotonic()
    for crash in (None, e2e.crash_server, business.broker.crash, None, None):
        for _ in range(COUNT // ROUND // 5):
            business.submit()
            business.send_again(PAIRS * ROUND // COUNT)
            business.faults.strike()
        if crash:
            crash()
        for _ in range(3):
            business.faults.strike()
            time.sleep(business.random.random())
    while business.settled() < COUNT * 9 // 10:
        business.faults.strike()
        time.sleep(business.random.random())
    e2e.wait_for("the end of all refunds", business.is_over, 180)
    e2e.note("%d refunds in %d s, %d messages sent again"
             % (COUNT, time.monotonic() - began, business.pairs))
    for _, child in business.crew:
        child.crash()
    business.faults.have_happened(5)
    e2e.ok(business.channel.met() > 0, "and the channel was asked while it was out of order")
    again = e2e.granted_again("REFUND")
    e2e.ok(again > 0, "refunds were granted more than once: %d" % again)
    duplicates = business.duplicates()
    e2e.ok(duplicates > PAIRS / 2, "events came more than once: %d" % duplicates)
    e2e.equal(business.in_queues(), [0, 0, 0], "nothing waits, and nothing was refused")
    e2e.audit("REFUND", {"acme/REFUND/" + refund: amount
                         for refund, amount in business.amounts.items()},
              business.channel.ledger(), ENTRIES)
    e2e.equal(e2e.query("SELECT state, count(*) AS n FROM idem_action"
                        " WHERE idem_key_operation(key) = 'EVENTS' GROUP BY state"),
              [{"state": "succeeded", "n": COUNT}], "every event was sent")
    e2e.equal(e2e.query("SELECT (SELECT count(*) FROM refund_request) AS requests,"
                        " count(*) AS events FROM idem_event WHERE idem_key_id(key) LIKE"
                        " '%-requested'"), [{"requests": COUNT, "events": COUNT}],
              "and consumed once")


e2e.main(story)
