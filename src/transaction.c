/*
 * transaction.c
 *		What the current transaction holds open, and what it owes at its end.
 *
 *	- A local claim must be completed or rejected before the transaction
 *	  commits or is prepared.
 *	- A grant of an external action may be acted on only after the commit, so
 *	  its owner cannot report in the same transaction; a grant whose lease
 *	  has passed when the commit begins must not become one.
 *	- A transaction that consumed an event under a rebuilding consumer replays
 *	  what happened before, so it can start no side effect, in either order.
 *	- A transaction that wrote an external action waits for its commit record
 *	  whatever synchronous_commit says, since a channel is called on the
 *	  strength of it; and it cannot be prepared, since nobody could tell when
 *	  the grant begins.  One that granted a partition waits likewise, since a
 *	  crash that forgets the generation would have it granted twice.
 *
 * Each entry remembers the subtransaction that claimed and the one that
 * closed, so that rolling back to a savepoint withdraws claims made in it
 * and reopens claims closed in it.  A local claim closed by the very
 * subtransaction that made it needs no entry any more, so a transaction that
 * claims and completes a million actions holds none.
 *
 * Memory: TopTransactionContext; everything is forgotten at the end.
 */
#include "idem_action.h"

#include "access/xact.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

typedef struct Claim
{
	IdemKey    *key;			/* a copy; NULL: a hole */
	int64		generation;		/* that was granted */
	TimestampTz lease_until;	/* of an external grant */
	bool		is_local;		/* must be closed before commit */
	bool		is_call;		/* idem_call() will close it, nobody else */
	SubTransactionId claimed_in;	/* who granted it */
	SubTransactionId closed_in; /* who closed it, or invalid: open */
} Claim;

static Claim *claims = NULL;	/* what this transaction was granted */
static int	nclaims = 0;		/* how many of them are in use */
static int	maxclaims = 0;		/* how many there is room for */
static int	searched = 0;		/* where the last search ended */

/* what the transaction did, each with the subtransaction that did it first, or invalid */
typedef enum Mark
{
	MARK_EXTERNAL,				/* wrote an external action */
	MARK_PARTITION,				/* granted a partition of a log */
	MARK_REBUILD,				/* consumed under a rebuilding consumer */
	MARK_STARTED,				/* started a side effect */
	NMARKS
} Mark;

static SubTransactionId marked_in[NMARKS];

static bool
is_open(const Claim *claim)
{
	return claim->key != NULL && claim->closed_in == InvalidSubTransactionId;
}

static bool
is_of(const Claim *claim, const IdemKey *key)
{
	return claim->key != NULL && VARSIZE_ANY_EXHDR(claim->key) == VARSIZE_ANY_EXHDR(key) &&
		idem_key_compare(claim->key, key) == 0;
}

/*
 * The claim of a key that is open, of which there is one at the most; or, if
 * a generation is given, the one that granted it.  The last claim is looked
 * at first, then from where the search before ended: so that claims that are
 * closed in the order in which they were made, or in the opposite one, take
 * no time.
 */
static Claim *
find_claim(const IdemKey *key, int64 generation)
{
	for (int n = 0; n <= nclaims; n++)
	{
		int			i = n == 0 ? nclaims - 1 : (searched + n - 1) % nclaims;

		if (i < 0)
			return NULL;
		if (!is_of(&claims[i], key) ||
			!(generation == 0 ? is_open(&claims[i]) : claims[i].generation == generation))
			continue;
		searched = i;
		return &claims[i];
	}
	return NULL;
}

/* leaves a hole, unless it is at the end */
static void
remove_claim(Claim *claim)
{
	pfree(claim->key);
	claim->key = NULL;
	while (nclaims > 0 && claims[nclaims - 1].key == NULL)
		nclaims--;
}

static bool
is_marked(Mark mark)
{
	return marked_in[mark] != InvalidSubTransactionId;
}

static const Claim *
find_open_local(void)
{
	for (int i = 0; i < nclaims; i++)
		if (claims[i].is_local && is_open(&claims[i]))
			return &claims[i];
	return NULL;
}

static char *
claim_key(const Claim *claim)
{
	return pnstrdup(VARDATA_ANY(claim->key), VARSIZE_ANY_EXHDR(claim->key));
}

static void
check_local_claims(void)
{
	const Claim *claim = find_open_local();

	if (claim != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_OPEN_LOCAL_CLAIM),
				 errmsg("local action \"%s\" is claimed but not completed", claim_key(claim)),
				 errdetail("A local action is claimed and completed in one transaction; this one is about to end."),
				 errhint("Call idem_complete(key, generation) or idem_reject(key, generation) between BEGIN and COMMIT, or idem_once() or idem_call() which do both at once. "
						 "If a channel is called between two transactions, define the operation with effect => 'external'.")));
}

static void
check_external_grants(void)
{
	TimestampTz now = GetCurrentTimestamp();

	for (int i = 0; i < nclaims; i++)
		if (!claims[i].is_local && is_open(&claims[i]) &&
			claims[i].lease_until <= now)
			ereport(ERROR,
					(errcode(ERRCODE_IDEM_STALE_GENERATION),
					 errmsg("the lease of action \"%s\" ended before its grant was committed",
							claim_key(&claims[i])),
					 errdetail("Somebody else may be granted it by now."),
					 errhint("Claim again, and commit at once, or ask for a longer lease.")));
}

static void
check_prepare(void)
{
	check_local_claims();
	if (is_marked(MARK_EXTERNAL))
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_ILLEGAL_TRANSITION),
				 errmsg("cannot prepare a transaction that wrote an external action"),
				 errdetail("A grant counts from its commit, and nobody could tell when that will be."),
				 errhint("Commit the transaction instead.")));
}

/* the commit record reaches the disk, and a synchronous standby, before COMMIT answers */
static void
wait_for_commit(void)
{
	if ((is_marked(MARK_EXTERNAL) || is_marked(MARK_PARTITION)) &&
		synchronous_commit < SYNCHRONOUS_COMMIT_ON)
		set_config_option("synchronous_commit", "on", PGC_USERSET, PGC_S_SESSION,
						  GUC_ACTION_LOCAL, true, 0, false);
}

static void
at_transaction(XactEvent event, void *arg)
{
	switch (event)
	{
		case XACT_EVENT_PRE_COMMIT:
			check_local_claims();
			check_external_grants();
			wait_for_commit();
			break;
		case XACT_EVENT_PRE_PREPARE:
			check_prepare();
			break;
		case XACT_EVENT_COMMIT:
		case XACT_EVENT_ABORT:
		case XACT_EVENT_PREPARE:
			claims = NULL;
			nclaims = maxclaims = searched = 0;
			memset(marked_in, 0, sizeof(marked_in));
			break;
		default:
			break;
	}
}

static void
hand_to_parent(SubTransactionId self, SubTransactionId parent)
{
	for (int i = 0; i < nclaims; i++)
	{
		if (claims[i].claimed_in == self)
			claims[i].claimed_in = parent;
		if (claims[i].closed_in == self)
			claims[i].closed_in = parent;
	}
	for (int i = 0; i < NMARKS; i++)
		if (marked_in[i] == self)
			marked_in[i] = parent;
}

static void
withdraw(SubTransactionId self)
{
	for (int i = nclaims - 1; i >= 0; i--)
	{
		if (claims[i].closed_in == self)
			claims[i].closed_in = InvalidSubTransactionId;
		if (claims[i].key != NULL && claims[i].claimed_in == self)
			remove_claim(&claims[i]);
	}
	for (int i = 0; i < NMARKS; i++)
		if (marked_in[i] == self)
			marked_in[i] = InvalidSubTransactionId;
}

static void
at_subtransaction(SubXactEvent event, SubTransactionId self, SubTransactionId parent, void *arg)
{
	if (event == SUBXACT_EVENT_COMMIT_SUB)
		hand_to_parent(self, parent);
	else if (event == SUBXACT_EVENT_ABORT_SUB)
		withdraw(self);
}

static void
register_callbacks(void)
{
	static bool is_registered = false;	/* once a backend */

	if (is_registered)
		return;
	RegisterXactCallback(at_transaction, NULL);
	RegisterSubXactCallback(at_subtransaction, NULL);
	is_registered = true;
}

static void
reserve_claim(void)
{
	if (nclaims < maxclaims)
		return;
	if (claims == NULL)
	{
		maxclaims = 16;
		claims = MemoryContextAlloc(TopTransactionContext, maxclaims * sizeof(Claim));
		return;
	}
	claims = repalloc_huge(claims, 2 * (Size) maxclaims * sizeof(Claim));
	maxclaims *= 2;
}

void
idem_transaction_granted(const IdemKey *key, int64 generation, TimestampTz lease_until,
						 bool is_local)
{
	Size		size = VARSIZE_ANY(key);
	Claim	   *claim;

	register_callbacks();
	reserve_claim();
	claim = &claims[nclaims];
	claim->key = MemoryContextAlloc(TopTransactionContext, size);
	memcpy(claim->key, key, size);
	claim->generation = generation;
	claim->lease_until = lease_until;
	claim->is_local = is_local;
	claim->is_call = false;
	claim->claimed_in = GetCurrentSubTransactionId();
	claim->closed_in = InvalidSubTransactionId;
	nclaims++;
}

/*
 * The grant of the key, if this transaction made it, is owed nothing any
 * more.  That an external one was made here is still to be known: its owner
 * cannot report success before the commit, whatever else he said.
 */
void
idem_transaction_closed(const IdemKey *key)
{
	Claim	   *claim = find_claim(key, 0);

	if (claim == NULL)
		return;
	if (claim->is_local && claim->claimed_in == GetCurrentSubTransactionId())
		remove_claim(claim);
	else
		claim->closed_in = GetCurrentSubTransactionId();
}

/* was this generation granted by the current transaction? */
bool
idem_transaction_holds(const IdemKey *key, int64 generation)
{
	return find_claim(key, generation) != NULL;
}

/* the claim just made belongs to idem_call() */
void
idem_transaction_calling(const IdemKey *key)
{
	find_claim(key, 0)->is_call = true;
}

bool
idem_transaction_is_calling(const IdemKey *key)
{
	const Claim *claim = find_claim(key, 0);

	return claim != NULL && claim->is_call;
}

/* a subtransaction inside the one that is marked already changes nothing */
static void
set_mark(Mark mark)
{
	register_callbacks();
	if (!is_marked(mark))
		marked_in[mark] = GetCurrentSubTransactionId();
}

void
idem_transaction_wrote_external(void)
{
	set_mark(MARK_EXTERNAL);
}

void
idem_transaction_granted_partition(void)
{
	set_mark(MARK_PARTITION);
}

static void
refuse_side_effect(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_IDEM_SIDE_EFFECTS_SUPPRESSED),
			 errmsg("side effects are suppressed in this transaction"),
			 errdetail("It consumes events under a consumer that was defined with rebuild => true."),
			 errhint("Write the projection only; what the events caused was caused when they came first.")));
}

/* before anything that could start a side effect */
void
idem_transaction_check_start(void)
{
	if (is_marked(MARK_REBUILD))
		refuse_side_effect();
}

void
idem_transaction_started(void)
{
	set_mark(MARK_STARTED);
}

void
idem_transaction_rebuilds(void)
{
	if (is_marked(MARK_STARTED))
		refuse_side_effect();
	set_mark(MARK_REBUILD);
}
