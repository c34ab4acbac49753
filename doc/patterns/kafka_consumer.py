#!/usr/bin/env python3
"""
kafka_consumer.py: consumes a topic of refunds, whatever comes twice, with several workers to a
partition.

    python3 kafka_consumer.py TOPIC database|broker NAME=VALUE…

The names and values are settings of the client: bootstrap.servers and group.id at least.  Run as
many processes as you like, and kill any of them at any time.  Where the database is the
environment says (PGHOST and so on).  kafka.md beside this file explains what is done and why;
what you would replace is refund().  For other records make a Consumer with a function of yours.

It needs psycopg 3 and confluent-kafka 2.3 or newer.
"""

import json
import os
import queue
import sys
import threading
import time
import zlib
from collections import defaultdict

import confluent_kafka
import psycopg
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

TENANT = "acme"
WORKERS = 4
BATCH = 100                                 # records polled at a time
PATIENCE = 10                               # seconds that the broker may take to answer
COMMIT_EVERY = float(os.environ.get("CONSUMER_COMMIT_EVERY", 1))    # seconds
PAUSE = 0.2                                 # seconds, where nothing was there, or something failed
GONE = {"ID002", "ID003"}                   # the partition is somebody else's; or it is done


def tell(error):
    print("consumer: %r" % error, file=sys.stderr, flush=True)


class Outdated(Exception):
    """The topic was deleted and created anew."""


class Consumer:
    """
    act(connection, record) does all that a record causes, in the transaction of its connection.
    start says where to begin: with the offset in the database, or with what was committed to the
    broker, which is then told how far everything is done.
    """

    def __init__(self, topic, name, act, settings, start="database"):
        self.topic = topic
        self.name = name                    # of the consumer: idem_define_consumer
        self.act = act
        self.start = start
        self.settings = settings
        self.admin = AdminClient({name: value for name, value in settings.items()
                                  if name.startswith(("bootstrap.", "security.", "sasl.", "ssl."))})
        self.generations = {}               # of the partitions that are ours
        self.failure = None
        self.queues = [queue.Queue() for _ in range(WORKERS)]
        for records in self.queues:
            threading.Thread(target=self.work, args=(records,), daemon=True).start()

    def key(self, partition):
        return "%s/%s/%s/%d" % (TENANT, self.name, self.topic, partition)

    # ---- the thread that polls ----

    def run(self):
        """Consumes for ever; begins anew when the database, the broker or the topic was lost."""
        while True:
            client = confluent_kafka.Consumer(dict(self.settings, **{
                "enable.auto.commit": False, "isolation.level": "read_committed",
                # an offset that the broker does not have is a loss, or another topic
                "auto.offset.reset": "error"}))
            try:
                with psycopg.connect("", autocommit=True) as self.database:
                    self.database.execute("SET lock_timeout = '30s'")
                    self.consume(client)
            except (psycopg.OperationalError, KafkaException, Outdated) as error:
                tell(error)
                time.sleep(PAUSE)
            finally:
                self.generations.clear()    # what the workers have not begun they leave alone
                client.close()

    def consume(self, client):
        look_at = time.monotonic() + COMMIT_EVERY
        client.subscribe([self.topic], on_assign=self.assigned, on_revoke=self.revoked,
                         on_lost=self.revoked)
        while True:
            by_assignment = defaultdict(list)
            for record in self.poll(client):
                # one at a time: what generation it belongs to is known only now
                partition = record.partition()
                by_assignment[partition, self.generations.get(partition)].append(record)
            for (partition, generation), records in by_assignment.items():
                self.fetched(partition, generation, records)
            if time.monotonic() > look_at:
                look_at = time.monotonic() + COMMIT_EVERY
                self.look(client)
            # not more in hand than is soon done: the callbacks wait for the next poll
            while sum(map(queue.Queue.qsize, self.queues)) > BATCH and self.failure is None:
                time.sleep(0.01)
            if self.failure is not None:
                raise self.failure

    @staticmethod
    def poll(client):
        """The next records, one after another."""
        timeout = PAUSE
        for _ in range(BATCH):
            record = client.poll(timeout)
            if record is None:
                return
            if record.error() is not None:
                raise KafkaException(record.error())
            yield record
            timeout = 0

    def topic_id(self):
        """What Kafka calls this topic, and no later one of the same name."""
        topics = confluent_kafka.TopicCollection([self.topic])
        return str(self.admin.describe_topics(topics, request_timeout=PATIENCE)[self.topic]
                   .result().topic_id)

    def assigned(self, client, partitions):
        self.epoch = self.topic_id()
        if self.start == "broker":
            partitions = client.committed(partitions, timeout=PATIENCE)
        for partition in partitions:
            self.generations[partition.partition], next_offset = self.database.execute(
                "SELECT generation, next_offset FROM idem_progress_assign(%s, %s)",
                (self.key(partition.partition), self.epoch)).fetchone()
            if self.start == "database" and next_offset is not None:
                partition.offset = next_offset
            elif self.start == "database" or partition.offset < 0:
                partition.offset = confluent_kafka.OFFSET_BEGINNING
        client.assign(partitions)

    def revoked(self, client, partitions):
        """What our workers still have in hand counts if it commits before the next assignment."""
        for partition in partitions:
            self.generations.pop(partition.partition, None)

    def fetched(self, partition, generation, records):
        """All of them on record first, and committed; then the workers may begin."""
        try:
            to_do = self.database.execute(
                "SELECT idem_progress_fetched(%s, %s, %s)",
                (self.key(partition), generation,
                 [record.offset() for record in records])).fetchone()[0]
        except psycopg.Error as error:
            if error.sqlstate not in GONE:
                raise
            tell(error)                     # we were replaced, and shall hear of it
            to_do = []
        for record in records:
            if record.offset() in to_do:
                # records of one key are handled in their order, others beside each other
                number = record.offset() if record.key() is None else zlib.crc32(record.key())
                self.queues[number % WORKERS].put((generation, record))

    def look(self, client):
        if self.generations and self.topic_id() != self.epoch:
            raise Outdated(self.topic)
        if self.start == "broker":
            offsets = [(partition, self.database.execute(
                "SELECT idem_progress_committable(%s)", (self.key(partition),)).fetchone()[0])
                       for partition in self.generations]
            offsets = [TopicPartition(self.topic, partition, offset)
                       for partition, offset in offsets if offset is not None]
            if offsets:
                client.commit(offsets=offsets, asynchronous=True)

    # ---- the workers ----

    def work(self, records):
        connection = None
        while self.failure is None:
            generation, record = records.get()
            # for as long as it is ours: 40001, 40P01 and a lost connection come in here again
            while self.generations.get(record.partition()) == generation:
                try:
                    if connection is None or connection.closed:
                        connection = psycopg.connect("", autocommit=True)
                    self.do(connection, generation, record)
                    break
                except psycopg.OperationalError:
                    time.sleep(PAUSE)
                except Exception as error:
                    if getattr(error, "sqlstate", None) not in GONE:
                        self.failure = error
                        return
                    tell(error)             # and all that was written has rolled back
                    break

    def do(self, connection, generation, record):
        with connection.transaction():
            self.act(connection, record)
            connection.execute("SELECT idem_progress_done(%s, %s, %s)", (
                self.key(record.partition()), generation, [record.offset()]))


def refund(connection, record):
    """An event asks for a refund: it is written down and submitted, for a worker to pay."""
    if record.value() is None:
        return                              # a key was deleted
    event = dict(record.headers())["event-id"].decode()
    body = json.loads(record.value())
    transport = json.dumps({"topic": record.topic(), "partition": record.partition(),
                            "offset": record.offset()})
    outcome = connection.execute(
        "SELECT outcome FROM idem_consume(%s, %s::jsonb, transport => %s::jsonb)",
        ("%s/refunds/%s" % (TENANT, event), json.dumps(body), transport)).fetchone()[0]
    if outcome == "first":
        key = "%s/REFUND/%s" % (TENANT, body["refund"])
        connection.execute("INSERT INTO refund_event (event, key, amount) VALUES (%s, %s, %s)",
                           (event, key, body["amount"]))
        outcome = connection.execute(
            "SELECT outcome FROM idem_submit(%s, jsonb_build_object('amount', %s::numeric),"
            " transport => %s::jsonb)", (key, body["amount"], transport)).fetchone()[0]
    if outcome in ("conflict", "expired"):
        connection.execute("INSERT INTO parked (event, outcome, record) VALUES (%s, %s, %s)",
                           (event, outcome, transport))


if __name__ == "__main__":
    if len(sys.argv) < 4 or sys.argv[2] not in ("database", "broker"):
        sys.exit("usage: kafka_consumer.py TOPIC database|broker NAME=VALUE...")
    Consumer(sys.argv[1], "refunds", refund, dict(word.split("=", 1) for word in sys.argv[3:]),
             sys.argv[2]).run()
