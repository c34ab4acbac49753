"""
kafkabroker.py: a Kafka for the stories of test/e2e: the real broker, in KRaft mode.

    KafkaBroker     one node, broker and controller in one, on 127.0.0.1, ended with the story

Its jars and the client are what test/e2e/kafka/fetch got.  PYTHON is for the environment of a
program that is to find the client.
"""

import os
import subprocess
import sys

import e2e

CLIENT = os.path.join(e2e.downloads(), "python")
PYTHON = {"PYTHONPATH": os.pathsep.join([CLIENT, os.environ.get("PYTHONPATH", "")])}
sys.path.insert(0, CLIENT)

import confluent_kafka                      # noqa: E402
import confluent_kafka.admin                # noqa: E402

CLUSTER = "IdemActionStoryCluster"           # 22 characters, as of an UUID in base64

# what is compiled shortly starts sooner
JAVA = ["java", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto",
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp",
        os.path.join(e2e.downloads(), "broker", "*")]

# Dead consumers are found soon, no group waits for more members, and the cleaner hurries.
CONFIG = """\
process.roles=broker,controller
node.id=1
listeners=CLIENTS://127.0.0.1:%(port)d,CONTROLLER://127.0.0.1:%(controller_port)d
advertised.listeners=CLIENTS://127.0.0.1:%(port)d
listener.security.protocol.map=CLIENTS:PLAINTEXT,CONTROLLER:PLAINTEXT
inter.broker.listener.name=CLIENTS
controller.listener.names=CONTROLLER
controller.quorum.voters=1@127.0.0.1:%(controller_port)d
log.dirs=%(directory)s
auto.create.topics.enable=false
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.min.session.timeout.ms=500
group.initial.rebalance.delay.ms=0
log.cleaner.backoff.ms=200
log.cleaner.dedupe.buffer.size=4194304
file.delete.delay.ms=100
"""


class KafkaBroker:
    def __init__(self):
        self.directories = {}
        self.server = e2e.Server("kafka", self.command, self.answers, seconds=120)
        self.address = "127.0.0.1:%d" % self.server.port
        self.admin = confluent_kafka.admin.AdminClient(self.settings())

    def command(self, port):
        if port not in self.directories:
            self.directories[port] = directory = os.path.join(e2e.directory(), "kafka-%d" % port)
            os.mkdir(directory)
            with open(os.path.join(directory, "properties"), "w") as file:
                file.write(CONFIG % {"port": port, "controller_port": e2e.free_port(),
                                     "directory": os.path.join(directory, "log")})
            subprocess.run(JAVA + ["kafka.tools.StorageTool", "format", "-t", CLUSTER, "-c",
                                   file.name], stdout=subprocess.DEVNULL, check=True)
        return JAVA + ["kafka.Kafka", os.path.join(self.directories[port], "properties")]

    def answers(self, port):
        if not e2e.accepts(port):
            return False
        try:
            confluent_kafka.admin.AdminClient(
                {"bootstrap.servers": "127.0.0.1:%d" % port, "log_level": 0}).list_topics(
                    timeout=5)
            return True
        except confluent_kafka.KafkaException:
            return False

    def settings(self, **more):
        """Of a client; a setting's dots are written as underscores."""
        return {"bootstrap.servers": self.address, "log_level": 0,
                **{name.replace("_", "."): value for name, value in more.items()}}

    def create(self, topic, partitions=1, **config):
        self.admin.create_topics([confluent_kafka.admin.NewTopic(
            topic, partitions, 1,
            config={name.replace("_", "."): value for name, value in config.items()})]
                                 )[topic].result(e2e.PATIENCE)
        e2e.wait_for("topic " + topic, lambda: self.is_there(topic, partitions))

    def delete(self, topic):
        self.admin.delete_topics([topic])[topic].result(e2e.PATIENCE)
        e2e.wait_for("the end of " + topic, lambda: not self.is_there(topic))

    def is_there(self, topic, partitions=1):
        """Whether the topic has so many partitions, and they have a leader."""
        found = self.admin.list_topics(timeout=e2e.PATIENCE).topics.get(topic)
        return (found is not None and len(found.partitions) == partitions
                and all(partition.leader == 1 for partition in found.partitions.values()))

    def producer(self, **more):
        return confluent_kafka.Producer(self.settings(acks="all", linger_ms=0, **more))

    def send(self, topic, *records, partition=0, producer=None):
        """Records (event id or None, value), the key being the id too; their offsets."""
        producer = producer or self.producer()
        offsets = []

        def confirmed(error, record):
            if error is not None:
                raise e2e.Trouble(error)
            offsets.append(record.offset())

        for event, value in records:
            producer.produce(topic, key=event, value=value, partition=partition,
                             headers={"event-id": event or ""}, on_delivery=confirmed)
        producer.flush(e2e.PATIENCE)
        return offsets

    def records(self, topic, partition=0):
        """Offset and value of all that a consumer is given."""
        reader = confluent_kafka.Consumer(self.settings(
            group_id="reader", enable_auto_commit=False, isolation_level="read_committed",
            enable_partition_eof=True))
        reader.assign([confluent_kafka.TopicPartition(topic, partition, 0)])
        found = []
        try:
            while True:
                record = reader.poll(e2e.PATIENCE)
                if record is None:
                    raise e2e.Trouble("the broker is silent")
                if record.error() is None:
                    found.append((record.offset(), record.value()))
                elif record.error().code() == confluent_kafka.KafkaError._PARTITION_EOF:
                    return found
                else:
                    raise e2e.Trouble(record.error())
        finally:
            reader.close()

    def committed(self, group, topic, partition=0):
        """What the group has committed to the broker, or None."""
        wanted = confluent_kafka.ConsumerGroupTopicPartitions(
            group, [confluent_kafka.TopicPartition(topic, partition)])
        try:
            answer = self.admin.list_consumer_group_offsets([wanted])[group].result(e2e.PATIENCE)
        except confluent_kafka.KafkaException:
            return None                     # there is no such group yet
        offset = answer.topic_partitions[0].offset
        return None if offset < 0 else offset
