/*
 * machine_define.c
 *		Defining the state machine of an application's table.
 *
 * The definition is checked whole against the table before the triggers are
 * made: columns exist and have fitting types, every state can be reached,
 * nothing leads out of a terminal one, and no row is in a state that the
 * machine does not know.  The triggers are made as the caller, who must own
 * the table.
 */
#include "idem_action.h"
#include "machine.h"

#include "access/table.h"
#include "access/xact.h"
#include "catalog/pg_class.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "tcop/utility.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

/* ---- checking ---- */

static void
check_reachable(const Machine *machine)
{
	bool	   *is_reached = palloc0(machine->nstates * sizeof(bool));
	bool		is_growing = true;

	memcpy(is_reached, machine->is_initial, machine->nstates * sizeof(bool));
	while (is_growing)
	{
		is_growing = false;
		for (int from = 0; from < machine->nstates; from++)
			for (int to = 0; to < machine->nstates; to++)
				if (is_reached[from] && !is_reached[to] &&
					machine->is_legal[from * machine->nstates + to])
					is_reached[to] = is_growing = true;
	}
	for (int i = 0; i < machine->nstates; i++)
		if (!is_reached[i])
			refuse("state \"%s\" cannot be reached from an initial one", machine->states[i]);
}

/* writing a row without changing its state needs no transition */
static void
check_loops(const Machine *machine)
{
	for (int i = 0; i < machine->nstates; i++)
		if (machine->is_legal[i * machine->nstates + i])
			refuse("a transition leads from state \"%s\" to itself", machine->states[i]);
}

static void
check_terminal(const Machine *machine)
{
	for (int from = 0; from < machine->nstates; from++)
		for (int to = 0; to < machine->nstates; to++)
			if (machine->is_terminal[from] && machine->is_legal[from * machine->nstates + to])
				refuse("terminal state \"%s\" must not be left, but a transition leads to \"%s\"",
					   machine->states[from], machine->states[to]);
}

/* no row may be where the machine has no rules for it */
static void
check_rows(Relation relation, const MachineText *wording, const Machine *machine)
{
	Datum	   *names = palloc(machine->nstates * sizeof(Datum));
	Oid			argtypes[1] = {TEXTARRAYOID};
	Datum		args[1];
	char	   *query;
	const char *column = quote_identifier(wording->state_column);

	for (int i = 0; i < machine->nstates; i++)
		names[i] = CStringGetTextDatum(machine->states[i]);
	args[0] = PointerGetDatum(construct_array(names, machine->nstates, TEXTOID, -1, false,
											  TYPALIGN_INT));
	query = psprintf("SELECT 1 FROM %s WHERE %s IS NULL OR %s::pg_catalog.text OPERATOR(pg_catalog.<>) ALL ($1) LIMIT 1",
					 quote_qualified_identifier(get_namespace_name(RelationGetNamespace(relation)),
												RelationGetRelationName(relation)),
					 column, column);
	if (SPI_execute_with_args(query, 1, argtypes, args, NULL, false, 1) != SPI_OK_SELECT)
		elog(ERROR, "could not look at the rows of the table");
	if (SPI_processed > 0)
		ereport(ERROR,
				(errcode(ERRCODE_CHECK_VIOLATION),
				 errmsg("table \"%s\" holds a row in no state of the machine",
						RelationGetRelationName(relation)),
				 errhint("Name every state that rows are in, or mend the rows first."),
				 errtable(relation)));
}

/* ---- defining ---- */

static ArrayType *
states_argument(FunctionCallInfo fcinfo, int n, const char *name, bool is_needed)
{
	ArrayType  *array;

	if (is_needed)
		idem_argument_require(fcinfo, n, name);
	if (PG_ARGISNULL(n))
		return construct_empty_array(TEXTOID);
	array = PG_GETARG_ARRAYTYPE_P(n);
	if (array_contains_nulls(array))
		refuse("%s must not hold nulls", name);
	if (is_needed && ARR_NDIM(array) == 0)
		refuse("%s must not be empty", name);
	return array;
}

static void
machine_argument(FunctionCallInfo fcinfo, MachineText *wording)
{
	idem_argument_require(fcinfo, 1, "state_column");
	wording->state_column = NameStr(*PG_GETARG_NAME(1));
	wording->transitions = states_argument(fcinfo, 2, "transitions", true);

	if (ARR_NDIM(wording->transitions) != 2 || ARR_DIMS(wording->transitions)[1] != 2)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("transitions must be pairs of states"),
				 errhint("Write ARRAY[['UNPAID','PAID'],['UNPAID','CLOSED']].")));
	wording->initial = states_argument(fcinfo, 3, "initial", true);
	wording->terminal = states_argument(fcinfo, 4, "terminal", false);

	if (ARR_NDIM(wording->initial) != 1 || ARR_NDIM(wording->terminal) > 1)
		refuse("initial and terminal must be lists of states");
	wording->generation_column = PG_ARGISNULL(5) ? NULL : NameStr(*PG_GETARG_NAME(5));
	wording->immutable_columns = PG_ARGISNULL(6) ? construct_empty_array(TEXTOID) :
		PG_GETARG_ARRAYTYPE_P(6);

	if (ARR_NDIM(wording->immutable_columns) > 1 || array_contains_nulls(wording->immutable_columns))
		refuse("immutable_columns must be a list of columns");
}

/* whoever does not own the table must not even wait for its lock */
static Relation
open_own_table(FunctionCallInfo fcinfo)
{
	Oid			relid;
	char		kind;

	idem_argument_require(fcinfo, 0, "table");
	relid = PG_GETARG_OID(0);
	kind = get_rel_relkind(relid);
	if (kind != '\0' && kind != RELKIND_RELATION && kind != RELKIND_PARTITIONED_TABLE)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("\"%s\" is not a table", get_rel_name(relid))));
	if (kind != '\0' && !idem_owns_table(relid))
		aclcheck_error(ACLCHECK_NOT_OWNER, OBJECT_TABLE, get_rel_name(relid));
	return idem_machine_open(relid, ShareRowExclusiveLock);
}

static char *
list_literal(ArrayType *array)
{
	return quote_literal_cstr(OidOutputFunctionCall(F_ARRAY_OUT, PointerGetDatum(array)));
}

static void
run_utility(const char *command)
{
	if (SPI_execute(command, false, 0) != SPI_OK_UTILITY)
		elog(ERROR, "could not run: %s", command);
}

static char *
table_name(Relation relation)
{
	return quote_qualified_identifier(get_namespace_name(RelationGetNamespace(relation)),
									  RelationGetRelationName(relation));
}

/* what is to be known of a table that must not be open while it is altered */
typedef struct Target
{
	char	   *name;			/* qualified and quoted */
	bool		is_partition;	/* rows may move to or from another */
	bool		has_guard;
	bool		has_columns;
} Target;

static Target
close_target(Relation relation)
{
	Target		target = {
		.name = table_name(relation),
		.is_partition = relation->rd_rel->relkind == RELKIND_PARTITIONED_TABLE ||
		relation->rd_rel->relispartition,
		.has_guard = idem_machine_trigger(relation) != NULL,
		.has_columns = idem_machine_trigger_named(relation, COLUMNS_TRIGGER) != NULL
	};

	table_close(relation, NoLock);
	return target;
}

static void
drop_triggers(const Target *target)
{
	if (target->has_guard)
		run_utility(psprintf("DROP TRIGGER " GUARD_TRIGGER " ON %s", target->name));
	if (target->has_columns)
		run_utility(psprintf("DROP TRIGGER " COLUMNS_TRIGGER " ON %s", target->name));
}

static char *
column_list(const MachineText *wording)
{
	StringInfoData list;
	int			n;
	char	  **names = idem_machine_names(wording->immutable_columns, &n);

	initStringInfo(&list);
	appendStringInfoString(&list, quote_identifier(wording->state_column));
	if (wording->generation_column != NULL)
		appendStringInfo(&list, ", %s", quote_identifier(wording->generation_column));
	for (int i = 0; i < n; i++)
		appendStringInfo(&list, ", %s", quote_identifier(names[i]));
	return list.data;
}

/* a row that moves between partitions is deleted here and inserted there */
static void
create_triggers(const Home *home, const Target *target, const MachineText *wording)
{
	const char *schema = quote_identifier(get_namespace_name(home->schema));

	run_utility(psprintf("CREATE TRIGGER " COLUMNS_TRIGGER " AFTER UPDATE OF %s ON %s"
						 " FOR EACH ROW EXECUTE FUNCTION %s.idem_guard()",
						 column_list(wording), target->name, schema));
	run_utility(psprintf("ALTER TABLE %s DISABLE TRIGGER " COLUMNS_TRIGGER, target->name));
	run_utility(psprintf("CREATE TRIGGER " GUARD_TRIGGER " AFTER INSERT OR UPDATE%s ON %s"
						 " FOR EACH ROW EXECUTE FUNCTION %s.idem_guard(%s, %s, %s, %s)",
						 target->is_partition ? " OR DELETE" : "", target->name, schema,
						 list_literal(wording->transitions), list_literal(wording->initial),
						 list_literal(wording->terminal),
						 wording->generation_column != NULL ? "'true'" : "'false'"));
}

PG_FUNCTION_INFO_V1(idem_define_machine);
Datum
idem_define_machine(PG_FUNCTION_ARGS)
{
	Home		home;
	MachineText wording;
	Machine		machine;
	Relation	relation;
	Target		target;

	PreventCommandIfReadOnly("idem_define_machine()");
	idem_home(fcinfo, &home);
	relation = open_own_table(fcinfo);
	machine_argument(fcinfo, &wording);
	idem_machine_compile(relation, &wording, &machine);
	check_loops(&machine);
	check_terminal(&machine);
	check_reachable(&machine);

	SPI_connect();
	check_rows(relation, &wording, &machine);
	target = close_target(relation);
	drop_triggers(&target);
	create_triggers(&home, &target, &wording);
	SPI_finish();
	PG_RETURN_VOID();
}

PG_FUNCTION_INFO_V1(idem_drop_machine);
Datum
idem_drop_machine(PG_FUNCTION_ARGS)
{
	Relation	relation;
	Target		target;

	PreventCommandIfReadOnly("idem_drop_machine()");
	relation = open_own_table(fcinfo);
	if (idem_machine_trigger(relation) == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("table \"%s\" has no machine", RelationGetRelationName(relation))));
	target = close_target(relation);
	SPI_connect();
	drop_triggers(&target);
	SPI_finish();
	PG_RETURN_VOID();
}
