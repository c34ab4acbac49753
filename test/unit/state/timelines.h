/*
 * timelines.h
 *		The worked timelines of doc/state.md, under the names they have there.
 *
 * Times are seconds since NOW.  Leases are 30 s and absence is conclusive
 * after 60 s, unless said otherwise.
 */
#ifndef STATE_TIMELINES_H
#define STATE_TIMELINES_H

static const Promise promises_nothing = {false, 0, false, 0};
static const Promise promises_key = {true, DAY, false, 0};
static const Promise promises_answer = {false, 0, true, ABSENCE};
static const Promise promises_both = {true, DAY, true, ABSENCE};

static int64_t
at(int64_t seconds)
{
	return NOW + seconds * SECOND;
}

static Record
start(Promise promise)
{
	Contract	contract = {promise, 0, MAX_ATTEMPTS};

	return record_new(contract);
}

static bool
is_granted(Record *record, int64_t seconds, Outcome outcome)
{
	return record_claim(record, at(seconds), LEASE).outcome == outcome;
}

/* the newest generation makes a call of an owner */
static bool
is_ruled(const Record *record, Call call, Ruling ruling)
{
	return record_rule(record, call, record->history.generation) == ruling;
}

static void
test_key_ends(void)
{
	Record		record = start(promises_key);
	Record		other;
	bool		is_ok = is_granted(&record, 0, OUTCOME_EXECUTE);

	other = record;
	is_ok = is_ok && is_granted(&other, 86400 - 30, OUTCOME_REPEAT);
	other = record;
	is_ok = is_ok && record_claim(&other, at(86400 - 30) + 1, LEASE).outcome == OUTCOME_REVIEW;
	other = record;
	is_ok = is_ok && is_granted(&other, 86400 - 10, OUTCOME_REVIEW);
	other = record;
	is_ok = is_ok && is_granted(&other, 90000, OUTCOME_REVIEW);
	record = start(promises_both);
	is_ok = is_ok && is_granted(&record, 0, OUTCOME_EXECUTE);
	is_ok = is_ok && is_granted(&record, 90000, OUTCOME_VERIFY);
	tap(is_ok, "O5: the channel's key must outlive the lease");
}

static void
test_absence_waits(void)
{
	Record		record = start(promises_answer);
	Judgement	judgement;
	bool		is_ok = is_granted(&record, 0, OUTCOME_EXECUTE);

	judgement = record_claim(&record, at(61), LEASE);
	is_ok = is_ok && judgement.outcome == OUTCOME_VERIFY &&
		judgement.absence_conclusive_at == at(90);
	judgement = record_absent(&record, at(62), LEASE);
	is_ok = is_ok && is_judged(judgement, OUTCOME_BUSY, at(90), TIME_NONE, at(90)) &&
		record.history.state == STATE_UNKNOWN;

	/* the same again, after a lost answer */
	is_ok = is_ok && is_ruled(&record, CALL_ABSENT, RULING_DONE);
	judgement = record_absent(&record, at(63), LEASE);
	is_ok = is_ok && is_judged(judgement, OUTCOME_BUSY, at(90), TIME_NONE, at(90));
	judgement = record_claim(&record, at(89), LEASE);
	is_ok = is_ok && is_judged(judgement, OUTCOME_BUSY, at(90), TIME_NONE, at(90));

	judgement = record_claim(&record, at(90), LEASE);
	is_ok = is_ok && judgement.outcome == OUTCOME_VERIFY &&
		judgement.absence_conclusive_at == at(90);
	judgement = record_absent(&record, at(91), LEASE);
	is_ok = is_ok && is_judged(judgement, OUTCOME_EXECUTE, TIME_NONE, at(121), TIME_NONE) &&
		record.history.generation == 4;
	tap(is_ok, "O5b: absence is conclusive from a moment that asking does not move");
}

static void
test_asked_early(void)
{
	Record		record = start(promises_answer);
	Judgement	judgement;
	bool		is_ok = is_granted(&record, 0, OUTCOME_EXECUTE);

	is_ok = is_ok && is_granted(&record, 89, OUTCOME_VERIFY);
	judgement = record_absent(&record, at(100), LEASE);
	is_ok = is_ok && is_judged(judgement, OUTCOME_BUSY, at(100), TIME_NONE, at(90));
	is_ok = is_ok && is_granted(&record, 100, OUTCOME_VERIFY) &&
		record_absent(&record, at(101), LEASE).outcome == OUTCOME_EXECUTE;
	tap(is_ok, "O5b: a worker that asked early and paused does not pass for one that asked now");
}

static void
test_release_speaks_for_itself(void)
{
	Record		record = start(promises_both);
	bool		is_ok = is_granted(&record, 0, OUTCOME_EXECUTE);

	is_ok = is_ok && is_granted(&record, 30, OUTCOME_REPEAT) &&
		is_ruled(&record, CALL_RELEASE, RULING_GO);
	idem_state_wait(&record.history, CALL_RELEASE, at(31), at(31));
	is_ok = is_ok && record.history.state == STATE_UNKNOWN &&
		is_ruled(&record, CALL_RELEASE, RULING_DONE) &&
		is_ruled(&record, CALL_MARK_UNKNOWN, RULING_ILLEGAL) &&
		is_granted(&record, 31, OUTCOME_REPEAT);

	record = start(promises_both);
	is_ok = is_ok && is_granted(&record, 0, OUTCOME_EXECUTE);
	idem_state_wait(&record.history, CALL_RELEASE, at(1), at(1));
	is_ok = is_ok && record.history.state == STATE_PENDING &&
		is_granted(&record, 1, OUTCOME_EXECUTE);
	tap(is_ok, "O5c: release speaks for its own attempt only");
}

static void
test_reference(void)
{
	Record		record = start(promises_answer);
	bool		is_ok = is_granted(&record, 0, OUTCOME_EXECUTE) &&
		is_granted(&record, 90, OUTCOME_VERIFY);

	record.history.has_reference = true;	/* late evidence */
	is_ok = is_ok && is_ruled(&record, CALL_ABSENT, RULING_ILLEGAL) &&
		is_ruled(&record, CALL_RELEASE, RULING_ILLEGAL) &&
		is_ruled(&record, CALL_COMPLETE, RULING_GO);
	is_ok = is_ok && is_granted(&record, 120, OUTCOME_VERIFY);
	record.contract.promise = promises_nothing;
	is_ok = is_ok && is_granted(&record, 150, OUTCOME_VERIFY);
	idem_state_refresh(&record.history, at(160));
	is_ok = is_ok && is_granted(&record, 160, OUTCOME_EXECUTE);
	tap(is_ok, "O5d: with a reference on record nobody is told to execute");
}

static void
test_promises_never_grow(void)
{
	Record		record = start(promises_nothing);
	bool		is_ok = is_granted(&record, 0, OUTCOME_EXECUTE);

	record.contract.promise = promises_both;
	is_ok = is_ok && is_granted(&record, 30, OUTCOME_REVIEW);

	record = start(promises_both);
	is_ok = is_ok && is_granted(&record, 0, OUTCOME_EXECUTE);
	record.contract.promise = promises_nothing;
	is_ok = is_ok && is_granted(&record, 30, OUTCOME_REVIEW);
	tap(is_ok, "O5e: the weaker of the first promise and today's counts");
}

static void
test_never_an_answer(void)
{
	Record		record = start(promises_answer);
	bool		is_ok = true;

	record.contract.max_attempts = 3;
	is_ok = is_ok && is_granted(&record, 0, OUTCOME_EXECUTE);
	for (int round = 1; round <= 2; round++)
	{
		is_ok = is_ok && is_granted(&record, 100 * round, OUTCOME_VERIFY) &&
			is_ruled(&record, CALL_MARK_UNKNOWN, RULING_GO);
		idem_state_wait(&record.history, CALL_MARK_UNKNOWN, at(100 * round + 1),
						at(100 * round + 50));
		is_ok = is_ok && is_granted(&record, 100 * round + 49, OUTCOME_BUSY);
	}
	is_ok = is_ok && is_granted(&record, 300, OUTCOME_REVIEW) &&
		record.history.state == STATE_REVIEW;

	/* and a "not found" after the last attempt is no way round */
	record = start(promises_answer);
	record.contract.max_attempts = 2;
	is_ok = is_ok && is_granted(&record, 0, OUTCOME_EXECUTE) &&
		is_granted(&record, 90, OUTCOME_VERIFY) &&
		record_absent(&record, at(91), LEASE).outcome == OUTCOME_REVIEW;
	tap(is_ok, "O9: a channel that never knows ends in review");
}

static void
test_other_channel(void)
{
	Record		record = start(promises_both);
	bool		is_ok = is_granted(&record, 0, OUTCOME_EXECUTE);

	record.contract.channel = 1;
	is_ok = is_ok && is_granted(&record, 30, OUTCOME_REVIEW);

	/* moved while somebody asks the old one: its answer is not the new one's */
	record = start(promises_answer);
	is_ok = is_ok && is_granted(&record, 0, OUTCOME_EXECUTE) &&
		is_granted(&record, 90, OUTCOME_VERIFY);
	record.contract.channel = 1;
	is_ok = is_ok && record_absent(&record, at(91), LEASE).outcome == OUTCOME_REVIEW;
	tap(is_ok, "O10: a promise belongs to its channel");
}

/*
 * W1 was granted it at 0 for an hour, and called; the failover forgets all of
 * it, and the loss of 0 to 600 is declared.
 */
static void
test_lost_commits(void)
{
	int64_t		conclusive_at = at(600 + 86400 + 60);
	Record		old = start(promises_answer);
	Record		record = old;
	bool		is_ok = record_claim(&record, at(0), HOUR).outcome == OUTCOME_EXECUTE;
	int64_t		lost = record.history.generation;
	Judgement	judgement;

	record_lose(&record, &old, at(0), at(600) + DAY);
	is_ok = is_ok && record_rule(&record, CALL_CANCEL, record.history.generation) == RULING_ILLEGAL;
	judgement = record_claim(&record, at(700), LEASE);
	is_ok = is_ok && judgement.outcome == OUTCOME_VERIFY &&
		judgement.absence_conclusive_at == conclusive_at &&
		record_rule(&record, CALL_COMPLETE, lost) == RULING_STALE;
	judgement = record_absent(&record, at(701), LEASE);
	is_ok = is_ok && judgement.outcome == OUTCOME_BUSY && judgement.retry_at == conclusive_at;
	judgement = record_claim(&record, conclusive_at, LEASE);
	is_ok = is_ok && judgement.outcome == OUTCOME_VERIFY &&
		record_absent(&record, conclusive_at, LEASE).outcome == OUTCOME_EXECUTE;
	tap(is_ok, "a declared loss: asked, and executed only after the longest lost lease");

	/* W1 is on record, but who took over from it is not */
	old = start(promises_answer);
	is_ok = is_granted(&old, 0, OUTCOME_EXECUTE);
	record = old;
	is_ok = is_ok && is_granted(&record, 90, OUTCOME_VERIFY) &&
		record_absent(&record, at(91), LEASE).outcome == OUTCOME_EXECUTE;
	record_lose(&record, &old, at(80), at(600) + DAY);
	is_ok = is_ok && record_rule(&record, CALL_RENEW, record.history.generation) == RULING_ILLEGAL &&
		record_rule(&record, CALL_COMPLETE, record.history.generation) == RULING_GO;
	tap(is_ok, "a declared loss: an owner of before may finish, and makes no further call");

	old = start(promises_nothing);
	record = old;
	record_lose(&record, &old, at(0), at(600) + DAY);
	is_ok = is_granted(&record, 700, OUTCOME_REVIEW);
	idem_state_refresh(&record.history, at(800));
	is_ok = is_ok && is_granted(&record, 800, OUTCOME_EXECUTE);
	tap(is_ok, "a declared loss: a person decides where the channel promises nothing");
}

static void
test_owner_of_review(void)
{
	Record		record = start(promises_nothing);
	int64_t		generation;
	bool		is_ok = is_granted(&record, 0, OUTCOME_EXECUTE);

	generation = record.history.generation;
	is_ok = is_ok && is_granted(&record, 29, OUTCOME_BUSY) &&
		is_granted(&record, 30, OUTCOME_REVIEW) &&
		record_rule(&record, CALL_COMPLETE, generation) == RULING_GO &&
		record_rule(&record, CALL_REJECT, generation) == RULING_GO &&
		record_rule(&record, CALL_RENEW, generation) == RULING_ILLEGAL;
	idem_state_settle(&record.history, CALL_COMPLETE, STATE_SUCCEEDED);
	is_ok = is_ok && record_rule(&record, CALL_COMPLETE, generation) == RULING_DONE &&
		record_rule(&record, CALL_REJECT, generation) == RULING_ILLEGAL &&
		is_granted(&record, 40, OUTCOME_SUCCEEDED);
	tap(is_ok, "L10: review takes nothing from the newest generation");
}

static void
test_never_granted(void)
{
	History		history = {.state = STATE_REVIEW,.last_call = CALL_ESCALATE,.generation = 1};
	Reason		reason;
	bool		is_ok = idem_state_rule(CALL_COMPLETE, &history, 1, &reason) == RULING_ILLEGAL &&
		reason == REASON_NO_GRANT &&
		idem_state_rule(CALL_REJECT, &history, 1, &reason) == RULING_ILLEGAL &&
		reason == REASON_NO_GRANT &&
		idem_state_rule(CALL_RESOLVE, &history, 1, &reason) == RULING_GO;

	history.attempt = 1;
	is_ok = is_ok && idem_state_rule(CALL_COMPLETE, &history, 1, &reason) == RULING_GO;
	tap(is_ok, "what nobody was granted is decided by an operator only");
}

static void
test_renewed_repeat(void)
{
	Promise		promise = {true, 100 * SECOND, false, 0};
	Record		record = start(promise);
	bool		is_ok = is_granted(&record, 0, OUTCOME_EXECUTE);

	is_ok = is_ok && is_granted(&record, 40, OUTCOME_REPEAT) &&
		record_renew(&record, at(60), LEASE) && record.history.lease_until == at(90);
	is_ok = is_ok && record_renew(&record, at(89), LEASE) &&
		record.history.lease_until == at(100) && record.history.call_until == at(100);
	is_ok = is_ok && !record_renew(&record, at(100), LEASE);
	is_ok = is_ok && is_granted(&record, 99, OUTCOME_BUSY) &&
		is_granted(&record, 100, OUTCOME_REVIEW);
	tap(is_ok, "L11: a renewed repeat ends with the channel's key");
}

/*
 * A lease of 24 h, renewed at 10; then the clock is set back to 5.  It now ends
 * beyond its bound and so has lapsed, but its owner lives, and may call yet.
 */
static Record
outlived_lease(Promise promise)
{
	Record		record = start(promise);

	if (record_claim(&record, at(0), DAY).outcome == OUTCOME_EXECUTE)
		record_renew(&record, at(10), DAY);
	return record;
}

static void
test_clock_set_back(void)
{
	Promise		promise = {true, 7 * DAY, true, ABSENCE};
	Record		record = outlived_lease(promise);
	bool		is_ok = is_granted(&record, 11, OUTCOME_BUSY);
	Judgement	judgement;

	is_ok = is_ok && is_granted(&record, 5, OUTCOME_REPEAT);
	idem_state_wait(&record.history, CALL_MARK_UNKNOWN, at(6), at(6));
	record.contract.promise = promises_answer;
	judgement = record_claim(&record, at(66), LEASE);
	is_ok = is_ok && judgement.outcome == OUTCOME_VERIFY &&
		judgement.absence_conclusive_at == at(86410 + 60) &&
		record_absent(&record, at(67), LEASE).outcome == OUTCOME_BUSY;
	tap(is_ok, "a clock that was set back: mark_unknown ends no calls but its own");

	promise.key_ttl = 100 * SECOND;
	record = outlived_lease(promise);
	is_ok = is_granted(&record, 5, OUTCOME_VERIFY);
	promise.key_ttl = 86410 * SECOND;
	record = outlived_lease(promise);
	is_ok = is_ok && is_granted(&record, 5, OUTCOME_REPEAT);
	tap(is_ok, "a clock that was set back: the channel's key must outlive every call");
}

/* the first attempt made no call; the key is as old as the second, not younger */
static void
test_clock_set_right(void)
{
	Record		record = start(promises_key);
	bool		is_ok = is_granted(&record, 36000, OUTCOME_EXECUTE);	/* ten hours ahead */

	idem_state_wait(&record.history, CALL_RELEASE, at(0), at(0));
	is_ok = is_ok && is_granted(&record, 0, OUTCOME_EXECUTE);
	is_ok = is_ok && is_granted(&record, 86400 - 29, OUTCOME_REVIEW);
	tap(is_ok, "a clock that was set right: the channel's key is no younger than its first call");
}

#endif							/* STATE_TIMELINES_H */
