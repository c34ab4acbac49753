/*
 * progress.c
 *		How far a consumer has come in a partition of a log.
 *
 * The key names a consumer and a partition: tenant/consumer/topic/partition.
 * Its owner (assign.c) says what he was delivered (fetched), his workers say
 * in the transactions of their effects what they have done (done), and what
 * may be committed to the broker follows: everything below the lowest offset
 * that is open, or else below where he has come to.  So completion is
 * contiguous over what was delivered, whatever integers are missing in the
 * log.
 *
 * What is on record of a partition (partition.c), with everything in order:
 *
 *		... done ... | open and done ones |       open ones left over       |
 *					 lowest			  position						delivered
 *
 * Below position the owner has been delivered; what has no row is done, or
 * never was there.  From there up to delivered an earlier owner has been:
 * what has no row is done likewise, and not handed out again; what has one
 * was left open, and counts for nothing until it is delivered again.  What
 * is passed over by the new owner's fetching is not coming again, since
 * brokers deliver in order; so it is forgotten.
 *
 * Who may work on a partition is judged under its lock, by the newest row;
 * see partition.c.  A worker's share of that lock keeps the next assignment
 * waiting until his transaction has ended.  So when somebody has been
 * assigned the partition, nothing of his predecessor can commit any more.
 */
#include "idem_action.h"

#include "catalog/pg_type.h"
#include "tcop/utility.h"
#include "utils/builtins.h"

#define OPEN_MAX 10000			/* offsets of a partition, and of a call */

/* ---- arguments ---- */

typedef struct Offsets
{
	int64	   *values;			/* rising, perhaps one twice */
	int			n;				/* how many */
} Offsets;

static int64
check_offset(int64 offset, const char *name)
{
	if (offset < 0 || offset == PG_INT64_MAX)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s is out of range", name),
				 errdetail("An offset is 0 or more, and below " INT64_FORMAT ".", PG_INT64_MAX)));
	return offset;
}

static int
compare_values(const void *a, const void *b)
{
	int64		one = *(const int64 *) a;
	int64		two = *(const int64 *) b;

	return (one > two) - (one < two);
}

static ArrayType *
array_argument(FunctionCallInfo fcinfo, int n)
{
	ArrayType  *array;

	idem_argument_require(fcinfo, n, "offsets");
	array = PG_GETARG_ARRAYTYPE_P(n);
	if (ARR_NDIM(array) > 1)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("offsets must be an array of one dimension")));
	if (array_contains_nulls(array))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("an offset must not be null")));
	return array;
}

/* in order */
static Offsets
offsets_argument(FunctionCallInfo fcinfo, int n)
{
	Offsets		offsets;
	Datum	   *elements;

	deconstruct_array(array_argument(fcinfo, n), INT8OID, sizeof(int64), FLOAT8PASSBYVAL,
					  TYPALIGN_DOUBLE, &elements, NULL, &offsets.n);
	if (offsets.n > OPEN_MAX)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("offsets has %d elements", offsets.n),
				 errdetail("A call takes at most %d.", OPEN_MAX),
				 errhint("Divide it into several calls, in the order of the offsets.")));
	offsets.values = palloc(Max(offsets.n, 1) * sizeof(int64));
	for (int i = 0; i < offsets.n; i++)
		offsets.values[i] = check_offset(DatumGetInt64(elements[i]), "an offset");
	qsort(offsets.values, offsets.n, sizeof(int64), compare_values);
	return offsets;
}

/* ---- refusals ---- */

static void
refuse_stale(const Partition *partition, int64 generation)
{
	ereport(ERROR,
			(errcode(ERRCODE_IDEM_STALE_GENERATION),
			 errmsg("generation " INT64_FORMAT " of partition \"%s\" is not the newest", generation,
					idem_key_cstring(partition->key)),
			 errdetail("The newest generation is " INT64_FORMAT ".", partition->generation),
			 errhint("Somebody else was assigned the partition: roll back what was written beside this call, and stop working on it. "
					 "Each call takes the generation that idem_progress_assign() granted.")));
}

/*
 * After a failover or a restore an owner on record may have been delivered,
 * or have done, what is not on record any more.  Going on from where he
 * believes to be would pass that by, so he begins anew from what is.
 */
static void
check_era(const Home *home, const Partition *partition)
{
	if (partition->generation >= idem_era_floor(home))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_IDEM_STALE_GENERATION),
			 errmsg("generation " INT64_FORMAT " of partition \"%s\" is of an era that is over",
					partition->generation, idem_key_cstring(partition->key)),
			 errdetail("The database was failed over or restored since it was granted, so what its owner was delivered or has done may not be on record."),
			 errhint("Be assigned the partition again, and start from the offset that idem_progress_assign() answers.")));
}

static void
refuse_unassigned(const IdemKey *key)
{
	ereport(ERROR,
			(errcode(ERRCODE_IDEM_UNKNOWN_ACTION),
			 errmsg("partition \"%s\" is not on record", idem_key_cstring(key)),
			 errdetail("It was never assigned."),
			 errhint("Be assigned it first: SELECT * FROM idem_progress_assign(key);")));
}

/* whoever is told so passes the offset by, so its commit is put on disk */
static void
refuse_offset(const Partition *partition, int64 offset)
{
	bool		is_ahead = offset >= partition->position;

	idem_partition_flush();
	ereport(ERROR,
			(errcode(ERRCODE_IDEM_ILLEGAL_TRANSITION),
			 errmsg("offset " INT64_FORMAT " of partition \"%s\" is not open", offset,
					idem_key_cstring(partition->key)),
			 is_ahead ? errdetail("It was not fetched under generation " INT64_FORMAT ".",
								  partition->generation) :
			 errdetail("It is done already, was never fetched, or is named twice."),
			 errhint("Roll back what was written beside this call. idem_progress_fetched() says which offsets are still to be done.")));
}

static void
refuse_back(const Partition *partition, int64 next_offset, int64 committable)
{
	idem_partition_flush();
	ereport(ERROR,
			(errcode(ERRCODE_IDEM_ILLEGAL_TRANSITION),
			 errmsg("partition \"%s\" cannot be advanced to offset " INT64_FORMAT,
					idem_key_cstring(partition->key), next_offset),
			 errdetail("Everything below offset " INT64_FORMAT " is done already.", committable),
			 errhint("Roll back what was written beside this call, and go on with offset " INT64_FORMAT ".",
					 committable)));
}

static void
refuse_unasked(const Partition *partition, int64 next_offset)
{
	idem_partition_flush();
	ereport(ERROR,
			(errcode(ERRCODE_IDEM_ILLEGAL_TRANSITION),
			 errmsg("partition \"%s\" cannot be advanced to offset " INT64_FORMAT,
					idem_key_cstring(partition->key), next_offset),
			 errdetail("An earlier owner has done some of the offsets from " INT64_FORMAT " to " INT64_FORMAT ", and left others.",
					   partition->position, partition->delivered - 1),
			 errhint("Roll back what was written beside this call, and ask idem_progress_fetched() which of them are still to be done.")));
}

static void
refuse_too_many(const Partition *partition, int n)
{
	ereport(ERROR,
			(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
			 errmsg("partition \"%s\" would have %d open offsets", idem_key_cstring(partition->key), n),
			 errdetail("It may have at most %d.", OPEN_MAX),
			 errhint("Fetch no more until some of them are done.")));
}

/* ---- owners ---- */

/* the key that a call is about, once the caller may speak of it */
static const IdemKey *
allowed_key(FunctionCallInfo fcinfo, Home *home, int kinds)
{
	const IdemKey *key = idem_argument_key(fcinfo, 0);

	idem_home(fcinfo, home);
	idem_access_check(home, key, kinds);
	return key;
}

/* opens a partition for its owner, and keeps the next one out until the transaction ends */
static const Contract *
open_owned(FunctionCallInfo fcinfo, const Home *home, const IdemKey *key, LOCKMODE mode,
		   Partition *partition)
{
	int64		generation = idem_argument_generation(fcinfo, 1);
	const Contract *contract = idem_contract_current(home, KIND_CONSUMER, key);

	idem_partition_open(partition, home, key, true);
	idem_partition_lock(partition, mode);
	if (!idem_partition_find(partition))
		refuse_unassigned(key);
	if (generation != partition->generation)
		refuse_stale(partition, generation);
	return contract;
}

/* the same for who writes what the records cause */
static void
open_worked(FunctionCallInfo fcinfo, const Home *home, const IdemKey *key, LOCKMODE mode,
			Partition *partition)
{
	if (open_owned(fcinfo, home, key, mode, partition)->is_rebuild)
		idem_transaction_rebuilds();
}

/* ---- fetching ---- */

typedef struct Fetch
{
	Datum	   *to_do;			/* offsets to be handed out, rising */
	int			nto_do;			/* how many */
	int64	   *news;			/* those of them that nobody was delivered */
	int			nnews;			/* how many */
	OpenOffset *passed;			/* open ones that are not coming again */
	int			npassed;		/* how many */
} Fetch;

/*
 * Goes through what was delivered and what is open, both rising, side by
 * side.  Anything may be done meanwhile; who is told to do it all the same
 * finds out.
 */
static void
sort_out(const Partition *partition, const Offsets *offsets, OpenOffset *open, int nopen,
		 Fetch *fetch)
{
	int			o = 0;

	fetch->to_do = palloc(Max(offsets->n, 1) * sizeof(Datum));
	fetch->news = palloc(Max(offsets->n, 1) * sizeof(int64));
	fetch->passed = palloc(Max(nopen, 1) * sizeof(OpenOffset));
	for (int i = 0; i < offsets->n; i++)
	{
		int64		offset = offsets->values[i];
		bool		is_open;

		if (i > 0 && offset == offsets->values[i - 1])
			continue;
		for (; o < nopen && open[o].offset < offset; o++)
			if (open[o].offset >= partition->position)
				fetch->passed[fetch->npassed++] = open[o];
		is_open = o < nopen && open[o].offset == offset;
		if (is_open)
			o++;
		else if (offset >= partition->delivered)
			fetch->news[fetch->nnews++] = offset;
		else
			continue;
		fetch->to_do[fetch->nto_do++] = Int64GetDatum(offset);
	}
}

/* of what will be open, given that fetching stops before next_offset */
static int64
lowest_open(const Fetch *fetch, const OpenOffset *open, int nopen, int64 next_offset)
{
	int64		lowest = fetch->nnews > 0 ? fetch->news[0] : next_offset;
	int			o = 0;

	while (o < fetch->npassed && open[o].offset == fetch->passed[o].offset)
		o++;
	return o < nopen ? Min(lowest, open[o].offset) : lowest;
}

static void
record_fetch(Partition *partition, const Fetch *fetch, int64 next_offset, const OpenOffset *open,
			 int nopen)
{
	if (next_offset <= partition->position)
		return;
	if (nopen - fetch->npassed + fetch->nnews > OPEN_MAX)
		refuse_too_many(partition, nopen - fetch->npassed + fetch->nnews);
	idem_partition_remove(partition, fetch->passed, fetch->npassed);
	idem_partition_add(partition, fetch->news, fetch->nnews);
	partition->lowest = lowest_open(fetch, open, nopen, next_offset);
	partition->is_placed = true;
	partition->position = next_offset;
	partition->delivered = Max(partition->delivered, next_offset);
	idem_partition_write(partition, false);
}

static Fetch
fetched(Partition *partition, const Offsets *offsets)
{
	Fetch		fetch = {0};
	OpenOffset *open;
	int			nopen;

	if (offsets->n == 0)
		return fetch;
	open = idem_partition_read(partition, partition->lowest, PG_INT64_MAX, PG_INT32_MAX, &nopen);
	sort_out(partition, offsets, open, nopen, &fetch);
	record_fetch(partition, &fetch, offsets->values[offsets->n - 1] + 1, open, nopen);
	if (fetch.nto_do < offsets->n)
		idem_partition_flush(); /* some are told to be done */
	return fetch;
}

PG_FUNCTION_INFO_V1(idem_progress_fetched);
Datum
idem_progress_fetched(PG_FUNCTION_ARGS)
{
	const IdemKey *key;
	Home		home;
	Offsets		offsets;
	Partition	partition;
	Fetch		fetch;

	PreventCommandIfReadOnly("idem_progress_fetched()");
	key = allowed_key(fcinfo, &home, ACCESS_APPLICATION);
	offsets = offsets_argument(fcinfo, 2);
	open_owned(fcinfo, &home, key, PARTITION_LOCK_FETCH, &partition);
	check_era(&home, &partition);
	fetch = fetched(&partition, &offsets);
	idem_partition_close(&partition);
	PG_RETURN_ARRAYTYPE_P(construct_array(fetch.to_do, fetch.nto_do, INT8OID, sizeof(int64),
										  FLOAT8PASSBYVAL, TYPALIGN_DOUBLE));
}

/* ---- having done ---- */

static void
done(Partition *partition, const Offsets *offsets)
{
	OpenOffset *open;
	OpenOffset *finished;
	int			nopen;
	int			o = 0;
	int64		lost;

	if (offsets->n == 0)
		return;
	finished = palloc(offsets->n * sizeof(OpenOffset));
	open = idem_partition_read(partition, offsets->values[0],
							   Min(offsets->values[offsets->n - 1] + 1, partition->position),
							   PG_INT32_MAX, &nopen);
	for (int i = 0; i < offsets->n; i++)
	{
		while (o < nopen && open[o].offset < offsets->values[i])
			o++;
		if (o == nopen || open[o].offset > offsets->values[i])
			refuse_offset(partition, offsets->values[i]);
		finished[i] = open[o++];
	}
	lost = idem_partition_remove(partition, finished, offsets->n);
	if (lost >= 0)
		refuse_offset(partition, lost);
}

PG_FUNCTION_INFO_V1(idem_progress_done);
Datum
idem_progress_done(PG_FUNCTION_ARGS)
{
	const IdemKey *key;
	Home		home;
	Offsets		offsets;
	Partition	partition;

	PreventCommandIfReadOnly("idem_progress_done()");
	key = allowed_key(fcinfo, &home, ACCESS_APPLICATION);
	offsets = offsets_argument(fcinfo, 2);
	open_worked(fcinfo, &home, key, PARTITION_LOCK_WORK, &partition);
	done(&partition, &offsets);
	idem_partition_close(&partition);
	PG_RETURN_VOID();
}

/*
 * A serial consumer has done everything up to there by itself, so it waits
 * for whoever else works on the partition, and must not pass by what an
 * earlier owner's workers have done out of order.
 */
static void
advance(Partition *partition, int64 next_offset)
{
	int64		committable;
	OpenOffset *open;
	int			nopen;

	if (idem_partition_committable(partition, &committable) && next_offset <= committable)
		refuse_back(partition, next_offset, committable);
	if (next_offset > partition->position && partition->position < partition->delivered)
		refuse_unasked(partition, next_offset);
	open = idem_partition_read(partition, partition->lowest, next_offset, PG_INT32_MAX, &nopen);
	idem_partition_remove(partition, open, nopen);
	partition->is_placed = true;
	partition->lowest = next_offset;
	partition->position = Max(partition->position, next_offset);
	partition->delivered = Max(partition->delivered, next_offset);
	idem_partition_write(partition, false);
}

PG_FUNCTION_INFO_V1(idem_progress_advance);
Datum
idem_progress_advance(PG_FUNCTION_ARGS)
{
	const IdemKey *key;
	Home		home;
	int64		next_offset;
	Partition	partition;

	PreventCommandIfReadOnly("idem_progress_advance()");
	key = allowed_key(fcinfo, &home, ACCESS_APPLICATION);
	idem_argument_require(fcinfo, 2, "next_offset");
	next_offset = check_offset(PG_GETARG_INT64(2), "next_offset");
	open_worked(fcinfo, &home, key, PARTITION_LOCK_ASSIGN, &partition);
	check_era(&home, &partition);
	advance(&partition, next_offset);
	idem_partition_close(&partition);
	PG_RETURN_VOID();
}

/* ---- asking ---- */

/*
 * Asked without the lock.  The partition's row is looked at first, so every
 * offset below its position was on record by then; which of them are open is
 * seen after it.  Only another assignment in between could mislead, and shows.
 */
PG_FUNCTION_INFO_V1(idem_progress_committable);
Datum
idem_progress_committable(PG_FUNCTION_ARGS)
{
	const IdemKey *key;
	Home		home;
	Partition	partition;
	int64		next_offset = 0;
	int64		generation;
	bool		is_known;
	int			rounds = 0;

	key = allowed_key(fcinfo, &home, ACCESS_ANY);
	idem_contract_current(&home, KIND_CONSUMER, key);
	idem_partition_open(&partition, &home, key, false);
	if (!idem_partition_find(&partition))
		refuse_unassigned(key);
	do
	{
		idem_look_again(&rounds);
		generation = partition.generation;
		is_known = idem_partition_committable(&partition, &next_offset);
		if (!idem_partition_find(&partition))
			refuse_unassigned(key);
	} while (partition.generation != generation);
	idem_partition_close(&partition);
	if (!is_known)
		PG_RETURN_NULL();
	idem_partition_flush();
	PG_RETURN_INT64(next_offset);
}
