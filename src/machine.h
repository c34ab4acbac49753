/*
 * machine.h
 *		State machines of application tables, as guard and transition share
 *		them.
 *
 * A machine is written down in two triggers of the table, and nowhere else:
 * so it is dumped and restored with the table, renamed with it and dropped
 * with it.  The states stand in the arguments of the trigger that guards the
 * rows.  The columns stand in the column list of a second one, which is
 * disabled and never fires: PostgreSQL follows a column that is renamed
 * there, and keeps one that is named there from being dropped unnoticed.
 */
#ifndef IDEM_MACHINE_H
#define IDEM_MACHINE_H

#include "idem_action.h"

#include "utils/reltrigger.h"

#define GUARD_TRIGGER "idem_guard"
#define COLUMNS_TRIGGER "idem_guard_columns"	/* state, generation if any,
												 * immutable ones */

/* the arguments of the first, in order */
enum
{
	GUARD_TRANSITIONS, GUARD_INITIAL, GUARD_TERMINAL, GUARD_HAS_GENERATION, GUARD_ARGUMENTS
};

/* a machine as it is written down; names as text, lists as text[] literals */
typedef struct MachineText
{
	char	   *state_column;
	ArrayType  *transitions;	/* two columns: from, to */
	ArrayType  *initial;
	ArrayType  *terminal;
	char	   *generation_column;	/* or NULL */
	ArrayType  *immutable_columns;
} MachineText;

/* the same, fit for deciding about rows of one table */
typedef struct Machine
{
	Oid			root;			/* the table on which it was defined */
	AttrNumber	state;			/* column that holds the state */
	Oid			state_type;		/* text, varchar or an enum */
	AttrNumber	generation;		/* column that only grows, or 0 */
	Oid			generation_type;	/* integer or bigint */
	int			nimmutable;		/* columns that never change */
	AttrNumber *immutable;
	AttrNumber	last;			/* the rightmost of all these columns */
	int			nstates;		/* all that are named anywhere */
	char	  **states;			/* their names */
	Oid		   *labels;			/* of an enum, in the same order; or NULL */
	bool	   *is_initial;		/* may a row begin here? */
	bool	   *is_terminal;	/* never left */
	bool	   *is_legal;		/* from * nstates + to */
} Machine;

/* what does not fit */
#define refuse(...) \
	ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg(__VA_ARGS__)))

/* allocates in the current context; raises 22023 or 42703 for what does not fit the table */
extern void idem_machine_compile(Relation relation, const MachineText *wording, Machine *machine);
extern void idem_machine_text(Relation relation, const Trigger *trigger, MachineText *wording);
extern int	idem_machine_state(const Machine *machine, Datum value, bool isnull);
extern Trigger *idem_machine_trigger(Relation relation);
extern Trigger *idem_machine_trigger_named(Relation relation, const char *name);
extern char **idem_machine_names(ArrayType *array, int *n);
extern int	idem_machine_state_named(const Machine *machine, const char *name);
extern Relation idem_machine_open(Oid relid, LOCKMODE lock);

#endif							/* IDEM_MACHINE_H */
