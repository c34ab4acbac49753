#!/usr/bin/env python3
"""
sender.py: sends what stands in the outbox to RabbitMQ, until the broker has confirmed it.

    python3 sender.py OPERATION EXCHANGE

Run as many as you like, and kill any of them at any time: what a dead one had in hand is sent
again.  Where the database is the environment says (PGHOST and so on), and AMQP_URL where the
broker is.  outbox.md beside this file explains what is done and why.

It needs psycopg 3 and pika, and the topic exchange EXCHANGE.  The parameters of an event:
{"type": "order.placed", "body": {...}}.
"""

import json
import os
import socket
import sys
import time

import pika
import psycopg

BATCH = 20                                  # events claimed at a time
LEASE = float(os.environ.get("SENDER_LEASE", 30))               # seconds, the contract's or less
PAUSE = min(1, LEASE / 4)                   # seconds, when nothing was due
OWNER = "%s:%d" % (socket.gethostname(), os.getpid())
PRECONDITION_FAILED = 406                   # the message is larger than the broker takes


def main(operation, exchange):
    while True:
        try:
            # both at hand before anything is claimed: while the broker is away, no event is
            # attempted in vain
            with pika.BlockingConnection(pika.URLParameters(os.environ["AMQP_URL"])) as broker, \
                    psycopg.connect("", autocommit=True) as database:
                send_all(database, broker, operation, exchange)
        except (psycopg.OperationalError, pika.exceptions.AMQPError) as error:
            # what was claimed and not reported lapses, and is sent again
            print("sender: %r" % error, file=sys.stderr, flush=True)
            time.sleep(PAUSE)


def send_all(database, broker, operation, exchange):
    channel = broker.channel()
    channel.confirm_delivery()
    while True:
        ends_at = time.monotonic() + LEASE  # before the claim is sent: no later than the lease
        events = database.execute(
            "SELECT idem_key_tenant(key), idem_key_id(key), key::text, generation,"
            " params->>'type', (params->'body')::text"
            " FROM idem_claim_next(%s, %s, %s, make_interval(secs => %s))",
            (operation, BATCH, OWNER, LEASE)).fetchall()
        for tenant, event, key, generation, kind, body in events:
            if time.monotonic() > ends_at:
                break                       # somebody else may send the rest by now
            send(database, channel, exchange, tenant, event, key, generation, kind, body)
        if len(events) < BATCH:
            broker.sleep(PAUSE)             # heartbeats go on


def send(database, channel, exchange, tenant, event, key, generation, kind, body):
    if kind is None or body is None:
        return escalate(database, key, generation, "no type, or no body")
    # always the same message, from what is on record: only the generation knows of a repetition
    properties = pika.BasicProperties(
        message_id=event, type=kind, headers={"tenant": tenant},
        content_type="application/json", delivery_mode=pika.spec.PERSISTENT_DELIVERY_MODE)
    try:
        channel.basic_publish(exchange, kind, body, properties, mandatory=True)
    except pika.exceptions.UnroutableError:
        # the broker had no queue for it, so nobody has it
        return report(database, "idem_release", key, generation, {"error": "no queue"})
    except pika.exceptions.NackError:
        # the broker does not vouch for it; some queue may have it all the same
        return report(database, "idem_mark_unknown", key, generation, {"error": "nack"})
    except pika.exceptions.ShortStringTooLong:
        return escalate(database, key, generation, "event id or type is longer than 255 bytes")
    except pika.exceptions.ChannelClosedByBroker as error:
        if error.reply_code == PRECONDITION_FAILED:
            escalate(database, key, generation, error.reply_text)
        raise
    report(database, "idem_complete", key, generation, None)


def escalate(database, key, generation, why):
    """It can never be sent, and must not keep the others waiting: a person decides."""
    print("sender: %s: %s" % (key, why), file=sys.stderr, flush=True)
    report(database, "idem_escalate", key, generation, {"error": why})


def report(database, function, key, generation, detail):
    try:
        database.execute("SELECT %s(%%s, %%s, %%s::jsonb)" % function,
                         (key, generation, None if detail is None else json.dumps(detail)))
    except psycopg.Error as error:
        # another sender has it, or has finished it, after our lease
        if error.sqlstate not in ("ID002", "ID003"):
            raise


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: sender.py OPERATION EXCHANGE")
    main(sys.argv[1], sys.argv[2])
