#!/usr/bin/env python3
"""
channel.py: an external system that pays refunds, as a small HTTP service.

It stands for a payment provider in the demo and in tests.  It listens on
127.0.0.1, on a port that the kernel chooses, and says so in its first line of
output: "listening on 127.0.0.1:PORT".  What it has paid stands in its ledger, a
file of one JSON object a line.  A line is on disk before the answer is sent, and
the ledger is read when the service starts, so it outlives a crash of the service.

    python3 channel.py LEDGER [forgetful]

A forgetful channel pays whenever it is asked to: it does not recognize a key that comes
again, which makes a second call seen in the ledger.

The service:

    POST /refunds           header Idempotency-Key: KEY, body {"amount": 10, ...}
        201  {"reference": ..., "key": KEY, "request": ...}: paid, once.  The same key
             with the same body gets the first answer again, and nothing is paid
        422  the key was used with another body
        403  the amount is more than it ever pays, so nothing is paid, now or later
        400  no key, or no JSON object
    GET /refunds/KEY        KEY is percent-encoded, slashes too
        200  what POST answered
        404  no refund was paid under this key
    GET /refunds
        200  the whole ledger, as an array

How it misbehaves is ordered through POST /control with a JSON object.  A fault is
used by the next requests to /refunds with its method, and then gone:

    {"fault": NAME, "method": "POST", "times": 1, "seconds": 1}
        lose     does what was asked, then closes the connection without an answer
        hold     does what was asked, then keeps the answer until it is released
        slow     waits so many seconds, then does what was asked
        drop     closes the connection, having done nothing
        refuse   answers 503, having done nothing
        garble   does what was asked, then answers with "answer", a text, instead
        drip     does what was asked, then sends the answer over so many seconds
    {"release": true}       sends the answers that are held
    {"reset": true}         forgets all faults and releases what is held

Every POST and GET of /control answers with the state:

    {"faults": [...], "held": 1, "received": {"POST": 3, "GET": 1}}

where "received" counts the requests to pay and to find a key, whatever became of
them.
"""

import json
import os
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote

LIMIT = 1000                                # of an amount
FAULTS = ("lose", "hold", "slow", "drop", "refuse", "garble", "drip")


class Ledger:
    """What was paid.  The file is the truth, the rest a copy of it."""

    def __init__(self, path, is_forgetful=False):
        self.lock = threading.Lock()
        self.is_forgetful = is_forgetful
        self.lines = []                     # all that was paid
        self.entries = {}                   # by key, what was paid last
        self.file = open(path, "ab+")
        self.file.seek(0)
        end = 0
        for line in self.file:
            if not line.endswith(b"\n"):
                break                       # the service died while it wrote this line
            self.remember(json.loads(line))
            end += len(line)
        self.file.truncate(end)

    def remember(self, entry):
        self.lines.append(entry)
        self.entries[entry["key"]] = entry

    def pay(self, key, request):
        """The entry of the key; it is made unless it is there, and recognized."""
        with self.lock:
            entry = None if self.is_forgetful else self.entries.get(key)
            if entry is None:
                reference = "re_%06d" % (len(self.lines) + 1)
                entry = {"reference": reference, "key": key, "request": request}
                self.file.write(json.dumps(entry).encode() + b"\n")
                self.file.flush()
                os.fsync(self.file.fileno())
                self.remember(entry)
            return entry

    def find(self, key):
        with self.lock:
            return self.entries.get(key)

    def all(self):
        with self.lock:
            return list(self.lines)


class Control:
    """The faults that were ordered, and the answers that are held."""

    def __init__(self):
        self.changed = threading.Condition()
        self.faults = []
        self.held = 0
        self.releases = 0                   # answers held before the last release may go
        self.received = {"POST": 0, "GET": 0}

    def order(self, order):
        """Carries out an order; false when it is not understood."""
        with self.changed:
            if order.get("reset"):
                self.faults.clear()
            if order.get("reset") or order.get("release"):
                self.releases += 1
                self.changed.notify_all()
                return True
            if order.get("fault") not in FAULTS or order.get("method", "POST") not in self.received:
                return False
            self.faults.append({"fault": order["fault"], "method": order.get("method", "POST"),
                                "times": order.get("times", 1), "seconds": order.get("seconds", 1),
                                "answer": order.get("answer", "")})
            return True

    def state(self):
        with self.changed:
            return {"faults": [dict(fault) for fault in self.faults], "held": self.held,
                    "received": dict(self.received)}

    def receive(self, method):
        """Counts a request; the fault it meets, or None."""
        with self.changed:
            self.received[method] += 1
            for fault in self.faults:
                if fault["method"] == method:
                    fault["times"] -= 1
                    if fault["times"] == 0:
                        self.faults.remove(fault)
                    return fault
            return None

    def hold(self):
        """Returns when the answer may be sent."""
        with self.changed:
            releases = self.releases
            self.held += 1
            self.changed.wait_for(lambda: self.releases > releases)
            self.held -= 1


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.body()
        if self.path == "/control":
            understood = body is not None and self.server.control.order(body)
            self.answer(200 if understood else 400, self.server.control.state())
        elif self.path == "/refunds":
            self.with_fault("POST", lambda: self.pay(self.headers.get("Idempotency-Key"), body))
        else:
            self.answer(404, {"error": "no such resource"})

    def do_GET(self):
        if self.path == "/control":
            self.answer(200, self.server.control.state())
        elif self.path == "/refunds":
            self.answer(200, self.server.ledger.all())
        elif self.path.startswith("/refunds/"):
            key = unquote(self.path[len("/refunds/"):])
            self.with_fault("GET", lambda: self.find(key))
        else:
            self.answer(404, {"error": "no such resource"})

    def with_fault(self, method, act):
        """Does what was asked and answers, unless a fault was ordered for this request."""
        fault = self.server.control.receive(method)
        name = fault["fault"] if fault else None
        if name == "drop":
            self.close_connection = True
            return
        if name == "refuse":
            self.answer(503, {"error": "not now"})
            return
        if name == "slow":
            time.sleep(fault["seconds"])
        status, answer = act()
        if name == "lose":
            self.close_connection = True
            return
        if name == "hold":
            self.server.control.hold()
        if name == "garble":
            self.send(status, fault["answer"].encode())
        elif name == "drip":
            self.send(status, json.dumps(answer).encode(), fault["seconds"])
        else:
            self.answer(status, answer)

    def pay(self, key, request):
        if not key or request is None:
            return 400, {"error": "an Idempotency-Key and a JSON object are needed"}
        if request.get("amount", 0) > LIMIT:
            return 403, {"error": "more than is ever paid"}
        entry = self.server.ledger.pay(key, request)
        if entry["request"] != request:
            return 422, {"error": "the key was used with another request"}
        return 201, entry

    def find(self, key):
        entry = self.server.ledger.find(key)
        return (404, {"error": "no refund under this key"}) if entry is None else (200, entry)

    def body(self):
        """The JSON object that was sent, or None."""
        text = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            body = json.loads(text)
        except ValueError:
            return None
        return body if isinstance(body, dict) else None

    def answer(self, status, body):
        self.send(status, json.dumps(body).encode())

    def send(self, status, text, seconds=0):
        try:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            parts = [text[at:at + 1] for at in range(len(text))] if seconds else [text]
            for part in parts:
                self.wfile.write(part)
                time.sleep(seconds / len(parts))
        except OSError:
            self.close_connection = True    # the caller died while we worked for it

    def log_message(self, format, *args):
        pass


class Channel(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, ledger_path, is_forgetful):
        super().__init__(("127.0.0.1", 0), Handler)
        self.ledger = Ledger(ledger_path, is_forgetful)
        self.control = Control()


def main():
    if len(sys.argv) < 2 or sys.argv[2:] not in ([], ["forgetful"]):
        sys.exit("usage: channel.py LEDGER [forgetful]")
    with Channel(sys.argv[1], len(sys.argv) == 3) as channel:
        print("listening on 127.0.0.1:%d" % channel.server_address[1], flush=True)
        channel.serve_forever()


if __name__ == "__main__":
    main()
