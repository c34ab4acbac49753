"""calls.py: what is called on each side, so that every measurement calls the same.

A call is written as the statements inside a PL/pgSQL loop, which keeps each as a prepared one: key
in "k", parameters in "p", the verdict in "v".
"""

PARAMS = ('{"account": "A-100", "amount": 1250, "currency": "EUR", "order": "o-77", '
          '"reason": "returned", "urgent": false}')
RESULT = '{"receipt": 4711, "posted": true}'

# the rival's cheapest form for each: see rival.sql
CLAIM = {'extension': 'idem_claim', 'rival': 'rival_claim'}
DUPLICATE = {'extension': 'idem_claim', 'rival': 'rival_claim_again'}
COMPLETE = {'extension': 'idem_complete', 'rival': 'rival_complete'}
ONCE = {'extension': 'idem_once', 'rival': 'rival_once'}


def duplicate(side):
    if side == 'raw':
        return 'SELECT a.state, a.result INTO v FROM raw.action AS a WHERE a.key = k;'
    return 'SELECT * INTO v FROM %s(k, p);' % DUPLICATE[side]


def claim(side):
    if side == 'raw':
        return ("INSERT INTO raw.action (key, state, params) VALUES (k, 'processing', p) "
                'ON CONFLICT DO NOTHING;')
    return 'SELECT * INTO v FROM %s(k, p);' % CLAIM[side]


def complete(side, result=RESULT):
    if side == 'raw':
        return "UPDATE raw.action SET state = 'succeeded', result = '%s' WHERE key = k;" % result
    return "PERFORM %s(k, v.generation, '%s');" % (COMPLETE[side], result)


def once(side):
    if side == 'raw':
        return ("INSERT INTO raw.action (key, state, params) VALUES (k, 'succeeded', p) "
                'ON CONFLICT DO NOTHING;')
    return 'SELECT %s(k, p) INTO done;' % ONCE[side]


def loop(statements, first, last, prefix='acme/PAY/r-'):
    """A DO block that runs the statements for a range of keys."""
    return """DO $bench$
DECLARE
    k text; p jsonb := '%s'; v record; done boolean;
BEGIN
    FOR i IN %d..%d LOOP
        k := '%s' || (100000000 + i);
        %s
    END LOOP;
END
$bench$;
""" % (PARAMS, first, last, prefix, statements)
