#!/usr/bin/env python3
"""The digest in a second language, written from doc/digest.md alone.

Reads the golden vectors out of that page and the published RFC 8785 test
documents out of test/jcs, and compares.  Where PGHOST is set, psql asks a
server the same questions, and random documents besides, under random rules.
The seed of those is printed; DIGEST_SEED repeats a run.  Speaks TAP; needs
nothing but the standard library.
"""
import hashlib
import json
import os
import random
import re
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

TEST = Path(__file__).resolve().parent
PAGE = TEST.parent / "doc" / "digest.md"
RANDOM_DOCUMENTS = 400
MAX_DIFFERENCES = 16


# ---- the specification ----

class Absent(Exception):
    """An included pointer names nothing."""


def parse(text):
    """A JSON text, its numbers as exact decimals."""
    return json.loads(text, parse_int=Decimal, parse_float=Decimal)


def utf16(text):
    return text.encode("utf-16-be")


def string(text):
    short = {"\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r",
             '"': '\\"', "\\": "\\\\"}
    return '"' + "".join(short.get(c) or ("\\u%04x" % ord(c) if c < " " else c)
                         for c in text) + '"'


def number(value):
    sign, digits, exponent = value.as_tuple()
    digits = "".join(map(str, digits)).lstrip("0")
    kept = digits.rstrip("0")
    exponent += len(digits) - len(kept)
    if not kept:
        return "0"
    point = len(kept) + exponent
    if len(kept) <= point <= 21:
        layout = kept + "0" * (point - len(kept))
    elif 0 < point <= 21:
        layout = kept[:point] + "." + kept[point:]
    elif -6 < point <= 0:
        layout = "0." + "0" * -point + kept
    else:
        layout = kept[0] + ("." + kept[1:] if kept[1:] else "") + "e%+d" % (point - 1)
    return "-" * sign + layout


def canonical(value):
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Decimal):
        return number(value)
    if isinstance(value, str):
        return string(value)
    if isinstance(value, list):
        return "[" + ",".join(map(canonical, value)) + "]"
    return "{" + ",".join(string(name) + ":" + canonical(value[name])
                          for name in sorted(value, key=utf16)) + "}"


def tokens(pointer):
    return [token.replace("~1", "/").replace("~0", "~") for token in pointer.split("/")[1:]]


def index(token):
    return int(token) if re.fullmatch("0|[1-9][0-9]*", token) else None


def find(value, pointer):
    for token in tokens(pointer):
        if isinstance(value, dict) and token in value:
            value = value[token]
        elif isinstance(value, list) and index(token) is not None and index(token) < len(value):
            value = value[index(token)]
        else:
            raise Absent(pointer)
    return value


def without(value, paths):
    """The value without the places that these lists of tokens name."""
    def below(token):
        return [path[1:] for path in paths if path and path[0] == token]

    if isinstance(value, dict):
        return {name: without(child, below(name)) for name, child in value.items()
                if [] not in below(name)}
    if isinstance(value, list):
        return [without(child, below(str(i))) for i, child in enumerate(value)
                if [] not in below(str(i))]
    return value


def counted(value, include, exclude):
    if include:
        return {pointer: find(value, pointer) for pointer in include}
    return without(value, [tokens(pointer) for pointer in exclude or []])


def digest(text):
    return "v1:" + hashlib.sha256(text.encode("utf-8")).hexdigest()


def answer(document, include, exclude):
    try:
        text = canonical(counted(parse(document), include, exclude))
    except Absent:
        return "ID007"
    return digest(text)


# ---- the vectors ----

def vectors():
    """Blocks of "field: value" lines in the page's fenced blocks named vectors."""
    for block in re.findall("^```vectors\n(.*?)^```$", PAGE.read_text("utf-8"), re.M | re.S):
        for vector in block.strip("\n").split("\n\n"):
            fields = dict(line.split(": ", 1) for line in vector.split("\n"))
            yield {field: json.loads(value) if field in ("include", "exclude") else value
                   for field, value in fields.items()}


def published():
    """Name, input and output of each published document, with exact decimals."""
    for path in sorted((TEST / "jcs").glob("*.in.json")):
        output = path.with_name(path.name.replace(".in.", ".out.")).read_text("utf-8")
        # the one number there that a double rounds keeps its digits here
        output = output.replace("333333333.3333333,", "333333333.33333329,")
        yield path.name, path.read_text("utf-8"), output.rstrip("\n")


# ---- random documents ----

def random_string(rng):
    alphabet = ["a", "b", "~", "/", '"', "\\", "\n", "\x01", "\x7f", "0", "1", " ", "é", "e\u0301",
                "\u2028", "\ud7ff", "\ue000", "\uffff", "\U00010000", "\U0001f602"]
    return "".join(rng.choice(alphabet) for _ in range(rng.choice([0, 1, 1, 2, 3, 9, 20])))


def random_number(rng):
    digits = str(rng.randrange(10 ** rng.choice([1, 2, 4, 5, 9, 17, 25, 40])))
    if rng.random() < 0.4:
        digits += "." + "".join(rng.choice("000123456789") for _ in range(rng.randint(1, 12)))
    if rng.random() < 0.4:
        digits += rng.choice("eE") + rng.choice(["", "+", "-"]) + str(rng.choice([0, 1, 4, 7, 22, 300]))
    return rng.choice(["", "-"]) + digits


def random_document(rng, depth=4):
    """A JSON text, with white space and escapes that must not matter."""
    kind = rng.randrange(8 if depth > 0 else 5)
    space = rng.choice(["", "", " ", "\n\t"])
    if kind < 2:
        return space + random_number(rng)
    if kind < 4:
        return json.dumps(random_string(rng), ensure_ascii=rng.random() < 0.5)
    if kind == 4:
        return rng.choice(["null", "true", "false"]) + space
    children = [random_document(rng, depth - 1) for _ in range(rng.choice([0, 1, 2, 3, 5, 16]))]
    if kind == 5:
        return "[" + ",".join(children) + space + "]"
    return "{" + ("," + space).join(json.dumps(random_string(rng)) + ":" + child
                                    for child in children) + "}"


def random_pointers(rng, value):
    """Pointers to places that exist, mostly."""
    found = set()
    for _ in range(rng.randint(1, 4)):
        at, pointer = value, ""
        while isinstance(at, (dict, list)) and at and (not pointer or rng.random() < 0.6):
            name = rng.choice(sorted(at)) if isinstance(at, dict) else rng.randrange(len(at))
            pointer += "/" + str(name).replace("~", "~0").replace("/", "~1")
            at = at[name]
        found.add(pointer if pointer and rng.random() < 0.9 else pointer + "/none")
    return sorted(found)


def random_change(rng, value):
    """The value with a few places changed, removed or added."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        name = rng.choice(sorted(value))
        kept = {n: v for n, v in value.items() if n != name or rng.random() < 0.8}
        return {n: random_change(rng, v) if n == name else v for n, v in kept.items()}
    if isinstance(value, list) and value and rng.random() < 0.9:
        at = rng.randrange(len(value))
        return value[:at] + [random_change(rng, value[at])] + value[at + 1:rng.randint(at, len(value)) + 1]
    return rng.choice([Decimal(7), "changed", [], {}, value])


def differences(stored, given, paths=(), at=""):
    """Where two values differ, but for the places that these lists of tokens name."""
    def below(token):
        return [path[1:] for path in paths if path and path[0] == token]

    if isinstance(stored, dict) and isinstance(given, dict):
        names = sorted(set(stored) | set(given), key=utf16)
        children = [(name, name in stored and name in given, name) for name in names]
    elif isinstance(stored, list) and isinstance(given, list):
        children = [(str(i), i < min(len(stored), len(given)), i)
                    for i in range(max(len(stored), len(given)))]
    else:
        return [] if canonical(stored) == canonical(given) else [at]
    found = []
    for token, is_common, child in children:
        if [] in below(token):
            continue
        place = at + "/" + token.replace("~", "~0").replace("/", "~1")
        if is_common:
            found += differences(stored[child], given[child], below(token), place)
        else:
            found.append(place)
    return found


def differences_under(stored, given, include, exclude):
    if not include:
        return differences(stored, given, [tokens(p) for p in exclude or []])[:MAX_DIFFERENCES]
    found = []
    for pointer in sorted(include, key=utf16):
        try:
            places = differences(find(stored, pointer), find(given, pointer), (), pointer)
        except Absent:
            places = [pointer]
        found += [place for place in places if place not in found]
    return found[:MAX_DIFFERENCES]


# ---- the server ----

def literal(text):
    return "E'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


def array(pointers):
    if pointers is None:
        return "NULL"
    return "ARRAY[" + ", ".join(map(literal, pointers)) + "]::text[]"


def hexadecimal(expression):
    return "encode(convert_to(%s, 'UTF8'), 'hex')" % expression


def query_canonical(document):
    return hexadecimal("idem_canonical(%s::jsonb)" % literal(document))


def query_digest(document, include, exclude):
    return "pg_temp.answer(%s::jsonb, %s, %s)" % (literal(document), array(include), array(exclude))


def query_differences(stored, given, include, exclude):
    return hexadecimal("array_to_json(idem_differences(%s::jsonb, %s::jsonb, %s, %s))::text" % (
        literal(stored), literal(given), array(include), array(exclude)))


SETUP = """
\\set ON_ERROR_STOP on
SET client_min_messages = warning;
BEGIN;
CREATE EXTENSION IF NOT EXISTS idem_action;
CREATE FUNCTION pg_temp.answer(params jsonb, include text[], exclude text[]) RETURNS text
LANGUAGE plpgsql AS $$
BEGIN
    RETURN idem_digest(params, include, exclude);
EXCEPTION WHEN SQLSTATE 'ID007' THEN
    RETURN SQLSTATE;
END $$;
"""


def ask_server(queries):
    """One psql for all; the answers, in the order of the questions."""
    script = SETUP + "".join("SELECT %s;\n" % query for query in queries) + "ROLLBACK;\n"
    psql = subprocess.run(["psql", "-XqAt", "-f", "-"], input=script.encode("utf-8"),
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          env=dict(os.environ, PGCLIENTENCODING="UTF8"), check=False)
    answers = psql.stdout.decode("utf-8").split("\n")[:-1]
    if psql.returncode != 0 or len(answers) != len(queries):
        sys.exit("Bail out! psql: " + psql.stderr.decode("utf-8", "replace")[:2000])
    return answers


def decode(text):
    return bytes.fromhex(text).decode("utf-8")


# ---- the tests ----

class Report:
    def __init__(self):
        self.count = 0
        self.failed = 0

    def compare(self, name, got, expected):
        self.count += 1
        if got == expected:
            print("ok %d - %s" % (self.count, name))
            return
        self.failed += 1
        print("not ok %d - %s" % (self.count, name))
        print("#   got      %s\n#   expected %s" % (ascii(got), ascii(expected)))


def check_page(report):
    for vector in vectors():
        document, include, exclude = vector["params"], vector.get("include"), vector.get("exclude")
        name = "page: " + vector["name"]
        if "canonical" in vector:
            report.compare(name + ": canonical",
                           canonical(counted(parse(document), include, exclude)),
                           vector["canonical"])
        report.compare(name + ": digest", answer(document, include, exclude), vector["digest"])


def check_published(report):
    for name, document, output in published():
        report.compare("published: " + name, canonical(parse(document)), output)


def check_server(report):
    cases = []
    for vector in vectors():
        include, exclude = vector.get("include"), vector.get("exclude")
        cases.append(("server: " + vector["name"],
                      query_digest(vector["params"], include, exclude), str, vector["digest"]))
        if "canonical" in vector and not include and not exclude:
            cases.append(("server: %s: canonical" % vector["name"],
                          query_canonical(vector["params"]), decode, vector["canonical"]))
    for name, document, output in published():
        cases.append(("server: " + name, query_canonical(document), decode, output))
    compare_with_server(report, cases)


def compare_with_server(report, cases):
    for (name, _, read, expected), got in zip(cases, ask_server([case[1] for case in cases])):
        report.compare(name, read(got), expected)


def check_agreement(report, name, document, changed, pointers):
    """Differences are named exactly where digests differ."""
    for include, exclude in ((None, None), (pointers, None), (None, pointers)):
        first = answer(document, include, exclude)
        is_same = first != "ID007" and first == answer(canonical(changed), include, exclude)
        found = differences_under(parse(document), changed, include, exclude)
        report.compare(name + "agreement", found == [], is_same)


def check_random(report):
    seed = int(os.environ.get("DIGEST_SEED") or random.randrange(2 ** 32))
    print("# DIGEST_SEED=%d" % seed)
    rng = random.Random(seed)
    cases = []
    for i in range(RANDOM_DOCUMENTS):
        document = random_document(rng)
        value = parse(document)
        changed = random_change(rng, random_change(rng, value))
        pointers = random_pointers(rng, value)
        name = "random %d: " % i
        check_agreement(report, name, document, changed, pointers)
        cases.append((name + "canonical", query_canonical(document), decode, canonical(value)))
        for include, exclude in ((None, None), (pointers, None), (None, pointers)):
            cases.append((name + "digest", query_digest(document, include, exclude), str,
                          answer(document, include, exclude)))
            cases.append((name + "differences",
                          query_differences(document, canonical(changed), include, exclude),
                          lambda text: json.loads(decode(text)),
                          differences_under(value, changed, include, exclude)))
    compare_with_server(report, cases)


def main():
    sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")
    report = Report()
    check_page(report)
    check_published(report)
    if os.environ.get("PGHOST"):
        check_server(report)
        check_random(report)
    else:
        print("# PGHOST is not set: no server was asked")
    print("1..%d" % report.count)
    return 1 if report.failed else 0


if __name__ == "__main__":
    sys.exit(main())
