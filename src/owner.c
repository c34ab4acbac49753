/*
 * owner.c
 *		What the owner of a generation reports, and what an operator decides.
 *
 * All calls are one protocol: find the action, let state.c rule whether the
 * holder of this generation may make this call, lock its lease row, write.
 * A violation is an error, never a verdict: what was written beside it must
 * roll back with it.  A repetition, by the same generation, of what is on
 * record is a success without a change, since the answer to the first COMMIT
 * may have been lost.
 */
#include "idem_action.h"

#include "access/xact.h"
#include "common/pg_prng.h"
#include "miscadmin.h"
#include "tcop/utility.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

typedef struct Report
{
	Call		call;			/* what is reported */
	const IdemKey *key;
	int64		generation;		/* who reports; 0: nobody */
	const Contract *contract;	/* in force */
	Jsonb	   *document;		/* result, error or detail; or NULL */
	text	   *channel_ref;	/* or NULL */
	int64		wait;			/* back-off before it is due, -1: the
								 * contract's */
	int64		lease;			/* renew: for how long */
	State		target;			/* resolve: the operator's decision */
	text	   *note;			/* resolve: why */
	Judgement	judgement;		/* absent: what it is answered */
	TimestampTz lease_until;	/* renew: the new end */
} Report;

/* ---- refusals ---- */

static void
refuse_no_generation(const Report *report)
{
	ereport(ERROR,
			(errcode(ERRCODE_IDEM_STALE_GENERATION),
			 errmsg("no generation of action \"%s\" is given", idem_key_cstring(report->key)),
			 errdetail("A verdict that grants nothing has generation 0."),
			 errhint("%s", report->call == CALL_RESOLVE || report->call == CALL_ESCALATE ?
					 "Take the generation from idem_status(key)." :
					 "Look at the outcome of the verdict: only execute, repeat and verify are grants.")));
}

static void
refuse_stale(const Report *report, const Action *action)
{
	const char *hint = "Somebody else owns the action now, or has finished it: roll back what was written beside this call, and claim again to see.";

	if (report->call == CALL_RESOLVE)
		hint = "The action has moved since: look at it again with idem_status(key), and decide anew.";
	else if (report->generation > action->history.generation)
		hint = "That generation was never granted here, or a failover lost its grant: roll back what was written beside this call, and claim again to see.";
	idem_observe(report->contract, COUNTER_STALE);
	ereport(ERROR,
			(errcode(ERRCODE_IDEM_STALE_GENERATION),
			 errmsg("generation " INT64_FORMAT " of action \"%s\" is not the newest",
					report->generation, idem_key_cstring(report->key)),
			 errdetail("The newest generation is " INT64_FORMAT ", and the action is %s.",
					   action->history.generation, idem_state_names[action->history.state]),
			 errhint("%s", hint)));
}

/* what a call does, as a message that refuses it says */
static const char *const refusals[NCALLS] = {
	[CALL_RENEW] = "cannot renew action \"%s\"",
	[CALL_COMPLETE] = "cannot complete action \"%s\"",
	[CALL_REJECT] = "cannot reject action \"%s\"",
	[CALL_MARK_UNKNOWN] = "cannot mark action \"%s\" as unknown",
	[CALL_RELEASE] = "cannot release action \"%s\"",
	[CALL_ABSENT] = "cannot report action \"%s\" as absent",
	[CALL_ESCALATE] = "cannot escalate action \"%s\"",
	[CALL_RESOLVE] = "cannot resolve action \"%s\""
};

static void
refuse_illegal(const Report *report, const Action *action, Reason reason)
{
	const char *state = idem_state_names[action->history.state];
	const char *detail = psprintf("The action is %s.", state);
	const char *hint = "Look at it with idem_status(key); the legal moves are in doc/state.md.";

	switch (reason)
	{
		case REASON_STATE:
			break;
		case REASON_LOCAL:
			detail = "The operation is local.";
			hint = "A local action knows claim, complete, reject, cancel, once and call; the rest is for operations defined with effect => 'external'.";
			break;
		case REASON_UNCOMMITTED:
			detail = "This very transaction was granted it.";
			hint = "Commit the transaction that claimed it, call the channel, and report in another one: a grant may be acted on only after its commit.";
			break;
		case REASON_REFERENCE:
			detail = "A channel reference is on record, so the channel knows the action.";
			hint = "Complete it, or let an operator resolve it.";
			break;
		case REASON_GRANT:
			detail = psprintf("The newest grant is %s.", idem_outcome_names[action->history.grant]);
			hint = "Only the holder of a verify grant has asked the channel.";
			break;
		case REASON_DOUBT:
			detail = "Commits were lost since it was granted, so somebody else may have been granted it as well.";
			hint = "Make no further call; report what is known with idem_complete or idem_mark_unknown.";
			break;
		case REASON_NO_GRANT:
			detail = psprintf("The action is %s, and nobody was ever granted it.", state);
			hint = "An operator decides it with idem_resolve(key, generation, state, note).";
			break;
	}
	idem_observe(report->contract, COUNTER_ILLEGAL);
	ereport(ERROR,
			(errcode(ERRCODE_IDEM_ILLEGAL_TRANSITION),
			 errmsg(refusals[report->call], idem_key_cstring(report->key)),
			 errdetail("%s", detail),
			 errhint("%s", hint)));
}

/* of a document that was dropped the digest is on record */
static bool
is_same_document(Jsonb *a, Jsonb *b, const Digest *dropped)
{
	if (dropped != NULL)
		return a != NULL && idem_digest_is_of(dropped, a);
	if (a == NULL || b == NULL)
		return a == b;
	return compareJsonbContainers(&a->root, &b->root) == 0;
}

static bool
is_same_text(const text *a, const text *b)
{
	if (a == NULL || b == NULL)
		return a == b;
	return VARSIZE_ANY_EXHDR(a) == VARSIZE_ANY_EXHDR(b) &&
		memcmp(VARDATA_ANY(a), VARDATA_ANY(b), VARSIZE_ANY_EXHDR(a)) == 0;
}

/* a repetition must say what is on record; no reference says nothing of it */
static void
check_repetition(const Report *report, const Action *action)
{
	const char *what = NULL;

	if (report->call == CALL_COMPLETE && !is_same_document(report->document, action->result, action->result_digest))
		what = "result";
	else if (report->call == CALL_COMPLETE && report->channel_ref != NULL &&
			 !is_same_text(report->channel_ref, action->channel_ref))
		what = "channel reference";
	else if (report->call == CALL_REJECT && !is_same_document(report->document, action->error, action->result_digest))
		what = "error";
	if (what == NULL)
		return;
	idem_observe(report->contract, COUNTER_RESULT_CONFLICT);
	ereport(ERROR,
			(errcode(ERRCODE_IDEM_RESULT_CONFLICT),
			 errmsg("action \"%s\" is %s with another %s", idem_key_cstring(report->key),
					idem_state_names[action->history.state], what),
			 errdetail("The same generation reported it before."),
			 errhint("What is on record stands: see idem_status(key).")));
}

/*
 * A decision against the channel's having executed the action names the
 * reference that is on record, if there is one.  It may have arrived after
 * the operator looked, and the generation does not tell: late evidence must
 * not take an owner's away from him.
 */
static void
check_decision(const Report *report, const Action *action)
{
	if (report->call != CALL_RESOLVE || report->target == STATE_SUCCEEDED ||
		is_same_text(report->channel_ref, action->channel_ref))
		return;
	idem_observe(report->contract, COUNTER_ILLEGAL);
	ereport(ERROR,
			(errcode(ERRCODE_IDEM_ILLEGAL_TRANSITION),
			 errmsg("cannot resolve action \"%s\" as %s", idem_key_cstring(report->key),
					idem_state_names[report->target]),
			 action->channel_ref == NULL ?
			 errdetail("No channel reference is on record, and one is given.") :
			 errdetail("A channel reference is on record that the decision does not name, so the channel knows the action."),
			 errhint("Look at it again with idem_history(key). Only who has seen the reference, and knows that it stands for nothing executed, passes it as channel_ref.")));
}

/* ---- moves ---- */

/* when an action that nobody owns any more is due */
static TimestampTz
due_after(const Report *report, const Action *action, TimestampTz now)
{
	const Contract *contract = report->contract;

	if (report->wait >= 0)
		return now + report->wait;
	return now + idem_state_backoff(contract->backoff_base, contract->backoff_max,
									action->history.attempt,
									pg_prng_double(&pg_global_prng_state));
}

static void
move_complete(Report *report, Action *action)
{
	idem_state_settle(&action->history, report->call, STATE_SUCCEEDED);
	action->result = report->document;
	if (report->channel_ref != NULL)
		action->channel_ref = report->channel_ref;
}

static void
move_reject(Report *report, Action *action)
{
	idem_state_settle(&action->history, report->call, STATE_REJECTED);
	action->error = report->document;
}

static void
move_resolve(Report *report, Action *action, TimestampTz now)
{
	if (report->target == STATE_SUCCEEDED)
		move_complete(report, action);
	else if (report->target == STATE_REJECTED)
		move_reject(report, action);
	else
	{
		idem_state_refresh(&action->history, now);
		action->channel_ref = NULL;
		action->first_revision = 0;
		action->owner = NULL;
	}
}

static void
move_absent(Store *store, Report *report, Action *action, TimestampTz now)
{
	switch (report->judgement.outcome)
	{
		case OUTCOME_EXECUTE:
			idem_action_raise(store, action);
			idem_state_grant(&action->history, CALL_ABSENT, &report->judgement, now);
			idem_action_bind(store, report->contract, action);
			break;
		case OUTCOME_BUSY:
			idem_state_wait(&action->history, CALL_ABSENT, now, report->judgement.retry_at);
			break;
		default:
			idem_state_settle(&action->history, CALL_ABSENT, STATE_REVIEW);
			break;
	}
}

static void
apply_move(Store *store, Report *report, Action *action, TimestampTz now)
{
	action->updated_at = now;
	switch (report->call)
	{
		case CALL_COMPLETE:
			move_complete(report, action);
			break;
		case CALL_REJECT:
			move_reject(report, action);
			break;
		case CALL_RESOLVE:
			idem_action_raise(store, action);
			move_resolve(report, action, now);
			break;
		case CALL_ABSENT:
			move_absent(store, report, action, now);
			break;
		case CALL_ESCALATE:
			idem_state_settle(&action->history, report->call, STATE_REVIEW);
			break;
		default:
			Assert(report->call == CALL_MARK_UNKNOWN || report->call == CALL_RELEASE);
			idem_state_wait(&action->history, report->call, now,
							due_after(report, action, now));
			break;
	}
}

/* the new end of a lease: under repeat within the life of the channel's key */
static TimestampTz
renewed_until(Store *store, const Report *report, const Action *action, TimestampTz now)
{
	Promise		promise = idem_action_promise(store, report->contract, action);
	TimestampTz until = now + report->lease;
	TimestampTz repeat_until;

	if (action->history.grant != OUTCOME_REPEAT)
		return until;
	repeat_until = idem_state_repeat_until(&action->history, &promise, now);
	if (repeat_until > now)
		return Min(until, repeat_until);
	idem_observe(report->contract, COUNTER_ILLEGAL);
	ereport(ERROR,
			(errcode(ERRCODE_IDEM_ILLEGAL_TRANSITION),
			 errmsg("cannot renew action \"%s\"", idem_key_cstring(report->key)),
			 errdetail("It was granted to repeat a call, and the channel need not know the key any more."),
			 errhint("Make no further call; report what is known with idem_complete or idem_mark_unknown.")));
}

/* a call of absent is judged like a claim: also when it is repeated */
static void
judge_absence(Store *store, Report *report, const Action *action, TimestampTz now)
{
	Promise		promise = idem_action_promise(store, report->contract, action);

	report->judgement = idem_state_judge_absence(&action->history, &promise,
												 report->contract->max_attempts, now,
												 report->contract->lease);
}

/* locks, judges by the clock as it is then, and writes; *action becomes what is on record */
static StoreResult
make_move(Store *store, Report *report, Action *action)
{
	Action		old = *action;
	TimestampTz now;
	StoreResult result = STORE_DONE;

	if (old.has_lease)
		result = idem_store_lock(store, &old);
	if (result != STORE_DONE)
		return result;

	now = GetCurrentTimestamp();
	if (report->call == CALL_RENEW)
	{
		report->lease_until = renewed_until(store, report, action, now);
		idem_state_renew(&action->history, report->lease_until);
		idem_store_update_lease(store, action);
		return STORE_DONE;
	}
	if (report->call == CALL_ABSENT)
		judge_absence(store, report, action, now);
	apply_move(store, report, action, now);
	return idem_store_update(store, &old, action);
}

/* the result and the error of an action stand in its own record only */
static void
record_report(Store *store, const Report *report, const Action *action)
{
	Evidence	evidence = {.note = report->note};

	if (!idem_state_is_terminal(action->history.state))
		evidence.detail = report->document;
	if (action->history.state == STATE_SUCCEEDED)
		evidence.channel_ref = report->channel_ref;
	idem_action_witness(store, action, idem_call_names[report->call], &evidence);
}

/* ---- the protocol ---- */

static void
apply_report(Store *store, Report *report, Action *action)
{
	StoreResult result = STORE_CHANGED;
	int			rounds = 0;

	while (result == STORE_CHANGED)
	{
		Reason		reason;
		Ruling		ruling;

		idem_look_again(&rounds);
		if (!idem_action_find(store, report->contract, report->key, action))
			idem_action_refuse_unknown(report->key);
		ruling = idem_state_rule(report->call, &action->history, report->generation, &reason);
		if (ruling == RULING_STALE)
			refuse_stale(report, action);
		if (ruling == RULING_ILLEGAL)
			refuse_illegal(report, action, reason);
		if (ruling == RULING_DONE)
		{
			check_repetition(report, action);
			if (report->call == CALL_ABSENT)
				judge_absence(store, report, action, GetCurrentTimestamp());
			return;
		}
		check_decision(report, action);
		result = make_move(store, report, action);
	}
	if (report->call != CALL_RENEW)
	{
		idem_transaction_closed(report->key);
		record_report(store, report, action);
	}
	if (!report->contract->is_local)
		idem_transaction_wrote_external();
}

/* who may report; escalating is also an operator's business, resolving his alone */
static int
kinds_of(Call call)
{
	if (call == CALL_RESOLVE)
		return ACCESS_OPERATOR;
	return call == CALL_ESCALATE ? ACCESS_APPLICATION | ACCESS_OPERATOR : ACCESS_APPLICATION;
}

/* the first two arguments of every call here, and who must have said something */
static void
open_report(FunctionCallInfo fcinfo, Store *store, Report *report)
{
	Home		home;

	report->key = idem_argument_key(fcinfo, 0);
	idem_home(fcinfo, &home);
	idem_access_check(&home, report->key, kinds_of(report->call));
	report->generation = idem_argument_generation(fcinfo, 1);
	if (report->generation == 0)
		refuse_no_generation(report);
	idem_store_open(store, &home, true);
	report->contract = idem_contract_current(&home, KIND_OPERATION, report->key);
}

/* the calls whose third argument says something and that return nothing */
static Datum
run_report(FunctionCallInfo fcinfo, Report *report)
{
	Store		store;
	Action		action;

	open_report(fcinfo, &store, report);
	if (report->contract->is_local && idem_transaction_is_calling(report->key))
		idem_action_refuse_own(report->key);
	report->document = idem_argument_document(fcinfo, 2);
	apply_report(&store, report, &action);
	idem_store_close(&store);
	PG_RETURN_VOID();
}

PG_FUNCTION_INFO_V1(idem_complete);
Datum
idem_complete(PG_FUNCTION_ARGS)
{
	Report		report = {.call = CALL_COMPLETE};

	PreventCommandIfReadOnly("idem_complete()");
	report.channel_ref = idem_argument_label(fcinfo, 3, "channel_ref");
	return run_report(fcinfo, &report);
}

void
idem_owner_complete(Store *store, const Contract *contract, const IdemKey *key,
					int64 generation, Jsonb *result)
{
	Report		report = {.call = CALL_COMPLETE,.key = key,.generation = generation,
	.contract = contract,.document = result};
	Action		action;

	apply_report(store, &report, &action);
}

PG_FUNCTION_INFO_V1(idem_reject);
Datum
idem_reject(PG_FUNCTION_ARGS)
{
	Report		report = {.call = CALL_REJECT};

	PreventCommandIfReadOnly("idem_reject()");
	return run_report(fcinfo, &report);
}

PG_FUNCTION_INFO_V1(idem_mark_unknown);
Datum
idem_mark_unknown(PG_FUNCTION_ARGS)
{
	Report		report = {.call = CALL_MARK_UNKNOWN};

	PreventCommandIfReadOnly("idem_mark_unknown()");
	report.wait = idem_argument_retry_after(fcinfo, 3, -1);
	return run_report(fcinfo, &report);
}

PG_FUNCTION_INFO_V1(idem_release);
Datum
idem_release(PG_FUNCTION_ARGS)
{
	Report		report = {.call = CALL_RELEASE};

	PreventCommandIfReadOnly("idem_release()");
	report.wait = idem_argument_retry_after(fcinfo, 3, -1);
	return run_report(fcinfo, &report);
}

PG_FUNCTION_INFO_V1(idem_escalate);
Datum
idem_escalate(PG_FUNCTION_ARGS)
{
	Report		report = {.call = CALL_ESCALATE};

	PreventCommandIfReadOnly("idem_escalate()");
	return run_report(fcinfo, &report);
}

PG_FUNCTION_INFO_V1(idem_renew);
Datum
idem_renew(PG_FUNCTION_ARGS)
{
	Report		report = {.call = CALL_RENEW};
	Store		store;
	Action		action;

	PreventCommandIfReadOnly("idem_renew()");
	open_report(fcinfo, &store, &report);
	report.lease = idem_argument_lease(fcinfo, 2, report.contract->lease);
	apply_report(&store, &report, &action);
	idem_store_close(&store);
	PG_RETURN_TIMESTAMPTZ(report.lease_until);
}

PG_FUNCTION_INFO_V1(idem_absent);
Datum
idem_absent(PG_FUNCTION_ARGS)
{
	Report		report = {.call = CALL_ABSENT};
	Store		store;
	Action		action;
	Verdict		verdict;

	PreventCommandIfReadOnly("idem_absent()");
	open_report(fcinfo, &store, &report);
	idem_transaction_check_start();
	report.document = idem_argument_document(fcinfo, 2);
	apply_report(&store, &report, &action);
	idem_action_answer(&store, report.contract, &action, &report.judgement, &verdict);
	if (report.judgement.outcome == OUTCOME_EXECUTE)
	{
		idem_transaction_granted(report.key, verdict.generation, verdict.lease_until, false);
		idem_transaction_started();
	}
	idem_observe(report.contract, verdict.outcome);
	idem_store_close(&store);
	PG_RETURN_DATUM(idem_verdict_datum(&store.home, &verdict));
}

static State
decision_argument(FunctionCallInfo fcinfo, int n)
{
	static const State allowed[] = {STATE_SUCCEEDED, STATE_REJECTED, STATE_PENDING};

	idem_argument_require(fcinfo, n, "state");
	for (int i = 0; i < lengthof(allowed); i++)
		if (strcmp(idem_state_names[allowed[i]], text_to_cstring(PG_GETARG_TEXT_PP(n))) == 0)
			return allowed[i];
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("state is none that an operator can decide on"),
			 errhint("Use 'succeeded', 'rejected', or 'pending' if it was surely not executed.")));
}

PG_FUNCTION_INFO_V1(idem_resolve);
Datum
idem_resolve(PG_FUNCTION_ARGS)
{
	Report		report = {.call = CALL_RESOLVE};
	Store		store;
	Action		action;

	PreventCommandIfReadOnly("idem_resolve()");
	report.target = decision_argument(fcinfo, 2);
	report.note = idem_argument_note(fcinfo, 3);
	report.document = idem_argument_document(fcinfo, 4);
	report.channel_ref = idem_argument_label(fcinfo, 5, "channel_ref");
	if (report.target == STATE_PENDING && report.document != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("result belongs to a decided action only")));
	open_report(fcinfo, &store, &report);
	apply_report(&store, &report, &action);
	idem_store_close(&store);
	PG_RETURN_VOID();
}
