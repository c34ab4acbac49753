/*
 * row.c
 *		A row of the composite type that the function being called returns.
 */
#include "idem_action.h"
#include "row.h"

#include "access/htup_details.h"
#include "funcapi.h"
#include "utils/builtins.h"
#include "utils/typcache.h"

Datum
idem_row_datum(const Home *home, Datum *values, bool *nulls, int n)
{
	TupleDesc	desc = lookup_rowtype_tupdesc(home->rettype, -1);
	HeapTuple	tuple;

	if (desc->natts != n)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("type %s has not the attributes of this release", format_type_be(home->rettype)),
				 errhint("Run ALTER EXTENSION idem_action UPDATE.")));
	tuple = heap_form_tuple(desc, values, nulls);
	ReleaseTupleDesc(desc);
	return HeapTupleGetDatum(tuple);
}
