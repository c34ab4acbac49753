/*
 * once.c
 *		Effects that are all local, in one call.
 *
 * idem_once() puts the action on record as succeeded, and the caller's own
 * writes are the effect: one insert.  idem_call() claims, runs a function
 * and completes.  Both are errors where a verdict would say conflict: there
 * is no verdict to look at.
 *
 * A handler is the user's business: it is found by his search_path, he needs
 * EXECUTE on it, and it runs as him (statement.c switches users around its
 * own statements only).
 */
#include "idem_action.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "catalog/objectaccess.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "parser/parse_func.h"
#include "tcop/utility.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/regproc.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"
#include "utils/varlena.h"

static void
refuse_conflict(Store *store, const Question *question, const Action *action)
{
	ArrayType  *differs = idem_question_differences(&store->home, question, &action->fingerprint);
	StringInfoData where;
	Datum	   *pointers;
	int			npointers = 0;

	idem_observe(question->contract, OUTCOME_CONFLICT);
	initStringInfo(&where);
	if (differs != NULL)
		deconstruct_array(differs, TEXTOID, -1, false, TYPALIGN_INT, &pointers, NULL, &npointers);
	for (int i = 0; i < npointers; i++)
		appendStringInfo(&where, "%s\"%s\"", i > 0 ? ", " : "", TextDatumGetCString(pointers[i]));
	ereport(ERROR,
			(errcode(ERRCODE_IDEM_PARAMETER_CONFLICT),
			 errmsg("action \"%s\" is on record with other parameters",
					idem_key_cstring(question->key)),
			 npointers > 0 ? errdetail("They differ at %s.", where.data) :
			 action->fingerprint.params != NULL ? errdetail("They differ in occurred_at.") :
			 errdetail("The first parameters were not kept, so the difference cannot be named."),
			 errhint("The same key must always stand for the same request: use another key, or send the first parameters.")));
}

static void
refuse_expired(const Question *question)
{
	idem_observe(question->contract, OUTCOME_EXPIRED);
	ereport(ERROR,
			(errcode(ERRCODE_IDEM_REPLAY_EXPIRED),
			 errmsg("action \"%s\" is too old to be told from one whose record was deleted",
					idem_key_cstring(question->key)),
			 errdetail("It is not on record, and it occurred at or before the time up to which records of the operation were purged."),
			 errhint("Do not retry: find out whether it was executed, and let a person decide.")));
}

/*
 * Settles who is first.  True: this call is, and *action is on record in the
 * given state; false: *action is what was found, with equal parameters.
 */
static bool
settle(Store *store, Question *question, State state, Action *action)
{
	int			rounds = 0;

	for (;;)
	{
		idem_look_again(&rounds);
		if (idem_action_find(store, question->contract, question->key, action))
		{
			if (!idem_question_is_same(&store->home, question, &action->fingerprint))
				refuse_conflict(store, question, action);
			if (!idem_state_is_terminal(action->history.state))
				idem_action_refuse_own(question->key);
			idem_observe(question->contract, action->history.state == STATE_SUCCEEDED ?
						 OUTCOME_SUCCEEDED : OUTCOME_REJECTED);
			return false;
		}
		if (idem_watermark_is_passed(&store->home, question))
			refuse_expired(question);
		idem_action_birth(store, question, action);
		action->history.state = state;
		action->history.last_call = state == STATE_SUCCEEDED ? CALL_COMPLETE : CALL_CLAIM;
		action->history.attempt = 1;
		if (idem_store_insert(store, action) == STORE_DONE)
		{
			idem_watermark_check_inserted(&store->home, question);
			idem_transaction_started();
			idem_observe(question->contract, OUTCOME_EXECUTE);
			return true;
		}
	}
}

static void
open_local(FunctionCallInfo fcinfo, Store *store, Question *question, int moment)
{
	Home		home;

	memset(question, 0, sizeof(Question));
	question->key = idem_argument_key(fcinfo, 0);
	idem_home(fcinfo, &home);
	idem_access_check(&home, question->key, ACCESS_APPLICATION);
	question->params = idem_argument_params(fcinfo, 1);
	question->occurred_at = idem_argument_moment(fcinfo, moment, "occurred_at");
	idem_transaction_check_start();
	idem_store_open(store, &home, true);
	question->contract = idem_contract_current(&home, KIND_OPERATION, question->key);
	if (!question->contract->is_local)
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_ILLEGAL_TRANSITION),
				 errmsg("operation \"%s\" is external", question->contract->name),
				 errdetail("What commits with the caller's transaction cannot tell whether a channel was called."),
				 errhint("Claim it with idem_claim(key, params), commit, call the channel, and report with idem_complete(key, generation).")));
}

PG_FUNCTION_INFO_V1(idem_once);
Datum
idem_once(PG_FUNCTION_ARGS)
{
	Question	question;
	Store		store;
	Action		action;
	bool		is_first;

	PreventCommandIfReadOnly("idem_once()");
	open_local(fcinfo, &store, &question, 2);
	is_first = settle(&store, &question, STATE_SUCCEEDED, &action);
	idem_store_close(&store);
	PG_RETURN_BOOL(is_first);
}

/* ---- handlers ---- */

static void
check_handler(Oid function)
{
	HeapTuple	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));
	Form_pg_proc proc;
	bool		is_fit;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for function %u", function);
	proc = (Form_pg_proc) GETSTRUCT(tuple);
	is_fit = proc->prokind == PROKIND_FUNCTION && proc->prorettype == JSONBOID &&
		!proc->proretset;
	ReleaseSysCache(tuple);
	if (!is_fit)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("handler \"%s\" is not a function that returns jsonb",
						get_func_name(function)),
				 errhint("A handler is a function that takes one jsonb and returns jsonb, not a set and not a procedure.")));
	if (idem_may_execute(function) != ACLCHECK_OK)
		aclcheck_error(ACLCHECK_NO_PRIV, OBJECT_FUNCTION, get_func_name(function));
	InvokeFunctionExecuteHook(function);
}

static Oid
handler_argument(FunctionCallInfo fcinfo, int n)
{
	Oid			argtypes[1] = {JSONBOID};
	List	   *name;
	Oid			function;

	idem_argument_require(fcinfo, n, "handler");
	name = textToQualifiedNameList(PG_GETARG_TEXT_PP(n));
	function = LookupFuncName(name, 1, argtypes, true);
	if (!OidIsValid(function))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_FUNCTION),
				 errmsg("function %s does not exist", func_signature_string(name, 1, NIL, argtypes)),
				 errhint("A handler is given by its name without arguments, and found by the search_path unless that is qualified.")));
	check_handler(function);
	return function;
}

/* its own snapshot, since it must see what the claim and everything before it wrote */
static Jsonb *
run_handler(Oid function, Jsonb *params)
{
	LOCAL_FCINFO(call, 1);
	FmgrInfo	flinfo;
	Datum		result;

	fmgr_info(function, &flinfo);
	InitFunctionCallInfoData(*call, &flinfo, 1, InvalidOid, NULL, NULL);
	call->args[0].value = JsonbPGetDatum(params);
	call->args[0].isnull = false;

	PushActiveSnapshot(GetTransactionSnapshot());
	result = FunctionCallInvoke(call);
	PopActiveSnapshot();
	CommandCounterIncrement();
	return call->isnull ? NULL : DatumGetJsonbP(result);
}

static Jsonb *
stored_result(const Action *action)
{
	if (action->history.state == STATE_REJECTED)
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_ILLEGAL_TRANSITION),
				 errmsg("action \"%s\" was rejected or cancelled", idem_key_cstring(action->key)),
				 errdetail("It has no result, and it will never be executed."),
				 errhint("See idem_status(key) for the error on record.")));
	if (action->result_digest != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_REPLAY_EXPIRED),
				 errmsg("the result of action \"%s\" was dropped", idem_key_cstring(action->key)),
				 errdetail("It was executed, and its result is older than the contract's result_retention."),
				 errhint("Do not retry: idem_status(key) has the digest of the result.")));
	return action->result;
}

static Jsonb *
run_once(Store *store, Question *question, Oid handler)
{
	Action		action;
	Jsonb	   *result;

	if (!settle(store, question, STATE_PROCESSING, &action))
		return stored_result(&action);

	idem_transaction_granted(question->key, action.history.generation, TIME_NONE, true);
	idem_transaction_calling(question->key);
	result = run_handler(handler, question->params);
	if (result != NULL)
		idem_digest_check(result);
	idem_owner_complete(store, question->contract, question->key, action.history.generation, result);
	return result;
}

PG_FUNCTION_INFO_V1(idem_call);
Datum
idem_call(PG_FUNCTION_ARGS)
{
	Question	question;
	Store		store;
	Oid			handler;
	Jsonb	   *result;

	PreventCommandIfReadOnly("idem_call()");
	open_local(fcinfo, &store, &question, 3);
	handler = handler_argument(fcinfo, 2);
	result = run_once(&store, &question, handler);
	idem_store_close(&store);
	if (result == NULL)
		PG_RETURN_NULL();
	PG_RETURN_JSONB_P(result);
}
