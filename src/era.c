/*
 * era.c
 *		The upper half of every generation.
 *
 * A failover or a restore may lose grants that workers already act on.  If
 * generations simply went on from what is on record, the next grant could
 * repeat the number of a lost one, and its holder could pass for the new
 * owner.  So it is on record where this life of the data takes place: the
 * server's system identifier and timeline, and the OIDs of the database and
 * of the table itself, which a dump restored into the same server does not
 * bring along.  Where any of them is another, the era is raised: every
 * generation granted from then on is higher than any that was lost.  It is
 * raised to the seconds that have passed since 2026, not by one: of two
 * standbys promoted one after the other from the same past, or of two restores
 * of one dump, the later must not grant what the earlier has granted, nor
 * anything below it.
 *
 * Where commits were lost without any of these signs, or beside them,
 * idem_declare_loss() raises it likewise.
 *
 * The row is written in the transaction that first needs it, so that it is
 * on record whenever a grant of that era is.  Others wait for that
 * transaction, once per failover.  There is no row in a fresh installation
 * (a restored dump brings its own); the first call that needs it writes 0.
 *
 * The era is cached; a relation cache invalidation of the table, sent by
 * whoever writes it and repeated if that is rolled back, empties the cache.
 */
#include "idem_action.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "utils/inval.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

/* 2026-01-01 00:00 UTC on the scale of timestamptz */
#define ERA_EPOCH (INT64CONST(9497) * USECS_DAY)

typedef struct Place
{
	int64		system_identifier;	/* of the server */
	int64		timeline;		/* on which it writes */
	Oid			database;		/* in the server */
	Oid			table;			/* idem_era in the database */
} Place;

typedef struct Era
{
	int32		number;			/* the era */
	Place		place;			/* where it was recorded */
} Era;

static Era	cached;				/* what was last read from the table */
static Oid	cached_relid = InvalidOid;	/* the table, or invalid: nothing
										 * cached */

static Statement select_era = {
	"SELECT era, system_identifier, timeline, database_oid, table_oid FROM %1$s.idem_era",
	0, {0}, SPI_OK_SELECT
};

static Statement insert_era = {
	"INSERT INTO %1$s.idem_era (era, system_identifier, timeline, database_oid, table_oid)"
	" VALUES (0, $1, $2, $3, $4) ON CONFLICT DO NOTHING",
	4, {INT8OID, INT8OID, OIDOID, OIDOID}, SPI_OK_INSERT
};

static Statement raise_era = {
	"UPDATE %1$s.idem_era SET era = GREATEST(era OPERATOR(pg_catalog.+) 1, $5),"
	" system_identifier = $1, timeline = $2, database_oid = $3, table_oid = $4"
	" WHERE system_identifier OPERATOR(pg_catalog.<>) $1 OR timeline OPERATOR(pg_catalog.<>) $2"
	" OR database_oid OPERATOR(pg_catalog.<>) $3 OR table_oid OPERATOR(pg_catalog.<>) $4",
	5, {INT8OID, INT8OID, OIDOID, OIDOID, INT4OID}, SPI_OK_UPDATE
};

static Statement raise_in_place = {
	"UPDATE %1$s.idem_era SET era = GREATEST(era OPERATOR(pg_catalog.+) 1, $1)",
	1, {INT4OID}, SPI_OK_UPDATE
};

static void
forget_era(Datum arg, Oid relid)
{
	if (relid == InvalidOid || relid == cached_relid)
		cached_relid = InvalidOid;
}

static void
read_era(SPITupleTable *table, uint64 rows, void *target)
{
	Era		   *era = target;
	bool		isnull;

	if (rows == 0)
		return;
	era->number = DatumGetInt32(SPI_getbinval(table->vals[0], table->tupdesc, 1, &isnull));
	era->place.system_identifier = DatumGetInt64(SPI_getbinval(table->vals[0], table->tupdesc, 2, &isnull));
	era->place.timeline = DatumGetInt64(SPI_getbinval(table->vals[0], table->tupdesc, 3, &isnull));
	era->place.database = DatumGetObjectId(SPI_getbinval(table->vals[0], table->tupdesc, 4, &isnull));
	era->place.table = DatumGetObjectId(SPI_getbinval(table->vals[0], table->tupdesc, 5, &isnull));
}

/* the newest committed row, also where the transaction's snapshot is older */
static bool
load_era(const Home *home, Era *era)
{
	Snapshot	latest = RegisterSnapshot(GetLatestSnapshot());
	bool		is_found = idem_statement_run(&select_era, home, NULL, NULL, latest,
											  read_era, era) > 0;

	UnregisterSnapshot(latest);
	return is_found;
}

static bool
is_same_place(const Place *a, const Place *b)
{
	return a->system_identifier == b->system_identifier && a->timeline == b->timeline &&
		a->database == b->database && a->table == b->table;
}

/* the era that begins now, unless the recorded one is later */
static int32
era_by_clock(void)
{
	return (int32) ((GetCurrentTimestamp() - ERA_EPOCH) / USECS_SECOND);
}

/* reads the era, recording or raising it where that is due */
static void
settle_era(const Home *home, const Place *here)
{
	Datum		values[5] = {Int64GetDatum(here->system_identifier), Int64GetDatum(here->timeline),
		ObjectIdGetDatum(here->database), ObjectIdGetDatum(here->table),
	Int32GetDatum(era_by_clock())};

	for (;;)
	{
		Era			found;

		if (load_era(home, &found) && is_same_place(&found.place, here))
		{
			cached = found;
			cached_relid = here->table;
			return;
		}
		if (idem_statement_run(&raise_era, home, values, NULL, InvalidSnapshot, NULL, NULL) == 0)
			idem_statement_run(&insert_era, home, values, NULL, InvalidSnapshot, NULL, NULL);
		CacheInvalidateRelcacheByRelid(here->table);
		CommandCounterIncrement();
	}
}

/* the lowest generation that may be granted now */
int64
idem_era_floor(const Home *home)
{
	static bool is_registered = false;	/* forget_era() is called */
	Place		here = {(int64) GetSystemIdentifier(), GetWALInsertionTimeLine(), MyDatabaseId,
	idem_home_relation(home, "idem_era")};

	if (!is_registered)
	{
		CacheRegisterRelcacheCallback(forget_era, (Datum) 0);
		is_registered = true;
	}
	if (cached_relid != here.table || !is_same_place(&cached.place, &here))
		settle_era(home, &here);
	return ((int64) cached.number << 32) | 1;
}

/* begins another era in the same place: what was granted there and then is not all on record */
void
idem_era_raise(const Home *home)
{
	Datum		number = Int32GetDatum(era_by_clock());

	idem_era_floor(home);		/* there is a row, and it is of this place */
	idem_statement_run(&raise_in_place, home, &number, NULL, InvalidSnapshot, NULL, NULL);
	CacheInvalidateRelcacheByRelid(idem_home_relation(home, "idem_era"));
	CommandCounterIncrement();
}
