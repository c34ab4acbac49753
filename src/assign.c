/*
 * assign.c
 *		Making somebody the owner of a partition of a log.
 *
 * The database grants the generation, as it does with actions, so it grows
 * whatever the broker's numbers do.  Being assigned shuts out everybody who
 * works on the partition (partition.c), so it waits for them and sees all
 * that they have done.  What is open then was left open: the new owner has
 * been delivered nothing yet, and starts at the lowest of it.
 *
 * An epoch is a life of the topic, with offsets of its own.  Another one
 * starts afresh.  Nobody returns to one that is over: a process whose idea of
 * the topic is outdated would have everything done again, and so would the
 * next one that knows better.  So would one that leaves the epoch out where
 * others pass it.
 */
#include "idem_action.h"
#include "row.h"

#include "catalog/pg_type.h"
#include "tcop/utility.h"
#include "utils/builtins.h"

#define FORMER_EPOCHS_MAX 16	/* that are remembered */

/* what names a topic's life: any short text, also an empty one */
static text *
epoch_argument(FunctionCallInfo fcinfo, int n)
{
	text	   *epoch;
	const char *fault;

	idem_argument_require(fcinfo, n, "epoch");
	epoch = PG_GETARG_TEXT_PP(n);
	fault = idem_argument_fault(VARDATA_ANY(epoch), VARSIZE_ANY_EXHDR(epoch));
	if (fault != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("epoch is no text of this kind"),
				 errdetail("It %s.", fault),
				 errhint("Pass the id that the broker gave the topic, or leave it out.")));
	return epoch;
}

static void
refuse_former(const Partition *partition, text *epoch)
{
	ereport(ERROR,
			(errcode(ERRCODE_IDEM_ILLEGAL_TRANSITION),
			 errmsg("epoch \"%s\" of partition \"%s\" is over", text_to_cstring(epoch),
					idem_key_cstring(partition->key)),
			 errdetail("The partition is in epoch \"%s\".", text_to_cstring(partition->epoch)),
			 errhint("The topic was created anew: look up its id again. A new epoch needs a name that was not used before.")));
}

static void
refuse_left_out(const Partition *partition)
{
	ereport(ERROR,
			(errcode(ERRCODE_IDEM_ILLEGAL_TRANSITION),
			 errmsg("the epoch of partition \"%s\" is left out", idem_key_cstring(partition->key)),
			 errdetail("The partition is in epoch \"%s\".", text_to_cstring(partition->epoch)),
			 errhint("Pass the id that the broker gave the topic, as was done before.")));
}

static bool
is_same_epoch(const text *a, const text *b)
{
	return VARSIZE_ANY_EXHDR(a) == VARSIZE_ANY_EXHDR(b) &&
		memcmp(VARDATA_ANY(a), VARDATA_ANY(b), VARSIZE_ANY_EXHDR(a)) == 0;
}

static ArrayType *
text_array(Datum *elements, int n)
{
	return construct_array(elements, n, TEXTOID, -1, false, TYPALIGN_INT);
}

/* the former epochs and the one that ends; refuses to return to one of them, or to none */
static ArrayType *
end_epoch(const Partition *partition, text *epoch)
{
	Datum	   *former;
	Datum	   *ended;
	int			n;

	deconstruct_array(partition->former_epochs, TEXTOID, -1, false, TYPALIGN_INT, &former, NULL, &n);
	for (int i = 0; i < n; i++)
		if (is_same_epoch(DatumGetTextPP(former[i]), epoch))
			refuse_former(partition, epoch);
	if (VARSIZE_ANY_EXHDR(epoch) == 0)
		refuse_left_out(partition);
	ended = palloc((n + 1) * sizeof(Datum));
	memcpy(ended, former, n * sizeof(Datum));
	ended[n++] = PointerGetDatum(partition->epoch);
	return n > FORMER_EPOCHS_MAX ? text_array(ended + 1, n - 1) : text_array(ended, n);
}

/* of another life of the topic, of which nothing was seen */
static void
begin_epoch(Partition *partition, text *epoch)
{
	int			n;
	OpenOffset *offsets = idem_partition_read(partition, 0, PG_INT64_MAX, PG_INT32_MAX, &n);

	partition->former_epochs = end_epoch(partition, epoch);
	idem_partition_remove(partition, offsets, n);
	partition->epoch = epoch;
	partition->is_placed = false;
	partition->position = partition->delivered = partition->lowest = 0;
}

static void
assign_known(Partition *partition, text *epoch)
{
	partition->generation = Max(partition->generation + 1, idem_era_floor(&partition->home));
	if (!is_same_epoch(partition->epoch, epoch))
		begin_epoch(partition, epoch);
	else if (idem_partition_committable(partition, &partition->position))
	{
		partition->lowest = partition->position;
		idem_partition_flush();
	}
	idem_partition_write(partition, false);
}

static void
assign_new(Partition *partition, text *epoch)
{
	partition->generation = idem_era_floor(&partition->home);
	partition->epoch = epoch;
	partition->former_epochs = construct_empty_array(TEXTOID);
	idem_partition_write(partition, true);
}

/*
 * A number that was handed out must not be handed out again, so the commit is
 * waited for whatever the session says.
 */
PG_FUNCTION_INFO_V1(idem_progress_assign);
Datum
idem_progress_assign(PG_FUNCTION_ARGS)
{
	const IdemKey *key;
	text	   *epoch;
	Home		home;
	Partition	partition;
	Datum		values[2];
	bool		nulls[2] = {false};

	PreventCommandIfReadOnly("idem_progress_assign()");
	key = idem_argument_key(fcinfo, 0);
	idem_home(fcinfo, &home);
	idem_access_check(&home, key, ACCESS_APPLICATION);
	epoch = epoch_argument(fcinfo, 1);
	idem_contract_current(&home, KIND_CONSUMER, key);
	idem_partition_open(&partition, &home, key, true);
	idem_partition_lock(&partition, PARTITION_LOCK_ASSIGN);
	if (idem_partition_look(&partition))
		assign_known(&partition, epoch);
	else
		assign_new(&partition, epoch);
	idem_transaction_granted_partition();
	idem_partition_close(&partition);
	values[0] = Int64GetDatum(partition.generation);
	values[1] = Int64GetDatum(partition.position);
	nulls[1] = !partition.is_placed;
	PG_RETURN_DATUM(idem_row_datum(&home, values, nulls, lengthof(values)));
}
