"""server.py: the throwaway server that bench/run has started, as the measuring scripts see it.

Databases, statements, and stopping the server so that a single-user backend can have its data
directory.  Everything is done with PostgreSQL's own programs, found in PATH and pointed at the
server by the PG* variables of the environment.
"""

import os
import subprocess

HERE = os.path.dirname(os.path.abspath(__file__))
OUTPUT = os.path.dirname(os.environ['PGDATA'])


def run(*command, text=None):
    """The output of a program; its complaints end the measurement."""
    done = subprocess.run(command, input=text, stdin=None if text else subprocess.DEVNULL,
                          capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit('%s failed\n%s%s' % (' '.join(command), done.stdout, done.stderr))
    return done.stdout


def sql(database, text):
    """The values that a script returns, one a line, columns divided by '|'."""
    return run('psql', '-XAtq', '-v', 'ON_ERROR_STOP=1', '-d', database, '-f', '-',
               text=text).strip()


def source(name):
    """The text of a file of this directory."""
    with open(os.path.join(HERE, name), encoding='utf-8') as text:
        return text.read()


def start():
    run('pg_ctl', '-w', '-l', os.path.join(OUTPUT, 'server.log'), 'start')


def stop():
    run('pg_ctl', '-w', '-m', 'fast', 'stop')


def build(flags=''):
    """Compiles the copy of the extension anew, with these flags beside its own, and installs it."""
    make = ('make', '-s', '-C', os.path.dirname(HERE), 'with_llvm=no', 'COPT=' + flags)
    run(*make, 'clean')
    run(*make, 'install')


def create_database(name):
    """A database with the extension, the rival and the bare tables, and their contracts."""
    sql('postgres', 'CREATE DATABASE %s' % name)
    sql(name, 'CREATE EXTENSION idem_action;\n'
        + ''.join(source(part) for part in ('rival.sql', 'rival_inbox.sql', 'rival_guard.sql',
                                             'raw.sql', 'contracts.sql')))


def drop_database(name):
    sql('postgres', 'DROP DATABASE %s' % name)
