/*
 * state.c
 *		The rules of an action: which moves are legal, and what whoever asks
 *		to act is told.
 *
 * Everything that decides stands here, as tables and pure functions over the
 * values of state.h.  What must hold:
 *
 *	- no terminal state is ever left, and no call is accepted from any
 *	  generation but the newest (idem_state_rule);
 *	- execute is granted only where no attempt can have executed the action;
 *	  repeat only while the channel surely still knows the key; verify only
 *	  where the channel can be asked or its reference is on record
 *	  (idem_state_judge);
 *	- where the clock decides, a recorded time that the present clock cannot
 *	  explain counts against acting.
 *
 * There is no memory to own and nothing throws.
 */
#include "state.h"

#define SET(state) (1u << (state))

const char *const idem_state_names[NSTATES] = {
	[STATE_NONE] = "new",
	[STATE_PENDING] = "pending",
	[STATE_PROCESSING] = "processing",
	[STATE_UNKNOWN] = "unknown",
	[STATE_REVIEW] = "review",
	[STATE_SUCCEEDED] = "succeeded",
	[STATE_REJECTED] = "rejected"
};

const char *const idem_call_names[NCALLS] = {
	[CALL_SUBMIT] = "submit",
	[CALL_CLAIM] = "claim",
	[CALL_RENEW] = "renew",
	[CALL_COMPLETE] = "complete",
	[CALL_REJECT] = "reject",
	[CALL_MARK_UNKNOWN] = "mark_unknown",
	[CALL_RELEASE] = "release",
	[CALL_ABSENT] = "absent",
	[CALL_ESCALATE] = "escalate",
	[CALL_CANCEL] = "cancel",
	[CALL_RESOLVE] = "resolve"
};

const char *const idem_outcome_names[NOUTCOMES] = {
	[OUTCOME_EXECUTE] = "execute",
	[OUTCOME_REPEAT] = "repeat",
	[OUTCOME_VERIFY] = "verify",
	[OUTCOME_ACCEPTED] = "accepted",
	[OUTCOME_SUCCEEDED] = "succeeded",
	[OUTCOME_REJECTED] = "rejected",
	[OUTCOME_BUSY] = "busy",
	[OUTCOME_REVIEW] = "review",
	[OUTCOME_CONFLICT] = "conflict",
	[OUTCOME_EXPIRED] = "expired"
};

/* the legal moves: from a state, by a call, to one of these; what is not here is illegal */
static const unsigned targets[NCALLS][NSTATES] = {
	[CALL_SUBMIT] = {
		[STATE_NONE] = SET(STATE_PENDING)
	},
	[CALL_CLAIM] = {
		[STATE_NONE] = SET(STATE_PROCESSING) | SET(STATE_REVIEW),
		[STATE_PENDING] = SET(STATE_PROCESSING) | SET(STATE_REVIEW),
		[STATE_PROCESSING] = SET(STATE_PROCESSING) | SET(STATE_REVIEW),
		[STATE_UNKNOWN] = SET(STATE_PROCESSING) | SET(STATE_REVIEW)
	},
	[CALL_RENEW] = {
		[STATE_PROCESSING] = SET(STATE_PROCESSING)
	},
	[CALL_COMPLETE] = {
		[STATE_PROCESSING] = SET(STATE_SUCCEEDED),
		[STATE_UNKNOWN] = SET(STATE_SUCCEEDED),
		[STATE_REVIEW] = SET(STATE_SUCCEEDED)
	},
	[CALL_REJECT] = {
		[STATE_PROCESSING] = SET(STATE_REJECTED),
		[STATE_UNKNOWN] = SET(STATE_REJECTED),
		[STATE_REVIEW] = SET(STATE_REJECTED)
	},
	[CALL_MARK_UNKNOWN] = {
		[STATE_PROCESSING] = SET(STATE_UNKNOWN)
	},
	[CALL_RELEASE] = {
		[STATE_PROCESSING] = SET(STATE_PENDING) | SET(STATE_UNKNOWN)
	},
	[CALL_ABSENT] = {
		[STATE_PROCESSING] = SET(STATE_PROCESSING) | SET(STATE_UNKNOWN) | SET(STATE_REVIEW)
	},
	[CALL_ESCALATE] = {
		[STATE_PENDING] = SET(STATE_REVIEW),
		[STATE_PROCESSING] = SET(STATE_REVIEW),
		[STATE_UNKNOWN] = SET(STATE_REVIEW)
	},
	[CALL_CANCEL] = {
		[STATE_NONE] = SET(STATE_REJECTED),
		[STATE_PENDING] = SET(STATE_REJECTED)
	},
	[CALL_RESOLVE] = {
		[STATE_REVIEW] = SET(STATE_SUCCEEDED) | SET(STATE_REJECTED) | SET(STATE_PENDING)
	}
};

/* what is peculiar to each call */
static const struct
{
	bool		is_local;		/* local operations know it */
	bool		needs_commit;	/* not in the transaction that was granted */
	bool		denies_call;	/* says that the channel has no such action */
	bool		ends;			/* says how an attempt ended: there must be
								 * one */
	unsigned	repeated_in;	/* states in which its repetition is no error */
}			traits[NCALLS] = {
	[CALL_CLAIM] = {.is_local = true},
	[CALL_RENEW] = {.needs_commit = true},
	[CALL_COMPLETE] = {.is_local = true,.needs_commit = true,.ends = true,.repeated_in = SET(STATE_SUCCEEDED)},
	[CALL_REJECT] = {.is_local = true,.ends = true,.repeated_in = SET(STATE_REJECTED)},
	[CALL_MARK_UNKNOWN] = {.needs_commit = true,.repeated_in = SET(STATE_UNKNOWN)},
	[CALL_RELEASE] = {.denies_call = true,.repeated_in = SET(STATE_PENDING) | SET(STATE_UNKNOWN)},
	[CALL_ABSENT] = {.denies_call = true,.repeated_in = SET(STATE_UNKNOWN) | SET(STATE_REVIEW)},
	[CALL_ESCALATE] = {.repeated_in = SET(STATE_REVIEW)},
	[CALL_CANCEL] = {.is_local = true,.repeated_in = SET(STATE_REJECTED)}
};

unsigned
idem_state_targets(Call call, State from)
{
	return targets[call][from];
}

bool
idem_state_is_terminal(State state)
{
	return state == STATE_SUCCEEDED || state == STATE_REJECTED;
}

static bool
is_acting(Outcome grant)
{
	return grant == OUTCOME_EXECUTE || grant == OUTCOME_REPEAT;
}

bool
idem_state_may_have_executed(const History *history)
{
	return history->has_reference || history->is_ambiguous ||
		history->state == STATE_UNKNOWN ||
		(history->state == STATE_PROCESSING && is_acting(history->grant));
}

/*
 * A pending action is in doubt where commits were lost, or where a reference
 * came late.  So is execute, which is granted where there is no doubt, only
 * if commits were lost since: its lease may have lapsed meanwhile, and
 * somebody else have called.  Renewed it would let a second call start.
 */
static bool
is_in_doubt(Call call, const History *history)
{
	if (call == CALL_CANCEL)
		return !history->is_local && idem_state_may_have_executed(history);
	return call == CALL_RENEW && history->grant == OUTCOME_EXECUTE && history->is_ambiguous;
}

/*
 * The order matters.  A stale holder is told that he is stale and nothing
 * else; a repetition is recognized before the state it led to makes it
 * illegal.
 *
 * Whoever escalates what a claim put in review already has what he asked
 * for; every other repetition must be of the very call that led here, or a
 * release could pass for the mark_unknown it contradicts.
 */
Ruling
idem_state_rule(Call call, const History *history, int64_t generation, Reason *reason)
{
	*reason = REASON_STATE;
	if (generation != history->generation)
		return RULING_STALE;
	if (history->is_local && !traits[call].is_local)
	{
		*reason = REASON_LOCAL;
		return RULING_ILLEGAL;
	}
	if ((traits[call].repeated_in & SET(history->state)) != 0 &&
		(history->last_call == call || call == CALL_ESCALATE))
		return RULING_DONE;
	if (targets[call][history->state] == 0)
		return RULING_ILLEGAL;

	if (traits[call].needs_commit && history->is_granted_here && !history->is_local)
		*reason = REASON_UNCOMMITTED;
	else if (traits[call].denies_call && history->has_reference)
		*reason = REASON_REFERENCE;
	else if (call == CALL_ABSENT && history->grant != OUTCOME_VERIFY)
		*reason = REASON_GRANT;
	else if (traits[call].ends && history->attempt == 0)
		*reason = REASON_NO_GRANT;
	else if (is_in_doubt(call, history))
		*reason = REASON_DOUBT;
	else
		return RULING_GO;
	return RULING_ILLEGAL;
}

/* a + b, or the end of time */
static int64_t
later(int64_t time, int64_t interval)
{
	if (interval > 0 && time > TIME_FOREVER - interval)
		return TIME_FOREVER;
	return time + interval;
}

Promise
idem_state_weaker(const Promise *first, const Promise *now, bool is_same_channel)
{
	Promise		weaker;

	weaker.is_idempotent = is_same_channel && first->is_idempotent && now->is_idempotent;
	weaker.key_ttl = first->key_ttl < now->key_ttl ? first->key_ttl : now->key_ttl;
	weaker.is_queryable = is_same_channel && first->is_queryable && now->is_queryable;
	weaker.absence_after = first->absence_after > now->absence_after ?
		first->absence_after : now->absence_after;
	return weaker;
}

int64_t
idem_state_repeat_until(const History *history, const Promise *promise, int64_t now)
{
	if (!promise->is_idempotent ||
		history->first_granted_at == TIME_NONE || history->first_granted_at > now)
		return TIME_NONE;
	return later(history->first_granted_at, promise->key_ttl);
}

/*
 * The moment from which "not found" is an answer.  It depends on the calls
 * that could have been made, never on when somebody asked.
 */
static int64_t
absence_conclusive_at(const History *history, const Promise *promise)
{
	if (!promise->is_queryable || history->call_until == TIME_NONE)
		return TIME_NONE;
	return later(history->call_until, promise->absence_after);
}

/* a time that is still to come, and that could have been recorded by now */
static bool
is_ahead(int64_t time, int64_t now, int64_t bound)
{
	return time > now && time <= later(now, bound);
}

static Judgement
answer(Outcome outcome)
{
	Judgement	judgement = {outcome, TIME_NONE, TIME_NONE, TIME_NONE};

	return judgement;
}

static Judgement
busy_until(int64_t retry_at)
{
	Judgement	judgement = answer(OUTCOME_BUSY);

	judgement.retry_at = retry_at;
	return judgement;
}

static Judgement
grant_of(Outcome outcome, int64_t now, int64_t lease)
{
	Judgement	judgement = answer(outcome);

	judgement.lease_until = later(now, lease);
	return judgement;
}

/*
 * What may be done with an action that nobody owns and that is due.  A former
 * owner whose lease lapsed beyond its bound may still call, so the key must
 * outlive that lease too.
 */
static Judgement
judge_due(const History *history, const Promise *promise,
		  int32_t max_attempts, int64_t now, int64_t lease)
{
	int64_t		repeat_until;
	Judgement	judgement;

	if (history->attempt >= max_attempts)
		return answer(OUTCOME_REVIEW);
	if (!idem_state_may_have_executed(history))
		return grant_of(OUTCOME_EXECUTE, now, lease);
	repeat_until = idem_state_repeat_until(history, promise, now);
	if (repeat_until >= later(now, lease) && repeat_until >= history->call_until)
		return grant_of(OUTCOME_REPEAT, now, lease);
	if (!promise->is_queryable && !history->has_reference)
		return answer(OUTCOME_REVIEW);

	judgement = grant_of(OUTCOME_VERIFY, now, lease);
	judgement.absence_conclusive_at = absence_conclusive_at(history, promise);
	return judgement;
}

Judgement
idem_state_judge(const History *history, const Promise *promise,
				 int32_t max_attempts, int64_t now, int64_t lease)
{
	Judgement	judgement;

	switch (history->state)
	{
		case STATE_SUCCEEDED:
			return answer(OUTCOME_SUCCEEDED);
		case STATE_REJECTED:
			return answer(OUTCOME_REJECTED);
		case STATE_REVIEW:
			return answer(OUTCOME_REVIEW);
		case STATE_PROCESSING:
			if (is_ahead(history->lease_until, now, LEASE_MAX))
			{
				judgement = busy_until(history->lease_until);
				judgement.lease_until = history->lease_until;
				return judgement;
			}
			break;
		case STATE_NONE:
		case STATE_PENDING:
		case STATE_UNKNOWN:
			if (is_ahead(history->due_at, now, DUE_MAX))
			{
				judgement = busy_until(history->due_at);
				if (history->last_call == CALL_ABSENT)
					judgement.absence_conclusive_at = absence_conclusive_at(history, promise);
				return judgement;
			}
			break;
	}
	return judge_due(history, promise, max_attempts, now, lease);
}

/*
 * "Not found" counts only if the question can have been asked late enough,
 * and all that is known of when it was asked is that it was after the grant:
 * a worker that asked early and paused must not be taken for one that asked
 * now.  Otherwise the action waits for that moment, and is verified again.
 */
Judgement
idem_state_judge_absence(const History *history, const Promise *promise,
						 int32_t max_attempts, int64_t now, int64_t lease)
{
	int64_t		conclusive_at = absence_conclusive_at(history, promise);
	Judgement	judgement;

	if (history->state == STATE_REVIEW)
		return answer(OUTCOME_REVIEW);
	if (history->state == STATE_UNKNOWN)	/* said before; only the answer
											 * was lost */
		judgement = busy_until(history->due_at);
	else if (conclusive_at == TIME_NONE || history->attempt >= max_attempts)
		return answer(OUTCOME_REVIEW);
	else if (history->granted_at >= conclusive_at && now >= history->granted_at &&
			 now >= history->first_granted_at)
		return grant_of(OUTCOME_EXECUTE, now, lease);
	else
		judgement = busy_until(conclusive_at > now ? conclusive_at : now);

	judgement.absence_conclusive_at = conclusive_at;
	return judgement;
}

/*
 * After a conclusive absence (execute granted to whoever held verify) the
 * attempts before are known not to have executed.  Under every other grant
 * they stay as ambiguous as they were.
 */
void
idem_state_grant(History *history, Call call, const Judgement *judgement, int64_t now)
{
	history->is_ambiguous = judgement->outcome != OUTCOME_EXECUTE &&
		idem_state_may_have_executed(history);
	history->last_call = call;
	history->state = STATE_PROCESSING;
	history->grant = judgement->outcome;
	history->granted_at = now;
	history->attempt++;
	history->due_at = TIME_NONE;
	history->lease_until = judgement->lease_until;
	if (!is_acting(judgement->outcome))
		return;

	/*
	 * one of tomorrow is of an attempt that made no call, and would make the
	 * key look younger
	 */
	if (history->first_granted_at == TIME_NONE || history->first_granted_at > now)
		history->first_granted_at = now;
	if (history->call_until < judgement->lease_until)
		history->call_until = judgement->lease_until;
}

/*
 * To a state that waits until it is due.
 *
 * mark_unknown: an acting attempt starts no call after it said so, but one
 * before it may, whose lease lapsed beyond its bound; verify never started
 * one.  release: speaks for its own attempt only, and
 * call_until stays on the safe side.  absent: changes nothing but the wait.
 */
void
idem_state_wait(History *history, Call call, int64_t now, int64_t due_at)
{
	if (call == CALL_MARK_UNKNOWN && is_acting(history->grant) &&
		(!history->is_ambiguous || history->call_until < now))
		history->call_until = now;
	if (call == CALL_MARK_UNKNOWN)
		history->is_ambiguous = true;
	history->state = history->is_ambiguous ? STATE_UNKNOWN : STATE_PENDING;
	history->last_call = call;
	history->lease_until = TIME_NONE;
	history->due_at = due_at;
}

void
idem_state_renew(History *history, int64_t lease_until)
{
	history->lease_until = lease_until;
	if (is_acting(history->grant) && history->call_until < lease_until)
		history->call_until = lease_until;
}

/* to a state that has no owner and no due time; what attempts did is kept for review */
void
idem_state_settle(History *history, Call call, State state)
{
	history->is_ambiguous = idem_state_may_have_executed(history);
	history->state = state;
	history->last_call = call;
	history->lease_until = TIME_NONE;
	history->due_at = TIME_NONE;
}

/* an operator vouches that nothing was executed: attempts start anew */
void
idem_state_refresh(History *history, int64_t now)
{
	history->state = STATE_PENDING;
	history->last_call = CALL_RESOLVE;
	history->attempt = 0;
	history->is_ambiguous = false;
	history->has_reference = false;
	history->first_granted_at = TIME_NONE;
	history->call_until = TIME_NONE;
	history->lease_until = TIME_NONE;
	history->due_at = now;
}

/* the state stays as it is, also a pending one: nobody is granted execute any more all the same */
void
idem_state_doubt(History *history, int64_t since, int64_t until)
{
	history->is_ambiguous = true;
	if (history->first_granted_at == TIME_NONE || history->first_granted_at > since)
		history->first_granted_at = since;
	if (history->call_until < until)
		history->call_until = until;
}

int64_t
idem_state_backoff(int64_t base, int64_t max, int32_t attempt, double fraction)
{
	int64_t		step = base;

	while (attempt-- > 1 && step < max)
		step = later(step, step);
	if (step > max)
		step = max;
	return (int64_t) ((double) step * fraction);
}
