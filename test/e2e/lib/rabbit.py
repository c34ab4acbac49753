"""
rabbit.py: a RabbitMQ for the stories of test/e2e, and what may go wrong around it.

    Rabbit          the broker, on 127.0.0.1, with a node name, files and an epmd of its own
    Proxy           stands between a client and the broker, and loses what they say

Both end with the story.  Nothing of the machine's own RabbitMQ, if there is one, is touched.
"""

import os
import socket
import threading

import pika

import e2e

PROGRAM = "/usr/lib/rabbitmq/bin/rabbitmq-server"

# A consumer that has not acknowledged for so long loses its channel; the broker looks each
# second.  It takes no message of more than a megabyte.
CONFIG = """\
listeners.tcp.1 = 127.0.0.1:%(port)d
loopback_users = none
consumer_timeout = %(consumer_timeout)d
max_message_size = 1000000
disk_free_limit.absolute = 1MB
log.console = true
log.console.level = warning
log.file = false
"""


class Rabbit:
    def __init__(self, consumer_timeout=600):
        self.directory = os.path.join(e2e.directory(), "rabbit")
        self.consumer_timeout = consumer_timeout        # seconds
        os.makedirs(self.directory, exist_ok=True)
        self.epmd = e2e.Server(
            "epmd", lambda port: ["epmd", "-address", "127.0.0.1", "-port", str(port)],
            e2e.accepts)
        self.server = e2e.Server("rabbitmq", self.command, self.answers, self.environment(),
                                 seconds=120)

    def environment(self):
        return {
            "HOME": self.directory, "ERL_EPMD_PORT": str(self.epmd.port),
            "ERL_EPMD_ADDRESS": "127.0.0.1", "RABBITMQ_DIST_PORT": str(e2e.free_port()),
            # so that the shell becomes the broker, and a signal reaches it
            "RUNNING_UNDER_SYSTEMD": "true",
            "RABBITMQ_NODENAME": "story%d@localhost" % os.getpid(),
            "RABBITMQ_CONF_ENV_FILE": os.path.join(self.directory, "none"),
            "RABBITMQ_CONFIG_FILE": os.path.join(self.directory, "rabbitmq.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": os.path.join(self.directory, "plugins"),
            "RABBITMQ_MNESIA_BASE": os.path.join(self.directory, "data"),
            "RABBITMQ_LOG_BASE": os.path.join(self.directory, "log"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-start_epmd false +S 1:1 -kernel"
                                                   " inet_dist_use_interface {127,0,0,1}"
                                                   " -rabbit channel_tick_interval 1000",
        }

    def command(self, port):
        with open(os.path.join(self.directory, "rabbitmq.conf"), "w") as file:
            file.write(CONFIG % {"port": port, "consumer_timeout": self.consumer_timeout * 1000})
        return [PROGRAM]

    def answers(self, port):
        try:
            pika.BlockingConnection(pika.URLParameters(url(port))).close()
            return True
        except pika.exceptions.AMQPError:
            return False

    def url(self):
        return url(self.server.port)

    def connect(self):
        """A connection of the story's own."""
        return pika.BlockingConnection(pika.URLParameters(self.url()))

    def crash(self):
        """The broker is killed, and started again with what it has on disk."""
        self.server.child.crash()
        self.server.start()


def url(port, heartbeat=30):
    """Without an answer within the heartbeat, in seconds, a connection is given up; 0: never."""
    return "amqp://guest:guest@127.0.0.1:%d/%%2F?heartbeat=%d&connection_attempts=1" % (
        port, heartbeat)


class Proxy:
    """
    Passes on what it is sent, both ways.  While .is_deaf, what the broker answers is thrown
    away, as if the network had lost it; while .is_mute, what the client says.
    """

    def __init__(self, port):
        self.to_port = port
        self.is_deaf = self.is_mute = False
        self.pairs = []                     # of sockets
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def url(self):
        return url(self.port)

    def accept(self):
        while True:
            client = self.listener.accept()[0]
            broker = socket.create_connection(("127.0.0.1", self.to_port))
            self.pairs.append((client, broker))
            threading.Thread(target=self.copy, args=(client, broker, False), daemon=True).start()
            threading.Thread(target=self.copy, args=(broker, client, True), daemon=True).start()

    def copy(self, source, target, is_answer):
        try:
            while True:
                data = source.recv(65536)
                if not data:
                    break
                if not (self.is_deaf if is_answer else self.is_mute):
                    target.sendall(data)
        except OSError:
            pass
        self.end(source, target)

    def end(self, *sockets):
        for end in sockets:
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def cut(self):
        """Ends all connections, on both sides."""
        for pair in self.pairs:
            self.end(*pair)
        self.pairs.clear()
