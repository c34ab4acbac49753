/*
 * idem_action.h
 *		What the rooms of idem_action show each other.
 *
 * Prototypes stand under the file that defines them.  A room includes this
 * header and nothing else of ours; arrows between rooms point down only:
 *
 *		key, canonical -> digest		pure values, no tables (canonical.h)
 *		state							pure rules (state.h), no SQL, no clock
 *		argument, statement				reading arguments, running kept plans
 *		access, grant					who may speak of which tenant
 *		observe							counters in shared memory
 *		era, contract, define			each its own table
 *		store							the only one that touches the action tables
 *		evidence						what happened to each action
 *		loss							what may have been executed and forgotten
 *		transaction						what this transaction holds open
 *		verdict							the answer as a row
 *		action, owner, once, dispatch	parse arguments, ask state, tell store
 *		witness							what others know of an action
 *
 * Modules are loaded RTLD_GLOBAL, so whatever is not static is prefixed
 * idem_.
 */
#ifndef IDEM_ACTION_H
#define IDEM_ACTION_H

#include "postgres.h"

#include "access/htup.h"
#include "datatype/timestamp.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "nodes/lockoptions.h"
#include "nodes/pg_list.h"
#include "port/atomics.h"
#include "storage/block.h"
#include "storage/itemptr.h"
#include "storage/lockdefs.h"
#include "utils/array.h"
#include "utils/jsonb.h"
#include "utils/relcache.h"
#include "utils/snapshot.h"

#include "compat.h"
#include "errors.h"
#include "state.h"

/* ---- key.c: the identity of an action ---- */

typedef struct varlena IdemKey; /* laid out as text: "tenant/operation/id" */

#define IDEM_KEY_MAX_BYTES 512

#define DatumGetIdemKeyPP(datum)	((IdemKey *) PG_DETOAST_DATUM_PACKED(datum))
#define PG_GETARG_IDEM_KEY_PP(n)	DatumGetIdemKeyPP(PG_GETARG_DATUM(n))

typedef struct KeyPart
{
	const char *bytes;			/* points into the key, not terminated */
	int			length;			/* bytes */
} KeyPart;

typedef struct KeyParts
{
	KeyPart		tenant;			/* before the first slash */
	KeyPart		operation;		/* up to the second */
	KeyPart		id;				/* the rest, slashes included */
} KeyParts;

/* the parts of a valid key; the key must stay where it is meanwhile */
extern void idem_key_split(const IdemKey *key, KeyParts *parts);
extern bool idem_key_part_is(const KeyPart *part, const text *name);

/* a name as it may stand in the middle of a key; raises 22023 if it may not */
extern void idem_key_check_name(const char *bytes, int length, const char *what);

/* ---- key_order.c: order, equality and hash of keys ---- */

extern int	idem_key_compare(const IdemKey *left, const IdemKey *right);
extern Datum idem_key_eq(PG_FUNCTION_ARGS);

/* ---- pointer.c: which parameters count (the rest is in canonical.h) ---- */

typedef struct PointerToken
{
	const char *name;			/* unescaped, as a jsonb holds names */
	uint32		length;
	const char *utf8;			/* the same in UTF-8 */
	uint32		utf8_length;
	int64		index;			/* the array element it names, or -1 */
} PointerToken;

typedef struct JsonPointer
{
	char	   *text;			/* as written, e.g. "/order/amount" */
	const char *utf8;			/* the same in UTF-8 */
	uint32		utf8_length;
	int			ntokens;		/* 0: the whole document */
	PointerToken *tokens;
} JsonPointer;

typedef struct DigestRule
{
	bool		include;		/* pointers name what counts, else what does
								 * not */
	int			npointers;		/* 0: everything counts */
	JsonPointer *pointers;		/* in the order of the contract */
} DigestRule;

/*
 * The rule of digest_include and digest_exclude, each a text[] or NULL.
 * Raises 22023 for what cannot be a rule and 22004 for a NULL element;
 * allocates in the current context.
 */
extern void idem_digest_rule(ArrayType *include, ArrayType *exclude, DigestRule *rule);

/* ---- digest.c: what counts, as 33 bytes ---- */

#define IDEM_DIGEST_VERSION 1

typedef struct Digest
{
	uint8		version;		/* rule that made it: IDEM_DIGEST_VERSION */
	uint8		hash[32];		/* SHA-256 of the canonical text in UTF-8 */
} Digest;

#define DatumGetDigestP(datum)	((Digest *) DatumGetPointer(datum))
#define DigestPGetDatum(digest)	PointerGetDatum(digest)

/* its text form, as a statement takes it */
extern Datum idem_digest_text(const Digest *digest);

/*
 * The digest of the parameters under a rule.  Returns NULL when it was made,
 * else the first included pointer that the parameters do not have.
 */
extern const char *idem_digest_params(Jsonb *params, const DigestRule *rule,
									  Digest *digest);

/* refuses a document that has no digest */
extern void idem_digest_check(Jsonb *document);

/* is this the document whose digest was kept? */
extern bool idem_digest_is_of(const Digest *digest, Jsonb *document);

/* ---- difference.c: where two documents differ ---- */

#define IDEM_MAX_DIFFERENCES 16

/*
 * The pointers, never values, at which two documents differ under a rule, as
 * text[] in canonical order; the first IDEM_MAX_DIFFERENCES of them.
 */
extern ArrayType *idem_digest_differences(Jsonb *stored, Jsonb *given,
										  const DigestRule *rule);

/* ---- argument.c: reading what callers hand over ---- */

extern void idem_argument_require(FunctionCallInfo fcinfo, int n, const char *name);
extern IdemKey *idem_argument_key(FunctionCallInfo fcinfo, int n);
extern Jsonb *idem_argument_params(FunctionCallInfo fcinfo, int n);
extern Jsonb *idem_argument_document(FunctionCallInfo fcinfo, int n);
extern const char *idem_argument_fault(const char *bytes, int length);
extern int64 idem_argument_generation(FunctionCallInfo fcinfo, int n);
extern text *idem_argument_label(FunctionCallInfo fcinfo, int n, const char *name);
extern text *idem_argument_name(FunctionCallInfo fcinfo, int n, const char *what);
extern text *idem_argument_note(FunctionCallInfo fcinfo, int n);
extern TimestampTz idem_argument_finite(TimestampTz moment, const char *name);
extern TimestampTz idem_argument_moment(FunctionCallInfo fcinfo, int n, const char *name);
extern int64 idem_argument_interval(FunctionCallInfo fcinfo, int n, const char *name,
									int64 min, int64 max, const char *bounds,
									int64 missing);
extern int64 idem_argument_lease(FunctionCallInfo fcinfo, int n, int64 missing);
extern int64 idem_argument_retry_after(FunctionCallInfo fcinfo, int n, int64 missing);
extern int32 idem_argument_max_rows(FunctionCallInfo fcinfo, int n, int32 bound);
extern int64 idem_interval_usecs(const Interval *interval);

/* ---- statement.c: kept plans, run as the owner ---- */

typedef struct Home
{
	Oid			schema;			/* where the extension lives */
	Oid			owner;			/* on whose behalf its statements run */
	Oid			rettype;		/* what the function being called returns */
} Home;

#define STATEMENT_MAX_ARGS 19

typedef struct Statement
{
	const char *text;			/* %1$s stands for the schema */
	int			nargs;			/* of the statement */
	Oid			argtypes[STATEMENT_MAX_ARGS];	/* built-in types only */
	int			expected;		/* SPI's result code */
	SPIPlanPtr	plan;			/* kept, once it was made */
	char	   *schema;			/* name for which it was made */
} Statement;

typedef void (*StatementReader) (SPITupleTable *table, uint64 rows, void *target);

extern void idem_home(FunctionCallInfo fcinfo, Home *home);
extern Oid	idem_home_relation(const Home *home, const char *name);
extern uint64 idem_statement_run(Statement *statement, const Home *home, Datum *values,
								 const bool *nulls, Snapshot snapshot,
								 StatementReader read, void *target);

/* ---- access.c: who may speak of which tenant ---- */

#define ACCESS_APPLICATION	1
#define ACCESS_OPERATOR		2
#define ACCESS_MONITOR		4
#define ACCESS_ANY			7

#define ACCESS_EVERY_TENANT	"*"

typedef struct AccessKind
{
	const char *name;			/* as SQL says it; NULL ends the list */
	int			kind;			/* one of the bits above */
} AccessKind;

extern const AccessKind idem_access_kinds[];

extern int	idem_access_kind(const char *name);
extern void idem_access_check(const Home *home, const IdemKey *key, int kinds);
extern void idem_access_check_tenant(const Home *home, const char *tenant, int length, int kinds);
extern void idem_access_check_all(const Home *home, int kinds);
extern ArrayType *idem_access_tenants(const Home *home, int kinds);

/* ---- era.c: the upper half of every generation ---- */

extern int64 idem_era_floor(const Home *home);
extern void idem_era_raise(const Home *home);

/* ---- contract.c: what an operation promises ---- */

typedef enum ContractKind
{
	KIND_OPERATION,				/* of actions */
	KIND_CONSUMER				/* of events */
} ContractKind;

typedef struct Contract
{
	ContractKind kind;			/* operations and consumers have names of
								 * their own */
	char	   *name;			/* of the operation or consumer */
	int32		revision;		/* 1 or more */
	bool		is_local;		/* effect */
	char	   *channel;		/* name of the external system */
	int64		lease;			/* microseconds, as all times here */
	DigestRule	rule;			/* which parameters count */
	Promise		promise;		/* of the channel */
	int32		max_attempts;	/* then it goes to review */
	int64		backoff_base;	/* first step */
	int64		backoff_max;	/* last step */
	bool		keep_params;	/* store the parameters */
	bool		is_rebuild;		/* of a consumer that must start no side
								 * effect */
	int64		retention;		/* of identity; 0: for ever */
	int64		result_retention;	/* of results and payloads; likewise */
	pg_atomic_uint64 *counters; /* in shared memory: see observe.c */
} Contract;

extern const char *const idem_contract_tables[];

extern const Contract *idem_contract_find(const Home *home, ContractKind kind,
										  const char *name, int length);
extern const Contract *idem_contract_named(const Home *home, ContractKind kind,
										   const char *name, int length);
extern const Contract *idem_contract_current(const Home *home, ContractKind kind,
											 const IdemKey *key);
extern const Contract *idem_contract_revision(const Home *home, const Contract *current,
											  int32 revision);

/* ---- observe.c: what happened, counted whatever becomes of the transaction ---- */

/* counters of an operation: its outcomes as they are numbered, then these */
typedef enum Counter
{
	COUNTER_STALE = NOUTCOMES,	/* reports refused with ID002 */
	COUNTER_ILLEGAL,			/* likewise with ID003 */
	COUNTER_RESULT_CONFLICT,	/* likewise with ID004 */
	COUNTER_TAKEOVER,			/* grants of an action whose lease had lapsed */
	NCOUNTERS
} Counter;

extern pg_atomic_uint64 *idem_observe_counters(ContractKind kind, const char *name, int length);

/* one more of an Outcome or a Counter; of a consumer, of a Consumption */
static inline void
idem_observe(const Contract *contract, int counter)
{
	pg_atomic_fetch_add_u64(&contract->counters[counter], 1);
}

/* how long what is of a name is kept */
typedef struct Retention
{
	text	   *name;			/* of the operation or consumer */
	int64		retention;		/* of identity; 0: for ever */
	int64		result_retention;	/* of results and payloads; likewise */
} Retention;

extern int	idem_contract_retentions(const Home *home, ContractKind kind, const text *name,
									 Retention **retentions);

/* ---- question.c: same key, same parameters? ---- */

typedef struct Question
{
	const IdemKey *key;
	Jsonb	   *params;			/* NULL: by key alone */
	TimestampTz occurred_at;	/* or TIME_NONE */
	const Contract *contract;	/* in force */
	int32		revision;		/* of what follows; 0: nothing yet */
	const char *missing;		/* an included pointer that is absent, or NULL */
	Digest		digest;			/* of the parameters */
} Question;

/* what a record keeps of the first question */
typedef struct Fingerprint
{
	int32		revision;		/* of the contract it was digested under */
	bool		has_digest;		/* a tombstone has none and equals everything */
	Digest		digest;			/* of the parameters */
	Jsonb	   *params;			/* or NULL: not kept */
	TimestampTz occurred_at;	/* or TIME_NONE: not said */
} Fingerprint;

extern bool idem_question_is_same(const Home *home, Question *question,
								  const Fingerprint *recorded);
extern ArrayType *idem_question_differences(const Home *home, const Question *question,
											const Fingerprint *recorded);
extern void idem_question_record(const Home *home, Question *question, Fingerprint *recorded);
extern void idem_question_refuse_undated(const Question *question);

/* ---- look.c: finding a row of ours by its key ---- */

typedef enum StoreResult
{
	STORE_DONE,					/* written, or locked */
	STORE_CHANGED,				/* somebody was faster: look again */
	STORE_HELD					/* another transaction holds the key (nowait) */
} StoreResult;

extern Relation idem_look_open(const Home *home, const char *name, int ncolumns, LOCKMODE lock);
extern void idem_look_values(Relation relation, HeapTuple tuple, Datum **values, bool **nulls);
extern HeapTuple idem_look(Relation relation, const IdemKey *key, bool *is_own);
extern StoreResult idem_look_lock(Relation relation, ItemPointerData tid, LockTupleMode mode,
								  bool nowait);
extern void idem_look_refuse_newer(void);
extern void idem_look_again(int *rounds);

/* ---- watermark.c: up to when identity was deleted ---- */

typedef enum Age
{
	AGE_NEW,					/* it cannot have been on record and deleted */
	AGE_EXPIRED,				/* it can */
	AGE_UNDATED					/* nobody said when it occurred */
} Age;

typedef struct Watermark
{
	Relation	relation;		/* idem_watermark; NULL: empty */
	IdemKey    *key;			/* of the last look; NULL: none yet */
	bool		is_found;		/* it found a row */
	TimestampTz until;			/* and what that says */
} Watermark;

extern void idem_watermark_open(const Home *home, Watermark *watermark);
extern void idem_watermark_close(Watermark *watermark);
extern Age	idem_watermark_age(Watermark *watermark, const Question *question);
extern void idem_watermark_check_new(Watermark *watermark, const Question *question);
extern bool idem_watermark_is_passed(const Home *home, const Question *question);
extern void idem_watermark_check_inserted(const Home *home, const Question *question);
extern bool idem_watermark_has_operation(const Home *home, const char *operation);
extern void idem_watermark_raise(const Home *home, ContractKind kind, const KeyParts *parts,
								 TimestampTz until);

/* ---- store.c: the permanent record and what is in flight ---- */

typedef struct Store
{
	Home		home;			/* schema and owner */
	Relation	action;			/* idem_action, locked until the transaction
								 * ends */
	Relation	lease;			/* idem_lease, likewise; NULL until it is
								 * needed */
	LOCKMODE	lock;			/* on both */
	bool		nowait;			/* do not wait for other transactions */
} Store;

typedef struct Action
{
	const IdemKey *key;			/* as asked for */
	History		history;		/* what the rules look at */
	Fingerprint fingerprint;	/* of the parameters */
	TimestampTz created_at;		/* database's clock */
	TimestampTz updated_at;		/* of the newest move */
	Jsonb	   *result;			/* or NULL, as the following */
	Jsonb	   *error;
	text	   *channel_ref;
	const Digest *result_digest;	/* of the result or error, once it was
									 * dropped */
	text	   *owner;			/* of the newest grant; in flight only */
	int32		first_revision; /* of the contract at the first acting grant,
								 * or 0 */
	bool		is_own;			/* written by this transaction */
	bool		has_lease;		/* there is a row of idem_lease */
	ItemPointerData tid;		/* of the row that was found */
	ItemPointerData lease_tid;	/* likewise */
} Action;

extern void idem_store_open(Store *store, const Home *home, bool is_writer);
extern void idem_store_close(Store *store);
extern bool idem_store_find(Store *store, const IdemKey *key, Action *action);
extern StoreResult idem_store_insert(Store *store, Action *action);
extern StoreResult idem_store_lock(Store *store, const Action *action);
extern StoreResult idem_store_keep(Store *store, const Action *action);
extern StoreResult idem_store_update(Store *store, const Action *old, const Action *action);
extern void idem_store_update_lease(Store *store, const Action *action);
extern void idem_store_lock_writers(const Home *home);
extern bool idem_store_has_operation(const Home *home, const char *operation);
extern List *idem_store_in_flight(const Home *home);
extern Relation idem_store_lease(Store *store);

/* ---- due.c: what is due ---- */

typedef struct Due Due;

extern Due *idem_due_begin(Store *store, text *operation, TimestampTz now);
extern const IdemKey *idem_due_next(Due *due);
extern StoreResult idem_due_lock(Due *due);
extern void idem_due_end(Due *due);

/* ---- loss.c: commits that were lost ---- */

extern void idem_loss_doubt_new(const Home *home, const Contract *contract, Action *action);

/* ---- event.c: what was consumed ---- */

typedef struct Event
{
	const IdemKey *key;			/* as asked for */
	Fingerprint fingerprint;	/* of the payload */
	Jsonb	   *result;			/* or NULL, as the following */
	Jsonb	   *transport;
	const Digest *result_digest;	/* of the result, once it was dropped */
	bool		is_own;			/* written by this transaction */
	ItemPointerData tid;		/* of the row that was found */
} Event;

extern Relation idem_event_open(const Home *home);
extern bool idem_event_find(Relation relation, const IdemKey *key, Event *event);
extern bool idem_event_insert(const Home *home, const Event *event);
extern void idem_event_insert_batch(Relation relation, Event *const *events, int n,
									bool *is_inserted);
extern void idem_event_set_result(const Home *home, const Event *event, Jsonb *result);
extern void idem_event_delete(const Home *home, const Event *event);

/* ---- evidence.c: what happened to each action ---- */

typedef struct Evidence
{
	const IdemKey *key;
	const char *call;			/* what caused it */
	const char *outcome;		/* of a grant, or NULL */
	State		state;			/* afterwards, as the following */
	int64		generation;
	int32		attempt;
	TimestampTz recorded_at;	/* database's clock */
	TimestampTz lease_until;	/* or TIME_NONE */
	const text *worker;			/* or NULL, as the following */
	Jsonb	   *detail;
	const text *channel_ref;
	const Digest *digest;		/* of parameters that were refused */
	Jsonb	   *transport;
	const text *note;
} Evidence;

extern void idem_evidence_settings(void);
extern text *idem_evidence_batch(void);
extern void idem_evidence_write(const Home *home, const Evidence *evidence);
extern void idem_evidence_conflict(const Home *home, const Evidence *evidence);
extern uint64 idem_evidence_delete(const Home *home, Datum keys);

/* ---- inbox.c: what became of an event ---- */

typedef enum Consumption
{
	CONSUMED_FIRST,
	CONSUMED_DUPLICATE,
	CONSUMED_CONFLICT,
	CONSUMED_EXPIRED
} Consumption;

#define NCONSUMPTIONS (CONSUMED_EXPIRED + 1)

extern const char *const idem_consumption_names[NCONSUMPTIONS];

/* ---- sweep.c: taking out what is old ---- */

typedef struct Sweep
{
	ContractKind kind;			/* actions or events */
	BlockNumber from;			/* the first block */
	BlockNumber until;			/* the one after the last */
	ArrayType  *names;			/* text[]: of operations or consumers */
	ArrayType  *cutoffs;		/* timestamptz[]: of each */
	int64		limit;			/* rows at the most */
} Sweep;

typedef struct Swept
{
	MemoryContext context;		/* of the keys */
	uint64		rows;			/* how many were deleted */
	Datum	   *keys;			/* theirs */
} Swept;

extern BlockNumber idem_sweep_open(const Home *home, ContractKind kind);
extern void idem_sweep_delete(const Home *home, const Sweep *sweep, Swept *swept);
extern uint64 idem_sweep_drop(const Home *home, const Sweep *sweep);

/* ---- transaction.c: what this transaction holds open ---- */

extern void idem_transaction_granted(const IdemKey *key, int64 generation,
									 TimestampTz lease_until, bool is_local);
extern void idem_transaction_closed(const IdemKey *key);
extern bool idem_transaction_holds(const IdemKey *key, int64 generation);
extern void idem_transaction_calling(const IdemKey *key);
extern bool idem_transaction_is_calling(const IdemKey *key);
extern void idem_transaction_wrote_external(void);
extern void idem_transaction_granted_partition(void);
extern void idem_transaction_check_start(void);
extern void idem_transaction_started(void);
extern void idem_transaction_rebuilds(void);

/* ---- verdict.c: the answer to whoever asks to act ---- */

typedef struct Verdict
{
	Outcome		outcome;
	int64		generation;		/* 0: nothing was granted */
	State		state;			/* on record now; STATE_NONE: null */
	int32		attempt;		/* grants so far */
	Jsonb	   *result;			/* or NULL, as the following */
	Jsonb	   *error;
	Jsonb	   *params;
	const char *channel;
	text	   *channel_ref;
	ArrayType  *differs;
	const Digest *result_digest;
	TimestampTz retry_at;		/* or TIME_NONE, as the following */
	TimestampTz lease_until;
	TimestampTz absence_conclusive_at;
} Verdict;

#define VERDICT_COLUMNS 14

extern void idem_verdict_values(const Verdict *verdict, Datum *values, bool *nulls);
extern Datum idem_verdict_datum(const Home *home, const Verdict *verdict);

/* ---- action.c: asking to act ---- */

extern bool idem_action_find(Store *store, const Contract *contract, const IdemKey *key,
							 Action *action);
extern void idem_action_birth(Store *store, Question *question, Action *action);
extern void idem_action_bind(Store *store, const Contract *contract, Action *action);
extern void idem_action_raise(Store *store, Action *action);
extern Promise idem_action_promise(Store *store, const Contract *contract, const Action *action);
extern void idem_action_refuse_no_params(const Contract *contract);
extern void idem_action_refuse_own(const IdemKey *key);
extern void idem_action_refuse_unknown(const IdemKey *key);
extern void idem_action_witness(Store *store, const Action *action, const char *call,
								Evidence *evidence);
extern void idem_action_refuse_local(const Contract *contract, const char *call);
extern char *idem_key_cstring(const IdemKey *key);

/* claims an action on record by its key alone, where that changes anything */
extern bool idem_action_take(Store *store, const Contract *contract, const IdemKey *key,
							 text *owner, int64 lease, Verdict *verdict);

/* the rest of a verdict, from what is on record now */
extern void idem_action_answer(Store *store, const Contract *contract, const Action *action,
							   const Judgement *judgement, Verdict *verdict);

/* ---- owner.c: what the owner of a generation reports ---- */

extern void idem_owner_complete(Store *store, const Contract *contract, const IdemKey *key,
								int64 generation, Jsonb *result);

/* ---- partition.c: the record of how far a consumer has come in a partition ---- */

typedef struct Partition
{
	Home		home;			/* where it is */
	Relation	relation;		/* idem_progress, locked until the transaction
								 * ends */
	Relation	offsets;		/* idem_progress_offset, likewise */
	const IdemKey *key;			/* tenant/consumer/topic/partition */
	int64		generation;		/* of the newest owner */
	text	   *epoch;			/* life of the topic */
	ArrayType  *former_epochs;	/* text[], the oldest first */
	bool		is_placed;		/* there is a position */
	int64		position;		/* the owner was delivered what is below */
	int64		delivered;		/* somebody was; no lower than position */
	int64		lowest;			/* no offset below is open */
	ItemPointerData tid;		/* of the row that was found */
} Partition;

/* modes of its lock */
#define PARTITION_LOCK_WORK		RowExclusiveLock	/* shared by workers, and
													 * by one who fetches */
#define PARTITION_LOCK_FETCH	ShareUpdateExclusiveLock	/* who fetches */
#define PARTITION_LOCK_ASSIGN	ExclusiveLock	/* shared with nobody */

typedef struct OpenOffset
{
	int64		offset;			/* in the partition */
	ItemPointerData tid;		/* of its row */
} OpenOffset;

extern void idem_partition_open(Partition *partition, const Home *home, const IdemKey *key,
								bool is_writer);
extern void idem_partition_close(Partition *partition);
extern void idem_partition_lock(const Partition *partition, LOCKMODE mode);
extern bool idem_partition_look(Partition *partition);
extern bool idem_partition_find(Partition *partition);
extern OpenOffset *idem_partition_read(const Partition *partition, int64 from, int64 until,
									   int max, int *n);
extern bool idem_partition_committable(const Partition *partition, int64 *next_offset);
extern void idem_partition_flush(void);
extern void idem_partition_write(const Partition *partition, bool is_new);
extern void idem_partition_add(const Partition *partition, const int64 *offsets, int n);
extern int64 idem_partition_remove(const Partition *partition, OpenOffset *offsets, int n);

#endif							/* IDEM_ACTION_H */
