#!/usr/bin/env python3
"""
kafka_sender.py: sends what stands in the outbox to Kafka, until the broker has confirmed it.

    python3 kafka_sender.py OPERATION NAME=VALUE…

The names and values are settings of the client: bootstrap.servers at least.  Run as many as you
like, and kill any of them at any time: what a dead one had in hand is sent again, as a new record
of the same event.  Where the database is the environment says (PGHOST and so on).  kafka.md
beside this file explains what is done and why.

It needs psycopg 3 and confluent-kafka.  The parameters of an event:
{"topic": "refunds", "key": "r-17", "body": {...}}.
"""

import json
import os
import socket
import sys
import time

import confluent_kafka
import psycopg
from confluent_kafka import KafkaError

BATCH = 100                                 # events claimed at a time
LEASE = float(os.environ.get("SENDER_LEASE", 30))               # seconds, the contract's or less
PAUSE = min(1, LEASE / 4)                   # seconds, when nothing was due
OWNER = "%s:%d" % (socket.gethostname(), os.getpid())
NO_ANSWER = KafkaError(KafkaError._TIMED_OUT)
# it will never be taken, and was not
NEVER = {KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_RECORD, KafkaError.TOPIC_EXCEPTION,
         KafkaError._INVALID_ARG}


def main(operation, settings):
    while True:
        try:
            producer = confluent_kafka.Producer(dict(settings, **{
                "enable.idempotence": True,     # its own repetitions, as long as it lives
                "acks": "all", "delivery.timeout.ms": int(LEASE * 500)}))
            with psycopg.connect("", autocommit=True) as database:
                while True:
                    if not send_batch(database, producer, operation):
                        time.sleep(PAUSE)
        except (psycopg.OperationalError, confluent_kafka.KafkaException) as error:
            # what was claimed and not reported lapses, and is sent again
            print("sender: %r" % error, file=sys.stderr, flush=True)
            time.sleep(PAUSE)


def send_batch(database, producer, operation):
    """Claims events, sends them together, and reports on each; how many there were."""
    events = database.execute(
        "SELECT idem_key_tenant(key), idem_key_id(key), key::text, generation,"
        " params->>'topic', params->>'key', (params->'body')::text"
        " FROM idem_claim_next(%s, %s, %s, make_interval(secs => %s))",
        (operation, BATCH, OWNER, LEASE)).fetchall()
    errors = {}
    for tenant, event, key, generation, topic, record_key, body in events:
        if topic is None or body is None:
            errors[key] = KafkaError(KafkaError.INVALID_RECORD, "no topic, or no body")
            continue
        try:
            # always the same record, from what is on record: only the generation knows of a
            # repetition
            producer.produce(
                topic, body, record_key, headers={"tenant": tenant, "event-id": event},
                on_delivery=lambda error, record, key=key: errors.update({key: error}))
        except confluent_kafka.KafkaException as error:
            if error.args[0].code() not in NEVER:
                raise
            errors[key] = error.args[0]
    producer.flush(LEASE)
    for tenant, event, key, generation, *_ in events:
        error = errors.get(key, NO_ANSWER)
        if error is None:
            report(database, "idem_complete", key, generation, None)
        elif error.code() in NEVER:         # and must not keep the others waiting: a person decides
            print("sender: %s: %s" % (key, error), file=sys.stderr, flush=True)
            report(database, "idem_escalate", key, generation, {"error": str(error)})
        else:                               # it may be in the log all the same
            report(database, "idem_mark_unknown", key, generation, {"error": str(error)})
    return len(events)


def report(database, function, key, generation, detail):
    try:
        database.execute("SELECT %s(%%s, %%s, %%s::jsonb)" % function,
                         (key, generation, None if detail is None else json.dumps(detail)))
    except psycopg.Error as error:
        # another sender has it, or has finished it, after our lease
        if error.sqlstate not in ("ID002", "ID003"):
            raise


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit("usage: kafka_sender.py OPERATION NAME=VALUE...")
    main(sys.argv[1], dict(word.split("=", 1) for word in sys.argv[2:]))
