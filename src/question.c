/*
 * question.c
 *		Same key, same parameters?
 *
 * Every record of an action or an event keeps a fingerprint of what was asked
 * first: its digest, under the revision of the contract then in force.
 * Whoever asks again is compared under that revision, never under today's, so
 * that a change of contract makes no conflict of yesterday's duplicate.
 *
 * Where a contract deletes identity in time, only the time when the request
 * or event occurred tells an old one from a new one.  So it must be said, and
 * counts like a parameter: what is stamped anew must not pass for something
 * else.
 *
 * The digest of a question is made once a revision, and not at all where the
 * recorded parameters are the same bytes.
 */
#include "idem_action.h"

static void
refuse_missing(const char *pointer)
{
	ereport(ERROR,
			(errcode(ERRCODE_IDEM_MISSING_PARAMETER),
			 errmsg("parameter \"%s\" is missing", pointer),
			 errdetail("The contract's digest_include names it, so every call must have it."),
			 errhint("Check the spelling of the parameters and of the contract.")));
}

/* the digest under a revision, made once */
static void
make_digest(const Home *home, Question *question, int32 revision)
{
	const Contract *contract;

	if (question->revision == revision)
		return;
	contract = idem_contract_revision(home, question->contract, revision);
	question->missing = idem_digest_params(question->params, &contract->rule, &question->digest);
	question->revision = revision;
	if (question->missing != NULL && contract == question->contract)
		refuse_missing(question->missing);
}

void
idem_question_refuse_undated(const Question *question)
{
	bool		is_event = question->contract->kind == KIND_CONSUMER;

	ereport(ERROR,
			(errcode(ERRCODE_IDEM_MISSING_PARAMETER),
			 errmsg("occurred_at of %s \"%s\" is missing", is_event ? "event" : "action",
					idem_key_cstring(question->key)),
			 errdetail("The contract has, or had, a retention, after which only occurred_at tells an old %s from a new one.",
					   is_event ? "event" : "request"),
			 errhint("Pass when it occurred, as its producer stamped it.")));
}

/* an admitted record does not know when it occurred, and takes any answer */
static bool
is_same_moment(const Question *question, const Contract *then, const Fingerprint *recorded)
{
	if (then->retention == 0)
		return true;
	if (question->occurred_at == TIME_NONE && then == question->contract)
		idem_question_refuse_undated(question);
	return recorded->occurred_at == TIME_NONE || question->occurred_at == recorded->occurred_at;
}

/*
 * Same parameters?  A pointer that the contract in force demands must be
 * there; one that only the record's own revision demanded is a difference.
 * Likewise the time when it occurred.
 */
bool
idem_question_is_same(const Home *home, Question *question, const Fingerprint *recorded)
{
	const Jsonb *params = recorded->params;
	const Contract *then;

	if (question->params == NULL || !recorded->has_digest)
		return true;
	then = idem_contract_revision(home, question->contract, recorded->revision);
	if (!is_same_moment(question, then, recorded))
		return false;
	if (params != NULL && VARSIZE(params) == VARSIZE(question->params) &&
		memcmp(params, question->params, VARSIZE(params)) == 0)
		return true;			/* the same bytes have the same digest under
								 * any rule */
	make_digest(home, question, recorded->revision);
	return question->missing == NULL &&
		memcmp(&question->digest, &recorded->digest, sizeof(Digest)) == 0;
}

/*
 * Where they differ, or NULL if the first parameters were not kept, or if
 * nothing but the time differs, which no pointer names.
 */
ArrayType *
idem_question_differences(const Home *home, const Question *question, const Fingerprint *recorded)
{
	const Contract *contract;
	ArrayType  *pointers;

	if (recorded->params == NULL)
		return NULL;
	contract = idem_contract_revision(home, question->contract, recorded->revision);
	pointers = idem_digest_differences(recorded->params, question->params, &contract->rule);
	return ARR_NDIM(pointers) == 0 ? NULL : pointers;
}

/* what a new record keeps of the question */
void
idem_question_record(const Home *home, Question *question, Fingerprint *recorded)
{
	const Contract *contract = question->contract;

	recorded->revision = contract->revision;
	recorded->occurred_at = question->occurred_at;
	if (question->params == NULL)
		return;
	make_digest(home, question, contract->revision);
	recorded->has_digest = true;
	recorded->digest = question->digest;
	recorded->params = contract->keep_params ? question->params : NULL;
}
