/*
 * record.h
 *		One action with its contract, as the tables would keep it: what the
 *		timelines and the walks ask and tell.
 *
 * It does what the rooms above the state room do and no more: raise the
 * generation, keep the promise of the first grant, hold a renewed lease
 * within the life of the channel's key.
 */
#ifndef STATE_RECORD_H
#define STATE_RECORD_H

typedef struct Contract
{
	Promise		promise;
	int			channel;		/* the name of the external system */
	int			max_attempts;
} Contract;

typedef struct Record
{
	History		history;
	Contract	contract;		/* of today */
	Promise		first_promise;	/* of the grants so far */
	int			first_channel;	/* the only one that may have been called */
	int64_t		floor;			/* of generations, in this era */
} Record;

static Record
record_new(Contract contract)
{
	Record		record = {{.state = STATE_NONE}, contract, contract.promise, contract.channel, 0};

	record.history.last_call = CALL_SUBMIT;
	record.history.granted_at = record.history.lease_until = TIME_NONE;
	record.history.due_at = record.history.first_granted_at = TIME_NONE;
	record.history.call_until = TIME_NONE;
	return record;
}

static Promise
record_promise(const Record *record)
{
	if (record->history.first_granted_at == TIME_NONE)
		return record->contract.promise;
	return idem_state_weaker(&record->first_promise, &record->contract.promise,
							 record->first_channel == record->contract.channel);
}

static void
record_raise(Record *record)
{
	History    *history = &record->history;

	history->generation = history->generation < record->floor ? record->floor :
		history->generation + 1;
}

static void
record_grant(Record *record, Call call, const Judgement *judgement, int64_t now)
{
	/* no other channel can have executed it, so this one is the first */
	if (judgement->outcome == OUTCOME_EXECUTE)
	{
		record->first_promise = record->history.first_granted_at == TIME_NONE ?
			record->contract.promise :
			idem_state_weaker(&record->first_promise, &record->contract.promise, true);
		record->first_channel = record->contract.channel;
	}
	idem_state_grant(&record->history, call, judgement, now);
	record_raise(record);
}

static Judgement
record_claim(Record *record, int64_t now, int64_t lease)
{
	Promise		promise = record_promise(record);
	Judgement	judgement = idem_state_judge(&record->history, &promise,
											 record->contract.max_attempts, now, lease);

	if (judgement.outcome == OUTCOME_EXECUTE || judgement.outcome == OUTCOME_REPEAT ||
		judgement.outcome == OUTCOME_VERIFY)
		record_grant(record, CALL_CLAIM, &judgement, now);
	else if (judgement.outcome == OUTCOME_REVIEW && record->history.state != STATE_REVIEW)
		idem_state_settle(&record->history, CALL_CLAIM, STATE_REVIEW);
	return judgement;
}

static Judgement
record_absent(Record *record, int64_t now, int64_t lease)
{
	Promise		promise = record_promise(record);
	Judgement	judgement = idem_state_judge_absence(&record->history, &promise,
													 record->contract.max_attempts, now, lease);

	if (judgement.outcome == OUTCOME_EXECUTE)
		record_grant(record, CALL_ABSENT, &judgement, now);
	else if (judgement.outcome == OUTCOME_REVIEW)
		idem_state_settle(&record->history, CALL_ABSENT, STATE_REVIEW);
	else
		idem_state_wait(&record->history, CALL_ABSENT, now, judgement.retry_at);
	return judgement;
}

/* a new lease; false where none can be given, since the channel's key has ended */
static bool
record_renew(Record *record, int64_t now, int64_t lease)
{
	Promise		promise = record_promise(record);
	int64_t		until = now + lease;

	if (record->history.grant == OUTCOME_REPEAT)
	{
		int64_t		key_until = idem_state_repeat_until(&record->history, &promise, now);

		if (key_until <= now)
			return false;
		if (until > key_until)
			until = key_until;
	}
	idem_state_renew(&record->history, until);
	return true;
}

/* commits were lost: the record is what it was, and an operator declares the loss */
static void
record_lose(Record *record, const Record *old, int64_t since, int64_t until)
{
	int64_t		floor = record->history.generation < record->floor ? record->floor :
		record->history.generation + 1;
	Contract	contract = record->contract;

	*record = *old;
	record->contract = contract;
	record->floor = floor;
	if (record->history.first_granted_at == TIME_NONE)
		record->first_promise = contract.promise;
	if (!idem_state_may_have_executed(&record->history))
		record->first_channel = contract.channel;
	idem_state_doubt(&record->history, since, until);
}

static Ruling
record_rule(const Record *record, Call call, int64_t generation)
{
	Reason		reason;

	return idem_state_rule(call, &record->history, generation, &reason);
}

#endif							/* STATE_RECORD_H */
