/*
 * contract.c
 *		What an operation promises, and the cache of it.
 *
 * A contract is written in revisions: rows of idem_contract that are never
 * changed.  The highest revision is in force; an older one still judges the
 * actions that were recorded under it.  (define.c writes them.)
 *
 * Contracts are read once per backend and kept.  Whoever writes one sends a
 * relation cache invalidation of the table, which every backend accepts
 * before it judges, also inside a long transaction.  They are read under the
 * newest snapshot, not the transaction's: a change of effect locks writers
 * out, and whoever comes after it must not act on the contract from before.
 *
 * Memory: the cache's context, one per filling.  A stale one is not freed at
 * once, since a caller further up may hold a contract; it is handed to the
 * transaction and goes with it.
 */
#include "idem_action.h"

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "utils/builtins.h"
#include "utils/inval.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

typedef struct CachedContract
{
	Contract	contract;		/* what is handed out */
	int			length;			/* of its operation's name */
	bool		is_current;		/* the revision in force */
	struct CachedContract *next;	/* in no order that matters */
} CachedContract;

static MemoryContext cache_context = NULL;	/* owns what follows */
static CachedContract *cache = NULL;	/* what has been read */
static Oid	cache_schema = InvalidOid;	/* from which schema's table; invalid: stale */
static Oid	cache_relid = InvalidOid;	/* that table */

/* the order in which read_contract() takes the columns */
static Statement select_contract = {
	"SELECT revision, effect, channel, lease, digest_include, digest_exclude,"
	" channel_idempotent, channel_key_ttl, channel_queryable, absence_visible_after,"
	" max_attempts, backoff_base, backoff_max, keep_params"
	" FROM %1$s.idem_contract"
	" WHERE operation OPERATOR(pg_catalog.=) $1"
	" AND ($2 IS NULL OR revision OPERATOR(pg_catalog.=) $2)"
	" ORDER BY revision DESC LIMIT 1",
	2, {TEXTOID, INT4OID}, SPI_OK_SELECT
};

static void
forget_contracts(Datum arg, Oid relid)
{
	if (relid == InvalidOid || relid == cache_relid)
		cache_schema = InvalidOid;
}

/* an empty cache where there was a stale one; dropping the table makes it stale too */
static void
refresh_cache(const Home *home)
{
	static bool is_registered = false;	/* forget_contracts() is called */

	if (!is_registered)
	{
		CacheRegisterRelcacheCallback(forget_contracts, (Datum) 0);
		is_registered = true;
	}
	AcceptInvalidationMessages();
	if (cache_schema == home->schema)
		return;
	if (cache_context != NULL)
		MemoryContextSetParent(cache_context, TopTransactionContext);
	cache = NULL;
	cache_context = AllocSetContextCreate(CacheMemoryContext, "idem_action contracts",
										  ALLOCSET_SMALL_SIZES);
	cache_relid = idem_home_relation(home, "idem_contract");
	cache_schema = home->schema;
}

static Datum
column(SPITupleTable *table, int n, bool *isnull)
{
	return SPI_getbinval(table->vals[0], table->tupdesc, n, isnull);
}

static int64
interval_column(SPITupleTable *table, int n, int64 missing)
{
	bool		isnull;
	Datum		value = column(table, n, &isnull);

	return isnull ? missing : idem_interval_usecs(DatumGetIntervalP(value));
}

static ArrayType *
array_column(SPITupleTable *table, int n)
{
	bool		isnull;
	Datum		value = column(table, n, &isnull);

	return isnull ? NULL : DatumGetArrayTypeP(value);
}

/* SPI's memory goes with SPI_finish, so everything is copied into the cache */
static void
read_contract(SPITupleTable *table, uint64 rows, void *target)
{
	Contract   *contract = target;
	MemoryContext old = MemoryContextSwitchTo(cache_context);
	bool		isnull;

	if (rows > 0)
	{
		contract->revision = DatumGetInt32(column(table, 1, &isnull));
		contract->is_local = strcmp(TextDatumGetCString(column(table, 2, &isnull)), "local") == 0;
		contract->channel = TextDatumGetCString(column(table, 3, &isnull));
		contract->lease = interval_column(table, 4, 0);
		idem_digest_rule(array_column(table, 5), array_column(table, 6), &contract->rule);
		contract->promise.is_idempotent = DatumGetBool(column(table, 7, &isnull));
		contract->promise.key_ttl = interval_column(table, 8, 0);
		contract->promise.is_queryable = DatumGetBool(column(table, 9, &isnull));
		contract->promise.absence_after = interval_column(table, 10, 0);
		contract->max_attempts = DatumGetInt32(column(table, 11, &isnull));
		contract->backoff_base = interval_column(table, 12, 0);
		contract->backoff_max = interval_column(table, 13, 0);
		contract->keep_params = DatumGetBool(column(table, 14, &isnull));
	}
	MemoryContextSwitchTo(old);
}

/* revision 0: the one in force; NULL if there is none */
static const Contract *
load_contract(const Home *home, const char *operation, int length, int32 revision)
{
	CachedContract *entry = MemoryContextAllocZero(cache_context, sizeof(CachedContract));
	Datum		values[2] = {PointerGetDatum(cstring_to_text_with_len(operation, length)),
	Int32GetDatum(revision)};
	Snapshot	latest = RegisterSnapshot(GetLatestSnapshot());
	uint64		rows = idem_statement_run(&select_contract, home, values,
										  revision == 0 ? " n" : NULL, latest,
										  read_contract, &entry->contract);

	UnregisterSnapshot(latest);
	if (rows == 0)
	{
		pfree(entry);
		return NULL;
	}
	entry->contract.operation = MemoryContextStrdup(cache_context,
													pnstrdup(operation, length));
	entry->length = length;
	entry->is_current = revision == 0;
	entry->next = cache;
	cache = entry;
	return &entry->contract;
}

/* the contract in force, or NULL; it stays until the transaction ends */
const Contract *
idem_contract_find(const Home *home, const char *operation, int length)
{
	refresh_cache(home);
	for (CachedContract *entry = cache; entry != NULL; entry = entry->next)
		if (entry->is_current && entry->length == length &&
			memcmp(entry->contract.operation, operation, length) == 0)
			return &entry->contract;
	return load_contract(home, operation, length, 0);
}

/* the contract in force for a key's operation; ID006 if there is none */
const Contract *
idem_contract_current(const Home *home, const IdemKey *key)
{
	KeyParts	parts;
	const Contract *contract;
	char	   *operation;

	idem_key_split(key, &parts);
	contract = idem_contract_find(home, parts.operation.bytes, parts.operation.length);
	if (contract != NULL)
		return contract;

	operation = pnstrdup(parts.operation.bytes, parts.operation.length);
	ereport(ERROR,
			(errcode(ERRCODE_IDEM_UNDEFINED_OPERATION),
			 errmsg("operation \"%s\" is not defined", operation),
			 errdetail("No contract says what an action of it promises."),
			 errhint("Check the spelling, or define it: SELECT idem_define_operation(%s, effect => 'local'); "
					 "or effect => 'external' if a channel is called between two transactions.",
					 quote_literal_cstr(operation))));
}

/* the same operation's contract as it was at a revision */
const Contract *
idem_contract_revision(const Home *home, const Contract *current, int32 revision)
{
	int			length = strlen(current->operation);
	const Contract *contract;

	if (current->revision == revision)
		return current;
	for (CachedContract *entry = cache; entry != NULL; entry = entry->next)
		if (entry->contract.revision == revision && entry->length == length &&
			memcmp(entry->contract.operation, current->operation, length) == 0)
			return &entry->contract;

	contract = load_contract(home, current->operation, length, revision);
	if (contract == NULL)
		elog(ERROR, "revision %d of operation \"%s\" is missing", revision, current->operation);
	return contract;
}
