/*
 * inbox.c
 *		Each event once per consumer.
 *
 * An event is a fact; consuming it is recorded in the transaction that acts
 * on it, and commits with that or not at all.  The key names the consumer, so
 * one consumer's record never hides an event from another.  As with actions,
 * the unique index decides who is first, the loser waits for the winner and
 * judges the committed row, and the payload is compared before anything is
 * called a duplicate.
 *
 * A batch is judged as its events would be one after another, but written by
 * one statement in the order of the keys.
 */
#include "idem_action.h"
#include "row.h"

#include "access/table.h"
#include "catalog/pg_type.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "tcop/utility.h"
#include "utils/builtins.h"
#include "utils/tuplestore.h"

const char *const idem_consumption_names[NCONSUMPTIONS] = {
	[CONSUMED_FIRST] = "first",
	[CONSUMED_DUPLICATE] = "duplicate",
	[CONSUMED_CONFLICT] = "conflict",
	[CONSUMED_EXPIRED] = "expired"
};

typedef struct Inbox
{
	Home		home;			/* where it is */
	Relation	relation;		/* idem_event, locked until the transaction
								 * ends */
} Inbox;

/* for calls about one event */
static void
open_inbox(FunctionCallInfo fcinfo, Inbox *inbox, const IdemKey *key)
{
	idem_home(fcinfo, &inbox->home);
	idem_access_check(&inbox->home, key, ACCESS_APPLICATION);
	inbox->relation = idem_event_open(&inbox->home);
}

static void
close_inbox(Inbox *inbox)
{
	table_close(inbox->relation, NoLock);
}

/* the consumer's contract; consuming under a rebuilding one binds the transaction */
static void
set_consumer(Inbox *inbox, Question *question)
{
	question->contract = idem_contract_current(&inbox->home, KIND_CONSUMER, question->key);
	if (question->contract->is_rebuild)
		idem_transaction_rebuilds();
}

static Consumption
judge(Inbox *inbox, Question *question, const Event *event)
{
	return idem_question_is_same(&inbox->home, question, &event->fingerprint) ?
		CONSUMED_DUPLICATE : CONSUMED_CONFLICT;
}

/* ---- one event ---- */

/* settles who is first; *event is what is on record afterwards */
static Consumption
consume(Inbox *inbox, Question *question, Jsonb *transport, Event *event)
{
	int			rounds = 0;

	for (;;)
	{
		idem_look_again(&rounds);
		if (idem_event_find(inbox->relation, question->key, event))
			return judge(inbox, question, event);
		if (idem_watermark_is_passed(&inbox->home, question))
			return CONSUMED_EXPIRED;
		idem_question_record(&inbox->home, question, &event->fingerprint);
		event->transport = transport;
		if (idem_event_insert(&inbox->home, event))
		{
			idem_watermark_check_inserted(&inbox->home, question);
			return CONSUMED_FIRST;
		}
	}
}

static Datum
consumption_datum(const Inbox *inbox, const Question *question, const Event *event,
				  Consumption consumption)
{
	Datum		values[4];
	bool		nulls[4] = {false};

	values[0] = CStringGetTextDatum(idem_consumption_names[consumption]);
	row_set_pointer(values, nulls, 1,
					consumption == CONSUMED_DUPLICATE ? event->result : NULL);
	row_set_pointer(values, nulls, 2, consumption == CONSUMED_CONFLICT ?
					idem_question_differences(&inbox->home, question, &event->fingerprint) : NULL);
	row_set_pointer(values, nulls, 3,
					consumption == CONSUMED_DUPLICATE ? event->result_digest : NULL);
	return idem_row_datum(&inbox->home, values, nulls, lengthof(values));
}

static Jsonb *
payload_argument(FunctionCallInfo fcinfo, int n)
{
	idem_argument_require(fcinfo, n, "payload");
	return PG_GETARG_JSONB_P(n);
}

PG_FUNCTION_INFO_V1(idem_consume);
Datum
idem_consume(PG_FUNCTION_ARGS)
{
	Question	question = {0};
	Consumption consumption;
	Inbox		inbox;
	Event		event;

	PreventCommandIfReadOnly("idem_consume()");
	question.key = idem_argument_key(fcinfo, 0);
	question.params = payload_argument(fcinfo, 1);
	question.occurred_at = idem_argument_moment(fcinfo, 2, "occurred_at");
	open_inbox(fcinfo, &inbox, question.key);
	set_consumer(&inbox, &question);
	consumption = consume(&inbox, &question, idem_argument_document(fcinfo, 3), &event);
	idem_observe(question.contract, consumption);
	close_inbox(&inbox);
	PG_RETURN_DATUM(consumption_datum(&inbox, &question, &event, consumption));
}

/* ---- by the transaction that was first ---- */

static void
find_own(Inbox *inbox, const IdemKey *key, Event *event)
{
	if (!idem_event_find(inbox->relation, key, event))
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_UNKNOWN_ACTION),
				 errmsg("event \"%s\" is not on record", idem_key_cstring(key)),
				 errdetail("This transaction has not consumed it."),
				 errhint("Consume it first: SELECT * FROM idem_consume(key, payload);")));
	if (!event->is_own)
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_ILLEGAL_TRANSITION),
				 errmsg("event \"%s\" was consumed by another transaction", idem_key_cstring(key)),
				 errdetail("What is on record of an event is never changed once it is committed."),
				 errhint("Only the transaction that was answered first keeps a result or withdraws the record.")));
}

static void
keep_result(Inbox *inbox, const IdemKey *key, Jsonb *result)
{
	Event		event;

	find_own(inbox, key, &event);
	if (event.result == NULL)
		idem_event_set_result(&inbox->home, &event, result);
	else if (compareJsonbContainers(&event.result->root, &result->root) != 0)
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_RESULT_CONFLICT),
				 errmsg("event \"%s\" has another result already", idem_key_cstring(key)),
				 errdetail("This transaction has kept one before."),
				 errhint("Keep the result once, when it is final.")));
}

PG_FUNCTION_INFO_V1(idem_consume_result);
Datum
idem_consume_result(PG_FUNCTION_ARGS)
{
	const IdemKey *key;
	Jsonb	   *result;
	Inbox		inbox;

	PreventCommandIfReadOnly("idem_consume_result()");
	key = idem_argument_key(fcinfo, 0);
	idem_argument_require(fcinfo, 1, "result");
	result = idem_argument_document(fcinfo, 1);
	open_inbox(fcinfo, &inbox, key);
	keep_result(&inbox, key, result);
	close_inbox(&inbox);
	PG_RETURN_VOID();
}

PG_FUNCTION_INFO_V1(idem_unconsume);
Datum
idem_unconsume(PG_FUNCTION_ARGS)
{
	const IdemKey *key;
	Inbox		inbox;
	Event		event;

	PreventCommandIfReadOnly("idem_unconsume()");
	key = idem_argument_key(fcinfo, 0);
	open_inbox(fcinfo, &inbox, key);
	find_own(&inbox, key, &event);
	idem_event_delete(&inbox.home, &event);
	close_inbox(&inbox);
	PG_RETURN_VOID();
}

/* ---- many events ---- */

typedef struct BatchItem
{
	int			position;		/* in the input, from 1 */
	Question	question;		/* key and payload */
	Jsonb	   *transport;		/* or NULL */
	Event		event;			/* on record; of the first of its key only */
	struct BatchItem *leader;	/* the first of its key */
	Consumption consumption;	/* the answer */
} BatchItem;

/* the elements of an array argument; n < 0: any number */
static int
array_argument(FunctionCallInfo fcinfo, int arg, const char *name, int n,
			   int16 length, bool is_by_value, char align, Datum **values, bool **nulls)
{
	ArrayType  *array;
	int			found;

	*values = NULL;
	if (PG_ARGISNULL(arg))
		return n;
	array = PG_GETARG_ARRAYTYPE_P(arg);
	if (ARR_NDIM(array) > 1)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s must have one dimension", name)));
	deconstruct_array(array, ARR_ELEMTYPE(array), length, is_by_value, align, values, nulls, &found);
	if (n >= 0 && found != n)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s has another length than keys", name),
				 errdetail("It has %d elements, keys has %d.", found, n)));
	return found;
}

static void
refuse_null_element(const char *name, int position)
{
	ereport(ERROR,
			(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
			 errmsg("%s must not be null", name),
			 errdetail("The one at position %d is.", position)));
}

/* the events, whose tenants are the caller's; nothing has been locked or looked at yet */
static BatchItem *
batch_argument(FunctionCallInfo fcinfo, const Home *home, int *n)
{
	Datum	   *keys,
			   *payloads,
			   *moments,
			   *transports;
	bool	   *key_nulls,
			   *payload_nulls,
			   *moment_nulls,
			   *transport_nulls;
	BatchItem  *items;

	idem_argument_require(fcinfo, 0, "keys");
	idem_argument_require(fcinfo, 1, "payloads");
	*n = array_argument(fcinfo, 0, "keys", -1, -1, false, TYPALIGN_INT, &keys, &key_nulls);
	array_argument(fcinfo, 1, "payloads", *n, -1, false, TYPALIGN_INT, &payloads, &payload_nulls);
	array_argument(fcinfo, 2, "occurred_at", *n, 8, FLOAT8PASSBYVAL, TYPALIGN_DOUBLE,
				   &moments, &moment_nulls);
	array_argument(fcinfo, 3, "transport", *n, -1, false, TYPALIGN_INT,
				   &transports, &transport_nulls);

	items = palloc0(Max(*n, 1) * sizeof(BatchItem));
	for (int i = 0; i < *n; i++)
	{
		BatchItem  *item = &items[i];

		item->position = i + 1;
		if (key_nulls[i])
			refuse_null_element("key", item->position);
		if (payload_nulls[i])
			refuse_null_element("payload", item->position);
		item->question.key = (IdemKey *) DatumGetTextPP(keys[i]);
		idem_access_check(home, item->question.key, ACCESS_APPLICATION);
		item->question.params = DatumGetJsonbP(payloads[i]);
		item->question.occurred_at = moments == NULL || moment_nulls[i] ? TIME_NONE :
			idem_argument_finite(DatumGetTimestampTz(moments[i]), "occurred_at");
		item->transport = transports == NULL || transport_nulls[i] ? NULL :
			DatumGetJsonbP(transports[i]);
	}
	return items;
}

static void
set_consumers(Inbox *inbox, BatchItem *items, int n)
{
	for (int i = 0; i < n; i++)
		set_consumer(inbox, &items[i].question);
}

/* by key, and the first of a key before the others */
static int
compare_items(const void *a, const void *b)
{
	const BatchItem *one = *(BatchItem *const *) a;
	const BatchItem *two = *(BatchItem *const *) b;
	int			order = idem_key_compare(one->question.key, two->question.key);

	return order != 0 ? order : (one->position > two->position) - (one->position < two->position);
}

/*
 * Not to be put on record although it is not there?  Looked for after the
 * watermark, so that a record which a purge is just deleting is not taken for
 * one that never was.
 */
static bool
is_expired(Inbox *inbox, Watermark *watermark, BatchItem *item)
{
	Event		found;

	return idem_watermark_age(watermark, &item->question) != AGE_NEW &&
		!idem_event_find(inbox->relation, item->question.key, &found) &&
		idem_watermark_is_passed(&inbox->home, &item->question);
}

/* in the order of their keys, those that are the first of theirs; what is expired leads nobody */
static int
find_leaders(Inbox *inbox, BatchItem *items, int n, BatchItem **leaders)
{
	BatchItem **sorted = palloc(Max(n, 1) * sizeof(BatchItem *));
	Watermark	watermark;
	int			nleaders = 0;

	for (int i = 0; i < n; i++)
		sorted[i] = &items[i];
	qsort(sorted, n, sizeof(BatchItem *), compare_items);
	idem_watermark_open(&inbox->home, &watermark);
	for (int i = 0; i < n; i++)
	{
		BatchItem  *item = sorted[i];

		item->leader = item;
		if (nleaders > 0 &&
			idem_key_compare(item->question.key, leaders[nleaders - 1]->question.key) == 0)
			item->leader = leaders[nleaders - 1];
		else if (is_expired(inbox, &watermark, item))
			item->consumption = CONSUMED_EXPIRED;
		else
			leaders[nleaders++] = item;
	}
	idem_watermark_close(&watermark);
	return nleaders;
}

static void
check_inserted(Inbox *inbox, BatchItem **leaders, const bool *is_inserted, int nleaders)
{
	Watermark	watermark;

	idem_watermark_open(&inbox->home, &watermark);
	for (int i = 0; i < nleaders; i++)
		if (is_inserted[i])
			idem_watermark_check_new(&watermark, &leaders[i]->question);
	idem_watermark_close(&watermark);
}

/* writes what is new and finds the rest; whoever lost a race looks again */
static void
settle_leaders(Inbox *inbox, BatchItem **leaders, int nleaders)
{
	Event	  **events = palloc(Max(nleaders, 1) * sizeof(Event *));
	bool	   *is_inserted = palloc(Max(nleaders, 1) * sizeof(bool));
	int			rounds = 0;

	for (int i = 0; i < nleaders; i++)
	{
		leaders[i]->event.key = leaders[i]->question.key;
		leaders[i]->event.transport = leaders[i]->transport;
	}
	while (nleaders > 0)
	{
		int			nleft = 0;

		idem_look_again(&rounds);
		for (int i = 0; i < nleaders; i++)
		{
			events[i] = &leaders[i]->event;
			idem_question_record(&inbox->home, &leaders[i]->question, &events[i]->fingerprint);
		}
		idem_event_insert_batch(inbox->relation, events, nleaders, is_inserted);
		check_inserted(inbox, leaders, is_inserted, nleaders);
		for (int i = 0; i < nleaders; i++)
		{
			Event		found;

			leaders[i]->consumption = CONSUMED_FIRST;
			if (is_inserted[i])
				continue;
			if (idem_event_find(inbox->relation, events[i]->key, &found))
			{
				leaders[i]->event = found;
				leaders[i]->consumption = judge(inbox, &leaders[i]->question, &found);
			}
			else
				leaders[nleft++] = leaders[i];
		}
		nleaders = nleft;
	}
}

static void
put_items(ReturnSetInfo *rsinfo, const BatchItem *items, int n)
{
	for (int i = 0; i < n; i++)
	{
		const BatchItem *item = &items[i];
		const Event *event = &item->leader->event;
		Datum		values[6];
		bool		nulls[6] = {false};

		idem_observe(item->question.contract, item->consumption);
		values[0] = Int32GetDatum(item->position);
		values[1] = PointerGetDatum(item->question.key);
		values[2] = JsonbPGetDatum(item->question.params);
		values[3] = CStringGetTextDatum(idem_consumption_names[item->consumption]);
		row_set_pointer(values, nulls, 4,
						item->consumption == CONSUMED_DUPLICATE ? event->result : NULL);
		row_set_pointer(values, nulls, 5,
						item->consumption == CONSUMED_DUPLICATE ? event->result_digest : NULL);
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
}

PG_FUNCTION_INFO_V1(idem_consume_batch);
Datum
idem_consume_batch(PG_FUNCTION_ARGS)
{
	Inbox		inbox;
	BatchItem  *items;
	BatchItem **leaders;
	int			n;

	PreventCommandIfReadOnly("idem_consume_batch()");
	InitMaterializedSRF(fcinfo, 0);
	idem_home(fcinfo, &inbox.home);
	items = batch_argument(fcinfo, &inbox.home, &n);
	inbox.relation = idem_event_open(&inbox.home);
	set_consumers(&inbox, items, n);
	leaders = palloc(Max(n, 1) * sizeof(BatchItem *));
	settle_leaders(&inbox, leaders, find_leaders(&inbox, items, n, leaders));
	for (int i = 0; i < n; i++)
		if (items[i].leader != &items[i])
			items[i].consumption = judge(&inbox, &items[i].question, &items[i].leader->event);
	put_items((ReturnSetInfo *) fcinfo->resultinfo, items, n);
	close_inbox(&inbox);
	return (Datum) 0;
}
