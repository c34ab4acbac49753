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


def more(book, **values):
    """Once more what the book says last, but for some values."""
    found = good_books()
    found[book].append(dict(found[book][-1], **values))
    return found


def changed(book, **values):
    found = good_books()
    found[book][-1].update(values)
    return found


def without(*of, found=None):
    found = found or good_books()
    return dict(found, **{book: type(found[book])() for book in of})


def unpaid(state):
    return without("paid", "entries", found=with_state(state))


LOST = "lost, it was asked for and is not on record"
NOT_ASKED_FOR = ", but nobody asked for it"
SEVERAL = "several references: re_1, re_2"
# what is wrong: the books, and what the audit says of them, without the key
WRONG = {
    "paid twice": (more("paid"), ["succeeded, and paid 2 times"]),
    "paid twice, under two references": (
        more("paid", reference="re_2"), ["succeeded, and paid 2 times", SEVERAL]),
    "never paid": (without("paid"), ["succeeded, and paid 0 times"]),
    "booked twice": (more("entries"), ["succeeded, and booked 2 times"]),
    "never booked": (without("entries"), ["succeeded, and booked 0 times"]),
    "lost": (without("actions", "evidence", "paid", "entries"), [LOST]),
    "paid, and not on record": (without("actions", "evidence", "entries"), [LOST]),
    "without evidence": (without("evidence"), [
        "its evidence does not name the reference re_1",
        "its evidence does not lead to succeeded"]),
    "on record, and not asked for": (
        without("requests", "evidence", "paid", "entries"), ["in the record" + NOT_ASKED_FOR]),
    "in the evidence, and not asked for": (
        without("requests", "actions", "paid", "entries"), ["in the evidence" + NOT_ASKED_FOR]),
    "paid, and not asked for": (
        without("requests", "actions", "evidence", "entries"), ["in the channel" + NOT_ASKED_FOR]),
    "booked, and not asked for": (
        without("requests", "actions", "evidence", "paid"),
        ["in the application" + NOT_ASKED_FOR]),
    "leased, and not asked for": (
        dict(without(*good_books()), leases=[{"key": KEY}]), ["in the lease" + NOT_ASKED_FOR]),
    "rejected and paid": (
        without("entries", found=with_state("rejected")), ["rejected, and paid 1 times"]),
    "rejected and booked": (
        without("paid", found=with_state("rejected")), ["rejected, and booked 1 times"]),
    "in flight": (unpaid("processing"), ["still processing"]),
    "in flight, and paid": (without("entries", found=with_state("unknown")),
                            ["still unknown", "unknown, and paid 1 times"]),
    "in review where that may not be": (unpaid("review"), ["still review"]),
    "another amount paid": (changed("paid", request={"amount": 100}),
                            ["amount 10 was asked for, 100 was paid"]),
    "another amount booked": (changed("entries", amount="1.00"),
                              ["amount 10 was asked for, 1.00 was booked"]),
    "another reference paid": (changed("paid", reference="re_2"), [SEVERAL]),
    "another reference booked": (changed("entries", reference="re_2"), [SEVERAL]),
    "another reference on record": (changed("actions", channel_ref="re_2"), [
        "its evidence does not name the reference re_2", SEVERAL]),
    "another reference in the evidence": (changed("evidence", channel_ref="re_2"), [
        "its evidence does not name the reference re_1", SEVERAL]),
    "one more reference in the evidence": (
        more("evidence", call="evidence", channel_ref="re_2"), [SEVERAL]),
    "evidence of another generation": (
        changed("evidence", generation=1), ["its evidence does not lead to succeeded"]),
    "evidence of another state": (
        changed("evidence", state="unknown"), ["its evidence does not lead to succeeded"]),
    "ended twice": (more("evidence"), ["its evidence ends it 2 times"]),
    "going on after its end": (
        more("evidence", call="claim", state="processing"),
        ["its evidence does not lead to succeeded", "its evidence goes on after succeeded"]),
    "with a lease left over": (
        dict(good_books(), leases=[{"key": KEY}]), ["succeeded, and still has a lease"]),
}


def audit_story():
    for name, good in (
            ("that agree", good_books()),
            ("of a rejected refund that was not paid", unpaid("rejected")),
            ("with late evidence of the same", more("evidence", call="evidence"))):
        e2e.equal(books.disagreements(**good), [], "the audit passes books " + name)
    for name, good in (
            ("not paid", unpaid("review")),
            ("paid once", without("entries", found=with_state("review")))):
        e2e.equal(books.disagreements(**good, may_be_in_review=True), [],
                  "and of one in review, where that may be: " + name)
    e2e.equal(books.disagreements(
        **dict(with_state("review"), paid=more("paid")["paid"]), may_be_in_review=True),
              [KEY + ": review, and paid 2 times", KEY + ": review, and booked 1 times"],
              "which may not be paid twice, nor booked")
    for name, (bad, found) in WRONG.items():
        e2e.equal(books.disagreements(**bad), ["%s: %s" % (KEY, problem) for problem in found],
                  "the audit finds a refund: " + name)


def process_story():
    sleeper = e2e.Child("sleeper", ["sh", "-c", "sleep 1000 & sleep 1000"])
    members = e2e.wait_for("its children",
                           lambda: supervise.children().get(sleeper.process.pid))
    sleeper.crash()
    e2e.equal(sleeper.process.returncode, -signal.SIGKILL, "a child is killed")
    e2e.wait_for("the end of its children", lambda: not alive(members))
    e2e.ok(True, "and its children with it")
    ended = e2e.Child("ended", ["false"])
    ended.wait()
    e2e.ok(has_trouble(ended.crash), "who has ended by himself was not killed")
    busy = e2e.Child("busy", ["sh", "-c", "while :; do :; done"])
    busy.freeze()
    e2e.equal(set(busy.thread_states()), {"T"}, "a child that was frozen does nothing any more")
    busy.crash()

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


def has_trouble(act):
    try:
        act()
        return False
    except e2e.Trouble:
        return True


def alive(processes):
    """Those that have not ended; one that waits to be reaped has."""
    found = {child for children in supervise.children().values() for child in children}
    return [process for process in processes if process in found]


def faults_story():
    happened = []
    faults = e2e.Faults(e2e.random_numbers(), {"hit": lambda: happened.append("hit") or 1,
                                               "miss": lambda: happened.append("miss") or 0})
    for _ in range(6):
        faults.strike()
    e2e.equal([sorted(happened[first:first + 2]) for first in (0, 2, 4)], [["hit", "miss"]] * 3,
              "faults happen in turns")
    e2e.equal(faults.counts, {"hit": 3, "miss": 0}, "and one that hit nothing is not counted")


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
    channel.order(fault="drop", method="POST", times=2)
    try:
        channel.request("POST", "/refunds", {"amount": 10}, {"Idempotency-Key": KEY})
    except OSError:
        pass
    channel.order(reset=True)
    e2e.equal(channel.met(), 1, "a request that met a fault is counted, one that might have is not")
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
    entries = "SELECT key, amount, reference FROM refund"
    e2e.audit("REFUND", {KEY: 10}, channel.ledger(), entries)
    e2e.equal(e2e.disagreements("REFUND", {KEY: 100}, channel.ledger(), entries),
              [KEY + ": amount 100 was asked for, 10 was " + book for book in ("paid", "booked")],
              "the audit reads the books")
    e2e.execute("SELECT idem_add_evidence('%s', NULL, '{}', 're_2')" % KEY)
    e2e.equal(e2e.disagreements("REFUND", {KEY: 10}, channel.ledger(), entries),
              [KEY + ": several references: %s, re_2" % answer["reference"],
               KEY + ": several_references"], "and idem_violations")


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
    faults_story()
    supervise_story()
    database_story()
    random_story()


e2e.main(story)
