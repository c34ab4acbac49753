/*
 * define.c
 *		Declaring operations and consumers: validation, and the rules of change.
 *
 * A definition is whole: what is left out takes its default.  A revision is
 * written only if something changed.  Definitions of one kind queue for one
 * lock, so that revisions count up without gaps or clashes.
 *
 * effect decides whether an action has a lease row and in which transaction
 * it is finished, so it cannot change while an action exists.  The change
 * locks writers of actions out until it commits, and every writer takes its
 * lock on the table of actions before it looks at the contract: so none can
 * act on the old effect afterwards.  Dropping an operation does the same.
 */
#include "idem_action.h"

#include "access/table.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/inval.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"
#include "tcop/utility.h"

#define ATTEMPTS_MAX 1000000
#define RETENTION_MAX (INT64CONST(1000) * 366 * USECS_DAY)

/* the arguments of idem_define_operation(), in order */
enum
{
	ARG_OPERATION, ARG_EFFECT, ARG_CHANNEL, ARG_LEASE, ARG_INCLUDE, ARG_EXCLUDE,
	ARG_IDEMPOTENT, ARG_KEY_TTL, ARG_QUERYABLE, ARG_ABSENCE, ARG_MAX_ATTEMPTS,
	ARG_BACKOFF_BASE, ARG_BACKOFF_MAX, ARG_KEEP_PARAMS, ARG_RETENTION, ARG_RESULT_RETENTION, NARGS
};

static Statement insert_contract = {
	"INSERT INTO %1$s.idem_contract (operation, effect, channel, lease, digest_include,"
	" digest_exclude, channel_idempotent, channel_key_ttl, channel_queryable,"
	" absence_visible_after, max_attempts, backoff_base, backoff_max, keep_params, retention,"
	" result_retention, revision, defined_at, defined_by)"
	" VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19)",
	19, {TEXTOID, TEXTOID, TEXTOID, INTERVALOID, TEXTARRAYOID, TEXTARRAYOID, BOOLOID,
		INTERVALOID, BOOLOID, INTERVALOID, INT4OID, INTERVALOID, INTERVALOID, BOOLOID,
	INTERVALOID, INTERVALOID, INT4OID, TIMESTAMPTZOID, TEXTOID}, SPI_OK_INSERT
};

static Statement insert_consumer = {
	"INSERT INTO %1$s.idem_consumer (consumer, digest_include, digest_exclude, keep_params, rebuild,"
	" retention, result_retention, revision, defined_at, defined_by)"
	" VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
	10, {TEXTOID, TEXTARRAYOID, TEXTARRAYOID, BOOLOID, BOOLOID, INTERVALOID, INTERVALOID,
	INT4OID, TIMESTAMPTZOID, TEXTOID}, SPI_OK_INSERT
};

static Statement delete_contract = {
	"DELETE FROM %1$s.idem_contract WHERE operation OPERATOR(pg_catalog.=) $1",
	1, {TEXTOID}, SPI_OK_DELETE
};

static void
refuse(const char *message, const char *hint)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("%s", message),
			 errhint("%s", hint)));
}

static bool
flag_argument(FunctionCallInfo fcinfo, int n, const char *name)
{
	idem_argument_require(fcinfo, n, name);
	return PG_GETARG_BOOL(n);
}

static bool
is_local_effect(FunctionCallInfo fcinfo)
{
	char	   *effect;

	idem_argument_require(fcinfo, ARG_EFFECT, "effect");
	effect = text_to_cstring(PG_GETARG_TEXT_PP(ARG_EFFECT));
	if (strcmp(effect, "local") != 0 && strcmp(effect, "external") != 0)
		refuse("effect is neither local nor external",
			   "Use 'local' if all effects commit in the caller's transaction, 'external' if a channel is called between two transactions.");
	return strcmp(effect, "local") == 0;
}

/* digest_include and, after it, digest_exclude */
static void
rule_argument(FunctionCallInfo fcinfo, int n, DigestRule *rule)
{
	ArrayType  *include = PG_ARGISNULL(n) ? NULL : PG_GETARG_ARRAYTYPE_P(n);
	ArrayType  *exclude = PG_ARGISNULL(n + 1) ? NULL : PG_GETARG_ARRAYTYPE_P(n + 1);

	idem_digest_rule(include, exclude, rule);
}

/* a promise and the time it needs: both or neither */
static bool
promise_argument(FunctionCallInfo fcinfo, int n, const char *name,
				 int time, const char *time_name, bool is_local)
{
	bool		is_promised = flag_argument(fcinfo, n, name);

	if (is_promised && PG_ARGISNULL(time))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s needs %s", name, time_name),
				 errhint("Ask the channel's documentation how long it is; too short a figure is safe for channel_key_ttl, too long a one for absence_visible_after.")));
	if (!is_promised && !PG_ARGISNULL(time))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s is given without %s", time_name, name)));
	if (is_promised && is_local)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s is a promise of external operations", name),
				 errhint("A local operation calls no channel; define it with effect => 'external' if it does.")));
	return is_promised;
}

/* how long identity and, after it, payload are kept: payload never the longer */
static void
retention_argument(FunctionCallInfo fcinfo, int n, Contract *contract)
{
	contract->retention =
		idem_argument_interval(fcinfo, n, "retention", 1, RETENTION_MAX,
							   "positive and at most 1000 years", 0);
	contract->result_retention =
		idem_argument_interval(fcinfo, n + 1, "result_retention", 1,
							   contract->retention != 0 ? contract->retention : RETENTION_MAX,
							   "positive, at most 1000 years, and no longer than retention", 0);
}

/* reads and checks every argument; memory is the caller's */
static void
contract_argument(FunctionCallInfo fcinfo, Contract *contract)
{
	text	   *channel = idem_argument_label(fcinfo, ARG_CHANNEL, "channel");

	memset(contract, 0, sizeof(Contract));
	contract->name = text_to_cstring(idem_argument_name(fcinfo, 0, "operation"));
	contract->is_local = is_local_effect(fcinfo);
	contract->channel = channel ? text_to_cstring(channel) : contract->name;
	rule_argument(fcinfo, ARG_INCLUDE, &contract->rule);

	idem_argument_require(fcinfo, ARG_LEASE, "lease");
	contract->lease = idem_argument_lease(fcinfo, ARG_LEASE, 0);
	contract->promise.is_idempotent =
		promise_argument(fcinfo, ARG_IDEMPOTENT, "channel_idempotent",
						 ARG_KEY_TTL, "channel_key_ttl", contract->is_local);
	contract->promise.key_ttl =
		idem_argument_interval(fcinfo, ARG_KEY_TTL, "channel_key_ttl", 1, TIME_FOREVER,
							   "positive", 0);
	contract->promise.is_queryable =
		promise_argument(fcinfo, ARG_QUERYABLE, "channel_queryable",
						 ARG_ABSENCE, "absence_visible_after", contract->is_local);
	contract->promise.absence_after =
		idem_argument_interval(fcinfo, ARG_ABSENCE, "absence_visible_after", 0, ABSENCE_MAX,
							   "between 0 and 30 days", 0);

	idem_argument_require(fcinfo, ARG_MAX_ATTEMPTS, "max_attempts");
	contract->max_attempts = PG_GETARG_INT32(ARG_MAX_ATTEMPTS);
	if (contract->max_attempts < 1 || contract->max_attempts > ATTEMPTS_MAX)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("max_attempts is out of range"),
				 errdetail("It must be between 1 and %d.", ATTEMPTS_MAX)));
	idem_argument_require(fcinfo, ARG_BACKOFF_BASE, "backoff_base");
	contract->backoff_base =
		idem_argument_interval(fcinfo, ARG_BACKOFF_BASE, "backoff_base", 0, RETRY_MAX,
							   "between 0 and 30 days", 0);
	idem_argument_require(fcinfo, ARG_BACKOFF_MAX, "backoff_max");
	contract->backoff_max =
		idem_argument_interval(fcinfo, ARG_BACKOFF_MAX, "backoff_max", contract->backoff_base,
							   RETRY_MAX, "between backoff_base and 30 days", 0);
	contract->keep_params = flag_argument(fcinfo, ARG_KEEP_PARAMS, "keep_params");
	retention_argument(fcinfo, ARG_RETENTION, contract);
	if (contract->promise.is_idempotent && !contract->keep_params)
		refuse("channel_idempotent needs keep_params",
			   "A repeated call must carry the parameters of the first one, so they have to be on record.");
}

static bool
is_same_rule(const DigestRule *a, const DigestRule *b)
{
	if (a->include != b->include || a->npointers != b->npointers)
		return false;
	for (int i = 0; i < a->npointers; i++)
		if (strcmp(a->pointers[i].text, b->pointers[i].text) != 0)
			return false;
	return true;
}

static bool
is_same_contract(const Contract *a, const Contract *b)
{
	return a->is_local == b->is_local &&
		strcmp(a->channel, b->channel) == 0 &&
		a->lease == b->lease &&
		is_same_rule(&a->rule, &b->rule) &&
		a->promise.is_idempotent == b->promise.is_idempotent &&
		a->promise.key_ttl == b->promise.key_ttl &&
		a->promise.is_queryable == b->promise.is_queryable &&
		a->promise.absence_after == b->promise.absence_after &&
		a->max_attempts == b->max_attempts &&
		a->backoff_base == b->backoff_base &&
		a->backoff_max == b->backoff_max &&
		a->keep_params == b->keep_params &&
		a->retention == b->retention &&
		a->result_retention == b->result_retention;
}

/* the definition's arguments, with what is filled in, and who made it when */
static void
insert_revision(FunctionCallInfo fcinfo, const Home *home, Statement *statement,
				const Contract *contract)
{
	int			nargs = PG_NARGS();
	Datum		values[NARGS + 3];
	bool		nulls[NARGS + 3] = {false};

	for (int i = 0; i < nargs; i++)
	{
		values[i] = PG_GETARG_DATUM(i);
		nulls[i] = PG_ARGISNULL(i);
	}
	if (contract->kind == KIND_OPERATION)
	{
		values[ARG_CHANNEL] = CStringGetTextDatum(contract->channel);
		nulls[ARG_CHANNEL] = false;
	}
	values[nargs] = Int32GetDatum(contract->revision);
	values[nargs + 1] = TimestampTzGetDatum(GetCurrentTimestamp());
	values[nargs + 2] = CStringGetTextDatum(GetUserNameFromId(GetUserId(), false));
	idem_statement_run(statement, home, values, nulls, InvalidSnapshot, NULL, NULL);
	CacheInvalidateRelcacheByRelid(idem_home_relation(home, idem_contract_tables[contract->kind]));
	CommandCounterIncrement();
}

/* definitions one after another, each on top of what the one before committed */
static const Contract *
lock_and_find(const Home *home, ContractKind kind, const char *name)
{
	LockRelationOid(idem_home_relation(home, idem_contract_tables[kind]), ShareRowExclusiveLock);
	return idem_contract_find(home, kind, name, strlen(name));
}

/* a definition is whole, so a promise is withdrawn by leaving it out: say so */
static void
notice_withdrawal(const Contract *old, const Contract *contract)
{
	const struct
	{
		bool		is_withdrawn;
		const char *what;
	}			promises[] = {
		{!contract->is_local && strcmp(old->channel, contract->channel) != 0,
		"its channel is another one"},
		{old->promise.is_idempotent && !contract->promise.is_idempotent,
		"channel_idempotent is no longer promised"},
		{old->promise.is_queryable && !contract->promise.is_queryable,
		"channel_queryable is no longer promised"},
		{contract->promise.is_idempotent && contract->promise.key_ttl < old->promise.key_ttl,
		"channel_key_ttl is shorter"},
		{old->promise.is_queryable && contract->promise.is_queryable &&
			contract->promise.absence_after > old->promise.absence_after,
		"absence_visible_after is longer"}
	};
	StringInfoData what;

	initStringInfo(&what);
	for (int i = 0; i < lengthof(promises); i++)
		if (promises[i].is_withdrawn)
			appendStringInfo(&what, "%s%s", what.len > 0 ? ", " : "", promises[i].what);
	if (what.len > 0)
		ereport(NOTICE,
				(errmsg("operation \"%s\" promises less than before: %s", contract->name, what.data),
				 errdetail("What is left out of a definition takes its default. Attempts that may have executed are judged by the weaker promise.")));
}

static int32
define_operation(FunctionCallInfo fcinfo, const Home *home, Contract *contract)
{
	const Contract *old = lock_and_find(home, KIND_OPERATION, contract->name);

	if (old != NULL && is_same_contract(old, contract))
		return old->revision;
	if (old != NULL && old->is_local != contract->is_local &&
		idem_store_has_operation(home, contract->name))
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_ILLEGAL_TRANSITION),
				 errmsg("effect of operation \"%s\" cannot change", contract->name),
				 errdetail("Actions of it are on record."),
				 errhint("Define another operation with the other effect.")));

	idem_era_floor(home);
	if (old != NULL)
		notice_withdrawal(old, contract);
	contract->revision = old == NULL ? 1 : old->revision + 1;
	insert_revision(fcinfo, home, &insert_contract, contract);
	return contract->revision;
}

PG_FUNCTION_INFO_V1(idem_define_operation);
Datum
idem_define_operation(PG_FUNCTION_ARGS)
{
	Home		home;
	Contract	contract;

	PreventCommandIfReadOnly("idem_define_operation()");
	idem_home(fcinfo, &home);
	idem_access_check_all(&home, ACCESS_OPERATOR);
	contract_argument(fcinfo, &contract);
	PG_RETURN_INT32(define_operation(fcinfo, &home, &contract));
}

static void
drop_operation(const Home *home, const char *operation)
{
	const Contract *contract = lock_and_find(home, KIND_OPERATION, operation);
	Datum		value = CStringGetTextDatum(operation);

	if (contract == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_UNDEFINED_OPERATION),
				 errmsg("operation \"%s\" is not defined", operation),
				 errdetail("No contract of that name is on record."),
				 errhint("Check the spelling: names are compared byte by byte.")));
	if (idem_store_has_operation(home, operation))
		ereport(ERROR,
				(errcode(ERRCODE_DEPENDENT_OBJECTS_STILL_EXIST),
				 errmsg("operation \"%s\" cannot be dropped", operation),
				 errdetail("Actions of it are on record."),
				 errhint("Leave it defined: without its contract nobody could judge a duplicate.")));
	if (idem_watermark_has_operation(home, operation))
		ereport(ERROR,
				(errcode(ERRCODE_DEPENDENT_OBJECTS_STILL_EXIST),
				 errmsg("operation \"%s\" cannot be dropped", operation),
				 errdetail("Actions of it were purged, and the watermark that tells old requests from new ones is on record."),
				 errhint("Leave it defined: under a contract of no memory an old request would pass for a new one.")));
	if (idem_statement_run(&delete_contract, home, &value, NULL, InvalidSnapshot,
						   NULL, NULL) != contract->revision)
		ereport(ERROR,			/* revisions count from 1 without gaps */
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("operation \"%s\" was redefined by a concurrent transaction", operation)));
	CacheInvalidateRelcacheByRelid(idem_home_relation(home, idem_contract_tables[KIND_OPERATION]));
	CommandCounterIncrement();
}

PG_FUNCTION_INFO_V1(idem_drop_operation);
Datum
idem_drop_operation(PG_FUNCTION_ARGS)
{
	Home		home;

	PreventCommandIfReadOnly("idem_drop_operation()");
	idem_home(fcinfo, &home);
	idem_access_check_all(&home, ACCESS_OPERATOR);
	drop_operation(&home, text_to_cstring(idem_argument_name(fcinfo, 0, "operation")));
	PG_RETURN_VOID();
}

/* ---- consumers ---- */

/* the arguments of idem_define_consumer(), in order */
enum
{
	CONSUMER_NAME, CONSUMER_INCLUDE, CONSUMER_EXCLUDE, CONSUMER_KEEP_PARAMS, CONSUMER_REBUILD,
	CONSUMER_RETENTION, CONSUMER_RESULT_RETENTION
};

static int32
define_consumer(FunctionCallInfo fcinfo, const Home *home, Contract *contract)
{
	const Contract *old = lock_and_find(home, KIND_CONSUMER, contract->name);

	if (old != NULL && is_same_rule(&old->rule, &contract->rule) &&
		old->keep_params == contract->keep_params && old->is_rebuild == contract->is_rebuild &&
		old->retention == contract->retention &&
		old->result_retention == contract->result_retention)
		return old->revision;
	contract->revision = old == NULL ? 1 : old->revision + 1;
	insert_revision(fcinfo, home, &insert_consumer, contract);
	return contract->revision;
}

PG_FUNCTION_INFO_V1(idem_define_consumer);
Datum
idem_define_consumer(PG_FUNCTION_ARGS)
{
	Contract	contract = {.kind = KIND_CONSUMER};
	Home		home;

	PreventCommandIfReadOnly("idem_define_consumer()");
	idem_home(fcinfo, &home);
	idem_access_check_all(&home, ACCESS_OPERATOR);
	contract.name = text_to_cstring(idem_argument_name(fcinfo, 0, "consumer"));
	rule_argument(fcinfo, CONSUMER_INCLUDE, &contract.rule);
	contract.keep_params = flag_argument(fcinfo, CONSUMER_KEEP_PARAMS, "keep_params");
	contract.is_rebuild = flag_argument(fcinfo, CONSUMER_REBUILD, "rebuild");
	retention_argument(fcinfo, CONSUMER_RETENTION, &contract);
	PG_RETURN_INT32(define_consumer(fcinfo, &home, &contract));
}
