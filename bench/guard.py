"""guard.py: instructions of updating guarded rows and of moving them by a transition.

The method is that of instructions.py; the tables are those of rival_guard.sql.  Each call updates
another row, which is in its first state before.
"""

import instructions
import server

UPDATE = "UPDATE orders.%s SET state = 'PAID', generation = generation + 1 WHERE id = i;"
TRANSITIONS = {
    'extension':
        "SELECT * INTO v FROM idem_transition('orders.idem', %d + i, 'UNPAID', 'PAID', 2);",
    'rival': "SELECT * INTO v FROM rival_transition(%d + i, 'UNPAID', 'PAID', 2);",
    'any table':
        "SELECT * INTO v FROM rival_transition_any('orders.rival', %d + i, 'UNPAID', 'PAID', 2);",
}
TABLES = {'extension': 'idem', 'rival': 'rival', 'raw': 'bare',
          'before the row is written': 'rival_before', 'one expression': 'rival_terse',
          'any table': 'rival_any'}


def rows(n):
    """Rows that one scenario updates."""
    return instructions.WARM + 3 * n


def prepare(database, n):
    server.sql(database, ''.join("""
        INSERT INTO orders.%s (id, customer, amount, state)
        SELECT n, 'customer ' || n, n / 100.0, 'UNPAID' FROM generate_series(1, %d) AS n;
        VACUUM ANALYZE orders.%s;""" % (table, 3 * rows(n), table) for table in TABLES.values()))


def measure(database, n):
    """name of the call → side → instructions; the server must be stopped."""
    scenarios = [('loop', instructions.calling(instructions.LOOPS['write']))]
    scenarios += [('update ' + side, instructions.calling(UPDATE % table + ' COMMIT;'))
                  for side, table in TABLES.items()]
    scenarios += [('transition ' + side,
                   instructions.calling(call % (place * rows(n)) + ' COMMIT;'))
                  for call, side, place in ((TRANSITIONS['extension'], 'extension', 1),
                                            (TRANSITIONS['rival'], 'rival', 1),
                                            (TRANSITIONS['any table'], 'any table', 2))]
    found = instructions.measure(database, scenarios, n)
    return {'update': {side: found['update ' + side] - found['loop'] for side in TABLES},
            'transition': {side: found['transition ' + side] - found['loop']
                           for side in TRANSITIONS}}
