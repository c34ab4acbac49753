/*
 * due.c
 *		store: what is due.
 *
 * The rows of idem_lease that a dispatcher may take, found by the index
 * idem_lease_due: the operation, then lease_until of an action in processing,
 * or else due_at of one that waits.  An action in review has neither.  Four
 * ranges of that index are scanned:
 *
 *	- times too far ahead to be believed (see state.h), which a clock left
 *	  behind that has been set back since.  They come first, as nobody knows
 *	  how old they are;
 *	- leases that have lapsed, and waits that are over, merged by their time.
 *
 * Nothing else is read, so what a call costs depends on the rows it is given:
 * not on those that are not due, nor on finished actions, which have no row
 * here, nor on what the planner believes.
 *
 * What is found is a hint.  Whoever takes it locks the row, without waiting,
 * and looks again.
 *
 * At READ COMMITTED the scan has a snapshot of its own.  Under REPEATABLE READ
 * and SERIALIZABLE it is a dirty one, which locks no page of the index, and of
 * its rows those are passed over that the transaction's snapshot does not see:
 * see look.c.
 *
 * The scan lives in the memory context in which it was begun, and must be
 * ended.
 */
#include "idem_action.h"

#include "access/genam.h"
#include "access/relscan.h"
#include "access/stratnum.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/pg_am.h"
#include "miscadmin.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

enum							/* columns of idem_lease_due */
{
	DUE_OPERATION = 1, DUE_LEASE_UNTIL, DUE_DUE_AT, DUE_COLUMNS = DUE_DUE_AT
};

#define LEASE_KEY 1				/* of idem_lease, as of every table of ours */

enum							/* in the order in which they are served */
{
	LEASE_BEYOND, WAIT_BEYOND, LEASE_LAPSED, WAIT_OVER, NRANGES
};

typedef struct Range
{
	IndexScanDesc scan;			/* NULL: nothing is left */
	TupleTableSlot *slot;		/* its next row, unless it is empty */
	TimestampTz time;			/* of that row */
} Range;

struct Due
{
	MemoryContext context;		/* of the scan */
	Relation	lease;			/* idem_lease, open in the store */
	Relation	index;			/* idem_lease_due */
	Snapshot	snapshot;		/* what may be taken is visible to it */
	SnapshotData dirty;			/* for the scan, under a snapshot of the
								 * transaction */
	bool		is_dirty;		/* is it used? */
	Range		ranges[NRANGES];
	ItemPointerData tid;		/* of the row handed out last */
};

/* ---- opening ---- */

static Relation
open_index(Store *store, Relation lease)
{
	Oid			relid = get_relname_relid("idem_lease_due", store->home.schema);
	Relation	index = OidIsValid(relid) ? index_open(relid, AccessShareLock) : NULL;

	if (index == NULL || index->rd_rel->relam != BTREE_AM_OID || !index->rd_index->indisvalid ||
		index->rd_index->indrelid != RelationGetRelid(lease) ||
		IndexRelationGetNumberOfKeyAttributes(index) != DUE_COLUMNS)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("table \"idem_lease\" of extension idem_action has not the index \"idem_lease_due\""),
				 errdetail("What is due is found by it alone."),
				 errhint("Create it as CREATE EXTENSION does, or REINDEX it if it is invalid.")));
	return index;
}

static void
begin_range(Due *due, int n, text *operation, StrategyNumber strategy, TimestampTz bound)
{
	Range	   *range = &due->ranges[n];
	bool		is_lease = n == LEASE_BEYOND || n == LEASE_LAPSED;
	RegProcedure compare = strategy == BTGreaterStrategyNumber ? F_TIMESTAMPTZ_GT : F_TIMESTAMPTZ_LE;
	ScanKeyData keys[DUE_COLUMNS];
	int			nkeys = 0;

	ScanKeyInit(&keys[nkeys++], DUE_OPERATION, BTEqualStrategyNumber, F_TEXTEQ,
				PointerGetDatum(operation));
	if (!is_lease)
		ScanKeyEntryInitialize(&keys[nkeys++], SK_ISNULL | SK_SEARCHNULL, DUE_LEASE_UNTIL,
							   InvalidStrategy, InvalidOid, InvalidOid, InvalidOid, (Datum) 0);
	ScanKeyInit(&keys[nkeys++], is_lease ? DUE_LEASE_UNTIL : DUE_DUE_AT, strategy, compare,
				TimestampTzGetDatum(bound));

	range->scan = idem_index_beginscan(due->lease, due->index,
									   due->is_dirty ? &due->dirty : due->snapshot, nkeys);
	range->scan->xs_want_itup = true;
	index_rescan(range->scan, keys, nkeys, NULL, 0);
	range->slot = table_slot_create(due->lease, NULL);
}

/* a time that no clock that was right can have recorded by now */
static TimestampTz
beyond(TimestampTz now, int64 bound)
{
	return now > TIME_FOREVER - bound ? TIME_FOREVER : now + bound;
}

/* what is due of an operation at a moment; the operation must stay where it is meanwhile */
Due *
idem_due_begin(Store *store, text *operation, TimestampTz now)
{
	Due		   *due = palloc0(sizeof(Due));

	due->context = CurrentMemoryContext;
	due->lease = idem_store_lease(store);
	due->index = open_index(store, due->lease);
	due->is_dirty = IsolationUsesXactSnapshot();
	InitDirtySnapshot(due->dirty);
	/* a copy, which does not come to see what is written meanwhile */
	PushActiveSnapshot(GetTransactionSnapshot());
	due->snapshot = RegisterSnapshot(GetActiveSnapshot());
	PopActiveSnapshot();

	begin_range(due, LEASE_BEYOND, operation, BTGreaterStrategyNumber, beyond(now, LEASE_MAX));
	begin_range(due, WAIT_BEYOND, operation, BTGreaterStrategyNumber, beyond(now, DUE_MAX));
	begin_range(due, LEASE_LAPSED, operation, BTLessEqualStrategyNumber, now);
	begin_range(due, WAIT_OVER, operation, BTLessEqualStrategyNumber, now);
	return due;
}

static void
end_range(Range *range)
{
	if (range->scan == NULL)
		return;
	index_endscan(range->scan);
	ExecDropSingleTupleTableSlot(range->slot);
	range->scan = NULL;
}

void
idem_due_end(Due *due)
{
	for (int n = 0; n < NRANGES; n++)
		end_range(&due->ranges[n]);
	index_close(due->index, AccessShareLock);
	UnregisterSnapshot(due->snapshot);
	pfree(due);
}

/* ---- scanning ---- */

static bool
is_visible(const Due *due, TupleTableSlot *slot)
{
	ItemPointerData tid = slot->tts_tid;

	return !due->is_dirty ||
		table_tuple_fetch_row_version(due->lease, &tid, due->snapshot, slot);
}

/* the range's next row into its slot; ends it when there is none */
static void
advance(Due *due, int n)
{
	Range	   *range = &due->ranges[n];
	int			column = n == LEASE_BEYOND || n == LEASE_LAPSED ? DUE_LEASE_UNTIL : DUE_DUE_AT;
	bool		is_null;

	while (index_getnext_slot(range->scan, ForwardScanDirection, range->slot))
	{
		/* the index tuple is the scan's only until it moves on */
		range->time = DatumGetTimestampTz(index_getattr(range->scan->xs_itup, column,
														range->scan->xs_itupdesc, &is_null));
		if (is_visible(due, range->slot))
			return;
	}
	end_range(range);
}

static void
fill(Due *due)
{
	MemoryContext old = MemoryContextSwitchTo(due->context);

	for (int n = 0; n < NRANGES; n++)
		if (due->ranges[n].scan != NULL && TTS_EMPTY(due->ranges[n].slot))
			advance(due, n);
	MemoryContextSwitchTo(old);
}

static Range *
first_range(Due *due)
{
	Range	   *lapsed = &due->ranges[LEASE_LAPSED];
	Range	   *over = &due->ranges[WAIT_OVER];

	if (due->ranges[LEASE_BEYOND].scan != NULL)
		return &due->ranges[LEASE_BEYOND];
	if (due->ranges[WAIT_BEYOND].scan != NULL)
		return &due->ranges[WAIT_BEYOND];
	if (over->scan == NULL || (lapsed->scan != NULL && lapsed->time <= over->time))
		return lapsed;
	return over;
}

/* the key of the next row, copied into the current context; NULL: there is none */
const IdemKey *
idem_due_next(Due *due)
{
	Range	   *range;
	Datum		key;
	bool		is_null;

	CHECK_FOR_INTERRUPTS();
	fill(due);
	range = first_range(due);
	if (range->scan == NULL)
		return NULL;
	due->tid = range->slot->tts_tid;
	key = slot_getattr(range->slot, LEASE_KEY, &is_null);
	key = PointerGetDatum(PG_DETOAST_DATUM_COPY(key));
	ExecClearTuple(range->slot);
	return (IdemKey *) DatumGetPointer(key);
}

/* locks the row handed out last, if nobody has it and it is as it was found */
StoreResult
idem_due_lock(Due *due)
{
	return idem_look_lock(due->lease, due->tid, LockTupleExclusive, true);
}
