/*
 * access.c
 *		Who may speak of which tenant.
 *
 * EXECUTE on a function says what a role may do; its bindings, rows of
 * idem_access, say for whose keys.  (grant.c writes them.)  A role is bound
 * to what any role is bound to whose privileges it has.  Two roles count:
 * the current one must be bound to the tenant under a kind that the call is
 * for, and the session's, if it is bound to anything, must be bound to it
 * too.  So neither SET ROLE nor a function that is SECURITY DEFINER takes a
 * session that is bound to one tenant to another one.  No setting has a say:
 * a startup option could change it.
 *
 * Superusers, and whoever has the privileges of the extension's owner, are
 * bound to everything: they can read and write the tables anyway.
 *
 * The check comes before any lock and any look at a record, so that nobody
 * learns from a wait or an error whether another tenant's key is there.
 *
 * Bindings are read once a role and backend, and kept until somebody writes
 * idem_access (a trigger sends a relation cache invalidation, whoever writes)
 * or a role or a membership changes.  They are read under the newest
 * snapshot: what was revoked is revoked for old transactions too.  In front
 * of that stands the last check that was passed, which is nearly always the
 * next one.
 *
 * Memory: a context of its own in CacheMemoryContext, emptied before a check
 * that finds it stale, so no scope is kept beyond the check it serves.
 */
#include "idem_action.h"

#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/hsearch.h"
#include "utils/inval.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

typedef struct Binding
{
	const char *tenant;			/* not terminated */
	int			length;			/* bytes */
	int			kinds;			/* under which it is bound */
} Binding;

typedef struct Scope
{
	Oid			role;			/* hash key */
	bool		is_owner;		/* bound to everything under every kind */
	int			everywhere;		/* kinds under which it is bound to '*' */
	int			nbindings;		/* to named tenants, in bytewise order */
	Binding    *bindings;		/* those */
} Scope;

/* the last check that was passed */
typedef struct Passed
{
	Oid			current;		/* current role, or invalid: none */
	Oid			session;		/* the session's */
	int			kinds;			/* asked for */
	int			length;			/* of the tenant with its slash */
	char		prefix[IDEM_KEY_MAX_BYTES]; /* of the keys it is good for */
} Passed;

static bool is_valid = false;	/* nothing has changed since it was read */
static MemoryContext cache_context = NULL;	/* owns what was read */
static HTAB *scopes = NULL;		/* by role */
static Oid	cache_schema = InvalidOid;	/* of the extension that it is about */
static Oid	cache_owner = InvalidOid;	/* of that */
static Oid	cache_relid = InvalidOid;	/* its idem_access */
static Passed passed;

const AccessKind idem_access_kinds[] = {
	{"application", ACCESS_APPLICATION},
	{"operator", ACCESS_OPERATOR},
	{"monitor", ACCESS_MONITOR},
	{NULL, 0}
};

static Statement select_access = {
	"SELECT role::pg_catalog.oid, kind, tenant FROM %1$s.idem_access"
	" ORDER BY tenant COLLATE pg_catalog.\"C\"",
	0, {0}, SPI_OK_SELECT
};

/* ---- the cache ---- */

static void
forget(void)
{
	is_valid = false;
	passed.current = InvalidOid;
}

static void
forget_relation(Datum arg, Oid relid)
{
	if (relid == InvalidOid || relid == cache_relid)
		forget();
}

static void
forget_roles(Datum arg, int cacheid, uint32 hashvalue)
{
	forget();
}

static void
register_callbacks(void)
{
	static bool is_registered = false;	/* once a backend */

	if (is_registered)
		return;
	CacheRegisterRelcacheCallback(forget_relation, (Datum) 0);
	CacheRegisterSyscacheCallback(AUTHOID, forget_roles, (Datum) 0);
	CacheRegisterSyscacheCallback(AUTHMEMROLEMEM, forget_roles, (Datum) 0);
	is_registered = true;
}

static void
create_cache(const Home *home)
{
	HASHCTL		control = {.keysize = sizeof(Oid),.entrysize = sizeof(Scope)};

	register_callbacks();
	forget();
	if (cache_context == NULL)
		cache_context = AllocSetContextCreate(CacheMemoryContext, "idem_action access",
											  ALLOCSET_SMALL_SIZES);
	MemoryContextReset(cache_context);	/* takes the table along */
	control.hcxt = cache_context;
	scopes = hash_create("idem_action scopes", 16, &control,
						 HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	cache_relid = idem_home_relation(home, "idem_access");
	cache_schema = home->schema;
	cache_owner = home->owner;
	is_valid = true;
}

/* before each check */
static inline void
refresh_cache(const Home *home)
{
	AcceptInvalidationMessages();
	if (!is_valid || cache_schema != home->schema || cache_owner != home->owner)
		create_cache(home);
}

int
idem_access_kind(const char *name)
{
	for (int i = 0; idem_access_kinds[i].name != NULL; i++)
		if (strcmp(idem_access_kinds[i].name, name) == 0)
			return idem_access_kinds[i].kind;
	return 0;
}

static bool
is_tenant(const Binding *binding, const char *tenant, int length)
{
	return binding->length == length && memcmp(binding->tenant, tenant, length) == 0;
}

static void
add_binding(Scope *scope, const char *tenant, int kind)
{
	int			length = strlen(tenant);
	Binding    *last = scope->nbindings > 0 ? &scope->bindings[scope->nbindings - 1] : NULL;

	if (strcmp(tenant, ACCESS_EVERY_TENANT) == 0)
		scope->everywhere |= kind;
	else if (last != NULL && is_tenant(last, tenant, length))
		last->kinds |= kind;
	else
	{
		Binding		binding = {MemoryContextStrdup(cache_context, tenant), length, kind};

		scope->bindings[scope->nbindings++] = binding;
	}
}

/* the rows of all roles, in the order of tenants */
static void
read_access(SPITupleTable *table, uint64 rows, void *target)
{
	Scope	   *scope = target;

	scope->bindings = MemoryContextAllocHuge(cache_context, Max(rows, 1) * sizeof(Binding));
	for (uint64 i = 0; i < rows; i++)
	{
		HeapTuple	row = table->vals[i];
		bool		isnull;
		Oid			role = DatumGetObjectId(SPI_getbinval(row, table->tupdesc, 1, &isnull));

		if (has_privs_of_role(scope->role, role))
			add_binding(scope, SPI_getvalue(row, table->tupdesc, 3),
						idem_access_kind(SPI_getvalue(row, table->tupdesc, 2)));
	}
}

static const Scope *
scope_of(const Home *home, Oid role)
{
	Scope	   *found = hash_search(scopes, &role, HASH_FIND, NULL);
	Scope		scope = {.role = role};

	if (found != NULL)
		return found;
	scope.is_owner = has_privs_of_role(role, home->owner);
	if (!scope.is_owner)
	{
		Snapshot	latest = RegisterSnapshot(GetLatestSnapshot());

		idem_statement_run(&select_access, home, NULL, NULL, latest, read_access, &scope);
		UnregisterSnapshot(latest);
	}
	found = hash_search(scopes, &role, HASH_ENTER, NULL);
	*found = scope;
	return found;
}

/* ---- rules ---- */

/* as their tenants stand in the statement's result */
static int
compare_tenant(const void *key, const void *element)
{
	const Binding *a = key;
	const Binding *b = element;
	int			order = memcmp(a->tenant, b->tenant, Min(a->length, b->length));

	return order != 0 ? order : a->length - b->length;
}

/* to a tenant, or (null) to all of them, under one of the kinds */
static bool
is_bound(const Scope *scope, const char *tenant, int length, int kinds)
{
	Binding		sought = {tenant, length, 0};
	const Binding *found;

	if (scope->is_owner || (scope->everywhere & kinds) != 0)
		return true;
	if (tenant == NULL)
		return false;
	found = bsearch(&sought, scope->bindings, scope->nbindings, sizeof(Binding), compare_tenant);
	return found != NULL && (found->kinds & kinds) != 0;
}

/* whoever is bound to nothing only lends his connection to the roles that he sets */
static bool
is_open_session(const Scope *session)
{
	return session->is_owner || (session->everywhere == 0 && session->nbindings == 0);
}

static bool
is_session_bound(const Scope *session, const char *tenant, int length)
{
	return is_open_session(session) || is_bound(session, tenant, length, ACCESS_ANY);
}

static const char *
role_name(Oid role)
{
	const char *name = GetUserNameFromId(role, true);

	return name != NULL ? name : psprintf("%u", role);
}

/* "application or operator" */
static const char *
kinds_wording(int kinds)
{
	StringInfoData wording;

	initStringInfo(&wording);
	for (int i = 0; idem_access_kinds[i].name != NULL; i++)
		if ((idem_access_kinds[i].kind & kinds) != 0)
			appendStringInfo(&wording, "%s%s", wording.len > 0 ? " or " : "",
							 idem_access_kinds[i].name);
	return wording.data;
}

/* as an argument; which of several fits is not for us to say */
static const char *
kind_wording(int kinds)
{
	for (int i = 0; idem_access_kinds[i].name != NULL; i++)
		if (idem_access_kinds[i].kind == kinds)
			return quote_literal_cstr(idem_access_kinds[i].name);
	return "kind";
}

static const char *
tenant_wording(const char *tenant)
{
	return tenant == NULL ? "what concerns every tenant" : psprintf("tenant \"%s\"", tenant);
}

static void
refuse_session(const char *tenant)
{
	ereport(ERROR,
			(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
			 errmsg("permission denied for %s", tenant_wording(tenant)),
			 errdetail("The session's role \"%s\" is bound to %s tenants, whatever role it sets.",
					   role_name(GetSessionUserId()), tenant == NULL ? "single" : "other"),
			 errhint("Connect as a role that is bound to %s too, or to none.",
					 tenant == NULL ? "all of them" : "this one")));
}

static void
refuse_current(const char *tenant, int kinds)
{
	const char *role = role_name(GetUserId());

	if (kinds == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied to bind roles to tenants"),
				 errdetail("Role \"%s\" is neither a superuser nor the owner of the extension.",
						   role)));
	ereport(ERROR,
			(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
			 errmsg("permission denied for %s", tenant_wording(tenant)),
			 errdetail("Role \"%s\" is not bound to %s as %s.", role,
					   tenant == NULL ? "all of them" : "it", kinds_wording(kinds)),
			 errhint("The owner of the extension binds it: SELECT idem_grant(%s, %s, %s);",
					 quote_literal_cstr(role), kind_wording(kinds),
					 quote_literal_cstr(tenant == NULL ? ACCESS_EVERY_TENANT : tenant))));
}

/* raises unless both roles may speak of the tenant, or (null) of all of them */
static void
check(const Home *home, const char *tenant, int length, int kinds)
{
	char	   *name = tenant == NULL ? NULL : pnstrdup(tenant, length);

	if (!is_bound(scope_of(home, GetUserId()), tenant, length, kinds))
		refuse_current(name, kinds);
	if (!is_session_bound(scope_of(home, GetSessionUserId()), tenant, length))
		refuse_session(name);
}

/* ---- what the other rooms ask ---- */

/* is it the check that was passed last? */
static inline bool
is_passed(const IdemKey *key, int kinds)
{
	return passed.current == GetUserId() && passed.session == GetSessionUserId() &&
		passed.kinds == kinds && VARSIZE_ANY_EXHDR(key) > passed.length &&
		memcmp(VARDATA_ANY(key), passed.prefix, passed.length) == 0;
}

static void
remember_passed(const IdemKey *key, int length, int kinds)
{
	if (!is_valid)
		return;					/* something changed meanwhile */
	passed.session = GetSessionUserId();
	passed.kinds = kinds;
	passed.length = length + 1;
	memcpy(passed.prefix, VARDATA_ANY(key), length + 1);
	passed.current = GetUserId();
}

/* 42501 unless the key's tenant is one of the caller's, under one of the kinds */
void
idem_access_check(const Home *home, const IdemKey *key, int kinds)
{
	KeyParts	parts;

	refresh_cache(home);
	if (is_passed(key, kinds))
		return;
	idem_key_split(key, &parts);
	check(home, parts.tenant.bytes, parts.tenant.length, kinds);
	remember_passed(key, parts.tenant.length, kinds);
}

/* the same of a tenant that is named alone */
void
idem_access_check_tenant(const Home *home, const char *tenant, int length, int kinds)
{
	refresh_cache(home);
	check(home, tenant, length, kinds);
}

/* 42501 unless the caller is bound to '*'; no kind: unless he is the owner */
void
idem_access_check_all(const Home *home, int kinds)
{
	refresh_cache(home);
	check(home, NULL, 0, kinds);
}

/*
 * The tenants of which the caller may speak, as text[] in the current
 * context; NULL: all of them; 42501: none.
 */
ArrayType *
idem_access_tenants(const Home *home, int kinds)
{
	const Scope *current;
	const Scope *session;
	const Scope *narrower;
	Datum	   *tenants;
	int			n = 0;

	refresh_cache(home);
	current = scope_of(home, GetUserId());
	session = scope_of(home, GetSessionUserId());
	narrower = is_bound(current, NULL, 0, kinds) ? session : current;
	if (narrower == session && is_session_bound(session, NULL, 0))
		return NULL;

	tenants = palloc(Max(narrower->nbindings, 1) * sizeof(Datum));
	for (int i = 0; i < narrower->nbindings; i++)
	{
		const Binding *binding = &narrower->bindings[i];

		if (is_bound(current, binding->tenant, binding->length, kinds) &&
			is_session_bound(session, binding->tenant, binding->length))
			tenants[n++] = PointerGetDatum(cstring_to_text_with_len(binding->tenant,
																	binding->length));
	}
	if (n == 0)
		check(home, NULL, 0, kinds);
	return construct_array(tenants, n, TEXTOID, -1, false, TYPALIGN_INT);
}

PG_FUNCTION_INFO_V1(idem_may_see);
Datum
idem_may_see(PG_FUNCTION_ARGS)
{
	const IdemKey *key = PG_GETARG_IDEM_KEY_PP(0);
	KeyParts	parts;
	Home		home;
	bool		may_see;

	idem_home(fcinfo, &home);
	refresh_cache(&home);
	if (is_passed(key, ACCESS_ANY))
		PG_RETURN_BOOL(true);
	idem_key_split(key, &parts);
	may_see = is_bound(scope_of(&home, GetUserId()), parts.tenant.bytes, parts.tenant.length,
					   ACCESS_ANY) &&
		is_session_bound(scope_of(&home, GetSessionUserId()), parts.tenant.bytes,
						 parts.tenant.length);
	if (may_see)
		remember_passed(key, parts.tenant.length, ACCESS_ANY);
	PG_RETURN_BOOL(may_see);
}

PG_FUNCTION_INFO_V1(idem_may_see_all);
Datum
idem_may_see_all(PG_FUNCTION_ARGS)
{
	Home		home;

	idem_home(fcinfo, &home);
	refresh_cache(&home);
	PG_RETURN_BOOL(is_bound(scope_of(&home, GetUserId()), NULL, 0, ACCESS_ANY) &&
				   is_session_bound(scope_of(&home, GetSessionUserId()), NULL, 0));
}

/* after every statement that writes idem_access, by whomever */
PG_FUNCTION_INFO_V1(idem_access_changed);
Datum
idem_access_changed(PG_FUNCTION_ARGS)
{
	if (!CALLED_AS_TRIGGER(fcinfo))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("idem_access_changed is called otherwise than as a trigger")));
	CacheInvalidateRelcache(((TriggerData *) fcinfo->context)->tg_relation);
	return PointerGetDatum(NULL);
}
