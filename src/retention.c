/*
 * retention.c
 *		Deleting what contracts no longer want kept.
 *
 * One call goes over the tables from where the last one stopped, deletes or
 * empties what is due, and stops when it has touched as many rows, or read as
 * many pages, as it may.  So each call is bounded, also in what it examines.
 *
 * What must hold:
 *
 *	- identity goes only together with a watermark of its tenant and name at
 *	  the cut-off, raised in the same transaction (see watermark.c);
 *	- evidence goes together with the action it speaks of;
 *	- nobody is waited for, so that no purge takes part in a deadlock.  Rows
 *	  that others hold are passed by (sweep.c).  Watermarks are written by
 *	  purges only, and of each table by one purge at a time: whoever finds the
 *	  table's position locked leaves that table to its holder;
 *	- who waits for a purge (an insert of a key whose record is just being
 *	  deleted) waits for one call.
 *
 * The position of each table, and of each name that is purged by itself, is a
 * row of idem_purge_position.  It is no part of a dump.
 *
 * Locks: RowExclusiveLock on the tables until the transaction ends, and the
 * position's row.  Memory is the caller's, per call.
 */
#include "idem_action.h"
#include "row.h"

#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "tcop/utility.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#define ROWS_MAX 1000000
#define PAGES_AT_ONCE 128

typedef struct Purge
{
	Home		home;			/* where it is */
	TimestampTz now;			/* when the call began; cut-offs count from it */
	text	   *name;			/* of the only operation and consumer, or NULL */
	int64		rows;			/* that may still be touched */
	int64		pages;			/* that may still be read */
	int64		results_dropped;	/* what was done so far */
	int64		actions_deleted;
	int64		events_deleted;
	int64		evidence_deleted;
	bool		is_done;		/* every table was walked to its end */
} Purge;

static Statement lock_position = {
	"SELECT block FROM %1$s.idem_purge_position"
	" WHERE relation OPERATOR(pg_catalog.=) $1 AND name OPERATOR(pg_catalog.=) $2"
	" FOR UPDATE SKIP LOCKED",
	2, {TEXTOID, TEXTOID}, SPI_OK_SELECT
};

static Statement set_position = {
	"INSERT INTO %1$s.idem_purge_position AS old (relation, name, block) VALUES ($1, $2, $3)"
	" ON CONFLICT (relation, name) DO UPDATE SET block = excluded.block"
	" WHERE old.block OPERATOR(pg_catalog.<>) excluded.block",
	3, {TEXTOID, TEXTOID, INT8OID}, SPI_OK_INSERT
};

/* ---- positions ---- */

static void
read_block(SPITupleTable *table, uint64 rows, void *target)
{
	bool		isnull;

	if (rows > 0)
		*(int64 *) target = DatumGetInt64(SPI_getbinval(table->vals[0], table->tupdesc, 1, &isnull));
}

static bool
take_position(const Purge *purge, Datum relation, Datum name, int64 *block)
{
	Datum		values[2] = {relation, name};

	*block = 0;
	return idem_statement_run(&lock_position, &purge->home, values, NULL, InvalidSnapshot,
							  read_block, block) > 0;
}

static void
leave_position(const Purge *purge, Datum relation, Datum name, int64 block)
{
	Datum		values[3] = {relation, name, Int64GetDatum(block)};

	idem_statement_run(&set_position, &purge->home, values, NULL, InvalidSnapshot, NULL, NULL);
}

/* ---- what is due ---- */

/* the names of a kind with their cut-offs; false if nothing is due however old it is */
static bool
find_due(const Purge *purge, const Retention *retentions, int n, bool is_payload, Sweep *sweep)
{
	Datum	   *names = palloc(Max(n, 1) * sizeof(Datum));
	Datum	   *cutoffs = palloc(Max(n, 1) * sizeof(Datum));
	int			ndue = 0;

	for (int i = 0; i < n; i++)
	{
		int64		age = is_payload ? retentions[i].result_retention : retentions[i].retention;

		if (age == 0)
			continue;
		names[ndue] = PointerGetDatum(retentions[i].name);
		cutoffs[ndue++] = TimestampTzGetDatum(purge->now - age);
	}
	sweep->names = construct_array(names, ndue, TEXTOID, -1, false, TYPALIGN_INT);
	sweep->cutoffs = construct_array(cutoffs, ndue, TIMESTAMPTZOID, 8, FLOAT8PASSBYVAL,
									 TYPALIGN_DOUBLE);
	return ndue > 0;
}

static TimestampTz
cutoff_of(const Purge *purge, const Retention *retentions, int n, const KeyParts *parts)
{
	for (int i = 0; i < n; i++)
		if (idem_key_part_is(&parts->operation, retentions[i].name))
			return purge->now - retentions[i].retention;
	elog(ERROR, "a record was deleted without a retention");
}

static int
compare_keys(const void *a, const void *b)
{
	return idem_key_compare((const IdemKey *) DatumGetPointer(*(const Datum *) a),
							(const IdemKey *) DatumGetPointer(*(const Datum *) b));
}

/* once for each tenant and name, which are neighbours in the order of keys */
static void
raise_watermarks(const Purge *purge, ContractKind kind, const Retention *retentions, int n,
				 const Swept *swept)
{
	KeyParts	last = {0};

	qsort(swept->keys, swept->rows, sizeof(Datum), compare_keys);
	for (uint64 i = 0; i < swept->rows; i++)
	{
		const IdemKey *key = (const IdemKey *) DatumGetPointer(swept->keys[i]);
		KeyParts	parts;

		idem_key_split(key, &parts);
		if (last.tenant.length == parts.tenant.length &&
			last.operation.length == parts.operation.length &&
			memcmp(last.tenant.bytes, parts.tenant.bytes,
				   parts.id.bytes - parts.tenant.bytes) == 0)
			continue;
		idem_watermark_raise(&purge->home, kind, &parts, cutoff_of(purge, retentions, n, &parts));
		last = parts;
	}
}

/* ---- walking ---- */

static void
delete_identity(Purge *purge, Sweep *sweep, const Retention *retentions, int n)
{
	Swept		swept;

	idem_sweep_delete(&purge->home, sweep, &swept);
	if (swept.rows == 0)
		return;
	purge->rows -= swept.rows;
	raise_watermarks(purge, sweep->kind, retentions, n, &swept);
	if (sweep->kind == KIND_CONSUMER)
		purge->events_deleted += swept.rows;
	else
	{
		purge->actions_deleted += swept.rows;
		purge->evidence_deleted +=
			idem_evidence_delete(&purge->home,
								 PointerGetDatum(construct_array(swept.keys, swept.rows, TEXTOID, -1,
																 false, TYPALIGN_INT)));
	}
}

static void
drop_results(Purge *purge, Sweep *sweep)
{
	uint64		rows = idem_sweep_drop(&purge->home, sweep);

	purge->rows -= rows;
	purge->results_dropped += rows;
}

/* from a block on, which becomes where the next call has to go on; true: the end was reached */
static bool
walk(Purge *purge, ContractKind kind, const Retention *retentions, int n, int64 *block)
{
	BlockNumber nblocks = idem_sweep_open(&purge->home, kind);
	Sweep		identity = {.kind = kind};
	Sweep		payload = {.kind = kind};
	bool		has_identity = find_due(purge, retentions, n, false, &identity);
	bool		has_payload = find_due(purge, retentions, n, true, &payload);

	while (*block < nblocks)
	{
		int64		until = Min(*block + Min(PAGES_AT_ONCE, purge->pages), nblocks);

		CHECK_FOR_INTERRUPTS();
		if (purge->rows == 0 || purge->pages == 0)
			return false;
		identity.from = payload.from = *block;
		identity.until = payload.until = until;
		identity.limit = purge->rows;
		if (has_identity)
			delete_identity(purge, &identity, retentions, n);
		payload.limit = purge->rows;
		if (has_payload && purge->rows > 0)
			drop_results(purge, &payload);
		purge->pages -= until - *block;
		if (purge->rows > 0)	/* nothing is left in the range */
			*block = until;
	}
	*block = 0;
	return true;
}

/*
 * One purger a table, whatever the name: its row without a name is the lock.
 * Each name that is purged by itself has a position of its own, since what it
 * passes by may be due under other names.
 */
static void
purge_table(Purge *purge, ContractKind kind, const char *table)
{
	Datum		relation = CStringGetTextDatum(table);
	Datum		all = CStringGetTextDatum("");
	Datum		name = purge->name == NULL ? all : PointerGetDatum(purge->name);
	Retention  *retentions;
	int			n = idem_contract_retentions(&purge->home, kind, purge->name, &retentions);
	int64		block;

	if (n == 0)
		return;
	if (!take_position(purge, relation, all, &block))
	{
		purge->is_done = false;
		return;
	}
	if (purge->name != NULL)
		take_position(purge, relation, name, &block);
	if (!walk(purge, kind, retentions, n, &block))
		purge->is_done = false;
	leave_position(purge, relation, name, block);
}

/* ---- the call ---- */

static void
check_name(const Purge *purge)
{
	const char *bytes = VARDATA_ANY(purge->name);
	int			length = VARSIZE_ANY_EXHDR(purge->name);

	if (idem_contract_find(&purge->home, KIND_OPERATION, bytes, length) == NULL &&
		idem_contract_find(&purge->home, KIND_CONSUMER, bytes, length) == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_UNDEFINED_OPERATION),
				 errmsg("neither an operation nor a consumer \"%s\" is defined",
						text_to_cstring(purge->name)),
				 errdetail("No contract of that name is on record."),
				 errhint("Check the spelling: names are compared byte by byte.")));
}

static Datum
purge_datum(const Purge *purge)
{
	Datum		values[5];
	bool		nulls[5] = {false};

	values[0] = Int64GetDatum(purge->results_dropped);
	values[1] = Int64GetDatum(purge->actions_deleted);
	values[2] = Int64GetDatum(purge->events_deleted);
	values[3] = Int64GetDatum(purge->evidence_deleted);
	values[4] = BoolGetDatum(purge->is_done);
	return idem_row_datum(&purge->home, values, nulls, lengthof(values));
}

PG_FUNCTION_INFO_V1(idem_purge);
Datum
idem_purge(PG_FUNCTION_ARGS)
{
	Purge		purge = {.is_done = true};

	PreventCommandIfReadOnly("idem_purge()");
	idem_home(fcinfo, &purge.home);
	idem_access_check_all(&purge.home, ACCESS_OPERATOR);
	purge.rows = purge.pages = idem_argument_max_rows(fcinfo, 0, ROWS_MAX);
	purge.name = PG_ARGISNULL(1) ? NULL : PG_GETARG_TEXT_PP(1);
	purge.now = GetCurrentTimestamp();
	if (purge.name != NULL)
		check_name(&purge);
	purge_table(&purge, KIND_OPERATION, "idem_action");
	purge_table(&purge, KIND_CONSUMER, "idem_event");
	PG_RETURN_DATUM(purge_datum(&purge));
}
