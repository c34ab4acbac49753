/*
 * statement.c
 *		Kept plans, run as the owner of the extension.
 *
 * A room that has SQL of its own declares it as a table of Statements and
 * runs it through idem_statement_run().  What must hold:
 *
 *	- names and operators in the text are schema-qualified; %1$s stands for
 *	  the extension's schema, quoted;
 *	- argument types are built-in ones, cast inside the text: a plan that
 *	  carries the OID of one of our own types breaks when the extension is
 *	  dropped and created again in one session.  With built-in ones the plan
 *	  cache re-analyses the text and all is well;
 *	- search_path is pinned meanwhile, not for safety (nothing depends on it)
 *	  but because a plan is analysed again whenever the path differs from
 *	  the one it was made under.
 *
 * The user is switched the way ri_triggers.c does it; an error leaves it to
 * the abort of the (sub)transaction to switch back.  Plans live until the
 * backend ends, or until the extension turns up in a schema of another name:
 * renamed, or created anew.  A plan that kept the old name would run whatever
 * somebody puts there, as the owner.
 */
#include "idem_action.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "catalog/pg_proc.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

void
idem_home(FunctionCallInfo fcinfo, Home *home)
{
	HeapTuple	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(fcinfo->flinfo->fn_oid));
	Form_pg_proc function;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for function %u", fcinfo->flinfo->fn_oid);
	function = (Form_pg_proc) GETSTRUCT(tuple);
	home->schema = function->pronamespace;
	home->owner = function->proowner;
	home->rettype = function->prorettype;
	ReleaseSysCache(tuple);
}

/* a relation of ours; its name is trusted, its presence is not */
Oid
idem_home_relation(const Home *home, const char *name)
{
	Oid			relid = get_relname_relid(name, home->schema);

	if (!OidIsValid(relid))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("table \"%s\" of extension idem_action does not exist", name)));
	return relid;
}

/* prepare, check, keep, and only then publish */
static SPIPlanPtr
statement_plan(Statement *statement, const Home *home)
{
	char	   *schema = get_namespace_name(home->schema);
	SPIPlanPtr	plan;
	char	   *text;

	if (schema == NULL)
		elog(ERROR, "cache lookup failed for schema %u", home->schema);
	if (statement->plan != NULL && strcmp(statement->schema, schema) == 0)
		return statement->plan;

	text = psprintf(statement->text, quote_identifier(schema));

	plan = SPI_prepare(text, statement->nargs, statement->argtypes);
	if (plan == NULL)
		elog(ERROR, "could not prepare statement: %s", SPI_result_code_string(SPI_result));
	if (SPI_keepplan(plan) != 0)
		elog(ERROR, "could not keep statement");
	schema = MemoryContextStrdup(TopMemoryContext, schema);
	if (statement->plan != NULL)
	{
		SPI_freeplan(statement->plan);
		pfree(statement->schema);
	}
	statement->plan = plan;
	statement->schema = schema;
	return plan;
}

/*
 * Runs a statement and returns how many rows it touched.  A statement that
 * reads is given a snapshot (null: the transaction's, with everything this
 * transaction did) and hands its rows to read(), while they last.
 */
uint64
idem_statement_run(Statement *statement, const Home *home, Datum *values,
				   const bool *nulls, Snapshot snapshot,
				   StatementReader read, void *target)
{
	Oid			save_user;
	int			save_context;
	int			path;
	int			result;
	uint64		processed;
	SPIPlanPtr	plan;
	char		flags[STATEMENT_MAX_ARGS];

	for (int i = 0; i < statement->nargs; i++)
		flags[i] = nulls != NULL && nulls[i] ? 'n' : ' ';

	GetUserIdAndSecContext(&save_user, &save_context);
	SetUserIdAndSecContext(home->owner, save_context |
						   SECURITY_LOCAL_USERID_CHANGE | SECURITY_NOFORCE_RLS);
	path = idem_pin_search_path();
	SPI_connect();
	plan = statement_plan(statement, home);

	if (snapshot != InvalidSnapshot)
		result = SPI_execute_snapshot(plan, values, flags, snapshot, InvalidSnapshot,
									  true, false, 0);
	else
		result = SPI_execute_plan(plan, values, flags, false, 0);
	if (result != statement->expected)
		elog(ERROR, "statement returned %s", SPI_result_code_string(result));
	processed = SPI_processed;
	if (read != NULL)
		read(SPI_tuptable, processed, target);

	SPI_finish();
	idem_unpin_search_path(path);
	SetUserIdAndSecContext(save_user, save_context);
	if (snapshot == InvalidSnapshot)
		CommandCounterIncrement();
	return processed;
}
