"""
broker.py: the queue that carries the demo's requests to its workers, at least once.

    queue = broker.open_queue(session, name, lease)

It is RabbitMQ if AMQP_URL says where that is, and Kafka if KAFKA_SERVERS does.  Otherwise the
outbox, an operation whose messages are handed out by idem_claim_next, is the queue, so that
PostgreSQL is all that is needed.  In any case

    send(message)   puts a JSON object into the queue
    take()          the next message, or None; it is in the hands of this process
    settle(what)    what becomes of it: "ack", "dead-letter", or "keep", after which it is
                    delivered again

and what a process had in hand when it died is delivered again.
"""

import collections
import json
import os
import threading
import uuid

from psql import SqlError

QUEUE = "refunds"
PARTITIONS = 2                              # of the topic, in Kafka


def open_queue(session, name, lease):
    if "AMQP_URL" in os.environ:
        return RabbitQueue(os.environ["AMQP_URL"])
    if "KAFKA_SERVERS" in os.environ:
        return KafkaQueue(os.environ["KAFKA_SERVERS"], name)
    return OutboxQueue(session, name, "%g s" % lease)


class RabbitQueue:
    def __init__(self, url):
        import pika                         # without a broker it need not be there

        self.persistent = pika.BasicProperties(delivery_mode=2)
        self.channel = pika.BlockingConnection(pika.URLParameters(url)).channel()
        self.channel.confirm_delivery()
        for queue in (QUEUE, QUEUE + ".dead"):
            self.channel.queue_declare(queue, durable=True)
        self.tag = self.body = None

    def send(self, message):
        self.channel.basic_publish("", QUEUE, json.dumps(message), self.persistent)

    def take(self):
        delivery, _, self.body = self.channel.basic_get(QUEUE)
        if delivery is None:
            return None
        self.tag = delivery.delivery_tag
        return json.loads(self.body)

    def settle(self, what):
        if what == "keep":
            self.channel.basic_nack(self.tag, requeue=True)
            return
        if what == "dead-letter":
            self.channel.basic_publish("", QUEUE + ".dead", self.body, self.persistent)
        self.channel.basic_ack(self.tag)


class KafkaQueue:
    """
    The messages have no key and go to the partitions in turn; those who take them are one
    consumer group.  A thread polls, so that whoever holds a message for long stays a member.
    """

    def __init__(self, servers, name):
        import confluent_kafka              # as pika above

        self.kafka = confluent_kafka
        self.settings = {"bootstrap.servers": servers, "client.id": name, "log_level": 0}
        self.producer = confluent_kafka.Producer(dict(self.settings, acks="all"))
        self.consumer = None
        self.sent = 0
        self.records = collections.deque()  # delivered, each with its assignment
        self.assignment = 0                 # how often the group has dealt out the partitions
        self.in_hand = None

    def publish(self, topic, body, partition):
        failures = []
        self.producer.produce(topic, body, partition=partition,
                              on_delivery=lambda error, record: error and failures.append(error))
        if self.producer.flush(30) or failures:
            raise self.kafka.KafkaException(*failures)

    def send(self, message):
        self.publish(QUEUE, json.dumps(message), self.sent % PARTITIONS)
        self.sent += 1

    def join(self):
        self.consumer = self.kafka.Consumer(dict(self.settings, **{
            "group.id": QUEUE, "enable.auto.commit": False, "auto.offset.reset": "earliest",
            "session.timeout.ms": 2000, "heartbeat.interval.ms": 400}))
        self.consumer.subscribe([QUEUE], on_assign=self.dealt_out, on_revoke=self.dealt_out)
        threading.Thread(target=self.poll, daemon=True).start()

    def dealt_out(self, consumer, partitions):
        self.assignment += 1

    def poll(self):
        while True:
            record = self.consumer.poll(1)
            if record is not None and record.error() is None:
                self.records.append((self.assignment, record))

    def take(self):
        if self.consumer is None:
            self.join()
        while self.records:
            self.in_hand = self.records.popleft()
            if self.is_ours():
                return json.loads(self.in_hand[1].value())
        return None

    def is_ours(self):
        """If not, whoever has the partition now is delivered the message again."""
        return self.in_hand[0] == self.assignment

    def settle(self, what):
        record = self.in_hand[1]
        if what == "keep":
            # before all that came after it, which an offset commit would include
            self.records.appendleft(self.in_hand)
            return
        if what == "dead-letter":
            self.publish(QUEUE + ".dead", record.value(), 0)
        if self.is_ours():
            try:
                self.consumer.commit(message=record, asynchronous=False)
            except self.kafka.KafkaException as error:
                errors = self.kafka.KafkaError
                if error.args[0].code() not in (errors.ILLEGAL_GENERATION,
                                                errors.UNKNOWN_MEMBER_ID,
                                                errors.REBALANCE_IN_PROGRESS):
                    raise


class OutboxQueue:
    def __init__(self, session, name, lease):
        self.session = session
        self.name = name
        self.lease = lease
        self.grant = None
        # that a message comes twice does no harm here, as with any queue
        session.run("SELECT idem_define_operation('MESSAGE', effect => 'external',"
                    " channel => 'workers', channel_idempotent => true,"
                    " channel_key_ttl => '1000 years', max_attempts => 1000)")

    def send(self, message):
        self.session.call("idem_submit", "acme/MESSAGE/%s" % uuid.uuid4(), message)

    def take(self):
        self.grant = self.session.call("idem_claim_next", "MESSAGE", owner=self.name,
                                       lease=self.lease)
        return self.grant and self.grant["params"]

    def settle(self, what):
        key, generation = self.grant["key"], self.grant["generation"]
        try:
            if what == "keep":
                self.session.call("idem_release", key, generation, retry_after="0")
            else:
                self.session.call("idem_complete", key, generation, {"message": what})
        except SqlError as error:
            # it was delivered again in the meantime, to somebody who settles it
            if error.sqlstate not in ("ID002", "ID003"):
                raise
