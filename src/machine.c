/*
 * machine.c
 *		Reading the state machine of an application's table.
 *
 * A machine is read from the two triggers that hold it (see machine.h) and
 * compiled against the table as it is now.  Anybody may make triggers of
 * those names by hand, so what is read is not trusted.
 *
 * Memory is the caller's current context.
 */
#include "idem_action.h"
#include "machine.h"

#include "access/table.h"
#include "catalog/partition.h"
#include "catalog/pg_class.h"
#include "catalog/pg_enum.h"
#include "catalog/pg_type.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/syscache.h"

static ArrayType *
list_of(const char *literal)
{
	return DatumGetArrayTypeP(OidInputFunctionCall(F_ARRAY_IN, unconstify(char *, literal),
												   TEXTOID, -1));
}

Trigger *
idem_machine_trigger_named(Relation relation, const char *name)
{
	TriggerDesc *desc = relation->trigdesc;

	for (int i = 0; desc != NULL && i < desc->numtriggers; i++)
		if (strcmp(desc->triggers[i].tgname, name) == 0)
			return &desc->triggers[i];
	return NULL;
}

/* a partition has copies of the triggers of the table above */
static bool
has_machine_of_its_own(Relation relation)
{
	Trigger    *columns = idem_machine_trigger_named(relation, COLUMNS_TRIGGER);

	return columns != NULL && !columns->tgisclone;
}

/*
 * The table on which a machine was defined: this one, or the nearest of those
 * of which it is a partition.
 */
static Oid
root_of(Relation relation)
{
	Oid			relid = RelationGetRelid(relation);
	ListCell   *cell;

	if (has_machine_of_its_own(relation) || !relation->rd_rel->relispartition)
		return relid;
	foreach(cell, get_partition_ancestors(relid))
	{
		Relation	ancestor = table_open(lfirst_oid(cell), AccessShareLock);
		bool		is_root = has_machine_of_its_own(ancestor);

		table_close(ancestor, NoLock);
		if (is_root)
			return lfirst_oid(cell);
	}
	return relid;
}

char	  **
idem_machine_names(ArrayType *array, int *n)
{
	Datum	   *values;
	char	  **names;

	deconstruct_array(array, TEXTOID, -1, false, TYPALIGN_INT, &values, NULL, n);
	names = palloc(Max(*n, 1) * sizeof(char *));
	for (int i = 0; i < *n; i++)
		names[i] = TextDatumGetCString(values[i]);
	return names;
}

static AttrNumber
column_of(Relation relation, const char *name, Oid *type)
{
	AttrNumber	column = get_attnum(RelationGetRelid(relation), name);
	Form_pg_attribute attribute;

	if (column <= 0)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_COLUMN),
				 errmsg("column \"%s\" of table \"%s\" does not exist", name,
						RelationGetRelationName(relation))));
	attribute = TupleDescAttr(RelationGetDescr(relation), column - 1);
	if (attribute->attgenerated != '\0' && attribute->attgenerated != ATTRIBUTE_GENERATED_STORED)
		refuse("column \"%s\" is generated and not stored, so a trigger does not see it", name);
	*type = attribute->atttypid;
	return column;
}

static int
state_named(const Machine *machine, const char *name, int length)
{
	for (int i = 0; i < machine->nstates; i++)
		if (strncmp(machine->states[i], name, length) == 0 && machine->states[i][length] == '\0')
			return i;
	return -1;
}

/* the index of a state, which is made if it is new */
static int
add_state(Machine *machine, char *name)
{
	int			i = state_named(machine, name, strlen(name));

	if (i >= 0)
		return i;
	machine->states[machine->nstates] = name;
	return machine->nstates++;
}

static void
mark_states(Machine *machine, ArrayType *array, bool *marks)
{
	int			n;
	char	  **names = idem_machine_names(array, &n);

	for (int i = 0; i < n; i++)
		marks[add_state(machine, names[i])] = true;
}

static Oid
label_of(Oid type, const char *name)
{
	HeapTuple	tuple = SearchSysCache2(ENUMTYPOIDNAME, ObjectIdGetDatum(type),
										CStringGetDatum(name));
	Oid			label;

	if (!HeapTupleIsValid(tuple))
		refuse("state \"%s\" is not a value of type %s", name, format_type_be(type));
	label = ((Form_pg_enum) GETSTRUCT(tuple))->oid;
	ReleaseSysCache(tuple);
	return label;
}

static int
length_of(ArrayType *array)
{
	return ArrayGetNItems(ARR_NDIM(array), ARR_DIMS(array));
}

static void
compile_columns(Relation relation, const MachineText *wording, Machine *machine)
{
	int			n;
	char	  **names = idem_machine_names(wording->immutable_columns, &n);
	Oid			type;

	machine->state = column_of(relation, wording->state_column, &machine->state_type);
	if (machine->state_type != TEXTOID && machine->state_type != VARCHAROID &&
		!type_is_enum(machine->state_type))
		refuse("state column \"%s\" is neither text, varchar nor an enum", wording->state_column);

	if (wording->generation_column != NULL)
	{
		machine->generation = column_of(relation, wording->generation_column,
										&machine->generation_type);
		if (machine->generation_type != INT8OID && machine->generation_type != INT4OID)
			refuse("generation column \"%s\" is neither integer nor bigint", wording->generation_column);
	}

	machine->nimmutable = n;
	machine->immutable = palloc(Max(n, 1) * sizeof(AttrNumber));
	for (int i = 0; i < n; i++)
	{
		machine->immutable[i] = column_of(relation, names[i], &type);
		if (machine->immutable[i] == machine->state || machine->immutable[i] == machine->generation)
			refuse("column \"%s\" cannot be immutable: it is the state or the generation", names[i]);
		machine->last = Max(machine->last, machine->immutable[i]);
	}
	machine->last = Max(machine->last, Max(machine->state, machine->generation));
}

static void
compile_states(const MachineText *wording, Machine *machine)
{
	int			n;
	char	  **names = idem_machine_names(wording->transitions, &n);
	int			max = n + length_of(wording->initial) + length_of(wording->terminal);

	machine->states = palloc0(max * sizeof(char *));
	machine->is_initial = palloc0(max * sizeof(bool));
	machine->is_terminal = palloc0(max * sizeof(bool));
	for (int i = 0; i < n; i++)
		add_state(machine, names[i]);
	mark_states(machine, wording->initial, machine->is_initial);
	mark_states(machine, wording->terminal, machine->is_terminal);

	machine->is_legal = palloc0(machine->nstates * machine->nstates * sizeof(bool));
	for (int i = 0; i < n; i += 2)
		machine->is_legal[add_state(machine, names[i]) * machine->nstates +
						  add_state(machine, names[i + 1])] = true;

	if (!type_is_enum(machine->state_type))
		return;
	machine->labels = palloc(machine->nstates * sizeof(Oid));
	for (int i = 0; i < machine->nstates; i++)
		machine->labels[i] = label_of(machine->state_type, machine->states[i]);
}

void
idem_machine_compile(Relation relation, const MachineText *wording, Machine *machine)
{
	memset(machine, 0, sizeof(Machine));
	machine->root = root_of(relation);
	compile_columns(relation, wording, machine);
	compile_states(wording, machine);
}

/* -1 if the machine does not know it */
int
idem_machine_state_named(const Machine *machine, const char *name)
{
	return state_named(machine, name, strlen(name));
}

/* the index of a row's state, -1 if the machine does not know it */
int
idem_machine_state(const Machine *machine, Datum value, bool isnull)
{
	text	   *name;

	if (isnull)
		return -1;
	if (machine->labels == NULL)
	{
		name = DatumGetTextPP(value);
		return state_named(machine, VARDATA_ANY(name), VARSIZE_ANY_EXHDR(name));
	}
	for (int i = 0; i < machine->nstates; i++)
		if (machine->labels[i] == DatumGetObjectId(value))
			return i;
	return -1;
}

Trigger *
idem_machine_trigger(Relation relation)
{
	Trigger    *trigger = idem_machine_trigger_named(relation, GUARD_TRIGGER);

	return trigger != NULL && trigger->tgnargs == GUARD_ARGUMENTS ? trigger : NULL;
}

static void
refuse_damaged(Relation relation)
{
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("machine of table \"%s\" is damaged", RelationGetRelationName(relation)),
			 errdetail("Its triggers are not as idem_define_machine makes them."),
			 errhint("Call idem_define_machine again.")));
}

/* anybody may make a trigger of that name by hand */
static void
check_lists(Relation relation, const MachineText *wording)
{
	if (ARR_NDIM(wording->transitions) != 2 || ARR_DIMS(wording->transitions)[1] != 2 ||
		ARR_NDIM(wording->initial) != 1 || ARR_NDIM(wording->terminal) > 1 ||
		array_contains_nulls(wording->transitions) ||
		array_contains_nulls(wording->initial) || array_contains_nulls(wording->terminal))
		refuse_damaged(relation);
}

/* the columns by the names that they have now */
static void
read_columns(Relation relation, bool has_generation, MachineText *wording)
{
	Trigger    *columns = idem_machine_trigger_named(relation, COLUMNS_TRIGGER);
	TupleDesc	desc = RelationGetDescr(relation);
	int			first = has_generation ? 2 : 1;
	Datum	   *names;

	if (columns == NULL || columns->tgnattr < first)
		refuse_damaged(relation);
	wording->state_column = pstrdup(NameStr(TupleDescAttr(desc, columns->tgattr[0] - 1)->attname));
	wording->generation_column = has_generation ?
		pstrdup(NameStr(TupleDescAttr(desc, columns->tgattr[1] - 1)->attname)) : NULL;

	names = palloc(columns->tgnattr * sizeof(Datum));
	for (int i = first; i < columns->tgnattr; i++)
		names[i - first] = CStringGetTextDatum(NameStr(TupleDescAttr(desc, columns->tgattr[i] - 1)->attname));
	wording->immutable_columns = construct_array(names, columns->tgnattr - first, TEXTOID, -1, false,
												 TYPALIGN_INT);
}

void
idem_machine_text(Relation relation, const Trigger *trigger, MachineText *wording)
{
	wording->transitions = list_of(trigger->tgargs[GUARD_TRANSITIONS]);
	wording->initial = list_of(trigger->tgargs[GUARD_INITIAL]);
	wording->terminal = list_of(trigger->tgargs[GUARD_TERMINAL]);
	check_lists(relation, wording);
	read_columns(relation, strcmp(trigger->tgargs[GUARD_HAS_GENERATION], "true") == 0, wording);
}

/* a regclass may name a table that is gone */
Relation
idem_machine_open(Oid relid, LOCKMODE lock)
{
	Relation	relation = try_table_open(relid, lock);

	if (relation == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("table with OID %u does not exist", relid)));
	return relation;
}
