"""
by_hand.py: what is often done with Redis instead, and dies or sleeps at the wrong moment.

    python3 by_hand.py mark|lock REDIS_PORT CHANNEL REFUND [die|sleep]

mark: whoever can set the mark pays; everybody else takes it for paid.
lock: whoever gets the lock, which expires after a second, pays, and then sets the mark.
"""

import os
import signal
import sys

import redis

sys.path.insert(0, os.environ["PATTERNS"])
from worker import Channel


def misfortune():
    if "die" in sys.argv[5:]:
        os.kill(os.getpid(), signal.SIGKILL)
    if "sleep" in sys.argv[5:]:
        os.kill(os.getpid(), signal.SIGSTOP)


def by_mark(server, channel, refund):
    if not server.set("paid:" + refund, "1", nx=True):
        return "duplicate"
    misfortune()
    channel.pay(refund, '{"amount": 10}', float("inf"))
    return "paid"


def by_lock(server, channel, refund):
    if server.get("paid:" + refund):
        return "duplicate"
    if not server.set("lock:" + refund, "1", nx=True, px=1000):
        return "busy"
    misfortune()
    channel.pay(refund, '{"amount": 10}', float("inf"))
    server.set("paid:" + refund, "1")
    server.delete("lock:" + refund)
    return "paid"


print({"mark": by_mark, "lock": by_lock}[sys.argv[1]](
    redis.Redis(port=int(sys.argv[2])), Channel(sys.argv[3]), sys.argv[4]))
