/*
 * witness.c
 *		What others than the newest owner know of an action, and its history.
 *
 * Late evidence is welcome, late state is not: an owner who was replaced, or
 * a webhook that never owned anything, adds what it knows in whatever state
 * the action is, and moves nothing.  But a channel reference proves that the
 * channel knows the action, so on an action that is not terminal the first
 * one goes on record, and no verdict grants execute from then on (state.c).
 * A terminal record is left alone; what contradicts it is for
 * idem_violations to show.
 */
#include "idem_action.h"

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "tcop/utility.h"
#include "utils/builtins.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

/* ---- late evidence ---- */

static void
refuse_local(const Contract *contract)
{
	idem_observe(contract, COUNTER_ILLEGAL);
	ereport(ERROR,
			(errcode(ERRCODE_IDEM_ILLEGAL_TRANSITION),
			 errmsg("operation \"%s\" is local and takes no evidence", contract->name),
			 errdetail("No channel knows more of a local action than its own record."),
			 errhint("Look at it with idem_status(key).")));
}

static void
refuse_never_granted(const Contract *contract, const Action *action, const Evidence *evidence)
{
	idem_observe(contract, COUNTER_STALE);
	ereport(ERROR,
			(errcode(ERRCODE_IDEM_STALE_GENERATION),
			 errmsg("generation " INT64_FORMAT " of action \"%s\" was never granted",
					evidence->generation, idem_key_cstring(evidence->key)),
			 errdetail("The newest generation is " INT64_FORMAT ".", action->history.generation),
			 errhint("Whoever was not granted the action reports with a null generation.")));
}

static void
check_witness(const Contract *contract, const Action *action, const Evidence *evidence,
			  bool is_owner)
{
	if (contract->is_local)
		refuse_local(contract);
	if (is_owner && (evidence->generation < 1 || evidence->generation > action->history.generation))
		refuse_never_granted(contract, action, evidence);
}

/*
 * The first reference of an action that is not terminal goes on record, under
 * the lock that owners take.  Otherwise the record needs only to stay.
 */
static StoreResult
keep_reference(Store *store, const Action *old, const Evidence *evidence)
{
	Action		action = *old;
	StoreResult result;

	if (evidence->channel_ref == NULL || old->channel_ref != NULL ||
		idem_state_is_terminal(old->history.state))
		return idem_store_keep(store, old);
	result = idem_store_lock(store, old);
	if (result != STORE_DONE)
		return result;
	action.channel_ref = (text *) evidence->channel_ref;
	action.updated_at = evidence->recorded_at;
	return idem_store_update(store, old, &action);
}

static void
add_evidence(Store *store, const Contract *contract, Evidence *evidence, bool is_owner)
{
	Action		action;
	StoreResult result;
	int			rounds = 0;

	do
	{
		idem_look_again(&rounds);
		if (!idem_action_find(store, contract, evidence->key, &action))
			idem_action_refuse_unknown(evidence->key);
		check_witness(contract, &action, evidence, is_owner);
		evidence->recorded_at = GetCurrentTimestamp();
		result = keep_reference(store, &action, evidence);
	} while (result == STORE_CHANGED);
	evidence->state = action.history.state;
	evidence->attempt = action.history.attempt;
	idem_evidence_write(&store->home, evidence);
	idem_transaction_wrote_external();
}

PG_FUNCTION_INFO_V1(idem_add_evidence);
Datum
idem_add_evidence(PG_FUNCTION_ARGS)
{
	Evidence	evidence = {.call = "evidence",.lease_until = TIME_NONE};
	Home		home;
	Store		store;

	PreventCommandIfReadOnly("idem_add_evidence()");
	evidence.key = idem_argument_key(fcinfo, 0);
	idem_home(fcinfo, &home);
	idem_access_check(&home, evidence.key, ACCESS_APPLICATION | ACCESS_OPERATOR);
	evidence.generation = idem_argument_generation(fcinfo, 1);
	evidence.detail = idem_argument_document(fcinfo, 2);
	evidence.channel_ref = idem_argument_label(fcinfo, 3, "channel_ref");
	if (evidence.detail == NULL && evidence.channel_ref == NULL)
		idem_argument_require(fcinfo, 2, "detail");
	idem_store_open(&store, &home, true);
	add_evidence(&store, idem_contract_current(&home, KIND_OPERATION, evidence.key),
				 &evidence, !PG_ARGISNULL(1));
	idem_store_close(&store);
	PG_RETURN_VOID();
}

/* ---- history ---- */

/* how a local action ended is told by its own record only */
static Statement select_history = {
	"SELECT recorded_at, CASE call"
	" WHEN 'submit' THEN 'put on record'"
	" WHEN 'admit' THEN 'admitted by an operator'"
	" WHEN 'claim' THEN CASE WHEN outcome IS NULL THEN 'nothing can be granted: left to a person' ELSE '' END"
	" WHEN 'absent' THEN 'the channel does not know it' || CASE state WHEN 'processing' THEN ': '"
	"  WHEN 'unknown' THEN ', which is not conclusive yet' ELSE ', which settles nothing: left to a person' END"
	" WHEN 'complete' THEN 'completed'"
	" WHEN 'reject' THEN 'rejected'"
	" WHEN 'mark_unknown' THEN 'may have been executed, nobody knows'"
	" WHEN 'release' THEN 'given back: this attempt did nothing'"
	" WHEN 'escalate' THEN 'left to a person by its owner'"
	" WHEN 'cancel' THEN 'cancelled before anybody executed it'"
	" WHEN 'resolve' THEN 'an operator decided: ' || state"
	" WHEN 'declare_loss' THEN 'may have been executed: a loss was declared'"
	" WHEN 'conflict' THEN 'refused: other parameters under the same key'"
	" WHEN 'evidence' THEN CASE generation WHEN 0 THEN 'reported by somebody who never owned it'"
	"  ELSE 'reported by the owner of generation ' || generation END"
	" ELSE call END ||"
	" CASE WHEN outcome IS NULL THEN '' ELSE 'granted to ' || outcome ||"
	"  CASE WHEN lease_until IS NULL THEN '' ELSE ', until ' || lease_until END END,"
	" state, generation, worker, channel_ref, detail, note, transport, replay_batch"
	" FROM %1$s.idem_evidence WHERE key OPERATOR(%1$s.=) $1::%1$s.idem_key"
	" UNION ALL SELECT updated_at, CASE last_call WHEN 'cancel' THEN 'cancelled before anybody claimed it'"
	"  ELSE 'claimed and ' || state || ' in one transaction' END,"
	" state, generation, NULL, channel_ref, NULL, NULL, NULL, NULL"
	" FROM %1$s.idem_action WHERE key OPERATOR(%1$s.=) $1::%1$s.idem_key"
	" AND state IN ('succeeded', 'rejected')"
	" AND NOT EXISTS (SELECT FROM %1$s.idem_evidence WHERE key OPERATOR(%1$s.=) $1::%1$s.idem_key"
	"  AND call IN ('complete', 'reject', 'cancel', 'resolve'))"
	" ORDER BY 1",
	1, {TEXTOID}, SPI_OK_SELECT
};

static void
put_history(SPITupleTable *table, uint64 rows, void *target)
{
	ReturnSetInfo *rsinfo = target;

	for (uint64 i = 0; i < rows; i++)
		tuplestore_puttuple(rsinfo->setResult, table->vals[i]);
}

PG_FUNCTION_INFO_V1(idem_history);
Datum
idem_history(PG_FUNCTION_ARGS)
{
	const IdemKey *key = idem_argument_key(fcinfo, 0);
	Datum		value = PointerGetDatum(key);
	Home		home;

	idem_home(fcinfo, &home);
	idem_access_check(&home, key, ACCESS_ANY);
	InitMaterializedSRF(fcinfo, 0);
	PushActiveSnapshot(GetTransactionSnapshot());
	idem_statement_run(&select_history, &home, &value, NULL, GetActiveSnapshot(),
					   put_history, fcinfo->resultinfo);
	PopActiveSnapshot();
	return (Datum) 0;
}
