/*
 * sweep.c
 *		Taking out what is old.
 *
 * Part of the store: beside store.c and event.c the only file that writes
 * idem_action and idem_event.  What is old is decided by retention.c, which
 * hands over the names with a cut-off each, and a range of blocks; here stand
 * the statements.  What must hold:
 *
 *	- only terminal actions are touched, whatever the cut-off says;
 *	- a row is locked before it is changed, and one that somebody else has
 *	  locked is passed by: nobody is waited for;
 *	- a range of blocks is read and nothing else (a TID range scan), because
 *	  the tables have no index but their primary key.  The rows that are
 *	  locked are changed by the same statement, by their TIDs.
 *
 * Keys are copied into the caller's memory context.
 */
#include "idem_action.h"

#include "catalog/pg_type.h"
#include "storage/bufmgr.h"
#include "access/table.h"
#include "utils/builtins.h"
#include "utils/rel.h"

static const char *const tables[] = {
	[KIND_OPERATION] = "idem_action",
	[KIND_CONSUMER] = "idem_event"
};

/* the range of blocks, the names with their cut-offs, and how many rows at the most */
#define SWEEP_ARGS 5, {TIDOID, TIDOID, TEXTARRAYOID, TIMESTAMPTZARRAYOID, INT8OID}

#define NAMES \
	" JOIN ROWS FROM (pg_catalog.unnest($3), pg_catalog.unnest($4)) AS due (name, until)" \
	" ON due.name OPERATOR(pg_catalog.=) %1$s.idem_key_operation(record.key)"

#define RANGE \
	" WHERE record.ctid OPERATOR(pg_catalog.>=) $1 AND record.ctid OPERATOR(pg_catalog.<) $2"

#define IS_TERMINAL \
	" AND (record.state OPERATOR(pg_catalog.=) 'succeeded' OR record.state OPERATOR(pg_catalog.=) 'rejected')"

#define LOCKED \
	" LIMIT $5 FOR UPDATE OF record SKIP LOCKED))"

static Statement delete_old[] = {
	[KIND_OPERATION] = {
		"DELETE FROM %1$s.idem_action WHERE ctid OPERATOR(pg_catalog.=) ANY (ARRAY("
		"SELECT record.ctid FROM %1$s.idem_action AS record" NAMES RANGE IS_TERMINAL
		" AND GREATEST(record.occurred_at, record.created_at) OPERATOR(pg_catalog.<=) due.until"
		LOCKED " RETURNING key",
		SWEEP_ARGS, SPI_OK_DELETE_RETURNING
	},
	[KIND_CONSUMER] = {
		"DELETE FROM %1$s.idem_event WHERE ctid OPERATOR(pg_catalog.=) ANY (ARRAY("
		"SELECT record.ctid FROM %1$s.idem_event AS record" NAMES RANGE
		" AND GREATEST(record.occurred_at, record.recorded_at) OPERATOR(pg_catalog.<=) due.until"
		LOCKED " RETURNING key",
		SWEEP_ARGS, SPI_OK_DELETE_RETURNING
	}
};

static Statement drop_old[] = {
	[KIND_OPERATION] = {
		"UPDATE %1$s.idem_action SET params = NULL, result = NULL, error = NULL,"
		" result_digest = COALESCE(result_digest, %1$s.idem_digest(COALESCE(result, error)))"
		" WHERE ctid OPERATOR(pg_catalog.=) ANY (ARRAY("
		"SELECT record.ctid FROM %1$s.idem_action AS record" NAMES RANGE IS_TERMINAL
		" AND record.updated_at OPERATOR(pg_catalog.<=) due.until"
		" AND (record.params IS NOT NULL OR record.result IS NOT NULL OR record.error IS NOT NULL)"
		LOCKED,
		SWEEP_ARGS, SPI_OK_UPDATE
	},
	[KIND_CONSUMER] = {
		"UPDATE %1$s.idem_event SET params = NULL, result = NULL,"
		" result_digest = COALESCE(result_digest, %1$s.idem_digest(result))"
		" WHERE ctid OPERATOR(pg_catalog.=) ANY (ARRAY("
		"SELECT record.ctid FROM %1$s.idem_event AS record" NAMES RANGE
		" AND record.recorded_at OPERATOR(pg_catalog.<=) due.until"
		" AND (record.params IS NOT NULL OR record.result IS NOT NULL)"
		LOCKED,
		SWEEP_ARGS, SPI_OK_UPDATE
	}
};

/* locked against changes of effect until the transaction ends, like every writer */
BlockNumber
idem_sweep_open(const Home *home, ContractKind kind)
{
	Relation	relation = table_open(idem_home_relation(home, tables[kind]), RowExclusiveLock);
	BlockNumber nblocks = RelationGetNumberOfBlocks(relation);

	table_close(relation, NoLock);
	return nblocks;
}

static void
copy_keys(SPITupleTable *table, uint64 rows, void *target)
{
	Swept	   *swept = target;
	MemoryContext old = MemoryContextSwitchTo(swept->context);

	swept->keys = palloc(Max(rows, 1) * sizeof(Datum));
	for (uint64 i = 0; i < rows; i++)
	{
		bool		isnull;
		Datum		key = SPI_getbinval(table->vals[i], table->tupdesc, 1, &isnull);

		swept->keys[i] = PointerGetDatum(PG_DETOAST_DATUM_COPY(key));
	}
	MemoryContextSwitchTo(old);
}

static uint64
run(Statement *statement, const Home *home, const Sweep *sweep, StatementReader read, void *target)
{
	ItemPointerData from;
	ItemPointerData until;
	Datum		values[5];

	/*
	 * no row has number 0, so these stand before the first one of their
	 * blocks
	 */
	ItemPointerSet(&from, sweep->from, InvalidOffsetNumber);
	ItemPointerSet(&until, sweep->until, InvalidOffsetNumber);
	values[0] = PointerGetDatum(&from);
	values[1] = PointerGetDatum(&until);
	values[2] = PointerGetDatum(sweep->names);
	values[3] = PointerGetDatum(sweep->cutoffs);
	values[4] = Int64GetDatum(sweep->limit);
	return idem_statement_run(statement, home, values, NULL, InvalidSnapshot, read, target);
}

/* deletes what occurred, and was recorded, no later than its name's cut-off */
void
idem_sweep_delete(const Home *home, const Sweep *sweep, Swept *swept)
{
	swept->context = CurrentMemoryContext;
	swept->rows = run(&delete_old[sweep->kind], home, sweep, copy_keys, swept);
}

/* drops results and parameters of what has been settled since before its name's cut-off */
uint64
idem_sweep_drop(const Home *home, const Sweep *sweep)
{
	return run(&drop_old[sweep->kind], home, sweep, NULL, NULL);
}
