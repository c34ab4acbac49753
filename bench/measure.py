"""measure.py: runs every section, prints one table, and fails if a limit is missed.

Called by bench/run, which has started the server.  Sections can be chosen by name; the parameters
come from the environment, see bench/run.
"""

import os
import sys

import calls
import checks
import guard
import inbox
import instructions
import server
import shares
import throughput

SECTIONS = ('answers', 'traces', 'hot', 'serializable', 'memory', 'large', 'throughput',
            'instructions')
ROWS = max(int(os.environ.get('ROWS', 10000000)), checks.ASKED)
FEW_ROWS = checks.ASKED
STORED = {'bench_few': FEW_ROWS, 'bench_many': ROWS}
ROUNDS = int(os.environ.get('ROUNDS', 5))
DURATION = int(os.environ.get('DURATION', 3))
CALLS = int(os.environ.get('CALLS', 300))
CLAIMS = int(os.environ.get('CLAIMS', 1000000))

# what is measured, on which other side, and at most which share of its instructions, if any
INSTRUCTION_LIMITS = (
    ('duplicate', 'rival', 0.40, 'duplicate of a finished action'),
    ('duplicate, params not kept', 'rival', None, '    parameters not kept'),
    ('claim', 'rival', 0.95, 'first local claim'),
    ('claim+complete', 'rival', 0.95, 'local claim + complete'),
    ('once', 'rival', 0.90, 'idem_once, first time'),
    ('external', 'rival', 0.90, 'external claim, commit, complete'),
    ('digest', 'rival', 0.80, 'idem_digest of six members'),
    ('consume', 'rival', 0.90, 'first consume of an event'),
    ('consume again', 'rival', 0.40, 'duplicate of an event'),
    ('consume again, payload not kept', 'rival', None, '    payload not kept'),
    ('batch', 'one by one', 0.40, 'batch of 100 events, to one by one'),
    ('update', 'rival', 0.60, 'guarded UPDATE'),
    ('update', 'raw', 1.35, 'guarded UPDATE, to a bare one'),
    ('transition', 'rival', 0.90, 'idem_transition, applied'),
)
# of the instructions of a duplicate
SHARE_LIMITS = {'counting': 0.02, 'tenant check': 0.03, 'tenant check, tenants in turn': 0.03}
LARGE_LIMIT = 1.5
DUE, TAKEN, DUE_LIMIT = 1000, 10, 1.3
HOT_LIMIT = 0.99
RETRY_LIMIT = 0.01
GROWTH_LIMIT = 1024 * 1024

lines = []
limits = []


def progress(text):
    print(text, file=sys.stderr, flush=True)


def judge(is_met):
    limits.append(is_met)
    return 'met' if is_met else 'MISSED'


def table(*columns):
    lines.append('%-44s %12s %12s %12s %8s %8s  %s' % (columns + ('',) * (7 - len(columns))))


def number(value):
    return '-' if value is None else '{:,.0f}'.format(value)


def finding(text, is_met=None):
    lines.append('%-7s %s' % ('' if is_met is None else judge(is_met), text))


def section_answers():
    for questions in checks.ASKED_OF:
        differing, count = checks.answers('bench', questions)
        finding('both sides answer the %d lines of %s.out alike' % (count, questions),
                count > 0 and not differing)
        for line in differing:
            finding('    ' + line)


def section_traces():
    for kind, statement, prefix in (
            ('duplicates', calls.duplicate('extension'), 'acme/PAY/d-'),
            ('duplicate events', inbox.duplicate('extension'), 'acme/stock/d-')):
        trace = checks.trace_of_duplicates('bench', statement, prefix)
        finding('1,000 %s leave ' % kind
                + ', '.join('%d %s' % (n, what) for what, n in trace.items()),
                not any(trace.values()))


def section_hot():
    share, updates = checks.hot_local('bench')
    finding('completes of local actions that are HOT: %.2f %% of %s, at least %.0f %%'
            % (100 * share, number(updates), 100 * HOT_LIMIT), updates > 0 and share >= HOT_LIMIT)
    shares = ['%.1f %% (result of %d bytes)' % (100 * checks.hot_external('bench', size), size)
              for size in checks.EXTERNAL_RESULTS]
    finding('of external ones, 16 in flight: ' + ', '.join(shares))


def section_serializable():
    server.create_database('bench_serializable')
    done, share = checks.serializable('bench_serializable', 'extension', DURATION)
    finding('16 SERIALIZABLE clients claiming different keys: %.3f %% of %s retried, under %.0f %%'
            % (100 * share, number(done), 100 * RETRY_LIMIT), done > 0 and share < RETRY_LIMIT)
    done, share = checks.serializable('bench_serializable', 'rival', DURATION)
    finding('the rival there: %.3f %% of %s' % (100 * share, number(done)))
    server.drop_database('bench_serializable')


def section_memory():
    contexts, anonymous = checks.growth('bench', CLAIMS)
    finding('one backend making %s claims grows by %d kB (contexts) and %d kB (anonymous memory), '
            'at most %d kB'
            % (number(CLAIMS), contexts // 1024, anonymous // 1024, GROWTH_LIMIT // 1024),
            max(contexts, anonymous) <= GROWTH_LIMIT)


def section_throughput():
    found = throughput.measure('bench', ROUNDS, DURATION)
    fsync = server.sql('bench', 'SHOW fsync')
    lines.append('')
    table('transactions per second, fsync %s' % fsync, 'extension', 'rival', 'raw SQL',
          'to rival', 'to raw')
    for (call, clients), (medians, ratios) in found.items():
        table('%s, %d client%s' % (call, clients, '' if clients == 1 else 's'),
              number(medians['extension']), number(medians['rival']), number(medians['raw']),
              '%.2f' % ratios['extension', 'rival'], '%.2f' % ratios['extension', 'raw'])
    lines.append('More is better.  Medians of %d rounds of %d s on %d processors.  Only the '
                 'ratios, each taken\nwithin a round, mean anything beyond this machine and run.'
                 % (ROUNDS, DURATION, os.cpu_count()))


def section_large():
    for database, rows in STORED.items():
        progress('storing %s actions' % number(rows))
        server.create_database(database)
        checks.fill(database, rows)
        checks.submit_due(database, DUE)
    runs = {'few': lambda: checks.duplicate_latency('bench_few', FEW_ROWS, 'newest', DURATION)}
    for which in checks.WHICH:
        runs[which] = lambda which=which: checks.duplicate_latency('bench_many', ROWS, which,
                                                                   DURATION)
    # whatever else the machine does only ever adds, so the quickest round is the truest
    quickest = {name: min(seen) for name, seen in throughput.take_turns(runs, ROUNDS).items()}
    server.stop()
    few, many = (instructions.duplicates(database, rows, CALLS)
                 for database, rows in STORED.items())
    due_few, due_many = (instructions.dispatching(database, TAKEN, min(CALLS, 100))
                         for database in STORED)
    server.start()
    finding('duplicate among %s actions, against %s: %.2f times the instructions (%s, %s), '
            'at most %.1f' % (number(ROWS), number(FEW_ROWS), many / few, number(many),
                              number(few), LARGE_LIMIT),
            many / few <= LARGE_LIMIT)
    finding('in time, against %.0f µs: ' % quickest['few'] + ', '.join(
        '%.2f times (%s)' % (quickest[which] / quickest['few'], which) for which in checks.WHICH))
    finding('%d of %s due actions beside %s finished ones, against %s: %.2f times the instructions '
            '(%s, %s), at most %.1f'
            % (TAKEN, number(DUE), number(ROWS), number(FEW_ROWS), due_many / due_few,
               number(due_many), number(due_few), DUE_LIMIT), due_many / due_few <= DUE_LIMIT)
    for database in STORED:
        server.drop_database(database)


def section_instructions():
    # a database of its own, or the figures would depend on what the other sections left
    server.create_database('bench_instructions')
    instructions.prepare('bench_instructions')
    guard.prepare('bench_instructions', CALLS)
    shares.prepare('bench_instructions', CALLS // 3)
    server.stop()
    found = instructions.core('bench_instructions', CALLS)
    found.update(inbox.measure('bench_instructions', CALLS))
    found.update(guard.measure('bench_instructions', CALLS))
    parts = shares.measure('bench_instructions', CALLS // 3)
    server.start()
    lines.append('')
    table('instructions per call', 'extension', 'rival', 'raw SQL', 'ratio', 'at most')
    for call, against, limit, title in INSTRUCTION_LIMITS:
        sides = found[call]
        ratio = sides['extension'] / sides[against]
        table(title, number(sides['extension']), number(sides.get('rival')),
              number(sides.get('raw')), '%.3f' % ratio,
              *(['%.2f' % limit, judge(ratio <= limit)] if limit else []))
        if against == 'raw':
            continue
        for other in sorted(set(sides) - {'extension', 'rival', 'raw'}):
            table(('    rival: %s' if against == 'rival' else '    %s') % other, '',
                  number(sides[other]), '',
                  '%.3f' % (sides['extension'] / sides[other]))
    lines.append('Less is better.  Calling form: SELECT * FROM idem_claim($1, $2), prepared, each '
                 'row in a transaction of its own;\nthat transaction and the loop are taken off on '
                 'every side.')
    for part, instructions_of_part in parts.items():
        share = instructions_of_part / found['duplicate']['extension']
        finding('%s: %s instructions, %.2f %% of a duplicate, under %.0f %%'
                % (part, number(instructions_of_part), 100 * share, 100 * SHARE_LIMITS[part]),
                0 < share < SHARE_LIMITS[part])


def main():
    chosen = sys.argv[1:] or list(SECTIONS)
    for name in chosen:
        if name not in SECTIONS:
            raise SystemExit('no section "%s"; there are %s' % (name, ', '.join(SECTIONS)))
    server.create_database('bench')
    throughput.prepare('bench')
    for name in SECTIONS:
        if name in chosen:
            progress('measuring: ' + name)
            globals()['section_' + name]()
    version = server.sql('postgres', 'SHOW server_version')
    print('idem_action against PL/pgSQL and raw SQL, PostgreSQL %s\n' % version)
    print('\n'.join(line.rstrip() for line in lines))
    missed = limits.count(False)
    print('\n%d limits, %d MISSED' % (len(limits), missed))
    return 1 if missed else 0


if __name__ == '__main__':
    sys.exit(main())
