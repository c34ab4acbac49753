/*
 * verdict.c
 *		The answer to whoever asks to act, as a row of type idem_verdict.
 *
 * Verdicts are data: the caller's transaction stays usable whatever they say.
 */
#include "idem_action.h"
#include "row.h"

#include "utils/builtins.h"

/* the attributes of idem_verdict, in order */
enum
{
	VERDICT_OUTCOME, VERDICT_GENERATION, VERDICT_RESULT, VERDICT_ERROR, VERDICT_RETRY_AT,
	VERDICT_ATTEMPT, VERDICT_STATE, VERDICT_LEASE_UNTIL, VERDICT_ABSENCE_CONCLUSIVE_AT,
	VERDICT_CHANNEL, VERDICT_CHANNEL_REF, VERDICT_PARAMS, VERDICT_DIFFERS, VERDICT_RESULT_DIGEST
};

StaticAssertDecl(VERDICT_RESULT_DIGEST + 1 == VERDICT_COLUMNS, "as many attributes as are returned");

/* fills in VERDICT_COLUMNS of each */
void
idem_verdict_values(const Verdict *verdict, Datum *values, bool *nulls)
{
	memset(nulls, 0, VERDICT_COLUMNS * sizeof(bool));
	values[VERDICT_OUTCOME] = CStringGetTextDatum(idem_outcome_names[verdict->outcome]);
	values[VERDICT_GENERATION] = Int64GetDatum(verdict->generation);
	row_set_pointer(values, nulls, VERDICT_RESULT, verdict->result);
	row_set_pointer(values, nulls, VERDICT_ERROR, verdict->error);
	row_set_moment(values, nulls, VERDICT_RETRY_AT, verdict->retry_at);
	values[VERDICT_ATTEMPT] = Int32GetDatum(verdict->attempt);
	nulls[VERDICT_ATTEMPT] = verdict->state == STATE_NONE;
	row_set_pointer(values, nulls, VERDICT_STATE, verdict->state == STATE_NONE ? NULL :
					cstring_to_text(idem_state_names[verdict->state]));
	row_set_moment(values, nulls, VERDICT_LEASE_UNTIL, verdict->lease_until);
	row_set_moment(values, nulls, VERDICT_ABSENCE_CONCLUSIVE_AT, verdict->absence_conclusive_at);
	row_set_pointer(values, nulls, VERDICT_CHANNEL, verdict->channel == NULL ? NULL :
					cstring_to_text(verdict->channel));
	row_set_pointer(values, nulls, VERDICT_CHANNEL_REF, verdict->channel_ref);
	row_set_pointer(values, nulls, VERDICT_PARAMS, verdict->params);
	row_set_pointer(values, nulls, VERDICT_DIFFERS, verdict->differs);
	row_set_pointer(values, nulls, VERDICT_RESULT_DIGEST, verdict->result_digest);
}

Datum
idem_verdict_datum(const Home *home, const Verdict *verdict)
{
	Datum		values[VERDICT_COLUMNS];
	bool		nulls[VERDICT_COLUMNS];

	idem_verdict_values(verdict, values, nulls);
	return idem_row_datum(home, values, nulls, VERDICT_COLUMNS);
}
