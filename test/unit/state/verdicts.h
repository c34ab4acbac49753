/*
 * verdicts.h
 *		What whoever asks to act is told: every history, contract and time.
 *
 * Times are laid around one moment, NOW, one microsecond to each side of
 * every limit.  What is expected is worked out here from the documented rules
 * by subtraction, where state.c adds.
 */
#ifndef STATE_VERDICTS_H
#define STATE_VERDICTS_H

#define NOW		INT64_C(838000000000000)	/* some day in 2026 */
#define SECOND	INT64_C(1000000)
#define MINUTE	(60 * SECOND)
#define HOUR	(60 * MINUTE)
#define DAY		(24 * HOUR)
#define LEASE	(30 * SECOND)
#define TTL		DAY
#define ABSENCE	(60 * SECOND)
#define LONGEST_LEASE	DAY
#define LONGEST_WAIT	(DAY + 30 * DAY)	/* a lease, then an absence */
#define MAX_ATTEMPTS	10

#define LENGTH(array)	(sizeof(array) / sizeof((array)[0]))

static const int64_t leases_until[] = {
	TIME_NONE, NOW - 1, NOW, NOW + 1, NOW + LONGEST_LEASE, NOW + LONGEST_LEASE + 1
};

static const int64_t due_times[] = {
	TIME_NONE, NOW - 1, NOW, NOW + 1, NOW + LONGEST_WAIT, NOW + LONGEST_WAIT + 1
};

/* the channel's key just outlives a lease, or misses it by a microsecond; or is of tomorrow */
static const int64_t first_grants[] = {
	TIME_NONE, NOW - TTL + LEASE, NOW - TTL + LEASE - 1, -1, 0, 1, NOW, NOW + 1
};

static const int64_t calls_until[] = {
	TIME_NONE, NOW + LEASE, NOW + LEASE + 1, NOW - ABSENCE - 1, NOW - ABSENCE, NOW - ABSENCE + 1
};

static const int attempts[] = {0, MAX_ATTEMPTS - 1, MAX_ATTEMPTS, MAX_ATTEMPTS + 1};

static bool
is_judged(Judgement judgement, Outcome outcome, int64_t retry_at, int64_t lease_until,
		  int64_t absence_conclusive_at)
{
	return judgement.outcome == outcome && judgement.retry_at == retry_at &&
		judgement.lease_until == lease_until &&
		judgement.absence_conclusive_at == absence_conclusive_at;
}

static bool
may_act(Outcome grant)
{
	return grant == OUTCOME_EXECUTE || grant == OUTCOME_REPEAT;
}

/* an attempt may have executed it: known before, said so, or seen in the newest grant */
static bool
is_doubtful(const History *history)
{
	if (history->is_ambiguous || history->has_reference)
		return true;
	if (history->state == STATE_PROCESSING)
		return may_act(history->grant);
	return history->state == STATE_UNKNOWN;
}

/*
 * The channel maps the key to the same action until a lease that begins now
 * has ended, and until nobody can call any more whose lease is not believed.
 */
static bool
outlives_leases(const History *history, const Promise *promise)
{
	if (!promise->is_idempotent || history->first_granted_at == TIME_NONE ||
		history->first_granted_at > NOW)
		return false;
	return promise->key_ttl == TIME_FOREVER ||
		(history->first_granted_at >= NOW + LEASE - promise->key_ttl &&
		 (history->call_until == TIME_NONE ||
		  history->first_granted_at >= history->call_until - promise->key_ttl));
}

static int64_t
conclusive_time(const History *history, const Promise *promise)
{
	if (!promise->is_queryable || history->call_until == TIME_NONE)
		return TIME_NONE;
	return history->call_until + promise->absence_after;
}

static bool
is_rightly_judged(const History *history, const Promise *promise, Judgement judgement)
{
	int64_t		until = history->lease_until;
	int64_t		due = history->due_at;
	int64_t		absence = conclusive_time(history, promise);

	if (history->state == STATE_SUCCEEDED)
		return is_judged(judgement, OUTCOME_SUCCEEDED, TIME_NONE, TIME_NONE, TIME_NONE);
	if (history->state == STATE_REJECTED)
		return is_judged(judgement, OUTCOME_REJECTED, TIME_NONE, TIME_NONE, TIME_NONE);
	if (history->state == STATE_REVIEW)
		return is_judged(judgement, OUTCOME_REVIEW, TIME_NONE, TIME_NONE, TIME_NONE);

	if (history->state == STATE_PROCESSING)
	{
		if (until > NOW && until - NOW <= LONGEST_LEASE)
			return is_judged(judgement, OUTCOME_BUSY, until, until, TIME_NONE);
	}
	else if (due > NOW && due - NOW <= LONGEST_WAIT)
		return is_judged(judgement, OUTCOME_BUSY, due, TIME_NONE,
						 history->last_call == CALL_ABSENT ? absence : TIME_NONE);

	if (history->attempt >= MAX_ATTEMPTS)
		return is_judged(judgement, OUTCOME_REVIEW, TIME_NONE, TIME_NONE, TIME_NONE);
	if (!is_doubtful(history))
		return is_judged(judgement, OUTCOME_EXECUTE, TIME_NONE, NOW + LEASE, TIME_NONE);
	if (outlives_leases(history, promise))
		return is_judged(judgement, OUTCOME_REPEAT, TIME_NONE, NOW + LEASE, TIME_NONE);
	if (promise->is_queryable || history->has_reference)
		return is_judged(judgement, OUTCOME_VERIFY, TIME_NONE, NOW + LEASE, absence);
	return is_judged(judgement, OUTCOME_REVIEW, TIME_NONE, TIME_NONE, TIME_NONE);
}

/* the time until then, in seconds */
static double
ahead(int64_t time)
{
	return ((double) time - (double) NOW) / (double) SECOND;
}

static void
explain(const History *history, const Promise *promise)
{
	printf("# %s by %s, attempt %d %s at %g, lease until %g, due %g, first grant %g, "
		   "call until %g%s%s%s%s\n", state_words[history->state],
		   call_words[history->last_call], history->attempt, outcome_words[history->grant],
		   ahead(history->granted_at), ahead(history->lease_until), ahead(history->due_at),
		   ahead(history->first_granted_at), ahead(history->call_until),
		   history->is_ambiguous ? ", ambiguous" : "", history->has_reference ? ", reference" : "",
		   promise->is_idempotent ? ", idempotent" : "", promise->is_queryable ? ", queryable" : "");
}

static void
explain_judgement(const History *history, const Promise *promise, Judgement judgement)
{
	printf("# answered %s, retry %g, lease until %g, absence conclusive %g:\n",
		   outcome_words[judgement.outcome], ahead(judgement.retry_at),
		   ahead(judgement.lease_until), ahead(judgement.absence_conclusive_at));
	explain(history, promise);
}

/* eight bits of a number choose what is either so or not */
static void
choose_flags(unsigned bits, History *history, Promise *promise)
{
	history->is_ambiguous = bits & 1;
	history->has_reference = bits & 2;
	promise->is_idempotent = bits & 4;
	promise->is_queryable = bits & 8;
	promise->key_ttl = bits & 16 ? TIME_FOREVER : TTL;
	promise->absence_after = bits & 32 ? 0 : ABSENCE;
	history->last_call = bits & 64 ? CALL_ABSENT : CALL_MARK_UNKNOWN;
}

/* all histories and contracts in one state, each judged once; lines[] by outcome */
static void
judge_state(State state, Line *lines)
{
	for (unsigned i = 0; i < 128 * 3 * LENGTH(first_grants) * LENGTH(attempts) * 36 * 3; i++)
	{
		History		history = {.state = state,.generation = 1,.granted_at = NOW - HOUR};
		Promise		promise;
		Judgement	judgement;
		unsigned	rest = i / 128;

		choose_flags(i % 128, &history, &promise);
		history.grant = (Outcome) (OUTCOME_EXECUTE + rest % 3);
		rest /= 3;
		history.first_granted_at = first_grants[rest % LENGTH(first_grants)];
		rest /= LENGTH(first_grants);
		history.attempt = attempts[rest % LENGTH(attempts)];
		rest /= LENGTH(attempts);
		history.lease_until = leases_until[rest % 6];
		history.due_at = due_times[rest / 6 % 6];
		history.call_until = calls_until[rest / 36];

		judgement = idem_state_judge(&history, &promise, MAX_ATTEMPTS, NOW, LEASE);
		if (line_fault(&lines[judgement.outcome],
					   is_rightly_judged(&history, &promise, judgement)))
			explain_judgement(&history, &promise, judgement);
	}
}

static void
test_claims(void)
{
	static const char *const answers[NSTATES] = {
		[STATE_NONE] = "execute repeat verify busy review",
		[STATE_PENDING] = "execute repeat verify busy review",
		[STATE_PROCESSING] = "execute repeat verify busy review",
		[STATE_UNKNOWN] = "repeat verify busy review",
		[STATE_REVIEW] = "review",
		[STATE_SUCCEEDED] = "succeeded",
		[STATE_REJECTED] = "rejected"
	};

	for (unsigned state = 0; state < NSTATES; state++)
	{
		Line		lines[NOUTCOMES] = {{0, 0}};

		judge_state((State) state, lines);
		for (unsigned outcome = 0; outcome < NOUTCOMES; outcome++)
		{
			if (has_word(answers[state], outcome_words[outcome]))
				tap(line_is_ok(&lines[outcome]), "a claim in state %s is answered %s when it should",
					state_words[state], outcome_words[outcome]);
			else if (lines[outcome].tried > 0)
				tap(false, "a claim in state %s is never answered %s", state_words[state],
					outcome_words[outcome]);
		}
	}
}

/* "not found" at NOW, under a verify that was granted at some time before */
static bool
is_absence_rightly_judged(const History *history, const Promise *promise, Judgement judgement)
{
	int64_t		conclusive = conclusive_time(history, promise);

	/* said before, and only the answer was lost */
	if (history->state == STATE_UNKNOWN)
		return is_judged(judgement, OUTCOME_BUSY, history->due_at, TIME_NONE, conclusive);
	if (history->state == STATE_REVIEW)
		return is_judged(judgement, OUTCOME_REVIEW, TIME_NONE, TIME_NONE, TIME_NONE);
	if (history->attempt >= MAX_ATTEMPTS || conclusive == TIME_NONE)
		return is_judged(judgement, OUTCOME_REVIEW, TIME_NONE, TIME_NONE, TIME_NONE);
	if (history->granted_at >= conclusive && history->granted_at <= NOW &&
		history->first_granted_at <= NOW && history->call_until <= NOW)
		return is_judged(judgement, OUTCOME_EXECUTE, TIME_NONE, NOW + LEASE, TIME_NONE);
	return is_judged(judgement, OUTCOME_BUSY, conclusive > NOW ? conclusive : NOW, TIME_NONE,
					 conclusive);
}

static void
test_absence(void)
{
	static const State states[] = {STATE_PROCESSING, STATE_UNKNOWN, STATE_REVIEW};
	static const int64_t granted[] = {
		NOW - DAY, NOW - ABSENCE - 1, NOW - ABSENCE, NOW - ABSENCE + 1, NOW - 1, NOW, NOW + 1,
		NOW + DAY
	};
	static const char *const names[NOUTCOMES] = {
		[OUTCOME_EXECUTE] = "conclusive, when asked late enough",
		[OUTCOME_BUSY] = "inconclusive, when it may have been asked too early",
		[OUTCOME_REVIEW] = "for a person, when attempts are exhausted or nothing was promised"
	};
	Line		lines[NOUTCOMES] = {{0, 0}};

	for (unsigned i = 0; i < 64 * 3 * 8 * LENGTH(attempts) * LENGTH(calls_until) * 8; i++)
	{
		History		history = {.generation = 1,.grant = OUTCOME_VERIFY};
		Promise		promise;
		Judgement	judgement;
		unsigned	rest = i / 64;

		choose_flags(i % 64, &history, &promise);
		history.state = states[rest % 3];
		rest /= 3;
		history.first_granted_at = first_grants[rest % 8];
		rest /= 8;
		history.attempt = attempts[rest % LENGTH(attempts)];
		rest /= LENGTH(attempts);
		history.call_until = calls_until[rest % LENGTH(calls_until)];
		history.granted_at = granted[rest / LENGTH(calls_until)];
		history.lease_until = history.state == STATE_UNKNOWN ? TIME_NONE : NOW + LEASE;
		history.due_at = history.state == STATE_UNKNOWN ? NOW + HOUR : TIME_NONE;

		judgement = idem_state_judge_absence(&history, &promise, MAX_ATTEMPTS, NOW, LEASE);
		if (line_fault(&lines[judgement.outcome],
					   is_absence_rightly_judged(&history, &promise, judgement)))
			explain_judgement(&history, &promise, judgement);
	}
	for (unsigned outcome = 0; outcome < NOUTCOMES; outcome++)
	{
		if (names[outcome] != NULL)
			tap(line_is_ok(&lines[outcome]), "\"not found\" is %s", names[outcome]);
		else if (lines[outcome].tried > 0)
			tap(false, "\"not found\" is never answered %s", outcome_words[outcome]);
	}
}

static void
test_doubt(void)
{
	Line		line = {0, 0};

	for (unsigned i = 0; i < NSTATES * NOUTCOMES * 4; i++)
	{
		History		history = {.generation = 1};

		history.state = (State) (i / 4 % NSTATES);
		history.grant = (Outcome) (i / 4 / NSTATES);
		history.is_ambiguous = i & 1;
		history.has_reference = i & 2;
		if (line_fault(&line, idem_state_may_have_executed(&history) == is_doubtful(&history)))
			printf("# state %s, grant %s\n", state_words[history.state],
				   outcome_words[history.grant]);
	}
	tap(line_is_ok(&line), "whether an attempt may have executed follows from what is on record");
}

static void
test_key_life(void)
{
	static const int64_t lives[] = {0, 1, TTL, TIME_FOREVER - 1, TIME_FOREVER};
	Line		line = {0, 0};

	for (unsigned i = 0; i < LENGTH(first_grants) * LENGTH(lives) * 2; i++)
	{
		History		history = {.state = STATE_UNKNOWN,.generation = 1};
		Promise		promise = {.is_idempotent = i & 1};
		int64_t		until;

		history.first_granted_at = first_grants[i / 2 % LENGTH(first_grants)];
		promise.key_ttl = lives[i / 2 / LENGTH(first_grants)];
		until = idem_state_repeat_until(&history, &promise, NOW);
		if (!promise.is_idempotent || history.first_granted_at == TIME_NONE ||
			history.first_granted_at > NOW)
			line_fault(&line, until == TIME_NONE);
		else if (promise.key_ttl >= TIME_FOREVER - 1 && history.first_granted_at > 0)
			line_fault(&line, until == TIME_FOREVER);
		else
			line_fault(&line, until - history.first_granted_at == promise.key_ttl);
	}
	tap(line_is_ok(&line), "the channel's key lives from the first grant that can be believed");
}

/* promises of both sides, in all pairs: less of each counts, and another channel's nothing */
static void
test_weaker(void)
{
	static const int64_t times[] = {0, HOUR, 30 * DAY, TIME_FOREVER};
	Line		line = {0, 0};

	for (unsigned i = 0; i < 64 * 64 * 2; i++)
	{
		unsigned	a = i % 64;
		unsigned	b = i / 64 % 64;
		bool		is_same = i / 4096;
		Promise		first = {a & 1, times[a >> 2 & 3], a & 2, times[a >> 4]};
		Promise		now = {b & 1, times[b >> 2 & 3], b & 2, times[b >> 4]};
		Promise		weaker = idem_state_weaker(&first, &now, is_same);
		bool		is_ok;

		is_ok = weaker.is_idempotent == ((a & b & 1) != 0 && is_same) &&
			weaker.is_queryable == ((a & b & 2) != 0 && is_same);
		is_ok = is_ok && weaker.key_ttl <= first.key_ttl && weaker.key_ttl <= now.key_ttl &&
			(weaker.key_ttl == first.key_ttl || weaker.key_ttl == now.key_ttl);
		is_ok = is_ok && weaker.absence_after >= first.absence_after &&
			weaker.absence_after >= now.absence_after &&
			(weaker.absence_after == first.absence_after ||
			 weaker.absence_after == now.absence_after);
		line_fault(&line, is_ok);
	}
	tap(line_is_ok(&line), "of two promises the weaker counts, of two channels none");
}

static void
test_backoff(void)
{
	static const int64_t times[] = {0, 1, SECOND, 5 * MINUTE, 30 * DAY};
	static const double fractions[] = {0.0, 0.25, 0.5, 0.999999};
	Line		line = {0, 0};

	for (unsigned i = 0; i < 5 * 5 * 4 * 100; i++)
	{
		int64_t		base = times[i % 5];
		int64_t		max = times[i / 5 % 5];
		double		fraction = fractions[i / 25 % 4];
		int			attempt = (int) (i / 100);
		double		step = (double) base;
		int64_t		delay = idem_state_backoff(base, max, attempt, fraction);

		for (int n = 1; n < attempt; n++)
			step *= 2;
		if (step > (double) max)
			step = (double) max;
		if (line_fault(&line, delay >= 0 && delay <= max && (double) delay <= step * fraction &&
					   (double) delay > step * fraction - 1))
			printf("# base %lld, max %lld, attempt %d, fraction %g: %lld\n", (long long) base,
				   (long long) max, attempt, fraction, (long long) delay);
	}
	tap(line_is_ok(&line), "the back-off doubles up to its maximum and is spread from 0");
}

#endif							/* STATE_VERDICTS_H */
