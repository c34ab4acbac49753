/*
 * question.c
 *		Same key, same parameters?
 *
 * Every record of an action or an event keeps a fingerprint of what was asked
 * first: its digest, under the revision of the contract then in force.
 * Whoever asks again is compared under that revision, never under today's, so
 * that a change of contract makes no conflict of yesterday's duplicate.
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

/*
 * Same parameters?  A pointer that the contract in force demands must be
 * there; one that only the record's own revision demanded is a difference.
 */
bool
idem_question_is_same(const Home *home, Question *question, const Fingerprint *recorded)
{
	const Jsonb *params = recorded->params;

	if (question->params == NULL || !recorded->has_digest)
		return true;
	if (params != NULL && VARSIZE(params) == VARSIZE(question->params) &&
		memcmp(params, question->params, VARSIZE(params)) == 0)
		return true;			/* the same bytes have the same digest under
								 * any rule */
	make_digest(home, question, recorded->revision);
	return question->missing == NULL &&
		memcmp(&question->digest, &recorded->digest, sizeof(Digest)) == 0;
}

/* where they differ, or NULL if the first parameters were not kept */
ArrayType *
idem_question_differences(const Home *home, const Question *question, const Fingerprint *recorded)
{
	const Contract *contract;

	if (recorded->params == NULL)
		return NULL;
	contract = idem_contract_revision(home, question->contract, recorded->revision);
	return idem_digest_differences(recorded->params, question->params, &contract->rule);
}

/* what a new record keeps of the question */
void
idem_question_record(const Home *home, Question *question, Fingerprint *recorded)
{
	const Contract *contract = question->contract;

	recorded->revision = contract->revision;
	if (question->params == NULL)
		return;
	make_digest(home, question, contract->revision);
	recorded->has_digest = true;
	recorded->digest = question->digest;
	recorded->params = contract->keep_params ? question->params : NULL;
}
