#!/usr/bin/env python3
"""
with_psycopg3.py: the driver program for psycopg 3; doc/drivers/psycopg3.md shows parts of it.
"""

import json
import sys

from psycopg.types.json import Json

import protocol
# doc: connect
import psycopg
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb


def connect(conninfo="", pooled=False):
    connection = psycopg.connect(conninfo, autocommit=True, row_factory=dict_row)
    if pooled:                              # PgBouncer in transaction mode, before 1.21
        connection.prepare_threshold = None
    return connection
# doc: end


# doc: claim
def claim(connection, key, params, occurred_at=None, lease=None):
    with connection.transaction():          # its end is the COMMIT: only then may you act
        return connection.execute(
            "SELECT outcome, generation, attempt, lease_until, params, differs"
            " FROM idem_claim(%s, %s, occurred_at => %s, lease => %s)",
            (key, Jsonb(params), occurred_at, lease)).fetchone()
# doc: end


# doc: complete
def complete(connection, key, generation, result, reference, amount):
    with connection.transaction():
        connection.execute("SELECT idem_complete(%s, %s, %s, %s)",
                           (key, generation, Jsonb(result), reference))
        # the answer to COMMIT may be lost, and all of this be said again
        connection.execute("INSERT INTO refund (key, amount, reference) VALUES (%s, %s, %s)"
                           " ON CONFLICT DO NOTHING", (key, amount, reference))
# doc: end


# doc: error
def try_complete(connection, key, generation, result, reference, amount):
    try:
        complete(connection, key, generation, result, reference, amount)
    except psycopg.Error as error:
        if error.sqlstate != "ID002":
            raise
        return "replaced"                   # by a newer owner; the row of refund is rolled back
    return "done"
# doc: end


def reject(connection, key, generation, error):
    with connection.transaction():
        connection.execute("SELECT idem_reject(%s, %s, %s)", (key, generation, Jsonb(error)))


# doc: unknown
def mark_unknown(connection, key, generation, detail, retry_after):
    with connection.transaction():
        connection.execute("SELECT idem_mark_unknown(%s, %s, %s, %s)",
                           (key, generation, Jsonb(detail), retry_after))
# doc: end


def status(connection, key):
    return connection.execute(
        "SELECT state, generation, result, error, channel_ref FROM idem_status(%s)",
        (key,)).fetchone()


# doc: once
def once(connection, key, params, amount):
    with connection.transaction():
        first = connection.execute("SELECT idem_once(%s, %s) AS first",
                                   (key, Jsonb(params))).fetchone()["first"]
        if first:
            connection.execute("INSERT INTO credit (key, amount) VALUES (%s, %s)", (key, amount))
    return first
# doc: end


# doc: trap
def once_trap(connection, key, params, amount):
    first = connection.execute("SELECT idem_once(%s, %s) AS first",
                               (key, Jsonb(params))).fetchone()["first"]
    # autocommit: on record as done already, so that a failure from here on loses the credit
    if first:
        connection.execute("INSERT INTO credit (key, amount) VALUES (%s, %s)", (key, amount))
    return first
# doc: end


# doc: consume
def consume(connection, keys, payloads, occurred_at):
    with connection.transaction():
        rows = connection.execute(
            "SELECT position, key, payload, outcome FROM idem_consume_batch(%s, %s, %s)",
            (keys, [Jsonb(payload) for payload in payloads], occurred_at)).fetchall()
        for row in rows:
            if row["outcome"] == "first":
                connection.execute("INSERT INTO stock (key, pieces) VALUES (%s, %s)",
                                   (row["key"], row["payload"]["pieces"]))
    return [row["outcome"] for row in rows]
# doc: end


def early(connection, key, params):
    """What must not be: claimed and completed in one transaction."""
    with connection.transaction():
        verdict = claim(connection, key, params)
        connection.execute("SELECT idem_complete(%s, %s)", (key, verdict["generation"]))


def bindings(connection, key, params, occurred_at):
    outcomes = set()
    for placeholder in ("%s", "%b", "%t", "%s::text", "%s::varchar", "%s::idem_key"):
        for document in (Jsonb(params), json.dumps(params)):
            outcomes.add(connection.execute(
                "SELECT outcome FROM idem_claim(" + placeholder + ", %s, %s)",
                (key, document, occurred_at)).fetchone()["outcome"])
    return sorted(outcomes)


def prepared(connection):
    return connection.execute("SELECT count(*) FROM pg_prepared_statements WHERE NOT from_sql"
                              ).fetchone()["count"]


def many(connection, times, key, params, occurred_at):
    return sorted({claim(connection, key, params, occurred_at)["outcome"] for _ in range(times)})


def mistakes(connection, key, occurred_at):
    """What comes of what the page warns of."""

    def outcome(params):
        try:
            return claim_bare(params)["outcome"]
        except psycopg.Error as error:
            return error.sqlstate or type(error).__name__

    def claim_bare(params):
        return connection.execute("SELECT outcome FROM idem_claim(%s, %s, %s)",
                                  (key, params, occurred_at)).fetchone()

    found = {"json": outcome(Json({})), "dict": outcome({})}
    connection.autocommit = False
    try:
        connection.execute("SELECT 1")      # opens a transaction
        verdict = claim(connection, key, {}, occurred_at)
        connection.execute("SELECT idem_complete(%s, %s)", (key, verdict["generation"]))
    except psycopg.Error as error:
        found["savepoint"] = error.sqlstate
    connection.rollback()
    connection.autocommit = True
    return found


def error_fields(error):
    return {"sqlstate": error.sqlstate, "class": type(error).__name__}


if __name__ == "__main__":
    protocol.serve(globals(), connect(pooled="pooled" in sys.argv), psycopg.Error, error_fields)
