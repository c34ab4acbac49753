"""
books.py: the audit at the end of a story, without a database: what does not agree.

Four books are kept of each refund: by the channel (what it paid), by the application (its own
ledger), by idem_action, and by the evidence.  When everything has come to an end

* every refund that was asked for is on record, and no other one;
* a succeeded one was paid once and booked once, with the amount that was asked for, and all four
  books name the same reference, and none of them another;
* a rejected one was neither paid nor booked;
* nothing is in flight, except what is in review, if that may be: such a one may have been paid
  once, and is not booked;
* the evidence of each leads to the state on record, and no evidence contradicts a terminal one.
"""

from collections import defaultdict
from decimal import Decimal

TERMINAL = ("succeeded", "rejected")


def by_key(rows):
    found = defaultdict(list)
    for row in rows:
        found[row["key"]].append(row)
    return found


def disagreements(requests, actions, evidence, leases, paid, entries, may_be_in_review=False):
    """Sentences, one each; the rows are dictionaries as e2e.audit() reads them."""
    actions = {action["key"]: action for action in actions}
    evidence, paid, entries = by_key(evidence), by_key(paid), by_key(entries)
    leases = {lease["key"] for lease in leases}
    found = []
    for key in sorted(set(requests) - set(actions)):
        found.append("%s: lost, it was asked for and is not on record" % key)
    for book, keys in (("record", actions), ("evidence", evidence), ("channel", paid),
                       ("application", entries), ("lease", leases)):
        for key in sorted(set(keys) - set(requests)):
            found.append("%s: in the %s, but nobody asked for it" % (key, book))
    for key in sorted(set(requests) & set(actions)):
        state = actions[key]["state"]
        for problem in (*state_problems(state, may_be_in_review),
                        *count_problems(state, len(paid[key]), len(entries[key])),
                        *amount_problems(requests[key], paid[key], entries[key]),
                        *reference_problems(actions[key], evidence[key], paid[key], entries[key]),
                        *evidence_problems(actions[key], evidence[key]),
                        *lease_problems(state, key in leases)):
            found.append("%s: %s" % (key, problem))
    return found


def state_problems(state, may_be_in_review):
    if state not in TERMINAL and not (state == "review" and may_be_in_review):
        yield "still " + state


def count_problems(state, paid, booked):
    may_be_paid = {"succeeded": (1,), "review": (0, 1)}.get(state, (0,))
    if paid not in may_be_paid:
        yield "%s, and paid %d times" % (state, paid)
    if booked != (1 if state == "succeeded" else 0):
        yield "%s, and booked %d times" % (state, booked)


def amount_problems(amount, paid, entries):
    for book, of_book in (("paid", [entry["request"]["amount"] for entry in paid]),
                          ("booked", [entry["amount"] for entry in entries])):
        for other in of_book:
            if Decimal(str(other)) != Decimal(str(amount)):
                yield "amount %s was asked for, %s was %s" % (amount, other, book)


def reference_problems(action, evidence, paid, entries):
    in_evidence = {row["channel_ref"] for row in evidence if row["channel_ref"]}
    references = in_evidence | {entry["reference"] for entry in paid + entries}
    if action["state"] == "succeeded":
        references.add(action["channel_ref"])
        if action["channel_ref"] not in in_evidence:
            yield "its evidence does not name the reference %s" % action["channel_ref"]
    if len(references) > 1:
        yield "several references: %s" % ", ".join(sorted(map(str, references)))


def evidence_problems(action, evidence):
    moves = [row for row in evidence if row["call"] not in ("conflict", "evidence")]
    if not moves or (moves[-1]["state"], moves[-1]["generation"]) != (
            action["state"], action["generation"]):
        yield "its evidence does not lead to %s" % action["state"]
    ends = [row for row in moves if row["state"] in TERMINAL]
    if len(ends) > 1:
        yield "its evidence ends it %d times" % len(ends)
    if ends and ends[-1] is not moves[-1]:
        yield "its evidence goes on after %s" % ends[-1]["state"]


def lease_problems(state, has_lease):
    if has_lease and state in TERMINAL:
        yield "%s, and still has a lease" % state
