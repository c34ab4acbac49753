/*
 * row.h
 *		Values and nulls of a row, as the rooms that write or return one fill
 *		and read them.
 */
#ifndef IDEM_ROW_H
#define IDEM_ROW_H

#include "idem_action.h"

#include "utils/timestamp.h"

/* as many values as the type has attributes */
extern Datum idem_row_datum(const Home *home, Datum *values, bool *nulls, int n);

static inline void
row_set_pointer(Datum *values, bool *nulls, int n, const void *pointer)
{
	values[n] = PointerGetDatum(pointer);
	nulls[n] = pointer == NULL;
}

static inline void
row_set_moment(Datum *values, bool *nulls, int n, TimestampTz moment)
{
	values[n] = TimestampTzGetDatum(moment);
	nulls[n] = moment == TIME_NONE;
}

static inline TimestampTz
row_moment(const Datum *values, const bool *nulls, int n)
{
	return nulls[n] ? TIME_NONE : DatumGetTimestampTz(values[n]);
}

/* the values of a copied row need no copy of their own, unless short or compressed */
static inline Jsonb *
row_jsonb(const Datum *values, const bool *nulls, int n)
{
	return nulls[n] ? NULL : DatumGetJsonbP(values[n]);
}

static inline text *
row_text(const Datum *values, const bool *nulls, int n)
{
	return nulls[n] ? NULL : DatumGetTextPP(values[n]);
}

static inline const Digest *
row_digest(const Datum *values, const bool *nulls, int n)
{
	return nulls[n] ? NULL : DatumGetDigestP(values[n]);
}

#endif							/* IDEM_ROW_H */
