/*
 * era.c
 *		The upper half of every generation.
 *
 * A failover or a restore may lose grants that workers already act on.  If
 * generations simply went on from what is on record, the next grant could
 * repeat the number of a lost one, and its holder could pass for the new
 * owner.  So the server's system identifier and timeline are on record, and
 * where they are no longer the server's own, the era is raised by one: every
 * generation granted from then on is higher than any that was lost.
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
#include "utils/inval.h"
#include "utils/snapmgr.h"

typedef struct Era
{
	int32		number;			/* the era */
	int64		system_identifier;	/* of the server that recorded it */
	int64		timeline;		/* likewise */
} Era;

static Era	cached;				/* what was last read from the table */
static Oid	cached_relid = InvalidOid;	/* the table, or invalid: nothing cached */

static Statement select_era = {
	"SELECT era, system_identifier, timeline FROM %1$s.idem_era",
	0, {0}, SPI_OK_SELECT
};

static Statement insert_era = {
	"INSERT INTO %1$s.idem_era (era, system_identifier, timeline) VALUES (0, $1, $2)"
	" ON CONFLICT DO NOTHING",
	2, {INT8OID, INT8OID}, SPI_OK_INSERT
};

static Statement raise_era = {
	"UPDATE %1$s.idem_era SET era = era OPERATOR(pg_catalog.+) 1,"
	" system_identifier = $1, timeline = $2"
	" WHERE system_identifier OPERATOR(pg_catalog.<>) $1 OR timeline OPERATOR(pg_catalog.<>) $2",
	2, {INT8OID, INT8OID}, SPI_OK_UPDATE
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
	era->system_identifier = DatumGetInt64(SPI_getbinval(table->vals[0], table->tupdesc, 2, &isnull));
	era->timeline = DatumGetInt64(SPI_getbinval(table->vals[0], table->tupdesc, 3, &isnull));
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
is_same_server(const Era *era, const Era *server)
{
	return era->system_identifier == server->system_identifier &&
		era->timeline == server->timeline;
}

/* the lowest generation that may be granted now */
int64
idem_era_floor(const Home *home)
{
	static bool is_registered = false;	/* forget_era() is called */
	Era			server = {0, (int64) GetSystemIdentifier(), GetWALInsertionTimeLine()};
	Oid			relid = idem_home_relation(home, "idem_era");
	Datum		values[2] = {Int64GetDatum(server.system_identifier), Int64GetDatum(server.timeline)};

	if (!is_registered)
	{
		CacheRegisterRelcacheCallback(forget_era, (Datum) 0);
		is_registered = true;
	}

	while (cached_relid != relid || !is_same_server(&cached, &server))
	{
		Era			found;

		if (load_era(home, &found) && is_same_server(&found, &server))
		{
			cached = found;
			cached_relid = relid;
			break;
		}
		if (idem_statement_run(&raise_era, home, values, NULL, InvalidSnapshot, NULL, NULL) == 0)
			idem_statement_run(&insert_era, home, values, NULL, InvalidSnapshot, NULL, NULL);
		CacheInvalidateRelcacheByRelid(relid);
		CommandCounterIncrement();
	}
	return ((int64) cached.number << 32) | 1;
}
