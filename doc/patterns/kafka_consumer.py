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

import base64
import json
import os
import queue
import sys
import threading
import time
import zlib
from collections import defaultdict
from decimal import Decimal

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
HOPELESS = {"ID001", "ID007", "ID009", "P0001"}         # and some classes of PostgreSQL's own


def tell(error):
    print("consumer: %r" % error, file=sys.stderr, flush=True)


class Outdated(Exception):
    """The topic was created anew, or a partition is somebody else's: begin anew."""


class NotOurs(Exception):
    """idem_progress_done has refused: the partition is somebody else's, or the record is done."""

    def __init__(self, error):
        super().__init__(str(error))
        self.sqlstate = error.sqlstate


def is_hopeless(error):
    """An error that will not go away is the record's; any other one passes, or is ours to mend."""
    sqlstate = getattr(error, "sqlstate", None)
    if sqlstate is not None:
        return sqlstate[:2] in ("22", "23", "54") or sqlstate in HOPELESS
    return isinstance(error, (psycopg.DataError, psycopg.ProgrammingError, LookupError, TypeError,
                              ValueError, RecursionError))


class Consumer:
    """
    act(connection, record) does all that a record causes, in the transaction of its connection.
    park(connection, record, why) puts aside one that will never succeed, in another transaction;
    without it the process ends there.  start says where to begin: with the offset in the database,
    or with what was committed to the broker, which is then told how far everything is done.
    """

    def __init__(self, topic, name, act, settings, start="database", park=None):
        self.topic = topic
        self.name = name                    # of the consumer: idem_define_consumer
        self.act = act
        self.park = park
        self.start = start
        self.settings = settings
        self.admin = AdminClient({name: value for name, value in settings.items()
                                  if name.startswith(("bootstrap.", "security.", "sasl.", "ssl."))})
        self.generations = {}               # of the partitions that are ours
        self.is_replaced = False            # in one of them, though we still believe it ours
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
                try:
                    with psycopg.connect("", autocommit=True) as self.database:
                        self.database.execute("SET lock_timeout = '30s'")
                        self.consume(client)
                finally:
                    self.generations.clear()    # what the workers have not begun they leave alone
                    client.close()          # may still have us assigned something, and that fail
            except (psycopg.OperationalError, KafkaException, Outdated) as error:
                if self.failure is not None:
                    raise                   # the workers have ended
                tell(error)
                time.sleep(PAUSE)

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
            if self.is_replaced:
                raise Outdated("somebody else was assigned a partition of ours")

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
            self.generations[partition.partition], next_offset = self.assign(partition.partition)
            # the broker may know more than a database that was restored, or failed over
            offsets = [offset for offset in (partition.offset, next_offset)
                       if offset is not None and offset >= 0]
            partition.offset = min(offsets, default=confluent_kafka.OFFSET_BEGINNING)
        self.is_replaced = False
        client.assign(partitions)

    def assign(self, partition):
        """Generation and next offset."""
        try:
            return self.database.execute(
                "SELECT generation, next_offset FROM idem_progress_assign(%s, %s)",
                (self.key(partition), self.epoch)).fetchone()
        except psycopg.Error as error:
            if error.sqlstate != "ID003":
                raise
            raise Outdated(str(error)) from None    # we were told of a topic that is no more

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
            if error.sqlstate != "ID002":
                raise
            # going on would pass them by, if the broker still takes us for the owner
            raise Outdated(str(error)) from None
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
            act = self.act
            # for as long as it is ours: 40001, 40P01 and a lost connection come in here again
            while self.generations.get(record.partition()) == generation:
                try:
                    if connection is None or connection.closed:
                        connection = psycopg.connect("", autocommit=True)
                    self.do(connection, generation, record, act)
                    break
                except NotOurs as error:    # and all that was written has rolled back
                    tell(error)
                    if error.sqlstate == "ID002" and \
                            self.generations.get(record.partition()) == generation:
                        self.is_replaced = True
                    break
                except Exception as error:
                    tell(error)
                    if is_hopeless(error) and act is self.act and self.park is not None:
                        act = self.parking(error)
                    elif isinstance(error, psycopg.OperationalError) and not is_hopeless(error):
                        time.sleep(PAUSE)
                    else:
                        self.failure = error
                        return

    def do(self, connection, generation, record, act):
        with connection.transaction():
            act(connection, record)
            try:
                connection.execute("SELECT idem_progress_done(%s, %s, %s)", (
                    self.key(record.partition()), generation, [record.offset()]))
            except psycopg.Error as error:
                if error.sqlstate not in ("ID002", "ID003"):
                    raise
                raise NotOurs(error) from None

    def parking(self, error):
        why = getattr(error, "sqlstate", None) or type(error).__name__
        return lambda connection, record: self.park(connection, record, why)


def member(values, name, *kinds):
    """A text is not to be taken for a number, nor null for the refund "None"."""
    if type(values[name]) not in kinds:
        raise TypeError(name)
    return values[name]


def refund(connection, record):
    """An event asks for a refund: it is written down and submitted, for a worker to pay."""
    if record.value() is None:
        return                              # a key was deleted
    headers = dict(record.headers() or ())
    if headers.get("tenant", TENANT.encode()) != TENANT.encode():
        raise ValueError("an event of another tenant's")
    event = str(headers["event-id"], "utf-8")
    text = str(record.value(), "utf-8")
    body = json.loads(text, parse_float=Decimal)    # money is not rounded
    key = "%s/REFUND/%s" % (TENANT, member(body, "refund", str))
    amount = member(body, "amount", int, Decimal)
    transport = json.dumps({"topic": record.topic(), "partition": record.partition(),
                            "offset": record.offset()})
    outcome = connection.execute(
        "SELECT outcome FROM idem_consume(%s, %s::jsonb, transport => %s::jsonb)",
        ("%s/refunds/%s" % (TENANT, event), text, transport)).fetchone()[0]
    if outcome == "first":
        connection.execute("INSERT INTO refund_event (event, key, amount) VALUES (%s, %s, %s)",
                           (event, key, amount))
        outcome = connection.execute(
            "SELECT outcome FROM idem_submit(%s, jsonb_build_object('amount', %s::numeric),"
            " transport => %s::jsonb)", (key, amount, transport)).fetchone()[0]
    if outcome in ("conflict", "expired"):
        park(connection, record, outcome, event)


def park(connection, record, why, event=None):
    """It waits for a person, with all that it has: the topic will forget it."""
    def in_base64(octets):
        return None if octets is None else base64.b64encode(octets).decode()

    connection.execute("INSERT INTO parked (event, outcome, record) VALUES (%s, %s, %s)", (
        event, why, json.dumps({
            "topic": record.topic(), "partition": record.partition(), "offset": record.offset(),
            "key": in_base64(record.key()), "value": in_base64(record.value()),
            "headers": [[name, in_base64(value)] for name, value in record.headers() or ()]})))


if __name__ == "__main__":
    if len(sys.argv) < 4 or sys.argv[2] not in ("database", "broker"):
        sys.exit("usage: kafka_consumer.py TOPIC database|broker NAME=VALUE...")
    Consumer(sys.argv[1], "refunds", refund, dict(word.split("=", 1) for word in sys.argv[3:]),
             sys.argv[2], park).run()
