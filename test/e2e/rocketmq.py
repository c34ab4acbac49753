#!/usr/bin/env python3
"""
rocketmq.py: the consumer of doc/patterns/rocketmq.md with a real RocketMQ.

The business event has the identity, in KEYS; what RocketMQ calls identity changes with every
sending, and its count of reconsumptions says nothing of a consumer that died.  Consumers are
killed, replaced while they work, and too slow for the broker; a thousand refunds are paid once.
"""

# packages: mvn:maven javac:default-jdk-headless
# minutes: 8

import glob
import json
import os
import re
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import unquote

from psql import Session

import e2e

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "rocketmq")
ROLE = "rocketmq_application"
LOCK = 5                                    # what a COMMIT of the application waits for
REFUNDS = 1000
AGAIN = 200                                 # of them are sent again
STEP = 40                                   # messages between two faults

SET_UP = """
    SELECT idem_define_operation('REFUND', effect => 'external', lease => '5 seconds',
        channel_idempotent => true, channel_key_ttl => '24 hours',
        max_attempts => 1000, backoff_max => '2 seconds');
    SELECT idem_define_operation('CHECKED', effect => 'external', lease => '5 seconds',
        channel_queryable => true, absence_visible_after => '1 second',
        max_attempts => 1000, backoff_max => '2 seconds');
    SELECT idem_define_operation('SLOW', effect => 'external', channel => 'slow',
        channel_idempotent => true, channel_key_ttl => '24 hours');
    SELECT idem_define_operation('MANUAL', effect => 'external');
    CREATE TABLE refund_entry (key text PRIMARY KEY, amount numeric, reference text);
    CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS
        'BEGIN PERFORM pg_advisory_xact_lock_shared(%(lock)d); RETURN NULL; END';
    CREATE CONSTRAINT TRIGGER wait AFTER INSERT ON refund_entry DEFERRABLE INITIALLY DEFERRED
        FOR EACH ROW EXECUTE FUNCTION wait();
    CREATE ROLE %(role)s LOGIN;
    SELECT idem_grant('%(role)s', 'application', 'acme');
    GRANT INSERT ON refund_entry TO %(role)s;
""" % {"role": ROLE, "lock": LOCK}

BROKER = """
brokerName = e2e
brokerIP1 = 127.0.0.1
bindAddress = 127.0.0.1
listenPort = %(port)d
# the one port that has no address of its own; no replica ever asks for it
haListenPort = 0
namesrvAddr = %(name_server)s
storePathRootDir = %(directory)s
storePathCommitLog = %(directory)s/commitlog
mappedFileSizeCommitLog = 16777216
mappedFileSizeConsumeQueue = 600000
timerWheelEnable = false
autoCreateTopicEnable = false
"""


def java(program, *arguments, options=()):
    """The command line of a program in Java, with little memory."""
    path = [HERE, os.path.join(e2e.directory(), "classes")]
    path += sorted(glob.glob(os.path.join(e2e.downloads(), "lib", "*.jar")))
    return ["java", "-Xms256m", "-Xmx256m", "-Xshare:auto", "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1", "-Duser.home=" + e2e.directory(),
            "--add-opens=java.base/java.nio=ALL-UNNAMED",
            "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED", *options,
            "-cp", ":".join(path), program, *arguments]


def compile_programs():
    subprocess.run(
        ["javac", "-Xlint:all", "-Werror", "-cp", os.path.join(e2e.downloads(), "lib", "*"),
         "-d", os.path.join(e2e.directory(), "classes"),
         os.path.join(e2e.SOURCE, "doc", "patterns", "RefundConsumer.java"),
         os.path.join(HERE, "Control.java")], check=True)


class Rocket:
    """Name server, broker, and somebody who asks them."""

    def __init__(self):
        home = {"ROCKETMQ_HOME": e2e.directory()}
        names = e2e.Server("name-server", self.name_server_command, e2e.accepts, home)
        self.name_server = "127.0.0.1:%d" % names.port
        self.broker = e2e.Server("broker", self.broker_command, e2e.accepts, home)
        self.control = e2e.Child("control", java("Control", self.name_server,
                                                 "127.0.0.1:%d" % self.broker.port),
                                 stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def name_server_command(self, port):
        path = os.path.join(e2e.directory(), "name-server.conf")
        with open(path, "w") as file:
            file.write("listenPort = %d\nbindAddress = 127.0.0.1\n" % port)
        return java("org.apache.rocketmq.namesrv.NamesrvStartup", "-c", path)

    def broker_command(self, port):
        path = os.path.join(e2e.directory(), "broker.conf")
        with open(path, "w") as file:
            file.write(BROKER % {"port": port, "name_server": self.name_server,
                                 "directory": os.path.join(e2e.directory(), "store")})
        return java("org.apache.rocketmq.broker.BrokerStartup", "-c", path)

    def ask(self, *command):
        """The fields of the answer, or None if there is none yet."""
        self.control.process.stdin.write("\t".join(map(str, command)) + "\n")
        self.control.process.stdin.flush()
        for line in self.control.process.stdout:
            if line.startswith("> "):
                status, *fields = line[2:].rstrip("\n").split("\t")
                if status == "ok":
                    return fields
                self.trouble = line
                return None
        raise e2e.Trouble("the control has ended\n" + self.control.printed())

    def must(self, *command):
        """The same, as soon as the broker is ready for it."""
        return e2e.wait_for(" ".join(map(str, command)), lambda: self.ask(*command))

    def send(self, topic, key, body, queue=0):
        """As any producer would: a new message each time.  Its msgId."""
        return self.must("send", topic, queue, key,
                         body if isinstance(body, str) else json.dumps(body))[0]

    def read(self, topic):
        """(keys, body, reconsumeTimes, msgId) of all messages in it."""
        fields = self.must("read", topic)
        return list(zip(*(iter(fields),) * 4))


class Shop:
    def __init__(self):
        compile_programs()
        self.rocket = Rocket()
        self.channel = e2e.Channel()
        self.slow_channel = e2e.Channel("slow-channel")
        self.consumers = []
        self.requests = {}
        e2e.execute(SET_UP)
        for topic, queues in (("refunds", 4), ("moved", 1), ("slow", 2), ("chaos", 4)):
            self.rocket.must("topic", topic, queues)

    def consumer(self, topic, rank="m", lease=5, call=2, channel=None):
        """The rank is what the client library sorts the consumers of a group by."""
        name = "%s-%s-%d" % (topic, rank, len(self.consumers))
        found = e2e.Child(
            name, java("RefundConsumer", self.rocket.name_server, topic, topic + "_group",
                       (channel or self.channel).address,
                       options=["-Drocketmq.client.name=" + rank + name]),
            {"DATABASE_URL": "jdbc:postgresql://127.0.0.1:%s/%s?user=%s&sslmode=disable" % (
                os.environ["PGPORT"], os.environ["PGDATABASE"], ROLE),
             "REFUND_LEASE": str(lease), "REFUND_CALL": str(call), "REFUND_CONSUME_TIMEOUT": "1"})
        self.consumers.append(found)
        return found

    def ask_for(self, key, amount, topic="refunds", queue=0):
        self.requests[key] = amount
        return self.rocket.send(topic, key, {"amount": amount}, queue)

    def about(self, key, *consumers):
        """What consumers said about a key: (msgId, place, reconsumeTimes, outcome)."""
        return [line for consumer in consumers or self.consumers for line in re.findall(
            r"^%s (\S+) (\S+@\d+) (\d+) (\S+)$" % re.escape(key), consumer.printed(100000), re.M)]

    def wait_told(self, key, outcome, *consumers):
        """The same, once the last is that outcome."""
        def found():
            lines = self.about(key, *consumers)
            return lines and lines[-1][3] == outcome and lines
        return e2e.wait_for("%s about %s" % (outcome, key), found, 180)

    def paid(self, operation):
        entries = [dict(entry, key=unquote(entry["key"]))
                   for entry in self.channel.ledger() + self.slow_channel.ledger()]
        return [entry for entry in entries if entry["key"].split("/")[1] == operation]

    def times_paid(self, key):
        return [entry["key"] for entry in self.paid(key.split("/")[1])].count(key)


def state(key):
    return e2e.query("SELECT state FROM idem_status('%s')" % key)[0]["state"]


def grants(key):
    return [row["outcome"] for row in e2e.query(
        "SELECT outcome FROM idem_evidence WHERE key = '%s' AND outcome IS NOT NULL"
        " ORDER BY recorded_at" % key)]


# ---- what takes the broker two minutes, beside the others ----

SLOW = "acme/SLOW/s-1"


def slow_begins(shop):
    """The first works on, while the broker's client believes it stuck and sends it back."""
    shop.slow_channel.order(fault="hold", method="POST", times=1)
    first = shop.consumer("slow", "z", lease=155, call=150, channel=shop.slow_channel)
    second = shop.consumer("slow", "a", lease=155, call=150, channel=shop.slow_channel)
    shop.ask_for(SLOW, 10, "slow", queue=1)
    e2e.wait_for("the call", lambda: shop.slow_channel.order()["held"] == 1)
    return first, second, ThreadPoolExecutor(1).submit(slow_goes_on, shop, first, second)


def slow_goes_on(shop, first, second):
    """However long the others take; what both have said when the second is told busy."""
    by_second = shop.wait_told(SLOW, "busy", second)
    by_first = shop.about(SLOW, first)
    shop.slow_channel.order(release=True)
    return by_first, by_second


def slow_ends(shop, first, second, going_on):
    by_first, by_second = going_on.result()
    e2e.equal(by_first, [], "consume time-out: the first is still at work")
    e2e.equal([line[2:] for line in by_second], [("1", "busy")],
              "a second consumer is given its message, counted as a reconsumption, and told busy")
    e2e.equal([line[2:] for line in shop.wait_told(SLOW, "succeeded", first)],
              [("0", "succeeded")], "the first completes, since its lease is longer")
    e2e.equal(shop.wait_told(SLOW, "succeeded", second)[-1][2], "2",
              "the second is told so when the message comes again")
    e2e.equal(shop.times_paid(SLOW), 1, "paid once")


# ---- one thing at a time ----

def sent_twice(shop):
    key = "acme/REFUND/twice"
    consumer = shop.consumer("refunds")
    sent = [shop.ask_for(key, 10)]
    first = shop.wait_told(key, "succeeded")
    sent.append(shop.ask_for(key, 10))
    e2e.wait_for("the second", lambda: len(shop.about(key)) == 2)
    lines = shop.about(key)
    e2e.ok(sent[0] != sent[1], "sent twice: the same event has two message ids")
    e2e.equal([line[0] for line in lines], sent, "by which the consumer cannot tell")
    e2e.equal([line[2:] for line in lines], [("0", "succeeded")] * 2,
              "nor by the count of reconsumptions; by the key it can")
    e2e.equal(shop.times_paid(key), 1, "paid once")
    e2e.equal(e2e.query("SELECT transport FROM idem_evidence WHERE key = '%s'"
                        " AND call = 'claim'" % key),
              [{"transport": {"msgId": first[0][0], "place": first[0][1], "reconsumeTimes": 0}}],
              "the evidence names the message that caused it")
    return consumer


def killed_before_the_answer(shop, consumer):
    key = "acme/REFUND/killed"
    lock = Session("story")
    lock.run("SELECT pg_advisory_lock(%d)" % LOCK)
    sent = shop.ask_for(key, 10)
    e2e.wait_for("the COMMIT", lambda: e2e.query(
        "SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"))
    consumer.freeze()
    lock.run("SELECT pg_advisory_unlock(%d)" % LOCK)
    lock.close()
    e2e.wait_for("the end of the COMMIT", lambda: state(key) == "succeeded")
    consumer.kill()
    e2e.equal(shop.about(key), [], "killed between COMMIT and answer")
    second = shop.consumer("refunds")
    e2e.equal([(line[0], *line[2:]) for line in shop.wait_told(key, "succeeded")],
              [(sent, "0", "succeeded")],
              "the next one is given the message as if it were new, and told it is done")
    e2e.equal(shop.times_paid(key), 1, "paid once")
    return second


def killed_before_the_report(shop, consumer):
    """Both have been paid when the consumer dies; it has heard of neither."""
    repeated, checked = "acme/REFUND/held", "acme/CHECKED/held"
    shop.channel.order(fault="hold", method="POST", times=2)
    shop.channel.order(fault="refuse", method="GET", times=1)
    for key in (repeated, checked):
        shop.ask_for(key, 10)
    e2e.wait_for("the calls", lambda: shop.channel.order()["held"] == 2)
    consumer.kill()
    shop.channel.order(release=True)
    second = shop.consumer("refunds")
    for key, granted in ((repeated, ["execute", "repeat"]),
                         (checked, ["execute", "verify", "verify"])):
        lines = shop.wait_told(key, "succeeded")
        e2e.equal(grants(key), granted, "killed after the call: %s" % " then ".join(granted))
        e2e.equal(len({line[0] for line in lines}), 1, "by one message")
        e2e.equal(shop.times_paid(key), 1, "paid once")
    return second


def reconsumed_later(shop):
    """Somebody has claimed it, and dies."""
    key = "acme/REFUND/owned"
    e2e.execute("SELECT idem_claim('%s', '{\"amount\": 10}', lease => '8 seconds')" % key)
    shop.ask_for(key, 10)
    lines = shop.wait_told(key, "succeeded")
    e2e.equal([line[2:] for line in lines], [("0", "busy"), ("1", "succeeded")],
              "owned by somebody else: it is to come later, and comes when the lease is over")
    e2e.ok(lines[0][0] == lines[1][0] and lines[0][1] != lines[1][1],
           "the message id is the same, though the broker has stored it anew")
    e2e.equal(shop.times_paid(key), 1, "paid once")


def dead_letters(shop):
    manual = "acme/MANUAL/m-1"
    e2e.execute("SELECT idem_claim('%s', '{\"amount\": 10}')" % manual)
    e2e.execute("SELECT idem_escalate('%s', 1)" % manual)
    sent = {}
    for key, body, outcome in (("acme/REFUND/twice", '{"amount": 11}', "conflict"),
                               (manual, '{"amount": 10}', "review"),
                               ("acme/REFUND/unreadable", "{", "22P02"),
                               ("acme/REFUND/nul", '{"amount": "\\u0000"}', "22P05"),
                               ("acme/REFUND/huge", '{"amount": 1e200000}', "22003"),
                               ("no-key", '{"amount": 10}', "22P02")):
        sent[shop.rocket.send("refunds", key, body)] = (key, body)
        e2e.equal(shop.wait_told(key, outcome)[-1][2], "0",
                  "%s: %s at the first reading" % (key, outcome))
    e2e.wait_for("the dead letters",
                 lambda: len(shop.rocket.read("%DLQ%refunds_group")) == len(sent))
    found = shop.rocket.read("%DLQ%refunds_group")
    e2e.equal({msg_id: (key, body) for key, body, _, msg_id in found}, sent,
              "all are dead letters, as they were sent")
    e2e.equal(e2e.query("SELECT count(*) AS n FROM idem_evidence WHERE call = 'conflict'"),
              [{"n": 1}], "and the conflict is on record")
    e2e.equal(shop.times_paid("acme/REFUND/twice"), 1, "nothing more was paid")


def odd_answers(shop):
    """A channel pays, and its answer is none: the message is not to blame."""
    letters = len(shop.rocket.read("%DLQ%refunds_group"))
    shop.channel.order(fault="drip", seconds=300)
    dripping = "acme/REFUND/drips"
    shop.ask_for(dripping, 10)
    e2e.wait_for("the call", lambda: not shop.channel.order()["faults"])
    for number, answer in enumerate(("paid", '{"reference": "re\\u0000"}', '{"reference": ""}')):
        key = "acme/CHECKED/odd-%d" % number
        shop.channel.order(fault="garble", answer=answer)
        shop.ask_for(key, 10)
        shop.wait_told(key, "succeeded")
        e2e.equal(shop.times_paid(key), 1, "answered with %s: asked for, and paid once" % answer)
    shop.wait_told(dripping, "succeeded")
    e2e.equal(shop.times_paid(dripping), 1, "an answer that drips is not waited for for ever")
    # two keys that the client would send as one
    for key in ("acme/REFUND/zur\u00fcck", "acme/REFUND/zur\u00e4ck", "acme/CHECKED/10 \u20ac*~"):
        shop.channel.order(fault="lose")
        shop.ask_for(key, 10)
        shop.wait_told(key, "succeeded")
    e2e.equal(len(shop.channel.ledger()), len(e2e.query("SELECT key FROM refund_entry")),
              "each key is a payment of its own, whatever is in it")
    e2e.equal(len({row["channel_ref"] for row in e2e.query(
        "SELECT channel_ref FROM idem_action WHERE key::text LIKE '%/zur%'")}), 2,
              "with a reference of its own")
    e2e.equal(len(shop.rocket.read("%DLQ%refunds_group")), letters, "no letter is dead")


MOVED = "acme/REFUND/moved"


def moved_begins(shop):
    """The only queue is given to the second consumer while the first works."""
    shop.channel.order(fault="hold", method="POST", times=1)
    first = shop.consumer("moved", "z", lease=45, call=42)
    shop.ask_for(MOVED, 10, "moved")
    e2e.wait_for("the call", lambda: shop.channel.order()["held"] == 1)
    second = shop.consumer("moved", "a", lease=45, call=42)
    lines = shop.wait_told(MOVED, "busy", second)
    e2e.equal([line[2:] for line in lines], [("0", "busy")],
              "rebalanced while the first works: the second has the message too, and is told busy")
    e2e.ok(not shop.about(MOVED, first), "the first is still at it")
    shop.channel.order(release=True)
    shop.wait_told(MOVED, "succeeded", first)
    e2e.equal(state(MOVED), "succeeded", "and completes: an action has an owner, a queue or not")
    return second


def moved_ends(shop, second):
    lines = shop.wait_told(MOVED, "succeeded", second)
    e2e.equal([line[2:] for line in lines], [("0", "busy"), ("1", "succeeded")],
              "the second is told so when the message comes again")
    e2e.equal(shop.times_paid(MOVED), 1, "paid once")


# ---- a thousand refunds ----

def chaos(shop, numbers):
    # what the channel refuses to pay is rejected, where it can tell that no earlier call has paid
    messages = [("acme/%s/c-%d" % (("REFUND", "CHECKED")[i % 2], i),
                 1001 if i % 20 == 1 else numbers.randint(1, 999))
                for i in range(REFUNDS)]
    messages += numbers.sample(messages, AGAIN)
    numbers.shuffle(messages)
    consumers = [shop.consumer("chaos") for _ in range(3)]
    met_before = shop.channel.met()
    kills = 0
    for number, begin in enumerate(range(0, len(messages), STEP)):
        for key, amount in messages[begin:begin + STEP]:
            shop.ask_for(key, amount, "chaos", queue=numbers.randrange(4))
        for _ in range(4):
            shop.channel.order(fault=numbers.choice(("lose", "drop", "refuse", "slow")),
                               method=numbers.choice(("POST", "POST", "GET")),
                               seconds=numbers.choice((0.5, 3)))
        if number % 4 == 2:
            victim = numbers.randrange(3)
            consumers[victim].crash()
            kills += 1
            consumers[victim] = shop.consumer("chaos")
        if begin <= len(messages) / 2 < begin + STEP:
            e2e.crash_server()
        time.sleep(numbers.random())
    e2e.note("%d messages sent, %d consumers killed, the database crashed" % (len(messages), kills))
    e2e.wait_for("the last refund", lambda: e2e.query(
        "SELECT count(*) AS n FROM idem_action WHERE idem_key_id(key) LIKE 'c-%'"
        " AND state IN ('succeeded', 'rejected')")[0]["n"] == REFUNDS, 180)
    e2e.wait_for("the last message",
                 lambda: shop.rocket.must("waiting", "chaos_group") == ["0"], 120)
    e2e.ok(True, "all is settled, and the broker has nothing left")
    e2e.ok(kills >= 5, "though %d consumers were killed" % kills)
    met = shop.channel.met() - met_before
    e2e.ok(met > 0, "and the channel met a request with a fault %d times" % met)
    told = len(re.findall(r"^acme/\w+/c-\d+ \S+ \S+ \d+ (?:succeeded|rejected)$",
                          "".join(child.printed(100000) for child in shop.consumers), re.M))
    e2e.ok(told > REFUNDS + AGAIN / 2, "%d messages were told that theirs is settled" % told)
    again = e2e.granted_again("REFUND") + e2e.granted_again("CHECKED")
    e2e.ok(again > 10, "refunds were granted more than once: %d" % again)


def audits(shop):
    for operation in ("REFUND", "CHECKED", "SLOW"):
        e2e.audit(operation, {key: amount for key, amount in shop.requests.items()
                              if key.split("/")[1] == operation},
                  shop.paid(operation),
                  "SELECT * FROM refund_entry WHERE key LIKE '%%/%s/%%'" % operation)


def story():
    numbers = e2e.random_numbers()
    shop = Shop()
    slow = slow_begins(shop)
    consumer = sent_twice(shop)
    consumer = killed_before_the_answer(shop, consumer)
    consumer = killed_before_the_report(shop, consumer)
    reconsumed_later(shop)
    dead_letters(shop)
    odd_answers(shop)
    moved = moved_begins(shop)
    consumer.stop()
    chaos(shop, numbers)
    moved_ends(shop, moved)
    slow_ends(shop, *slow)
    audits(shop)


e2e.main(story)
