/*
 * key_order.c
 *		Order, equality and hash of idem_key.
 *
 * Those of memcmp, a shorter key before a longer one that it begins.  The
 * functions never throw on a value that lies in memory, and read nothing but
 * their arguments: they may be called without a FmgrInfo of their own.
 */
#include "idem_action.h"

#include "catalog/pg_collation_d.h"
#include "catalog/pg_type_d.h"
#include "common/hashfn.h"
#include "utils/builtins.h"
#include "utils/sortsupport.h"
#include "utils/varlena.h"

int
idem_key_compare(const IdemKey *left, const IdemKey *right)
{
	int			left_length = VARSIZE_ANY_EXHDR(left);
	int			right_length = VARSIZE_ANY_EXHDR(right);
	int			order = memcmp(VARDATA_ANY(left), VARDATA_ANY(right),
							   Min(left_length, right_length));

	return order != 0 ? order : left_length - right_length;
}

/* as nearly every key is: neither compressed nor stored elsewhere */
static bool
is_plain(const void *key)
{
	return !VARATT_IS_COMPRESSED(key) && !VARATT_IS_EXTERNAL(key);
}

/* B-tree support functions must not leak, so copies made by detoasting are freed */
static int
compare_arguments(FunctionCallInfo fcinfo)
{
	IdemKey    *left = (IdemKey *) PG_GETARG_POINTER(0);
	IdemKey    *right = (IdemKey *) PG_GETARG_POINTER(1);
	int			order;

	if (is_plain(left) && is_plain(right))
		return idem_key_compare(left, right);
	left = PG_GETARG_IDEM_KEY_PP(0);
	right = PG_GETARG_IDEM_KEY_PP(1);
	order = idem_key_compare(left, right);
	PG_FREE_IF_COPY(left, 0);
	PG_FREE_IF_COPY(right, 1);
	return order;
}

/* keys of different lengths, most of those compared, are told apart without memcmp */
static bool
arguments_are_equal(FunctionCallInfo fcinfo)
{
	IdemKey    *left = PG_GETARG_IDEM_KEY_PP(0);
	IdemKey    *right = PG_GETARG_IDEM_KEY_PP(1);
	Size		length = VARSIZE_ANY_EXHDR(left);
	bool		is_equal = length == VARSIZE_ANY_EXHDR(right) &&
		memcmp(VARDATA_ANY(left), VARDATA_ANY(right), length) == 0;

	PG_FREE_IF_COPY(left, 0);
	PG_FREE_IF_COPY(right, 1);
	return is_equal;
}

PG_FUNCTION_INFO_V1(idem_key_eq);
Datum
idem_key_eq(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(arguments_are_equal(fcinfo));
}

PG_FUNCTION_INFO_V1(idem_key_ne);
Datum
idem_key_ne(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(!arguments_are_equal(fcinfo));
}

PG_FUNCTION_INFO_V1(idem_key_lt);
Datum
idem_key_lt(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(compare_arguments(fcinfo) < 0);
}

PG_FUNCTION_INFO_V1(idem_key_le);
Datum
idem_key_le(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(compare_arguments(fcinfo) <= 0);
}

PG_FUNCTION_INFO_V1(idem_key_gt);
Datum
idem_key_gt(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(compare_arguments(fcinfo) > 0);
}

PG_FUNCTION_INFO_V1(idem_key_ge);
Datum
idem_key_ge(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(compare_arguments(fcinfo) >= 0);
}

PG_FUNCTION_INFO_V1(idem_key_cmp);
Datum
idem_key_cmp(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT32(compare_arguments(fcinfo));
}

/*
 * Text under the C collation is compared as keys are, so its sort support
 * serves.  It abbreviates to the first eight bytes, and gives that up by
 * itself where those rarely differ, as among the keys of one tenant.
 */
PG_FUNCTION_INFO_V1(idem_key_sortsupport);
Datum
idem_key_sortsupport(PG_FUNCTION_ARGS)
{
	SortSupport sort = (SortSupport) PG_GETARG_POINTER(0);
	MemoryContext caller = MemoryContextSwitchTo(sort->ssup_cxt);

	varstr_sortsupport(sort, TEXTOID, C_COLLATION_OID);
	MemoryContextSwitchTo(caller);
	PG_RETURN_VOID();
}

/* equal keys have the same bytes, so a B-tree may keep one for many */
PG_FUNCTION_INFO_V1(idem_key_equalimage);
Datum
idem_key_equalimage(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(true);
}

PG_FUNCTION_INFO_V1(idem_key_hash);
Datum
idem_key_hash(PG_FUNCTION_ARGS)
{
	IdemKey    *key = PG_GETARG_IDEM_KEY_PP(0);
	Datum		hash = hash_any((unsigned char *) VARDATA_ANY(key), VARSIZE_ANY_EXHDR(key));

	PG_FREE_IF_COPY(key, 0);
	return hash;
}

PG_FUNCTION_INFO_V1(idem_key_hash_extended);
Datum
idem_key_hash_extended(PG_FUNCTION_ARGS)
{
	IdemKey    *key = PG_GETARG_IDEM_KEY_PP(0);
	Datum		hash = hash_any_extended((unsigned char *) VARDATA_ANY(key),
										 VARSIZE_ANY_EXHDR(key), PG_GETARG_INT64(1));

	PG_FREE_IF_COPY(key, 0);
	return hash;
}
