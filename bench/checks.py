"""checks.py: what the figures rest on, and the limits that are no comparison.

Each function measures one thing and returns it; measure.py knows the limits.
"""

import re

import calls
import server
import throughput

EXTERNAL_RESULTS = (64, 300, 1000)   # bytes
ASKED = 10000                      # keys asked for, but for 'any'
WHICH = ('newest', 'far apart', 'any')


def inbox_form(side, consume, table, transition):
    return {'consume': consume, 'keep': side + '_consume_result', 'orders': table,
            'transition': transition}


# file of questions → who is asked → psql's variables; every form that is measured is asked
ASKED_OF = {
    'check': {
        'idem': {'side': 'idem', 'evidence': 'idem_evidence',
                 'replay_batch': 'idem_action.replay_batch'},
        'rival': {'side': 'rival', 'evidence': 'rival.evidence',
                  'replay_batch': 'rival.replay_batch'},
    },
    'check_inbox': {
        'idem': inbox_form('idem', 'idem_consume', 'orders.idem', "idem_transition('orders.idem',"),
        'rival': inbox_form('rival', 'rival_consume', 'orders.rival', 'rival_transition('),
        'rival, look first, one expression':
            inbox_form('rival', 'rival_consume_again', 'orders.rival_terse',
                       "rival_transition_any('orders.rival_terse',"),
        'rival, before the row is written':
            inbox_form('rival', 'rival_consume', 'orders.rival_before',
                       "rival_transition_any('orders.rival_before',"),
        'rival, any table':
            inbox_form('rival', 'rival_consume', 'orders.rival_any',
                       "rival_transition_any('orders.rival_any',"),
    },
}


def answers(database, questions):
    """Lines in which a side and the file of answers to the questions differ, and how many answers
    there are; no lines if all answer as written."""
    expected = server.source(questions + '.out').splitlines()
    differing = []
    for side, variables in ASKED_OF[questions].items():
        # what another form of the rival has answered is none of this one's business
        server.sql(database, 'TRUNCATE rival.event')
        given = server.run('psql', '-Xq', *('--set=%s=%s' % v for v in variables.items()),
                           '-d', database, '-f', '-',
                           text=server.source(questions + '.sql')).splitlines()
        for number in range(max(len(expected), len(given))):
            want = expected[number] if number < len(expected) else '(nothing)'
            have = given[number] if number < len(given) else '(nothing)'
            if want != have:
                differing.append('line %d: %s answers "%s", expected is "%s"'
                                 % (number + 1, side, have, want))
    return differing, len(expected)


def trace_of_duplicates(database, statement, prefix, count=1000):
    """What so many duplicates leave behind: tuples of each kind, bytes of WAL, a transaction id.

    The same keys are asked for once before, so that first calls and hint bits are not counted.
    """
    tuples = """SELECT sum(n_tup_ins + n_tup_upd + n_tup_del), sum(n_dead_tup)
        FROM pg_stat_user_tables;"""
    ask = calls.loop(statement, 1, count, prefix)
    script = ask + 'SELECT pg_stat_force_next_flush();\n%s\n' % tuples + """
        SELECT pg_current_wal_insert_lsn() AS before \\gset
        BEGIN;
        %s
        SELECT 'xid', pg_current_xact_id_if_assigned() IS NOT NULL;
        COMMIT;
        SELECT 'wal', pg_current_wal_insert_lsn() - :'before';
        SELECT pg_stat_force_next_flush();
        %s""" % (ask, tuples)
    best = None
    # the server's own processes write WAL now and then, so the quietest of three runs counts
    for _ in range(3):
        lines = [line for line in server.sql(database, script).splitlines() if line]
        before, xid, wal, after = [line.split('|') for line in lines]
        seen = {'tuples written': int(after[0]) - int(before[0]),
                'dead tuples': int(after[1]) - int(before[1]),
                'transaction id': int(xid[1] == 't'), 'bytes of WAL': int(wal[1])}
        if best is None or sum(seen.values()) < sum(best.values()):
            best = seen
    return best


def hot_share(database, script):
    """(share of HOT among the updates of idem_action that a script makes, number of updates)."""
    counts = """SELECT coalesce(sum(n_tup_upd), 0), coalesce(sum(n_tup_hot_upd), 0)
        FROM pg_stat_user_tables WHERE relname = 'idem_action';"""
    before = [int(x) for x in server.sql(database, counts).split('|')]
    server.sql(database, script)
    after = [int(x) for x in server.sql(database, counts).split('|')]
    return (after[1] - before[1]) / max(after[0] - before[0], 1), after[0] - before[0]


def hot_local(database, actions=20000):
    return hot_share(database, calls.loop(
        calls.claim('extension') + calls.complete('extension') + ' COMMIT;',
        1, actions, 'acme/PAY/h-'))


def hot_external(database, size, actions=4000, in_flight=16):
    """Claims in batches, each claim and each complete a transaction of its own."""
    script = """DO $bench$
DECLARE
    p jsonb := '%s'; v record; generations bigint[];
    r jsonb := jsonb_build_object('r', repeat('x', %d));
BEGIN
    FOR batch IN 1..%d LOOP
        generations := '{}';
        FOR i IN 1..%d LOOP
            SELECT * INTO v FROM idem_claim('acme/SEND/h%d-' || batch || '-' || i, p);
            generations := generations || v.generation;
            COMMIT;
        END LOOP;
        FOR i IN 1..%d LOOP
            PERFORM idem_complete('acme/SEND/h%d-' || batch || '-' || i, generations[i], r);
            COMMIT;
        END LOOP;
    END LOOP;
END
$bench$;
""" % (calls.PARAMS, size - len('{"r": ""}'), actions // in_flight, in_flight, size, in_flight,
       size)
    return hot_share(database, script)[0]


def serializable(database, side, seconds):
    """(transactions, share of them retried) of 16 SERIALIZABLE clients with different keys."""
    script = throughput.claim_and_complete(side).replace(
        'BEGIN;', 'BEGIN ISOLATION LEVEL SERIALIZABLE;')
    report = throughput.pgbench(database, script, 16, seconds, '--max-tries=100')
    done, retried, failed = (
        int(re.search(r'^number of %s: (\d+)' % what, report, re.M).group(1))
        for what in ('transactions actually processed', 'transactions retried',
                     'failed transactions'))
    return done, (retried + failed) / max(done + failed, 1)


def growth(database, claims):
    """Bytes by which one backend grew from its first twentieth of so many claims to the last:
    in its memory contexts, and in anonymous memory.

    Of eight claims two are first calls, one rolled back and one completed, and six are duplicates.
    """
    body = ("SELECT * INTO v FROM idem_claim(k || 'x', p); ROLLBACK;"
            + calls.claim('extension') + calls.complete('extension') + ' COMMIT;'
            + 'FOR again IN 1..6 LOOP ' + calls.duplicate('extension') + ' END LOOP; COMMIT;')
    size = r"""SELECT sum(total_bytes),
            substring(pg_read_file('/proc/self/status') FROM 'RssAnon:\s+(\d+) kB')::bigint * 1024
        FROM pg_backend_memory_contexts;"""
    keys = claims // 8
    out = server.sql(database, 'SET synchronous_commit = off;'
                     + calls.loop(body, 1, keys // 20, 'acme/PAY/m-') + size
                     + calls.loop(body, keys // 20 + 1, keys, 'acme/PAY/m-') + size)
    before, after = [[int(x) for x in line.split('|')] for line in out.splitlines()]
    return after[0] - before[0], after[1] - before[1]


def fill(database, rows):
    """Stores so many finished actions: copies of one, under other keys, as a superuser may."""
    server.sql(database, calls.loop(calls.claim('extension') + calls.complete('extension'),
                                    0, 0, 'acme/PAY/l-'))
    columns = server.sql(database, """
        SELECT quote_ident(a.attname), format_type(a.atttypid, a.atttypmod),
               a.attnum = ANY (i.indkey)
        FROM pg_attribute a JOIN pg_index i ON i.indrelid = a.attrelid AND i.indisprimary
        WHERE a.attrelid = 'idem_action'::regclass AND a.attnum > 0 AND NOT a.attisdropped
            AND a.attgenerated = ''
        ORDER BY a.attnum""").splitlines()
    columns = [line.split('|') for line in columns]
    names = ', '.join(name for name, _, _ in columns)
    values = ', '.join("('acme/PAY/l-' || (100000000 + n))::%s" % kind if is_key == 't'
                       else 'a.' + name for name, kind, is_key in columns)
    key = next(name for name, _, is_key in columns if is_key == 't')
    server.sql(database, """
        INSERT INTO idem_action (%s)
        SELECT %s FROM idem_action a, generate_series(1, %d) AS n
        WHERE a.%s = 'acme/PAY/l-100000000';
        VACUUM ANALYZE idem_action;
        CHECKPOINT;""" % (names, values, rows, key))


def submit_due(database, rows):
    """Puts so many external actions on record that are due at once."""
    server.sql(database, calls.loop('PERFORM idem_submit(k, p); COMMIT;', 1, rows, 'acme/SEND/d-')
               + 'CHECKPOINT;')


def duplicate_latency(database, rows, which, seconds):
    """Microseconds of a duplicate, as a client sees them; WHICH says of which stored action."""
    count, key = {'newest': (ASKED, '%d - :n' % (rows + 1)),
                  'far apart': (ASKED, ':n * %d' % (rows // ASKED)),
                  'any': (rows, ':n')}[which]
    script = ('\\set n random(1, %d)\n' % count
              + "SELECT * FROM idem_claim('acme/PAY/l-' || (100000000 + %s)::text, '%s');\n"
              % (key, calls.PARAMS))
    return 1e6 / throughput.tps(database, script, 1, seconds)
