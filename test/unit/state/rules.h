/*
 * rules.h
 *		Which calls are legal: every state, call, generation and circumstance.
 *
 * What is expected is written here a second time, in words, from what the
 * documentation promises.  It shares nothing with state.c but the names.
 */
#ifndef STATE_RULES_H
#define STATE_RULES_H

#include <stdlib.h>
#include <string.h>

/* the legal moves; every state of "from" by "call" to each of "to" */
static const struct
{
	const char *from;
	const char *call;
	const char *to;
}			legal_moves[] = {
	{"new", "submit", "pending"},
	{"new pending processing unknown", "claim", "processing review"},
	{"processing", "renew", "processing"},
	{"processing unknown review", "complete", "succeeded"},
	{"processing unknown review", "reject", "rejected"},
	{"processing", "mark_unknown", "unknown"},
	{"processing", "release", "pending unknown"},
	{"processing", "absent", "processing unknown review"},
	{"new pending", "cancel", "rejected"},
	{"pending processing unknown", "escalate", "review"},
	{"review", "resolve", "succeeded rejected pending"}
};

/* where the same generation may say the same again, after the answer to the first was lost */
static const struct
{
	const char *call;
	const char *in;
	bool		after_itself;	/* only if that very call led there */
}			repetitions[] = {
	{"complete", "succeeded", true},
	{"reject", "rejected", true},
	{"mark_unknown", "unknown", true},
	{"release", "pending unknown", true},
	{"absent", "unknown review", true},
	{"cancel", "rejected", true},
	{"escalate", "review", false}	/* it is where he wants it */
};

static const char *const state_words[] = {
	"new", "pending", "processing", "unknown", "review", "succeeded", "rejected"
};

static const char *const call_words[] = {
	"submit", "claim", "renew", "complete", "reject", "mark_unknown", "release", "absent",
	"escalate", "cancel", "resolve"
};

static const char *const outcome_words[] = {
	"execute", "repeat", "verify", "accepted", "succeeded", "rejected", "busy", "review",
	"conflict", "expired"
};

static const char *const local_calls = "claim complete reject cancel";

#define NEWEST INT64_C(0x300000007) /* of an era that is not the first */

static bool
has_word(const char *words, const char *word)
{
	size_t		length = strlen(word);
	const char *found = words;

	while ((found = strstr(found, word)) != NULL)
	{
		if ((found == words || found[-1] == ' ') &&
			(found[length] == '\0' || found[length] == ' '))
			return true;
		found += length;
	}
	return false;
}

static bool
is_legal_move(const char *from, const char *call, const char *to)
{
	for (size_t i = 0; i < sizeof(legal_moves) / sizeof(legal_moves[0]); i++)
		if (strcmp(legal_moves[i].call, call) == 0)
			return has_word(legal_moves[i].from, from) &&
				(to == NULL || has_word(legal_moves[i].to, to));
	abort();
}

static bool
is_repetition(const char *call, const char *state, const char *last_call)
{
	for (size_t i = 0; i < sizeof(repetitions) / sizeof(repetitions[0]); i++)
		if (strcmp(repetitions[i].call, call) == 0)
			return has_word(repetitions[i].in, state) &&
				(!repetitions[i].after_itself || strcmp(call, last_call) == 0);
	return false;
}

/*
 * Whether a ruling is one that may be given.  Where several things are wrong
 * at once, naming any of them will do, with one exception: a generation that
 * is not the newest learns that, and nothing of the state it no longer owns.
 */
static bool
is_right_ruling(Call call, const History *history, int64_t generation,
				Ruling ruling, Reason reason)
{
	const char *word = call_words[call];
	bool		is_owner = generation == history->generation;
	bool		is_unknown_to_local = history->is_local && !has_word(local_calls, word);
	bool		is_early = !history->is_local && history->is_granted_here &&
		has_word("renew complete mark_unknown", word);
	bool		is_contradicted = history->has_reference && has_word("release absent", word);
	bool		is_other_grant = call == CALL_ABSENT && history->grant != OUTCOME_VERIFY;
	bool		is_doubted = call == CALL_CANCEL ?
		!history->is_local && (history->is_ambiguous || history->has_reference) :
		call == CALL_RENEW && history->is_ambiguous && history->grant == OUTCOME_EXECUTE;

	if (ruling == RULING_ILLEGAL && reason == REASON_LOCAL)
		return is_unknown_to_local;
	if (ruling == RULING_STALE || !is_owner)
		return ruling == RULING_STALE && !is_owner;
	if (is_unknown_to_local)
		return false;
	if (is_repetition(word, state_words[history->state], call_words[history->last_call]))
		return ruling == RULING_DONE;
	if (!is_legal_move(state_words[history->state], word, NULL))
		return ruling == RULING_ILLEGAL && reason == REASON_STATE;
	if (!is_early && !is_contradicted && !is_other_grant && !is_doubted)
		return ruling == RULING_GO;
	return ruling == RULING_ILLEGAL &&
		((reason == REASON_UNCOMMITTED && is_early) ||
		 (reason == REASON_REFERENCE && is_contradicted) ||
		 (reason == REASON_GRANT && is_other_grant) ||
		 (reason == REASON_DOUBT && is_doubted));
}

/* one call in one state, by everybody, under all circumstances */
static Line
try_call(Call call, State state)
{
	static const int64_t generations[] = {NEWEST, NEWEST - 1, NEWEST + 1, 7, 0, -1, INT64_MAX};
	Line		line = {0, 0};

	for (unsigned i = 0; i < NCALLS * 16 * 3 * 7; i++)
	{
		History		history = {.state = state,.generation = NEWEST,.attempt = 1};
		int64_t		generation = generations[i % 7];
		unsigned	flags = i / 21 % 16;
		Ruling		ruling;
		Reason		reason;

		history.grant = (Outcome) (OUTCOME_EXECUTE + i / 7 % 3);
		history.is_local = flags & 1;
		history.is_granted_here = flags & 2;
		history.has_reference = flags & 4;
		history.is_ambiguous = flags & 8;
		history.last_call = (Call) (i / 336);

		ruling = idem_state_rule(call, &history, generation, &reason);
		if (line_fault(&line, is_right_ruling(call, &history, generation, ruling, reason)))
			printf("# ruling %d, reason %d: generation %s, last call %s, grant %s%s%s%s%s\n",
				   ruling, reason, generation == NEWEST ? "newest" : "another",
				   call_words[history.last_call], outcome_words[history.grant],
				   history.is_local ? ", local" : "",
				   history.is_granted_here ? ", granted here" : "",
				   history.has_reference ? ", reference" : "",
				   history.is_ambiguous ? ", ambiguous" : "");
	}
	return line;
}

static void
test_names(void)
{
	bool		is_ok = true;

	for (unsigned i = 0; i < NSTATES; i++)
		is_ok = is_ok && strcmp(idem_state_names[i], state_words[i]) == 0;
	tap(is_ok, "states have their documented names");

	is_ok = true;
	for (unsigned i = 0; i < NCALLS; i++)
		is_ok = is_ok && strcmp(idem_call_names[i], call_words[i]) == 0;
	tap(is_ok, "calls have their documented names");

	is_ok = true;
	for (unsigned i = 0; i < NOUTCOMES; i++)
		is_ok = is_ok && strcmp(idem_outcome_names[i], outcome_words[i]) == 0;
	tap(is_ok, "outcomes have their documented names");
}

static void
test_moves(void)
{
	for (unsigned call = 0; call < NCALLS; call++)
	{
		Line		line = {0, 0};

		for (unsigned i = 0; i < NSTATES * NSTATES; i++)
		{
			State		from = (State) (i / NSTATES);
			State		to = (State) (i % NSTATES);
			bool		is_legal = is_legal_move(state_words[from], call_words[call],
												 state_words[to]);

			if (line_fault(&line, is_legal ==
						   ((idem_state_targets((Call) call, from) >> to & 1) != 0)))
				printf("# from %s to %s should be %s\n", state_words[from], state_words[to],
					   is_legal ? "legal" : "illegal");
		}
		tap(line_is_ok(&line), "%s leads from the documented states to the documented ones",
			call_words[call]);
	}
}

static void
test_terminal(void)
{
	for (unsigned state = 0; state < NSTATES; state++)
	{
		bool		is_terminal = has_word("succeeded rejected", state_words[state]);
		unsigned	reachable = 0;

		for (unsigned call = 0; call < NCALLS; call++)
			reachable |= idem_state_targets((Call) call, (State) state);
		tap(idem_state_is_terminal((State) state) == is_terminal && (reachable == 0) == is_terminal,
			"%s is %s", state_words[state], is_terminal ? "never left" : "not terminal");
	}
}

static void
test_rulings(void)
{
	for (unsigned call = 0; call < NCALLS; call++)
		for (unsigned state = 0; state < NSTATES; state++)
		{
			Line		line = try_call((Call) call, (State) state);

			tap(line_is_ok(&line), "%s in state %s, by every generation",
				call_words[call], state_words[state]);
		}
}

#endif							/* STATE_RULES_H */
