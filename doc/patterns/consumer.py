#!/usr/bin/env python3
"""
consumer.py: consumes events from a queue of RabbitMQ, each once, however often it comes.

    python3 consumer.py CONSUMER QUEUE

Run as many as you like, and kill any of them at any time: what a dead one had not acknowledged
is delivered again.  Where the database is the environment says (PGHOST and so on), and AMQP_URL
where the broker is.  rabbitmq.md beside this file explains what is done and why; what you would
replace is the two handlers.

It needs psycopg 3 and pika, and the queues QUEUE, QUEUE.dead and QUEUE.parked.
"""

import json
import os
import sys
import time
from decimal import Decimal

import pika
import psycopg

PREFETCH = 10                               # messages in hand at a time
PAUSE = float(os.environ.get("CONSUMER_PAUSE", 1))      # seconds before one is given back

# what becomes of the message, by what idem_consume, idem_submit or idem_claim answered; the last
# is the handlers' own
MESSAGE = {"first": "ack", "duplicate": "ack", "accepted": "ack", "succeeded": "ack",
           "rejected": "ack", "busy": "keep", "review": "park", "expired": "park",
           "conflict": "dead-letter", "impossible": "dead-letter"}


class Refused(Exception):
    """The transaction must roll back, and the message goes elsewhere."""

    def __init__(self, outcome):
        super().__init__(outcome)
        self.outcome = outcome


def member(values, name, *kinds):
    """A text is not to be taken for a number, nor null for the refund "None"."""
    if type(values[name]) not in kinds:
        raise TypeError(name)
    return values[name]


# ---- what an event causes, in the transaction that consumes it ----

def order_placed(database, tenant, body):
    """A local effect: rows of this database."""
    done = database.execute("UPDATE stock SET free = free - 1 WHERE item = %s",
                            (member(body, "item", str),))
    if done.rowcount != 1:
        raise Refused("impossible")         # what matches no row is not done
    return "first"


def refund_requested(database, tenant, body):
    """An external one is only put on record; worker.py carries it out."""
    key = "%s/REFUND/%s" % (tenant, member(body, "refund", str))
    amount = member(body, "amount", int, Decimal)
    database.execute("INSERT INTO refund_request (key, amount) VALUES (%s, %s)"
                     " ON CONFLICT DO NOTHING", (key, amount))
    return database.execute(
        "SELECT outcome FROM idem_submit(%s, jsonb_build_object('amount', %s::numeric))",
        (key, amount)).fetchone()[0]


HANDLERS = {"order.placed": order_placed, "refund.requested": refund_requested}


# ---- one message ----

def handle(database, consumer, queue, delivery, properties, body):
    """Consumes the event, or not; the outcome.  It is committed when this returns."""
    try:
        text = body.decode()
        payload = json.loads(text, parse_float=Decimal)     # money is not rounded
        tenant = member(properties.headers, "tenant", str)
        event = member(vars(properties), "message_id", str)
        handler = HANDLERS[properties.type]
    except (ValueError, KeyError, TypeError, RecursionError):
        return "unreadable", "dead-letter"
    # the broker's own words for the message: kept, and never compared
    transport = {"queue": queue, "exchange": delivery.exchange, "tag": delivery.delivery_tag,
                 "redelivered": delivery.redelivered}
    try:
        with database.transaction():
            outcome = database.execute(
                "SELECT outcome FROM idem_consume(idem_key(%s, %s, %s), %s::jsonb,"
                " to_timestamp(%s::float8), %s::jsonb)",
                (tenant, consumer, event, text, properties.timestamp,
                 json.dumps(transport))).fetchone()[0]
            if outcome == "first":
                outcome = handler(database, tenant, payload)
            if MESSAGE[outcome] != "ack":
                raise Refused(outcome)
        return outcome, "ack"
    except Refused as refused:
        return refused.outcome, MESSAGE[refused.outcome]
    except psycopg.Error as error:
        if database.closed:
            raise                           # try again, all of it, on new connections
        return error.sqlstate, judge(error.sqlstate)
    except (KeyError, TypeError):
        return "unreadable", "dead-letter"


def judge(sqlstate):
    """
    An error that will not go away is the message's, also if already the driver could not send a
    value; any other one passes, or is ours to mend.
    """
    if sqlstate is None or sqlstate[:2] in ("22", "23", "54") or \
            sqlstate in ("ID001", "ID007", "P0001"):
        return "dead-letter"
    if sqlstate == "ID009":                 # idem_once's word for expired
        return "park"
    return "keep"


def settle(broker, channel, queue, delivery, properties, body, what):
    """Only now, after COMMIT, the broker hears of it."""
    tag = delivery.delivery_tag
    if what == "keep":
        broker.sleep(PAUSE)                 # else it would be back at once
        channel.basic_nack(tag, requeue=True)
        return
    if what != "ack":
        # confirmed there before it is acknowledged here: it may come twice, but is never lost
        where = {"dead-letter": queue + ".dead", "park": queue + ".parked"}[what]
        channel.basic_publish("", where, body, to_be_kept(properties), mandatory=True)
    channel.basic_ack(tag)


def to_be_kept(properties):
    """Those of a message that waits for a person: it stays where it is put, until he comes."""
    properties.delivery_mode = pika.spec.PERSISTENT_DELIVERY_MODE
    properties.expiration = None            # else it would be gone after that time
    properties.user_id = None               # the producer's; the broker refuses it from others
    if properties.headers is not None:
        properties.headers.pop("CC", None)  # other queues it was sent to, this one perhaps
    return properties


# ---- all messages ----

def consume_all(database, broker, consumer, queue):
    channel = broker.channel()
    channel.confirm_delivery()
    channel.basic_qos(prefetch_count=PREFETCH)
    for delivery, properties, body in channel.consume(queue):
        outcome, what = handle(database, consumer, queue, delivery, properties, body)
        print("%s redelivered=%s: %s, %s" % (properties.message_id, delivery.redelivered, outcome,
                                             what), flush=True)
        settle(broker, channel, queue, delivery, properties, body, what)


def main(consumer, queue):
    while True:
        try:
            with pika.BlockingConnection(pika.URLParameters(os.environ["AMQP_URL"])) as broker, \
                    psycopg.connect("", autocommit=True) as database:
                consume_all(database, broker, consumer, queue)
        except (psycopg.OperationalError, pika.exceptions.AMQPError) as error:
            # what is in hand comes again, and the inbox knows what of it was done
            print("consumer: %r" % error, file=sys.stderr, flush=True)
            time.sleep(PAUSE)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: consumer.py CONSUMER QUEUE")
    main(sys.argv[1], sys.argv[2])
