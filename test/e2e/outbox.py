#!/usr/bin/env python3
"""
outbox.py: the sender of doc/patterns/outbox.md, as it stands there, with a real RabbitMQ: its
confirms are lost, it is killed between sending and reporting, and the broker refuses.
"""

# packages: rabbitmq-server python3-pika python3-psycopg
# minutes: 4

import json
import os
import sys

import e2e
import rabbit

SENDER = os.path.join(e2e.SOURCE, "doc", "patterns", "sender.py")

SET_UP = """
    SELECT idem_define_operation('EVENTS', effect => 'external', channel => 'rabbitmq',
        channel_idempotent => true, channel_key_ttl => '1000 years', max_attempts => 1000000,
        backoff_max => '2 seconds');
    SELECT idem_define_consumer('stock'), idem_define_consumer('billing');
    CREATE TABLE orders (id text PRIMARY KEY, item text);
"""


class Outbox:
    def __init__(self):
        self.broker = rabbit.Rabbit()
        self.proxy = rabbit.Proxy(self.broker.server.port)
        self.connection = self.broker.connect()
        self.channel = self.connection.channel()
        self.channel.exchange_declare("events", "topic", durable=True)
        self.channel.queue_declare("orders", durable=True)
        self.channel.queue_bind("orders", "events", "order.*")
        self.senders = 0
        e2e.execute(SET_UP)

    def sender(self, url):
        self.senders += 1
        return e2e.Child("sender-%d" % self.senders,
                         [sys.executable, "-B", SENDER, "EVENTS", "events"],
                         {"AMQP_URL": url, "SENDER_LEASE": "2"})

    def place(self, order, kind="order.placed", end=""):
        """The business transaction: the order, and the event that tells of it."""
        e2e.execute("""
            INSERT INTO orders VALUES ('%(order)s', 'book');
            SELECT idem_submit('acme/EVENTS/%(order)s-placed',
                '{"type": "%(kind)s", "body": {"order": "%(order)s", "item": "book"}}');
            %(end)s""" % {"order": order, "kind": kind, "end": end})

    def record(self, order):
        return e2e.query("SELECT state, generation, attempt FROM"
                         " idem_status('acme/EVENTS/%s-placed')" % order)[0]

    def wait_for(self, order, state):
        e2e.wait_for("%s is %s" % (order, state), lambda: self.record(order)["state"] == state)

    def waiting(self, queue="orders"):
        """How many messages wait in the queue."""
        return self.channel.queue_declare(queue, passive=True).method.message_count

    def take(self, queue="orders"):
        """The messages in the queue."""
        found = []
        while True:
            delivery, properties, body = self.channel.basic_get(queue, auto_ack=True)
            if delivery is None:
                return found
            found.append({"event": properties.message_id, "tenant": properties.headers["tenant"],
                          "type": properties.type, "mode": properties.delivery_mode,
                          "body": json.loads(body), "redelivered": delivery.redelivered})


def message(order):
    return {"event": order + "-placed", "tenant": "acme", "type": "order.placed", "mode": 2,
            "body": {"order": order, "item": "book"}, "redelivered": False}


def grants(order):
    return [(row["outcome"], row["generation"]) for row in e2e.query(
        "SELECT outcome, generation FROM idem_evidence WHERE key = 'acme/EVENTS/%s-placed'"
        " AND call = 'claim' ORDER BY recorded_at" % order)]


def consume(consumer, found):
    """What the consumer's inbox says of each message."""
    return [e2e.query("SELECT outcome FROM idem_consume('%s/%s/%s', '%s')" % (
        one["tenant"], consumer, one["event"], json.dumps(one["body"])))[0]["outcome"]
        for one in found]


def sent_once(outbox):
    outbox.place("order-0", end="ROLLBACK;")
    outbox.place("order-1")
    sender = outbox.sender(outbox.proxy.url())
    outbox.wait_for("order-1", "succeeded")
    e2e.equal(outbox.take(), [message("order-1")], "what was committed is sent, nothing else is")
    return sender


def killed_before_it_reports(outbox, sender):
    outbox.proxy.is_deaf = True
    outbox.place("order-2")
    e2e.wait_for("the message", lambda: outbox.waiting() == 1)
    e2e.equal(outbox.record("order-2")["state"], "processing", "sent, and not yet reported")
    sender.kill()
    outbox.proxy.cut()
    outbox.proxy.is_deaf = False
    sender = outbox.sender(outbox.proxy.url())
    outbox.wait_for("order-2", "succeeded")
    found = outbox.take()
    e2e.equal(found, [message("order-2")] * 2,
              "after its death the same event is sent again, and nothing marks it as redelivered")
    e2e.equal(grants("order-2"), [("execute", 2), ("repeat", 3)], "under a new generation")
    for consumer in ("stock", "billing"):
        e2e.equal(consume(consumer, found), ["first", "duplicate"],
                  "%s acts once on what was sent twice" % consumer)
    return sender


def confirm_lost(outbox, sender):
    outbox.proxy.is_deaf = True
    outbox.place("order-3")
    e2e.wait_for("the message", lambda: outbox.waiting() == 1)
    outbox.proxy.cut()
    outbox.proxy.is_deaf = False
    outbox.wait_for("order-3", "succeeded")
    e2e.equal(outbox.take(), [message("order-3")] * 2,
              "a sender whose confirm was lost with the connection sends again")
    e2e.ok(sender.is_running(), "and lives on")


def database_lost(outbox, sender):
    e2e.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()")
    outbox.place("order-4")
    outbox.wait_for("order-4", "succeeded")
    e2e.ok(sender.is_running(), "a sender outlives its database connection")
    e2e.equal(outbox.take(), [message("order-4")], "and sends what comes after it")


def refused(outbox):
    outbox.place("order-5", kind="full.placed")
    e2e.wait_for("an attempt", lambda: outbox.record("order-5")["attempt"] >= 2)
    e2e.equal(outbox.take(), [], "what no queue wants is not taken for sent")
    outbox.channel.queue_declare("full", arguments={"x-max-length": 1,
                                                    "x-overflow": "reject-publish"})
    outbox.channel.queue_bind("full", "events", "full.*")
    outbox.wait_for("order-5", "succeeded")
    e2e.equal(len(grants("order-5")) > 1 and {what for what, _ in grants("order-5")}, {"execute"},
              "and is executed, not repeated, since nobody had it")
    outbox.place("order-6", kind="full.placed")
    e2e.wait_for("an attempt", lambda: outbox.record("order-6")["attempt"] >= 2)
    e2e.equal(len(outbox.take("full")), 1, "what the broker nacked is not in the queue")
    outbox.wait_for("order-6", "succeeded")
    e2e.equal([found["event"] for found in outbox.take("full")], ["order-6-placed"],
              "and is sent again until there is room")


UNSENDABLE = {
    "no-type": {"body": {}},
    "no-body": {"type": "order.placed"},
    "no-object": [],
    "long-type": {"type": "order." + "x" * 250, "body": {}},
    "long-id-" + "x" * 250: {"type": "order.placed", "body": {}},
    "too-large": {"type": "order.placed", "body": {"text": "x" * 2000000}},
}


def unsendable(outbox, sender):
    """What no broker will ever take does not keep the others waiting."""
    outbox.take()
    for order, event in UNSENDABLE.items():
        e2e.execute("SELECT idem_submit('acme/EVENTS/%s-placed', '%s')"
                    % (order, json.dumps(event)))
    outbox.place("order-7")
    outbox.wait_for("order-7", "succeeded")
    for order in UNSENDABLE:
        outbox.wait_for(order, "review")
    e2e.equal([row["n"] for row in e2e.query(
        "SELECT count(*) AS n FROM idem_review WHERE detail->>'error' IS NOT NULL")],
              [len(UNSENDABLE)], "what can never be sent awaits a person, and says why")
    e2e.equal(outbox.take(), [message("order-7")], "the others are sent")
    e2e.ok(sender.is_running(), "and the sender lives on")
    e2e.execute("SELECT idem_resolve(key, generation, 'rejected', 'no such event')"
                " FROM idem_review")


def exact(outbox):
    text = '{"order": "order-8", "amount": 12345678901234567.89}'
    e2e.execute("SELECT idem_submit('acme/EVENTS/order-8-placed',"
                " '{\"type\": \"order.placed\", \"body\": %s}')" % text)
    outbox.wait_for("order-8", "succeeded")
    e2e.equal(json.loads(outbox.channel.basic_get("orders", auto_ack=True)[2],
                         parse_float=str)["amount"], "12345678901234567.89",
              "money is sent as it is on record")


def story():
    outbox = Outbox()
    sender = sent_once(outbox)
    sender = killed_before_it_reports(outbox, sender)
    confirm_lost(outbox, sender)
    database_lost(outbox, sender)
    refused(outbox)
    exact(outbox)
    unsendable(outbox, sender)
    e2e.equal(e2e.query("SELECT state FROM idem_action"
                        " WHERE state NOT IN ('succeeded', 'rejected')"), [],
              "the outbox is empty at the end")
    e2e.equal(e2e.query("SELECT * FROM idem_violations"), [], "and nothing is violated")


e2e.main(story)
