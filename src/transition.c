/*
 * transition.c
 *		Moving a guarded row from one state to another, once.
 *
 * Whoever finds the row in the first state moves it; everybody else is told
 * what is the case.  Both statements run as the caller, with his privileges
 * and under row security, so nothing here is the owner's business.  A move
 * that the machine does not have is refused whatever state the row is in.
 *
 * Plans are kept for each table and type of id.  Their texts hold the names
 * of the table, its schema and its types, so they are made anew when one of
 * those may have changed.  A trigger of the table may ask for another
 * transition while the plan of this one is running, so plans that are
 * replaced meanwhile are put aside, and freed by the next call that is not
 * nested in another.
 *
 * At READ COMMITTED a loser waits for the winner's commit, misses the row
 * and then looks; at the stricter levels PostgreSQL fails it with 40001.
 */
#include "idem_action.h"
#include "machine.h"
#include "row.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/pg_operator.h"
#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "nodes/pg_list.h"
#include "tcop/utility.h"
#include "utils/builtins.h"
#include "utils/hsearch.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/syscache.h"
#include "utils/typcache.h"

/* looks after a missed row before it is given up as one that the caller cannot update */
#define ROUNDS_MAX 10

typedef struct TransitionKey
{
	Oid			relid;			/* the table */
	Oid			id_type;		/* text, bigint or uuid */
} TransitionKey;

typedef struct Transition
{
	TransitionKey key;			/* hash key */
	bool		is_valid;		/* else prepare anew */
	MemoryContext context;		/* owns the machine */
	Machine		machine;		/* whose moves these are */
	SPIPlanPtr	move;			/* id, from, to, generation */
	SPIPlanPtr	look;			/* id */
} Transition;

typedef struct Request
{
	Datum		id;
	char	   *from;
	char	   *to;
	bool		has_generation;
	int64		generation;
} Request;

static HTAB *transitions = NULL;	/* by table and type of id */
static int	depth = 0;			/* calls that are running in each other */
static uint64 ninvalidations = 0;	/* seen so far */
static List *retired = NIL;		/* plans that one of them may be running */

static void
forget_all(Datum arg, int cacheid, uint32 hashvalue)
{
	HASH_SEQ_STATUS status;
	Transition *entry;

	ninvalidations++;
	hash_seq_init(&status, transitions);
	while ((entry = hash_seq_search(&status)) != NULL)
		entry->is_valid = false;
}

static void
forget_transitions(Datum arg, Oid relid)
{
	HASH_SEQ_STATUS status;
	Transition *entry;

	ninvalidations++;
	hash_seq_init(&status, transitions);
	while ((entry = hash_seq_search(&status)) != NULL)
		if (relid == InvalidOid || relid == entry->key.relid)
			entry->is_valid = false;
}

static void
create_cache(void)
{
	HASHCTL		control = {.keysize = sizeof(TransitionKey),.entrysize = sizeof(Transition),
	.hcxt = CacheMemoryContext};

	transitions = hash_create("idem_action transitions", 16, &control,
							  HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	CacheRegisterRelcacheCallback(forget_transitions, (Datum) 0);
	CacheRegisterSyscacheCallback(NAMESPACEOID, forget_all, (Datum) 0);
	CacheRegisterSyscacheCallback(TYPEOID, forget_all, (Datum) 0);
	CacheRegisterSyscacheCallback(OPEROID, forget_all, (Datum) 0);
}

/* "column = $n" with the equality of the column's own type, wherever that lives */
static char *
equals(Relation relation, AttrNumber column, const char *parameter)
{
	Form_pg_attribute attribute = TupleDescAttr(RelationGetDescr(relation), column - 1);
	TypeCacheEntry *type = lookup_type_cache(attribute->atttypid, TYPECACHE_EQ_OPR);
	HeapTuple	tuple;
	char	   *text;

	if (!OidIsValid(type->eq_opr))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_FUNCTION),
				 errmsg("column \"%s\" has a type without equality", NameStr(attribute->attname))));
	tuple = SearchSysCache1(OPEROID, ObjectIdGetDatum(type->eq_opr));
	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for operator %u", type->eq_opr);
	text = psprintf("%s OPERATOR(%s.%s) %s::%s", quote_identifier(NameStr(attribute->attname)),
					quote_identifier(get_namespace_name(((Form_pg_operator) GETSTRUCT(tuple))->oprnamespace)),
					NameStr(((Form_pg_operator) GETSTRUCT(tuple))->oprname), parameter,
					format_type_be_qualified(attribute->atttypid));

	ReleaseSysCache(tuple);
	return text;
}

static AttrNumber
primary_key_column(Relation relation)
{
	Bitmapset  *columns = RelationGetIndexAttrBitmap(relation, INDEX_ATTR_BITMAP_PRIMARY_KEY);

	if (bms_membership(columns) != BMS_SINGLETON)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("table \"%s\" has no primary key of one column", RelationGetRelationName(relation)),
				 errhint("Write the UPDATE yourself; the guard judges it just the same.")));
	return bms_singleton_member(columns) + FirstLowInvalidHeapAttributeNumber;
}

static SPIPlanPtr
keep_plan(const char *text, int nargs, Oid *argtypes)
{
	SPIPlanPtr	plan = SPI_prepare(text, nargs, argtypes);

	if (plan == NULL)
		elog(ERROR, "could not prepare statement: %s", SPI_result_code_string(SPI_result));
	if (SPI_keepplan(plan) != 0)
		elog(ERROR, "could not keep statement");
	return plan;
}

/* the machine lives as long as the entry is valid */
static void
read_machine(Relation relation, Transition *transition, MachineText *wording)
{
	Trigger    *trigger = idem_machine_trigger(relation);
	MemoryContext old;

	if (trigger == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("table \"%s\" has no machine", RelationGetRelationName(relation)),
				 errhint("Its owner defines one with idem_define_machine().")));
	if (transition->context == NULL)
		transition->context = AllocSetContextCreate(CacheMemoryContext, "idem_action transition",
													ALLOCSET_SMALL_SIZES);
	else
		MemoryContextReset(transition->context);
	old = MemoryContextSwitchTo(transition->context);
	idem_machine_text(relation, trigger, wording);
	idem_machine_compile(relation, wording, &transition->machine);
	MemoryContextSwitchTo(old);
}

static void
prepare(Relation relation, Transition *transition)
{
	Oid			argtypes[4] = {transition->key.id_type, TEXTOID, TEXTOID, INT8OID};
	AttrNumber	id = primary_key_column(relation);
	const Machine *machine = &transition->machine;
	uint64		before = ninvalidations;
	MachineText wording;
	char	   *table;
	const char *state;
	const char *generation = NULL;
	StringInfoData move;

	read_machine(relation, transition, &wording);
	table = quote_qualified_identifier(get_namespace_name(RelationGetNamespace(relation)),
									   RelationGetRelationName(relation));
	state = quote_identifier(wording.state_column);

	initStringInfo(&move);
	appendStringInfo(&move, "UPDATE %s SET %s = $3::%s", table, state,
					 format_type_be_qualified(machine->state_type));
	if (machine->generation != 0)
	{
		generation = quote_identifier(wording.generation_column);
		appendStringInfo(&move, ", %s = COALESCE($4, %s)", generation, generation);
	}
	appendStringInfo(&move, " WHERE %s AND %s", equals(relation, id, "$1"),
					 equals(relation, machine->state, "$2"));
	if (machine->generation != 0)
		appendStringInfo(&move, " AND ($4 IS NULL OR %s IS NULL OR %s OPERATOR(pg_catalog.<=) $4)",
						 generation, generation);
	transition->move = keep_plan(move.data, 4, argtypes);
	transition->look = keep_plan(psprintf("SELECT %s::pg_catalog.text, %s FROM %s WHERE %s", state,
										  generation == NULL ? "NULL::pg_catalog.int8" :
										  psprintf("%s::pg_catalog.int8", generation), table,
										  equals(relation, id, "$1")), 1, argtypes);
	transition->is_valid = before == ninvalidations;	/* one may have come
														 * meanwhile */
}

static void
retire(SPIPlanPtr *plan)
{
	MemoryContext old = MemoryContextSwitchTo(CacheMemoryContext);

	if (*plan != NULL)
		retired = lappend(retired, *plan);
	*plan = NULL;
	MemoryContextSwitchTo(old);
}

static void
free_retired(void)
{
	ListCell   *cell;

	if (depth > 1)
		return;
	foreach(cell, retired)
		SPI_freeplan(lfirst(cell));
	list_free(retired);
	retired = NIL;
}

/* inside SPI */
static Transition *
transition_of(Oid relid, Oid id_type)
{
	TransitionKey key = {relid, id_type};
	Transition *transition;
	Relation	relation;
	bool		is_found;

	if (transitions == NULL)
		create_cache();
	free_retired();
	transition = hash_search(transitions, &key, HASH_ENTER, &is_found);
	if (!is_found)
	{
		transition->is_valid = false;
		transition->context = NULL;
		transition->move = transition->look = NULL;
	}
	if (transition->is_valid)
		return transition;
	retire(&transition->move);
	retire(&transition->look);
	relation = idem_machine_open(relid, AccessShareLock);
	prepare(relation, transition);
	table_close(relation, NoLock);
	return transition;
}

/* a name in a rarely taken branch must not hide: the row's state does not matter here */
static void
check_move(const Transition *transition, const Request *request)
{
	const Machine *machine = &transition->machine;
	int			from = idem_machine_state_named(machine, request->from);
	int			to = idem_machine_state_named(machine, request->to);

	if (request->has_generation && machine->generation == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("the machine of table \"%s\" has no generation column",
						get_rel_name(transition->key.relid)),
				 errhint("Leave generation out, or define the machine with generation_column.")));
	if (from < 0 || to < 0 || !machine->is_legal[from * machine->nstates + to])
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_ILLEGAL_TRANSITION),
				 errmsg("the machine of table \"%s\" has no such transition",
						get_rel_name(transition->key.relid)),
				 from < 0 || to < 0 ? errdetail("%s is none of its states.", from < 0 ? "from_state" : "to_state") :
				 errdetail("No transition leads from \"%s\" to \"%s\".",
						   machine->states[from], machine->states[to]),
				 errhint("Check the spelling, or define the machine anew with idem_define_machine.")));
}

static bool
move(const Transition *transition, const Request *request)
{
	Datum		values[4] = {request->id, CStringGetTextDatum(request->from),
	CStringGetTextDatum(request->to), Int64GetDatum(request->generation)};

	if (SPI_execute_plan(transition->move, values, request->has_generation ? NULL : "   n",
						 false, 0) != SPI_OK_UPDATE)
		elog(ERROR, "could not move the row");
	return SPI_processed > 0;
}

static void
refuse_older(Oid relid, const Request *request, int64 newest)
{
	ereport(ERROR,
			(errcode(ERRCODE_IDEM_STALE_GENERATION),
			 errmsg("generation " INT64_FORMAT " is older than that of the row of table \"%s\"",
					request->generation, get_rel_name(relid)),
			 errdetail("The row has generation " INT64_FORMAT ".", newest),
			 errhint("A newer owner has written the row: stop, and roll back what was written beside this call.")));
}

/* the row's state, in the caller's memory; NULL: no such row */
static char *
look(const Transition *transition, const Request *request, MemoryContext context)
{
	Datum		values[1] = {request->id};
	HeapTuple	row;
	bool		isnull;
	Datum		generation;
	char	   *state;

	if (SPI_execute_plan(transition->look, values, NULL, false, 1) != SPI_OK_SELECT)
		elog(ERROR, "could not look at the row");
	if (SPI_processed == 0)
		return NULL;
	row = SPI_tuptable->vals[0];
	generation = SPI_getbinval(row, SPI_tuptable->tupdesc, 2, &isnull);
	if (request->has_generation && !isnull && DatumGetInt64(generation) > request->generation)
		refuse_older(transition->key.relid, request, DatumGetInt64(generation));
	state = SPI_getvalue(row, SPI_tuptable->tupdesc, 1);
	return state == NULL ? NULL : MemoryContextStrdup(context, state);
}

/* returns the outcome; *state is the row's afterwards */
static const char *
try_move(const Transition *transition, const Request *request, MemoryContext context, char **state)
{
	for (int round = 0; round < ROUNDS_MAX; round++)
	{
		CHECK_FOR_INTERRUPTS();
		if (move(transition, request))
		{
			*state = request->to;
			return "applied";
		}
		*state = look(transition, request, context);
		if (*state != NULL && strcmp(*state, request->to) == 0)
			return "already";
		if (*state == NULL || strcmp(*state, request->from) != 0)
			return "refused";
	}
	return "refused";
}

static const char *
apply(Oid relid, Oid id_type, const Request *request, char **state)
{
	MemoryContext context = CurrentMemoryContext;
	const char *outcome;
	const Transition *transition;

	SPI_connect();
	depth++;
	PG_TRY();
	{
		transition = transition_of(relid, id_type);
		check_move(transition, request);
		outcome = try_move(transition, request, context, state);
	}
	PG_FINALLY();
	{
		depth--;
	}
	PG_END_TRY();
	SPI_finish();
	return outcome;
}

static char *
state_argument(FunctionCallInfo fcinfo, int n, const char *name)
{
	idem_argument_require(fcinfo, n, name);
	return text_to_cstring(PG_GETARG_TEXT_PP(n));
}

static Datum
transition_datum(FunctionCallInfo fcinfo, const char *outcome, const char *state)
{
	Home		home;
	Datum		values[2];
	bool		nulls[2] = {false, state == NULL};

	idem_home(fcinfo, &home);
	values[0] = CStringGetTextDatum(outcome);
	values[1] = state == NULL ? (Datum) 0 : CStringGetTextDatum(state);
	return idem_row_datum(&home, values, nulls, lengthof(values));
}

static Datum
transition(FunctionCallInfo fcinfo, Oid id_type)
{
	Request		request;
	const char *outcome;
	char	   *state = NULL;

	PreventCommandIfReadOnly("idem_transition()");
	idem_argument_require(fcinfo, 0, "table");
	idem_argument_require(fcinfo, 1, "id");
	request.id = PG_GETARG_DATUM(1);
	request.from = state_argument(fcinfo, 2, "from_state");
	request.to = state_argument(fcinfo, 3, "to_state");
	request.has_generation = !PG_ARGISNULL(4);
	request.generation = request.has_generation ? PG_GETARG_INT64(4) : 0;
	outcome = apply(PG_GETARG_OID(0), id_type, &request, &state);
	return transition_datum(fcinfo, outcome, state);
}

PG_FUNCTION_INFO_V1(idem_transition_text);
Datum
idem_transition_text(PG_FUNCTION_ARGS)
{
	return transition(fcinfo, TEXTOID);
}

PG_FUNCTION_INFO_V1(idem_transition_bigint);
Datum
idem_transition_bigint(PG_FUNCTION_ARGS)
{
	return transition(fcinfo, INT8OID);
}

PG_FUNCTION_INFO_V1(idem_transition_uuid);
Datum
idem_transition_uuid(PG_FUNCTION_ARGS)
{
	return transition(fcinfo, UUIDOID);
}
