/*
 * partition.c
 *		The record of how far a consumer has come in a partition of a log.
 *
 * idem_progress has a row a partition: who owns it (a generation) and up to
 * where was fetched.  idem_progress_offset has a row for each offset that was
 * fetched and is not done, nothing else: being done means that the row is
 * gone.  So what is kept, and what each call costs, depends on what is open,
 * not on what ever was.
 *
 * What must hold:
 *
 *	- whoever works on a partition holds its lock until his transaction ends:
 *	  workers in a mode that they share, who fetches in one that workers
 *	  share with him but nobody else who fetches, who assigns in one that
 *	  shuts out all of them.  It is a tuple lock of a place where no tuple
 *	  is, derived from the key, so that sharing it writes nothing;
 *	- under that lock the newest row of the partition is the one that counts,
 *	  also where the transaction's snapshot is older.  So rows are looked for
 *	  with a dirty snapshot, which also locks no index page against
 *	  serializable neighbours; what somebody is about to insert is not there
 *	  yet, what somebody is about to delete still is;
 *	- writing goes by ctid under the transaction's snapshot.  What is newer
 *	  than that is 40001;
 *	- who is told that an offset is done relies on it, so the commits that
 *	  made it so are flushed first (idem_partition_flush()).
 *
 * Locks: that one, and RowExclusiveLock (who only reads: AccessShareLock) on
 * both tables, until the transaction ends.
 */
#include "idem_action.h"
#include "row.h"

#include "access/genam.h"
#include "access/stratnum.h"
#include "access/table.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "access/xlog_internal.h"
#include "catalog/pg_type.h"
#include "common/hashfn.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/fmgrprotos.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

enum							/* columns of idem_progress, from 0 */
{
	PROGRESS_KEY, PROGRESS_GENERATION, PROGRESS_EPOCH, PROGRESS_FORMER_EPOCHS,
	PROGRESS_POSITION, PROGRESS_DELIVERED, PROGRESS_LOWEST, PROGRESS_COLUMNS
};

enum							/* columns of idem_progress_offset, from 0 */
{
	OFFSET_KEY, OFFSET_RECORD_OFFSET, OFFSET_FETCHED_AT, OFFSET_COLUMNS
};

static Statement insert_partition = {
	"INSERT INTO %1$s.idem_progress"
	" (key, generation, epoch, former_epochs, \"position\", delivered, lowest)"
	" VALUES ($1, $2, $3, $4, $5, $6, $7)",
	7, {TEXTOID, INT8OID, TEXTOID, TEXTARRAYOID, INT8OID, INT8OID, INT8OID}, SPI_OK_INSERT
};

static Statement update_partition = {
	"UPDATE %1$s.idem_progress SET generation = $2, epoch = $3, former_epochs = $4,"
	" \"position\" = $5, delivered = $6, lowest = $7 WHERE ctid OPERATOR(pg_catalog.=) $1",
	7, {TIDOID, INT8OID, TEXTOID, TEXTARRAYOID, INT8OID, INT8OID, INT8OID}, SPI_OK_UPDATE
};

static Statement insert_offsets = {
	"INSERT INTO %1$s.idem_progress_offset (key, record_offset, fetched_at)"
	" SELECT $1, record_offset, $3 FROM pg_catalog.unnest($2) record_offset",
	3, {TEXTOID, INT8ARRAYOID, TIMESTAMPTZOID}, SPI_OK_INSERT
};

static Statement delete_offsets = {
	"DELETE FROM %1$s.idem_progress_offset WHERE ctid OPERATOR(pg_catalog.=) ANY ($1)"
	" RETURNING record_offset",
	1, {TIDARRAYOID}, SPI_OK_DELETE_RETURNING
};

/* ---- opening and locking ---- */

void
idem_partition_open(Partition *partition, const Home *home, const IdemKey *key, bool is_writer)
{
	LOCKMODE	lock = is_writer ? RowExclusiveLock : AccessShareLock;

	memset(partition, 0, sizeof(Partition));
	partition->home = *home;
	partition->key = key;
	partition->relation = idem_look_open(home, "idem_progress", PROGRESS_COLUMNS, lock);
	partition->offsets = idem_look_open(home, "idem_progress_offset", OFFSET_COLUMNS, lock);
}

void
idem_partition_close(Partition *partition)
{
	table_close(partition->offsets, NoLock);
	table_close(partition->relation, NoLock);
}

/*
 * Two keys of one hash wait for each other now and then, which is harmless.
 * No page has as many tuples as the number says, so no tuple is meant by it.
 */
void
idem_partition_lock(const Partition *partition, LOCKMODE mode)
{
	uint64		hash = hash_bytes_extended((const unsigned char *) VARDATA_ANY(partition->key),
										   VARSIZE_ANY_EXHDR(partition->key), 0);
	ItemPointerData place;

	ItemPointerSet(&place, (BlockNumber) (hash >> 32), 0x8000 | (hash & 0x7fff));
	LockTuple(partition->relation, &place, mode);
}

/* ---- looking ---- */

static SysScanDesc
begin_scan(Relation relation, const IdemKey *key, Snapshot snapshot, int64 from)
{
	static FmgrInfo equal = {.fn_addr = idem_key_eq,.fn_nargs = 2,.fn_strict = true};
	Oid			index = idem_primary_key(relation);
	int			nkeys = from < 0 ? 1 : 2;
	ScanKeyData keys[2];

	if (!OidIsValid(index))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("table \"%s\" of extension idem_action has no primary key",
						RelationGetRelationName(relation))));
	ScanKeyEntryInitializeWithInfo(&keys[0], 0, 1, BTEqualStrategyNumber,
								   InvalidOid, InvalidOid, &equal, PointerGetDatum(key));
	if (from >= 0)
		ScanKeyInit(&keys[1], OFFSET_RECORD_OFFSET + 1, BTGreaterEqualStrategyNumber, F_INT8GE,
					Int64GetDatum(from));
	return systable_beginscan(relation, index, true, snapshot, nkeys, keys);
}

static void
read_partition(Partition *partition, HeapTuple tuple)
{
	Datum	   *values;
	bool	   *nulls;

	idem_look_values(partition->relation, heap_copytuple(tuple), &values, &nulls);
	partition->tid = tuple->t_self;
	partition->generation = DatumGetInt64(values[PROGRESS_GENERATION]);
	partition->epoch = DatumGetTextPP(values[PROGRESS_EPOCH]);
	partition->former_epochs = DatumGetArrayTypeP(values[PROGRESS_FORMER_EPOCHS]);
	partition->is_placed = !nulls[PROGRESS_POSITION];
	partition->position = partition->is_placed ? DatumGetInt64(values[PROGRESS_POSITION]) : 0;
	partition->delivered = DatumGetInt64(values[PROGRESS_DELIVERED]);
	partition->lowest = DatumGetInt64(values[PROGRESS_LOWEST]);
}

/*
 * The version that is committed, or our own.  Finding none is conclusive for
 * whoever shuts out everybody else.
 */
bool
idem_partition_look(Partition *partition)
{
	SnapshotData dirty;
	SysScanDesc scan;
	HeapTuple	tuple;
	bool		is_found = false;

	InitDirtySnapshot(dirty);
	scan = begin_scan(partition->relation, partition->key, &dirty, -1);
	while (!is_found && HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		is_found = !TransactionIdIsValid(dirty.xmin);
		if (is_found)
			read_partition(partition, tuple);
	}
	systable_endscan(scan);
	return is_found;
}

/*
 * A dirty look can miss a row that is updated meanwhile: the version before
 * is over by the time it comes to it, and the new one was not there yet.  A
 * look through a snapshot cannot.
 */
static bool
is_there(const Partition *partition)
{
	Snapshot	latest = RegisterSnapshot(GetLatestSnapshot());
	SysScanDesc scan = begin_scan(partition->relation, partition->key, latest, -1);
	bool		is_found = HeapTupleIsValid(systable_getnext(scan));

	systable_endscan(scan);
	UnregisterSnapshot(latest);
	return is_found;
}

/* false: it was never assigned */
bool
idem_partition_find(Partition *partition)
{
	int			rounds = 0;

	while (!idem_partition_look(partition))
	{
		if (!is_there(partition))
			return false;
		idem_look_again(&rounds);
	}
	return true;
}

/*
 * The open offsets from one up to, not including, another, in order; at most
 * max of them.
 */
OpenOffset *
idem_partition_read(const Partition *partition, int64 from, int64 until, int max, int *n)
{
	int			size = Min(max, 64);
	OpenOffset *found = palloc(size * sizeof(OpenOffset));
	TupleDesc	desc = RelationGetDescr(partition->offsets);
	SnapshotData dirty;
	SysScanDesc scan;
	HeapTuple	tuple;

	*n = 0;
	InitDirtySnapshot(dirty);
	scan = begin_scan(partition->offsets, partition->key, &dirty, from);
	while (*n < max && HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		bool		isnull;
		int64		offset;

		CHECK_FOR_INTERRUPTS();
		if (TransactionIdIsValid(dirty.xmin))
			continue;
		offset = DatumGetInt64(heap_getattr(tuple, OFFSET_RECORD_OFFSET + 1, desc, &isnull));
		if (offset >= until)
			break;
		if (*n == size)
			found = repalloc(found, (size *= 2) * sizeof(OpenOffset));
		found[*n].offset = offset;
		found[(*n)++].tid = tuple->t_self;
	}
	systable_endscan(scan);
	return found;
}

/*
 * The lowest offset that is not done of those that were delivered, or else
 * the one after them.  False: nothing is known.
 */
bool
idem_partition_committable(const Partition *partition, int64 *next_offset)
{
	int			n;
	OpenOffset *first;

	if (!partition->is_placed)
		return false;
	first = idem_partition_read(partition, partition->lowest, partition->position, 1, &n);
	*next_offset = n > 0 ? first[0].offset : partition->position;
	return true;
}

/*
 * Puts on disk whatever was committed before now.  At the start of a page the
 * place where the log goes on stands behind a header that is not written yet.
 */
void
idem_partition_flush(void)
{
	XLogRecPtr	end;

	if (RecoveryInProgress())
		return;
	end = GetXLogInsertRecPtr();
	if (XLogSegmentOffset(end, wal_segment_size) == SizeOfXLogLongPHD)
		end -= SizeOfXLogLongPHD;
	else if (end % XLOG_BLCKSZ == SizeOfXLogShortPHD)
		end -= SizeOfXLogShortPHD;
	XLogFlush(end);
}

/* ---- writing ---- */

/* puts a new partition on record, or what has changed of one that was found */
void
idem_partition_write(const Partition *partition, bool is_new)
{
	ItemPointerData tid = partition->tid;
	Datum		values[7];
	bool		nulls[7] = {false};

	values[0] = is_new ? PointerGetDatum(partition->key) : PointerGetDatum(&tid);
	values[1] = Int64GetDatum(partition->generation);
	values[2] = PointerGetDatum(partition->epoch);
	values[3] = PointerGetDatum(partition->former_epochs);
	values[4] = Int64GetDatum(partition->position);
	nulls[4] = !partition->is_placed;
	values[5] = Int64GetDatum(partition->delivered);
	values[6] = Int64GetDatum(partition->lowest);
	if (idem_statement_run(is_new ? &insert_partition : &update_partition, &partition->home,
						   values, nulls, InvalidSnapshot, NULL, NULL) == 0)
		idem_look_refuse_newer();
}

void
idem_partition_add(const Partition *partition, const int64 *offsets, int n)
{
	Datum	   *elements = palloc(Max(n, 1) * sizeof(Datum));
	Datum		values[3];

	if (n == 0)
		return;
	for (int i = 0; i < n; i++)
		elements[i] = Int64GetDatum(offsets[i]);
	values[0] = PointerGetDatum(partition->key);
	values[1] = PointerGetDatum(construct_array(elements, n, INT8OID, sizeof(int64), FLOAT8PASSBYVAL,
												TYPALIGN_DOUBLE));
	values[2] = TimestampTzGetDatum(GetCurrentTimestamp());
	idem_statement_run(&insert_offsets, &partition->home, values, NULL, InvalidSnapshot, NULL, NULL);
}

typedef struct Removal
{
	OpenOffset *offsets;		/* in order */
	int			n;				/* how many */
	bool	   *is_gone;		/* for each: removed by us */
} Removal;

static int
compare_offsets(const void *a, const void *b)
{
	int64		one = ((const OpenOffset *) a)->offset;
	int64		two = ((const OpenOffset *) b)->offset;

	return (one > two) - (one < two);
}

static void
read_removed(SPITupleTable *table, uint64 rows, void *target)
{
	Removal    *removal = target;

	for (uint64 i = 0; i < rows; i++)
	{
		bool		isnull;
		OpenOffset	removed = {DatumGetInt64(SPI_getbinval(table->vals[i], table->tupdesc, 1, &isnull))};
		OpenOffset *found = bsearch(&removed, removal->offsets, removal->n, sizeof(OpenOffset),
									compare_offsets);

		if (found != NULL)
			removal->is_gone[found - removal->offsets] = true;
	}
}

/*
 * Takes open offsets off the record, waiting for whoever is about to do the
 * same.  Returns the first one that somebody else took off, or -1.
 */
int64
idem_partition_remove(const Partition *partition, OpenOffset *offsets, int n)
{
	Datum	   *elements = palloc(Max(n, 1) * sizeof(Datum));
	Removal		removal = {offsets, n, palloc0(Max(n, 1) * sizeof(bool))};
	Datum		value;

	if (n == 0)
		return -1;
	for (int i = 0; i < n; i++)
		elements[i] = PointerGetDatum(&offsets[i].tid);
	value = PointerGetDatum(construct_array(elements, n, TIDOID, sizeof(ItemPointerData), false,
											TYPALIGN_SHORT));
	idem_statement_run(&delete_offsets, &partition->home, &value, NULL, InvalidSnapshot,
					   read_removed, &removal);
	for (int i = 0; i < n; i++)
	{
		if (removal.is_gone[i])
			continue;
		if (IsolationUsesXactSnapshot())
			idem_look_refuse_newer();
		return offsets[i].offset;
	}
	return -1;
}
