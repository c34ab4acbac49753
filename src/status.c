/*
 * status.c
 *		Looking at an action: what is on record of it.
 *
 * Reads only, so it works in read-only transactions and on a standby.
 */
#include "idem_action.h"
#include "row.h"

#include "funcapi.h"
#include "utils/builtins.h"
#include "utils/tuplestore.h"

PG_FUNCTION_INFO_V1(idem_status);
Datum
idem_status(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	const IdemKey *key = idem_argument_key(fcinfo, 0);
	Datum		values[14];
	bool		nulls[14] = {false};
	Home		home;
	Store		store;
	Action		action;

	idem_home(fcinfo, &home);
	idem_access_check(&home, key, ACCESS_ANY);
	InitMaterializedSRF(fcinfo, 0);
	idem_store_open(&store, &home, false);
	if (idem_store_find(&store, key, &action))
	{
		const History *history = &action.history;

		values[0] = PointerGetDatum(key);
		values[1] = CStringGetTextDatum(idem_state_names[history->state]);
		values[2] = Int64GetDatum(history->generation);
		values[3] = Int32GetDatum(history->attempt);
		row_set_pointer(values, nulls, 4, action.owner);
		row_set_moment(values, nulls, 5, history->lease_until);
		row_set_moment(values, nulls, 6, history->due_at);
		row_set_pointer(values, nulls, 7, action.result);
		row_set_pointer(values, nulls, 8, action.error);
		row_set_pointer(values, nulls, 9, action.channel_ref);
		row_set_pointer(values, nulls, 10, action.fingerprint.has_digest ? &action.fingerprint.digest : NULL);
		row_set_moment(values, nulls, 11, action.created_at);
		row_set_moment(values, nulls, 12, action.updated_at);
		row_set_pointer(values, nulls, 13, action.result_digest);
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
	idem_store_close(&store);
	return (Datum) 0;
}
