/*
 * grant.c
 *		Giving roles the functions that they need, and binding them to tenants.
 *
 * A row of idem_access is both: what idem_grant() gave, so that an update of
 * the extension can give it again, and the binding that access.c looks up.
 * A kind is a set of functions, types and views; which functions is the one
 * table below.  Objects are found by being the extension's, so overloads, and
 * whatever another release adds, need no line of their own; a name that this
 * release does not have is passed over.
 *
 * Privileges are given in the name of the extension's owner, and nobody else
 * may have them given.  Whoever binds a role locks idem_access against other
 * writers first, so that privileges and rows agree.
 *
 * A privilege that is given while an extension script runs would count as
 * one that the extension comes with, and pg_dump would leave it out; so a
 * replay hides from PostgreSQL that a script is running.
 */
#include "idem_action.h"

#include "access/xact.h"
#include "catalog/pg_namespace.h"
#include "catalog/pg_type.h"
#include "commands/extension.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "tcop/utility.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/timestamp.h"

#define APPLICATION	ACCESS_APPLICATION
#define OPERATOR	ACCESS_OPERATOR
#define MONITOR		ACCESS_MONITOR

/* what each kind may call beside the pure functions, which all of them may */
static const struct
{
	const char *function;		/* with all its overloads */
	int			kinds;			/* that are given it */
}			privileges[] = {
	{"idem_may_see", ACCESS_ANY},
	{"idem_may_see_all", ACCESS_ANY},
	{"idem_status", ACCESS_ANY},
	{"idem_history", ACCESS_ANY},
	{"idem_progress_committable", ACCESS_ANY},

	{"idem_submit", APPLICATION},
	{"idem_claim", APPLICATION},
	{"idem_reclaim", APPLICATION},
	{"idem_claim_next", APPLICATION},
	{"idem_renew", APPLICATION},
	{"idem_complete", APPLICATION},
	{"idem_reject", APPLICATION},
	{"idem_mark_unknown", APPLICATION},
	{"idem_release", APPLICATION},
	{"idem_absent", APPLICATION},
	{"idem_once", APPLICATION},
	{"idem_call", APPLICATION},
	{"idem_consume", APPLICATION},
	{"idem_consume_batch", APPLICATION},
	{"idem_consume_result", APPLICATION},
	{"idem_unconsume", APPLICATION},
	{"idem_transition", APPLICATION},
	{"idem_fence", APPLICATION},
	{"idem_progress_assign", APPLICATION},
	{"idem_progress_fetched", APPLICATION},
	{"idem_progress_done", APPLICATION},
	{"idem_progress_advance", APPLICATION},

	{"idem_escalate", APPLICATION | OPERATOR},
	{"idem_cancel", APPLICATION | OPERATOR},
	{"idem_add_evidence", APPLICATION | OPERATOR},

	{"idem_resolve", OPERATOR},
	{"idem_admit", OPERATOR},
	{"idem_declare_loss", OPERATOR},
	{"idem_define_operation", OPERATOR},
	{"idem_drop_operation", OPERATOR},
	{"idem_define_consumer", OPERATOR},
	{"idem_define_machine", OPERATOR},
	{"idem_drop_machine", OPERATOR},
	{"idem_guard", OPERATOR},	/* whoever makes the trigger needs it */
	{"idem_purge", OPERATOR},
	{"idem_stat_reset", OPERATOR},

	/* what the views call, they call as whoever reads them */
	{"idem_stat_operation", OPERATOR | MONITOR},
	{"idem_stat_consumer", OPERATOR | MONITOR}
};

#define VIEWS	(OPERATOR | MONITOR)

/* the only view with parameters, which are for whoever decides by them */
#define OPERATORS_VIEW "idem_review"

/* our functions that are pure or among those named, as a list for GRANT; or null */
static Statement select_functions = {
	"SELECT pg_catalog.string_agg(p.oid::pg_catalog.regprocedure::pg_catalog.text, ', ')"
	" FROM pg_catalog.pg_extension e"
	" JOIN pg_catalog.pg_depend d ON d.refobjid OPERATOR(pg_catalog.=) e.oid"
	" JOIN pg_catalog.pg_proc p ON p.oid OPERATOR(pg_catalog.=) d.objid"
	" WHERE e.extname OPERATOR(pg_catalog.=) 'idem_action'"
	" AND d.refclassid OPERATOR(pg_catalog.=) 'pg_catalog.pg_extension'::pg_catalog.regclass"
	" AND d.classid OPERATOR(pg_catalog.=) 'pg_catalog.pg_proc'::pg_catalog.regclass"
	" AND (p.proname::pg_catalog.text OPERATOR(pg_catalog.=) ANY ($1)"
	" OR ($2 AND p.provolatile OPERATOR(pg_catalog.=) 'i'))",
	2, {TEXTARRAYOID, BOOLOID}, SPI_OK_SELECT
};

/* likewise our types; from 17 on arrays, and rows of tables, are members too */
static Statement select_types = {
	"SELECT pg_catalog.string_agg(pg_catalog.format_type(t.oid, NULL), ', ')"
	" FROM pg_catalog.pg_extension e"
	" JOIN pg_catalog.pg_depend d ON d.refobjid OPERATOR(pg_catalog.=) e.oid"
	" JOIN pg_catalog.pg_type t ON t.oid OPERATOR(pg_catalog.=) d.objid"
	" WHERE e.extname OPERATOR(pg_catalog.=) 'idem_action'"
	" AND d.refclassid OPERATOR(pg_catalog.=) 'pg_catalog.pg_extension'::pg_catalog.regclass"
	" AND d.classid OPERATOR(pg_catalog.=) 'pg_catalog.pg_type'::pg_catalog.regclass"
	" AND t.typelem OPERATOR(pg_catalog.=) 0 AND (t.typrelid OPERATOR(pg_catalog.=) 0"
	" OR EXISTS (SELECT FROM pg_catalog.pg_class c"
	" WHERE c.oid OPERATOR(pg_catalog.=) t.typrelid AND c.relkind OPERATOR(pg_catalog.=) 'c'))",
	0, {0}, SPI_OK_SELECT
};

/* likewise our views: those without parameters, that with them */
static Statement select_views = {
	"SELECT pg_catalog.string_agg(c.oid::pg_catalog.regclass::pg_catalog.text, ', ')"
	" FROM pg_catalog.pg_extension e"
	" JOIN pg_catalog.pg_depend d ON d.refobjid OPERATOR(pg_catalog.=) e.oid"
	" JOIN pg_catalog.pg_class c ON c.oid OPERATOR(pg_catalog.=) d.objid"
	" WHERE e.extname OPERATOR(pg_catalog.=) 'idem_action'"
	" AND d.refclassid OPERATOR(pg_catalog.=) 'pg_catalog.pg_extension'::pg_catalog.regclass"
	" AND d.classid OPERATOR(pg_catalog.=) 'pg_catalog.pg_class'::pg_catalog.regclass"
	" AND c.relkind OPERATOR(pg_catalog.=) 'v'"
	" AND CASE c.relname WHEN '" OPERATORS_VIEW "' THEN $2 ELSE $1 END",
	2, {BOOLOID, BOOLOID}, SPI_OK_SELECT
};

static Statement insert_access = {
	"INSERT INTO %1$s.idem_access (role, kind, tenant, granted_at, granted_by)"
	" VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING",
	5, {OIDOID, TEXTOID, TEXTOID, TIMESTAMPTZOID, TEXTOID}, SPI_OK_INSERT
};

static Statement delete_access = {
	"DELETE FROM %1$s.idem_access WHERE role::pg_catalog.oid OPERATOR(pg_catalog.=) $1"
	" AND kind OPERATOR(pg_catalog.=) $2 AND tenant OPERATOR(pg_catalog.=) $3",
	3, {OIDOID, TEXTOID, TEXTOID}, SPI_OK_DELETE
};

/* DROP ROLE does not know of our table */
static Statement delete_dropped = {
	"DELETE FROM %1$s.idem_access a WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_roles r"
	" WHERE r.oid OPERATOR(pg_catalog.=) a.role::pg_catalog.oid)",
	0, {0}, SPI_OK_DELETE
};

static Statement select_kinds = {
	"SELECT DISTINCT role::pg_catalog.oid, kind FROM %1$s.idem_access"
	" WHERE $1 IS NULL OR role::pg_catalog.oid OPERATOR(pg_catalog.=) $1",
	1, {OIDOID}, SPI_OK_SELECT
};

typedef struct Grants
{
	int			n;				/* how many */
	Oid		   *roles;			/* each with one of its kinds */
	int		   *kinds;
	MemoryContext context;		/* owns both */
} Grants;

typedef struct Objects
{
	char	   *list;			/* as GRANT takes it, or NULL */
	MemoryContext context;		/* owns it */
} Objects;

/* ---- reading ---- */

static void
read_objects(SPITupleTable *table, uint64 rows, void *target)
{
	Objects    *objects = target;
	char	   *list = SPI_getvalue(table->vals[0], table->tupdesc, 1);

	objects->list = list == NULL ? NULL : MemoryContextStrdup(objects->context, list);
}

static void
read_grants(SPITupleTable *table, uint64 rows, void *target)
{
	Grants	   *grants = target;

	grants->n = rows;
	grants->roles = MemoryContextAlloc(grants->context, Max(rows, 1) * sizeof(Oid));
	grants->kinds = MemoryContextAlloc(grants->context, Max(rows, 1) * sizeof(int));
	for (uint64 i = 0; i < rows; i++)
	{
		bool		isnull;

		grants->roles[i] = DatumGetObjectId(SPI_getbinval(table->vals[i], table->tupdesc, 1, &isnull));
		grants->kinds[i] = idem_access_kind(SPI_getvalue(table->vals[i], table->tupdesc, 2));
	}
}

/* what is on record of a role, or (invalid) of all of them */
static void
load_grants(const Home *home, Oid role, Grants *grants)
{
	Datum		value = ObjectIdGetDatum(role);
	bool		isnull = !OidIsValid(role);

	grants->context = CurrentMemoryContext;
	idem_statement_run(&select_kinds, home, &value, &isnull, InvalidSnapshot, read_grants, grants);
}

/* the kinds under which a role is still bound to anything */
static int
kinds_left(const Home *home, Oid role)
{
	Grants		grants;
	int			kinds = 0;

	load_grants(home, role, &grants);
	for (int i = 0; i < grants.n; i++)
		kinds |= grants.kinds[i];
	return kinds;
}

static char *
list_of(Statement *statement, const Home *home, Datum *values)
{
	Objects		objects = {.context = CurrentMemoryContext};

	idem_statement_run(statement, home, values, NULL, InvalidSnapshot, read_objects, &objects);
	return objects.list;
}

/* the functions that one of the kinds is given and none of those that are left */
static char *
functions_of(const Home *home, int kinds, int left)
{
	Datum		names[lengthof(privileges)];
	Datum		values[2];
	int			n = 0;

	for (int i = 0; i < lengthof(privileges); i++)
		if ((privileges[i].kinds & kinds) != 0 && (privileges[i].kinds & left) == 0)
			names[n++] = CStringGetTextDatum(privileges[i].function);
	values[0] = PointerGetDatum(construct_array(names, n, TEXTOID, -1, false, TYPALIGN_INT));
	values[1] = BoolGetDatum(left == 0);
	return list_of(&select_functions, home, values);
}

/* likewise the views */
static char *
views_of(const Home *home, int kinds, int left)
{
	Datum		values[2] = {BoolGetDatum((kinds & VIEWS) != 0 && (left & VIEWS) == 0),
	BoolGetDatum((kinds & OPERATOR) != 0 && (left & OPERATOR) == 0)};

	return list_of(&select_views, home, values);
}

/* ---- giving and taking back ---- */

/* a GRANT or a REVOKE by the extension's owner */
static void
run_command(const Home *home, const char *command)
{
	Oid			save_user;
	int			save_context;
	int			path;
	bool		save_creating = creating_extension;
	int			result;

	GetUserIdAndSecContext(&save_user, &save_context);
	SetUserIdAndSecContext(home->owner, save_context | SECURITY_LOCAL_USERID_CHANGE);
	path = idem_pin_search_path();
	creating_extension = false; /* an error resets it, too */
	SPI_connect();
	result = SPI_execute(command, false, 0);
	if (result != SPI_OK_UTILITY)
		elog(ERROR, "command returned %s", SPI_result_code_string(result));
	SPI_finish();
	creating_extension = save_creating;
	idem_unpin_search_path(path);
	SetUserIdAndSecContext(save_user, save_context);
	CommandCounterIncrement();
}

/* one kind of privilege on a list of objects, which may be empty (null) */
static void
give(const Home *home, const char *privilege, const char *objects, const char *role)
{
	if (objects != NULL)
		run_command(home, psprintf("GRANT %s %s TO %s", privilege, objects, role));
}

static void
take(const Home *home, const char *privilege, const char *objects, const char *role)
{
	if (objects != NULL)
		run_command(home, psprintf("REVOKE %s %s FROM %s", privilege, objects, role));
}

static void
give_kind(const Home *home, Oid role, int kind)
{
	const char *name = quote_identifier(GetUserNameFromId(role, false));

	if (idem_may_use_schema(home->schema, role) != ACLCHECK_OK)
		give(home, "USAGE ON SCHEMA", quote_identifier(get_namespace_name(home->schema)), name);
	give(home, "EXECUTE ON FUNCTION", functions_of(home, kind, 0), name);
	give(home, "USAGE ON TYPE", list_of(&select_types, home, NULL), name);
	give(home, "SELECT ON TABLE", views_of(home, kind, 0), name);
}

/* USAGE on the schema stays: others may have objects of theirs there */
static void
take_kind(const Home *home, Oid role, int kind)
{
	const char *name = quote_identifier(GetUserNameFromId(role, false));
	int			left = kinds_left(home, role);

	if ((left & kind) != 0)
		return;
	take(home, "EXECUTE ON FUNCTION", functions_of(home, kind, left), name);
	if (left == 0)
		take(home, "USAGE ON TYPE", list_of(&select_types, home, NULL), name);
	take(home, "SELECT ON TABLE", views_of(home, kind, left), name);
}

/* ---- arguments ---- */

typedef struct Access
{
	Oid			role;			/* who */
	int			kind;			/* as what */
	Datum		tenant;			/* for whose keys, or '*' */
} Access;

static int
kind_argument(FunctionCallInfo fcinfo, int n)
{
	int			kind;

	idem_argument_require(fcinfo, n, "kind");
	kind = idem_access_kind(text_to_cstring(PG_GETARG_TEXT_PP(n)));
	if (kind == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("kind is neither application, operator nor monitor")));
	return kind;
}

/* the extension's own part of a key, or '*', said aloud */
static Datum
tenant_argument(FunctionCallInfo fcinfo, int n)
{
	if (PG_ARGISNULL(n))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("tenant must not be null"),
				 errhint("Name the tenant, or '*' for all of them.")));
	return PointerGetDatum(idem_argument_name(fcinfo, n, "tenant"));
}

/* who may, and what; then nobody else writes idem_access until the transaction ends */
static void
open_access(FunctionCallInfo fcinfo, Home *home, Access *access)
{
	idem_home(fcinfo, home);
	idem_access_check_all(home, 0);
	idem_argument_require(fcinfo, 0, "role");
	access->role = get_role_oid(NameStr(*PG_GETARG_NAME(0)), false);
	access->kind = kind_argument(fcinfo, 1);
	access->tenant = tenant_argument(fcinfo, 2);
	LockRelationOid(idem_home_relation(home, "idem_access"), ShareRowExclusiveLock);
	idem_statement_run(&delete_dropped, home, NULL, NULL, InvalidSnapshot, NULL, NULL);
}

PG_FUNCTION_INFO_V1(idem_grant);
Datum
idem_grant(PG_FUNCTION_ARGS)
{
	Home		home;
	Access		access;
	Datum		values[5];

	PreventCommandIfReadOnly("idem_grant()");
	open_access(fcinfo, &home, &access);
	values[0] = ObjectIdGetDatum(access.role);
	values[1] = PG_GETARG_DATUM(1);
	values[2] = access.tenant;
	values[3] = TimestampTzGetDatum(GetCurrentTimestamp());
	values[4] = CStringGetTextDatum(GetUserNameFromId(GetUserId(), false));
	idem_statement_run(&insert_access, &home, values, NULL, InvalidSnapshot, NULL, NULL);
	give_kind(&home, access.role, access.kind);
	PG_RETURN_VOID();
}

PG_FUNCTION_INFO_V1(idem_revoke);
Datum
idem_revoke(PG_FUNCTION_ARGS)
{
	Home		home;
	Access		access;
	Datum		values[3];

	PreventCommandIfReadOnly("idem_revoke()");
	open_access(fcinfo, &home, &access);
	values[0] = ObjectIdGetDatum(access.role);
	values[1] = PG_GETARG_DATUM(1);
	values[2] = access.tenant;
	if (idem_statement_run(&delete_access, &home, values, NULL, InvalidSnapshot, NULL, NULL) == 0)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("role \"%s\" is not bound to tenant \"%s\" as %s",
						GetUserNameFromId(access.role, false), TextDatumGetCString(access.tenant),
						TextDatumGetCString(values[1])),
				 errdetail("A binding is revoked as it was granted, and one to '*' as '*'."),
				 errhint("The table idem_access has all of them.")));
	take_kind(&home, access.role, access.kind);
	PG_RETURN_VOID();
}

/* for update scripts, and after a restore into another release */
PG_FUNCTION_INFO_V1(idem_grant_replay);
Datum
idem_grant_replay(PG_FUNCTION_ARGS)
{
	Home		home;
	Grants		grants;

	PreventCommandIfReadOnly("idem_grant_replay()");
	idem_home(fcinfo, &home);
	idem_access_check_all(&home, 0);
	LockRelationOid(idem_home_relation(&home, "idem_access"), ShareRowExclusiveLock);
	idem_statement_run(&delete_dropped, &home, NULL, NULL, InvalidSnapshot, NULL, NULL);
	load_grants(&home, InvalidOid, &grants);
	for (int i = 0; i < grants.n; i++)
		give_kind(&home, grants.roles[i], grants.kinds[i]);
	PG_RETURN_VOID();
}
