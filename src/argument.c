/*
 * argument.c
 *		Reading what callers hand over.
 *
 * No function that writes is STRICT: a null that matters is refused here,
 * with a code, instead of silently doing nothing.  Values of parameters and
 * results never appear in a message; keys, names and bounds may.
 */
#include "idem_action.h"

#include "common/int.h"
#include "datatype/timestamp.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#define LABEL_MAX_BYTES 512

void
idem_argument_require(FunctionCallInfo fcinfo, int n, const char *name)
{
	if (PG_ARGISNULL(n))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("%s must not be null", name)));
}

IdemKey *
idem_argument_key(FunctionCallInfo fcinfo, int n)
{
	idem_argument_require(fcinfo, n, "key");
	return (IdemKey *) PG_GETARG_TEXT_PP(n);
}

Jsonb *
idem_argument_params(FunctionCallInfo fcinfo, int n)
{
	if (PG_ARGISNULL(n))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("params must not be null"),
				 errhint("Pass '{}' where there are none.")));
	return PG_GETARG_JSONB_P(n);
}

Jsonb *
idem_argument_document(FunctionCallInfo fcinfo, int n)
{
	Jsonb	   *document = PG_ARGISNULL(n) ? NULL : PG_GETARG_JSONB_P(n);

	if (document != NULL)
		idem_digest_check(document);
	return document;
}

/* null and 0 are the same: nothing was granted, and no record has it */
int64
idem_argument_generation(FunctionCallInfo fcinfo, int n)
{
	return PG_ARGISNULL(n) ? 0 : PG_GETARG_INT64(n);
}

/*
 * What keeps bytes from being a label, as the end of a sentence, or NULL.
 * Nothing is said of empty ones.
 */
const char *
idem_argument_fault(const char *bytes, int length)
{
	if (length > LABEL_MAX_BYTES)
		return psprintf("has %d bytes; at most %d are allowed", length, LABEL_MAX_BYTES);
	for (int i = 0; i < length; i++)
		if ((unsigned char) bytes[i] < 0x20 || bytes[i] == 0x7f)
			return psprintf("has the control character 0x%02x as byte %d",
							(unsigned char) bytes[i], i + 1);
	return NULL;
}

static void
check_label(const char *bytes, int length, const char *name)
{
	const char *fault = length == 0 ? "is empty" : idem_argument_fault(bytes, length);

	if (fault != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s is no text of this kind", name),
				 errdetail("It %s.", fault),
				 errhint("Use 1 to %d bytes without control characters, or null.", LABEL_MAX_BYTES)));
}

/* a short text for people and other systems: an owner, a reference; null stays null */
text *
idem_argument_label(FunctionCallInfo fcinfo, int n, const char *name)
{
	text	   *label;

	if (PG_ARGISNULL(n))
		return NULL;
	label = PG_GETARG_TEXT_PP(n);
	check_label(VARDATA_ANY(label), VARSIZE_ANY_EXHDR(label), name);
	return label;
}

/* a name as it may stand in a key before the id */
text *
idem_argument_name(FunctionCallInfo fcinfo, int n, const char *what)
{
	text	   *name;

	idem_argument_require(fcinfo, n, what);
	name = PG_GETARG_TEXT_PP(n);
	idem_key_check_name(VARDATA_ANY(name), VARSIZE_ANY_EXHDR(name), what);
	return name;
}

/* text of any length that must say something */
text *
idem_argument_note(FunctionCallInfo fcinfo, int n)
{
	text	   *note;

	idem_argument_require(fcinfo, n, "note");
	note = PG_GETARG_TEXT_PP(n);
	if (strspn(text_to_cstring(note), " \t\r\n") == VARSIZE_ANY_EXHDR(note))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("note must not be empty"),
				 errhint("Say what was found, and by whom.")));
	return note;
}

/*
 * An interval as microseconds, a month being 30 days and a day 24 hours as
 * interval comparison has it.  Saturates, which makes an infinite interval
 * the end of time whether or not the server's release knows the word.
 */
int64
idem_interval_usecs(const Interval *interval)
{
	int64		days = (int64) interval->month * DAYS_PER_MONTH + interval->day;
	int64		usecs;

	if (pg_mul_s64_overflow(days, USECS_PER_DAY, &usecs))
		return days < 0 ? TIME_NONE : TIME_FOREVER;
	if (pg_add_s64_overflow(usecs, interval->time, &usecs))
		return days < 0 ? TIME_NONE : TIME_FOREVER;
	return usecs;
}

int64
idem_argument_interval(FunctionCallInfo fcinfo, int n, const char *name,
					   int64 min, int64 max, const char *bounds, int64 missing)
{
	int64		usecs;

	if (PG_ARGISNULL(n))
		return missing;
	usecs = idem_interval_usecs(PG_GETARG_INTERVAL_P(n));
	if (usecs < min || usecs > max)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s is out of range", name),
				 errdetail("It must be %s.", bounds)));
	return usecs;
}

int64
idem_argument_lease(FunctionCallInfo fcinfo, int n, int64 missing)
{
	return idem_argument_interval(fcinfo, n, "lease", LEASE_MIN, LEASE_MAX,
								  "between 100 milliseconds and 24 hours", missing);
}

int64
idem_argument_retry_after(FunctionCallInfo fcinfo, int n, int64 missing)
{
	return idem_argument_interval(fcinfo, n, "retry_after", 0, RETRY_MAX,
								  "between 0 and 30 days", missing);
}

/* an infinite one is no moment, and would be taken for one of our own marks */
TimestampTz
idem_argument_finite(TimestampTz moment, const char *name)
{
	if (TIMESTAMP_NOT_FINITE(moment))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s must be finite", name)));
	return moment;
}

/* a moment, or TIME_NONE for null */
TimestampTz
idem_argument_moment(FunctionCallInfo fcinfo, int n, const char *name)
{
	return PG_ARGISNULL(n) ? TIME_NONE : idem_argument_finite(PG_GETARG_TIMESTAMPTZ(n), name);
}

/* how many rows a call may touch at the most */
int32
idem_argument_max_rows(FunctionCallInfo fcinfo, int n, int32 bound)
{
	int32		max_rows;

	idem_argument_require(fcinfo, n, "max_rows");
	max_rows = PG_GETARG_INT32(n);
	if (max_rows < 1 || max_rows > bound)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("max_rows is out of range"),
				 errdetail("It must be between 1 and %d.", bound)));
	return max_rows;
}
