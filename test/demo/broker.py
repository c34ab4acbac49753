"""
broker.py: the queue that carries the demo's requests to its workers, at least once.

    queue = broker.open_queue(session, name, lease)

It is RabbitMQ if AMQP_URL says where that is.  Otherwise the outbox, an operation whose
messages are handed out by idem_claim_next, is the queue, so that PostgreSQL is all that is
needed.  Either way

    send(message)   puts a JSON object into the queue
    take()          the next message, or None; it is in the hands of this process
    settle(what)    what becomes of it: "ack", "dead-letter", or "keep", after which it is
                    delivered again

and what a process had in hand when it died is delivered again.
"""

import json
import os
import uuid

from psql import SqlError

QUEUE = "refunds"


def open_queue(session, name, lease):
    if "AMQP_URL" in os.environ:
        return RabbitQueue(os.environ["AMQP_URL"])
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
