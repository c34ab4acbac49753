"""
filter.py: marks in Redis that spare the database most duplicates.  redis.md beside this file
explains why the marks decide nothing.

    marks = Marks(redis.Redis.from_url(..., socket_timeout=0.2))
    what = consume(database, marks, "acme/shop/order-1-placed", {"item": "book"}, act)

A mark says that an event is on record: a hit is a duplicate.  No mark says nothing.
"""

import hashlib
import json
import os

import redis

TTL = int(os.environ.get("MARKS_TTL", 3600))            # seconds; how long does not matter


class Marks:
    def __init__(self, server):
        self.server = server

    @staticmethod
    def mark(payload):
        """The same event with another payload must not hit: the database calls it a conflict."""
        return hashlib.sha256(json.dumps(payload, sort_keys=True).encode()).hexdigest().encode()

    def has(self, key, payload):
        try:
            return self.server.get("consumed:" + key) == self.mark(payload)
        except redis.RedisError:
            return False                    # no cache: the database knows

    def set(self, key, payload):
        """Only once the COMMIT has been answered."""
        try:
            self.server.set("consumed:" + key, self.mark(payload), ex=TTL)
        except redis.RedisError:
            pass                            # then the next one asks the database


def consume(database, marks, key, payload, act):
    """Consumes an event: hit, or what idem_consume answers.  First or not, it is committed."""
    if marks.has(key, payload):
        return "hit"
    with database.transaction():
        outcome = database.execute("SELECT outcome FROM idem_consume(%s, %s::jsonb)",
                                   (key, json.dumps(payload))).fetchone()[0]
        if outcome == "first":
            act(database, payload)
    if outcome in ("first", "duplicate"):
        marks.set(key, payload)
    return outcome
