/*
 * operators.c
 *		What only a person can let in.
 *
 * A key that is too old to be proven new is answered expired, and nobody may
 * act on it.  An operator who has found out that it was not executed puts it
 * on record himself; from then on it is an action like any other.  (What he
 * decides of an action in review is owner.c's: that is a report like an
 * owner's.)
 *
 * The watermark is not looked at again after the insert, as it is for others:
 * that it was passed is what the operator knows.
 */
#include "idem_action.h"

#include "miscadmin.h"
#include "tcop/utility.h"
#include "utils/timestamp.h"

static void
refuse_admission(const Question *question, const char *detail, const char *hint)
{
	ereport(ERROR,
			(errcode(ERRCODE_IDEM_ILLEGAL_TRANSITION),
			 errmsg("cannot admit action \"%s\"", idem_key_cstring(question->key)),
			 errdetail("%s", detail),
			 errhint("%s", hint)));
}

/* one that does not say when it occurred may be, wherever identity was deleted */
static bool
is_expired(const Home *home, const Question *question)
{
	Watermark	watermark;
	Age			age;

	idem_watermark_open(home, &watermark);
	age = idem_watermark_age(&watermark, question);
	idem_watermark_close(&watermark);
	return age == AGE_EXPIRED || (age == AGE_UNDATED && watermark.is_found);
}

static void
check_admission(const Home *home, const Question *question)
{
	if (question->contract->is_local)
		refuse_admission(question, "The operation is local.",
						 "A local action is never left for another transaction: do it under a new key, which says that it is done again.");
	idem_action_refuse_no_params(question->contract);
	if (!is_expired(home, question))
		refuse_admission(question, "It is not expired: whoever asks is answered by its contract.",
						 "Submit or claim it.");
}

static void
witness_admission(Store *store, const Action *action, const text *note)
{
	Evidence	evidence = {.note = note};

	idem_action_witness(store, action, "admit", &evidence);
}

static void
admit(Store *store, Question *question, const text *note)
{
	Action		action;
	int			rounds = 0;

	do
	{
		idem_look_again(&rounds);
		if (idem_action_find(store, question->contract, question->key, &action))
			refuse_admission(question, "It is on record.",
							 "Look at it with idem_status(key); what is in review is decided with idem_resolve.");
		check_admission(&store->home, question);
		idem_action_birth(store, question, &action);
		action.history.state = STATE_PENDING;
		action.history.last_call = CALL_SUBMIT;
		action.history.due_at = action.created_at;
	} while (idem_store_insert(store, &action) != STORE_DONE);
	witness_admission(store, &action, note);
	idem_transaction_wrote_external();
	idem_transaction_started();
}

PG_FUNCTION_INFO_V1(idem_admit);
Datum
idem_admit(PG_FUNCTION_ARGS)
{
	Question	question = {0};
	Home		home;
	Store		store;
	text	   *note;

	PreventCommandIfReadOnly("idem_admit()");
	question.key = idem_argument_key(fcinfo, 0);
	idem_home(fcinfo, &home);
	idem_access_check(&home, question.key, ACCESS_OPERATOR);
	question.params = idem_argument_params(fcinfo, 1);
	note = idem_argument_note(fcinfo, 2);
	question.occurred_at = idem_argument_moment(fcinfo, 3, "occurred_at");
	idem_transaction_check_start();
	idem_store_open(&store, &home, true);
	question.contract = idem_contract_current(&home, KIND_OPERATION, question.key);
	admit(&store, &question, note);
	idem_store_close(&store);
	PG_RETURN_VOID();
}
