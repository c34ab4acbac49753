/*
 * event.c
 *		The record of what was consumed.
 *
 * Part of the store: nobody else reads or writes idem_event.  A row is
 * written by the transaction that consumes and never after it; the unique
 * index decides who was first, and an event that was found is one that was
 * committed, or written by this very transaction.
 *
 * A single event is written by a statement, a batch row by row through the
 * executor's own routines, which is what such a statement would do and saves
 * the rest of it.
 *
 * Results are copied into the caller's memory context.
 */
#include "idem_action.h"
#include "row.h"

#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

enum							/* columns of idem_event, from 0 */
{
	EVENT_KEY, EVENT_REVISION, EVENT_DIGEST, EVENT_OCCURRED_AT, EVENT_RECORDED_AT,
	EVENT_PARAMS, EVENT_RESULT, EVENT_TRANSPORT, EVENT_REPLAY_BATCH, EVENT_RESULT_DIGEST,
	EVENT_COLUMNS
};

static Statement insert_event = {
	"INSERT INTO %1$s.idem_event (key, revision, digest, occurred_at, recorded_at, params, transport,"
	" replay_batch)"
	" VALUES ($1, $2, $3::%1$s.idem_digest, $4, $5, $6, $7, $8)"
	" ON CONFLICT (key) DO NOTHING",
	8, {TEXTOID, INT4OID, TEXTOID, TIMESTAMPTZOID, TIMESTAMPTZOID, JSONBOID, JSONBOID, TEXTOID},
	SPI_OK_INSERT
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
	event->fingerprint.occurred_at = row_moment(values, nulls, EVENT_OCCURRED_AT);
	event->result = row_jsonb(values, nulls, EVENT_RESULT);
	event->transport = row_jsonb(values, nulls, EVENT_TRANSPORT);
	event->result_digest = row_digest(values, nulls, EVENT_RESULT_DIGEST);
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
	event->fingerprint.occurred_at = TIME_NONE;
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
	Datum		values[8];
	bool		nulls[8] = {false};

	values[0] = PointerGetDatum(event->key);
	values[1] = Int32GetDatum(event->fingerprint.revision);
	values[2] = idem_digest_text(&event->fingerprint.digest);
	row_set_moment(values, nulls, 3, event->fingerprint.occurred_at);
	values[4] = TimestampTzGetDatum(GetCurrentTimestamp());
	row_set_pointer(values, nulls, 5, event->fingerprint.params);
	row_set_pointer(values, nulls, 6, event->transport);
	row_set_pointer(values, nulls, 7, idem_evidence_batch());
	return idem_statement_run(&insert_event, home, values, nulls, InvalidSnapshot, NULL, NULL) > 0;
}

/* ---- many at once ---- */

/* what a later release adds is left null, so it must be able to be */
static void
check_unknown_columns(Relation relation)
{
	TupleDesc	desc = RelationGetDescr(relation);

	for (int i = EVENT_COLUMNS; i < desc->natts; i++)
		if (TupleDescAttr(desc, i)->attnotnull)
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("column \"%s\" of table \"%s\" must not be null, and this release does not know it",
							NameStr(TupleDescAttr(desc, i)->attname), RelationGetRelationName(relation)),
					 errhint("Load the library of the newer release: reconnect.")));
}

/* the row of an event, in a slot of the table; columns of a later release are null */
static void
fill_slot(TupleTableSlot *slot, Event *event, TimestampTz recorded_at)
{
	Datum	   *values = slot->tts_values;
	bool	   *nulls = slot->tts_isnull;

	ExecClearTuple(slot);
	memset(nulls, true, slot->tts_tupleDescriptor->natts * sizeof(bool));
	memset(nulls, false, EVENT_COLUMNS * sizeof(bool));
	values[EVENT_KEY] = PointerGetDatum(event->key);
	values[EVENT_REVISION] = Int32GetDatum(event->fingerprint.revision);
	values[EVENT_DIGEST] = PointerGetDatum(&event->fingerprint.digest);
	row_set_moment(values, nulls, EVENT_OCCURRED_AT, event->fingerprint.occurred_at);
	values[EVENT_RECORDED_AT] = TimestampTzGetDatum(recorded_at);
	row_set_pointer(values, nulls, EVENT_PARAMS, event->fingerprint.params);
	row_set_pointer(values, nulls, EVENT_RESULT, NULL);
	row_set_pointer(values, nulls, EVENT_TRANSPORT, event->transport);
	row_set_pointer(values, nulls, EVENT_REPLAY_BATCH, idem_evidence_batch());
	row_set_pointer(values, nulls, EVENT_RESULT_DIGEST, NULL);
	ExecStoreVirtualTuple(slot);
}

/*
 * What INSERT ... ON CONFLICT DO NOTHING does with a row (ExecInsert() in
 * nodeModifyTable.c): whoever inserts the same key meanwhile is waited for,
 * and a row that lost after all is taken back before anybody can see it.
 */
static bool
insert_slot(ResultRelInfo *target, TupleTableSlot *slot, EState *estate, CommandId command,
			List *arbiters)
{
	Relation	relation = target->ri_RelationDesc;
	TransactionId xid;
	bool		is_lost;

	do
	{
		uint32		token;
		ItemPointerData conflict;

		CHECK_FOR_INTERRUPTS();
		if (!idem_is_unique(target, slot, estate, &conflict, arbiters))
			return false;
		xid = GetCurrentTransactionId();
		is_lost = false;
		token = SpeculativeInsertionLockAcquire(xid);
		table_tuple_insert_speculative(relation, slot, command, 0, NULL, token);
		idem_insert_index_tuples(target, slot, estate, &is_lost, arbiters);
		table_tuple_complete_speculative(relation, slot, token, !is_lost);
		SpeculativeInsertionLockRelease(xid);
	} while (is_lost);
	return true;
}

/*
 * Puts those of the events on record that are not yet, in the order of their
 * keys, which must rise: so overlapping batches wait for each other but
 * never in a circle.
 */
void
idem_event_insert_batch(Relation relation, Event *const *events, int n, bool *is_inserted)
{
	EState	   *estate = CreateExecutorState();
	ResultRelInfo *target = makeNode(ResultRelInfo);
	TupleTableSlot *slot = table_slot_create(relation, NULL);
	TimestampTz recorded_at = GetCurrentTimestamp();
	CommandId	command = GetCurrentCommandId(true);
	List	   *arbiters = list_make1_oid(idem_primary_key(relation));

	check_unknown_columns(relation);
	InitResultRelInfo(target, relation, 0, NULL, 0);
	ExecOpenIndices(target, true);
	PushActiveSnapshot(GetTransactionSnapshot());
	for (int i = 0; i < n; i++)
	{
		fill_slot(slot, events[i], recorded_at);
		is_inserted[i] = insert_slot(target, slot, estate, command, arbiters);
		ResetPerTupleExprContext(estate);
	}
	PopActiveSnapshot();
	ExecCloseIndices(target);
	ExecDropSingleTupleTableSlot(slot);
	FreeExecutorState(estate);
	CommandCounterIncrement();
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
