"""
psql.py: a database session for programs that need no driver.

A Session is one psql process and so one connection.  Each call runs one
statement, in a transaction of its own unless BEGIN was run before.  Where the
server is, psql learns from the environment (PGHOST and so on).
"""

import json
import os
import subprocess

MARK = "--end-of-statement--"


class SqlError(Exception):
    """What the server refused: sqlstate, and the text as psql shows it."""

    def __init__(self, sqlstate, text):
        super().__init__(text)
        self.sqlstate = sqlstate


class ConnectionLost(Exception):
    """Nobody knows whether the last statement took effect."""


def literal(value):
    """A value as an SQL literal, to be cast by what it is compared with or passed to."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if not isinstance(value, str):
        value = json.dumps(value)
    return "'" + value.replace("'", "''") + "'"


class Session:
    def __init__(self, application_name):
        environment = dict(os.environ, PGAPPNAME=application_name,
                           PGOPTIONS="-c client_min_messages=error")
        self.process = subprocess.Popen(
            ["psql", "-XqAt", "-v", "VERBOSITY=verbose"], env=environment, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def run(self, statement):
        """Runs one statement; the lines of its result."""
        lines = []
        try:
            self.process.stdin.write("%s;\n\\echo %s :SQLSTATE\n" % (statement, MARK))
            self.process.stdin.flush()
        except BrokenPipeError:
            raise ConnectionLost() from None
        for line in self.process.stdout:
            line = line.rstrip("\n")
            if line.startswith(MARK):
                sqlstate = line[len(MARK) + 1:]
                if sqlstate != "00000":
                    raise SqlError(sqlstate, "\n".join(lines))
                return lines
            lines.append(line)
        raise ConnectionLost("\n".join(lines))

    def call(self, function, *arguments, **named):
        """Calls a function; its row as a dictionary, its value, or None when there is no row."""
        given = [literal(argument) for argument in arguments]
        given += ["%s => %s" % (name, literal(value)) for name, value in named.items()]
        lines = self.run("SELECT to_json(f) FROM %s(%s) AS f" % (function, ", ".join(given)))
        return json.loads(lines[0]) if lines and lines[0] else None

    def transaction(self, *statements):
        """Runs statements in one transaction: all of them, or none."""
        self.run("BEGIN")
        try:
            for statement in statements:
                self.run(statement)
            self.run("COMMIT")
        except SqlError:
            self.run("ROLLBACK")
            raise

    def close(self):
        self.process.stdin.close()
        self.process.wait()
