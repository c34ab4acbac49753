/*
 * state.c
 *		Tests of src/state.c, which need no server.  Prints TAP.
 *
 * Every state, call and generation; every history, contract and time; the
 * timelines that doc/state.md tells; many random walks; and that page itself.
 * The parts are included, so that this is one program with one report.
 */
#include "state.h"

#include "state/tap.h"
#include "state/rules.h"
#include "state/verdicts.h"
#include "state/history.h"
#include "state/record.h"
#include "state/timelines.h"
#include "state/walk.h"
#include "state/page.h"

int
main(void)
{
	test_names();
	test_moves();
	test_terminal();
	test_rulings();

	test_claims();
	test_absence();
	test_doubt();
	test_key_life();
	test_weaker();
	test_backoff();

	test_grants();
	test_waits();
	test_renewals();
	test_settlements();
	test_losses();
	test_refresh();

	test_key_ends();
	test_absence_waits();
	test_asked_early();
	test_release_speaks_for_itself();
	test_reference();
	test_promises_never_grow();
	test_never_an_answer();
	test_other_channel();
	test_lost_commits();
	test_owner_of_review();
	test_never_granted();
	test_renewed_repeat();
	test_clock_set_back();
	test_clock_set_right();

	test_walks();
	test_page();
	return tap_end();
}
