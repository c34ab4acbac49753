#!/usr/bin/env python3
"""
worker.py: takes refunds that are due and has them paid by a channel, once each.

    python3 worker.py OPERATION CHANNEL_HOST:PORT

Run as many as you like, and kill any of them at any time.  Where the database is the
environment says (PGHOST and so on).  dispatcher.md beside this file explains what is done
and why; what you would replace is Channel, and the application's own row in paid().

It needs psycopg 3.  The channel: POST /refunds pays, under the key that it is sent, and
GET /refunds/KEY finds what was paid.
"""

import http.client
import json
import os
import random
import socket
import sys
import threading
import time
from urllib.parse import quote

import psycopg

BATCH = 5                                   # actions claimed at a time
LEASE = float(os.environ.get("WORKER_LEASE", 30))               # seconds, the contract's or less
CALL_TIMEOUT = LEASE / 2                    # seconds; what is left of a lease when a call starts
PAUSE = min(1, LEASE / 4)                   # seconds, when nothing was due
OWNER = "%s:%d" % (socket.gethostname(), os.getpid())

GONE = {"ID002", "ID003", "ID004"}          # somebody else decides, or has decided


class NoAnswer(Exception):
    """Nobody knows whether the channel did what it was asked."""


class TooLate(Exception):
    """The lease had ended before the channel was asked anything."""


class Channel:
    def __init__(self, address):
        self.address = address

    def request(self, method, path, ends_at, body=None, headers={}):
        connection = http.client.HTTPConnection(self.address, timeout=CALL_TIMEOUT)
        # time-outs of a socket begin anew with each byte of an answer
        alarm = threading.Timer(CALL_TIMEOUT, lambda: self.give_up(connection))
        try:
            connection.connect()            # may take long, if only to find the address
            if time.monotonic() >= ends_at:
                raise TooLate
            alarm.start()
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            return response.status, self.read(response.read())
        except (OSError, http.client.HTTPException, ValueError, RecursionError) as error:
            raise NoAnswer(repr(error)) from None
        finally:
            alarm.cancel()
            connection.close()

    @staticmethod
    def give_up(connection):
        try:
            connection.sock.shutdown(socket.SHUT_RDWR)
        except (OSError, AttributeError):
            pass                            # it is over already

    @staticmethod
    def read(body):
        """JSON, of the kind that the database takes too."""
        answer = json.loads(body)
        text = json.dumps(answer, ensure_ascii=False, allow_nan=False)
        text.encode()                       # halves of characters are none
        if "\\u0000" in text:
            raise ValueError("a NUL")
        return answer

    @staticmethod
    def name(key):
        """The key, in characters that a header can carry: the same for both requests."""
        return quote(key, safe="/")

    def pay(self, key, params, ends_at):
        return self.request("POST", "/refunds", ends_at, params.encode(),
                            {"Idempotency-Key": self.name(key)})

    def find(self, key, ends_at):
        return self.request("GET", "/refunds/" + quote(self.name(key), safe=""), ends_at)


def reference_in(answer):
    """What the channel calls the payment, or None where it does not say so."""
    reference = answer.get("reference") if isinstance(answer, dict) else None
    if isinstance(reference, str) and reference.isprintable() and \
            0 < len(reference.encode()) <= 512:
        return reference
    return None


class Database:
    """One connection, made again when it is lost; each call is a transaction of its own."""

    def __init__(self):
        self.connection = None

    def run(self, *statements):
        """Runs (SQL, arguments) in one transaction; the rows of the first, as dictionaries."""
        try:
            if self.connection is None:
                self.connection = psycopg.connect("", autocommit=True,
                                                  row_factory=psycopg.rows.dict_row)
            with self.connection.transaction():
                results = [self.connection.execute(*statement) for statement in statements]
                return results[0].fetchall()
        except psycopg.OperationalError:
            if self.connection is not None:
                self.connection.close()
            self.connection = None
            raise

    def report(self, *statements):
        """
        Says what happened.  Saying it again is no error, so it is said until COMMIT has been
        answered.  None: the action is not ours any more, and nothing was written.
        """
        while True:
            try:
                return self.run(*statements)
            except psycopg.OperationalError:
                time.sleep(PAUSE)
            except psycopg.Error as error:
                if error.sqlstate not in GONE:
                    raise
                return None


class Worker:
    def __init__(self, operation, channel):
        self.operation = operation
        self.channel = channel
        self.database = Database()

    def work(self):
        """Claims what is due, and handles it, for ever."""
        while True:
            asked_at = time.monotonic()     # before the claim is sent: no later than the grant
            try:
                grants = self.database.run((
                    "SELECT key::text, outcome, generation, params::text"
                    " FROM idem_claim_next(%s, %s, %s, make_interval(secs => %s))",
                    (self.operation, BATCH, OWNER, LEASE)))
            except psycopg.OperationalError:
                grants = []                 # what was granted, if it was, will lapse
            # COMMIT was answered: only now the grants are ones
            for grant in grants:
                self.handle(grant, asked_at + LEASE)
            if len(grants) < BATCH:
                time.sleep(PAUSE * random.random())

    def handle(self, grant, ends_at):
        """Does what the verdict says; ends_at is the end of the lease by our own clock."""
        if grant["outcome"] == "verify":
            self.verify(grant, ends_at)
        elif grant["outcome"] in ("execute", "repeat"):
            self.act(grant, ends_at)
        # any other is no grant: it is busy, finished, or waits for a person

    def verify(self, grant, ends_at):
        """An attempt may have paid: ask, and pay only if it is certain that none has."""
        try:
            status, answer = self.channel.find(grant["key"], float("inf"))
        except NoAnswer as error:
            return self.unknown(grant, str(error))
        if status == 200:
            return self.paid(grant, answer)
        if status != 404:
            return self.unknown(grant, answer)
        asked_at = time.monotonic()
        verdicts = self.database.report((
            "SELECT %s AS key, outcome, generation, params::text FROM idem_absent(%s, %s)",
            (grant["key"], grant["key"], grant["generation"])))
        # execute, under a new generation, where the absence is conclusive; else it waits
        for verdict in verdicts or []:
            self.handle(verdict, asked_at + LEASE)

    def act(self, grant, ends_at):
        if time.monotonic() + CALL_TIMEOUT > ends_at:
            ends_at = self.renew(grant)
        try:
            # what is on record, as it is, not what we have in hand: a repetition says the same
            # again, and no number is rounded
            status, answer = self.channel.pay(grant["key"], grant["params"], ends_at)
        except TooLate:                     # no call was made
            return self.release(grant, {"why": "the lease has ended"})
        except NoAnswer as error:
            return self.unknown(grant, str(error))
        if status == 201:
            self.paid(grant, answer)
        elif status in (429, 503):          # the channel promises that it did nothing
            self.release(grant, answer)
        elif status == 403 and grant["outcome"] == "execute":   # nothing was paid, nor will be
            self.report("idem_reject", grant, answer)
        elif status in (400, 403, 422):     # but an earlier call may have paid: a person decides
            self.report("idem_escalate", grant, answer)
        else:
            self.unknown(grant, answer)

    def renew(self, grant):
        """The end of the lease, prolonged, by our own clock; a time that is over if it is not."""
        asked_at = time.monotonic()
        renewed = self.database.report((
            "SELECT extract(epoch FROM idem_renew(%s, %s, make_interval(secs => %s))"
            " - clock_timestamp())::float8 AS seconds",
            (grant["key"], grant["generation"], LEASE)))
        return asked_at + min(LEASE, renewed[0]["seconds"]) if renewed else asked_at

    def paid(self, grant, answer):
        """The action is complete and the application has its row, or neither."""
        key, reference = grant["key"], reference_in(answer)
        if reference is None:
            return self.unknown(grant, answer)
        self.database.report(
            ("SELECT idem_complete(%s, %s, %s::jsonb, %s)",
             (key, grant["generation"], json.dumps({"reference": reference}), reference)),
            ("INSERT INTO refund_entry (key, reference) VALUES (%s, %s) ON CONFLICT DO NOTHING",
             (key, reference)))

    def unknown(self, grant, detail):
        self.report("idem_mark_unknown", grant, detail)

    def release(self, grant, detail):
        self.report("idem_release", grant, detail)

    def report(self, function, grant, detail):
        self.database.report(("SELECT %s(%%s, %%s, %%s::jsonb)" % function,
                              (grant["key"], grant["generation"], json.dumps(detail))))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: worker.py OPERATION CHANNEL_HOST:PORT")
    Worker(sys.argv[1], Channel(sys.argv[2])).work()
