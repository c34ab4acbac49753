/*
 * history.h
 *		How the calls move what is kept of an action, and nothing else of it.
 *
 * Each mover is applied to many histories, and the whole history that results
 * is compared with the one that the rules ask for.
 */
#ifndef STATE_HISTORY_H
#define STATE_HISTORY_H

static const int64_t ends[] = {TIME_NONE, NOW - DAY, NOW - 1, NOW, NOW + 1, NOW + DAY};

/* a history among very many; false when there are no more */
static bool
choose_history(unsigned number, History *history)
{
	History		chosen = {.generation = NEWEST,.attempt = 3};

	chosen.state = (State) (number % NSTATES);
	number /= NSTATES;
	chosen.last_call = (Call) (number % NCALLS);
	number /= NCALLS;
	chosen.grant = (Outcome) (OUTCOME_EXECUTE + number % 3);
	number /= 3;
	chosen.is_ambiguous = number & 1;
	chosen.has_reference = number & 2;
	chosen.is_local = number & 4;
	chosen.is_granted_here = number & 8;
	number /= 16;
	chosen.first_granted_at = ends[number % LENGTH(ends)];
	number /= LENGTH(ends);
	chosen.call_until = ends[number % LENGTH(ends)];
	number /= LENGTH(ends);
	chosen.granted_at = NOW - HOUR;
	chosen.lease_until = NOW - HOUR + LEASE;
	chosen.due_at = NOW - 2 * HOUR;
	*history = chosen;
	return number == 0;
}

static bool
is_same_history(const History *a, const History *b)
{
	return a->state == b->state && a->last_call == b->last_call &&
		a->generation == b->generation && a->attempt == b->attempt && a->grant == b->grant &&
		a->granted_at == b->granted_at && a->lease_until == b->lease_until &&
		a->due_at == b->due_at && a->first_granted_at == b->first_granted_at &&
		a->call_until == b->call_until && a->is_ambiguous == b->is_ambiguous &&
		a->has_reference == b->has_reference && a->is_local == b->is_local &&
		a->is_granted_here == b->is_granted_here;
}

static void
check_history(Line *line, const History *before, const History *moved, const History *expected)
{
	Promise		promise = {false, 0, false, 0};

	if (!line_fault(line, is_same_history(moved, expected)))
		return;
	printf("# before, after, and what should be:\n");
	explain(before, &promise);
	explain(moved, &promise);
	explain(expected, &promise);
}

static int64_t
latest(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

/* the newest grant stops being the newest: what it may have done is remembered */
static void
test_grants(void)
{
	for (unsigned kind = OUTCOME_EXECUTE; kind <= OUTCOME_VERIFY; kind++)
	{
		Judgement	judgement = {(Outcome) kind, TIME_NONE, NOW + LEASE, TIME_NONE};
		Line		line = {0, 0};
		History		before;

		for (unsigned i = 0; choose_history(i, &before); i++)
		{
			History		moved = before;
			History		expected = before;

			expected.state = STATE_PROCESSING;
			expected.last_call = CALL_CLAIM;
			expected.attempt = before.attempt + 1;
			expected.grant = (Outcome) kind;
			expected.granted_at = NOW;
			expected.lease_until = NOW + LEASE;
			expected.due_at = TIME_NONE;
			expected.is_ambiguous = kind != OUTCOME_EXECUTE && is_doubtful(&before);
			if (kind != OUTCOME_VERIFY)
			{
				/* one of tomorrow would make the key look younger */
				if (before.first_granted_at == TIME_NONE || before.first_granted_at > NOW)
					expected.first_granted_at = NOW;
				expected.call_until = latest(before.call_until, NOW + LEASE);
			}
			idem_state_grant(&moved, CALL_CLAIM, &judgement, NOW);
			check_history(&line, &before, &moved, &expected);
		}
		tap(line_is_ok(&line), "what the grant of %s changes", outcome_words[kind]);
	}
}

/*
 * release and absent end their own attempt and no doubt about earlier ones.
 * mark_unknown ends the time in which its own attempt could start a call, and
 * not that of an attempt before it.
 */
static void
test_waits(void)
{
	static const Call calls[] = {CALL_MARK_UNKNOWN, CALL_RELEASE, CALL_ABSENT};

	for (unsigned n = 0; n < LENGTH(calls); n++)
	{
		Line		line = {0, 0};
		History		before;

		for (unsigned i = 0; choose_history(i, &before); i++)
		{
			History		moved = before;
			History		expected = before;

			expected.last_call = calls[n];
			expected.lease_until = TIME_NONE;
			expected.due_at = NOW + HOUR;
			if (calls[n] == CALL_MARK_UNKNOWN)
			{
				expected.is_ambiguous = true;
				if (may_act(before.grant))
					expected.call_until = before.is_ambiguous ?
						latest(before.call_until, NOW) : NOW;
			}
			expected.state = expected.is_ambiguous ? STATE_UNKNOWN : STATE_PENDING;
			idem_state_wait(&moved, calls[n], NOW, NOW + HOUR);
			check_history(&line, &before, &moved, &expected);
		}
		tap(line_is_ok(&line), "what %s changes", call_words[calls[n]]);
	}
}

static void
test_renewals(void)
{
	Line		line = {0, 0};
	History		before;

	for (unsigned i = 0; choose_history(i, &before); i++)
	{
		History		moved = before;
		History		expected = before;

		expected.lease_until = NOW + LEASE;
		if (may_act(before.grant))
			expected.call_until = latest(before.call_until, NOW + LEASE);
		idem_state_renew(&moved, NOW + LEASE);
		check_history(&line, &before, &moved, &expected);
	}
	tap(line_is_ok(&line), "what renew changes");
}

/* into a state without owner: review keeps the doubt, whoever came from where */
static void
test_settlements(void)
{
	static const State states[] = {STATE_REVIEW, STATE_SUCCEEDED, STATE_REJECTED};

	for (unsigned n = 0; n < LENGTH(states); n++)
	{
		Line		line = {0, 0};
		History		before;

		for (unsigned i = 0; choose_history(i, &before); i++)
		{
			History		moved = before;
			History		expected = before;

			expected.state = states[n];
			expected.last_call = CALL_ESCALATE;
			expected.lease_until = TIME_NONE;
			expected.due_at = TIME_NONE;
			expected.is_ambiguous = is_doubtful(&before);
			idem_state_settle(&moved, CALL_ESCALATE, states[n]);
			check_history(&line, &before, &moved, &expected);
		}
		tap(line_is_ok(&line), "what the move to %s changes", state_words[states[n]]);
	}
}

/*
 * Lost attempts were first granted an hour ago and may call for another one:
 * the wider of that and of what is known counts, and no state moves.
 */
static void
test_losses(void)
{
	Promise		promise = {false, 0, false, 0};
	Line		line = {0, 0};
	Line		judged = {0, 0};
	History		before;

	for (unsigned i = 0; choose_history(i, &before); i++)
	{
		History		moved = before;
		History		expected = before;

		expected.is_ambiguous = true;
		if (before.first_granted_at == TIME_NONE || before.first_granted_at > NOW - HOUR)
			expected.first_granted_at = NOW - HOUR;
		expected.call_until = latest(before.call_until, NOW + HOUR);
		idem_state_doubt(&moved, NOW - HOUR, NOW + HOUR);
		check_history(&line, &before, &moved, &expected);
		line_fault(&judged, idem_state_judge(&moved, &promise, MAX_ATTEMPTS, NOW, LEASE).outcome !=
				   OUTCOME_EXECUTE);
	}
	tap(line_is_ok(&line), "what a loss of commits changes");
	tap(line_is_ok(&judged), "after it nobody is granted execute");
}

/* nothing of what attempts did is left, and the action is due */
static void
test_refresh(void)
{
	Promise		promise = {false, 0, false, 0};
	Line		line = {0, 0};
	History		history;

	for (unsigned i = 0; choose_history(i, &history); i++)
	{
		Judgement	judgement;

		idem_state_refresh(&history, NOW);
		judgement = idem_state_judge(&history, &promise, 1, NOW, LEASE);
		line_fault(&line, history.state == STATE_PENDING && history.last_call == CALL_RESOLVE &&
				   judgement.outcome == OUTCOME_EXECUTE &&
				   history.first_granted_at == TIME_NONE && history.call_until == TIME_NONE &&
				   history.lease_until == TIME_NONE && history.due_at <= NOW &&
				   history.generation == NEWEST);
	}
	tap(line_is_ok(&line), "what resolving to pending changes");
}

#endif							/* STATE_HISTORY_H */
