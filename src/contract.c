/*
 * contract.c
 *		What an operation or a consumer promises, and the cache of it.
 *
 * A contract is written in revisions: rows of idem_contract, or idem_consumer,
 * that are never changed.  The highest revision is in force; an older one
 * still judges the actions and events that were recorded under it.  (define.c
 * writes them.)
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
	int			length;			/* of its name */
	bool		is_current;		/* the revision in force */
	struct CachedContract *next;	/* in no order that matters */
} CachedContract;

static MemoryContext cache_context = NULL;	/* owns what follows */
static CachedContract *cache = NULL;	/* what has been read */
static Oid	cache_schema = InvalidOid;	/* from which schema's tables;
										 * invalid: stale */
static Oid	cache_relids[2] = {InvalidOid, InvalidOid}; /* those tables, by kind */

const char *const idem_contract_tables[] = {
	[KIND_OPERATION] = "idem_contract",
	[KIND_CONSUMER] = "idem_consumer"
};

/* the order in which read_contract() takes the columns; a consumer has fewer */
static Statement select_contract[] = {
	[KIND_OPERATION] = {
		"SELECT revision, digest_include, digest_exclude, keep_params, effect, channel, lease,"
		" channel_idempotent, channel_key_ttl, channel_queryable, absence_visible_after,"
		" max_attempts, backoff_base, backoff_max, retention, result_retention"
		" FROM %1$s.idem_contract"
		" WHERE operation OPERATOR(pg_catalog.=) $1"
		" AND ($2 IS NULL OR revision OPERATOR(pg_catalog.=) $2)"
		" ORDER BY revision DESC LIMIT 1",
		2, {TEXTOID, INT4OID}, SPI_OK_SELECT
	},
	[KIND_CONSUMER] = {
		"SELECT revision, digest_include, digest_exclude, keep_params, rebuild, retention,"
		" result_retention"
		" FROM %1$s.idem_consumer"
		" WHERE consumer OPERATOR(pg_catalog.=) $1"
		" AND ($2 IS NULL OR revision OPERATOR(pg_catalog.=) $2)"
		" ORDER BY revision DESC LIMIT 1",
		2, {TEXTOID, INT4OID}, SPI_OK_SELECT
	}
};

/* the contracts in force that do not keep everything for ever */
static Statement select_retentions[] = {
	[KIND_OPERATION] = {
		"SELECT operation, retention, result_retention FROM"
		" (SELECT DISTINCT ON (operation) operation, retention, result_retention"
		" FROM %1$s.idem_contract ORDER BY operation, revision DESC) AS current"
		" WHERE (retention IS NOT NULL OR result_retention IS NOT NULL)"
		" AND ($1 IS NULL OR operation OPERATOR(pg_catalog.=) $1)",
		1, {TEXTOID}, SPI_OK_SELECT
	},
	[KIND_CONSUMER] = {
		"SELECT consumer, retention, result_retention FROM"
		" (SELECT DISTINCT ON (consumer) consumer, retention, result_retention"
		" FROM %1$s.idem_consumer ORDER BY consumer, revision DESC) AS current"
		" WHERE (retention IS NOT NULL OR result_retention IS NOT NULL)"
		" AND ($1 IS NULL OR consumer OPERATOR(pg_catalog.=) $1)",
		1, {TEXTOID}, SPI_OK_SELECT
	}
};

static void
forget_contracts(Datum arg, Oid relid)
{
	if (relid == InvalidOid ||
		relid == cache_relids[KIND_OPERATION] || relid == cache_relids[KIND_CONSUMER])
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
	for (int kind = 0; kind < lengthof(cache_relids); kind++)
		cache_relids[kind] = idem_home_relation(home, idem_contract_tables[kind]);
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

static void
read_operation(SPITupleTable *table, Contract *contract)
{
	bool		isnull;

	contract->is_local = strcmp(TextDatumGetCString(column(table, 5, &isnull)), "local") == 0;
	contract->channel = TextDatumGetCString(column(table, 6, &isnull));
	contract->lease = interval_column(table, 7, 0);
	contract->promise.is_idempotent = DatumGetBool(column(table, 8, &isnull));
	contract->promise.key_ttl = interval_column(table, 9, 0);
	contract->promise.is_queryable = DatumGetBool(column(table, 10, &isnull));
	contract->promise.absence_after = interval_column(table, 11, 0);
	contract->max_attempts = DatumGetInt32(column(table, 12, &isnull));
	contract->backoff_base = interval_column(table, 13, 0);
	contract->backoff_max = interval_column(table, 14, 0);
	contract->retention = interval_column(table, 15, 0);
	contract->result_retention = interval_column(table, 16, 0);
}

static void
read_consumer(SPITupleTable *table, Contract *contract)
{
	bool		isnull;

	contract->is_rebuild = DatumGetBool(column(table, 5, &isnull));
	contract->retention = interval_column(table, 6, 0);
	contract->result_retention = interval_column(table, 7, 0);
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
		idem_digest_rule(array_column(table, 2), array_column(table, 3), &contract->rule);
		contract->keep_params = DatumGetBool(column(table, 4, &isnull));
		if (contract->kind == KIND_OPERATION)
			read_operation(table, contract);
		else
			read_consumer(table, contract);
	}
	MemoryContextSwitchTo(old);
}

/* revision 0: the one in force; NULL if there is none */
static const Contract *
load_contract(const Home *home, ContractKind kind, const char *name, int length, int32 revision)
{
	CachedContract *entry = MemoryContextAllocZero(cache_context, sizeof(CachedContract));
	Datum		values[2] = {PointerGetDatum(cstring_to_text_with_len(name, length)),
	Int32GetDatum(revision)};
	bool		nulls[2] = {false, revision == 0};
	Snapshot	latest = RegisterSnapshot(GetLatestSnapshot());
	uint64		rows;

	entry->contract.kind = kind;
	rows = idem_statement_run(&select_contract[kind], home, values, nulls, latest,
							  read_contract, &entry->contract);
	UnregisterSnapshot(latest);
	if (rows == 0)
	{
		pfree(entry);
		return NULL;
	}
	entry->contract.name = MemoryContextStrdup(cache_context, pnstrdup(name, length));
	entry->length = length;
	entry->is_current = revision == 0;
	entry->contract.counters = idem_observe_counters(kind, name, length);
	entry->next = cache;
	cache = entry;
	return &entry->contract;
}

static bool
is_named(const CachedContract *entry, ContractKind kind, const char *name, int length)
{
	return entry->contract.kind == kind && entry->length == length &&
		memcmp(entry->contract.name, name, length) == 0;
}

/* the contract in force, or NULL; it stays until the transaction ends */
const Contract *
idem_contract_find(const Home *home, ContractKind kind, const char *name, int length)
{
	refresh_cache(home);
	for (CachedContract *entry = cache; entry != NULL; entry = entry->next)
		if (entry->is_current && is_named(entry, kind, name, length))
			return &entry->contract;
	return load_contract(home, kind, name, length, 0);
}

/* the key of an event is easily taken for that of an action, and the other way round */
static void
refuse_other_kind(ContractKind kind, const char *name)
{
	if (kind == KIND_CONSUMER)
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_UNDEFINED_OPERATION),
				 errmsg("consumer \"%s\" is not defined", name),
				 errdetail("An operation of that name is."),
				 errhint("The key of an event has the consumer in its middle; actions are asked for with idem_claim, idem_submit or idem_once.")));
	ereport(ERROR,
			(errcode(ERRCODE_IDEM_UNDEFINED_OPERATION),
			 errmsg("operation \"%s\" is not defined", name),
			 errdetail("A consumer of that name is."),
			 errhint("The key of an action has the operation in its middle; events are consumed with idem_consume.")));
}

static void
refuse_undefined(const Home *home, ContractKind kind, const char *name)
{
	char	   *literal = quote_literal_cstr(name);

	if (idem_contract_find(home, kind == KIND_CONSUMER ? KIND_OPERATION : KIND_CONSUMER,
						   name, strlen(name)) != NULL)
		refuse_other_kind(kind, name);
	if (kind == KIND_CONSUMER)
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_UNDEFINED_OPERATION),
				 errmsg("consumer \"%s\" is not defined", name),
				 errdetail("No contract says which part of an event counts for it."),
				 errhint("Check the spelling, or define it: SELECT idem_define_consumer(%s);", literal)));
	ereport(ERROR,
			(errcode(ERRCODE_IDEM_UNDEFINED_OPERATION),
			 errmsg("operation \"%s\" is not defined", name),
			 errdetail("No contract says what an action of it promises."),
			 errhint("Check the spelling, or define it: SELECT idem_define_operation(%s, effect => 'local'); "
					 "or effect => 'external' if a channel is called between two transactions.", literal)));
}

/* the contract in force for a name; ID006 if there is none */
const Contract *
idem_contract_named(const Home *home, ContractKind kind, const char *name, int length)
{
	const Contract *contract = idem_contract_find(home, kind, name, length);

	if (contract == NULL)
		refuse_undefined(home, kind, pnstrdup(name, length));
	return contract;
}

/* likewise for the middle part of a key */
const Contract *
idem_contract_current(const Home *home, ContractKind kind, const IdemKey *key)
{
	KeyParts	parts;

	idem_key_split(key, &parts);
	return idem_contract_named(home, kind, parts.operation.bytes, parts.operation.length);
}

/* the same contract as it was at a revision */
const Contract *
idem_contract_revision(const Home *home, const Contract *current, int32 revision)
{
	int			length = strlen(current->name);
	const Contract *contract;

	if (current->revision == revision)
		return current;
	for (CachedContract *entry = cache; entry != NULL; entry = entry->next)
		if (entry->contract.revision == revision &&
			is_named(entry, current->kind, current->name, length))
			return &entry->contract;

	contract = load_contract(home, current->kind, current->name, length, revision);
	if (contract == NULL)
		elog(ERROR, "revision %d of \"%s\" is missing", revision, current->name);
	return contract;
}

/* ---- what is not kept for ever ---- */

typedef struct RetentionList
{
	MemoryContext context;		/* of what follows */
	Retention  *retentions;
} RetentionList;

static int64
retention_column(SPITupleTable *table, uint64 row, int n)
{
	bool		isnull;
	Datum		value = SPI_getbinval(table->vals[row], table->tupdesc, n, &isnull);

	return isnull ? 0 : idem_interval_usecs(DatumGetIntervalP(value));
}

static void
read_retentions(SPITupleTable *table, uint64 rows, void *target)
{
	RetentionList *list = target;
	MemoryContext old = MemoryContextSwitchTo(list->context);

	list->retentions = palloc(Max(rows, 1) * sizeof(Retention));
	for (uint64 i = 0; i < rows; i++)
	{
		bool		isnull;
		Datum		name = SPI_getbinval(table->vals[i], table->tupdesc, 1, &isnull);

		list->retentions[i].name = DatumGetTextPCopy(name);
		list->retentions[i].retention = retention_column(table, i, 2);
		list->retentions[i].result_retention = retention_column(table, i, 3);
	}
	MemoryContextSwitchTo(old);
}

/* of one name, or of all; how many there are */
int
idem_contract_retentions(const Home *home, ContractKind kind, const text *name,
						 Retention **retentions)
{
	RetentionList list = {.context = CurrentMemoryContext};
	Datum		value = PointerGetDatum(name);
	bool		isnull = name == NULL;
	Snapshot	latest = RegisterSnapshot(GetLatestSnapshot());
	uint64		rows = idem_statement_run(&select_retentions[kind], home, &value, &isnull, latest,
										  read_retentions, &list);

	UnregisterSnapshot(latest);
	*retentions = list.retentions;
	return rows;
}
