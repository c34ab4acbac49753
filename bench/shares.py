"""shares.py: what counting and the tenant check take of a duplicate.

Both are on the way of every call, and the first is inlined.  So the extension is compiled once more
without inlining, and callgrind counts the two functions with all that they call, which is more
than they cost in the build that is measured otherwise: the shares of its duplicate that come out
are upper bounds.  The caller is no superuser, since a superuser is hardly checked, but a role that
is bound to two tenants.  One loop asks for keys of one of them, the other for keys of each in turn,
so that the last check that was passed is never the next one.
"""

import calls
import instructions
import server

TENANTS = ('acme', 'zeta')
IN_TURN = "IF i % 2 = 0 THEN k := 'zeta' || substr(k, 5); END IF; "


def prepare(database, n):
    server.sql(database, "CREATE ROLE bench_application;"
               + ''.join("SELECT idem_grant('bench_application', 'application', '%s');" % tenant
                         + calls.loop(calls.claim('extension') + calls.complete('extension'), 1,
                                      instructions.WARM + 3 * n, tenant + '/PAY/s-')
                         for tenant in TENANTS))


def measure(database, n):
    """name of the part → instructions in one duplicate; the server must be stopped."""
    duplicate = calls.duplicate('extension') + ' COMMIT;'
    scenarios = [('role', lambda first, last: 'SET ROLE bench_application;\n'),
                 ('one tenant', instructions.calling(duplicate, 'acme/PAY/s-')),
                 ('tenants in turn', instructions.calling(IN_TURN + duplicate, 'acme/PAY/s-'))]
    server.build('-fno-inline')
    counting = instructions.measure(database, scenarios, n, 'idem_observe')
    checking = instructions.measure(database, scenarios, n, 'idem_access_check')
    server.build()
    return {'counting': counting['one tenant'],
            'tenant check': checking['one tenant'],
            'tenant check, tenants in turn': checking['tenants in turn']}
