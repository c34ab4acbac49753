/*
 * evidence.c
 *		What happened to each action, one row a fact.
 *
 * A row is written in the transaction of what it tells, so there is none of
 * what was rolled back, and none is missing of what was committed: every
 * grant and move of an external action, every conflict that was answered.
 * Nothing here decides anything; the rules look at the action's own record.
 *
 * What must hold:
 *
 *	- rows are added, never changed, and deleted together with the action
 *	  they speak of, through idem_evidence_delete() only.  A trigger refuses
 *	  everybody else, the owner of the table too;
 *	- a key gets at most CONFLICTS_MAX rows of conflicts, each of another
 *	  digest, or whoever repeats a wrong request could fill the disk.
 *
 * Rows are written by the executor's own routine for one row, as logical
 * replication writes them, which saves the statement.
 *
 * Locks: RowExclusiveLock on the table until the transaction ends.  The
 * order of rows is that of the clock: a sequence would change what lastval()
 * tells the caller.
 */
#include "idem_action.h"
#include "row.h"

#include "access/genam.h"
#include "access/stratnum.h"
#include "access/table.h"
#include "access/tableam.h"
#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "common/hashfn.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#define CONFLICTS_MAX 16

enum							/* columns of idem_evidence, from 0 */
{
	EVIDENCE_KEY, EVIDENCE_RECORDED_AT, EVIDENCE_CALL, EVIDENCE_OUTCOME, EVIDENCE_STATE,
	EVIDENCE_GENERATION, EVIDENCE_ATTEMPT, EVIDENCE_WORKER, EVIDENCE_ROLE_NAME,
	EVIDENCE_LEASE_UNTIL, EVIDENCE_DETAIL, EVIDENCE_CHANNEL_REF, EVIDENCE_DIGEST,
	EVIDENCE_TRANSPORT, EVIDENCE_REPLAY_BATCH, EVIDENCE_NOTE, EVIDENCE_COLUMNS
};

static char *replay_batch;		/* the setting, or an empty string */
static bool is_deleting = false;	/* idem_evidence_delete() runs */

/* ---- the replay batch ---- */

static bool
check_replay_batch(char **value, void **extra, GucSource source)
{
	const char *fault = idem_argument_fault(*value, strlen(*value));

	if (fault != NULL)
		GUC_check_errdetail("It %s.", fault);
	return fault == NULL;
}

void
idem_evidence_settings(void)
{
	DefineCustomStringVariable("idem_action.replay_batch",
							   "Stamps the records and the evidence that are written while it is set.",
							   "Use SET LOCAL in each transaction of a replay; empty: no replay.",
							   &replay_batch, "", PGC_USERSET, 0,
							   check_replay_batch, NULL, NULL);
}

/* or NULL */
text *
idem_evidence_batch(void)
{
	return replay_batch[0] == '\0' ? NULL : cstring_to_text(replay_batch);
}

/* ---- writing ---- */

static void
fill_slot(TupleTableSlot *slot, const Evidence *evidence)
{
	Datum	   *values = slot->tts_values;
	bool	   *nulls = slot->tts_isnull;

	ExecClearTuple(slot);
	memset(nulls, true, slot->tts_tupleDescriptor->natts * sizeof(bool));
	row_set_pointer(values, nulls, EVIDENCE_KEY, evidence->key);
	row_set_moment(values, nulls, EVIDENCE_RECORDED_AT, evidence->recorded_at);
	row_set_pointer(values, nulls, EVIDENCE_CALL, cstring_to_text(evidence->call));
	row_set_pointer(values, nulls, EVIDENCE_OUTCOME, evidence->outcome == NULL ? NULL :
					cstring_to_text(evidence->outcome));
	row_set_pointer(values, nulls, EVIDENCE_STATE,
					cstring_to_text(idem_state_names[evidence->state]));
	values[EVIDENCE_GENERATION] = Int64GetDatum(evidence->generation);
	nulls[EVIDENCE_GENERATION] = false;
	values[EVIDENCE_ATTEMPT] = Int32GetDatum(evidence->attempt);
	nulls[EVIDENCE_ATTEMPT] = false;
	row_set_pointer(values, nulls, EVIDENCE_WORKER, evidence->worker);
	row_set_pointer(values, nulls, EVIDENCE_ROLE_NAME,
					cstring_to_text(GetUserNameFromId(GetUserId(), false)));
	row_set_moment(values, nulls, EVIDENCE_LEASE_UNTIL, evidence->lease_until);
	row_set_pointer(values, nulls, EVIDENCE_DETAIL, evidence->detail);
	row_set_pointer(values, nulls, EVIDENCE_CHANNEL_REF, evidence->channel_ref);
	row_set_pointer(values, nulls, EVIDENCE_DIGEST, evidence->digest);
	row_set_pointer(values, nulls, EVIDENCE_TRANSPORT, evidence->transport);
	row_set_pointer(values, nulls, EVIDENCE_REPLAY_BATCH, idem_evidence_batch());
	row_set_pointer(values, nulls, EVIDENCE_NOTE, evidence->note);
	ExecStoreVirtualTuple(slot);
}

static Relation
open_evidence(const Home *home)
{
	return idem_look_open(home, "idem_evidence", EVIDENCE_COLUMNS, RowExclusiveLock);
}

static void
insert_row(Relation relation, const Evidence *evidence)
{
	EState	   *estate = CreateExecutorState();
	ResultRelInfo *target = makeNode(ResultRelInfo);
	TupleTableSlot *slot = table_slot_create(relation, NULL);

	InitResultRelInfo(target, relation, 0, NULL, 0);
	ExecOpenIndices(target, false);
	fill_slot(slot, evidence);
	ExecSimpleRelationInsert(target, estate, slot);
	ExecCloseIndices(target);
	ExecDropSingleTupleTableSlot(slot);
	FreeExecutorState(estate);
}

void
idem_evidence_write(const Home *home, const Evidence *evidence)
{
	Relation	relation = open_evidence(home);

	insert_row(relation, evidence);
	table_close(relation, NoLock);
}

/* ---- conflicts ---- */

static bool
is_same_digest(const Digest *digest, Datum value, bool isnull)
{
	if (digest == NULL || isnull)
		return digest == NULL && isnull;
	return memcmp(digest, DatumGetDigestP(value), sizeof(Digest)) == 0;
}

static bool
is_conflict(Datum call)
{
	text	   *name = DatumGetTextPP(call);

	return VARSIZE_ANY_EXHDR(name) == strlen("conflict") &&
		memcmp(VARDATA_ANY(name), "conflict", strlen("conflict")) == 0;
}

/*
 * Whether one more conflict of the key is worth a row.  The look is a dirty
 * one: what others are about to commit counts, and no page is locked against
 * serializable neighbours.
 */
static bool
is_news(Relation relation, Oid index, const Evidence *evidence)
{
	FmgrInfo	equal = {.fn_addr = idem_key_eq,.fn_nargs = 2,.fn_strict = true};
	ScanKeyData scankey;
	SnapshotData dirty;
	SysScanDesc scan;
	HeapTuple	tuple;
	int			nconflicts = 0;
	bool		is_known = false;

	InitDirtySnapshot(dirty);
	ScanKeyEntryInitializeWithInfo(&scankey, 0, 1, BTEqualStrategyNumber, InvalidOid, InvalidOid,
								   &equal, PointerGetDatum(evidence->key));
	scan = systable_beginscan(relation, index, true, &dirty, 1, &scankey);
	while (!is_known && HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		bool		isnull;

		if (!is_conflict(heap_getattr(tuple, EVIDENCE_CALL + 1, RelationGetDescr(relation), &isnull)))
			continue;
		nconflicts++;
		is_known = is_same_digest(evidence->digest,
								  heap_getattr(tuple, EVIDENCE_DIGEST + 1,
											   RelationGetDescr(relation), &isnull), isnull);
	}
	systable_endscan(scan);
	return !is_known && nconflicts < CONFLICTS_MAX;
}

/*
 * A conflict that is answered, unless there is a row of the same digest or
 * enough of others.  Who looks and who writes meanwhile must not be two: they
 * queue for a lock that stands for the key and is held for that long only.
 */
void
idem_evidence_conflict(const Home *home, const Evidence *evidence)
{
	Relation	relation = open_evidence(home);
	Oid			index = get_relname_relid("idem_evidence_key", home->schema);
	ItemPointerData lock;

	ItemPointerSet(&lock, hash_bytes((const unsigned char *) VARDATA_ANY(evidence->key),
									 VARSIZE_ANY_EXHDR(evidence->key)), FirstOffsetNumber);
	LockTuple(relation, &lock, ExclusiveLock);
	if (!OidIsValid(index) || is_news(relation, index, evidence))
		insert_row(relation, evidence);
	UnlockTuple(relation, &lock, ExclusiveLock);
	table_close(relation, NoLock);
}

/* ---- keeping ---- */

static Statement delete_evidence = {
	"DELETE FROM %1$s.idem_evidence"
	" WHERE key OPERATOR(%1$s.=) ANY ($1::pg_catalog.text[]::%1$s.idem_key[])",
	1, {TEXTARRAYOID}, SPI_OK_DELETE
};

/* all evidence of actions that are deleted in the same transaction; keys is a text[] */
uint64
idem_evidence_delete(const Home *home, Datum keys)
{
	uint64		rows = 0;

	is_deleting = true;
	PG_TRY();
	{
		rows = idem_statement_run(&delete_evidence, home, &keys, NULL, InvalidSnapshot, NULL, NULL);
	}
	PG_FINALLY();
	{
		is_deleting = false;
	}
	PG_END_TRY();
	return rows;
}

PG_FUNCTION_INFO_V1(idem_keep_evidence);
Datum
idem_keep_evidence(PG_FUNCTION_ARGS)
{
	TriggerData *trigger = (TriggerData *) fcinfo->context;

	if (!CALLED_AS_TRIGGER(fcinfo))
		elog(ERROR, "idem_keep_evidence is not called as a trigger");
	if (is_deleting && TRIGGER_FIRED_BY_DELETE(trigger->tg_event))
		PG_RETURN_POINTER(trigger->tg_trigtuple);
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("evidence is only added to"),
			 errdetail("What was recorded of an action stays as it was recorded."),
			 errhint("Add what is known now with idem_add_evidence(key, generation, detail). "
					 "idem_purge() deletes evidence together with the action it speaks of.")));
}
