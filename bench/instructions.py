"""instructions.py: instructions per call, counted by callgrind in a single-user backend.

Everything that the process executes is counted: there is no toggle to get the nesting of, and what
happens at commit belongs to the call that causes it.  A scenario is run three times in one process:
to warm the caches, with N calls, and with 2N; (I(2N) - I(N)) / N is what one call costs, free of
startup, parsing and planning.  The loop around the calls and its transaction are measured alone and
taken off.  The function pg_backend_pid(), called between the runs, is the mark at which callgrind
writes its counter.
"""

import os
import re
import subprocess

import calls
import server

WARM = 50
MARK = 'SELECT pg_backend_pid();\n'
# an assigned transaction id and a record in the log, as any writing transaction has them
WRITE = "PERFORM pg_logical_emit_message(true, '', '');"
LOOPS = {
    'read': 'COMMIT;',
    'write': WRITE + ' COMMIT;',
    'write twice': WRITE + ' COMMIT; ' + WRITE + ' COMMIT;',
    'abort': WRITE + ' ROLLBACK;',
}
DOCUMENTS = 10


def read_dump(path, function):
    """The instructions of a dump: all of them, or those of calls of a function, whole."""
    with open(path, encoding='utf-8') as dump:
        if function is None:
            return int(re.search(r'^summary: (\d+)', dump.read(), re.M).group(1))
        names, callee, count = {}, None, 0
        for line in dump:
            named = re.match(r"c?fn=\((\d+)\)(?: ([^.'\s]+))?", line)
            if named:
                callee = names[named[1]] = named[2] or names[named[1]]
            elif line.startswith('calls=') and callee == function:
                count += int(next(dump).split()[1])
        return count


def single_user(database, script, function=None):
    """The counters at each mark of a script of statements, run by a backend under callgrind."""
    out = os.path.join(server.OUTPUT, 'callgrind')
    command = ['valgrind', '--tool=callgrind', '--dump-before=pg_backend_pid',
               '--callgrind-out-file=' + out, os.path.join(bindir(), 'postgres'), '--single', '-j',
               '-D', os.environ['PGDATA'], database]
    done = subprocess.run(command, input='\n\n'.join(script + ['']), capture_output=True,
                          text=True)
    errors = [line for line in done.stderr.splitlines() if re.search('ERROR|FATAL|PANIC', line)]
    if done.returncode != 0 or errors:
        raise SystemExit('the single-user backend failed\n' + '\n'.join(errors or [done.stderr]))
    counters = []
    while os.path.exists('%s.%d' % (out, len(counters) + 1)):
        part = '%s.%d' % (out, len(counters) + 1)
        counters.append(read_dump(part, function))
        os.remove(part)
    os.remove(out)
    return counters


def bindir():
    return server.run(os.environ.get('PG_CONFIG', 'pg_config'), '--bindir').strip()


def measure(database, scenarios, n, function=None):
    """Instructions per call of scenarios: (name, function from a range of calls to statements).

    All of them, or those that one function of the extension has in them.
    """
    script = []
    for _, block in scenarios:
        script += [block(1, WARM), MARK, block(WARM + 1, WARM + n), MARK,
                   block(WARM + n + 1, WARM + 3 * n), MARK]
    counters = single_user(database, script, function)
    if len(counters) != 3 * len(scenarios):
        raise SystemExit('callgrind wrote %d counters instead of %d'
                         % (len(counters), 3 * len(scenarios)))
    # the first of each three holds what came before and the warming
    return {name: (counters[3 * i + 2] - counters[3 * i + 1]) / n
            for i, (name, _) in enumerate(scenarios)}


def calling(statements, prefix='acme/PAY/r-'):
    return lambda first, last: calls.loop(statements, first, last, prefix)


def digesting(expression):
    """One statement for every ten calls, over a table, so that nothing is folded."""
    def block(first, last):
        return ('DO $bench$ DECLARE n bigint; BEGIN FOR i IN 1..%d LOOP '
                'SELECT count(%s) INTO n FROM document; END LOOP; END $bench$;'
                % (last - first + 1, expression))
    return block


def prepare(database):
    server.sql(database, server.source('rival_kept.sql') + """
        CREATE TABLE document AS
        SELECT jsonb_build_object('account', 'A-' || n, 'amount', 1000 + n, 'currency', 'EUR',
                                  'order', 'o-' || n, 'reason', 'returned',
                                  'urgent', false) AS params
        FROM generate_series(101, 100 + %d) AS n;
        ANALYZE document""" % DOCUMENTS)


def core(database, n):
    """name of the call → side → instructions; the server must be stopped."""
    strict_setup = re.sub(r'^--.*\n', '', server.source('rival_strict.sql'), flags=re.M)
    sides = ('extension', 'rival', 'raw')
    scenarios = [('loop ' + name, calling(body)) for name, body in LOOPS.items()]
    for side in sides:
        claim, complete = calls.claim(side), calls.complete(side)
        scenarios += [
            ('claim ' + side, calling(claim + ' ROLLBACK;', 'acme/PAY/a-')),
            ('claim+complete ' + side, calling(claim + complete + ' COMMIT;')),
            # whoever reads a page first tidies it up, which is no cost of the answer
            ('tidying', calling(calls.duplicate(side) + ' COMMIT;')),
            ('duplicate ' + side, calling(calls.duplicate(side) + ' COMMIT;')),
            ('once ' + side, calling(calls.once(side) + ' COMMIT;', 'acme/PAY/o-')),
            ('external ' + side,
             calling(claim + ' COMMIT; ' + complete + ' COMMIT;', 'acme/SEND/e-')),
        ]
    for side in ('extension', 'rival'):
        first = calls.claim(side) + calls.complete(side) + ' COMMIT;'
        scenarios += [('fill', calling(first, 'acme/LEAN/r-')),
                      ('lean ' + side, calling(calls.duplicate(side) + ' COMMIT;', 'acme/LEAN/r-'))]
    scenarios += [
        ('kept', calling('SELECT * INTO v FROM rival.claim_kept(k, p); COMMIT;')),
        ('insert first', calling(calls.claim('rival') + ' COMMIT;')),
        ('look first', calling(calls.duplicate('rival') + ' ROLLBACK;', 'acme/PAY/s-')),
        ('document', digesting('params')),
        ('digest extension', digesting('idem_digest(params)')),
        ('digest rival', digesting("sha256(convert_to(params::text, 'UTF8'))")),
    ]
    found = measure(database, scenarios, n)
    single_user(database, strict_setup.strip().split('\n\n'))
    found.update(measure(database, [('strict', calling(
        calls.claim('rival') + calls.complete('rival') + ' COMMIT;', 'acme/PAY/t-'))], n))

    def net(call, loop):
        return {side: found['%s %s' % (call, side)] - found['loop ' + loop] for side in sides}

    result = {
        'duplicate': net('duplicate', 'read'),
        'claim': net('claim', 'abort'),
        'claim+complete': net('claim+complete', 'write'),
        'once': net('once', 'write'),
        'external': net('external', 'write twice'),
        'duplicate, params not kept': {side: found['lean ' + side] - found['loop read']
                                       for side in ('extension', 'rival')},
        'digest': {side: (found['digest ' + side] - found['document']) / DOCUMENTS
                   for side in ('extension', 'rival')},
    }
    result['duplicate']['kept parameters compared'] = found['kept'] - found['loop read']
    result['duplicate']['insert first'] = found['insert first'] - found['loop read']
    result['claim']['look first'] = found['look first'] - found['loop abort']
    result['claim+complete']['strict'] = found['strict'] - found['loop write']
    return result


def dispatching(database, taken, n):
    """Instructions of one call that hands out so many actions; the server must be stopped.

    Each call is rolled back, so that the same ones are due for the next.
    """
    found = measure(database, [
        ('loop', calling(LOOPS['abort'])),
        ('call', calling("SELECT count(*) INTO v FROM idem_claim_next('SEND', %d); ROLLBACK;"
                         % taken))], n)
    return found['call'] - found['loop']


def duplicates(database, rows, n):
    """Instructions of one duplicate among so many stored actions; the server must be stopped.

    The same keys come again and again, so that none is read from disk while it counts.
    """
    key = "k := 'acme/PAY/l-' || (100000000 + (i %% %d + 1) * %d); " % (WARM, rows // WARM)
    found = measure(database, [('loop', calling(key + 'COMMIT;')),
                               ('call', calling(key + calls.duplicate('extension') + ' COMMIT;'))],
                    n)
    return found['call'] - found['loop']
