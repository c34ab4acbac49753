"""
consume.py: one delivery, with doc/patterns/filter.py, and a death on request.

    python3 consume.py REDIS_PORT KEY ITEM [before-commit|before-mark|after-mark]
"""

import json
import os
import signal
import sys

import psycopg
import redis

sys.path.insert(0, os.environ["PATTERNS"])
import filter as pattern


def die_at(moment):
    if moment in sys.argv[4:]:
        os.kill(os.getpid(), signal.SIGKILL)


class MortalMarks(pattern.Marks):
    def set(self, key, body):
        die_at("before-mark")
        super().set(key, body)
        die_at("after-mark")


def take_from_stock(database, payload):
    database.execute("INSERT INTO taken VALUES (%s)", (payload["item"],))
    die_at("before-commit")


with psycopg.connect("", autocommit=True) as connection:
    print(pattern.consume(connection, MortalMarks(redis.Redis(port=int(sys.argv[1]))), sys.argv[2],
                          json.dumps({"item": sys.argv[3]}), take_from_stock))
