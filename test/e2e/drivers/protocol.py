"""
protocol.py: how the story talks with the driver programs, here for those in Python.

A program reads one command a line from its standard input: a name and arguments, separated by
tabs; \\N is null, and the elements of an array are separated by commas ("|" where they are
JSON).  It answers with one line: "name=value", separated by tabs, or sqlstate=... and class=...
when the driver raised its error.  The commands are those of the table in ../drivers.py, and
every program knows all of them.
"""

import json
import sys
from datetime import datetime, timedelta


def text(value):
    """A value as the story compares it."""
    if value is None:
        return "\\N"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, datetime):
        return str(int(value.timestamp() * 1000))
    if isinstance(value, list):
        return ",".join(value)
    if isinstance(value, dict):
        return json.dumps(value)
    return str(value)


def null_or(read):
    return lambda word: None if word == "\\N" else read(word)


def seconds(word):
    return timedelta(seconds=float(word))


def texts(word):
    return word.split(",")


def documents(word):
    return [json.loads(document) for document in word.split("|")]


def times(word):
    return [datetime.fromisoformat(time) for time in word.split(",")]


READ = {"text": null_or(str), "json": null_or(json.loads), "bigint": null_or(int),
        "time": null_or(datetime.fromisoformat), "interval": null_or(seconds),
        "texts": texts, "jsons": documents, "times": times}


COMMANDS = {
    "claim": ("text", "json", "time", "interval"),
    "complete": ("text", "bigint", "json", "text", "bigint"),
    "try_complete": ("text", "bigint", "json", "text", "bigint"),
    "reject": ("text", "bigint", "json"),
    "mark_unknown": ("text", "bigint", "json", "interval"),
    "status": ("text",),
    "once": ("text", "json", "bigint"),
    "once_trap": ("text", "json", "bigint"),
    "consume": ("texts", "jsons", "times"),
    "early": ("text", "json"),
    "bindings": ("text", "json", "time"),
    "many": ("bigint", "text", "json", "time"),
    "prepared": (),
    "mistakes": ("text", "time"),
}


def serve(functions, connection, error_class, error_fields):
    """functions: those of the program, by name; a row is the answer as it is."""
    for line in sys.stdin:
        name, *words = line.rstrip("\n").split("\t")
        try:
            answer = functions[name](connection, *(
                READ[kind](word) for kind, word in zip(COMMANDS[name], words, strict=True)))
        except error_class as error:
            answer = error_fields(error)
        if not isinstance(answer, dict):
            answer = {"answer": "done" if answer is None else answer}
        print("\t".join("%s=%s" % (field, text(value)) for field, value in answer.items()),
              flush=True)
