# idem_action: make, make install, make installcheck as any extension has them;
# make test, e2e, demo, bench, indent, checkver, doc are explained in the README.
EXTENSION = idem_action
MODULE_big = idem_action
# the rooms, in the order in which the install script needs them
ROOMS = \
	key \
	canonical \
	digest \
	era \
	access \
	contract \
	consumer \
	retention \
	store \
	event \
	evidence \
	loss \
	verdict \
	action \
	owner \
	operators \
	once \
	dispatch \
	inbox \
	guard \
	transition \
	fence \
	progress \
	observe
OBJS = $(patsubst %.c,%.o,$(sort $(wildcard src/*.c)))

EXTVERSION := $(shell sed -n "s/^default_version = '\(.*\)'/\1/p" idem_action.control)
INSTALL_SQL = $(EXTENSION)--$(EXTVERSION).sql
DATA_built = $(INSTALL_SQL)

PG_CPPFLAGS = -Wextra -Wno-unused-parameter -Wno-missing-field-initializers -Wno-sign-compare
SHLIB_LINK = -lcrypto

REGRESS = $(filter $(patsubst sql/%.sql,%,$(wildcard sql/*.sql)),$(ROOMS))
ISOLATION = $(patsubst test/isolation/specs/%.spec,%,$(sort $(wildcard test/isolation/specs/*.spec)))
ISOLATION_OPTS = --inputdir=test/isolation --outputdir=output_iso
TAP_TESTS = 1
PROVE_TESTS ?= test/t/*.pl
EXTRA_CLEAN = $(INSTALL_SQL) output_iso \
	$(addsuffix __pycache__,test/ test/demo/ test/e2e/ test/e2e/lib/)

# what our own goals need they find or install by themselves, so PostgreSQL need not be there yet
OUR_GOALS = test e2e demo bench indent checkver doc
ifneq ($(filter-out $(OUR_GOALS),$(or $(MAKECMDGOALS),all)),)
PG_CONFIG ?= pg_config
PGXS := $(shell $(PG_CONFIG) --pgxs)
include $(PGXS)
endif

$(INSTALL_SQL): $(ROOMS:%=src/%.sql) idem_action.control Makefile
	{ printf '%s\n' '\echo Use "CREATE EXTENSION $(EXTENSION)" to load this file. \quit'; cat $(ROOMS:%=src/%.sql); } > $@

$(OBJS): src/idem_action.h src/row.h src/state.h src/canonical.h src/compat.h src/errors.h

.PHONY: $(OUR_GOALS)

test:
	test/run

e2e:
	test/e2e/run

demo:
	test/demo/run

bench:
	bench/run

indent:
	test/lib/indent

checkver:
	test/lib/checkver

# draws the state machine in doc/state.md from the table that decides
doc:
	drawn=$$(mktemp -d) && trap 'rm -rf "$$drawn"' EXIT && \
	$(CC) -std=gnu99 -Wall -Wextra -o "$$drawn/draw_state" doc/draw_state.c src/state.c && \
	"$$drawn/draw_state" <doc/state.md >"$$drawn/state.md" && \
	{ cmp -s "$$drawn/state.md" doc/state.md || cp "$$drawn/state.md" doc/state.md; }
