/*
 * watermark.c
 *		Up to when identity was deleted.
 *
 * A purge that deletes the record of a key raises the watermark of the key's
 * tenant and name to its cut-off, in the same transaction.  A key that is not
 * on record is new only if it occurred after the watermark; otherwise its
 * record may be one of those that were deleted, and nobody may act on it.
 *
 * What must hold:
 *
 *	- the watermark is looked at after the key was found missing, and under a
 *	  snapshot at least as new: whoever misses a record because a purge has
 *	  deleted it sees the watermark which that purge raised.  Under REPEATABLE
 *	  READ and SERIALIZABLE a watermark newer than the snapshot is 40001 (see
 *	  look.c).  Nothing is kept beyond one call;
 *	- it is looked at once more after a record was put there.  Between the
 *	  look and the insert a backend can sleep for as long as it likes, and
 *	  another one can be granted the same key, finish, and have its record
 *	  purged; then nothing is in the way of the insert.  But that purge has
 *	  committed, or the insert would have waited for it, so the second look
 *	  sees its watermark, and the sleeper is told to try again;
 *	- a watermark only rises, and outlives the contract's retention.
 *
 * A table of watermarks that has no page yet says that nothing was ever
 * purged, which costs whoever never purges next to nothing.
 *
 * Locks: AccessShareLock on idem_watermark until the transaction ends.
 */
#include "idem_action.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/pg_type.h"
#include "storage/bufmgr.h"
#include "utils/builtins.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

enum							/* columns of idem_watermark */
{
	WATERMARK_KEY = 1, WATERMARK_UNTIL, WATERMARK_COLUMNS = WATERMARK_UNTIL
};

static Statement select_operation = {
	"SELECT 1 FROM %1$s.idem_watermark"
	" WHERE %1$s.idem_key_operation(key) OPERATOR(pg_catalog.=) $1"
	" AND %1$s.idem_key_id(key) OPERATOR(pg_catalog.=) 'a' LIMIT 1",
	1, {TEXTOID}, SPI_OK_SELECT
};

/* only ever up, whatever the clock says */
static Statement raise_watermark = {
	"INSERT INTO %1$s.idem_watermark AS old (key, until) VALUES ($1, $2)"
	" ON CONFLICT (key) DO UPDATE SET until = excluded.until"
	" WHERE old.until OPERATOR(pg_catalog.<) excluded.until",
	2, {TEXTOID, TIMESTAMPTZOID}, SPI_OK_INSERT
};

/*
 * The key of a watermark: tenant and name of the records, and a letter for
 * their kind, since operations and consumers have names of their own.  One
 * letter is never longer than an id, so the key is within its bound.
 */
static IdemKey *
watermark_key(ContractKind kind, const KeyParts *parts)
{
	StringInfoData key;

	initStringInfo(&key);
	appendBinaryStringInfo(&key, parts->tenant.bytes, parts->tenant.length);
	appendStringInfoChar(&key, '/');
	appendBinaryStringInfo(&key, parts->operation.bytes, parts->operation.length);
	appendStringInfoString(&key, kind == KIND_OPERATION ? "/a" : "/e");
	return (IdemKey *) cstring_to_text_with_len(key.data, key.len);
}

void
idem_watermark_open(const Home *home, Watermark *watermark)
{
	Relation	relation = idem_look_open(home, "idem_watermark", WATERMARK_COLUMNS,
										  AccessShareLock);

	memset(watermark, 0, sizeof(Watermark));
	if (RelationGetNumberOfBlocks(relation) > 0)
		watermark->relation = relation;
	else
		table_close(relation, NoLock);
}

void
idem_watermark_close(Watermark *watermark)
{
	if (watermark->relation != NULL)
		table_close(watermark->relation, NoLock);
}

/* looks, unless the last look was at the same one */
static void
look(Watermark *watermark, const Question *question)
{
	KeyParts	parts;
	IdemKey    *key;
	HeapTuple	tuple;
	bool		is_own;
	bool		isnull;

	idem_key_split(question->key, &parts);
	key = watermark_key(question->contract->kind, &parts);
	if (watermark->key != NULL && idem_key_compare(watermark->key, key) == 0)
		return;
	watermark->key = key;
	PushActiveSnapshot(GetTransactionSnapshot());
	tuple = idem_look(watermark->relation, key, &is_own);
	PopActiveSnapshot();
	watermark->is_found = HeapTupleIsValid(tuple);
	if (watermark->is_found)
		watermark->until = DatumGetTimestampTz(heap_getattr(tuple, WATERMARK_UNTIL,
															RelationGetDescr(watermark->relation),
															&isnull));
}

/* what can be said of a key that is not on record */
Age
idem_watermark_age(Watermark *watermark, const Question *question)
{
	bool		is_found = false;

	if (watermark->relation != NULL)
	{
		look(watermark, question);
		is_found = watermark->is_found;
	}
	if (question->occurred_at == TIME_NONE)
		return is_found || question->contract->retention != 0 ? AGE_UNDATED : AGE_NEW;
	return is_found && question->occurred_at <= watermark->until ? AGE_EXPIRED : AGE_NEW;
}

/* after a record was put there: was it overtaken meanwhile? */
void
idem_watermark_check_new(Watermark *watermark, const Question *question)
{
	if (idem_watermark_age(watermark, question) != AGE_NEW)
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("could not serialize access due to concurrent delete"),
				 errdetail("Records as old as that of \"%s\" were purged meanwhile.",
						   idem_key_cstring(question->key)),
				 errhint("The transaction might succeed if retried.")));
}

/* for a key that is not on record: true if it is too old to be proven new */
bool
idem_watermark_is_passed(const Home *home, const Question *question)
{
	Watermark	watermark;
	Age			age;

	idem_watermark_open(home, &watermark);
	age = idem_watermark_age(&watermark, question);
	idem_watermark_close(&watermark);
	if (age == AGE_UNDATED)
		idem_question_refuse_undated(question);
	return age == AGE_EXPIRED;
}

void
idem_watermark_check_inserted(const Home *home, const Question *question)
{
	Watermark	watermark;

	idem_watermark_open(home, &watermark);
	idem_watermark_check_new(&watermark, question);
	idem_watermark_close(&watermark);
}

/* asked under the lock that keeps purges of actions out */
bool
idem_watermark_has_operation(const Home *home, const char *operation)
{
	Datum		value = CStringGetTextDatum(operation);
	Snapshot	latest = RegisterSnapshot(GetLatestSnapshot());
	uint64		rows = idem_statement_run(&select_operation, home, &value, NULL, latest, NULL, NULL);

	UnregisterSnapshot(latest);
	return rows > 0;
}

/* in the transaction that deletes records of this tenant and name */
void
idem_watermark_raise(const Home *home, ContractKind kind, const KeyParts *parts, TimestampTz until)
{
	Datum		values[2] = {PointerGetDatum(watermark_key(kind, parts)),
	TimestampTzGetDatum(until)};

	idem_statement_run(&raise_watermark, home, values, NULL, InvalidSnapshot, NULL, NULL);
}
