/*
 * fence.c
 *		Keeps replaced owners of a resource out of the caller's tables.
 *
 * The key names any resource; whoever grants its ownership, a broker or
 * idem_progress_assign(), also grants a generation that only grows.  A
 * transaction that passed the fence holds a share lock on the resource's row
 * until it ends, so a newer generation, which must change the row, waits for
 * it: after the newer one has passed, nothing of an older one can commit any
 * more.  Equal generations share the lock.  The one that first brings a newer
 * generation has the row to itself until it ends.
 */
#include "idem_action.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "tcop/utility.h"
#include "utils/builtins.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

typedef struct Fence
{
	int64		generation;		/* the newest seen */
	ItemPointerData tid;		/* of the row that was found */
} Fence;

static Statement insert_fence = {
	"INSERT INTO %1$s.idem_fence (key, generation) VALUES ($1, $2) ON CONFLICT (key) DO NOTHING",
	2, {TEXTOID, INT8OID}, SPI_OK_INSERT
};

static Statement raise_fence = {
	"UPDATE %1$s.idem_fence SET generation = $3 WHERE ctid OPERATOR(pg_catalog.=) $1"
	" AND generation OPERATOR(pg_catalog.=) $2",
	3, {TIDOID, INT8OID, INT8OID}, SPI_OK_UPDATE
};

static bool
find_fence(Relation relation, const IdemKey *key, Fence *fence)
{
	HeapTuple	tuple;
	bool		is_own;
	bool		isnull;

	PushActiveSnapshot(GetTransactionSnapshot());
	tuple = idem_look(relation, key, &is_own);
	PopActiveSnapshot();
	if (!HeapTupleIsValid(tuple))
		return false;
	fence->generation = DatumGetInt64(heap_getattr(tuple, 2, RelationGetDescr(relation), &isnull));
	fence->tid = tuple->t_self;
	return true;
}

static void
refuse_older(const IdemKey *key, int64 generation, int64 newest)
{
	ereport(ERROR,
			(errcode(ERRCODE_IDEM_STALE_GENERATION),
			 errmsg("generation " INT64_FORMAT " of resource \"%s\" is not the newest",
					generation, idem_key_cstring(key)),
			 errdetail("Generation " INT64_FORMAT " has been seen.", newest),
			 errhint("Somebody else owns the resource now: stop, and roll back what was written beside this call.")));
}

/*
 * The row is locked before it is updated, since an UPDATE that waits would go
 * on to hold the newer version, and with it everybody who brings the same
 * generation, although it changes nothing.  Whoever waited for an older
 * owner under a snapshot from before cannot see what that one committed.
 */
static bool
lock_to_raise(Relation relation, const Fence *fence)
{
	bool		is_strict = IsolationUsesXactSnapshot();
	StoreResult result = idem_look_lock(relation, fence->tid, LockTupleNoKeyExclusive, is_strict);

	if (result == STORE_HELD)
	{
		idem_look_lock(relation, fence->tid, LockTupleNoKeyExclusive, false);
		idem_look_refuse_newer();
	}
	return result == STORE_DONE;
}

/* false: somebody was faster, look again */
static bool
pass(const Home *home, Relation relation, const IdemKey *key, int64 generation)
{
	Fence		fence;
	Datum		values[3];

	if (!find_fence(relation, key, &fence))
	{
		values[0] = PointerGetDatum(key);
		values[1] = Int64GetDatum(generation);
		return idem_statement_run(&insert_fence, home, values, NULL, InvalidSnapshot, NULL, NULL) > 0;
	}
	if (generation < fence.generation)
		refuse_older(key, generation, fence.generation);
	if (generation == fence.generation)
		return idem_look_lock(relation, fence.tid, LockTupleShare, false) == STORE_DONE;
	if (!lock_to_raise(relation, &fence))
		return false;

	values[0] = PointerGetDatum(&fence.tid);
	values[1] = Int64GetDatum(fence.generation);
	values[2] = Int64GetDatum(generation);
	return idem_statement_run(&raise_fence, home, values, NULL, InvalidSnapshot, NULL, NULL) > 0;
}

PG_FUNCTION_INFO_V1(idem_fence);
Datum
idem_fence(PG_FUNCTION_ARGS)
{
	const IdemKey *key;
	int64		generation;
	Home		home;
	Relation	relation;
	int			rounds = 0;

	PreventCommandIfReadOnly("idem_fence()");
	key = idem_argument_key(fcinfo, 0);
	idem_home(fcinfo, &home);
	idem_access_check(&home, key, ACCESS_APPLICATION);
	generation = idem_argument_generation(fcinfo, 1);
	if (generation <= 0)
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_STALE_GENERATION),
				 errmsg("no generation of resource \"%s\" is given", idem_key_cstring(key)),
				 errdetail("Generations are 1 or more."),
				 errhint("Pass the generation with which the resource was assigned.")));
	relation = idem_look_open(&home, "idem_fence", 2, RowExclusiveLock);
	while (!pass(&home, relation, key, generation))
		idem_look_again(&rounds);
	table_close(relation, NoLock);
	PG_RETURN_VOID();
}
