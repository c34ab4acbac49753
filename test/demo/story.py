#!/usr/bin/env python3
"""
story.py: plays the story of one refund, with real processes and a real crash.

    python3 story.py DIRECTORY

Three workers and the channel are processes of their own; the database is the one
that the environment names.  A real broker carries the requests if BROKER names one,
else the outbox does (broker.py).  Nothing is simulated: worker A is killed with
SIGKILL while the channel, which has paid, has not answered yet, and worker B is
stopped with SIGSTOP, as a paused machine would stop it, until its lease is over.

Every step says what happened, what the records say, and the verdicts.  Whatever
is not as told ends the story with exit code 1.  DIRECTORY takes the channel's
ledger.
"""

import http.client
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time

import broker
from psql import Session

HERE = os.path.dirname(os.path.abspath(__file__))
LEASE = 3                                   # seconds
PATIENCE = 20                               # seconds for anything that must come
KEY = "acme/REFUND/r-17"
REQUEST = {"refund": "r-17", "params": {"amount": 10, "currency": "EUR", "payment": "p-4711"}}
FORGED = {"refund": "r-17", "params": {"amount": 100, "currency": "EUR", "payment": "p-4711"}}


class NotAsTold(Exception):
    pass


def expect(what, found, wanted):
    if found != wanted:
        raise NotAsTold("%s: found %r, the story says %r" % (what, found, wanted))


# ---- what a person reads ----

step_number = 0


def step(title):
    global step_number
    step_number += 1
    print("\n%d. %s" % (step_number, title), flush=True)


def say(label, text):
    print("   %-9s %s" % (label, text), flush=True)


def clock(timestamp):
    """The time of day, to the hundredth, of a timestamp as JSON shows it."""
    return timestamp[11:22]


def tell_verdict(name, verdict):
    text = "worker %s: %s" % (name, verdict["outcome"])
    if verdict["generation"]:
        text += ", generation %d, lease until %s" % (verdict["generation"],
                                                     clock(verdict["lease_until"]))
    elif verdict["outcome"] == "busy":
        text += ", come back at %s" % clock(verdict["retry_at"])
    elif verdict["outcome"] == "succeeded":
        text += ", result %s" % json.dumps(verdict["result"])
    elif verdict["outcome"] == "conflict":
        text += ", the parameters differ at %s" % ", ".join(verdict["differs"])
    say("verdict", text)


# ---- the parts ----

class Worker:
    """A worker process, and the events it tells."""

    def __init__(self, name, address):
        self.name = name
        self.events = queue.Queue()
        self.processes = []                 # its own and its database session's
        self.process = subprocess.Popen(
            [sys.executable, "-B", os.path.join(HERE, "worker.py"), "worker-" + name, address,
             str(LEASE)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        threading.Thread(target=self.listen, daemon=True).start()
        self.processes = self.next("ready")["processes"]

    def listen(self):
        for line in self.process.stdout:
            self.events.put(json.loads(line))
        self.events.put({"event": "gone"})

    def next(self, *events):
        """The next thing it tells, which must be one of these."""
        try:
            told = self.events.get(timeout=PATIENCE)
        except queue.Empty:
            raise NotAsTold("worker %s: %s did not come" % (self.name, events)) from None
        if told["event"] not in events:
            raise NotAsTold("worker %s tells %r, the story says %s" % (self.name, told, events))
        return told

    def take(self):
        """Has it take what the queue holds; the verdict that it got, or None for no message."""
        self.process.stdin.write("take\n")
        self.process.stdin.flush()
        told = self.next("verdict", "empty")
        return told if told["event"] == "verdict" else None

    def signal(self, number):
        for process in self.processes:
            try:
                os.kill(process, number)
            except ProcessLookupError:
                pass

    def kill(self):
        self.signal(signal.SIGKILL)
        self.process.wait()


def deliver(*workers, past=()):
    """
    Has them take, in turn, until one is given a message for which the outcome is none of those in
    past; who, and its verdict.  What a dead or frozen one has in hand comes later.
    """
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        for worker in workers:
            verdict = worker.take()
            if verdict and verdict["outcome"] not in past:
                return worker, verdict
            if verdict:
                worker.next("done")
        time.sleep(0.2)
    raise NotAsTold("no such message comes to worker %s"
                    % " or ".join(worker.name for worker in workers))


class Channel:
    def __init__(self, directory):
        self.process = subprocess.Popen(
            [sys.executable, "-B", os.path.join(HERE, "channel.py"),
             os.path.join(directory, "channel-ledger")], stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        if not line.startswith("listening on "):
            raise NotAsTold("the channel does not start")
        self.address = line.split()[-1]

    def request(self, method, path, body=None):
        connection = http.client.HTTPConnection(self.address, timeout=PATIENCE)
        connection.request(method, path, None if body is None else json.dumps(body))
        answer = json.loads(connection.getresponse().read())
        connection.close()
        return answer

    def order(self, **order):
        return self.request("POST", "/control", order)

    def ledger(self):
        return self.request("GET", "/refunds")

    def wait_held(self):
        """Waits until the channel has done what it was asked and holds the answer."""
        end = time.monotonic() + PATIENCE
        while self.request("GET", "/control")["held"] == 0:
            if time.monotonic() > end:
                raise NotAsTold("the channel was not called")
            time.sleep(0.02)


def start_rabbitmq():
    """On loopback, as all that is started here; where it is."""
    import rabbit                           # of test/e2e/lib, which needs the client

    server = rabbit.Rabbit()
    # nobody answers for a frozen worker, and the broker must not give up on it
    os.environ["AMQP_URL"] = rabbit.url(server.server.port, heartbeat=0)
    return "RabbitMQ on 127.0.0.1:%d" % server.server.port


def start_kafka():
    import kafkabroker

    server = kafkabroker.KafkaBroker()
    server.create(broker.QUEUE, broker.PARTITIONS)
    server.create(broker.QUEUE + ".dead")
    os.environ.update(kafkabroker.PYTHON, KAFKA_SERVERS=server.address)
    return "Kafka on " + server.address


START = {"rabbitmq": start_rabbitmq, "kafka": start_kafka,
         "": lambda: "the outbox, a queue in the database"}


class Story:
    def __init__(self, directory):
        self.directory = directory
        self.session = None
        self.queue = None
        self.channel = None
        self.workers = []

    def set_up(self):
        self.session = Session("story")
        self.session.run("CREATE EXTENSION idem_action")
        self.session.run(
            "CREATE TABLE refund_entry (action idem_key, amount numeric, reference text)")
        self.session.run(
            "SELECT idem_define_operation('REFUND', effect => 'external', channel => 'payments',"
            " lease => '%d s', channel_queryable => true, absence_visible_after => '5 s')" % LEASE)
        carrier = START[os.environ.get("BROKER", "")]()
        self.queue = broker.open_queue(self.session, "story", LEASE)
        self.channel = Channel(self.directory)
        self.workers = [Worker(name, self.channel.address) for name in "ABC"]
        print("PostgreSQL %s on a throwaway cluster, a payment channel on %s, workers A, B and C."
              % (self.session.run("SHOW server_version")[0], self.channel.address))
        print("Requests come through %s, at least once." % carrier)
        print("The contract of REFUND: an external effect, a lease of %d s.  The channel can be\n"
              "asked by key; that a repeated call is harmless is not promised." % LEASE)
        print("A verdict says what a worker may do now: execute the action, verify (only ask\n"
              "whether it was executed), or nothing.  Who may is its owner for the lease; the\n"
              "generation counts such grants, and only the newest owner may report.", flush=True)

    def tear_down(self):
        for worker in self.workers:
            worker.kill()
        if self.channel:
            self.channel.process.kill()
            self.channel.process.wait()
        if self.session:
            self.session.close()

    # what the records say

    def status(self):
        return self.session.call("idem_status", KEY)

    def expect_record(self, state, generation):
        """Shows the record and checks it."""
        status = self.status()
        text = "%s is %s, generation %d, attempt %d" % (
            status["key"], status["state"], status["generation"], status["attempt"])
        if status["owner"]:
            text += ", owner %s, lease until %s" % (status["owner"], clock(status["lease_until"]))
        if status["result"]:
            text += ", result %s" % json.dumps(status["result"])
        say("records", text)
        expect("state", status["state"], state)
        expect("generation", status["generation"], generation)
        return status

    def expect_entries(self, count):
        found = int(self.session.run("SELECT count(*) FROM refund_entry")[0])
        say("records", "refund_entry, the application's own table, has %d row%s"
            % (found, "" if found == 1 else "s"))
        expect("rows of refund_entry", found, count)

    def expect_ledger(self, count):
        ledger = self.channel.ledger()
        for entry in ledger:
            say("channel", "its ledger has %s: %s, %s %s" % (
                entry["reference"], entry["key"], entry["request"]["amount"],
                entry["request"]["currency"]))
        expect("refunds in the channel's ledger", len(ledger), count)
        return ledger

    # the steps

    def delivered_twice(self, a, b):
        step("The same request comes twice")
        self.channel.order(fault="hold", method="POST")
        self.queue.send(REQUEST)
        self.queue.send(REQUEST)
        say("happened", "a customer gets 10 EUR back; whoever asks for it did not hear that he was "
            "heard, and asks twice")
        say("happened", "refund r-17 is delivered to worker A")
        _, verdict = deliver(a)
        tell_verdict("A", verdict)
        expect("outcome", verdict["outcome"], "execute")
        expect("generation", verdict["generation"], 1)
        say("happened", "A committed its claim and calls the channel; the request is delivered to "
            "B as well")
        _, verdict = deliver(b)
        tell_verdict("B", verdict)
        expect("outcome", verdict["outcome"], "busy")
        expect("generation", verdict["generation"], 0)
        expect("message", b.next("done")["message"], "keep")
        self.expect_record("processing", 1)

    def killed(self, a, b):
        step("Worker A is killed between the channel's success and its own commit")
        self.channel.wait_held()
        a.kill()
        say("happened", "the channel has paid; before its answer arrives, A is killed (SIGKILL)")
        self.expect_ledger(1)
        self.expect_record("processing", 1)
        self.expect_entries(0)
        say("happened", "r-17 is delivered to B once more, before A's lease is over")
        _, verdict = deliver(b)
        tell_verdict("B", verdict)
        expect("outcome", verdict["outcome"], "busy")
        expect("message", b.next("done")["message"], "keep")

    def taken_over(self, b):
        step("Worker B takes over, and may ask but not act")
        self.channel.order(reset=True)
        self.channel.order(fault="hold", method="GET")
        _, verdict = deliver(b, past={"busy"})
        say("happened", "A's lease has passed, and the next redelivery reaches B")
        tell_verdict("B", verdict)
        expect("outcome", verdict["outcome"], "verify")
        expect("generation", verdict["generation"], 2)
        self.channel.wait_held()
        b.signal(signal.SIGSTOP)
        self.channel.order(release=True)
        say("happened", "B asks the channel for the key; while the answer is on its way, B freezes "
            "(SIGSTOP)")
        self.expect_record("processing", 2)

    def found(self, c):
        step("Worker C takes over in its turn, finds the answer at the channel and stores it")
        _, verdict = deliver(c, past={"busy"})
        say("happened", "B's lease has passed too, and the next redelivery reaches C")
        tell_verdict("C", verdict)
        expect("outcome", verdict["outcome"], "verify")
        expect("generation", verdict["generation"], 3)
        told = c.next("answer")
        expect("the channel's status", told["status"], 200)
        say("channel", "asked by C for the key, it answers %s" % told["answer"]["reference"])
        expect("reference stored", c.next("stored")["reference"], told["answer"]["reference"])
        expect("message", c.next("done")["message"], "ack")
        say("happened", "C stores the answer beside its own row, commits and acknowledges")
        status = self.expect_record("succeeded", 3)
        expect("channel reference", status["channel_ref"], told["answer"]["reference"])
        self.expect_entries(1)

    def woken(self, b):
        step("Worker B wakes up and is refused")
        b.signal(signal.SIGCONT)
        say("happened", "B goes on (SIGCONT), reads the channel's answer and tries to store it too")
        expect("the channel's status", b.next("answer")["status"], 200)
        refused = b.next("refused")
        say("verdict", "worker B: " + refused["text"].splitlines()[0])
        expect("SQLSTATE", refused["sqlstate"], "ID002")
        expect("message", b.next("done")["message"], "keep")
        self.expect_record("succeeded", 3)
        say("happened", "the row that B wrote in the same transaction was rolled back with it")
        self.expect_entries(1)

    def redelivered(self, *workers):
        step("The request is delivered once more")
        say("happened", "what B gave back, or never gave back, is delivered again")
        worker, verdict = deliver(*workers)
        tell_verdict(worker.name, verdict)
        expect("outcome", verdict["outcome"], "succeeded")
        expect("result", verdict["result"], self.status()["result"])
        expect("message", worker.next("done")["message"], "ack")
        self.expect_record("succeeded", 3)

    def forged(self, *workers):
        step("The same key comes with another amount")
        say("happened", "somebody sends refund r-17 again, but with 100 EUR instead of 10")
        self.queue.send(FORGED)
        # an earlier delivery may still be on its way
        worker, verdict = deliver(*workers, past={"succeeded"})
        tell_verdict(worker.name, verdict)
        expect("outcome", verdict["outcome"], "conflict")
        expect("differs", verdict["differs"], ["/amount"])
        expect("message", worker.next("done")["message"], "dead-letter")
        self.expect_record("succeeded", 3)

    def counted(self):
        step("What the customer got")
        ledger = self.expect_ledger(1)
        expect("amount", ledger[0]["request"]["amount"], 10)
        expect("key", ledger[0]["key"], KEY)
        received = self.channel.request("GET", "/control")["received"]
        say("channel", "it was called to pay %d time, and asked %d times"
            % (received["POST"], received["GET"]))
        expect("calls to pay", received["POST"], 1)
        expect("questions", received["GET"], 2)
        self.expect_entries(1)

    def play(self):
        self.set_up()
        a, b, c = self.workers
        self.delivered_twice(a, b)
        self.killed(a, b)
        self.taken_over(b)
        self.found(c)
        self.woken(b)
        self.redelivered(b, c)
        self.forged(b, c)
        self.counted()


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: story.py DIRECTORY")
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(143))
    story = Story(sys.argv[1])
    try:
        story.play()
    except NotAsTold as difference:
        print("\nNOT AS TOLD: %s" % difference, flush=True)
        return 1
    finally:
        story.tear_down()
    print("\nDelivered again and again, one worker killed, one frozen: one refund.", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
