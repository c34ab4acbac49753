/*
 * loss.c
 *		Commits that were lost, and the doubt that they leave.
 *
 * An asynchronous failover, or a restore, forgets what was committed last,
 * and with it grants under which a channel was called.  Records cannot tell
 * that by themselves, so an operator declares it.  From then on what is in
 * flight, and every key not on record that may be one of those forgotten, is
 * judged as if an attempt under today's channel may have executed it:
 * granted first when the loss began, and calling until the longest lease
 * granted in it could have ended.  What must hold:
 *
 *	- a declaration keeps writers of actions out until it commits, and every
 *	  one after it sees it, whatever its snapshot: it locks the table of
 *	  actions first, and then accepts invalidations, with the contract's;
 *	- the doubt about a key that is not on record is written with its birth,
 *	  so it needs no declaration any more and is lifted like any other;
 *	- local actions are never in doubt: what they did was lost with them.
 *
 * The declarations are read once per backend and kept, under the newest
 * snapshot; a relation cache invalidation of the table, sent by whoever
 * declares and repeated if that is rolled back, empties the cache.
 *
 * Memory: the cache is in CacheMemoryContext.
 */
#include "idem_action.h"

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "tcop/utility.h"
#include "utils/builtins.h"
#include "utils/inval.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

typedef struct Loss
{
	TimestampTz from;			/* when a lost commit could first have been
								 * made */
	TimestampTz to;				/* and when last */
	TimestampTz until;			/* before this, a key of unknown time is one
								 * of them */
} Loss;

typedef struct Declaration
{
	Loss		loss;
	TimestampTz declared_at;	/* database's clock */
	text	   *note;			/* or NULL */
} Declaration;

static Loss *losses = NULL;		/* what is declared */
static int	nlosses = 0;
static Oid	cache_schema = InvalidOid;	/* in which schema's table; invalid:
										 * stale */
static Oid	cache_relid = InvalidOid;	/* that table */
static uint64 nforgotten = 0;	/* how often it became stale */

static Statement select_losses = {
	"SELECT lost_from, lost_to, until FROM %1$s.idem_loss",
	0, {0}, SPI_OK_SELECT
};

static Statement insert_loss = {
	"INSERT INTO %1$s.idem_loss (lost_from, lost_to, until, note, declared_at, declared_by)"
	" VALUES ($1, $2, $3, $4, $5, $6)",
	6, {TIMESTAMPTZOID, TIMESTAMPTZOID, TIMESTAMPTZOID, TEXTOID, TIMESTAMPTZOID, TEXTOID},
	SPI_OK_INSERT
};

/* ---- what is declared ---- */

static void
forget_losses(Datum arg, Oid relid)
{
	if (relid != InvalidOid && relid != cache_relid)
		return;
	cache_schema = InvalidOid;
	nforgotten++;
}

static TimestampTz
moment_column(SPITupleTable *table, uint64 row, int n)
{
	bool		isnull;

	return DatumGetTimestampTz(SPI_getbinval(table->vals[row], table->tupdesc, n, &isnull));
}

static void
read_losses(SPITupleTable *table, uint64 rows, void *target)
{
	Loss	   *found = rows == 0 ? NULL :
		MemoryContextAlloc(CacheMemoryContext, rows * sizeof(Loss));

	for (uint64 i = 0; i < rows; i++)
	{
		found[i].from = moment_column(table, i, 1);
		found[i].to = moment_column(table, i, 2);
		found[i].until = moment_column(table, i, 3);
	}
	if (losses != NULL)
		pfree(losses);
	losses = found;
	nlosses = rows;
}

/* invalidations have been accepted with the contract */
static void
refresh_losses(const Home *home)
{
	static bool is_registered = false;	/* forget_losses() is called */

	if (!is_registered)
	{
		CacheRegisterRelcacheCallback(forget_losses, (Datum) 0);
		is_registered = true;
	}
	while (cache_schema != home->schema)
	{
		uint64		before = nforgotten;
		Snapshot	latest;

		cache_relid = idem_home_relation(home, "idem_loss");
		latest = RegisterSnapshot(GetLatestSnapshot());
		idem_statement_run(&select_losses, home, NULL, NULL, latest, read_losses, NULL);
		UnregisterSnapshot(latest);
		if (nforgotten == before)
			cache_schema = home->schema;
	}
}

static bool
is_covered(const Loss *loss, TimestampTz occurred_at, TimestampTz now)
{
	if (occurred_at == TIME_NONE)
		return now < loss->until;
	return loss->from <= occurred_at && occurred_at <= loss->to;
}

/* the time that all declarations which cover a key span together */
static bool
find_loss(const Home *home, TimestampTz occurred_at, TimestampTz now, Loss *widest)
{
	bool		is_found = false;

	refresh_losses(home);
	for (int i = 0; i < nlosses; i++)
	{
		if (!is_covered(&losses[i], occurred_at, now))
			continue;
		widest->from = is_found ? Min(widest->from, losses[i].from) : losses[i].from;
		widest->to = is_found ? Max(widest->to, losses[i].to) : losses[i].to;
		is_found = true;
	}
	return is_found;
}

/* ---- doubt ---- */

/*
 * Whose promises count: those of the first grant, as always.  But where no
 * attempt on record can have executed the action, a lost one called the
 * channel of today, and that is the one to ask.
 */
static int32
doubted_revision(const Home *home, const Contract *contract, const Action *action)
{
	const Contract *first;

	if (action->first_revision == 0)
		return contract->revision;
	first = idem_contract_revision(home, contract, action->first_revision);
	if (!idem_state_may_have_executed(&action->history) &&
		strcmp(first->channel, contract->channel) != 0)
		return contract->revision;
	return action->first_revision;
}

static void
doubt(const Home *home, const Contract *contract, const Loss *loss, Action *action)
{
	action->first_revision = doubted_revision(home, contract, action);
	idem_state_doubt(&action->history, loss->from, loss->to + LEASE_MAX);
}

/* an action that is being put on record, and may have been before */
void
idem_loss_doubt_new(const Home *home, const Contract *contract, Action *action)
{
	Loss		loss;

	if (find_loss(home, action->fingerprint.occurred_at, action->created_at, &loss))
		doubt(home, contract, &loss, action);
}

static void
witness(const Home *home, const Declaration *declaration, const Action *action)
{
	Evidence	evidence = {
		.key = action->key,
		.call = "declare_loss",
		.state = action->history.state,
		.generation = action->history.generation,
		.attempt = action->history.attempt,
		.recorded_at = declaration->declared_at,
		.lease_until = action->history.lease_until,
		.worker = action->owner,
		.note = declaration->note
	};

	idem_evidence_write(home, &evidence);
}

/* false: there is no such action in flight, only what was left of one deleted by hand */
static bool
doubt_known(Store *store, const IdemKey *key, const Declaration *declaration)
{
	Action		action;
	int			rounds = 0;

	do
	{
		idem_look_again(&rounds);
		if (!idem_store_find(store, key, &action) || !action.has_lease)
			return false;
	} while (idem_store_lock(store, &action) != STORE_DONE);

	doubt(&store->home, idem_contract_current(&store->home, KIND_OPERATION, key),
		  &declaration->loss, &action);
	idem_store_update_lease(store, &action);
	witness(&store->home, declaration, &action);
	return true;
}

/* how many there are */
static int64
doubt_in_flight(const Home *home, const Declaration *declaration)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "idem_action doubt",
												  ALLOCSET_DEFAULT_SIZES);
	List	   *keys = idem_store_in_flight(home);
	ListCell   *cell;
	Store		store;
	int64		ndoubted = 0;

	idem_store_open(&store, home, true);
	foreach(cell, keys)
	{
		MemoryContext old = MemoryContextSwitchTo(context);

		if (doubt_known(&store, lfirst(cell), declaration))
			ndoubted++;
		MemoryContextSwitchTo(old);
		MemoryContextReset(context);
	}
	idem_store_close(&store);
	MemoryContextDelete(context);
	return ndoubted;
}

/* ---- declaring ---- */

static void
record_loss(const Home *home, const Declaration *declaration)
{
	const Loss *loss = &declaration->loss;
	Datum		values[6] = {TimestampTzGetDatum(loss->from), TimestampTzGetDatum(loss->to),
		TimestampTzGetDatum(loss->until), PointerGetDatum(declaration->note),
		TimestampTzGetDatum(declaration->declared_at),
	CStringGetTextDatum(GetUserNameFromId(GetUserId(), false))};
	bool		nulls[6] = {false, false, false, declaration->note == NULL, false, false};

	idem_statement_run(&insert_loss, home, values, nulls, InvalidSnapshot, NULL, NULL);
	CacheInvalidateRelcacheByRelid(idem_home_relation(home, "idem_loss"));
	CommandCounterIncrement();
}

static void
refuse_order(const char *message, const char *hint)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("%s", message),
			 errhint("%s", hint)));
}

static void
loss_arguments(FunctionCallInfo fcinfo, Loss *loss)
{
	static const char *const names[] = {"lost_from", "lost_to", "until"};
	TimestampTz moments[lengthof(names)];

	for (int i = 0; i < lengthof(names); i++)
	{
		idem_argument_require(fcinfo, i, names[i]);
		moments[i] = idem_argument_moment(fcinfo, i, names[i]);
	}
	loss->from = moments[0];
	loss->to = moments[1];
	loss->until = moments[2];
	if (loss->from > loss->to)
		refuse_order("lost_from is later than lost_to",
					 "Give the time of the first and of the last commit that may be lost.");
	if (loss->to > GetCurrentTimestamp())
		refuse_order("lost_to lies in the future",
					 "What is lost was committed before now.");
	if (loss->until < loss->to)
		refuse_order("until is earlier than lost_to",
					 "Give the time until which keys without occurred_at may still be redelivered from before.");
}

PG_FUNCTION_INFO_V1(idem_declare_loss);
Datum
idem_declare_loss(PG_FUNCTION_ARGS)
{
	Declaration declaration;
	Home		home;
	int64		ndoubted;

	PreventCommandIfReadOnly("idem_declare_loss()");
	idem_home(fcinfo, &home);
	idem_access_check_all(&home, ACCESS_OPERATOR);
	loss_arguments(fcinfo, &declaration.loss);
	declaration.note = PG_ARGISNULL(3) ? NULL : idem_argument_note(fcinfo, 3);
	idem_store_lock_writers(&home);
	declaration.declared_at = GetCurrentTimestamp();
	idem_era_raise(&home);
	record_loss(&home, &declaration);
	ndoubted = doubt_in_flight(&home, &declaration);
	idem_transaction_wrote_external();
	PG_RETURN_INT64(ndoubted);
}
