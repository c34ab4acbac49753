/*
 * event.c
 *		The record of what was consumed.
 *
 * Part of the store: nobody else reads or writes idem_event.  A row is
 * written by the transaction that consumes and never after it; the unique
 * index decides who was first, and an event that was found is one that was
 * committed, or written by this very transaction.
 *
 * Results are copied into the caller's memory context.
 */
#include "idem_action.h"
#include "row.h"

#include "catalog/pg_type.h"
#include "utils/builtins.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

enum							/* columns of idem_event, from 0 */
{
	EVENT_KEY, EVENT_REVISION, EVENT_DIGEST, EVENT_OCCURRED_AT, EVENT_RECORDED_AT,
	EVENT_PARAMS, EVENT_RESULT, EVENT_TRANSPORT, EVENT_COLUMNS
};

static Statement insert_event = {
	"INSERT INTO %1$s.idem_event (key, revision, digest, occurred_at, recorded_at, params, transport)"
	" VALUES ($1, $2, $3::%1$s.idem_digest, $4, $5, $6, $7)"
	" ON CONFLICT (key) DO NOTHING",
	7, {TEXTOID, INT4OID, TEXTOID, TIMESTAMPTZOID, TIMESTAMPTZOID, JSONBOID, JSONBOID},
	SPI_OK_INSERT
};

/* returns the keys it inserted, in the order of the arrays */
static Statement insert_events = {
	"INSERT INTO %1$s.idem_event (key, revision, digest, occurred_at, recorded_at, params, transport)"
	" SELECT e.key, e.revision, e.digest::%1$s.idem_digest, e.occurred_at, $5, e.params, e.transport"
	" FROM (SELECT pg_catalog.unnest($1) AS key, pg_catalog.unnest($2) AS revision,"
	" pg_catalog.unnest($3) AS digest, pg_catalog.unnest($4) AS occurred_at,"
	" pg_catalog.unnest($6) AS params, pg_catalog.unnest($7) AS transport) AS e"
	" ON CONFLICT (key) DO NOTHING RETURNING key",
	7, {TEXTARRAYOID, INT4ARRAYOID, TEXTARRAYOID, TIMESTAMPTZARRAYOID, TIMESTAMPTZOID,
	JSONBARRAYOID, JSONBARRAYOID}, SPI_OK_INSERT_RETURNING
};

static Statement update_result = {
	"UPDATE %1$s.idem_event SET result = $2 WHERE ctid OPERATOR(pg_catalog.=) $1",
	2, {TIDOID, JSONBOID}, SPI_OK_UPDATE
};

static Statement delete_event = {
	"DELETE FROM %1$s.idem_event WHERE ctid OPERATOR(pg_catalog.=) $1",
	1, {TIDOID}, SPI_OK_DELETE
};

static void
read_event(Relation relation, HeapTuple tuple, Event *event)
{
	Datum	   *values;
	bool	   *nulls;

	idem_look_values(relation, tuple, &values, &nulls);
	event->tid = tuple->t_self;
	event->fingerprint.revision = DatumGetInt32(values[EVENT_REVISION]);
	event->fingerprint.has_digest = true;
	event->fingerprint.digest = *DatumGetDigestP(values[EVENT_DIGEST]);
	event->fingerprint.params = row_jsonb(values, nulls, EVENT_PARAMS);
	event->occurred_at = row_moment(values, nulls, EVENT_OCCURRED_AT);
	event->result = row_jsonb(values, nulls, EVENT_RESULT);
	event->transport = row_jsonb(values, nulls, EVENT_TRANSPORT);
}

/* locked until the transaction ends */
Relation
idem_event_open(const Home *home)
{
	return idem_look_open(home, "idem_event", EVENT_COLUMNS, RowExclusiveLock);
}

/* false: not on record, and *event is an empty one */
bool
idem_event_find(Relation relation, const IdemKey *key, Event *event)
{
	HeapTuple	tuple;

	memset(event, 0, sizeof(Event));
	event->key = key;
	event->occurred_at = TIME_NONE;
	PushActiveSnapshot(GetTransactionSnapshot());
	tuple = idem_look(relation, key, &event->is_own);
	if (HeapTupleIsValid(tuple))
		read_event(relation, tuple, event);
	PopActiveSnapshot();
	return HeapTupleIsValid(tuple);
}

/* puts an event on record, if it is not yet */
bool
idem_event_insert(const Home *home, const Event *event)
{
	Datum		values[7];
	bool		nulls[7] = {false};

	values[0] = PointerGetDatum(event->key);
	values[1] = Int32GetDatum(event->fingerprint.revision);
	values[2] = idem_digest_text(&event->fingerprint.digest);
	row_set_moment(values, nulls, 3, event->occurred_at);
	values[4] = TimestampTzGetDatum(GetCurrentTimestamp());
	row_set_pointer(values, nulls, 5, event->fingerprint.params);
	row_set_pointer(values, nulls, 6, event->transport);
	return idem_statement_run(&insert_event, home, values, nulls, InvalidSnapshot, NULL, NULL) > 0;
}

/* ---- many at once ---- */

typedef struct Batch
{
	Event	   *const *events;	/* in the order of their keys */
	int			n;				/* how many */
	bool	   *is_inserted;	/* what became of each */
} Batch;

static bool
is_same_key(const IdemKey *a, const IdemKey *b)
{
	return VARSIZE_ANY_EXHDR(a) == VARSIZE_ANY_EXHDR(b) &&
		memcmp(VARDATA_ANY(a), VARDATA_ANY(b), VARSIZE_ANY_EXHDR(a)) == 0;
}

/* the keys come back in the order in which they went */
static void
read_inserted(SPITupleTable *table, uint64 rows, void *target)
{
	Batch	   *batch = target;
	uint64		row = 0;

	for (int i = 0; i < batch->n && row < rows; i++)
	{
		bool		isnull;
		Datum		key = SPI_getbinval(table->vals[row], table->tupdesc, 1, &isnull);

		if (!is_same_key((IdemKey *) DatumGetPointer(key), batch->events[i]->key))
			continue;
		batch->is_inserted[i] = true;
		row++;
	}
	if (row < rows)
		elog(ERROR, "events came back in another order");
}

static Datum
array_of(Datum *values, bool *nulls, int n, Oid type, int16 length, bool is_by_value, char align)
{
	int			dims[1] = {n};
	int			lower[1] = {1};

	return PointerGetDatum(construct_md_array(values, nulls, 1, dims, lower, type, length,
											  is_by_value, align));
}

/*
 * Puts those of the events on record that are not yet, in the order of their
 * keys, which must rise: so overlapping batches wait for each other but
 * never in a circle.
 */
void
idem_event_insert_batch(const Home *home, Event *const *events, int n, bool *is_inserted)
{
	enum
	{
		KEYS, REVISIONS, DIGESTS, MOMENTS, PARAMS, TRANSPORTS, NARRAYS
	};
	Batch		batch = {events, n, is_inserted};
	Datum	   *values[NARRAYS];
	bool	   *nulls[NARRAYS];
	Datum		args[7];

	for (int k = 0; k < NARRAYS; k++)
	{
		values[k] = palloc(n * sizeof(Datum));
		nulls[k] = palloc0(n * sizeof(bool));
	}
	for (int i = 0; i < n; i++)
	{
		values[KEYS][i] = PointerGetDatum(events[i]->key);
		values[REVISIONS][i] = Int32GetDatum(events[i]->fingerprint.revision);
		values[DIGESTS][i] = idem_digest_text(&events[i]->fingerprint.digest);
		row_set_moment(values[MOMENTS], nulls[MOMENTS], i, events[i]->occurred_at);
		row_set_pointer(values[PARAMS], nulls[PARAMS], i, events[i]->fingerprint.params);
		row_set_pointer(values[TRANSPORTS], nulls[TRANSPORTS], i, events[i]->transport);
		is_inserted[i] = false;
	}
	args[0] = array_of(values[KEYS], nulls[KEYS], n, TEXTOID, -1, false, TYPALIGN_INT);
	args[1] = array_of(values[REVISIONS], nulls[REVISIONS], n, INT4OID, 4, true, TYPALIGN_INT);
	args[2] = array_of(values[DIGESTS], nulls[DIGESTS], n, TEXTOID, -1, false, TYPALIGN_INT);
	args[3] = array_of(values[MOMENTS], nulls[MOMENTS], n, TIMESTAMPTZOID, 8, FLOAT8PASSBYVAL,
					   TYPALIGN_DOUBLE);
	args[4] = TimestampTzGetDatum(GetCurrentTimestamp());
	args[5] = array_of(values[PARAMS], nulls[PARAMS], n, JSONBOID, -1, false, TYPALIGN_INT);
	args[6] = array_of(values[TRANSPORTS], nulls[TRANSPORTS], n, JSONBOID, -1, false, TYPALIGN_INT);
	idem_statement_run(&insert_events, home, args, NULL, InvalidSnapshot, read_inserted, &batch);
}

/* ---- by the transaction that consumed ---- */

void
idem_event_set_result(const Home *home, const Event *event, Jsonb *result)
{
	ItemPointerData tid = event->tid;
	Datum		values[2];
	bool		nulls[2] = {false};

	values[0] = PointerGetDatum(&tid);
	row_set_pointer(values, nulls, 1, result);
	idem_statement_run(&update_result, home, values, nulls, InvalidSnapshot, NULL, NULL);
}

void
idem_event_delete(const Home *home, const Event *event)
{
	ItemPointerData tid = event->tid;
	Datum		values[1] = {PointerGetDatum(&tid)};

	idem_statement_run(&delete_event, home, values, NULL, InvalidSnapshot, NULL, NULL);
}
