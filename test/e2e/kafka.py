#!/usr/bin/env python3
"""
kafka.py: the consumer and the sender of doc/patterns/kafka.md, as they stand there, with a real
Kafka: what comes twice, what is left out, who was replaced, and everything at random.
"""

# packages: mvn:maven java:default-jre-headless python3-pip python3-psycopg
# minutes: 8

import json
import os
import signal
import subprocess
import sys
import time

import psycopg

import e2e
import kafkabroker

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "kafka")
sys.path.insert(0, HERE)

import at_random                            # noqa: E402

PATTERNS = os.path.join(e2e.SOURCE, "doc", "patterns")

SET_UP = """
    SELECT idem_define_consumer('refunds'), idem_define_consumer('stock'),
        idem_define_consumer('invoices');
    SELECT idem_define_operation('EVENTS', effect => 'external', channel => 'kafka',
        channel_idempotent => true, channel_key_ttl => '1000 years', max_attempts => 1000000,
        backoff_max => '2 seconds');
    SELECT idem_define_operation('REFUND', effect => 'external', channel => 'provider',
        lease => '4 seconds', channel_queryable => true, absence_visible_after => '1 second',
        max_attempts => 1000000, backoff_base => '200 milliseconds', backoff_max => '1 second');
    -- nothing in these tables stops a second row
    CREATE TABLE refund_event (event text, key text, amount numeric);
    CREATE TABLE parked (event text, outcome text, record jsonb);
    CREATE TABLE movement (topic text, record bigint, item text, who text);
    CREATE TABLE invoice (number int GENERATED ALWAYS AS IDENTITY, order_id text);
    CREATE TABLE plain_invoice (order_id text);
    -- as the pattern's worker needs it
    CREATE TABLE refund_entry (key text PRIMARY KEY, reference text NOT NULL);
    -- whoever is asked for by name waits in the middle of his transaction
    CREATE FUNCTION be_slow() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF NEW.item = 'slow-' || NEW.who THEN
            PERFORM pg_advisory_xact_lock_shared(17);
        END IF;
        RETURN NEW;
    END $$;
    CREATE TRIGGER be_slow AFTER INSERT ON movement FOR EACH ROW EXECUTE FUNCTION be_slow();
"""


class Database:
    """A connection of the story's own, made again after a crash."""

    def __init__(self):
        self.connection = None

    def rows(self, statement, *arguments):
        if self.connection is None or self.connection.closed:
            self.connection = psycopg.connect("", autocommit=True)
        return self.connection.execute(statement, arguments or None).fetchall()

    def value(self, statement, *arguments):
        return self.rows(statement, *arguments)[0][0]

    def column(self, statement, *arguments):
        return [row[0] for row in self.rows(statement, *arguments)]


def pieces(*items):
    """Records without a key, which the four workers share by their offsets."""
    return [(None, item) for item in items]


class Story:
    def __init__(self):
        self.database = Database()
        e2e.execute(SET_UP)
        self.broker = kafkabroker.KafkaBroker()
        self.asked_for = {}                 # the amount of every refund, by key

    def start(self, name, program, *words, **environment):
        """One that is killed and started again keeps its log."""
        return e2e.Child(name, [sys.executable, "-B", program, *words], dict(
            kafkabroker.PYTHON, PGAPPNAME=name, **environment,
            PYTHONPATH=PATTERNS + os.pathsep + kafkabroker.PYTHON["PYTHONPATH"]))

    def consumer(self, name, program, topic, start="database", commit_every="0.2"):
        return self.start(
            name, program, topic, start, "bootstrap.servers=" + self.broker.address,
            "group.id=%s-%s" % (topic, start), "session.timeout.ms=2000",
            "heartbeat.interval.ms=400", CONSUMER_COMMIT_EVERY=commit_every)

    def stock(self, name, topic, *how):
        return self.consumer(name, os.path.join(HERE, "stock.py"), topic, *how)

    def refunds(self, name, topic, *how):
        return self.consumer(name, os.path.join(PATTERNS, "kafka_consumer.py"), topic, *how)

    def moved(self, topic):
        """What was done: offset and who, in the order of the log."""
        return self.database.rows("SELECT record, who FROM movement WHERE topic = %s"
                                  " ORDER BY record", topic)

    def done(self, topic, *offsets):
        e2e.wait_for("%s of %s" % (offsets, topic),
                     lambda: [record for record, who in self.moved(topic)] == list(offsets))

    def progress(self, consumer, topic):
        """What may be committed to the broker."""
        key = "acme/%s/%s/0" % (consumer, topic)
        return self.database.value(
            "SELECT (SELECT idem_progress_committable(key) FROM idem_progress WHERE key = %s)",
            key)

    def reaches(self, consumer, topic, offset):
        e2e.wait_for("progress of %s to %d" % (topic, offset),
                     lambda: self.progress(consumer, topic) == offset)

    def committed(self, topic, offset):
        e2e.wait_for("commit of %d to the broker" % offset,
                     lambda: self.broker.committed(topic + "-broker", topic) == offset)

    def hold(self):
        """Whoever is asked for by name is slow from now on, until release()."""
        self.database.rows("SELECT pg_advisory_lock(17)")

    def release(self):
        self.database.rows("SELECT pg_advisory_unlock(17)")

    def is_slow(self, name):
        return self.database.value("SELECT count(*) FROM pg_stat_activity WHERE"
                                   " application_name = %s AND wait_event = 'advisory'", name) > 0

    def refund(self, refund):
        """What an event says that asks for a refund of 10."""
        self.asked_for["acme/REFUND/" + refund] = 10
        return json.dumps({"refund": refund, "amount": 10})


def producer_resends(story):
    story.broker.create("resent")
    consumer = story.refunds("resent-1", "resent")
    event = ("resent-1", story.refund("resent-1"))
    other = ("resent-1", json.dumps({"refund": "resent-1", "amount": 100}))
    e2e.equal([story.broker.send("resent", event), story.broker.send("resent", event),
               story.broker.send("resent", other)], [[0], [1], [2]],
              "an event that its producer sends again has a new offset each time")
    story.reaches("refunds", "resent", 3)
    e2e.equal(story.database.rows("SELECT event, amount FROM refund_event"), [("resent-1", 10)],
              "and is booked once")
    e2e.equal(story.database.rows(
        "SELECT first, duplicate, conflict FROM idem_stat_consumers WHERE consumer = 'refunds'"),
              [(1, 1, 1)], "the inbox says: first, duplicate, and conflict for another amount")
    e2e.equal(story.database.rows("SELECT outcome, record->'offset' FROM parked"),
              [("conflict", 2)], "which was parked")
    consumer.stop()


def sender_dies_before_it_hears(story):
    story.broker.create("sent")

    def sender(name):
        return story.start(name, os.path.join(PATTERNS, "kafka_sender.py"), "EVENTS",
                           "bootstrap.servers=" + story.broker.address, SENDER_LEASE="3")

    def ask_for(event):
        story.database.rows(
            "SELECT idem_submit(%s, jsonb_build_object('topic', 'sent', 'key', %s::text,"
            " 'body', %s::jsonb))",
            "acme/EVENTS/" + event, event, story.refund(event))

    def state(event):
        return story.database.value("SELECT state FROM idem_status(%s)", "acme/EVENTS/" + event)

    ask_for("sent-1")
    first = sender("sender-1")
    e2e.wait_for("the first event", lambda: state("sent-1") == "succeeded")
    story.broker.server.child.freeze()
    ask_for("sent-2")
    e2e.wait_for("the claim", lambda: state("sent-2") == "processing")
    time.sleep(0.5)                         # what was sent waits for the broker
    first.kill()
    story.broker.server.child.signal(signal.SIGCONT)
    e2e.wait_for("the record", lambda: len(story.broker.records("sent")) == 2)
    e2e.equal(state("sent-2"), "processing", "a sender dies, and what it sent is in the log")
    second = sender("sender-2")
    e2e.wait_for("the second event", lambda: state("sent-2") == "succeeded")
    second.stop()
    e2e.equal(len(story.broker.records("sent")), 3, "another one sends it again")
    e2e.equal(story.database.rows(
        "SELECT outcome, generation FROM idem_evidence WHERE key = 'acme/EVENTS/sent-2'"
        " AND call = 'claim' ORDER BY recorded_at"), [("execute", 2), ("repeat", 3)],
              "under a new generation")
    consumer = story.refunds("sent-1", "sent")
    story.reaches("refunds", "sent", 3)
    e2e.equal(story.database.column("SELECT event FROM refund_event WHERE event LIKE 'sent-%'"
                                    " ORDER BY event"), ["sent-1", "sent-2"],
              "and as the same event, which is booked once")
    consumer.stop()


def never_sendable(story):
    story.broker.create("sent-on")
    story.broker.create("small", max_message_bytes="1000")
    story.broker.create("keyed", cleanup_policy="compact")
    messages = {
        "no-topic": {"body": {}}, "no-body": {"topic": "sent-on"}, "no-object": [],
        "empty-topic": {"topic": "", "body": {}}, "bad-topic": {"topic": "a b", "body": {}},
        "no-key": {"topic": "keyed", "body": {}},
        "too-large": {"topic": "sent-on", "body": {"text": "x" * 2000000}},
        "too-large-there": {"topic": "small", "body": {"text": "xy" * 1000}},
    }
    for event, message in messages.items():
        story.database.rows("SELECT idem_submit(%s, %s::jsonb)", "acme/EVENTS/" + event,
                            json.dumps(message))
    amount = "12345678901234567.89"
    story.database.rows("SELECT idem_submit('acme/EVENTS/after-them', %s::jsonb)",
                        '{"topic": "sent-on", "body": {"amount": %s}}' % amount)
    sender = story.start("sender-3", os.path.join(PATTERNS, "kafka_sender.py"), "EVENTS",
                         "bootstrap.servers=" + story.broker.address, SENDER_LEASE="3")
    e2e.wait_for("the others", lambda: story.broker.records("sent-on"))
    e2e.equal(story.broker.records("sent-on"), [(0, b'{"amount": %s}' % amount.encode())],
              "what Kafka will never take does not keep the others waiting; money is not rounded")
    e2e.wait_for("review", lambda: story.database.value("SELECT count(*) FROM idem_review")
                 == len(messages))
    e2e.equal(sorted(key.split("/")[2] for key in story.database.column(
        "SELECT key::text FROM idem_review WHERE detail->>'error' IS NOT NULL")),
              sorted(messages), "but awaits a person")
    e2e.ok(sender.is_running(), "and the sender lives on")
    sender.stop()
    story.database.rows("SELECT idem_resolve(key, generation, 'rejected', 'no event')"
                        " FROM idem_review")


UNREADABLE = {
    # event: value, headers, what is found
    "no-json": ("{", None, "JSONDecodeError"),
    "too-deep": ("[" * 100000, None, "RecursionError"),
    "no-object": ("[]", None, "TypeError"),
    "no-utf-8": (b"\xff", None, "UnicodeDecodeError"),
    "no-amount": ('{"refund": "r-1"}', None, "KeyError"),
    "null-refund": ('{"refund": null, "amount": 10}', None, "TypeError"),
    "amount-true": ('{"refund": "r-1", "amount": true}', None, "TypeError"),
    "amount-nan": ('{"refund": "r-1", "amount": NaN}', None, "TypeError"),
    "nul": ('{"refund": "r\\u0000", "amount": 10}', None, "22P05"),
    "no-id": ('{"refund": "r", "amount": 10}', {"event-id": ""}, "22P02"),
    "nul-id": ('{"refund": "r", "amount": 10}', {"event-id": b"e\0"}, "DataError"),
    "null-id": ('{"refund": "r", "amount": 10}', {"event-id": None}, "TypeError"),
    "no-headers": ('{"refund": "r", "amount": 10}', {}, "KeyError"),
    "of-another": ('{"refund": "r", "amount": 10}', {"event-id": "e", "tenant": "bolt"},
                   "ValueError"),
}


def unreadable(story):
    story.broker.create("unreadable")
    producer = story.broker.producer()
    for event, (value, headers, _) in UNREADABLE.items():
        producer.produce("unreadable", value, event,
                         headers={"event-id": event} if headers is None else headers)
    producer.flush(e2e.PATIENCE)
    story.broker.send("unreadable", (None, None))
    amount = "12.3456789012345678901"
    story.broker.send("unreadable", ("readable", '{"refund": "exact", "amount": %s}' % amount))
    story.asked_for["acme/REFUND/exact"] = float(amount)
    consumer = story.refunds("unreadable-1", "unreadable")
    story.reaches("refunds", "unreadable", len(UNREADABLE) + 2)
    e2e.equal(dict(story.database.rows(
        "SELECT convert_from(decode(record->>'key', 'base64'), 'UTF8'), outcome FROM parked"
        " WHERE record->>'topic' = 'unreadable'")),
              {event: found for event, (_, _, found) in UNREADABLE.items()},
              "what cannot be read, now or ever, is parked, and holds nobody up")
    e2e.equal(story.database.value(
        "SELECT decode(record->>'value', 'base64') FROM parked WHERE outcome = %s",
        "UnicodeDecodeError"), b"\xff", "as it came")
    e2e.equal(story.database.rows(
        "SELECT refund_event.amount::text, params->>'amount' FROM idem_action"
        " JOIN refund_event ON refund_event.key = idem_action.key::text WHERE event = 'readable'"),
        [(amount, amount)], "what comes after it is not rounded")
    e2e.ok(consumer.is_running(), "the consumer outlives all of it")
    consumer.stop()


def replaced_behind_its_back(story):
    """Somebody was assigned a partition and died; the group never hears of it."""
    story.broker.create("usurped")
    consumer = story.stock("usurped-1", "usurped")
    story.broker.send("usurped", *pieces("book"))
    story.done("usurped", 0)
    story.database.rows("SELECT idem_progress_assign(key, epoch) FROM idem_progress"
                        " WHERE key = 'acme/stock/usurped/0'")
    story.broker.send("usurped", *pieces("book", "pen"))
    story.done("usurped", 0, 1, 2)
    e2e.ok("is not the newest" in consumer.printed(),
           "who was replaced and is not told so by the broker is assigned the partition again")
    story.hold()
    story.broker.send("usurped", *pieces("slow-usurped-1"))
    e2e.wait_for("the slow one", lambda: story.is_slow("usurped-1"))
    story.database.rows("SELECT idem_progress_assign(key, epoch) FROM idem_progress"
                        " WHERE key = 'acme/stock/usurped/0'")
    story.release()
    story.done("usurped", 0, 1, 2, 3)
    e2e.ok(True, "also if only a worker learns of it, and no record follows")
    consumer.stop()


def restored_to_an_earlier_moment(story):
    story.broker.create("restored")
    consumer = story.stock("restored-1", "restored", "broker")
    story.broker.send("restored", *pieces("book", "pen"))
    story.committed("restored", 2)
    consumer.stop()
    # as if the database had failed over to a standby that had not got the last commit
    story.database.rows("DELETE FROM movement WHERE topic = 'restored' AND record = 1"
                        " RETURNING record")
    story.database.rows("UPDATE idem_progress SET position = 1, delivered = 1, lowest = 1"
                        " WHERE key = 'acme/stock/restored/0' RETURNING key")
    consumer = story.stock("restored-2", "restored", "broker")
    story.done("restored", 0, 1)
    e2e.equal(story.moved("restored"), [(0, "restored-1"), (1, "restored-2")],
              "a database that lost commits gets the records again, whatever the broker was told")
    consumer.stop()


def killed_before_it_commits_to_the_broker(story):
    story.broker.create("unacked")
    first = story.stock("unacked-1", "unacked", "broker", "3600")
    story.broker.send("unacked", *pieces("book", "book", "book"))
    story.done("unacked", 0, 1, 2)
    first.kill()
    e2e.equal(story.broker.committed("unacked-broker", "unacked"), None,
              "a consumer dies after the database's COMMIT; the broker knows of nothing")
    story.broker.send("unacked", *pieces("pen"))
    second = story.stock("unacked-2", "unacked", "broker")
    story.committed("unacked", 4)
    e2e.equal(story.moved("unacked"), [(0, "unacked-1"), (1, "unacked-1"), (2, "unacked-1"),
                                       (3, "unacked-2")],
              "all comes again, and only what is new is done")
    second.stop()


def starts_from_the_database(story):
    story.broker.create("stored")
    story.hold()
    first = story.stock("stored-1", "stored")
    story.broker.send("stored", *pieces("book", "slow-stored-1", *["pen"] * 4))
    story.done("stored", 0, 2, 3, 4)
    e2e.wait_for("the slow one", lambda: story.is_slow("stored-1"))
    e2e.equal(story.progress("stock", "stored"), 1,
              "two workers of a partition pass a slow one; nothing behind it is committable")
    first.kill()
    story.release()
    second = story.stock("stored-2", "stored")
    story.done("stored", *range(6))
    e2e.equal([who for record, who in story.moved("stored")],
              ["stored-1", "stored-2", "stored-1", "stored-1", "stored-1", "stored-2"],
              "who starts from the offset in the database does what is left, and nothing twice")
    story.reaches("stock", "stored", 6)
    e2e.equal(story.broker.committed("stored-database", "stored"), None,
              "without a single commit to the broker")
    second.stop()


def out_of_order(story):
    story.broker.create("parallel")
    story.hold()
    consumer = story.stock("parallel-1", "parallel", "broker")
    story.broker.send("parallel", *pieces("book", "slow-parallel-1", *["pen"] * 20))
    passed = [offset for offset in range(22) if offset % 4 != 1]
    story.done("parallel", *passed)
    story.committed("parallel", 1)
    e2e.ok(True, "%d of 22 are done, and the broker is told of the one before the slow one"
           % len(passed))
    time.sleep(0.5)
    e2e.equal(story.broker.committed("parallel-broker", "parallel"), 1, "for as long as it takes")
    story.release()
    story.committed("parallel", 22)
    e2e.equal([record for record, who in story.moved("parallel")], list(range(22)),
              "then of all of them")
    consumer.stop()


def replaced_and_still_writing(story):
    story.broker.create("fenced")
    story.hold()
    old = story.stock("fenced-1", "fenced")
    story.broker.send("fenced", *pieces("slow-fenced-1"))
    e2e.wait_for("the slow one", lambda: story.is_slow("fenced-1"))
    old.freeze()
    new = story.stock("fenced-2", "fenced")
    story.done("fenced", 0)
    story.release()
    e2e.equal(story.moved("fenced"), [(0, "fenced-2")],
              "after a rebalance the new owner does what the old one has begun")
    e2e.equal(story.database.value("SELECT count(*) FROM pg_stat_activity WHERE"
                                   " application_name = 'fenced-1' AND xact_start IS NOT NULL"), 1,
              "while the old one's transaction is open, with its row")
    old.signal(signal.SIGCONT)
    e2e.wait_for("the refusal", lambda: "is not the newest" in old.printed())
    e2e.equal(story.moved("fenced"), [(0, "fenced-2")],
              "the old owner goes on, is refused, and its row rolls back")
    story.broker.send("fenced", *pieces("pen"))
    story.done("fenced", 0, 1)
    new.stop()
    story.broker.send("fenced", *pieces("pen"))
    story.done("fenced", 0, 1, 2)
    e2e.equal(story.moved("fenced")[2], (2, "fenced-1"), "and it is an owner again later")
    old.stop()


def aborted_transactions(story):
    story.broker.create("aborted")
    producer = story.broker.producer(transactional_id="aborted-1")
    producer.init_transactions(e2e.PATIENCE)
    offsets = []
    for end in (producer.commit_transaction, producer.abort_transaction,
                producer.commit_transaction):
        producer.begin_transaction()
        offsets += story.broker.send("aborted", *pieces("book", "pen"), producer=producer)
        end(e2e.PATIENCE)
    e2e.equal(offsets, [0, 1, 3, 4, 6, 7], "each transaction leaves a mark in the log")
    consumer = story.stock("aborted-1", "aborted", "broker")
    story.committed("aborted", 8)
    e2e.equal(story.moved("aborted"), [(record, "aborted-1") for record in (0, 1, 6, 7)],
              "what was aborted is not delivered, and holds nothing back")
    consumer.kill()
    story.broker.send("aborted", *pieces("book"))
    consumer = story.stock("aborted-2", "aborted", "broker")
    story.committed("aborted", 10)
    e2e.equal(story.moved("aborted")[4:], [(9, "aborted-2")],
              "nor does the mark at the end, over which the next one starts")
    consumer.stop()


def compacted(story):
    story.broker.create("compacted", cleanup_policy="compact", segment_ms="100",
                        min_cleanable_dirty_ratio="0.01", min_compaction_lag_ms="0",
                        max_compaction_lag_ms="1000")
    story.hold()
    first = story.stock("compacted-1", "compacted")
    story.broker.send("compacted", ("a", "slow-compacted-1"), ("b", "book"), ("d", "book"))
    story.done("compacted", 1, 2)
    e2e.equal(story.progress("stock", "compacted"), 0, "record 0 is delivered, and not done")
    first.kill()
    story.release()

    def is_compacted():
        story.broker.send("compacted", ("a", "pen"), ("d", "pen"))
        return story.broker.records("compacted")[0][0] > 0

    e2e.wait_for("the cleaner", is_compacted)
    last = story.broker.send("compacted", ("z", "end"))[0]
    second = story.stock("compacted-2", "compacted")
    story.reaches("stock", "compacted", last + 1)
    moved = story.moved("compacted")
    e2e.equal((0 not in dict(moved), moved[:2], len(dict(moved)) == len(moved)),
              (True, [(1, "compacted-1"), (2, "compacted-1")], True),
              "it is compacted away, comes never again, and does not hold the next owner back")
    e2e.equal(story.database.rows("SELECT * FROM idem_progress_open"), [], "nothing is left open")
    second.stop()


def recreated(story):
    story.broker.create("again")
    consumer = story.stock("again-1", "again")
    story.broker.send("again", *pieces(*["old"] * 6))
    story.reaches("stock", "again", 6)
    story.broker.delete("again")
    story.broker.create("again")
    # it notices by itself: nothing is to be sent before
    e2e.wait_for("a new epoch", lambda: story.database.value(
        "SELECT cardinality(former_epochs) FROM idem_progress WHERE key = 'acme/stock/again/0'")
                 == 1)
    story.broker.send("again", *pieces(*["new"] * 8))
    story.reaches("stock", "again", 8)
    e2e.equal(story.database.rows("SELECT item, array_agg(record ORDER BY record) FROM movement"
                                  " WHERE topic = 'again' GROUP BY item ORDER BY item"),
              [("new", list(range(8))), ("old", list(range(6)))],
              "a topic that was created anew is another one: offset 5 has not been seen")
    consumer.stop()


def consume_transform_produce(story):
    story.broker.create("orders")
    story.broker.create("invoices")

    def transform(name, mode):
        return e2e.Child(name, [sys.executable, "-B", os.path.join(HERE, "transform.py"), mode,
                                story.broker.address], kafkabroker.PYTHON,
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def hears(child, wanted):
        found = child.process.stdout.readline().strip()
        if found != wanted:
            raise e2e.Trouble("%s instead of %s\n%s" % (found, wanted, child.printed()))

    def goes_on(child):
        child.process.stdin.write("\n")
        child.process.stdin.flush()

    story.broker.send("orders", ("o-1", "book"))
    first = transform("transform-1", "database-first")
    hears(first, "database")
    first.kill()
    e2e.equal(story.broker.records("invoices"), [],
              "killed between two commits: the database has committed, Kafka aborts")
    second = transform("transform-2", "database-first")
    hears(second, "database")
    goes_on(second)
    hears(second, "kafka")
    second.kill()
    found = [value for offset, value in story.broker.records("invoices")]
    e2e.equal(found, [b"1"], "the record comes again; Kafka shows its readers one invoice")
    e2e.equal(story.database.value("SELECT count(*) FROM plain_invoice"), 2,
              "but a plain row beside it is there twice")
    e2e.equal(story.database.column("SELECT number FROM invoice"), [1],
              "only the inbox stops that, and its result makes both sides agree")

    story.broker.send("orders", ("o-2", "book"))
    third = transform("transform-3", "kafka-first")
    hears(third, "kafka")
    third.kill()
    fourth = transform("transform-4", "database-first")
    story.broker.send("orders", ("o-3", "book"))
    hears(fourth, "database")
    fourth.kill()
    e2e.equal(len(story.broker.records("invoices")), 2,
              "killed between the commits in the other order: Kafka has the invoice")
    e2e.equal(story.database.column("SELECT order_id FROM invoice ORDER BY 1"), ["o-1", "o-3"],
              "and the database never will, for the order does not come again")


def story_of_all():
    story = Story()
    for part in (producer_resends, sender_dies_before_it_hears, never_sendable, unreadable,
                 replaced_behind_its_back, restored_to_an_earlier_moment,
                 killed_before_it_commits_to_the_broker, starts_from_the_database, out_of_order,
                 replaced_and_still_writing, aborted_transactions, compacted, recreated,
                 consume_transform_produce, at_random.everything_at_random):
        began = time.monotonic()
        try:
            part(story)
        except Exception:
            for child in {child.name: child for child in e2e.started}.values():
                e2e.note("%s:\n%s" % (child.name, child.printed(8)))
            raise
        e2e.note("%s: %.0f s" % (part.__name__.replace("_", " "), time.monotonic() - began))


e2e.main(story_of_all)
