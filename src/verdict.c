/*
 * verdict.c
 *		The answer to whoever asks to act, as a row of type idem_verdict.
 *
 * Verdicts are data: the caller's transaction stays usable whatever they say.
 */
#include "idem_action.h"

#include "access/htup_details.h"
#include "funcapi.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"
#include "utils/typcache.h"

/* the attributes of idem_verdict, in order */
enum
{
	VERDICT_OUTCOME, VERDICT_GENERATION, VERDICT_RESULT, VERDICT_ERROR, VERDICT_RETRY_AT,
	VERDICT_ATTEMPT, VERDICT_STATE, VERDICT_LEASE_UNTIL, VERDICT_ABSENCE_CONCLUSIVE_AT,
	VERDICT_CHANNEL, VERDICT_CHANNEL_REF, VERDICT_PARAMS, VERDICT_DIFFERS, VERDICT_COLUMNS
};

static void
set_pointer(Datum *values, bool *nulls, int n, const void *pointer)
{
	values[n] = PointerGetDatum(pointer);
	nulls[n] = pointer == NULL;
}

static void
set_moment(Datum *values, bool *nulls, int n, TimestampTz moment)
{
	values[n] = TimestampTzGetDatum(moment);
	nulls[n] = moment == TIME_NONE;
}

Datum
idem_verdict_datum(const Home *home, const Verdict *verdict)
{
	TupleDesc	desc = lookup_rowtype_tupdesc(home->rettype, -1);
	Datum		values[VERDICT_COLUMNS];
	bool		nulls[VERDICT_COLUMNS] = {false};
	HeapTuple	tuple;

	if (desc->natts != VERDICT_COLUMNS)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("type idem_verdict has not the attributes of this release"),
				 errhint("Run ALTER EXTENSION idem_action UPDATE.")));
	values[VERDICT_OUTCOME] = CStringGetTextDatum(idem_outcome_names[verdict->outcome]);
	values[VERDICT_GENERATION] = Int64GetDatum(verdict->generation);
	set_pointer(values, nulls, VERDICT_RESULT, verdict->result);
	set_pointer(values, nulls, VERDICT_ERROR, verdict->error);
	set_moment(values, nulls, VERDICT_RETRY_AT, verdict->retry_at);
	values[VERDICT_ATTEMPT] = Int32GetDatum(verdict->attempt);
	nulls[VERDICT_ATTEMPT] = verdict->state == STATE_NONE;
	set_pointer(values, nulls, VERDICT_STATE, verdict->state == STATE_NONE ? NULL :
				cstring_to_text(idem_state_names[verdict->state]));
	set_moment(values, nulls, VERDICT_LEASE_UNTIL, verdict->lease_until);
	set_moment(values, nulls, VERDICT_ABSENCE_CONCLUSIVE_AT, verdict->absence_conclusive_at);
	set_pointer(values, nulls, VERDICT_CHANNEL, verdict->channel == NULL ? NULL :
				cstring_to_text(verdict->channel));
	set_pointer(values, nulls, VERDICT_CHANNEL_REF, verdict->channel_ref);
	set_pointer(values, nulls, VERDICT_PARAMS, verdict->params);
	set_pointer(values, nulls, VERDICT_DIFFERS, verdict->differs);

	tuple = heap_form_tuple(desc, values, nulls);
	ReleaseTupleDesc(desc);
	return HeapTupleGetDatum(tuple);
}
