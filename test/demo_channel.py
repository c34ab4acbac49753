#!/usr/bin/env python3
"""
demo_channel.py: the channel of the demo does what its description says.

Other tests trust it to lose answers and to remember what it paid, so that is
tested by itself.  Prints TAP; needs nothing but Python.
"""

import http.client
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from urllib.parse import quote

PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "demo", "channel.py")
NO_ANSWER = "no answer"

count = 0
failed = 0


def is_(found, wanted, name):
    global count, failed
    count += 1
    if found == wanted:
        print("ok %d - %s" % (count, name))
    else:
        failed += 1
        print("not ok %d - %s\n# found %r\n# wanted %r" % (count, name, found, wanted))


class Channel:
    def __init__(self, ledger, *how):
        self.process = subprocess.Popen([sys.executable, "-B", PROGRAM, ledger, *how],
                                        stdout=subprocess.PIPE, text=True)
        self.address = self.process.stdout.readline().split()[-1]

    def request(self, method, path, body=None, key=None):
        """The status and the answer, or NO_ANSWER."""
        connection = http.client.HTTPConnection(self.address, timeout=30)
        try:
            if isinstance(body, dict):
                body = json.dumps(body)
            connection.request(method, path, body, {"Idempotency-Key": key} if key else {})
            response = connection.getresponse()
            return response.status, json.loads(response.read())
        except (OSError, http.client.HTTPException):
            return NO_ANSWER
        finally:
            connection.close()

    def pay(self, key, amount):
        return self.request("POST", "/refunds", {"amount": amount}, key)

    def find(self, key):
        return self.request("GET", "/refunds/" + quote(key, safe=""))

    def order(self, **order):
        return self.request("POST", "/control", order)

    def paid(self):
        return [entry["key"] for entry in self.request("GET", "/refunds")[1]]

    def kill(self):
        self.process.kill()
        self.process.wait()


def promises(channel):
    status, first = channel.pay("a/b/1", 10)
    is_((status, first["key"], first["request"]), (201, "a/b/1", {"amount": 10}),
        "a refund is paid")
    is_(channel.pay("a/b/1", 10), (201, first), "the same key gets the first answer again")
    is_(channel.pay("a/b/1", 100)[0], 422, "the same key with another amount is refused")
    is_(channel.find("a/b/1"), (200, first), "it can be asked by key")
    is_(channel.find("a/b/2")[0], 404, "it does not know a key that paid nothing")
    is_(channel.request("POST", "/refunds", {"amount": 10})[0], 400,
        "a refund without a key is refused")
    is_(channel.request("POST", "/refunds", "nonsense", "a/b/3")[0], 400,
        "so is one that is no JSON")
    is_(channel.paid(), ["a/b/1"], "one refund was paid")
    is_((channel.pay("a/b/4", 1001)[0], channel.find("a/b/4")[0]), (403, 404),
        "more than it ever pays is refused, and not paid")
    is_(channel.request("GET", "/elsewhere")[0], 404, "there is nothing elsewhere")


def forgets(channel):
    answers = [channel.pay("a/b/1", 10), channel.pay("a/b/1", 10)]
    is_([status for status, _ in answers], [201, 201], "forgetful: each call is paid")
    is_(channel.paid(), ["a/b/1", "a/b/1"], "forgetful: and both are in the ledger")
    is_(channel.find("a/b/1"), (200, answers[1][1]), "forgetful: it can be asked by key")


def faults(channel):
    channel.order(fault="lose")
    is_(channel.pay("lose", 1), NO_ANSWER, "lose: no answer")
    is_(channel.find("lose")[0], 200, "lose: but paid")
    channel.order(fault="drop")
    is_(channel.pay("drop", 1), NO_ANSWER, "drop: no answer")
    is_(channel.find("drop")[0], 404, "drop: and not paid")
    channel.order(fault="refuse", times=2)
    is_([channel.pay("refuse", 1)[0] for _ in range(3)], [503, 503, 201],
        "refuse: as many times as ordered")
    channel.order(fault="slow", seconds=0.3)
    begin = time.monotonic()
    is_(channel.pay("slow", 1)[0], 201, "slow: paid")
    is_(time.monotonic() - begin >= 0.3, True, "slow: but late")
    channel.order(fault="refuse", method="GET")
    is_((channel.pay("get", 1)[0], channel.find("get")[0], channel.find("get")[0]), (201, 503, 200),
        "a fault waits for a request with its method")
    channel.order(fault="garble", answer='{"paid": true}')
    is_(channel.pay("garble", 1), (201, {"paid": True}), "garble: another answer")
    is_(channel.find("garble")[0], 200, "garble: but paid")
    channel.order(fault="drip", seconds=0.3)
    begin = time.monotonic()
    is_(channel.pay("drip", 1)[1]["key"], "drip", "drip: the answer comes")
    is_(time.monotonic() - begin >= 0.3, True, "drip: over its time")
    channel.order(fault="refuse")
    channel.order(reset=True)
    is_(channel.pay("reset", 1)[0], 201, "a reset forgets the faults")
    is_(channel.order(fault="nonsense")[0], 400, "an unknown fault is refused")


def hold(channel):
    answers = []
    channel.order(fault="hold")
    caller = threading.Thread(target=lambda: answers.append(channel.pay("hold", 1)))
    caller.start()
    end = time.monotonic() + 30
    while channel.request("GET", "/control")[1]["held"] == 0 and time.monotonic() < end:
        time.sleep(0.01)
    is_((channel.find("hold")[0], answers), (200, []), "hold: paid, and the answer is kept")
    channel.order(release=True)
    caller.join(30)
    is_([status for status, _ in answers], [201], "hold: until it is released")
    is_(channel.request("GET", "/control")[1]["held"], 0, "hold: nothing is held any more")


def ledger(channel, path):
    paid = channel.paid()
    found = channel.find("lose")
    channel.kill()
    with open(path, "ab") as file:
        file.write(b'{"reference": "re_9')
    channel = Channel(path)
    is_(channel.paid(), paid, "the ledger outlives the service, but for a line that was cut off")
    is_(channel.find("lose"), found, "with the same references")
    channel.pay("after", 1)
    channel.kill()
    channel = Channel(path)
    is_(channel.paid(), paid + ["after"], "and goes on after it")
    return channel


def main():
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "ledger")
        channel = Channel(path)
        try:
            promises(channel)
            faults(channel)
            hold(channel)
            is_(channel.request("GET", "/control")[1]["received"], {"POST": 17, "GET": 9},
                "requests are counted, whatever became of them")
            channel = ledger(channel, path)
            channel.kill()
            channel = Channel(os.path.join(directory, "forgetful"), "forgetful")
            forgets(channel)
        finally:
            channel.kill()
    print("1..%d" % count)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
