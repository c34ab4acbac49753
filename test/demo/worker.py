#!/usr/bin/env python3
"""
worker.py: a refund consumer, for a channel that can be asked by key.

    python3 worker.py NAME HOST:PORT LEASE_SECONDS

For each line "take" of its standard input it takes a message from the queue of
broker.py, {"refund": "r-17", "params": {...}}, and handles it.  What it meets it
writes to its standard output, one JSON object a line.  The last line for a message
has the event "done" and says what became of it; if there is none, the only line has
the event "empty".

It may act on a grant only after the claim has been committed, it never calls
the channel once its lease has passed by its own clock, and it never calls
again where the verdict says to verify.
"""

import http.client
import json
import os
import sys
import time
from urllib.parse import quote

import broker
from psql import Session, SqlError, literal

CALL_TIMEOUT = 30                           # seconds
NO_ANSWER = (OSError, http.client.HTTPException)

# what becomes of the message when nothing is left to do
MESSAGE = {"accepted": "ack", "succeeded": "ack", "rejected": "ack", "busy": "keep",
           "review": "park", "conflict": "dead-letter", "expired": "park"}


def tell(event, **facts):
    print(json.dumps(dict(facts, event=event)), flush=True)


class ChannelClient:
    """Asks the channel; raises one of NO_ANSWER when none came."""

    def __init__(self, address):
        self.address = address

    def request(self, method, path, body=None, headers={}):
        connection = http.client.HTTPConnection(self.address, timeout=CALL_TIMEOUT)
        try:
            connection.request(method, path, body=body, headers=headers)
            response = connection.getresponse()
            return response.status, json.loads(response.read())
        finally:
            connection.close()

    def pay(self, key, params):
        return self.request("POST", "/refunds", json.dumps(params), {"Idempotency-Key": key})

    def find(self, key):
        return self.request("GET", "/refunds/" + quote(key, safe=""))


class Worker:
    def __init__(self, name, address, lease):
        self.name = name
        self.lease = lease                  # seconds
        self.channel = ChannelClient(address)
        self.session = Session(name)

    def handle(self, delivery):
        """Handles one delivery; what becomes of the message."""
        key = "acme/REFUND/" + delivery["refund"]
        params = delivery["params"]
        asked_at = time.monotonic()         # before the claim is sent: no later than the grant
        verdict = self.ask("idem_claim", key, params, owner=self.name, lease="%g s" % self.lease)
        while verdict["outcome"] == "verify":
            try:
                status, answer = self.channel.find(key)
            except NO_ANSWER:
                tell("no answer")
                return "keep"               # the lease will pass, and somebody asks again
            tell("answer", status=status, answer=answer)
            if status == 200:
                return self.store(key, params, verdict, answer)
            if status != 404:
                return "keep"
            asked_at = time.monotonic()
            verdict = self.ask("idem_absent", key, verdict["generation"])
        if verdict["outcome"] == "execute":
            return self.execute(key, params, verdict, asked_at)
        return MESSAGE[verdict["outcome"]]

    def ask(self, function, *arguments, **named):
        """A verdict.  It is committed when it arrives, so a grant may be acted on."""
        verdict = self.session.call(function, *arguments, **named)
        tell("verdict", **verdict)
        return verdict

    def execute(self, key, params, verdict, asked_at):
        if time.monotonic() - asked_at >= self.lease:
            self.session.call("idem_release", key, verdict["generation"])
            return "keep"
        try:
            # the recorded parameters: a call that may be repeated must say the same again
            status, answer = self.channel.pay(key, verdict["params"])
        except NO_ANSWER:
            tell("no answer")
            self.session.call("idem_mark_unknown", key, verdict["generation"])
            return "keep"
        tell("answer", status=status, answer=answer)
        if status == 201:
            return self.store(key, params, verdict, answer)
        if status == 503:                   # this channel promises that it did nothing
            self.session.call("idem_release", key, verdict["generation"])
            return "keep"
        self.session.call("idem_reject", key, verdict["generation"], answer)
        return "ack"

    def store(self, key, params, verdict, answer):
        """The application's own row and the completed action, in one transaction."""
        reference = answer["reference"]
        try:
            self.session.transaction(
                "SELECT idem_complete(%s, %s, %s, %s)"
                % (literal(key), literal(verdict["generation"]), literal({"reference": reference}),
                   literal(reference)),
                "INSERT INTO refund_entry VALUES (%s, %s, %s)"
                % (literal(key), literal(params["amount"]), literal(reference)))
        except SqlError as error:
            tell("refused", sqlstate=error.sqlstate, text=str(error))
            return "keep"
        tell("stored", reference=reference)
        return "ack"


def main():
    if len(sys.argv) != 4:
        sys.exit("usage: worker.py NAME HOST:PORT LEASE_SECONDS")
    worker = Worker(sys.argv[1], sys.argv[2], float(sys.argv[3]))
    queue = broker.open_queue(worker.session, worker.name, worker.lease)
    tell("ready", processes=[os.getpid(), worker.session.process.pid])
    for _ in sys.stdin:
        message = queue.take()
        if message is None:
            tell("empty")
            continue
        what = worker.handle(message)
        queue.settle(what)
        tell("done", message=what)
    worker.session.close()


if __name__ == "__main__":
    main()
