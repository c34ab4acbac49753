"""
filter.py: marks in Redis that spare the database most duplicates.  redis.md beside this file
explains why the marks decide nothing.

    marks = Marks(redis.Redis.from_url(..., socket_timeout=0.2))
    what = consume(database, marks, "acme/shop/order-1-placed", '{"item": "book"}', act)

A mark says that an event is on record: a hit is a duplicate.  No mark says nothing.  The body is
the JSON as it came, and no transaction may be open.
"""

import hashlib
import json
import os
from decimal import Decimal

import redis
from psycopg.pq import TransactionStatus

TTL = int(os.environ.get("MARKS_TTL", 3600))            # seconds; how long does not matter


class Marks:
    def __init__(self, server):
        self.server = server

    @staticmethod
    def mark(body):
        """The same event with another body must not hit: the database calls it a conflict."""
        return hashlib.sha256(body.encode()).hexdigest().encode()

    def has(self, key, body):
        try:
            return self.server.get("consumed:" + key) == self.mark(body)
        except redis.RedisError:
            return False                    # no cache: the database knows

    def set(self, key, body):
        """Only once the COMMIT has been answered."""
        try:
            self.server.set("consumed:" + key, self.mark(body), ex=TTL)
        except redis.RedisError:
            pass                            # then the next one asks the database


def consume(database, marks, key, body, act):
    """Consumes an event: hit, or what idem_consume answers.  First or not, it is committed."""
    if database.info.transaction_status != TransactionStatus.IDLE:
        raise ValueError("in an open transaction the mark would be set before the COMMIT")
    if marks.has(key, body):
        return "hit"
    with database.transaction():
        outcome = database.execute("SELECT outcome FROM idem_consume(%s, %s::jsonb)",
                                   (key, body)).fetchone()[0]
        if outcome == "first":
            act(database, json.loads(body, parse_float=Decimal))
    if outcome in ("first", "duplicate"):
        marks.set(key, body)
    return outcome
