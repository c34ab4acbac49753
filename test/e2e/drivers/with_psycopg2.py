#!/usr/bin/env python3
"""
with_psycopg2.py: the driver program for psycopg 2; doc/drivers/psycopg2.md shows parts of it.
"""

import protocol
# doc: connect
import psycopg2
from psycopg2.extras import Json, RealDictCursor


def connect(dsn=""):
    return psycopg2.connect(dsn, cursor_factory=RealDictCursor)
# doc: end


# doc: claim
def claim(connection, key, params, occurred_at=None, lease=None):
    with connection, connection.cursor() as cursor:     # the end of "with connection" commits
        cursor.execute(
            "SELECT outcome, generation, attempt, lease_until, params, differs"
            " FROM idem_claim(%s, %s, occurred_at => %s, lease => %s)",
            (key, Json(params), occurred_at, lease))
        return cursor.fetchone()
# doc: end


# doc: complete
def complete(connection, key, generation, result, reference, amount):
    with connection, connection.cursor() as cursor:
        cursor.execute("SELECT idem_complete(%s, %s, %s, %s)",
                       (key, generation, Json(result), reference))
        # the answer to COMMIT may be lost, and all of this be said again
        cursor.execute("INSERT INTO refund (key, amount, reference) VALUES (%s, %s, %s)"
                       " ON CONFLICT DO NOTHING", (key, amount, reference))
# doc: end


# doc: error
def try_complete(connection, key, generation, result, reference, amount):
    try:
        complete(connection, key, generation, result, reference, amount)
    except psycopg2.Error as error:
        if error.pgcode != "ID002":
            raise
        return "replaced"                   # by a newer owner; the row of refund is rolled back
    return "done"
# doc: end


def reject(connection, key, generation, error):
    with connection, connection.cursor() as cursor:
        cursor.execute("SELECT idem_reject(%s, %s, %s)", (key, generation, Json(error)))


# doc: unknown
def mark_unknown(connection, key, generation, detail, retry_after):
    with connection, connection.cursor() as cursor:
        cursor.execute("SELECT idem_mark_unknown(%s, %s, %s, %s)",
                       (key, generation, Json(detail), retry_after))
# doc: end


def status(connection, key):
    with connection, connection.cursor() as cursor:
        cursor.execute("SELECT state, generation, result, error, channel_ref FROM idem_status(%s)",
                       (key,))
        return cursor.fetchone()


# doc: once
def once(connection, key, params, amount):
    with connection, connection.cursor() as cursor:
        cursor.execute("SELECT idem_once(%s, %s) AS first", (key, Json(params)))
        first = cursor.fetchone()["first"]
        if first:
            cursor.execute("INSERT INTO credit (key, amount) VALUES (%s, %s)", (key, amount))
    return first
# doc: end


# doc: trap
def once_trap(connection, key, params, amount):
    connection.autocommit = True
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT idem_once(%s, %s) AS first", (key, Json(params)))
            first = cursor.fetchone()["first"]
            # on record as done already, so that a failure from here on loses the credit
            if first:
                cursor.execute("INSERT INTO credit (key, amount) VALUES (%s, %s)", (key, amount))
        return first
    finally:
        connection.autocommit = False
# doc: end


# doc: consume
def consume(connection, keys, payloads, occurred_at):
    with connection, connection.cursor() as cursor:
        cursor.execute(
            "SELECT position, key, payload, outcome"
            " FROM idem_consume_batch(%s, %s::jsonb[], %s)",
            (keys, [Json(payload) for payload in payloads], occurred_at))
        rows = cursor.fetchall()
        for row in rows:
            if row["outcome"] == "first":
                cursor.execute("INSERT INTO stock (key, pieces) VALUES (%s, %s)",
                               (row["key"], row["payload"]["pieces"]))
    return [row["outcome"] for row in rows]
# doc: end


def early(connection, key, params):
    """What must not be: claimed and completed in one transaction."""
    with connection, connection.cursor() as cursor:
        cursor.execute("SELECT generation FROM idem_claim(%s, %s)", (key, Json(params)))
        cursor.execute("SELECT idem_complete(%s, %s)", (key, cursor.fetchone()["generation"]))


def bindings(connection, key, params, occurred_at):
    outcomes = set()
    with connection, connection.cursor() as cursor:
        for placeholder in ("%s", "%s::text", "%s::varchar", "%s::idem_key"):
            cursor.execute("SELECT outcome FROM idem_claim(" + placeholder + ", %s, %s)",
                           (key, Json(params), occurred_at))
            outcomes.add(cursor.fetchone()["outcome"])
    return sorted(outcomes)


def many(connection, times, key, params, occurred_at):
    return sorted({claim(connection, key, params, occurred_at)["outcome"] for _ in range(times)})


def prepared(connection):
    with connection, connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_prepared_statements WHERE NOT from_sql")
        return cursor.fetchone()["count"]


def mistakes(connection, key, occurred_at):
    """What comes of what the page warns of."""

    def failure(statement, arguments):
        try:
            with connection, connection.cursor() as cursor:
                cursor.execute(statement, arguments)
        except psycopg2.Error as error:
            return error.pgcode or type(error).__name__
        return "none"

    return {"dict": failure("SELECT outcome FROM idem_claim(%s, %s, %s)", (key, {}, occurred_at)),
            "jsons": failure("SELECT outcome FROM idem_consume_batch(%s, %s)",
                             ([key], [Json({})]))}


def error_fields(error):
    return {"sqlstate": error.pgcode, "class": type(error).__name__}


if __name__ == "__main__":
    protocol.serve(globals(), connect(), psycopg2.Error, error_fields)
