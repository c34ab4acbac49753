/*
 * look.c
 *		Finding a row of ours by its key.
 *
 * Every table that is asked on the way of a message has an idem_key as its
 * first column and primary key, and is looked up here without a statement.
 *
 * Looking goes straight to the primary key.  At READ COMMITTED under a
 * snapshot taken for the look.  Under REPEATABLE READ and SERIALIZABLE by a
 * dirty look at the index, which locks no page of it against serializable
 * neighbours, and then by TID under the transaction's snapshot: a row that
 * is committed but newer than the snapshot is a serialization failure at
 * once, never a miss.
 *
 * What is found may have been committed without waiting for the disk.
 * Since whoever asks acts on the answer (acknowledges, parks), the commit is
 * flushed first.  The hint bits do not tell: they may be set before.
 *
 * The caller pushes the snapshot of the look and owns the copied row.
 */
#include "idem_action.h"

#include "access/genam.h"
#include "access/heapam.h"
#include "access/heaptoast.h"
#include "access/stratnum.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/transam.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/pg_am.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#define ROUNDS_MAX 10000

/* the columns that this library knows stand first, in its order; a later release may add some */
static void
check_columns(Relation relation, int ncolumns)
{
	TupleDesc	desc = RelationGetDescr(relation);
	bool		is_fit = desc->natts >= ncolumns;

	for (int i = 0; is_fit && i < ncolumns; i++)
		is_fit = !TupleDescAttr(desc, i)->attisdropped;
	if (!is_fit)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("table \"%s\" of extension idem_action has not the columns of this release",
						RelationGetRelationName(relation)),
				 errhint("Run ALTER EXTENSION idem_action UPDATE, or restore the table from a dump.")));
}

Relation
idem_look_open(const Home *home, const char *name, int ncolumns, LOCKMODE lock)
{
	Relation	relation = table_open(idem_home_relation(home, name), lock);

	if (relation->rd_rel->relkind != RELKIND_RELATION ||
		relation->rd_rel->relam != HEAP_TABLE_AM_OID ||
		relation->rd_rel->relpersistence != RELPERSISTENCE_PERMANENT)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("table \"%s\" of extension idem_action is not a plain, logged heap table", name),
				 errhint("Restore it from a dump as CREATE EXTENSION makes it.")));
	check_columns(relation, ncolumns);
	return relation;
}

/* all of a row's values, as many as the table has columns */
void
idem_look_values(Relation relation, HeapTuple tuple, Datum **values, bool **nulls)
{
	TupleDesc	desc = RelationGetDescr(relation);

	*values = palloc(desc->natts * sizeof(Datum));
	*nulls = palloc(desc->natts * sizeof(bool));
	heap_deform_tuple(tuple, desc, *values, *nulls);
}

/*
 * Puts the commit of a row on disk, and of a frozen one the page: freezing
 * is logged after the commit, so a page on disk has it.
 */
static void
flush_commit(HeapTuple tuple, Buffer buffer)
{
	TransactionId xmin = HeapTupleHeaderGetXmin(tuple->t_data);
	XLogRecPtr	lsn;

	if (RecoveryInProgress())
		return;
	if (TransactionIdIsNormal(xmin))
		lsn = TransactionIdGetCommitLSN(xmin);
	else
		lsn = BufferGetLSNAtomic(buffer);
	if (!XLogRecPtrIsInvalid(lsn))
		XLogFlush(lsn);
}

static HeapTuple
take_tuple(Relation relation, HeapTuple tuple, Buffer buffer, bool *is_own)
{
	*is_own = TransactionIdIsCurrentTransactionId(HeapTupleHeaderGetXmin(tuple->t_data));
	if (!*is_own)
		flush_commit(tuple, buffer);
	if (HeapTupleHasExternal(tuple))
		return toast_flatten_tuple(tuple, RelationGetDescr(relation));
	return heap_copytuple(tuple);
}

static SysScanDesc
begin_look(Relation relation, const IdemKey *key, Snapshot snapshot)
{
	static FmgrInfo equal = {.fn_addr = idem_key_eq,.fn_nargs = 2,.fn_strict = true};
	Oid			index = idem_primary_key(relation);
	ScanKeyData scankey;

	if (!OidIsValid(index))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("table \"%s\" of extension idem_action has no primary key",
						RelationGetRelationName(relation))));
	/* the index takes its ordering function from its own operator class */
	ScanKeyEntryInitializeWithInfo(&scankey, 0, 1, BTEqualStrategyNumber,
								   InvalidOid, InvalidOid, &equal, PointerGetDatum(key));
	return systable_beginscan(relation, index, true, snapshot, 1, &scankey);
}

static Buffer
scan_buffer(SysScanDesc scan)
{
	return ((BufferHeapTupleTableSlot *) scan->slot)->buffer;
}

static HeapTuple
look_committed(Relation relation, const IdemKey *key, bool *is_own)
{
	SysScanDesc scan = begin_look(relation, key, GetActiveSnapshot());
	HeapTuple	tuple = systable_getnext(scan);

	if (HeapTupleIsValid(tuple))
		tuple = take_tuple(relation, tuple, scan_buffer(scan), is_own);
	systable_endscan(scan);
	return tuple;
}

void
idem_look_refuse_newer(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
			 errmsg("could not serialize access due to concurrent update"),
			 errdetail("The record of the action is newer than the transaction's snapshot."),
			 errhint("The transaction might succeed if retried.")));
}

/*
 * A row that somebody else is inserting (the dirty snapshot carries its
 * inserter) is no answer: whoever wants the key finds out by inserting.  But
 * if he committed before the look ended, the version before his may have
 * been passed over as well, and nothing found does not mean a miss.
 */
static HeapTuple
look_by_snapshot(Relation relation, const IdemKey *key, bool *is_own)
{
	SnapshotData dirty;
	SysScanDesc scan;
	HeapTuple	tuple;
	HeapTuple	found = NULL;
	bool		is_newer = false;
	TransactionId writer = InvalidTransactionId;
	TupleTableSlot *slot = table_slot_create(relation, NULL);

	InitDirtySnapshot(dirty);
	scan = begin_look(relation, key, &dirty);
	while (found == NULL && HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		if (TransactionIdIsValid(dirty.xmin))
			writer = dirty.xmin;
		else if (table_tuple_fetch_row_version(relation, &tuple->t_self, GetActiveSnapshot(), slot))
			found = take_tuple(relation, tuple, scan_buffer(scan), is_own);
		else
			is_newer = true;
	}
	systable_endscan(scan);
	ExecDropSingleTupleTableSlot(slot);

	if (found == NULL && (is_newer || TransactionIdDidCommit(writer)))
		idem_look_refuse_newer();
	return found;
}

HeapTuple
idem_look(Relation relation, const IdemKey *key, bool *is_own)
{
	if (IsolationUsesXactSnapshot())
		return look_by_snapshot(relation, key, is_own);
	return look_committed(relation, key, is_own);
}

/*
 * Before each round of a call that looks until nobody is faster.  A round
 * follows from somebody else's commit, so there are few of them, unless a
 * trigger that was put on our tables swallows what is written.
 */
void
idem_look_again(int *rounds)
{
	CHECK_FOR_INTERRUPTS();
	if (++*rounds > ROUNDS_MAX)
		elog(ERROR, "a row of extension idem_action changes, or is swallowed, at every look");
}

/*
 * Locks a row that was found, waiting for whoever has it unless nowait.
 * STORE_CHANGED: it is not what was found any more.
 */
StoreResult
idem_look_lock(Relation relation, ItemPointerData tid, LockTupleMode mode, bool nowait)
{
	TupleTableSlot *slot = table_slot_create(relation, NULL);
	TM_FailureData failure;
	TM_Result	result;

	PushActiveSnapshot(GetTransactionSnapshot());
	result = table_tuple_lock(relation, &tid, GetActiveSnapshot(), slot,
							  GetCurrentCommandId(true), mode,
							  nowait ? LockWaitSkip : LockWaitBlock, 0, &failure);
	PopActiveSnapshot();
	ExecDropSingleTupleTableSlot(slot);

	switch (result)
	{
		case TM_Ok:
			return STORE_DONE;
		case TM_WouldBlock:
			return STORE_HELD;
		case TM_Updated:
		case TM_Deleted:
			if (IsolationUsesXactSnapshot())
				idem_look_refuse_newer();
			return STORE_CHANGED;
		default:
			elog(ERROR, "unexpected result %d of locking a row", (int) result);
	}
}
