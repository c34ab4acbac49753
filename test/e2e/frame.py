#!/usr/bin/env python3
"""
frame.py: the tools of the stories themselves: the audit finds what is wrong, processes
end, the server comes back from a crash.
"""

# minutes: 2

import os
import signal
import subprocess
import sys

import books
import e2e
import supervise

KEY = "acme/REFUND/r-1"


def good_books():
    """The books of one refund that is all right."""
    return {
        "requests": {KEY: 10},
        "actions": [{"key": KEY, "state": "succeeded", "generation": 2, "channel_ref": "re_1"}],
        "evidence": [
            {"key": KEY, "call": "claim", "state": "processing", "generation": 1,
             "channel_ref": None},
            {"key": KEY, "call": "conflict", "state": "processing", "generation": 1,
             "channel_ref": None},
            {"key": KEY, "call": "claim", "state": "processing", "generation": 2,
             "channel_ref": None},
            {"key": KEY, "call": "complete", "state": "succeeded", "generation": 2,
             "channel_ref": "re_1"}],
        "leases": [],
        "paid": [{"key": KEY, "reference": "re_1", "request": {"amount": 10}}],
        "entries": [{"key": KEY, "amount": "10.00", "reference": "re_1"}],
    }


def with_state(state):
    """Books in which the action and the end of its evidence have this state."""
    found = good_books()
    found["actions"][0]["state"] = found["evidence"][-1]["state"] = state
    return found


def doubled(book):
    found = good_books()
    found[book].append(dict(found[book][-1]))
    return found


def changed(book, **values):
    found = good_books()
    found[book][-1].update(values)
    return found


def without(book):
    return dict(good_books(), **{book: type(good_books()[book])()})


def nothing_paid(found):
    return dict(found, paid=[], entries=[])


def audit_story():
    e2e.equal(books.disagreements(**good_books()), [], "the audit passes books that agree")
    e2e.equal(books.disagreements(**nothing_paid(with_state("rejected"))), [],
              "and a rejected refund that was not paid")
    e2e.equal(books.disagreements(**nothing_paid(with_state("review")), may_be_in_review=True), [],
              "and one in review, where that may be")
    for name, bad in (
            ("paid twice", doubled("paid")),
            ("booked twice", doubled("entries")),
            ("never paid", without("paid")),
            ("never booked", without("entries")),
            ("lost", without("actions")),
            ("without evidence", without("evidence")),
            ("never asked for", without("requests")),
            ("rejected and paid", with_state("rejected")),
            ("in flight", nothing_paid(with_state("processing"))),
            ("in review where that may not be", nothing_paid(with_state("review"))),
            ("another amount paid", changed("paid", request={"amount": 100})),
            ("another amount booked", changed("entries", amount=1)),
            ("another reference paid", changed("paid", reference="re_2")),
            ("another reference booked", changed("entries", reference="re_2")),
            ("another reference on record", changed("actions", channel_ref="re_2")),
            ("another reference in the evidence", changed("evidence", channel_ref="re_2",
                                                           call="evidence", state="processing")),
            ("evidence of another generation", changed("evidence", generation=1)),
            ("ended twice", doubled("evidence")),
            ("a lease left over", dict(good_books(), leases=[{"key": KEY}]))):
        e2e.ok(books.disagreements(**bad), "the audit finds a refund: " + name)


def process_story():
    sleeper = e2e.Child("sleeper", ["sh", "-c", "sleep 1000 & sleep 1000"])
    members = e2e.wait_for("its children",
                           lambda: supervise.children().get(sleeper.process.pid))
    e2e.equal(sleeper.kill(), -signal.SIGKILL, "a child is killed")
    e2e.wait_for("the end of its children", lambda: not alive(members))
    e2e.ok(True, "and its children with it")

    taken = []

    def command(port):
        taken.append(port)
        return (["false"] if len(taken) == 1 else
                [sys.executable, "-B", "-m", "http.server", "--bind", "127.0.0.1", str(port)])

    server = e2e.Server("http", command, e2e.accepts)
    e2e.equal(len(taken), 2, "a server that does not start is tried on another port")
    server.kill()
    server.start()
    e2e.ok(e2e.accepts(server.port), "a killed server is started again on its port")
    server.stop()


def alive(processes):
    """Those that have not ended; one that waits to be reaped has."""
    found = {child for children in supervise.children().values() for child in children}
    return [process for process in processes if process in found]


def supervise_story():
    supervise = [sys.executable, "-B", os.path.join(e2e.HERE, "supervise.py")]
    marks = os.path.join(e2e.directory(), "pids")

    def supervised(seconds, script):
        return subprocess.run(supervise + [seconds, "sh", "-c", script.replace("MARKS", marks)],
                              stdout=subprocess.PIPE, text=True, check=False)

    e2e.equal(supervised("60", "true").returncode, 0, "a program that succeeds")
    e2e.equal(supervised("60", "exit 7").returncode, 7, "a program that fails")
    e2e.equal(supervised("1", "sleep 1000").returncode, 1, "a program that takes too long")
    done = supervised("60", "setsid sh -c 'echo $$ >MARKS; exec sleep 1000' &"
                      " until [ -s MARKS ]; do sleep 0.1; done")
    e2e.equal(done.returncode, 1, "a program that leaves a process in another session has failed")
    e2e.ok("sleep 1000" in done.stdout, "which is named")
    with open(marks) as file:
        e2e.equal(alive([int(file.read())]), [], "and ended")


def database_story():
    channel = e2e.Channel()
    e2e.execute("""
        SELECT idem_define_operation('REFUND', effect => 'external', lease => '1 minute');
        CREATE TABLE refund (key text, amount numeric, reference text);""")
    e2e.execute("SELECT idem_claim('%s', '{\"amount\": 10}')" % KEY)
    answer = channel.request("POST", "/refunds", {"amount": 10}, {"Idempotency-Key": KEY})[1]
    channel.kill()
    channel.start()
    e2e.crash_server()
    e2e.equal(e2e.query("SELECT state FROM idem_status('%s')" % KEY), [{"state": "processing"}],
              "the server comes back from a crash")
    e2e.execute("""
        SELECT idem_complete('%s', 1, '{"ok": true}', '%s');
        INSERT INTO refund VALUES ('%s', 10, '%s');"""
                % (KEY, answer["reference"], KEY, answer["reference"]))
    e2e.audit("REFUND", {KEY: 10}, channel.ledger(), "SELECT key, amount, reference FROM refund")


def random_story():
    seed = os.environ.get("E2E_SEED")
    os.environ["E2E_SEED"] = "17"
    e2e.equal(e2e.random_numbers().random(), e2e.random_numbers().random(),
              "a seed repeats the random numbers")
    del os.environ["E2E_SEED"]
    e2e.ok(e2e.random_numbers().random() != e2e.random_numbers().random(),
           "without one, others are taken")
    os.environ["E2E_SEED"] = seed or ""


def story():
    audit_story()
    process_story()
    supervise_story()
    database_story()
    random_story()


e2e.main(story)
