/*
 * store.c
 *		The permanent record of actions and what is in flight of them.
 *
 * The only room that reads or writes idem_action and idem_lease, and the only
 * one that knows their columns.  What must hold:
 *
 *	- an action of an external operation has a row in idem_lease while it is
 *	  not terminal, and none otherwise; a local one never has.  A trigger keeps
 *	  actions in flight from being deleted by hand;
 *	- whoever writes an action that has a lease row locks that row first, so
 *	  that two writers meet there and nowhere else;
 *	- the unique index decides who was first.  A look that found nothing is a
 *	  hint; idem_store_insert() tells whether it was true;
 *	- every update names the version it replaces (ctid, generation, state).
 *	  No row means that somebody was faster: the caller looks again.
 *
 * Locks: RowExclusiveLock on the tables until the transaction ends (a change
 * of an operation's effect waits for that on idem_action); AccessShareLock to
 * look only.  Results are copied into the caller's memory context.
 */
#include "idem_action.h"
#include "row.h"

#include "access/heapam.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/rel.h"
#include "utils/resowner.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

enum							/* columns of idem_action */
{
	ACTION_KEY = 1, ACTION_STATE, ACTION_LAST_CALL, ACTION_GENERATION, ACTION_REVISION,
	ACTION_ATTEMPT, ACTION_DIGEST, ACTION_OCCURRED_AT, ACTION_CREATED_AT,
	ACTION_UPDATED_AT, ACTION_PARAMS, ACTION_RESULT, ACTION_ERROR, ACTION_CHANNEL_REF,
	ACTION_RESULT_DIGEST, ACTION_COLUMNS = ACTION_RESULT_DIGEST
};

enum							/* columns of idem_lease */
{
	LEASE_KEY = 1, LEASE_OWNER, LEASE_GRANTED, LEASE_GRANTED_AT, LEASE_UNTIL,
	LEASE_DUE_AT, LEASE_FIRST_GRANTED_AT, LEASE_FIRST_REVISION, LEASE_CALL_UNTIL,
	LEASE_IS_AMBIGUOUS, LEASE_COLUMNS = LEASE_IS_AMBIGUOUS
};

static Statement insert_action = {
	"INSERT INTO %1$s.idem_action (key, state, last_call, generation, revision, attempt, digest,"
	" occurred_at, created_at, updated_at, params, result, error, channel_ref)"
	" VALUES ($1, $2, $3, $4, $5, $6, $7::%1$s.idem_digest, $8, $9, $9, $10, $11, $12, $13)"
	" ON CONFLICT (key) DO NOTHING",
	13, {TEXTOID, TEXTOID, TEXTOID, INT8OID, INT4OID, INT4OID, TEXTOID, TIMESTAMPTZOID,
	TIMESTAMPTZOID, JSONBOID, JSONBOID, JSONBOID, TEXTOID}, SPI_OK_INSERT
};

static Statement update_action = {
	"UPDATE %1$s.idem_action SET state = $4, last_call = $5, generation = $6, attempt = $7,"
	" updated_at = $8, result = $9, error = $10, channel_ref = $11"
	" WHERE ctid OPERATOR(pg_catalog.=) $1 AND generation OPERATOR(pg_catalog.=) $2"
	" AND state OPERATOR(pg_catalog.=) $3",
	11, {TIDOID, INT8OID, TEXTOID, TEXTOID, TEXTOID, INT8OID, INT4OID, TIMESTAMPTZOID,
	JSONBOID, JSONBOID, TEXTOID}, SPI_OK_UPDATE
};

/* an orphan left by somebody who deleted an action by hand is taken over */
static Statement insert_lease = {
	"INSERT INTO %1$s.idem_lease (key, owner, granted, granted_at, lease_until, due_at,"
	" first_granted_at, first_revision, call_until, is_ambiguous)"
	" VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)"
	" ON CONFLICT (key) DO UPDATE SET owner = $2, granted = $3, granted_at = $4,"
	" lease_until = $5, due_at = $6, first_granted_at = $7, first_revision = $8,"
	" call_until = $9, is_ambiguous = $10",
	10, {TEXTOID, TEXTOID, TEXTOID, TIMESTAMPTZOID, TIMESTAMPTZOID, TIMESTAMPTZOID,
	TIMESTAMPTZOID, INT4OID, TIMESTAMPTZOID, BOOLOID}, SPI_OK_INSERT
};

static Statement update_lease = {
	"UPDATE %1$s.idem_lease SET owner = $2, granted = $3, granted_at = $4, lease_until = $5,"
	" due_at = $6, first_granted_at = $7, first_revision = $8, call_until = $9,"
	" is_ambiguous = $10"
	" WHERE ctid OPERATOR(pg_catalog.=) $1",
	10, {TIDOID, TEXTOID, TEXTOID, TIMESTAMPTZOID, TIMESTAMPTZOID, TIMESTAMPTZOID,
	TIMESTAMPTZOID, INT4OID, TIMESTAMPTZOID, BOOLOID}, SPI_OK_UPDATE
};

static Statement delete_lease = {
	"DELETE FROM %1$s.idem_lease WHERE ctid OPERATOR(pg_catalog.=) $1",
	1, {TIDOID}, SPI_OK_DELETE
};

static Statement select_in_flight = {
	"SELECT key FROM %1$s.idem_lease ORDER BY key",
	0, {0}, SPI_OK_SELECT
};

static Statement select_operation = {
	"SELECT 1 FROM %1$s.idem_action"
	" WHERE %1$s.idem_key_operation(key) OPERATOR(pg_catalog.=) $1 LIMIT 1",
	1, {TEXTOID}, SPI_OK_SELECT
};

/* ---- opening ---- */

void
idem_store_open(Store *store, const Home *home, bool is_writer)
{
	LOCKMODE	lock = is_writer ? RowExclusiveLock : AccessShareLock;

	store->home = *home;
	store->nowait = false;
	store->lock = lock;
	store->action = idem_look_open(home, "idem_action", ACTION_COLUMNS, lock);
	store->lease = NULL;
}

/* idem_lease; a terminal action has no business there */
Relation
idem_store_lease(Store *store)
{
	if (store->lease == NULL)
		store->lease = idem_look_open(&store->home, "idem_lease", LEASE_COLUMNS, store->lock);
	return store->lease;
}

void
idem_store_close(Store *store)
{
	if (store->lease != NULL)
		table_close(store->lease, NoLock);
	table_close(store->action, NoLock);
}

/*
 * Keeps writers of actions out until the transaction ends; there are none
 * left.  They lock the table before they look at what they act on, so the
 * next one sees what this transaction commits.
 */
void
idem_store_lock_writers(const Home *home)
{
	LockRelationOid(idem_home_relation(home, "idem_action"), ShareRowExclusiveLock);
}

bool
idem_store_has_operation(const Home *home, const char *operation)
{
	Datum		value = CStringGetTextDatum(operation);
	Snapshot	latest;
	uint64		rows;

	idem_store_lock_writers(home);
	latest = RegisterSnapshot(GetLatestSnapshot());
	rows = idem_statement_run(&select_operation, home, &value, NULL, latest, NULL, NULL);
	UnregisterSnapshot(latest);
	return rows > 0;
}

/* ---- reading ---- */

/* which of a list of names a text datum is */
static int
name_index(Datum value, const char *const *names, int n)
{
	text	   *name = DatumGetTextPP(value);
	int			length = VARSIZE_ANY_EXHDR(name);

	for (int i = 0; i < n; i++)
		if (strlen(names[i]) == length && memcmp(names[i], VARDATA_ANY(name), length) == 0)
			return i;
	elog(ERROR, "unknown name \"%s\" in the record of an action", text_to_cstring(name));
}

static void
read_action(Store *store, HeapTuple tuple, Action *action)
{
	Datum	   *values;
	bool	   *nulls;
	History    *history = &action->history;

	idem_look_values(store->action, tuple, &values, &nulls);
	action->tid = tuple->t_self;
	history->state = name_index(values[ACTION_STATE - 1], idem_state_names, NSTATES);
	history->last_call = name_index(values[ACTION_LAST_CALL - 1], idem_call_names, NCALLS);
	history->generation = DatumGetInt64(values[ACTION_GENERATION - 1]);
	history->attempt = DatumGetInt32(values[ACTION_ATTEMPT - 1]);
	history->has_reference = !nulls[ACTION_CHANNEL_REF - 1];
	action->fingerprint.revision = DatumGetInt32(values[ACTION_REVISION - 1]);
	action->fingerprint.has_digest = !nulls[ACTION_DIGEST - 1];
	if (action->fingerprint.has_digest)
		action->fingerprint.digest = *DatumGetDigestP(values[ACTION_DIGEST - 1]);
	action->fingerprint.occurred_at = row_moment(values, nulls, ACTION_OCCURRED_AT - 1);
	action->created_at = row_moment(values, nulls, ACTION_CREATED_AT - 1);
	action->updated_at = row_moment(values, nulls, ACTION_UPDATED_AT - 1);
	action->fingerprint.params = row_jsonb(values, nulls, ACTION_PARAMS - 1);
	action->result = row_jsonb(values, nulls, ACTION_RESULT - 1);
	action->error = row_jsonb(values, nulls, ACTION_ERROR - 1);
	action->channel_ref = row_text(values, nulls, ACTION_CHANNEL_REF - 1);
	action->result_digest = row_digest(values, nulls, ACTION_RESULT_DIGEST - 1);
}

static void
read_lease(Store *store, HeapTuple tuple, Action *action)
{
	Datum	   *values;
	bool	   *nulls;
	History    *history = &action->history;

	idem_look_values(store->lease, tuple, &values, &nulls);
	action->has_lease = true;
	action->lease_tid = tuple->t_self;
	if (!nulls[LEASE_GRANTED - 1])
		history->grant = name_index(values[LEASE_GRANTED - 1], idem_outcome_names, NOUTCOMES);
	history->granted_at = row_moment(values, nulls, LEASE_GRANTED_AT - 1);
	history->lease_until = row_moment(values, nulls, LEASE_UNTIL - 1);
	history->due_at = row_moment(values, nulls, LEASE_DUE_AT - 1);
	history->first_granted_at = row_moment(values, nulls, LEASE_FIRST_GRANTED_AT - 1);
	history->call_until = row_moment(values, nulls, LEASE_CALL_UNTIL - 1);
	history->is_ambiguous = DatumGetBool(values[LEASE_IS_AMBIGUOUS - 1]);
	action->owner = row_text(values, nulls, LEASE_OWNER - 1);
	action->first_revision = nulls[LEASE_FIRST_REVISION - 1] ? 0 :
		DatumGetInt32(values[LEASE_FIRST_REVISION - 1]);
}

/* a history in which nothing happened yet */
static void
clear_action(const IdemKey *key, Action *action)
{
	memset(action, 0, sizeof(Action));
	action->key = key;
	action->fingerprint.occurred_at = TIME_NONE;
	action->history.granted_at = TIME_NONE;
	action->history.lease_until = TIME_NONE;
	action->history.due_at = TIME_NONE;
	action->history.first_granted_at = TIME_NONE;
	action->history.call_until = TIME_NONE;
}

/*
 * Only what this transaction itself claimed locally is in flight without a
 * lease row.  Two dirty looks are not of one moment: the row may have been
 * there at the snapshot's, and gone at the second.
 */
static void
refuse_lost_lease(const IdemKey *key)
{
	if (IsolationUsesXactSnapshot())
		idem_look_refuse_newer();
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("action \"%s\" has no row in idem_lease", idem_key_cstring(key)),
			 errdetail("It is in flight, so the row was deleted by hand."),
			 errhint("Restore the row, or find out at the channel what became of the action before it is granted again.")));
}

/*
 * Both rows under one snapshot.  A terminal action needs no look at
 * idem_lease.  False: not on record, and *action is an empty one.
 */
bool
idem_store_find(Store *store, const IdemKey *key, Action *action)
{
	HeapTuple	tuple;
	bool		is_lease_own;

	clear_action(key, action);
	PushActiveSnapshot(GetTransactionSnapshot());
	tuple = idem_look(store->action, key, &action->is_own);
	if (HeapTupleIsValid(tuple))
	{
		read_action(store, tuple, action);
		tuple = idem_state_is_terminal(action->history.state) ? NULL :
			idem_look(idem_store_lease(store), key, &is_lease_own);
		if (HeapTupleIsValid(tuple))
			read_lease(store, tuple, action);
		else if (!action->is_own && !idem_state_is_terminal(action->history.state))
			refuse_lost_lease(key);
	}
	PopActiveSnapshot();
	return action->history.state != STATE_NONE;
}

typedef struct KeyList
{
	MemoryContext context;		/* in which the keys are kept */
	List	   *keys;			/* of IdemKey */
} KeyList;

static void
read_keys(SPITupleTable *table, uint64 rows, void *target)
{
	KeyList    *list = target;
	MemoryContext old = MemoryContextSwitchTo(list->context);

	for (uint64 i = 0; i < rows; i++)
	{
		bool		isnull;
		Datum		key = SPI_getbinval(table->vals[i], table->tupdesc, 1, &isnull);

		list->keys = lappend(list->keys, PG_DETOAST_DATUM_COPY(key));
	}
	MemoryContextSwitchTo(old);
}

/* the keys of what is in flight, in order */
List *
idem_store_in_flight(const Home *home)
{
	KeyList		list = {CurrentMemoryContext, NIL};
	Snapshot	latest = RegisterSnapshot(GetLatestSnapshot());

	idem_statement_run(&select_in_flight, home, NULL, NULL, latest, read_keys, &list);
	UnregisterSnapshot(latest);
	return list.keys;
}

/* ---- writing ---- */

static Datum
name_datum(const char *name)
{
	return CStringGetTextDatum(name);
}

/* the columns of idem_lease after the first, as insert and update number them */
static void
set_lease_values(Datum *values, bool *nulls, const Action *action)
{
	const History *history = &action->history;

	memset(nulls, 0, LEASE_COLUMNS);
	row_set_pointer(values, nulls, 1, action->owner);
	row_set_pointer(values, nulls, 2, history->granted_at == TIME_NONE ? NULL :
					DatumGetPointer(name_datum(idem_outcome_names[history->grant])));
	row_set_moment(values, nulls, 3, history->granted_at);
	row_set_moment(values, nulls, 4, history->lease_until);
	row_set_moment(values, nulls, 5, history->due_at);
	row_set_moment(values, nulls, 6, history->first_granted_at);
	values[7] = Int32GetDatum(action->first_revision);
	nulls[7] = action->first_revision == 0;
	row_set_moment(values, nulls, 8, history->call_until);
	values[9] = BoolGetDatum(history->is_ambiguous);
}

/* the row is new, or locked, so it cannot be missed unless something suppresses the write */
static void
check_lease_written(const IdemKey *key, uint64 rows)
{
	if (rows != 1)
		elog(ERROR, "lease row of action \"%s\" was not written", idem_key_cstring(key));
}

static void
write_lease(Store *store, Statement *statement, Datum first, const Action *action)
{
	Datum		values[LEASE_COLUMNS];
	bool		nulls[LEASE_COLUMNS];

	set_lease_values(values, nulls, action);
	values[0] = first;
	check_lease_written(action->key,
						idem_statement_run(statement, &store->home, values, nulls,
										   InvalidSnapshot, NULL, NULL));
}

static uint64
insert_row(Store *store, const Action *action)
{
	const History *history = &action->history;
	Datum		values[13];
	bool		nulls[13] = {false};

	values[0] = PointerGetDatum(action->key);
	values[1] = name_datum(idem_state_names[history->state]);
	values[2] = name_datum(idem_call_names[history->last_call]);
	values[3] = Int64GetDatum(history->generation);
	values[4] = Int32GetDatum(action->fingerprint.revision);
	values[5] = Int32GetDatum(history->attempt);
	row_set_pointer(values, nulls, 6, action->fingerprint.has_digest ?
					DatumGetPointer(idem_digest_text(&action->fingerprint.digest)) : NULL);
	row_set_moment(values, nulls, 7, action->fingerprint.occurred_at);
	row_set_moment(values, nulls, 8, action->created_at);
	row_set_pointer(values, nulls, 9, action->fingerprint.params);
	row_set_pointer(values, nulls, 10, action->result);
	row_set_pointer(values, nulls, 11, action->error);
	row_set_pointer(values, nulls, 12, action->channel_ref);
	return idem_statement_run(&insert_action, &store->home, values, nulls,
							  InvalidSnapshot, NULL, NULL);
}

/*
 * The same without waiting for whoever is inserting the key: the wait ends
 * by lock_timeout after a millisecond, which takes a subtransaction to catch.
 */
static StoreResult
insert_row_nowait(Store *store, const Action *action)
{
	MemoryContext context = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	StoreResult result;

	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(context);
	PG_TRY();
	{
		int			level = NewGUCNestLevel();

		set_config_option("lock_timeout", "1ms", PGC_USERSET, PGC_S_SESSION,
						  GUC_ACTION_SAVE, true, 0, false);
		result = insert_row(store, action) > 0 ? STORE_DONE : STORE_CHANGED;
		AtEOXact_GUC(true, level);
		ReleaseCurrentSubTransaction();
	}
	PG_CATCH();
	{
		ErrorData  *error;

		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		FlushErrorState();
		RollbackAndReleaseCurrentSubTransaction();
		if (error->sqlerrcode != ERRCODE_LOCK_NOT_AVAILABLE)
			ReThrowError(error);
		FreeErrorData(error);
		result = STORE_HELD;
	}
	PG_END_TRY();
	MemoryContextSwitchTo(context);
	CurrentResourceOwner = owner;
	return result;
}

/* puts a new action on record, if the key is free */
StoreResult
idem_store_insert(Store *store, Action *action)
{
	StoreResult result;

	if (store->nowait)
		result = insert_row_nowait(store, action);
	else
		result = insert_row(store, action) > 0 ? STORE_DONE : STORE_CHANGED;
	if (result != STORE_DONE || action->history.is_local ||
		idem_state_is_terminal(action->history.state))
		return result;

	write_lease(store, &insert_lease, PointerGetDatum(action->key), action);
	return STORE_DONE;
}

/* locks the lease row of an action that was found, waiting for whoever has it */
StoreResult
idem_store_lock(Store *store, const Action *action)
{
	return idem_look_lock(idem_store_lease(store), action->lease_tid, LockTupleExclusive, store->nowait);
}

/* keeps an action that was found from being purged until the transaction ends */
StoreResult
idem_store_keep(Store *store, const Action *action)
{
	return idem_look_lock(store->action, action->tid, LockTupleKeyShare, store->nowait);
}

/* replaces the version that was found; its lease row, if any, is locked */
StoreResult
idem_store_update(Store *store, const Action *old, const Action *action)
{
	const History *history = &action->history;
	ItemPointerData tid = old->tid;
	ItemPointerData lease_tid = old->lease_tid;
	Datum		values[11];
	bool		nulls[11] = {false};

	values[0] = PointerGetDatum(&tid);
	values[1] = Int64GetDatum(old->history.generation);
	values[2] = name_datum(idem_state_names[old->history.state]);
	values[3] = name_datum(idem_state_names[history->state]);
	values[4] = name_datum(idem_call_names[history->last_call]);
	values[5] = Int64GetDatum(history->generation);
	values[6] = Int32GetDatum(history->attempt);
	row_set_moment(values, nulls, 7, action->updated_at);
	row_set_pointer(values, nulls, 8, action->result);
	row_set_pointer(values, nulls, 9, action->error);
	row_set_pointer(values, nulls, 10, action->channel_ref);
	if (idem_statement_run(&update_action, &store->home, values, nulls,
						   InvalidSnapshot, NULL, NULL) == 0)
		return STORE_CHANGED;

	if (!old->has_lease)
		return STORE_DONE;
	if (idem_state_is_terminal(history->state))
	{
		values[0] = PointerGetDatum(&lease_tid);
		check_lease_written(old->key,
							idem_statement_run(&delete_lease, &store->home, values, NULL,
											   InvalidSnapshot, NULL, NULL));
	}
	else
		write_lease(store, &update_lease, PointerGetDatum(&lease_tid), action);
	return STORE_DONE;
}

/* the lease row alone, which is locked: a renewal moves nothing else */
void
idem_store_update_lease(Store *store, const Action *action)
{
	ItemPointerData tid = action->lease_tid;

	write_lease(store, &update_lease, PointerGetDatum(&tid), action);
}

/* ---- keeping ---- */

/*
 * Whoever tidies up by hand must not forget what may have been executed: a
 * key without a record is new, and would be granted to execute.
 */
PG_FUNCTION_INFO_V1(idem_keep_in_flight);
Datum
idem_keep_in_flight(PG_FUNCTION_ARGS)
{
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("an action in flight cannot be deleted"),
			 errdetail("Without its record the key would be granted anew, although an attempt may have executed it."),
			 errhint("Finish it first: idem_escalate(key, generation), then idem_resolve(key, generation, state, note).")));
}
