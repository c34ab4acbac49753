"""
e2e.py: what the stories of test/e2e share.

    import e2e

    def story():
        broker = e2e.Server("redis", lambda port: ["redis-server", "--port", str(port), ...],
                            lambda port: ping(port))
        e2e.equal(found, wanted, "what must hold")

    e2e.main(story)

main() runs the story, prints what TAP needs at the end, stops every child process, and ends
with 0 when nothing failed.  An exception in the story is a failure.

    ok, equal, note                 TAP
    random_numbers                  seeded; the seed is printed, and E2E_SEED repeats a run
    Child, Server                   processes on loopback, stopped at the end whatever happens
    Channel                         the payment provider of test/demo/channel.py, with its faults
    Faults                          what happens at random, and how often it did
    wait_for                        until something holds
    query, execute, crash_server    the throwaway database, as its superuser
    audit                           whether everybody's books agree at the end

It needs nothing but Python and psql.  Files of a story belong into directory().
"""

import atexit
import glob
import http.client
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
import traceback

import books

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.normpath(os.path.join(HERE, "..", "..", ".."))
PATIENCE = 60                               # seconds for anything that must come


class Trouble(Exception):
    """The story cannot go on."""


def directory():
    return os.environ["E2E_DIR"]


def downloads():
    """What the story's program fetch got."""
    return os.environ["E2E_DOWNLOADS"]


# ---- TAP ----

class Count:
    tests = 0
    failed = 0


def note(text):
    for line in str(text).splitlines():
        print("# " + line, flush=True)


def ok(condition, name):
    Count.tests += 1
    Count.failed += 0 if condition else 1
    print("%s %d - %s" % ("ok" if condition else "not ok", Count.tests, name), flush=True)
    return bool(condition)


def equal(found, wanted, name):
    if not ok(found == wanted, name):
        note("found:  %r" % (found,))
        note("wanted: %r" % (wanted,))
        return False
    return True


def main(story):
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(143))
    try:
        story()
    except Exception:
        note(traceback.format_exc())
        ok(False, "the story comes to its end")
    finally:
        stop_children()
    print("1..%d" % Count.tests, flush=True)
    sys.exit(1 if Count.failed or not Count.tests else 0)


def random_numbers():
    seed = int(os.environ.get("E2E_SEED") or random.SystemRandom().randrange(1000000))
    note("seed %d; E2E_SEED=%d repeats it" % (seed, seed))
    return random.Random(seed)


def wait_for(what, condition, seconds=PATIENCE):
    """What the condition returns, once that is true."""
    end = time.monotonic() + seconds
    while True:
        found = condition()
        if found:
            return found
        if time.monotonic() > end:
            raise Trouble("%s: not within %s seconds" % (what, seconds))
        time.sleep(0.05)


# ---- processes ----

started = []


def stop_children():
    for child in reversed(started):
        child.stop()


atexit.register(stop_children)


class Child:
    """
    A process of the story, in a session of its own; what it prints is in .log, unless stdin
    or stdout are given as for subprocess.Popen: then .process has the pipes.
    """

    def __init__(self, name, command, environment=None, stdin=subprocess.DEVNULL, stdout=None,
                 text=True):
        self.name = name
        self.log = os.path.join(directory(), name + ".log")
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                command, stdin=stdin, stdout=stdout or log, stderr=log, text=text,
                cwd=directory(), env=dict(os.environ, **(environment or {})),
                start_new_session=True)
        started.append(self)

    def is_running(self):
        return self.process.poll() is None

    def signal(self, number):
        """To the process and its children, of which some may outlive it."""
        try:
            os.killpg(self.process.pid, number)
        except ProcessLookupError:
            pass

    def kill(self):
        """Ends it at once; its exit code."""
        self.signal(signal.SIGKILL)
        return self.wait()

    def crash(self):
        """The same as a fault of the story: it must not have ended by itself before."""
        code = self.kill()
        if code != -signal.SIGKILL:
            raise Trouble("%s has ended by itself: %d\n%s" % (self.name, code, self.printed()))

    def freeze(self):
        """Until it is sent SIGCONT; when this returns, none of its threads runs any more."""
        self.signal(signal.SIGSTOP)
        wait_for("the rest of %s" % self.name, self.is_frozen)

    def is_frozen(self):
        return set(self.thread_states()) == {"T"}

    def thread_states(self):
        """A letter each, as ps has it."""
        for path in glob.glob("/proc/%d/task/*/stat" % self.process.pid):
            try:
                with open(path) as file:
                    yield file.read().rpartition(")")[2].split()[0]
            except OSError:
                pass                        # it has just ended

    def stop(self, seconds=10):
        if self.is_running():
            self.signal(signal.SIGTERM)
            self.signal(signal.SIGCONT)
            try:
                self.process.wait(timeout=seconds)
            except subprocess.TimeoutExpired:
                pass
        self.kill()

    def wait(self, seconds=PATIENCE):
        """Its exit code."""
        try:
            return self.process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            raise Trouble("%s does not end\n%s" % (self.name, self.printed())) from None

    def printed(self, lines=40):
        """The last of what it printed."""
        with open(self.log, errors="replace") as log:
            return "".join(log.readlines()[-lines:])


class Server:
    """
    A server on 127.0.0.1, on a port that was free a moment before: another one is tried if
    somebody else was faster.  command(port) is its command line, answers(port) tells whether it
    can be used; it may raise OSError as long as there is nobody.  start() after kill() or stop()
    is a restart on the same port.
    """

    def __init__(self, name, command, answers, environment=None, seconds=PATIENCE):
        self.name = name
        self.command = command
        self.answers = answers
        self.environment = environment
        self.seconds = seconds
        self.child = None
        for _ in range(3):
            self.port = free_port()
            if self.try_start():
                return
        raise Trouble("%s does not start\n%s" % (name, self.child.printed()))

    def try_start(self):
        """False if it ended before it could be used."""
        self.child = Child(self.name, self.command(self.port), self.environment)
        wait_for("an answer of " + self.name,
                 lambda: not self.child.is_running() or self.does_answer(), self.seconds)
        return self.child.is_running()

    def does_answer(self):
        try:
            return self.answers(self.port)
        except OSError:
            return False

    def start(self):
        if not self.try_start():
            raise Trouble("%s does not start again\n%s" % (self.name, self.child.printed()))

    def kill(self):
        self.child.kill()

    def stop(self):
        self.child.stop()


def free_port():
    """
    Below the ports that the kernel gives to outgoing connections: one of these could take it
    while a server restarts, even one that asks whether the server is there (it then talks to
    itself).
    """
    while True:
        with socket.socket() as found:
            port = random.SystemRandom().randrange(20000, 32000)
            try:
                found.bind(("127.0.0.1", port))
                return port
            except OSError:
                pass                        # somebody has it


def accepts(port):
    """Whether anybody listens: for a server that says no more about being ready."""
    with socket.create_connection(("127.0.0.1", port), timeout=1):
        return True


class Channel:
    """
    The payment provider: what it paid outlives kill() and start().  A forgetful one pays
    whenever it is asked to, so that a second call is seen in its ledger.
    """

    def __init__(self, name="channel", is_forgetful=False):
        self.name = name
        self.is_forgetful = is_forgetful
        self.ordered = 0                    # requests that are to meet a fault
        self.start()

    def start(self):
        """It chooses another port each time: workers are to be told .address."""
        self.child = Child(
            self.name, [sys.executable, "-B", os.path.join(SOURCE, "test", "demo", "channel.py"),
                        os.path.join(directory(), self.name + "-ledger")]
            + ["forgetful"] * self.is_forgetful, stdout=subprocess.PIPE)
        line = self.child.process.stdout.readline()
        if not line.startswith("listening on "):
            raise Trouble("the channel does not start\n" + self.child.printed())
        self.address = line.split()[-1]

    def kill(self):
        self.child.kill()

    def request(self, method, path, body=None, headers=None):
        """Status and answer."""
        connection = http.client.HTTPConnection(self.address, timeout=PATIENCE)
        try:
            connection.request(method, path, None if body is None else json.dumps(body),
                               headers or {})
            response = connection.getresponse()
            return response.status, json.loads(response.read())
        finally:
            connection.close()

    def order(self, **order):
        """Orders a fault, as told in channel.py; the state of its orders."""
        if "fault" in order:
            self.ordered += order.get("times", 1)
        if "reset" in order:
            self.ordered = self.met()
        return self.request("POST", "/control", order)[1]

    def met(self):
        """How many requests have met a fault."""
        return self.ordered - sum(fault["times"] for fault in self.order()["faults"])

    def ledger(self):
        return self.request("GET", "/refunds")[1]


class Faults:
    """
    What may happen, by name: functions that do it, and return how often it has really happened.
    All of them happen, in random order, before one happens again.
    """

    def __init__(self, numbers, faults):
        self.numbers = numbers
        self.faults = faults
        self.counts = dict.fromkeys(faults, 0)
        self.next = []

    def strike(self):
        if not self.next:
            self.next = self.numbers.sample(sorted(self.faults), len(self.faults))
        fault = self.next.pop()
        self.counts[fault] += self.faults[fault]()

    def have_happened(self, times):
        """Each of them, so often or more."""
        note(", ".join("%d × %s" % (count, fault) for fault, count in sorted(self.counts.items())))
        return ok(min(self.counts.values()) >= times,
                  "each of the faults has happened %d times, or more" % times)


# ---- the database, as its superuser ----

def execute(statements, variables=()):
    """Runs SQL, all in one transaction; what psql prints, unaligned."""
    done = subprocess.run(
        ["psql", "-XqAt", "-v", "ON_ERROR_STOP=1", "-v", "VERBOSITY=verbose", "-1", "-f", "-"]
        + [word for pair in variables for word in ("-v", "%s=%s" % pair)],
        input=statements, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    if done.returncode != 0:
        raise Trouble("%s\n%s" % (statements, done.stdout))
    return done.stdout


def query(statement):
    """The rows of a SELECT, each a dictionary."""
    return json.loads(execute("SELECT coalesce(json_agg(q), '[]') FROM (%s) AS q;" % statement))


def database_answers():
    return subprocess.run(["psql", "-XqAt", "-c", "SELECT 1"], stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL, check=False).returncode == 0


def checkpointer():
    return query("SELECT pid FROM pg_stat_activity WHERE backend_type = 'checkpointer'")[0]["pid"]


def crash_server():
    """One server process is killed; the others end at once, and the server recovers."""
    process = checkpointer()
    os.kill(process, signal.SIGKILL)
    wait_for("the end of the server processes", lambda: not os.path.exists("/proc/%d" % process))
    wait_for("recovery", database_answers)
    if checkpointer() == process:
        raise Trouble("the server has not crashed")


# ---- the end of a story ----

def granted_again(operation):
    """How many actions more than one attempt was granted."""
    return query("SELECT count(*) AS n FROM (SELECT FROM idem_evidence"
                 " WHERE outcome IN ('execute', 'repeat', 'verify')"
                 " AND idem_key_operation(key) = '%s' GROUP BY key HAVING count(*) > 1) AS again"
                 % operation)[0]["n"]


def disagreements(operation, requests, paid, entries, may_be_in_review=False):
    """What audit() finds, a sentence each."""
    of_operation = "idem_key_operation(key) = '%s'" % operation
    return books.disagreements(
        requests,
        query("SELECT key, state, generation, channel_ref FROM idem_action WHERE " + of_operation),
        query("SELECT key, call, state, generation, channel_ref FROM idem_evidence WHERE "
              + of_operation + " ORDER BY key, recorded_at"),
        query("SELECT key FROM idem_lease WHERE " + of_operation),
        paid, query(entries), may_be_in_review) + [
            "%(key)s: %(kind)s" % row for row in query("SELECT kind, key FROM idem_violations")]


def audit(operation, requests, paid, entries, may_be_in_review=False):
    """
    Whether the books agree (books.py says when), and idem_violations is empty.  requests: the
    amount of every refund that was asked for, by key.  paid: the channel's ledger.  entries: the
    SELECT of the application's ledger, with the columns key, amount, reference.
    """
    found = disagreements(operation, requests, paid, entries, may_be_in_review)
    for line in found[:20]:
        note(line)
    if len(found) > 20:
        note("and %d more" % (len(found) - 20))
    return ok(not found, "%s: channel, application, actions and evidence agree on %d refunds"
              % (operation, len(requests)))
