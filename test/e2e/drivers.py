#!/usr/bin/env python3
"""
drivers.py: one script of calls through five drivers, each by what it binds by nature, directly
and through PgBouncer in transaction mode.

The drivers' programs are in drivers/; what they are told and what they must answer is the
table SCRIPT below, the same for all.  The pages in doc/drivers/ show parts of the programs.
"""

# packages: python3-psycopg python3-psycopg2 libpostgresql-jdbc-java javac:default-jdk-headless
# packages: node:nodejs npm:npm go:golang-go pgbouncer
# minutes: 10

import json
import os
import subprocess
import time

import psycopg

import e2e

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "drivers")
JDBC = "/usr/share/java/postgresql.jar"
ROLE = "drivers_application"
AT = "2026-03-01T12:00:00.123456+00:00"
ERA = 1 << 21                               # so that generations are beyond 2^53
FIRST, SECOND = str((ERA << 32) + 1), str((ERA << 32) + 2)

SET_UP = """
    SELECT idem_define_operation('REFUND', effect => 'external', channel_queryable => true,
        absence_visible_after => '1 hour');
    SELECT idem_define_operation('STAMPED', effect => 'external', retention => '1000 years');
    SELECT idem_define_operation('CREDIT', effect => 'local');
    SELECT idem_define_consumer('stock');
    CREATE TABLE refund (key text PRIMARY KEY, amount bigint, reference text);
    CREATE TABLE credit (key text, amount bigint CHECK (amount > 0));
    CREATE TABLE stock (key text, pieces bigint);
    CREATE ROLE %(role)s LOGIN;
    GRANT INSERT ON refund, credit, stock TO %(role)s;
    SELECT idem_claim('nobody/CREDIT/c-1', '{}'), idem_complete('nobody/CREDIT/c-1', 1);
    UPDATE idem_era SET era = %(era)d;
""" % {"role": ROLE, "era": ERA}

# what is done, what the program is told, what it must answer.  $T is the driver's tenant; an
# answer's fields that are not named may hold anything.
SCRIPT = (
    ("a claim", ("claim", "$T/REFUND/r-1", {"amount": 10}, AT, 60),
     {"outcome": "execute", "generation": FIRST, "attempt": "1", "differs": "\\N",
      "params": {"amount": 10}, "lease_until": 60}),
    ("a claim of what somebody owns",
     ("claim", "$T/REFUND/r-1", {"amount": 10.0}, AT, None),
     {"outcome": "busy", "generation": "0", "params": "\\N"}),
    ("a claim with other parameters",
     ("claim", "$T/REFUND/r-1", {"amount": 100, "to": "x"}, AT, None),
     {"outcome": "conflict", "generation": "0", "differs": "/amount,/to"}),
    ("completing with null for a generation",
     ("complete", "$T/REFUND/r-1", None, {"paid": True}, "re_0", 10), {"sqlstate": "ID002"}),
    ("completing with the 0 of no grant",
     ("complete", "$T/REFUND/r-1", 0, {"paid": True}, "re_0", 10), {"sqlstate": "ID002"}),
    ("completing with a generation that a double would make of it",
     ("complete", "$T/REFUND/r-1", int(float(FIRST)), {"paid": True}, "re_0", 10),
     {"sqlstate": "ID002"}),
    ("completing", ("complete", "$T/REFUND/r-1", FIRST, {"paid": True}, "re_1", 10),
     {"answer": "done"}),
    ("completing once more, as if the answer to COMMIT had been lost",
     ("complete", "$T/REFUND/r-1", FIRST, {"paid": True}, "re_1", 10), {"answer": "done"}),
    ("looking at it", ("status", "$T/REFUND/r-1"),
     {"state": "succeeded", "generation": FIRST, "result": {"paid": True}, "error": "\\N",
      "channel_ref": "re_1"}),
    ("a claim of what has succeeded", ("claim", "$T/REFUND/r-1", {"amount": 10}, AT, None),
     {"outcome": "succeeded", "generation": "0"}),
    ("completing with another result",
     ("complete", "$T/REFUND/r-1", FIRST, {"paid": False}, "re_1", 10), {"sqlstate": "ID004"}),
    ("every way to bind a key", ("bindings", "$T/REFUND/r-1", {"amount": 10}, AT),
     {"answer": "succeeded"}),
    ("a dozen times, since some prepare what comes more than five times",
     ("many", 12, "$T/REFUND/r-1", {"amount": 10}, AT), {"answer": "succeeded"}),

    ("a claim with a short lease", ("claim", "$T/REFUND/r-2", {"amount": 7}, None, 2),
     {"outcome": "execute", "generation": FIRST}),
    ("its end", ("wait", 2.5), None),
    ("taking it over", ("claim", "$T/REFUND/r-2", {"amount": 7}, None, 60),
     {"outcome": "verify", "generation": SECOND, "attempt": "2"}),
    ("the late owner completes", ("complete", "$T/REFUND/r-2", FIRST, {}, "re_2", 7),
     {"sqlstate": "ID002"}),
    ("and catches the error", ("try_complete", "$T/REFUND/r-2", FIRST, {}, "re_2", 7),
     {"answer": "replaced"}),
    ("the new owner completes", ("try_complete", "$T/REFUND/r-2", SECOND, {}, "re_2", 7),
     {"answer": "done"}),

    ("a claim", ("claim", "$T/REFUND/r-3", {"amount": 8}, None, None), {"outcome": "execute"}),
    ("rejecting it", ("reject", "$T/REFUND/r-3", FIRST, {"why": "no such payment"}),
     {"answer": "done"}),
    ("a claim of what was rejected", ("claim", "$T/REFUND/r-3", {"amount": 8}, None, None),
     {"outcome": "rejected"}),
    ("completing what was rejected", ("complete", "$T/REFUND/r-3", FIRST, {}, "re_3", 8),
     {"sqlstate": "ID003"}),

    ("a claim", ("claim", "$T/REFUND/r-4", {"amount": 9}, None, None), {"outcome": "execute"}),
    ("nobody knows", ("mark_unknown", "$T/REFUND/r-4", FIRST, {"error": "time-out"}, 7200),
     {"answer": "done"}),
    ("a claim of what is unknown", ("claim", "$T/REFUND/r-4", {"amount": 9}, None, None),
     {"outcome": "busy"}),
    ("completing in the transaction of the claim", ("early", "$T/REFUND/r-5", {"amount": 1}),
     {"sqlstate": "ID003"}),
    ("which has left nothing", ("claim", "$T/REFUND/r-5", {"amount": 1}, None, None),
     {"outcome": "execute", "attempt": "1"}),

    ("once", ("once", "$T/CREDIT/c-1", {"amount": 5}, 5), {"answer": "true"}),
    ("once more", ("once", "$T/CREDIT/c-1", {"amount": 5}, 5), {"answer": "false"}),
    ("once with other parameters", ("once", "$T/CREDIT/c-1", {"amount": 6}, 6),
     {"sqlstate": "ID001"}),
    ("once, and the write beside it fails", ("once", "$T/CREDIT/c-2", {"amount": 5}, -5),
     {"sqlstate": "23514"}),
    ("once again", ("once", "$T/CREDIT/c-2", {"amount": 5}, 5), {"answer": "true"}),
    ("autocommit, and the write after it fails", ("once_trap", "$T/CREDIT/c-3", {"amount": 5}, -5),
     {"sqlstate": "23514"}),
    ("once again, which is too late", ("once", "$T/CREDIT/c-3", {"amount": 5}, 5),
     {"answer": "false"}),

    ("a batch of events",
     ("consume", ["$T/stock/e-1", "$T/stock/e-2", "$T/stock/e-1", "$T/stock/e-2"],
      [{"pieces": 1}, {"pieces": 2}, {"pieces": 1}, {"pieces": 3}], [AT, AT, AT, AT]),
     {"answer": "first,first,duplicate,conflict"}),
    ("the batch comes again",
     ("consume", ["$T/stock/e-3", "$T/stock/e-2", "$T/stock/e-1"],
      [{"pieces": 3}, {"pieces": 2}, {"pieces": 1}], [AT, AT, AT]),
     {"answer": "first,duplicate,duplicate"}),
)

# what the books must hold in the end, for each tenant
BOOKS = (
    ("SELECT idem_key_id(key) AS id, amount, reference FROM refund"
     " WHERE idem_key_tenant(key) = '$T' ORDER BY 1",
     [{"id": "r-1", "amount": 10, "reference": "re_1"},
      {"id": "r-2", "amount": 7, "reference": "re_2"}],
     "each refund is booked once, and none by an owner who was refused"),
    ("SELECT idem_key_id(key) AS id, amount FROM credit WHERE idem_key_tenant(key) = '$T'"
     " ORDER BY 1", [{"id": "c-1", "amount": 5}, {"id": "c-2", "amount": 5}],
     "each credit is booked once, and the one in the trap is lost"),
    ("SELECT idem_key_id(key) AS id, pieces FROM stock WHERE idem_key_tenant(key) = '$T'"
     " ORDER BY 1", [{"id": "e-1", "pieces": 1}, {"id": "e-2", "pieces": 2},
                     {"id": "e-3", "pieces": 3}], "each event is booked once"),
    ("SELECT occurred_at = '%s' AS is_exact FROM idem_action WHERE key = '$T/REFUND/r-1'" % AT,
     [{"is_exact": True}], "a time arrives with its microseconds"),
    ("SELECT due_at - updated_at BETWEEN '115 min' AND '121 min' AS is_so FROM idem_lease"
     " JOIN idem_action USING (key) WHERE key = '$T/REFUND/r-4'",
     [{"is_so": True}], "an interval arrives as it was meant"),
)


class Driver:
    """How the program of a driver is run, and what is peculiar to it."""

    def __init__(self, name, command, error_class, prepares, lost, mistakes):
        self.name = name
        self.command = command
        self.error_class = error_class      # of an error whose SQLSTATE the driver does not know
        self.prepares = prepares            # named statements at the server, by itself
        self.lost = lost                    # SQLSTATEs of a connection that broke; \\N is none
        self.mistakes = mistakes            # what its page warns of, and what comes of it


def drivers():
    java = os.path.join(e2e.directory(), "java")
    subprocess.run(["javac", "-Xlint:all", "-Werror", "-cp", JDBC, "-d", java,
                    os.path.join(HERE, "WithJdbc.java")], check=True)
    python = ["/usr/bin/python3"]
    return (
        Driver("psycopg3", python + [os.path.join(HERE, "with_psycopg3.py")],
               "DatabaseError", True, ["\\N"],
               {"json": "42883", "dict": "ProgrammingError", "savepoint": "ID003"}),
        Driver("psycopg2", python + [os.path.join(HERE, "with_psycopg2.py")],
               "DatabaseError", False, ["\\N"], {"dict": "ProgrammingError", "jsons": "42883"}),
        Driver("node-pg", ["node", os.path.join(e2e.downloads(), "with_node_pg.js")],
               "DatabaseError", False, ["\\N"],
               {"array": "22P02", "number": "conflict", "date": "conflict"}),
        Driver("jdbc", ["java", "-Xshare:auto", "-cp", JDBC + ":" + java, "WithJdbc"],
               "PSQLException", True, ["57P01", "08006"],
               {"uncast": "42883", "null": "0", "exception": "execute"}),
        Driver("pgx", [os.path.join(e2e.downloads(), "with_pgx")], "PgError", True,
               ["57P01", "\\N"], {"number": "conflict"}),
    )


def word(value, tenant, separator="|"):
    """A value as the programs read it; see drivers/protocol.py."""
    if value is None:
        return "\\N"
    if isinstance(value, list):
        return (separator if isinstance(value[0], dict) else ",").join(
            word(element, tenant) for element in value)
    if isinstance(value, dict):
        return json.dumps(value)
    return str(value).replace("$T", tenant)


class Program:
    """A running driver program."""

    def __init__(self, driver, label, port, arguments=(), database=None):
        self.driver = driver
        self.tenant = label
        self.child = e2e.Child(
            label, driver.command + list(arguments),
            {"PGHOST": "127.0.0.1", "PGPORT": str(port), "PGUSER": ROLE,
             "PGDATABASE": database or os.environ["PGDATABASE"], "PGSSLMODE": "disable"},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def tell(self, command):
        self.child.process.stdin.write("\t".join(word(part, self.tenant) for part in command)
                                       + "\n")
        self.child.process.stdin.flush()

    def answer(self):
        line = self.child.process.stdout.readline()
        if not line:
            raise e2e.Trouble("%s has ended\n%s" % (self.tenant, self.child.printed()))
        return dict(field.split("=", 1) for field in line.rstrip("\n").split("\t"))

    def ask(self, *command):
        self.tell(command)
        return self.answer()

    def end(self):
        self.child.process.stdin.close()
        return self.child.wait()


def as_expected(found, wanted):
    """The fields that are wanted, each as far as it is not."""
    differences = {}
    for field, value in wanted.items():
        got = found.get(field)
        if field == "lease_until":
            same = got is not None and abs(int(got) / 1000 - time.time() - value) < 20
        elif isinstance(value, dict):
            same = got is not None and json.loads(got) == value
        else:
            same = got == value
        if not same:
            differences[field] = value
    return differences


def play(programs, how):
    """The script, step by step by all of them at once; true answers are compared with it."""
    for name, command, wanted in SCRIPT:
        if command[0] == "wait":
            time.sleep(command[1])
            continue
        for program in programs:
            program.tell(command)
        for program in programs:
            found = program.answer()
            wanted = dict(wanted)
            if wanted.get("sqlstate", "").startswith("ID"):
                wanted["class"] = program.driver.error_class
            if not e2e.ok(not as_expected(found, wanted),
                          "%s, %s: %s" % (program.driver.name, how, name)):
                e2e.note("found:  %r" % found)
                e2e.note("wanted: %r" % wanted)
    for program in programs:
        for statement, rows, name in BOOKS:
            e2e.equal(e2e.query(statement.replace("$T", program.tenant)), rows,
                      "%s, %s: %s" % (program.driver.name, how, name))


def open_programs(all_drivers, how, port, arguments=()):
    programs = [Program(driver, "%s-%s" % (driver.name, how), port, arguments)
                for driver in all_drivers]
    for program in programs:
        e2e.execute("SELECT idem_grant('%s', 'application', '%s')" % (ROLE, program.tenant))
    return programs


def direct_story(all_drivers):
    programs = open_programs(all_drivers, "direct", os.environ["PGPORT"])
    play(programs, "direct")
    for program in programs:
        e2e.equal(program.ask("mistakes", "$T/STAMPED/m-1", AT), program.driver.mistakes,
                  "%s: what its page warns of" % program.driver.name)
        program.ask("many", 12, "$T/REFUND/r-1", {"amount": 10}, AT)
        e2e.equal(program.ask("prepared")["answer"] != "0", program.driver.prepares,
                  "%s prepares named statements %s" % (
                      program.driver.name, "by itself" if program.driver.prepares else "not"))
        e2e.equal(program.ask("claim", "somebody/REFUND/r-1", {}, None, None)["sqlstate"],
                  "42501", "%s: another tenant's key" % program.driver.name)
    e2e.execute("SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
                " WHERE usename = '%s'" % ROLE)
    for program in programs:
        found = program.ask("claim", "$T/REFUND/r-1", {"amount": 10}, AT, None)
        if not e2e.ok(found.get("sqlstate") in program.driver.lost,
                      "%s: a connection that broke" % program.driver.name):
            e2e.note("found: %r" % found)
        e2e.equal(program.end(), 0, "%s ends well" % program.driver.name)


class Pooler(e2e.Server):
    """PgBouncer in transaction mode: as many server connections as it is told."""

    def __init__(self, name, pool_size):
        self.directory = os.path.join(e2e.directory(), name)
        self.pool_size = pool_size
        os.mkdir(self.directory)
        with open(os.path.join(self.directory, "users"), "w") as users:
            users.write('"%s" ""\n' % ROLE)
        super().__init__(name, self.command_line, e2e.accepts)

    def command_line(self, port):
        path = os.path.join(self.directory, "pgbouncer.ini")
        with open(path, "w") as file:
            file.write(INI % {"server_port": os.environ["PGPORT"], "port": port,
                              "directory": self.directory, "pool_size": self.pool_size})
        return ["pgbouncer", path]


INI = """
[databases]
* = host=127.0.0.1 port=%(server_port)s

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %(port)d
unix_socket_dir =
auth_type = trust
auth_file = %(directory)s/users
pool_mode = transaction
default_pool_size = %(pool_size)d
ignore_startup_parameters = extra_float_digits
"""


def pooled_story(all_drivers):
    pooler = Pooler("pooler", 2)
    programs = open_programs(all_drivers, "pooled", pooler.port, ["pooled"])
    play(programs, "pooled")
    for program in programs:
        e2e.equal(program.end(), 0, "%s ends well, pooled" % program.driver.name)
    pooler.stop()


def follows_statements():
    """Whether this PgBouncer knows of named statements which server connection has them."""
    version = subprocess.run(["pgbouncer", "--version"], stdout=subprocess.PIPE, text=True,
                             check=True).stdout
    return [int(part) for part in version.split()[1].split(".")[:2]] >= [1, 21]


def named_statements_story(all_drivers):
    """Two clients take turns at one server connection, and both prepare by the same names."""
    if follows_statements():
        e2e.note("this PgBouncer can follow named statements")
        return
    for driver in (driver for driver in all_drivers if driver.prepares):
        pooler = Pooler("statements-" + driver.name, 1)
        programs = [Program(driver, driver.name + "-pooled", pooler.port) for _ in range(2)]
        answers = [program.ask("many", 12, "$T/REFUND/r-1", {"amount": 10}, AT)
                   for program in programs]
        e2e.equal([answers[0].get("answer"), answers[1].get("sqlstate")], ["succeeded", "42P05"],
                  "%s: named statements of two clients collide in a pool" % driver.name)
        for program in programs:
            program.end()
        pooler.stop()


def consume(connection, event):
    connection.execute("SELECT idem_consume(%s, '{}')", ("settings/stock/" + event,))


def batch_of(event):
    return e2e.query("SELECT replay_batch FROM idem_event WHERE key = 'settings/stock/%s'"
                     % event)[0]["replay_batch"]


def settings_story():
    """SET LOCAL ends with its transaction; SET stays with the server connection."""
    pooler = Pooler("settings", 1)
    conninfo = "host=127.0.0.1 port=%d user=%s dbname=%s" % (
        pooler.port, ROLE, os.environ["PGDATABASE"])
    e2e.execute("SELECT idem_grant('%s', 'application', 'settings')" % ROLE)
    with psycopg.connect(conninfo, autocommit=True) as one, \
            psycopg.connect(conninfo, autocommit=True) as other:

        with one.transaction():
            one.execute("SET LOCAL idem_action.replay_batch = 'rb-1'")
            consume(one, "e-1")
        e2e.equal(batch_of("e-1"), "rb-1", "SET LOCAL stamps what its transaction consumes")
        consume(other, "e-2")
        e2e.equal(batch_of("e-2"), None, "and nothing of the next client's")
        with one.transaction():
            one.execute("SELECT set_config('idem_action.replay_batch', %s, true)", ("rb-2",))
            consume(one, "e-3")
        e2e.equal(batch_of("e-3"), "rb-2", "set_config with a parameter does the same")
        one.execute("SET idem_action.replay_batch = 'rb-3'")
        consume(other, "e-4")
        e2e.equal(batch_of("e-4"), "rb-3", "SET leaks to the next client of the connection")
    pooler.stop()


def story():
    e2e.execute(SET_UP)
    all_drivers = drivers()
    direct_story(all_drivers)
    pooled_story(all_drivers)
    named_statements_story(all_drivers)
    settings_story()


e2e.main(story)
