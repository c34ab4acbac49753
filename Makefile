# idem_action: make, make install, make installcheck as any extension has them;
# make test, demo, bench, indent, checkver, doc are explained in the README.
EXTENSION = idem_action
MODULE_big = idem_action
# the rooms, in the order in which the install script needs them
ROOMS = key canonical digest
OBJS = src/key.o src/canonical.o src/digest.o

VERSION := $(shell sed -n "s/^default_version = '\(.*\)'/\1/p" idem_action.control)
INSTALL_SQL = $(EXTENSION)--$(VERSION).sql
DATA_built = $(INSTALL_SQL)

PG_CPPFLAGS = -Wextra -Wno-unused-parameter -Wno-missing-field-initializers -Wno-sign-compare
SHLIB_LINK = -lcrypto

REGRESS = $(ROOMS)
ISOLATION = $(patsubst test/isolation/specs/%.spec,%,$(sort $(wildcard test/isolation/specs/*.spec)))
ISOLATION_OPTS = --inputdir=test/isolation --outputdir=output_iso
TAP_TESTS = 1
PROVE_TESTS ?= test/t/*.pl
EXTRA_CLEAN = $(INSTALL_SQL) output_iso

PG_CONFIG ?= pg_config
PGXS := $(shell $(PG_CONFIG) --pgxs)
include $(PGXS)

$(INSTALL_SQL): $(ROOMS:%=src/%.sql) idem_action.control
	{ echo '\echo Use "CREATE EXTENSION $(EXTENSION)" to load this file. \quit'; cat $(ROOMS:%=src/%.sql); } > $@

$(OBJS): src/idem_action.h src/compat.h src/errors.h
