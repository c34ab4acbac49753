/*
 * dispatch.c
 *		Handing out what is due, to any number of dispatchers.
 *
 * due.c finds it, oldest first; each row is locked without waiting, and then
 * goes the way of a claim by key: found, judged, granted, answered.  Two
 * dispatchers never get one action, and neither waits for the other.
 *
 * Only grants are answered.  What the contract allows nothing for is moved to
 * review on the way and does not count, or hopeless actions that are older
 * would be all that a dispatcher ever sees.  How many a call moves is bounded,
 * and it ends with the last of them: the next call goes on from there.
 */
#include "idem_action.h"
#include "row.h"

#include "catalog/pg_type.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "tcop/utility.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

#define ROWS_MAX		10000
#define REVIEWS_SPARE	100		/* moved to review beyond max_rows */

typedef struct Dispatch
{
	Store		store;			/* does not wait */
	const Contract *contract;	/* in force */
	int32		max_rows;		/* grants at most */
	text	   *owner;			/* who asks, or NULL */
	int64		lease;			/* of each grant */
	Datum	   *tenants;		/* texts: whose actions only; NULL:
								 * everybody's */
	int			ntenants;		/* of them */
} Dispatch;

static bool
is_of_tenants(const Dispatch *dispatch, const IdemKey *key)
{
	KeyParts	parts;

	if (dispatch->tenants == NULL)
		return true;
	idem_key_split(key, &parts);
	for (int i = 0; i < dispatch->ntenants; i++)
		if (idem_key_part_is(&parts.tenant, DatumGetTextPP(dispatch->tenants[i])))
			return true;
	return false;
}

static void
put_row(ReturnSetInfo *rsinfo, const IdemKey *key, const Verdict *verdict)
{
	Datum		values[1 + VERDICT_COLUMNS];
	bool		nulls[1 + VERDICT_COLUMNS];

	values[0] = PointerGetDatum(key);
	nulls[0] = false;
	idem_verdict_values(verdict, values + 1, nulls + 1);
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
}

static void
hand_out(Dispatch *dispatch, ReturnSetInfo *rsinfo)
{
	MemoryContext row = AllocSetContextCreate(CurrentMemoryContext, "idem_action row",
											  ALLOCSET_DEFAULT_SIZES);
	Due		   *due = idem_due_begin(&dispatch->store, cstring_to_text(dispatch->contract->name),
									 GetCurrentTimestamp());
	MemoryContext old = MemoryContextSwitchTo(row);
	int			granted = 0;
	int			reviews = 0;

	while (granted < dispatch->max_rows && reviews < dispatch->max_rows + REVIEWS_SPARE)
	{
		const IdemKey *key;
		Verdict		verdict;

		MemoryContextReset(row);
		key = idem_due_next(due);
		if (key == NULL)
			break;
		if (!is_of_tenants(dispatch, key) || idem_due_lock(due) != STORE_DONE ||
			!idem_action_take(&dispatch->store, dispatch->contract, key, dispatch->owner,
							  dispatch->lease, &verdict))
			continue;
		if (verdict.outcome == OUTCOME_REVIEW)
			reviews++;
		else
		{
			put_row(rsinfo, key, &verdict);
			granted++;
		}
	}
	MemoryContextSwitchTo(old);
	idem_due_end(due);
	MemoryContextDelete(row);
}

/* the tenant that is named, or all of which the caller may speak: before anything is looked at */
static void
narrow_to_tenants(FunctionCallInfo fcinfo, int n, const Home *home, Dispatch *dispatch)
{
	ArrayType  *tenants;
	text	   *tenant;

	if (PG_ARGISNULL(n))
	{
		tenants = idem_access_tenants(home, ACCESS_APPLICATION);
		if (tenants != NULL)
			deconstruct_array(tenants, TEXTOID, -1, false, TYPALIGN_INT, &dispatch->tenants, NULL,
							  &dispatch->ntenants);
		return;
	}
	tenant = idem_argument_name(fcinfo, n, "tenant");
	idem_access_check_tenant(home, VARDATA_ANY(tenant), VARSIZE_ANY_EXHDR(tenant),
							 ACCESS_APPLICATION);
	dispatch->tenants = palloc(sizeof(Datum));
	dispatch->tenants[0] = PointerGetDatum(tenant);
	dispatch->ntenants = 1;
}

/* the store is opened before the contract is looked up: see define.c */
static void
open_dispatch(FunctionCallInfo fcinfo, Dispatch *dispatch)
{
	text	   *operation;
	Home		home;

	idem_home(fcinfo, &home);
	narrow_to_tenants(fcinfo, 4, &home, dispatch);
	operation = idem_argument_name(fcinfo, 0, "operation");
	dispatch->max_rows = idem_argument_max_rows(fcinfo, 1, ROWS_MAX);
	dispatch->owner = idem_argument_label(fcinfo, 2, "owner");
	idem_transaction_check_start();
	idem_store_open(&dispatch->store, &home, true);
	dispatch->store.nowait = true;
	dispatch->contract = idem_contract_named(&home, KIND_OPERATION, VARDATA_ANY(operation),
											 VARSIZE_ANY_EXHDR(operation));
	idem_action_refuse_local(dispatch->contract, "claim_next");
	dispatch->lease = idem_argument_lease(fcinfo, 3, dispatch->contract->lease);
}

PG_FUNCTION_INFO_V1(idem_claim_next);
Datum
idem_claim_next(PG_FUNCTION_ARGS)
{
	Dispatch	dispatch = {.tenants = NULL};

	PreventCommandIfReadOnly("idem_claim_next()");
	open_dispatch(fcinfo, &dispatch);
	InitMaterializedSRF(fcinfo, 0);
	hand_out(&dispatch, (ReturnSetInfo *) fcinfo->resultinfo);
	idem_store_close(&dispatch.store);
	return (Datum) 0;
}
