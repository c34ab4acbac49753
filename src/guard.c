/*
 * guard.c
 *		The trigger of a table with a machine.
 *
 * It fires after each row is written, so it judges what is stored, whatever
 * other triggers made of it, and an INSERT that became the UPDATE of an
 * upsert is judged as what it is.
 *
 * A row that moves to another partition is deleted in one and inserted in the
 * other, two events that follow each other.  The deleted version says on the
 * page that it moved; what it held is kept for the insertion that comes next,
 * which is then judged as the update that it is.
 *
 * Machines are compiled once for each trigger and kept until the table's
 * relation cache entry is invalidated.
 */
#include "idem_action.h"
#include "machine.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "executor/tuptable.h"
#include "storage/proc.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/hsearch.h"
#include "utils/inval.h"
#include "utils/memutils.h"
#include "utils/rel.h"

typedef struct KeptMachine
{
	Oid			trigger;		/* hash key */
	Oid			relid;			/* of its table */
	bool		is_valid;		/* else compile anew */
	MemoryContext context;		/* owns the machine */
	Machine		machine;
} KeptMachine;

#define FEW 8					/* immutable columns, which need no memory of
								 * their own */

/* what the guard looks at of a row */
typedef struct Facts
{
	int			state;			/* -1: none of the machine's */
	bool		has_generation;
	int64		generation;
	Datum	   *values;			/* of the immutable columns */
	bool	   *nulls;
	Datum		few_values[FEW];
	bool		few_nulls[FEW];
} Facts;

/* a row on its way to another partition */
typedef struct Moving
{
	bool		is_set;
	Oid			root;			/* the table on which the machine was defined */
	LocalTransactionId lxid;	/* in this transaction */
	CommandId	command;		/* by this command */
	MemoryContext context;		/* owns the facts */
	Facts		facts;			/* what the deleted version held */
} Moving;

static HTAB *kept = NULL;		/* machines by trigger */
static KeptMachine *last = NULL;	/* the one asked for last: nearly always
									 * the next one too */
static uint64 ninvalidations = 0;	/* seen so far */
static Moving moving;			/* between two events of one row */

static void
forget_machines(Datum arg, Oid relid)
{
	HASH_SEQ_STATUS status;
	KeptMachine *entry;

	ninvalidations++;
	hash_seq_init(&status, kept);
	while ((entry = hash_seq_search(&status)) != NULL)
		if (relid == InvalidOid || relid == entry->relid)
			entry->is_valid = false;
}

static void
create_cache(void)
{
	HASHCTL		control = {.keysize = sizeof(Oid),.entrysize = sizeof(KeptMachine),
	.hcxt = CacheMemoryContext};

	kept = hash_create("idem_action machines", 16, &control, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	CacheRegisterRelcacheCallback(forget_machines, (Datum) 0);
}

static void
compile(KeptMachine *entry, Relation relation, Trigger *trigger)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "idem_action machine",
												  ALLOCSET_SMALL_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	uint64		before = ninvalidations;
	MachineText wording;

	idem_machine_text(relation, trigger, &wording);
	idem_machine_compile(relation, &wording, &entry->machine);
	MemoryContextSwitchTo(old);

	MemoryContextSetParent(context, CacheMemoryContext);
	entry->context = context;
	entry->relid = RelationGetRelid(relation);
	entry->is_valid = before == ninvalidations; /* one may have come meanwhile */
}

static const Machine *
machine_of(Relation relation, Trigger *trigger)
{
	KeptMachine *entry;
	bool		is_found;

	if (last != NULL && last->is_valid && last->trigger == trigger->tgoid)
		return &last->machine;
	if (kept == NULL)
		create_cache();
	entry = hash_search(kept, &trigger->tgoid, HASH_ENTER, &is_found);
	if (!is_found)
	{
		entry->is_valid = false;
		entry->context = NULL;
	}
	last = entry;
	if (entry->is_valid)
		return &entry->machine;
	if (entry->context != NULL)
		MemoryContextDelete(entry->context);
	entry->context = NULL;
	compile(entry, relation, trigger);
	return &entry->machine;
}

/* ---- facts ---- */

static void
read_facts(const Machine *machine, TupleTableSlot *slot, Facts *facts)
{
	const Datum *values = slot->tts_values;
	const bool *nulls = slot->tts_isnull;
	int			n = machine->generation - 1;

	slot_getsomeattrs(slot, machine->last);
	facts->state = idem_machine_state(machine, values[machine->state - 1], nulls[machine->state - 1]);
	facts->has_generation = n >= 0 && !nulls[n];
	if (facts->has_generation)
		facts->generation = machine->generation_type == INT8OID ?
			DatumGetInt64(values[n]) : DatumGetInt32(values[n]);

	facts->values = facts->few_values;
	facts->nulls = facts->few_nulls;
	if (machine->nimmutable > FEW)
	{
		facts->values = palloc(machine->nimmutable * sizeof(Datum));
		facts->nulls = palloc(machine->nimmutable * sizeof(bool));
	}
	for (int i = 0; i < machine->nimmutable; i++)
	{
		facts->values[i] = values[machine->immutable[i] - 1];
		facts->nulls[i] = nulls[machine->immutable[i] - 1];
	}
}

static const char *
state_name(const Machine *machine, int state)
{
	return state < 0 ? NULL : machine->states[state];
}

static void
refuse_unknown(Relation relation)
{
	ereport(ERROR,
			(errcode(ERRCODE_IDEM_ILLEGAL_TRANSITION),
			 errmsg("row of table \"%s\" is in no state of its machine", RelationGetRelationName(relation)),
			 errdetail("The machine names every state that a row may be in; null is none."),
			 errhint("Write one of them, or define the machine anew with idem_define_machine."),
			 errtable(relation)));
}

static void
check_insert(Relation relation, const Machine *machine, const Facts *row)
{
	if (row->state < 0)
		refuse_unknown(relation);
	if (!machine->is_initial[row->state])
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_ILLEGAL_TRANSITION),
				 errmsg("row of table \"%s\" cannot begin in state \"%s\"",
						RelationGetRelationName(relation), state_name(machine, row->state)),
				 errdetail("It is not an initial state of the machine."),
				 errhint("Insert the row in an initial state and move it on from there."),
				 errtable(relation)));
}

static void
check_move(Relation relation, const Machine *machine, const Facts *old, const Facts *row)
{
	if (row->state < 0)
		refuse_unknown(relation);
	if (old->state == row->state)
		return;
	if (old->state < 0 || !machine->is_legal[old->state * machine->nstates + row->state])
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_ILLEGAL_TRANSITION),
				 errmsg("row of table \"%s\" cannot move from state \"%s\" to \"%s\"",
						RelationGetRelationName(relation),
						old->state < 0 ? "?" : state_name(machine, old->state),
						state_name(machine, row->state)),
				 errdetail(old->state >= 0 && machine->is_terminal[old->state] ?
						   "A terminal state is never left." :
						   "The machine has no such transition."),
				 errhint("Look at the row's state before moving it: idem_transition() does both at once."),
				 errtable(relation)));
}

static void
check_generation(Relation relation, const Facts *old, const Facts *row)
{
	if (!old->has_generation ||
		(row->has_generation && row->generation >= old->generation))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_IDEM_STALE_GENERATION),
			 errmsg("generation of a row of table \"%s\" cannot be lowered", RelationGetRelationName(relation)),
			 errdetail("The row has generation " INT64_FORMAT ".", old->generation),
			 errhint("A newer owner has written the row: roll back and look again."),
			 errtable(relation)));
}

static void
check_immutable(Relation relation, const Machine *machine, const Facts *old, const Facts *row)
{
	TupleDesc	desc = RelationGetDescr(relation);

	for (int i = 0; i < machine->nimmutable; i++)
	{
		Form_pg_attribute column = TupleDescAttr(desc, machine->immutable[i] - 1);

		if (old->nulls[i] == row->nulls[i] &&
			(old->nulls[i] || datum_image_eq(old->values[i], row->values[i],
											 column->attbyval, column->attlen)))
			continue;
		ereport(ERROR,
				(errcode(ERRCODE_CHECK_VIOLATION),
				 errmsg("column \"%s\" of table \"%s\" is immutable", NameStr(column->attname),
						RelationGetRelationName(relation)),
				 errdetail("Its value was settled when the row was inserted."),
				 errtablecol(relation, machine->immutable[i])));
	}
}

static void
check_update(Relation relation, const Machine *machine, const Facts *old, const Facts *row)
{
	check_move(relation, machine, old, row);
	check_generation(relation, old, row);
	check_immutable(relation, machine, old, row);
}

/* ---- rows between partitions ---- */

static void
keep_moving(Relation relation, const Machine *machine, TriggerData *data)
{
	TupleDesc	desc = RelationGetDescr(relation);
	MemoryContext old;

	moving.is_set = false;
	if (moving.context == NULL)
		moving.context = AllocSetContextCreate(TopMemoryContext, "idem_action moving row",
											   ALLOCSET_SMALL_SIZES);
	MemoryContextReset(moving.context);
	old = MemoryContextSwitchTo(moving.context);
	read_facts(machine, data->tg_trigslot, &moving.facts);
	for (int i = 0; i < machine->nimmutable; i++)
	{
		Form_pg_attribute column = TupleDescAttr(desc, machine->immutable[i] - 1);

		if (!moving.facts.nulls[i])
			moving.facts.values[i] = datumCopy(moving.facts.values[i], column->attbyval,
											   column->attlen);
	}
	MemoryContextSwitchTo(old);
	moving.root = machine->root;
	moving.lxid = idem_local_xid();
	moving.command = HeapTupleHeaderGetCmax(data->tg_trigtuple->t_data);
	moving.is_set = true;
}

/*
 * Is this insertion the second half of a move?  Then the same command made
 * both.  What a trigger in between inserts or deletes does not end the move.
 */
static bool
take_moving(const Machine *machine, TriggerData *data)
{
	if (!moving.is_set || moving.lxid != idem_local_xid() || moving.root != machine->root ||
		moving.command != HeapTupleHeaderGetCmin(data->tg_trigtuple->t_data))
		return false;
	moving.is_set = false;
	return true;
}

/* ---- the trigger ---- */

static bool
is_column_list(const Trigger *trigger)
{
	return trigger->tgnargs == 0 && strcmp(trigger->tgname, COLUMNS_TRIGGER) == 0;
}

static void
check_protocol(FunctionCallInfo fcinfo)
{
	TriggerData *data = (TriggerData *) fcinfo->context;

	if (!CALLED_AS_TRIGGER(fcinfo) ||
		!TRIGGER_FIRED_AFTER(data->tg_event) || !TRIGGER_FIRED_FOR_ROW(data->tg_event) ||
		(data->tg_trigger->tgnargs != GUARD_ARGUMENTS && !is_column_list(data->tg_trigger)))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("idem_guard is called otherwise than by a trigger that idem_define_machine made")));
}

PG_FUNCTION_INFO_V1(idem_guard);
Datum
idem_guard(PG_FUNCTION_ARGS)
{
	TriggerData *data = (TriggerData *) fcinfo->context;
	Relation	relation;
	const Machine *machine;
	Facts		old;
	Facts		row;

	check_protocol(fcinfo);
	if (is_column_list(data->tg_trigger))
		return PointerGetDatum(NULL);	/* somebody enabled the list of
										 * columns */
	relation = data->tg_relation;
	machine = machine_of(relation, data->tg_trigger);
	if (TRIGGER_FIRED_BY_DELETE(data->tg_event))
	{
		if (HeapTupleHeaderIndicatesMovedPartitions(data->tg_trigtuple->t_data))
			keep_moving(relation, machine, data);
	}
	else if (TRIGGER_FIRED_BY_INSERT(data->tg_event))
	{
		read_facts(machine, data->tg_trigslot, &row);
		if (take_moving(machine, data))
			check_update(relation, machine, &moving.facts, &row);
		else
			check_insert(relation, machine, &row);
	}
	else
	{
		read_facts(machine, data->tg_trigslot, &old);
		read_facts(machine, data->tg_newslot, &row);
		check_update(relation, machine, &old, &row);
	}
	return PointerGetDatum(NULL);
}
