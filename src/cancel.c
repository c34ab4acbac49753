/*
 * cancel.c
 *		Rejecting what nobody was granted yet, on record or not.
 *
 * A new key becomes a tombstone, which equals any parameters; of a pending
 * one the lease row is locked first, as for every move.  Whatever the store
 * reports as changed is looked at again.  A cancel starts no side effect, so
 * a consumer that rebuilds may make it.
 *
 * The store is opened before the contract is looked up: see define.c.
 */
#include "idem_action.h"

#include "miscadmin.h"
#include "tcop/utility.h"
#include "utils/timestamp.h"

static StoreResult
record_cancel(Store *store, const Action *action, StoreResult result)
{
	Evidence	evidence = {0};

	if (result == STORE_DONE)
		idem_action_witness(store, action, idem_call_names[CALL_CANCEL], &evidence);
	return result;
}

/*
 * A record of something that nobody asked for yet, so that nobody will be
 * granted it.  Where that is not certain, since commits were lost, there is
 * nothing to be written.
 */
static StoreResult
cancel_new(Store *store, Question *question, Action *action, Jsonb *detail, bool *is_certain)
{
	StoreResult result;

	idem_action_birth(store, question, action);
	*is_certain = !idem_state_may_have_executed(&action->history);
	if (!*is_certain)
		return STORE_DONE;
	idem_state_settle(&action->history, CALL_CANCEL, STATE_REJECTED);
	action->error = detail;
	result = idem_store_insert(store, action);
	if (result == STORE_DONE)
		idem_watermark_check_inserted(&store->home, question);
	return record_cancel(store, action, result);
}

static StoreResult
cancel_pending(Store *store, const Action *old, Jsonb *detail)
{
	Action		action = *old;
	StoreResult result = idem_store_lock(store, old);

	if (result != STORE_DONE)
		return result;
	idem_state_settle(&action.history, CALL_CANCEL, STATE_REJECTED);
	action.error = detail;
	action.updated_at = GetCurrentTimestamp();
	return record_cancel(store, &action, idem_store_update(store, old, &action));
}

static bool
cancel(Store *store, Question *question, Jsonb *detail)
{
	int			rounds = 0;

	for (;;)
	{
		Action		action;
		Reason		reason;
		StoreResult result;
		Ruling		ruling = RULING_GO;

		idem_look_again(&rounds);
		if (!idem_action_find(store, question->contract, question->key, &action))
		{
			bool		is_certain;

			/* it may have been executed, and its record deleted */
			if (idem_watermark_is_passed(&store->home, question))
				return false;
			result = cancel_new(store, question, &action, detail, &is_certain);
			if (!is_certain)
				return false;
		}
		else
		{
			ruling = idem_state_rule(CALL_CANCEL, &action.history, action.history.generation,
									 &reason);
			if (ruling != RULING_GO)
				return ruling == RULING_DONE;
			result = cancel_pending(store, &action, detail);
		}
		if (result == STORE_CHANGED)
			continue;
		if (!question->contract->is_local)
			idem_transaction_wrote_external();
		return true;
	}
}

PG_FUNCTION_INFO_V1(idem_cancel);
Datum
idem_cancel(PG_FUNCTION_ARGS)
{
	Question	question = {.key = NULL};
	Home		home;
	Store		store;
	bool		is_cancelled;

	PreventCommandIfReadOnly("idem_cancel()");
	question.key = idem_argument_key(fcinfo, 0);
	question.occurred_at = idem_argument_moment(fcinfo, 2, "occurred_at");
	idem_home(fcinfo, &home);
	idem_access_check(&home, question.key, ACCESS_APPLICATION | ACCESS_OPERATOR);
	idem_store_open(&store, &home, true);
	question.contract = idem_contract_current(&home, KIND_OPERATION, question.key);
	is_cancelled = cancel(&store, &question, idem_argument_document(fcinfo, 1));
	idem_store_close(&store);
	PG_RETURN_BOOL(is_cancelled);
}
