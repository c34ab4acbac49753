/*
 * walk.h
 *		Random sequences of calls, against channels that keep the truth.
 *
 * A walk knows what no record can: which worker called the channel and when,
 * and whether that executed the action.  Workers pause, die, are replaced and
 * come back, but they keep to the documented terms:
 *
 *	- an acting worker may start its one call at any moment from its grant
 *	  until its lease ends, as its own clock counts it, or until it reports;
 *	- complete, reject, release and what an operator vouches for are true;
 *	- "not found" is what the channel said at some moment after the grant.
 *
 * In some walks commits are lost: the record is set back to what it was, the
 * loss is declared, and nobody but the workers and channels knows of it.
 *
 * A channel keeps what contracts promise of it: a call that executes can be
 * found at the latest absence_after after it started, and a known key is
 * known for key_ttl.  Contracts promise that or less, change, and move to
 * another channel.  In half of the walks the database's clock is set back
 * now and then, which makes keys look younger: there the channel keeps them
 * longer by as much as the clock was set back.  It is never set forward,
 * which shortens every wait by as much and is not promised to be safe.
 */
#ifndef STATE_WALK_H
#define STATE_WALK_H

#define WALKS	20000			/* of each kind */
#define STEPS	120				/* of a walk, at most */
#define STEPS_TERMINAL 8		/* of them after a terminal state */
#define NCHANNELS 2

typedef struct Channel
{
	Promise		promise;		/* what it really keeps */
	bool		has_executed;	/* and so knows the key */
	int64_t		known_since;	/* real time */
	int64_t		visible_at;		/* real time from which it can be found */
} Channel;

typedef struct Worker
{
	int64_t		generation;
	Outcome		grant;
	Channel    *channel;		/* that it was told to call or to ask */
	int64_t		deadline;		/* real time: it starts no call from then on */
	bool		has_called;
	bool		has_reported;	/* and starts no call any more */
	bool		has_asked;		/* since its grant */
	bool		has_found;		/* what it was answered last */
} Worker;

typedef struct Walk
{
	uint64_t	seed;			/* it began with */
	uint64_t	random;
	int64_t		real;			/* time that only goes forward */
	int64_t		set_back;		/* the database's clock is that much behind */
	Record		record;
	Channel		channels[NCHANNELS];
	int			executions;		/* of the action, wherever */
	int64_t		executable_at;	/* when execute was last granted, on the clock */
	int64_t		usual_lease;	/* half of the leases */
	Record		standby;		/* what will be left after a loss */
	bool		is_losing;		/* what is written now will be lost */
	int64_t		lost_from;		/* since then, by the clock */
	int64_t		lost_to;		/* until then */
	int			nworkers;
	Worker		workers[STEPS];
} Walk;

/* what must hold at every step of every walk; a line of the report each */
typedef enum Invariant
{
	NEVER_LEFT,
	ONLY_ONCE,
	EXECUTE_SAFE,
	REPEAT_SAFE,
	VERIFY_POSSIBLE,
	STALE_REFUSED,
	MOVE_IN_TABLE,
	CANCEL_TRUE,
	BUSY_ENDS,
	ALL_ENDS
} Invariant;

#define NINVARIANTS (ALL_ENDS + 1)

static const char *const invariant_names[NINVARIANTS] = {
	[NEVER_LEFT] = "no terminal state is left, and claims are answered by it",
	[ONLY_ONCE] = "no action is executed twice",
	[EXECUTE_SAFE] = "execute is never granted while an attempt may have executed or yet may",
	[REPEAT_SAFE] = "repeat is never granted beyond the life of the channel's key",
	[VERIFY_POSSIBLE] = "verify is granted only where there is something to ask",
	[STALE_REFUSED] = "every generation but the newest is refused as stale",
	[MOVE_IN_TABLE] = "every move is one of the table",
	[CANCEL_TRUE] = "nothing is cancelled that was or may yet be executed",
	[BUSY_ENDS] = "busy names a moment still to come",
	[ALL_ENDS] = "an action that only fails is in review after its attempts"
};

static Line invariants[NINVARIANTS];
static bool was_moved[NCALLS][NSTATES][NSTATES];
static bool was_granted[NOUTCOMES];
static bool was_lost;

static void
must(Walk *walk, Invariant invariant, bool holds)
{
	if (!line_fault(&invariants[invariant], holds))
		return;
	printf("# walk %llu: %s\n", (unsigned long long) walk->seed, invariant_names[invariant]);
	explain(&walk->record.history, &walk->record.contract.promise);
}

/* a number from 0 up to below; the generator is splitmix64 */
static int64_t
pick(Walk *walk, int64_t below)
{
	uint64_t	bits = (walk->random += UINT64_C(0x9E3779B97F4A7C15));

	bits = (bits ^ (bits >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
	bits = (bits ^ (bits >> 27)) * UINT64_C(0x94D049BB133111EB);
	bits ^= bits >> 31;
	return (int64_t) (bits % (uint64_t) below);
}

static int64_t
pick_time(Walk *walk)
{
	static const int64_t times[] = {
		1, SECOND / 10, SECOND, LEASE, MINUTE, HOUR, DAY, 7 * DAY
	};

	return times[pick(walk, LENGTH(times))];
}

static int64_t
pick_lease(Walk *walk)
{
	static const int64_t leases[] = {SECOND / 10, SECOND, LEASE, LEASE, LEASE, HOUR, DAY};

	if (walk->usual_lease > 0 && pick(walk, 2) == 0)
		return walk->usual_lease;
	return leases[pick(walk, LENGTH(leases))];
}

static int64_t
clock_of(const Walk *walk)
{
	return walk->real - walk->set_back;
}

/* ---- the truth ---- */

static bool
can_call(const Walk *walk, const Worker *worker)
{
	return may_act(worker->grant) && !worker->has_called && !worker->has_reported &&
		walk->real < worker->deadline;
}

/* the action was executed, or somebody else may yet do so */
static bool
is_too_late(const Walk *walk, const Worker *but)
{
	for (int i = 0; i < walk->nworkers; i++)
		if (&walk->workers[i] != but && can_call(walk, &walk->workers[i]))
			return true;
	return walk->executions > 0;
}

static bool
knows_key(const Walk *walk, const Channel *channel)
{
	if (!channel->promise.is_idempotent || !channel->has_executed)
		return false;
	return channel->promise.key_ttl == TIME_FOREVER ||
		walk->real - channel->known_since <= channel->promise.key_ttl + walk->set_back;
}

static void
worker_calls(Walk *walk, Worker *worker)
{
	Channel    *channel = worker->channel;
	bool		gets_lost = pick(walk, 4) == 0;

	worker->has_called = true;
	if (knows_key(walk, channel) || gets_lost)
		return;
	channel->has_executed = true;
	channel->known_since = walk->real;
	channel->visible_at = walk->real + channel->promise.absence_after;
	if (pick(walk, 2) == 0)
		channel->visible_at -= pick(walk, channel->promise.absence_after + 1);
	walk->executions++;
	must(walk, ONLY_ONCE, walk->executions == 1);
}

static void
worker_asks(Walk *walk, Worker *worker)
{
	worker->has_asked = true;
	worker->has_found = worker->channel->has_executed &&
		walk->real >= worker->channel->visible_at;
}

/* ---- what happens to the action ---- */

static void
moved(Walk *walk, Call call, State from)
{
	State		to = walk->record.history.state;

	was_moved[call][from][to] = true;
	must(walk, MOVE_IN_TABLE, idem_state_targets(call, from) >> to & 1);
}

static void
hire(Walk *walk, Judgement judgement)
{
	const Contract *contract = &walk->record.contract;
	Worker		worker = {.generation = walk->record.history.generation};
	bool		is_same = walk->record.first_channel == contract->channel;

	worker.grant = judgement.outcome;
	worker.channel = &walk->channels[walk->record.first_channel];
	worker.deadline = judgement.lease_until + walk->set_back;
	was_granted[worker.grant] = true;
	if (worker.grant == OUTCOME_EXECUTE)
	{
		must(walk, EXECUTE_SAFE, !is_too_late(walk, NULL));
		walk->executable_at = clock_of(walk);
	}
	else if (worker.grant == OUTCOME_REPEAT)
		must(walk, REPEAT_SAFE, is_same && contract->promise.is_idempotent &&
			 (worker.channel->promise.key_ttl == TIME_FOREVER ||
			  judgement.lease_until - worker.channel->promise.key_ttl <= walk->executable_at));
	else
		must(walk, VERIFY_POSSIBLE, walk->record.history.has_reference ||
			 (is_same && contract->promise.is_queryable));
	walk->workers[walk->nworkers++] = worker;
}

static void
step_claim(Walk *walk)
{
	int64_t		now = clock_of(walk);
	State		from = walk->record.history.state;
	Judgement	judgement = record_claim(&walk->record, now, pick_lease(walk));

	if (idem_state_is_terminal(from))
		must(walk, NEVER_LEFT, walk->record.history.state == from &&
			 judgement.outcome == (from == STATE_SUCCEEDED ? OUTCOME_SUCCEEDED :
								   OUTCOME_REJECTED));
	else if (judgement.outcome == OUTCOME_BUSY)
		must(walk, BUSY_ENDS, judgement.retry_at > now && walk->record.history.state == from);
	else if (from != STATE_REVIEW)
		moved(walk, CALL_CLAIM, from);
	if (may_act(judgement.outcome) || judgement.outcome == OUTCOME_VERIFY)
		hire(walk, judgement);
}

/* an honest worker says only what it knows to be so */
static bool
is_truthful(const Walk *walk, const Worker *worker, Call call)
{
	switch (call)
	{
		case CALL_COMPLETE:
			return walk->executions > 0;
		case CALL_REJECT:
			return !is_too_late(walk, worker);
		case CALL_RELEASE:
			return !worker->has_called;
		case CALL_ABSENT:
			return worker->has_asked && !worker->has_found;
		default:
			return true;
	}
}

static void
owner_moves(Walk *walk, Worker *worker, Call call)
{
	Record	   *record = &walk->record;
	int64_t		now = clock_of(walk);
	State		from = record->history.state;

	switch (call)
	{
		case CALL_RENEW:
			if (record_renew(record, now, pick_lease(walk)))
				worker->deadline = record->history.lease_until + walk->set_back;
			break;
		case CALL_COMPLETE:
			idem_state_settle(&record->history, call, STATE_SUCCEEDED);
			break;
		case CALL_REJECT:
			idem_state_settle(&record->history, call, STATE_REJECTED);
			worker->has_reported = true;
			break;
		case CALL_ESCALATE:
			/* and may go on: it has not said what it did */
			idem_state_settle(&record->history, call, STATE_REVIEW);
			break;
		case CALL_ABSENT:
			{
				Judgement	judgement = record_absent(record, now, pick_lease(walk));

				if (judgement.outcome == OUTCOME_EXECUTE)
					hire(walk, judgement);
				break;
			}
		default:				/* mark_unknown, release */
			idem_state_wait(&record->history, call, now, now + pick(walk, 2) * MINUTE);
			worker->has_reported = true;
			break;
	}
	moved(walk, call, from);
}

/* somebody who was granted something makes one of an owner's calls, be he owner or not */
static void
step_owner(Walk *walk)
{
	static const Call calls[] = {
		CALL_RENEW, CALL_RENEW, CALL_COMPLETE, CALL_REJECT, CALL_MARK_UNKNOWN, CALL_RELEASE,
		CALL_ABSENT, CALL_ABSENT, CALL_ESCALATE
	};
	Call		call = calls[pick(walk, LENGTH(calls))];
	int			number = walk->nworkers - 1;
	Worker	   *worker;
	Ruling		ruling;

	if (number < 0)
		return;
	if (pick(walk, 4) == 0)
		number = (int) pick(walk, walk->nworkers);
	worker = &walk->workers[number];
	if (worker->has_asked && pick(walk, 2) == 0)
		call = worker->has_found ? CALL_COMPLETE : CALL_ABSENT;
	ruling = record_rule(&walk->record, call, worker->generation);
	must(walk, STALE_REFUSED, (ruling == RULING_STALE) ==
		 (worker->generation != walk->record.history.generation));
	if (idem_state_is_terminal(walk->record.history.state))
		must(walk, NEVER_LEFT, ruling != RULING_GO);
	if (ruling == RULING_GO && is_truthful(walk, worker, call))
		owner_moves(walk, worker, call);
}

static void
step_cancel(Walk *walk)
{
	History    *history = &walk->record.history;
	State		from = history->state;

	if (record_rule(&walk->record, CALL_CANCEL, history->generation) != RULING_GO)
		return;
	must(walk, CANCEL_TRUE, !is_too_late(walk, NULL));
	must(walk, NEVER_LEFT, !idem_state_is_terminal(from));
	idem_state_settle(history, CALL_CANCEL, STATE_REJECTED);
	moved(walk, CALL_CANCEL, from);
}

/* an operator, who has asked everybody, decides as it is */
static void
step_resolve(Walk *walk)
{
	History    *history = &walk->record.history;
	State		from = history->state;

	if (record_rule(&walk->record, CALL_RESOLVE, history->generation) != RULING_GO)
		return;
	if (walk->executions > 0)
		idem_state_settle(history, CALL_RESOLVE, STATE_SUCCEEDED);
	else if (is_too_late(walk, NULL))
		return;
	else if (pick(walk, 4) == 0)
		idem_state_settle(history, CALL_RESOLVE, STATE_REJECTED);
	else
		idem_state_refresh(history, clock_of(walk));
	record_raise(&walk->record);
	must(walk, NEVER_LEFT, !idem_state_is_terminal(from));
	moved(walk, CALL_RESOLVE, from);
}

/* a webhook brings the reference of what was executed */
static void
step_evidence(Walk *walk)
{
	if (walk->executions > 0)
		walk->record.history.has_reference = true;
}

/*
 * A standby stops receiving, or is promoted.  Only one channel is in doubt
 * then: where another was called before, a person would have to ask both.
 */
static void
step_loss(Walk *walk)
{
	Record	   *record = &walk->record;
	int64_t		now = clock_of(walk);

	if (walk->is_losing)
	{
		record_lose(record, &walk->standby, walk->lost_from, walk->lost_to + DAY);
		walk->is_losing = false;

		/*
		 * if no grant is on record, the first call known of will be a
		 * repetition
		 */
		if (walk->standby.history.first_granted_at == TIME_NONE)
			walk->executable_at = walk->lost_from;
		was_lost = true;
	}
	else if (!idem_state_is_terminal(record->history.state) &&
			 (record->first_channel == record->contract.channel ||
			  !idem_state_may_have_executed(&record->history)))
	{
		walk->standby = *record;
		walk->is_losing = true;
		walk->lost_from = walk->lost_to = now;
	}
}

/* ---- what happens around it ---- */

static Contract
pick_contract(Walk *walk)
{
	Contract	contract;
	Promise    *promise = &contract.promise;

	contract.channel = pick(walk, 6) == 0;
	*promise = walk->channels[contract.channel].promise;
	if (pick(walk, 8) == 0)
		promise->is_idempotent = false;
	if (pick(walk, 8) == 0)
		promise->is_queryable = false;
	if (pick(walk, 4) == 0)
		promise->key_ttl = promise->key_ttl == TIME_FOREVER ? DAY : promise->key_ttl / 2;
	if (pick(walk, 4) == 0)
		promise->absence_after += HOUR;
	contract.max_attempts = 3 + (int) pick(walk, 8);
	return contract;
}

static Channel
pick_channel(Walk *walk)
{
	Channel		channel = {{false, 0, false, 0}, false, TIME_NONE, TIME_NONE};

	channel.promise.is_idempotent = pick(walk, 2);
	channel.promise.key_ttl = pick(walk, 4) == 0 ? TIME_FOREVER : MINUTE + pick_time(walk);
	channel.promise.is_queryable = pick(walk, 3) > 0;
	channel.promise.absence_after = pick(walk, 4) == 0 ? 0 : pick_time(walk);
	return channel;
}

/* to about a moment at which some answer changes, or just on */
static int64_t
pick_moment(Walk *walk)
{
	const History *history = &walk->record.history;
	const Promise *promise = &walk->record.contract.promise;
	int64_t		moment = TIME_NONE;

	switch (pick(walk, 6))
	{
		case 0:
			moment = history->lease_until;
			break;
		case 1:
			moment = history->due_at;
			break;
		case 2:
			if (history->call_until != TIME_NONE)
				moment = history->call_until + promise->absence_after;
			break;
		case 3:
			if (history->first_granted_at != TIME_NONE && promise->key_ttl != TIME_FOREVER)
				moment = history->first_granted_at + promise->key_ttl - LEASE;
			break;
		case 4:
			if (walk->nworkers > 0)
				moment = walk->workers[pick(walk, walk->nworkers)].deadline - walk->set_back;
			break;
	}
	if (moment == TIME_NONE)
		return walk->real + pick(walk, pick_time(walk) + 1);
	return moment + walk->set_back - 1 + pick(walk, 3);
}

/* time passes; meanwhile somebody may call the channel, or ask it */
static void
step_time(Walk *walk)
{
	int64_t		moment = pick_moment(walk);
	Worker	   *worker;

	if (moment <= walk->real)
		return;
	if (walk->nworkers > 0 && pick(walk, 2) == 0)
	{
		worker = &walk->workers[walk->nworkers - 1 - pick(walk, walk->nworkers > 2 ? 3 : 1)];
		if (can_call(walk, worker))
		{
			/* the last possible moment is the most dangerous one */
			if (worker->deadline <= moment && pick(walk, 2) == 0)
				walk->real = worker->deadline - 1;
			else
				walk->real += pick(walk, moment - walk->real);
			if (can_call(walk, worker))
				worker_calls(walk, worker);
		}
	}
	if (moment > walk->real)
		walk->real = moment;
}

static void
step_channel(Walk *walk)
{
	Worker	   *worker;

	if (walk->nworkers == 0)
		return;
	worker = &walk->workers[walk->nworkers - 1 - pick(walk, walk->nworkers > 2 ? 3 : 1)];
	if (worker->grant == OUTCOME_VERIFY)
		worker_asks(walk, worker);
	else if (can_call(walk, worker))
		worker_calls(walk, worker);
}

static void
step(Walk *walk, bool may_set_back)
{
	int64_t		dice = pick(walk, 100);
	int64_t		now = clock_of(walk);

	if (walk->lost_from > now)
		walk->lost_from = now;
	if (walk->lost_to < now)
		walk->lost_to = now;
	if (dice < 25)
		step_time(walk);
	else if (dice < 45)
		step_claim(walk);
	else if (dice < 65)
		step_channel(walk);
	else if (dice < 88)
		step_owner(walk);
	else if (dice < 90)
		step_cancel(walk);
	else if (dice < 93)
		step_resolve(walk);
	else if (dice < 94)
		step_evidence(walk);
	else if (dice < 97 && walk->is_losing)
		step_loss(walk);
	else if (dice < 96)
		walk->record.contract = pick_contract(walk);
	else if (dice < 97)
		step_loss(walk);
	else if (may_set_back)
		walk->set_back += pick(walk, pick_time(walk) + 1);
}

/* from here on every owner dies at once: somebody must be told before long */
static void
walk_ends(Walk *walk)
{
	History    *history = &walk->record.history;
	int			claims = 2 * walk->record.contract.max_attempts + 2;

	while (claims-- > 0 && history->state != STATE_REVIEW)
	{
		Judgement	judgement = record_claim(&walk->record, clock_of(walk), LEASE);

		if (judgement.outcome == OUTCOME_BUSY)
			walk->real = judgement.retry_at + walk->set_back;
	}
	must(walk, ALL_ENDS, history->state == STATE_REVIEW);
}

static void
walk_start(Walk *walk, uint64_t seed)
{
	memset(walk, 0, sizeof(Walk));
	walk->seed = walk->random = seed;
	walk->real = NOW;
	for (int i = 0; i < NCHANNELS; i++)
		walk->channels[i] = pick_channel(walk);
	walk->usual_lease = pick_lease(walk);
	walk->record = record_new(pick_contract(walk));
	if (pick(walk, 3) > 0)
		return;
	walk->record.history.generation = 1;
	idem_state_wait(&walk->record.history, CALL_SUBMIT, NOW, NOW);
	moved(walk, CALL_SUBMIT, STATE_NONE);
}

static void
walk_on(uint64_t seed, bool may_set_back)
{
	static Walk walk;
	int			after = 0;

	walk_start(&walk, seed);
	for (int i = 0; i < STEPS && after < STEPS_TERMINAL; i++)
	{
		step(&walk, may_set_back);
		after += idem_state_is_terminal(walk.record.history.state) && !walk.is_losing;
	}
	if (walk.is_losing)
		step_loss(&walk);
	if (after == 0)
		walk_ends(&walk);
}

/* the walks are worth what they went through */
static void
test_coverage(void)
{
	for (unsigned i = OUTCOME_EXECUTE; i <= OUTCOME_VERIFY; i++)
		tap(was_granted[i], "the walks were granted %s", outcome_words[i]);
	tap(was_lost, "the walks lost commits");
	for (unsigned call = 0; call < NCALLS; call++)
	{
		Line		line = {0, 0};

		for (unsigned i = 0; i < NSTATES * NSTATES; i++)
		{
			State		from = (State) (i / NSTATES);
			State		to = (State) (i % NSTATES);

			if ((idem_state_targets((Call) call, from) >> to & 1) == 0)
				continue;
			if (line_fault(&line, was_moved[call][from][to]))
				printf("# never from %s to %s\n", state_words[from], state_words[to]);
		}
		tap(line_is_ok(&line), "the walks made every move of %s", call_words[call]);
	}
}

static void
test_walks(void)
{
	for (int kind = 0; kind < 2; kind++)
	{
		memset(invariants, 0, sizeof(invariants));
		for (uint64_t i = 0; i < WALKS; i++)
			walk_on(i, kind == 1);
		for (unsigned i = 0; i < NINVARIANTS; i++)
			tap(line_is_ok(&invariants[i]), "%s: %s", kind == 0 ? "steady clock" :
				"clock set back", invariant_names[i]);
	}
	test_coverage();
}

#endif							/* STATE_WALK_H */
