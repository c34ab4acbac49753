"""inbox.py: instructions of consuming events, one by one and in batches.

The method is that of instructions.py.  A batch is measured against the same events consumed one by
one in one transaction; making the array of keys is taken off on both sides.  Beside it stand a
hundred first consumes in transactions of their own, without those transactions.
"""

import calls
import instructions

BATCH = 100
# the rival's cheapest form for each: see rival_inbox.sql
FIRST = {'extension': 'idem_consume', 'rival': 'rival_consume'}
DUPLICATE = {'extension': 'idem_consume', 'rival': 'rival_consume_again'}
ONE_BY_ONE = 'FOREACH k IN ARRAY keys LOOP SELECT * INTO v FROM idem_consume(k, p); END LOOP;'
AT_ONCE = 'FOR v IN SELECT * FROM idem_consume_batch(keys, payloads) LOOP END LOOP;'


def first(side):
    if side == 'raw':
        return 'INSERT INTO raw.event (key, params) VALUES (k, p) ON CONFLICT DO NOTHING;'
    return 'SELECT * INTO v FROM %s(k, p);' % FIRST[side]


def duplicate(side):
    if side == 'raw':
        return 'SELECT e.result INTO v FROM raw.event AS e WHERE e.key = k;'
    return 'SELECT * INTO v FROM %s(k, p);' % DUPLICATE[side]


def batches(statements, prefix):
    """The statements for BATCH new keys a call, in "keys"."""
    def block(start, last):
        return """DO $bench$
DECLARE
    k text; p jsonb := '%s'; v record; keys text[]; payloads jsonb[] := array_fill(p, '{%d}');
BEGIN
    FOR i IN %d..%d LOOP
        keys := ARRAY(SELECT '%s' || (100000000 + i * %d + n) FROM generate_series(1, %d) AS n);
        %s %s COMMIT;
    END LOOP;
END
$bench$;
""" % (calls.PARAMS, BATCH, start, last, prefix, BATCH, BATCH, statements, instructions.WRITE)
    return block


def measure(database, n):
    """name of the call → side → instructions; the server must be stopped."""
    sides = ('extension', 'rival', 'raw')
    scenarios = [('loop ' + name, instructions.calling(instructions.LOOPS[name]))
                 for name in ('read', 'write')]
    for side in sides:
        scenarios += [
            ('first ' + side, instructions.calling(first(side) + ' COMMIT;', 'acme/stock/e-')),
            ('duplicate ' + side,
             instructions.calling(duplicate(side) + ' COMMIT;', 'acme/stock/e-')),
        ]
    for side in ('extension', 'rival'):
        scenarios += [
            ('fill', instructions.calling(first(side) + ' COMMIT;', 'acme/lean/e-')),
            ('lean ' + side,
             instructions.calling(duplicate(side) + ' COMMIT;', 'acme/lean/e-')),
        ]
    scenarios += [
        ('insert first', instructions.calling(first('rival') + ' COMMIT;', 'acme/stock/e-')),
        ('look first', instructions.calling(duplicate('rival') + ' COMMIT;', 'acme/stock/f-')),
    ]
    found = instructions.measure(database, scenarios, n)
    found.update(instructions.measure(database, [
        ('loop batch', batches('', '')),
        ('batch', batches(AT_ONCE, 'acme/stock/x-')),
        ('one by one', batches(ONE_BY_ONE, 'acme/stock/y-')),
    ], max(n // 10, 1)))

    result = {
        'consume': {side: found['first ' + side] - found['loop write'] for side in sides},
        'consume again': {side: found['duplicate ' + side] - found['loop read']
                          for side in sides},
        'consume again, payload not kept': {side: found['lean ' + side] - found['loop read']
                                        for side in ('extension', 'rival')},
        'batch': {'extension': found['batch'] - found['loop batch'],
                  'one by one': found['one by one'] - found['loop batch']},
    }
    result['batch']['a hundred first consumes'] = BATCH * result['consume']['extension']
    result['consume']['look first'] = found['look first'] - found['loop write']
    result['consume again']['insert first'] = found['insert first'] - found['loop read']
    return result
