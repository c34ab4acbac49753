/*
 * action.c
 *		Asking to act: submit, claim, reclaim.
 *
 * Thin: read the arguments, look, let state.c judge, tell the store, answer.
 * Whatever the store reports as changed is looked at again; the loops end
 * because each round follows from somebody else's commit.
 *
 * The parameters are compared on every way out, before anything else is
 * judged, and under the revision of the contract that the record remembers.
 *
 * The store is opened before the contract is looked up: see define.c.
 */
#include "idem_action.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "tcop/utility.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

typedef struct Ask
{
	Question	question;		/* key and parameters */
	Call		call;			/* CALL_SUBMIT or CALL_CLAIM */
	text	   *owner;			/* who asks; NULL: application_name:pid */
	int64		lease;			/* for how long, 0: the contract's */
	Jsonb	   *transport;		/* identity of the message, or NULL */
} Ask;

/* ---- what asking, reporting and once share ---- */

char *
idem_key_cstring(const IdemKey *key)
{
	return pnstrdup(VARDATA_ANY(key), VARSIZE_ANY_EXHDR(key));
}

/* finds an action and tells the rules what the store cannot know of it */
bool
idem_action_find(Store *store, const Contract *contract, const IdemKey *key, Action *action)
{
	bool		is_found = idem_store_find(store, key, action);

	action->history.is_local = contract->is_local;
	action->history.is_granted_here = action->is_own &&
		idem_transaction_holds(key, action->history.generation);
	return is_found;
}

/*
 * Evidence of what was just done to an external action.  A local one is its
 * own evidence, but for the message that led to it.
 */
void
idem_action_witness(Store *store, const Action *action, const char *call, Evidence *evidence)
{
	const History *history = &action->history;
	bool		is_granted = history->state == STATE_PROCESSING;

	if (history->is_local && evidence->transport == NULL)
		return;
	evidence->key = action->key;
	evidence->call = call;
	evidence->outcome = is_granted ? idem_outcome_names[history->grant] : NULL;
	evidence->state = history->state;
	evidence->generation = history->generation;
	evidence->attempt = history->attempt;
	evidence->recorded_at = action->updated_at;
	evidence->lease_until = history->lease_until;
	evidence->worker = action->owner;
	idem_evidence_write(&store->home, evidence);
}

void
idem_action_refuse_unknown(const IdemKey *key)
{
	ereport(ERROR,
			(errcode(ERRCODE_IDEM_UNKNOWN_ACTION),
			 errmsg("action \"%s\" is not on record", idem_key_cstring(key)),
			 errdetail("Nobody asked for it here, or whoever did was rolled back."),
			 errhint("Check the key; after a failover that lost commits the action itself may be lost.")));
}

/* nobody waits for himself */
void
idem_action_refuse_own(const IdemKey *key)
{
	ereport(ERROR,
			(errcode(ERRCODE_IDEM_ILLEGAL_TRANSITION),
			 errmsg("action \"%s\" is already claimed by this transaction", idem_key_cstring(key)),
			 errdetail("Nobody waits for himself, and a handler does not reach its own key."),
			 errhint("Use the generation of the first claim; idem_call completes its action itself. SELECT (idem_claim(...)).* calls the function once a column: write SELECT * FROM idem_claim(...).")));
}

/* what is put on record for others to claim by its key */
void
idem_action_refuse_no_params(const Contract *contract)
{
	if (!contract->keep_params)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("operation \"%s\" does not keep parameters", contract->name),
				 errdetail("Whoever claims a submitted action by its key needs them."),
				 errhint("Define the operation with keep_params => true.")));
}

/* fills in a record that nothing happened to yet, as far as is known */
void
idem_action_birth(Store *store, Question *question, Action *action)
{
	action->history.generation = idem_era_floor(&store->home);
	action->created_at = action->updated_at = GetCurrentTimestamp();
	idem_question_record(&store->home, question, &action->fingerprint);
	if (!question->contract->is_local)
		idem_loss_doubt_new(&store->home, question->contract, action);
}

/* generations only grow, and those of a new era are above all of the last */
void
idem_action_raise(Store *store, Action *action)
{
	int64		floor = idem_era_floor(&store->home);

	action->history.generation = Max(action->history.generation + 1, floor);
}

/*
 * After a grant to act: whose promises count.  Those of the contract at the
 * first such grant; but where nothing can have been executed yet and the
 * operation has moved to another channel since, the new one is the first to
 * see the action.
 */
void
idem_action_bind(Store *store, const Contract *contract, Action *action)
{
	const Contract *first;

	if (action->history.first_granted_at == TIME_NONE)
		return;
	if (action->first_revision != 0)
	{
		first = idem_contract_revision(&store->home, contract, action->first_revision);
		if (action->history.grant != OUTCOME_EXECUTE ||
			strcmp(first->channel, contract->channel) == 0)
			return;
	}
	action->first_revision = contract->revision;
}

/* what the channel promises for this action: the weaker of then and now */
Promise
idem_action_promise(Store *store, const Contract *contract, const Action *action)
{
	const Contract *first;

	if (action->first_revision == 0)
		return contract->promise;
	first = idem_contract_revision(&store->home, contract, action->first_revision);
	return idem_state_weaker(&first->promise, &contract->promise,
							 strcmp(first->channel, contract->channel) == 0);
}

/* the channel that was or will be called: attempts that may have executed stay with theirs */
static const char *
channel_of(Store *store, const Contract *contract, const Action *action)
{
	if (contract->is_local)
		return NULL;
	if (action->first_revision != 0 && idem_state_may_have_executed(&action->history))
		contract = idem_contract_revision(&store->home, contract, action->first_revision);
	return contract->channel;
}

void
idem_action_answer(Store *store, const Contract *contract, const Action *action,
				   const Judgement *judgement, Verdict *verdict)
{
	const History *history = &action->history;

	memset(verdict, 0, sizeof(Verdict));
	verdict->outcome = judgement->outcome;
	verdict->state = history->state;
	verdict->attempt = history->attempt;
	verdict->retry_at = judgement->retry_at;
	verdict->lease_until = judgement->lease_until;
	verdict->absence_conclusive_at = judgement->absence_conclusive_at;
	verdict->channel = channel_of(store, contract, action);
	verdict->channel_ref = action->channel_ref;
	switch (judgement->outcome)
	{
		case OUTCOME_EXECUTE:
		case OUTCOME_REPEAT:
		case OUTCOME_VERIFY:
			/* what a channel is sent first is what it must be sent again */
			verdict->generation = history->generation;
			verdict->params = contract->is_local ? NULL : action->fingerprint.params;
			break;
		case OUTCOME_SUCCEEDED:
			verdict->result = action->result;
			verdict->result_digest = action->result_digest;
			break;
		case OUTCOME_REJECTED:
			verdict->error = action->error;
			verdict->result_digest = action->result_digest;
			break;
		default:
			break;
	}
}

/* ---- asking ---- */

static Judgement
plain(Outcome outcome)
{
	Judgement	judgement = {outcome, TIME_NONE, TIME_NONE, TIME_NONE};

	return judgement;
}

static void
answer_plainly(Store *store, const Ask *ask, const Action *action, Outcome outcome,
			   Verdict *verdict)
{
	Judgement	judgement = plain(outcome);

	idem_action_answer(store, ask->question.contract, action, &judgement, verdict);
}

static bool
is_grant(Outcome outcome)
{
	return outcome == OUTCOME_EXECUTE || outcome == OUTCOME_REPEAT || outcome == OUTCOME_VERIFY;
}

/* the owner, unless one is named */
static text *
this_session(void)
{
	return cstring_to_text(psprintf("%s:%d", application_name, MyProcPid));
}

static text *
asker(const Ask *ask)
{
	return ask->owner != NULL ? ask->owner : this_session();
}

static void
record_grant(Store *store, const Ask *ask, Action *action, const Judgement *judgement, TimestampTz now)
{
	idem_state_grant(&action->history, CALL_CLAIM, judgement, now);
	action->owner = asker(ask);
	action->updated_at = now;
	idem_action_bind(store, ask->question.contract, action);
}

static void
after_write(Store *store, const Ask *ask, const Action *action, const Verdict *verdict)
{
	bool		is_local = ask->question.contract->is_local;
	Evidence	evidence = {.transport = ask->transport};

	idem_action_witness(store, action, idem_call_names[ask->call], &evidence);
	if (verdict->generation != 0)
		idem_transaction_granted(action->key, verdict->generation, verdict->lease_until,
								 is_local);
	if (!is_local)
		idem_transaction_wrote_external();
	if (verdict->outcome != OUTCOME_REVIEW)
		idem_transaction_started();
}

static StoreResult
answer_new(Store *store, Ask *ask, Action *action, Verdict *verdict)
{
	const Contract *contract = ask->question.contract;
	Judgement	judgement = plain(OUTCOME_ACCEPTED);
	StoreResult result;

	if (ask->question.params == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_UNKNOWN_ACTION),
				 errmsg("action \"%s\" is not on record", idem_key_cstring(ask->question.key)),
				 errdetail("By its key alone only an action on record can be claimed."),
				 errhint("Check the key, or ask with the parameters: idem_claim(key, params).")));
	if (idem_watermark_is_passed(&store->home, &ask->question))
	{
		answer_plainly(store, ask, action, OUTCOME_EXPIRED, verdict);
		return STORE_DONE;
	}
	idem_action_birth(store, &ask->question, action);
	if (ask->call == CALL_SUBMIT)
	{
		action->history.state = STATE_PENDING;
		action->history.last_call = CALL_SUBMIT;
		action->history.due_at = action->created_at;
	}
	else
	{
		judgement = idem_state_judge(&action->history, &contract->promise,
									 contract->max_attempts, action->created_at, ask->lease);
		if (contract->is_local)
			judgement.lease_until = TIME_NONE;
		if (is_grant(judgement.outcome))
			record_grant(store, ask, action, &judgement, action->created_at);
		else					/* lost attempts may have executed it, and the
								 * contract allows nothing */
			idem_state_settle(&action->history, CALL_CLAIM, STATE_REVIEW);
	}

	result = idem_store_insert(store, action);
	if (result != STORE_DONE)
		return result;
	idem_watermark_check_inserted(&store->home, &ask->question);
	idem_action_answer(store, contract, action, &judgement, verdict);
	after_write(store, ask, action, verdict);
	return STORE_DONE;
}

/* what a claim would be answered now */
static Judgement
judge_claim(Store *store, const Ask *ask, const Action *action, TimestampTz now)
{
	const Contract *contract = ask->question.contract;
	Promise		promise = idem_action_promise(store, contract, action);

	return idem_state_judge(&action->history, &promise, contract->max_attempts, now, ask->lease);
}

/* a grant, or the move to review where the contract allows nothing */
static bool
is_move(const Action *action, const Judgement *judgement)
{
	return is_grant(judgement->outcome) ||
		(judgement->outcome == OUTCOME_REVIEW && action->history.state != STATE_REVIEW);
}

/* a conflict is answered: who asked for what, while the record is kept from being purged */
static StoreResult
record_conflict(Store *store, const Ask *ask, const Action *action)
{
	const Question *question = &ask->question;
	Evidence	evidence = {
		.key = action->key,
		.call = "conflict",
		.state = action->history.state,
		.generation = action->history.generation,
		.attempt = action->history.attempt,
		.recorded_at = GetCurrentTimestamp(),
		.lease_until = TIME_NONE,
		.worker = ask->call == CALL_CLAIM ? asker(ask) : NULL,
		.digest = question->missing != NULL ? NULL :
		question->revision == 0 ? &action->fingerprint.digest : &question->digest,
		.transport = ask->transport
	};
	StoreResult result = idem_store_keep(store, action);

	if (result == STORE_DONE)
		idem_evidence_conflict(&store->home, &evidence);
	return result == STORE_HELD ? STORE_DONE : result;
}

static StoreResult
move_known(Store *store, Ask *ask, const Action *old, Verdict *verdict)
{
	Action		action = *old;
	TimestampTz now;
	Judgement	judgement;
	StoreResult result = idem_store_lock(store, old);

	if (result != STORE_DONE)
		return result;
	/* it may have taken a while */
	now = GetCurrentTimestamp();
	judgement = judge_claim(store, ask, old, now);
	if (is_grant(judgement.outcome))
	{
		idem_action_raise(store, &action);
		record_grant(store, ask, &action, &judgement, now);
	}
	else if (is_move(old, &judgement))
		idem_state_settle(&action.history, CALL_CLAIM, STATE_REVIEW);
	action.updated_at = now;

	if (is_move(old, &judgement))
		result = idem_store_update(store, old, &action);
	if (result != STORE_DONE)
		return result;
	idem_action_answer(store, ask->question.contract, &action, &judgement, verdict);
	if (is_move(old, &judgement))
		after_write(store, ask, &action, verdict);
	if (old->history.state == STATE_PROCESSING && is_grant(judgement.outcome))
		idem_observe(ask->question.contract, COUNTER_TAKEOVER);
	return STORE_DONE;
}

static StoreResult
answer_known(Store *store, Ask *ask, const Action *action, Verdict *verdict)
{
	const Contract *contract = ask->question.contract;
	State		state = action->history.state;
	Judgement	judgement;

	if (!idem_question_is_same(&store->home, &ask->question, &action->fingerprint))
	{
		answer_plainly(store, ask, action, OUTCOME_CONFLICT, verdict);
		verdict->differs = idem_question_differences(&store->home, &ask->question, &action->fingerprint);
		return record_conflict(store, ask, action);
	}
	if (ask->call == CALL_SUBMIT && !idem_state_is_terminal(state))
	{
		answer_plainly(store, ask, action, OUTCOME_ACCEPTED, verdict);
		return STORE_DONE;
	}
	if (state == STATE_PROCESSING && action->history.is_granted_here)
		idem_action_refuse_own(action->key);
	if (contract->is_local && !idem_state_is_terminal(state))
		elog(ERROR, "local action \"%s\" is on record without an end",
			 idem_key_cstring(action->key));

	judgement = judge_claim(store, ask, action, GetCurrentTimestamp());
	if (is_move(action, &judgement))
		return move_known(store, ask, action, verdict);
	idem_action_answer(store, contract, action, &judgement, verdict);
	return STORE_DONE;
}

/*
 * Without waiting, and without an answer where nothing moves: held by somebody
 * else or by this transaction, not due any more, finished.
 */
bool
idem_action_take(Store *store, const Contract *contract, const IdemKey *key,
				 text *owner, int64 lease, Verdict *verdict)
{
	Ask			ask = {.question = {.key = key,.contract = contract},.call = CALL_CLAIM,
	.owner = owner,.lease = lease};
	Action		action;
	Judgement	judgement;

	Assert(store->nowait);
	if (!idem_action_find(store, contract, key, &action) || action.history.is_granted_here)
		return false;
	judgement = judge_claim(store, &ask, &action, GetCurrentTimestamp());
	if (!is_move(&action, &judgement) ||
		move_known(store, &ask, &action, verdict) != STORE_DONE ||
		verdict->outcome == OUTCOME_BUSY)
		return false;
	idem_observe(contract, verdict->outcome);
	return true;
}

/* another transaction holds the key, and the caller does not want to wait for it */
static void
answer_held(Store *store, const Ask *ask, const Action *action, Verdict *verdict)
{
	Judgement	judgement = plain(OUTCOME_BUSY);

	judgement.retry_at = GetCurrentTimestamp() + ask->question.contract->backoff_base;
	idem_action_answer(store, ask->question.contract, action, &judgement, verdict);
}

static void
answer_ask(Store *store, Ask *ask, Verdict *verdict)
{
	int			rounds = 0;

	for (;;)
	{
		Action		action;
		Action		found;
		StoreResult result;

		idem_look_again(&rounds);
		if (idem_action_find(store, ask->question.contract, ask->question.key, &found))
			result = answer_known(store, ask, &found, verdict);
		else
		{
			action = found;
			result = answer_new(store, ask, &action, verdict);
		}
		if (result == STORE_HELD)
			answer_held(store, ask, &found, verdict);
		if (result != STORE_CHANGED)
			break;
	}
	idem_observe(ask->question.contract, verdict->outcome);
}

static void
open_ask(FunctionCallInfo fcinfo, Store *store, Ask *ask)
{
	Home		home;

	idem_home(fcinfo, &home);
	idem_access_check(&home, ask->question.key, ACCESS_APPLICATION);
	idem_transaction_check_start();
	idem_store_open(store, &home, true);
	ask->question.contract = idem_contract_current(&home, KIND_OPERATION, ask->question.key);
}

void
idem_action_refuse_local(const Contract *contract, const char *call)
{
	if (contract->is_local)
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_ILLEGAL_TRANSITION),
				 errmsg("operation \"%s\" is local and knows no %s", contract->name, call),
				 errdetail("A local action is never left for another transaction."),
				 errhint("Claim and complete a local action in one transaction, or define the operation with effect => 'external'.")));
}

PG_FUNCTION_INFO_V1(idem_submit);
Datum
idem_submit(PG_FUNCTION_ARGS)
{
	Ask			ask = {.call = CALL_SUBMIT};
	Store		store;
	Verdict		verdict;

	PreventCommandIfReadOnly("idem_submit()");
	ask.question.key = idem_argument_key(fcinfo, 0);
	ask.question.params = idem_argument_params(fcinfo, 1);
	ask.question.occurred_at = idem_argument_moment(fcinfo, 2, "occurred_at");
	ask.transport = idem_argument_document(fcinfo, 3);
	open_ask(fcinfo, &store, &ask);
	idem_action_refuse_local(ask.question.contract, "submit");
	idem_action_refuse_no_params(ask.question.contract);
	answer_ask(&store, &ask, &verdict);
	idem_store_close(&store);
	PG_RETURN_DATUM(idem_verdict_datum(&store.home, &verdict));
}

PG_FUNCTION_INFO_V1(idem_claim);
Datum
idem_claim(PG_FUNCTION_ARGS)
{
	Ask			ask = {.call = CALL_CLAIM};
	Store		store;
	Verdict		verdict;

	PreventCommandIfReadOnly("idem_claim()");
	ask.question.key = idem_argument_key(fcinfo, 0);
	ask.question.params = idem_argument_params(fcinfo, 1);
	ask.question.occurred_at = idem_argument_moment(fcinfo, 2, "occurred_at");
	ask.owner = idem_argument_label(fcinfo, 3, "owner");
	ask.transport = idem_argument_document(fcinfo, 6);
	open_ask(fcinfo, &store, &ask);
	ask.lease = idem_argument_lease(fcinfo, 4, ask.question.contract->lease);
	store.nowait = !PG_ARGISNULL(5) && PG_GETARG_BOOL(5);
	answer_ask(&store, &ask, &verdict);
	idem_store_close(&store);
	PG_RETURN_DATUM(idem_verdict_datum(&store.home, &verdict));
}

PG_FUNCTION_INFO_V1(idem_reclaim);
Datum
idem_reclaim(PG_FUNCTION_ARGS)
{
	Ask			ask = {.call = CALL_CLAIM};
	Store		store;
	Verdict		verdict;

	PreventCommandIfReadOnly("idem_reclaim()");
	ask.question.key = idem_argument_key(fcinfo, 0);
	ask.owner = idem_argument_label(fcinfo, 1, "owner");
	open_ask(fcinfo, &store, &ask);
	idem_action_refuse_local(ask.question.contract, "reclaim");
	ask.lease = idem_argument_lease(fcinfo, 2, ask.question.contract->lease);
	answer_ask(&store, &ask, &verdict);
	idem_store_close(&store);
	PG_RETURN_DATUM(idem_verdict_datum(&store.home, &verdict));
}
