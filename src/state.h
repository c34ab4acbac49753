/*
 * state.h
 *		The rules of an action, as values: no SQL, no clock, no PostgreSQL.
 *
 * state.c and this header compile with nothing but the C library, so that a
 * test can try every combination and a small program can draw the machine
 * from the very table that decides (see test/unit and doc/draw_state.c).
 *
 * Times are microseconds on the scale of timestamptz.
 */
#ifndef IDEM_STATE_H
#define IDEM_STATE_H

#include <stdbool.h>
#include <stdint.h>

#define TIME_NONE		INT64_MIN	/* "never", "not set" */
#define TIME_FOREVER	INT64_MAX	/* an end that does not come */

#define USECS_SECOND	INT64_C(1000000)
#define USECS_DAY		(INT64_C(86400) * USECS_SECOND)

/* bounds of what may be asked for; beyond them a recorded time is not believed */
#define LEASE_MIN		(USECS_SECOND / 10)
#define LEASE_MAX		USECS_DAY
#define RETRY_MAX		(30 * USECS_DAY)
#define ABSENCE_MAX		(30 * USECS_DAY)
#define DUE_MAX			(LEASE_MAX + ABSENCE_MAX)

typedef enum State
{
	STATE_NONE,					/* not on record */
	STATE_PENDING,				/* on record, nobody owns it */
	STATE_PROCESSING,			/* granted to the newest generation */
	STATE_UNKNOWN,				/* an attempt may have executed it */
	STATE_REVIEW,				/* a person decides */
	STATE_SUCCEEDED,			/* terminal */
	STATE_REJECTED				/* terminal */
} State;

#define NSTATES (STATE_REJECTED + 1)

typedef enum Call
{
	CALL_SUBMIT,
	CALL_CLAIM,					/* reclaim too: the same move, asked by key
								 * alone */
	CALL_RENEW,
	CALL_COMPLETE,
	CALL_REJECT,
	CALL_MARK_UNKNOWN,
	CALL_RELEASE,
	CALL_ABSENT,
	CALL_ESCALATE,
	CALL_CANCEL,
	CALL_RESOLVE
} Call;

#define NCALLS (CALL_RESOLVE + 1)

typedef enum Outcome
{
	OUTCOME_EXECUTE,			/* no attempt can have executed it */
	OUTCOME_REPEAT,				/* call again with the same key */
	OUTCOME_VERIFY,				/* ask the channel */
	OUTCOME_ACCEPTED,			/* on record and not terminal */
	OUTCOME_SUCCEEDED,			/* done before */
	OUTCOME_REJECTED,			/* refused or cancelled before */
	OUTCOME_BUSY,				/* come back at retry_at */
	OUTCOME_REVIEW,				/* a person decides */
	OUTCOME_CONFLICT,			/* same key, other parameters */
	OUTCOME_EXPIRED				/* too old to be proven new */
} Outcome;

#define NOUTCOMES (OUTCOME_EXPIRED + 1)

/* what the channel promises, as far as it counts for one action */
typedef struct Promise
{
	bool		is_idempotent;	/* a repeated key maps to the same action */
	int64_t		key_ttl;		/* for this long from the first grant */
	bool		is_queryable;	/* the channel can be asked by key */
	int64_t		absence_after;	/* "not found" is conclusive this long after a
								 * call could last have started */
} Promise;

/* what the records say of an action, and of what its attempts did */
typedef struct History
{
	State		state;
	Call		last_call;		/* the call that brought it into this state */
	int64_t		generation;		/* the newest, 1 or more */
	int32_t		attempt;		/* grants so far, of every kind */
	Outcome		grant;			/* the newest grant's kind; while processing */
	int64_t		granted_at;		/* when that was granted */
	int64_t		lease_until;	/* while processing */
	int64_t		due_at;			/* while pending or unknown */
	int64_t		first_granted_at;	/* when first granted to act */
	int64_t		call_until;		/* until when a call could last have started */
	bool		is_ambiguous;	/* an attempt before the newest grant may have
								 * executed */
	bool		has_reference;	/* a channel reference is on record */
	bool		is_local;		/* of a local operation */
	bool		is_granted_here;	/* the newest grant was made by the
									 * transaction that asks */
} History;

typedef enum Ruling
{
	RULING_GO,					/* legal: make the move */
	RULING_DONE,				/* this very generation made it before */
	RULING_STALE,				/* not the newest generation */
	RULING_ILLEGAL				/* no such move from here */
} Ruling;

/* why a move that the table allows is illegal all the same */
typedef enum Reason
{
	REASON_STATE,				/* the table has no such move */
	REASON_LOCAL,				/* local operations do not know the call */
	REASON_UNCOMMITTED,			/* the grant has not been committed yet */
	REASON_REFERENCE,			/* a channel reference is on record */
	REASON_GRANT,				/* the grant is of another kind */
	REASON_NO_GRANT,			/* nobody was ever granted it */
	REASON_DOUBT				/* an attempt may have executed it */
} Reason;

/* the answer to whoever asks to act */
typedef struct Judgement
{
	Outcome		outcome;
	int64_t		retry_at;		/* with busy */
	int64_t		lease_until;	/* of the grant, or of the owner in the way */
	int64_t		absence_conclusive_at;	/* with verify, and with busy after an
										 * inconclusive absence */
} Judgement;

extern const char *const idem_state_names[NSTATES];
extern const char *const idem_call_names[NCALLS];
extern const char *const idem_outcome_names[NOUTCOMES];

/* the states a call may lead to from a state, as a set of 1 << State; 0: illegal */
extern unsigned idem_state_targets(Call call, State from);
extern bool idem_state_is_terminal(State state);

/* may the holder of a generation make this call? */
extern Ruling idem_state_rule(Call call, const History *history,
							  int64_t generation, Reason *reason);

/* the weaker of what was promised at the first grant and what is promised now */
extern Promise idem_state_weaker(const Promise *first, const Promise *now,
								 bool is_same_channel);

/* whether any attempt may have executed the action */
extern bool idem_state_may_have_executed(const History *history);

/* until when the channel surely maps the key to the same action; TIME_NONE: never */
extern int64_t idem_state_repeat_until(const History *history,
									   const Promise *promise, int64_t now);

/* what a claim of an action on record, with equal parameters, is answered */
extern Judgement idem_state_judge(const History *history, const Promise *promise,
								  int32_t max_attempts, int64_t now, int64_t lease);

/* what a worker that was granted verify and did not find the key is answered */
extern Judgement idem_state_judge_absence(const History *history,
										  const Promise *promise,
										  int32_t max_attempts, int64_t now,
										  int64_t lease);

/* how the calls move the history; each presumes a ruling or judgement that allows it */
extern void idem_state_grant(History *history, Call call,
							 const Judgement *judgement, int64_t now);
extern void idem_state_wait(History *history, Call call, int64_t now, int64_t due_at);
extern void idem_state_renew(History *history, int64_t lease_until);
extern void idem_state_settle(History *history, Call call, State state);
extern void idem_state_refresh(History *history, int64_t now);

/* attempts that nothing is known of may have been granted since, and may call until */
extern void idem_state_doubt(History *history, int64_t since, int64_t until);

/* a delay between 0 and the step of an exponential back-off; fraction is in [0, 1) */
extern int64_t idem_state_backoff(int64_t base, int64_t max, int32_t attempt,
								  double fraction);

#endif							/* IDEM_STATE_H */
