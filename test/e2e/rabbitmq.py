#!/usr/bin/env python3
"""
rabbitmq.py: the consumer of doc/patterns/rabbitmq.md, as it stands there, with a real RabbitMQ.

It is killed between its COMMIT and its acknowledgement, loses its connection and its channel
while it still works, gives messages back, and is sent what it must refuse.  The flag that tells
of a redelivery is right about none of this.
"""

# packages: rabbitmq-server python3-pika python3-psycopg
# minutes: 5

import json
import os
import random
import re
import sys
import time

import pika
from psql import Session

import e2e
import rabbit

CONSUMER = os.path.join(e2e.SOURCE, "doc", "patterns", "consumer.py")
TIMEOUT = 10                                # seconds that the broker waits for an acknowledgement
LAST_DAY = 1767139200                       # 2025-12-31, as brokers count time

SET_UP = """
    SELECT idem_define_consumer('shop');
    CREATE TABLE stock (item text PRIMARY KEY, free integer NOT NULL CHECK (free >= 0));
    INSERT INTO stock VALUES ('book', 100), ('cup', 1), ('pen', 0);
    CREATE TABLE refund_request (key text PRIMARY KEY, amount numeric NOT NULL);
"""
DEFINE_REFUND = "SELECT idem_define_operation('REFUND', effect => 'external')"


class Shop:
    def __init__(self):
        self.broker = rabbit.Rabbit(consumer_timeout=TIMEOUT)
        self.channel = self.broker.connect().channel()
        self.channel.confirm_delivery()
        for queue in ("shop", "shop.dead", "shop.parked"):
            self.channel.queue_declare(queue, durable=True)
        self.consumers = 0
        e2e.execute(SET_UP)

    def consumer(self, port=None, heartbeat=30, name="shop", options=""):
        self.consumers += 1
        url = rabbit.url(port or self.broker.server.port, heartbeat)
        return e2e.Child("consumer-%d" % self.consumers,
                         [sys.executable, "-B", CONSUMER, name, "shop"],
                         {"AMQP_URL": url, "CONSUMER_PAUSE": "0.5", "PGOPTIONS": options})

    def end(self, *consumers):
        """Kills them; the broker has noticed, and gives them nothing more."""
        for consumer in consumers:
            consumer.kill()
        e2e.wait_for("the broker to notice", lambda: self.look("shop").consumer_count == 0)

    def look(self, queue):
        return self.channel.queue_declare(queue, passive=True).method

    def waiting(self, queue):
        """How many messages wait in the queue."""
        return self.look(queue).message_count

    def send(self, event, kind, body, times=1, **properties):
        """As any producer would, who sends again if he does not hear of the confirm."""
        for _ in range(times):
            self.channel.basic_publish(
                "", "shop", body if isinstance(body, (str, bytes)) else json.dumps(body),
                pika.BasicProperties(**dict(
                    {"message_id": event, "type": kind, "headers": {"tenant": "acme"},
                     "delivery_mode": 2}, **properties)))

    def order(self, event, item="book", times=1):
        self.send(event, "order.placed", {"item": item}, times)

    def take(self, queue):
        found = []
        while True:
            delivery, properties, body = self.channel.basic_get(queue, auto_ack=True)
            if delivery is None:
                return found
            found.append((properties.message_id, body.decode(errors="replace")))

    def free(self):
        return e2e.query("SELECT free FROM stock WHERE item = 'book'")[0]["free"]


def told(*consumers):
    """What the consumers said: (event, redelivered, outcome, what became of the message)."""
    return [line for consumer in consumers for line in re.findall(
        r"^(\S+) redelivered=(\w+): (\S+), (\S+)$", consumer.printed(10000), re.M)]


def about(event, *consumers):
    return [line[1:] for line in told(*consumers) if line[0] == event]


def wait_told(count, event, *consumers):
    return e2e.wait_for("%d words about %s" % (count, event),
                        lambda: len(about(event, *consumers)) >= count
                        and about(event, *consumers))


def is_on_record(event):
    return event in [row["event"] for row in
                     e2e.query("SELECT idem_key_id(key) AS event FROM idem_event")]


def sent_twice(shop):
    free = shop.free()
    shop.order("sent-twice", times=2)
    consumer = shop.consumer()
    e2e.equal(wait_told(2, "sent-twice", consumer),
              [("False", "first", "ack"), ("False", "duplicate", "ack")],
              "sent twice, consumed once; the broker calls neither redelivered")
    e2e.equal(free - shop.free(), 1, "one book was taken")
    shop.end(consumer)


def killed_before_the_ack(shop):
    free = shop.free()
    proxy = rabbit.Proxy(shop.broker.server.port)
    first = shop.consumer(proxy.port)
    shop.order("warm-up")
    wait_told(1, "warm-up", first)
    proxy.is_mute = True
    shop.order("killed")
    e2e.wait_for("the COMMIT", lambda: is_on_record("killed"))
    first.kill()
    proxy.cut()
    second = shop.consumer()
    e2e.equal(wait_told(1, "killed", second), [("True", "duplicate", "ack")],
              "killed between COMMIT and acknowledgement: the next one is told so")
    e2e.equal(free - shop.free(), 2, "and takes no book")
    shop.end(second)


def two_at_a_time(shop, event, heartbeat, what, why):
    """The work of the first goes on while the broker has given its message to the second."""
    free = shop.free()
    lock = Session("story")
    lock.run("BEGIN")
    lock.run("SELECT * FROM stock WHERE item = 'book' FOR UPDATE")
    shop.order(event)
    first = shop.consumer(heartbeat=heartbeat)
    e2e.wait_for("the first at work", lambda: waiting_for_locks() == 1)
    second = shop.consumer()
    e2e.wait_for("two at work", lambda: waiting_for_locks() == 2)
    e2e.ok(True, "%s: the message is with a second consumer while the first still works" % what)
    lock.run("COMMIT")
    lock.close()
    found = wait_told(2, event, first, second)
    e2e.equal(found[:2], [("False", "first", "ack"), ("True", "duplicate", "ack")],
              "the second waits for the first one's COMMIT, and then is a duplicate")
    e2e.equal(free - shop.free(), 1, "one book was taken")
    e2e.ok(why in first.printed(), "%s, as the first one learns: %s" % (what, why))
    e2e.ok(first.is_running() and second.is_running(), "both go on")
    shop.end(first, second)


def waiting_for_locks():
    return e2e.query("SELECT count(*) AS n FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
                     )[0]["n"]


def given_back(shop):
    shop.send("given-back", "refund.requested", {"refund": "r-1", "amount": 10})
    consumer = shop.consumer()
    found = wait_told(2, "given-back", consumer)
    e2e.equal(found[:2], [("False", "ID006", "keep"), ("True", "ID006", "keep")],
              "an operation that is not defined yet: the message is kept")
    e2e.ok(not is_on_record("given-back"), "and the event is not consumed")
    e2e.execute(DEFINE_REFUND)
    e2e.equal(e2e.wait_for("its consumption",
                           lambda: [line for line in about("given-back", consumer)
                                    if line[2] == "ack"]),
              [("True", "accepted", "ack")],
              "defined: it is acted on, though the broker calls it redelivered")
    return consumer


REFUSED = {
    # event: type, body, what is found
    "sent-twice": ("order.placed", {"item": "pen"}, "conflict"),
    "other-amount": ("refund.requested", {"refund": "r-1", "amount": 100}, "conflict"),
    "no-such-item": ("order.placed", {"item": "car"}, "impossible"),
    "sold-out": ("order.placed", {"item": "pen"}, "23514"),
    "no-item": ("order.placed", {}, "unreadable"),
    "no-object": ("order.placed", ["book"], "unreadable"),
    "no-json": ("order.placed", "{", "unreadable"),
    "no-utf-8": ("order.placed", b'{"item": "b\xf6\xf6k"}', "unreadable"),
    "too-deep": ("order.placed", "[" * 100000, "unreadable"),
    "no-type": ("order.lost", {"item": "book"}, "unreadable"),
    "item-5": ("order.placed", {"item": 5}, "unreadable"),
    "item-object": ("order.placed", {"item": {}}, "unreadable"),
    "null-refund": ("refund.requested", {"refund": None, "amount": 10}, "unreadable"),
    "amount-true": ("refund.requested", {"refund": "r-2", "amount": True}, "unreadable"),
    "amount-text": ("refund.requested", {"refund": "r-2", "amount": "10"}, "unreadable"),
    "amount-nan": ("refund.requested", '{"refund": "r-2", "amount": NaN}', "22P02"),
    "nul-in-text": ("refund.requested", '{"refund": "r\\u0000", "amount": 10}', "22P05"),
    "half-a-character": ("refund.requested", '{"refund": "r\\ud800", "amount": 10}', "22P02"),
    "long": ("refund.requested", {"refund": random.Random(1).randbytes(5000).hex(),
                                  "amount": 10}, "54000"),
    None: ("order.placed", {"item": "book"}, "unreadable"),
    "control\x07": ("order.placed", {"item": "book"}, "22P02"),
    "nul\x00": ("order.placed", {"item": "book"}, "None"),
}
TENANTS = {
    # event: tenant, what is found
    "no-tenant": (None, "unreadable"),
    "tenant-5": (5, "unreadable"),
    "tenant-array": (["acme"], "unreadable"),
    "tenant-no-utf-8": (b"acme\xff", "unreadable"),
    "tenant-nul": ("acme\x00", "None"),
}


def refused(shop, consumer):
    free = shop.free()
    for event, (kind, body, _) in REFUSED.items():
        shop.send(event, kind, body)
    for event, (tenant, _) in TENANTS.items():
        shop.send(event, "order.placed", {"item": "book"}, headers={"tenant": tenant})
    wanted = dict({event: found for event, (_, _, found) in REFUSED.items()},
                  **{event: found for event, (_, found) in TENANTS.items()})
    e2e.wait_for("what is refused", lambda: shop.waiting("shop.dead") == len(wanted))
    for event, found in wanted.items():
        e2e.equal(about(str(event), consumer), [("False", found, "dead-letter")],
                  "%r is dead-lettered: %s" % (event, found))
    e2e.equal({event for event, _ in shop.take("shop.dead")}, set(wanted),
              "the messages themselves are kept aside")
    e2e.equal([event for event in REFUSED if is_on_record(event)], ["sent-twice"],
              "and of none of them an event is on record, but the first one of its name")
    e2e.equal(shop.free(), free, "no book was taken")
    e2e.equal(e2e.query("SELECT amount FROM refund_request"), [{"amount": 10}],
              "and no refund changed")
    e2e.ok(consumer.is_running(), "the consumer outlives all of it")


def kept_until_somebody_comes(shop, consumer):
    """The producer asked for properties that would lose a letter, or have the broker refuse it."""
    shop.send("short-lived", "order.placed", {}, expiration="2000", user_id="guest",
              delivery_mode=1, headers={"tenant": "acme", "CC": ["shop"]})
    wait_told(1, "short-lived", consumer)
    e2e.wait_for("the letter", lambda: shop.waiting("shop.dead") == 1)
    time.sleep(2.5)
    e2e.equal(about("short-lived", consumer), [("False", "unreadable", "dead-letter")],
              "a dead letter does not go back to where it came from")
    letter = shop.channel.basic_get("shop.dead", auto_ack=True)[1]
    e2e.equal(letter and (letter.message_id, letter.delivery_mode, letter.expiration,
                          letter.user_id, letter.headers),
              ("short-lived", 2, None, None, {"tenant": "acme"}),
              "and stays until somebody comes, also if the broker restarts")


def exact(shop, consumer):
    amount = "12345678901234567.89"
    shop.send("exact", "refund.requested", '{"refund": "r-3", "amount": %s}' % amount)
    wait_told(1, "exact", consumer)
    e2e.equal(e2e.query("SELECT (SELECT amount::text FROM refund_request"
                        "         WHERE key = 'acme/REFUND/r-3') AS requested,"
                        " params->>'amount' AS submitted, (SELECT params->>'amount'"
                        "         FROM idem_event WHERE idem_key_id(key) = 'exact') AS consumed"
                        " FROM idem_action WHERE key = 'acme/REFUND/r-3'"),
              [{"requested": amount, "submitted": amount, "consumed": amount}],
              "money is not rounded on its way")


def others_go_on(shop):
    """An event that cannot be handled now holds up no other."""
    free = shop.free()
    lock = Session("story")
    lock.run("BEGIN")
    lock.run("SELECT * FROM stock WHERE item = 'cup' FOR UPDATE")
    shop.order("stuck", item="cup")
    shop.order("behind-it")
    consumer = shop.consumer(options="-c lock_timeout=200ms")
    e2e.equal(wait_told(1, "behind-it", consumer)[0][1:], ("first", "ack"),
              "an event is handled though one before it never is")
    e2e.equal(wait_told(2, "stuck", consumer)[:2],
              [("False", "55P03", "keep"), ("True", "55P03", "keep")], "which is kept")
    lock.run("COMMIT")
    lock.close()
    e2e.wait_for("it", lambda: about("stuck", consumer)[-1] == ("True", "first", "ack"))
    e2e.equal(free - shop.free(), 1, "one book was taken")
    shop.end(consumer)


def in_review(shop, consumer):
    e2e.execute("SELECT idem_escalate('acme/REFUND/r-1', 1)")
    shop.send("asked-again", "refund.requested", {"refund": "r-1", "amount": 10})
    e2e.equal(wait_told(1, "asked-again", consumer), [("False", "accepted", "ack")],
              "a refund that awaits a person is on record: what asks for it again is done")
    shop.end(consumer)


def parked(shop):
    """A consumer that forgets, and has forgotten what came before 2026."""
    e2e.execute("""
        SELECT idem_define_consumer('archive', retention => '1 year');
        INSERT INTO idem_watermark VALUES ('acme/archive/e', '2026-01-01 00:00Z');""")
    free = shop.free()
    shop.send("old", "order.placed", {"item": "book"}, timestamp=LAST_DAY)
    shop.send("young", "order.placed", {"item": "book"}, timestamp=LAST_DAY + 3 * 86400)
    shop.send("undated", "order.placed", {"item": "book"})
    consumer = shop.consumer(name="archive")
    wait_told(1, "undated", consumer)
    e2e.equal(told(consumer), [("old", "False", "expired", "park"),
                               ("young", "False", "first", "ack"),
                               ("undated", "False", "ID007", "dead-letter")],
              "what is so old that it may have been forgotten is parked for a person")
    e2e.wait_for("them", lambda: shop.waiting("shop.parked") + shop.waiting("shop.dead") == 2)
    e2e.equal(shop.take("shop.parked"), [("old", '{"item": "book"}')], "as it came")
    e2e.equal(shop.take("shop.dead"), [("undated", '{"item": "book"}')],
              "and what does not say when it occurred is dead-lettered")
    e2e.equal(free - shop.free(), 1, "one book was taken")
    shop.end(consumer)


def settled(shop):
    e2e.equal([shop.waiting(queue) for queue in ("shop", "shop.dead", "shop.parked")], [0, 0, 0],
              "at the end nothing is left in the queue")


def story():
    shop = Shop()
    sent_twice(shop)
    killed_before_the_ack(shop)
    two_at_a_time(shop, "slow-connection", 2, "connection closed by the broker", "StreamLostError")
    two_at_a_time(shop, "slow-callback", 0, "callback timed out", "ChannelClosedByBroker")
    consumer = given_back(shop)
    refused(shop, consumer)
    kept_until_somebody_comes(shop, consumer)
    exact(shop, consumer)
    in_review(shop, consumer)
    others_go_on(shop)
    parked(shop)
    settled(shop)


e2e.main(story)
