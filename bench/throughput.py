"""throughput.py: transactions per second by pgbench, as ratios of neighbouring runs.

The sides take turns, each round in the other direction, and a ratio is only ever taken within a
round; what is reported is the median over the rounds.  Keys of first calls are random, so that runs
do not meet.  Every statement is a prepared one, sent and answered on its own.
"""

import os
import re
import statistics

import calls
import server

FINISHED = 1000                 # actions that duplicates are asked for
SIDES = ('extension', 'rival', 'raw')
NEW = '\\set n random(1, 9000000000000000000)\n'
OLD = '\\set n random(1, %d)\n' % FINISHED


def claim_and_complete(side):
    key = "'acme/PAY/p-' || :n::text"
    if side == 'raw':
        first = ("INSERT INTO raw.action (key, state, params) VALUES (%s, 'processing', '%s') "
                 'ON CONFLICT DO NOTHING;' % (key, calls.PARAMS))
        second = ("UPDATE raw.action SET state = 'succeeded', result = '%s' WHERE key = %s;"
                  % (calls.RESULT, key))
    else:
        first = "SELECT * FROM %s(%s, '%s') \\gset" % (calls.CLAIM[side], key, calls.PARAMS)
        second = "SELECT %s(%s, :generation, '%s');" % (calls.COMPLETE[side], key, calls.RESULT)
    return NEW + '\n'.join(['BEGIN;', first, second, 'COMMIT;']) + '\n'


def once(side):
    key = "'acme/PAY/p-' || :n::text"
    if side == 'raw':
        return NEW + ("INSERT INTO raw.action (key, state, params) VALUES (%s, 'succeeded', '%s') "
                      'ON CONFLICT DO NOTHING;\n' % (key, calls.PARAMS))
    return NEW + "SELECT %s(%s, '%s');\n" % (calls.ONCE[side], key, calls.PARAMS)


def duplicate(side):
    key = "'acme/PAY/d-' || (100000000 + :n)::text"
    if side == 'raw':
        return OLD + 'SELECT state, result FROM raw.action WHERE key = %s;\n' % key
    return OLD + "SELECT * FROM %s(%s, '%s');\n" % (calls.DUPLICATE[side], key, calls.PARAMS)


CALLS = (('claim+complete', claim_and_complete), ('once', once), ('duplicate', duplicate))


def pgbench(database, script, clients, seconds, *options):
    path = os.path.join(server.OUTPUT, 'pgbench.sql')
    with open(path, 'w', encoding='utf-8') as out:
        out.write(script)
    report = server.run('pgbench', '-n', '-M', 'prepared', '-c', str(clients), '-j',
                        str(min(clients, 2)), '-T', str(seconds), '-f', path, *options, database)
    return report


def tps(database, script, clients, seconds):
    report = pgbench(database, script, clients, seconds)
    return float(re.search(r'^tps = ([\d.]+)', report, re.M).group(1))


def take_turns(runs, rounds):
    """name → what its runs returned, round by round."""
    seen = {name: [] for name in runs}
    for turn in range(rounds):
        for name in (runs if turn % 2 == 0 else reversed(runs)):
            seen[name].append(runs[name]())
    return seen


def compare(runs, rounds):
    """name → median, and (name, name) → median of the ratios within a round."""
    seen = take_turns(runs, rounds)
    names = list(runs)
    medians = {name: statistics.median(seen[name]) for name in names}
    ratios = {(a, b): statistics.median(x / y for x, y in zip(seen[a], seen[b]))
              for a in names for b in names if a != b}
    return medians, ratios


def prepare(database):
    for side in SIDES:
        server.sql(database, calls.loop(calls.claim(side) + calls.complete(side) + ' COMMIT;',
                                        1, FINISHED, 'acme/PAY/d-'))
    server.sql(database, 'VACUUM ANALYZE')


def measure(database, rounds, seconds):
    """(call, clients) → (medians, ratios)."""
    result = {}
    for call, script in CALLS:
        for clients in (1, 16):
            runs = {side: (lambda side=side: tps(database, script(side), clients, seconds))
                    for side in SIDES}
            result[call, clients] = compare(runs, rounds)
    return result
