/*
 * observe.c
 *		What happened, counted in shared memory: a rollback takes nothing back.
 *
 * Each operation and each consumer has a slot of counters.  A backend finds
 * it once, when it reads the contract, and keeps the pointer in it; from then
 * on counting is one atomic addition, without a lock and without a look at
 * anything (idem_observe() in idem_action.h).  So a slot never moves, and
 * never changes hands while anybody may point to it: the only slots that are
 * given away again are those of databases that were dropped, to which nobody
 * can be connected.
 *
 * A slot is found by database, kind and a hash of 64 bits of the name; the
 * names are in the contracts.  When no slot is free, names share one, which
 * the views show under a name that no operation can have.
 *
 * The memory needs no shared_preload_libraries (see idem_shared_memory() in
 * compat.h).  It lives as long as the server does: a restart, and a crash,
 * begin at zero.  If it cannot be had, nothing is counted, and the calls that
 * are counted go on all the same: see attach_counters().
 *
 * Locks: AddinShmemInitLock, which every server has, while slots are found
 * and given away; never while something is counted.  Two releases of this
 * library in one server share nothing: the name of the memory carries what
 * they count.
 */
#include "idem_action.h"
#include "row.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "common/hashfn.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "storage/lwlock.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/resowner.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#define NKINDS (KIND_CONSUMER + 1)

typedef struct Slot
{
	Oid			database;		/* whose it is; invalid: free */
	ContractKind kind;			/* of an operation or a consumer */
	uint64		name;			/* its hash */
	pg_atomic_uint64 reset_at;	/* since when is counted, a TimestampTz */
	pg_atomic_uint64 counters[NCOUNTERS];
} Slot;

typedef struct Counting
{
	TimestampTz started_at;		/* when this memory was made */
	Slot		others[NKINDS]; /* those for whom no slot was left */
	Slot		slots[IDEM_OBSERVE_SLOTS];	/* the free ones come last */
} Counting;

static Counting *counting = NULL;	/* in shared memory, once attached */

/* what is counted of operations beside outcomes; the columns have these names */
static const char *const counter_names[NCOUNTERS] = {
	[COUNTER_STALE] = "stale",
	[COUNTER_ILLEGAL] = "illegal",
	[COUNTER_RESULT_CONFLICT] = "result_conflict",
	[COUNTER_TAKEOVER] = "takeover"
};

/* ---- memory ---- */

static void
clear_slot(Slot *slot, TimestampTz now)
{
	pg_atomic_write_u64(&slot->reset_at, (uint64) now);
	for (int i = 0; i < NCOUNTERS; i++)
		pg_atomic_write_u64(&slot->counters[i], 0);
}

static void
init_slot(Slot *slot)
{
	slot->database = InvalidOid;
	pg_atomic_init_u64(&slot->reset_at, 0);
	for (int i = 0; i < NCOUNTERS; i++)
		pg_atomic_init_u64(&slot->counters[i], 0);
}

static void
init_counting(void *memory)
{
	Counting   *fresh = memory;

	fresh->started_at = GetCurrentTimestamp();
	for (int i = 0; i < NKINDS; i++)
	{
		init_slot(&fresh->others[i]);
		clear_slot(&fresh->others[i], fresh->started_at);
	}
	for (int i = 0; i < IDEM_OBSERVE_SLOTS; i++)
		init_slot(&fresh->slots[i]);
}

/*
 * Whether there is something to count in.  Observing must not be what breaks
 * the action that is observed: where the memory cannot be had, the error is
 * told to the server's log only.  The subtransaction, once a backend, is what
 * lets go of the locks that the error left behind.
 */
static bool
attach_counters(void)
{
	MemoryContext context = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	char	   *name;

	if (counting != NULL)
		return true;
	name = psprintf("idem_action counters %d %d %d", NOUTCOMES, (int) NCOUNTERS,
					(int) sizeof(Counting));
	BeginInternalSubTransaction(NULL);
	PG_TRY();
	{
		counting = idem_shared_memory(name, sizeof(Counting), init_counting);
		ReleaseCurrentSubTransaction();
	}
	PG_CATCH();
	{
		ErrorData  *error;

		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		FlushErrorState();
		RollbackAndReleaseCurrentSubTransaction();
		ereport(LOG,
				(errmsg("idem_action counts nothing in this session"),
				 errdetail("There is no shared memory for its counters: %s", error->message)));
	}
	PG_END_TRY();
	MemoryContextSwitchTo(context);
	CurrentResourceOwner = owner;
	return counting != NULL;
}

/* ---- slots ---- */

static bool
is_slot_of(const Slot *slot, ContractKind kind, uint64 name)
{
	return slot->database == MyDatabaseId && slot->kind == kind && slot->name == name;
}

/* the slot of a name of this database, or NULL; *is_full: nor is one free */
static Slot *
find_slot(ContractKind kind, uint64 name, bool *is_full)
{
	Slot	   *found = NULL;

	*is_full = true;
	LWLockAcquire(AddinShmemInitLock, LW_SHARED);
	for (int i = 0; i < IDEM_OBSERVE_SLOTS && found == NULL; i++)
	{
		if (is_slot_of(&counting->slots[i], kind, name))
			found = &counting->slots[i];
		else if (counting->slots[i].database == InvalidOid)
			*is_full = false;
	}
	LWLockRelease(AddinShmemInitLock);
	return found;
}

/* likewise, but takes one of its former owner; invalid: a free one */
static Slot *
take_slot(ContractKind kind, uint64 name, Oid former)
{
	Slot	   *found = NULL;
	Slot	   *taken = NULL;

	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	for (int i = 0; i < IDEM_OBSERVE_SLOTS && found == NULL; i++)
	{
		if (is_slot_of(&counting->slots[i], kind, name))
			found = &counting->slots[i];
		else if (taken == NULL && counting->slots[i].database == former)
			taken = &counting->slots[i];
	}
	if (found == NULL && taken != NULL)
	{
		clear_slot(taken, GetCurrentTimestamp());
		taken->database = MyDatabaseId;
		taken->kind = kind;
		taken->name = name;
		found = taken;
	}
	LWLockRelease(AddinShmemInitLock);
	return found;
}

/* a database that has slots and was dropped, or invalid */
static Oid
dropped_database(void)
{
	Oid		   *databases = palloc(IDEM_OBSERVE_SLOTS * sizeof(Oid));

	LWLockAcquire(AddinShmemInitLock, LW_SHARED);
	for (int i = 0; i < IDEM_OBSERVE_SLOTS; i++)
		databases[i] = counting->slots[i].database;
	LWLockRelease(AddinShmemInitLock);

	for (int i = 0; i < IDEM_OBSERVE_SLOTS; i++)
		if (OidIsValid(databases[i]) &&
			!SearchSysCacheExists1(DATABASEOID, ObjectIdGetDatum(databases[i])))
			return databases[i];
	return InvalidOid;
}

static uint64
hash_name(const char *name, int length)
{
	return hash_bytes_extended((const unsigned char *) name, length, 0);
}

/* where to count what happens to an operation or a consumer; it stays there */
pg_atomic_uint64 *
idem_observe_counters(ContractKind kind, const char *name, int length)
{
	static Slot nowhere;		/* counted, and shown to nobody */
	uint64		hash = hash_name(name, length);
	Slot	   *slot;
	Oid			dropped;

	if (!attach_counters())
	{
		init_slot(&nowhere);
		return nowhere.counters;
	}
	slot = take_slot(kind, hash, InvalidOid);
	if (slot == NULL && (dropped = dropped_database()) != InvalidOid)
		slot = take_slot(kind, hash, dropped);
	if (slot == NULL)
		slot = &counting->others[kind];
	return slot->counters;
}

/* ---- looking ---- */

/* the counter that a column shows, or -1 */
static int
counter_named(ContractKind kind, const char *column)
{
	const char *const *outcomes = kind == KIND_OPERATION ?
		idem_outcome_names : idem_consumption_names;
	int			noutcomes = kind == KIND_OPERATION ? NOUTCOMES : NCONSUMPTIONS;

	for (int i = 0; i < noutcomes; i++)
		if (strcmp(outcomes[i], column) == 0)
			return i;
	for (int i = NOUTCOMES; kind == KIND_OPERATION && i < NCOUNTERS; i++)
		if (strcmp(counter_names[i], column) == 0)
			return i;
	return -1;
}

static bool
is_used(Slot *slot)
{
	for (int i = 0; i < NCOUNTERS; i++)
		if (pg_atomic_read_u64(&slot->counters[i]) != 0)
			return true;
	return false;
}

/*
 * The slot that tells of a name, or of the others if it is null.  NULL where
 * nothing is known: nothing can be counted, the name shares a slot with
 * others, or there are no others.  NULL too, and *is_zero, where nothing was
 * counted of the name yet.
 */
static Slot *
told_slot(FunctionCallInfo fcinfo, ContractKind kind, bool *is_zero)
{
	Slot	   *slot;
	bool		is_full;
	text	   *name;

	*is_zero = false;
	if (!attach_counters())
		return NULL;
	if (PG_ARGISNULL(0))
		return is_used(&counting->others[kind]) ? &counting->others[kind] : NULL;
	name = PG_GETARG_TEXT_PP(0);
	slot = find_slot(kind, hash_name(VARDATA_ANY(name), VARSIZE_ANY_EXHDR(name)), &is_full);
	*is_zero = slot == NULL && !is_full;
	return slot;
}

/* counters are of all tenants together */
static void
check_access(FunctionCallInfo fcinfo, int kinds)
{
	Home		home;

	idem_home(fcinfo, &home);
	idem_access_check_all(&home, kinds);
}

/* a row of counters, each in the column of its name, and since when they count */
static Datum
counters_datum(FunctionCallInfo fcinfo, ContractKind kind)
{
	TupleDesc	desc;
	Datum	   *values;
	bool	   *nulls;
	bool		is_zero;
	Slot	   *slot;

	check_access(fcinfo, ACCESS_ANY);
	slot = told_slot(fcinfo, kind, &is_zero);
	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	values = palloc0(desc->natts * sizeof(Datum));
	nulls = palloc0(desc->natts * sizeof(bool));
	for (int i = 0; i < desc->natts; i++)
	{
		const char *column = NameStr(TupleDescAttr(desc, i)->attname);
		int			counter = counter_named(kind, column);

		nulls[i] = slot == NULL && !is_zero;
		if (nulls[i])
			continue;
		if (counter >= 0)
			values[i] = UInt64GetDatum(slot == NULL ? 0 :
									   pg_atomic_read_u64(&slot->counters[counter]));
		else if (strcmp(column, "stats_reset") == 0)
			values[i] = TimestampTzGetDatum(slot == NULL ? counting->started_at :
											(TimestampTz) pg_atomic_read_u64(&slot->reset_at));
		else
			elog(ERROR, "nothing is counted under the name \"%s\"", column);
	}
	return HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(desc), values, nulls));
}

PG_FUNCTION_INFO_V1(idem_stat_operation);
Datum
idem_stat_operation(PG_FUNCTION_ARGS)
{
	return counters_datum(fcinfo, KIND_OPERATION);
}

PG_FUNCTION_INFO_V1(idem_stat_consumer);
Datum
idem_stat_consumer(PG_FUNCTION_ARGS)
{
	return counters_datum(fcinfo, KIND_CONSUMER);
}

/* memory of this server only, so a standby and a read-only transaction may */
PG_FUNCTION_INFO_V1(idem_stat_reset);
Datum
idem_stat_reset(PG_FUNCTION_ARGS)
{
	TimestampTz now = GetCurrentTimestamp();

	check_access(fcinfo, ACCESS_OPERATOR);
	if (!attach_counters())
		PG_RETURN_VOID();
	LWLockAcquire(AddinShmemInitLock, LW_SHARED);
	for (int i = 0; i < IDEM_OBSERVE_SLOTS; i++)
		if (counting->slots[i].database == MyDatabaseId)
			clear_slot(&counting->slots[i], now);
	LWLockRelease(AddinShmemInitLock);
	PG_RETURN_VOID();
}
