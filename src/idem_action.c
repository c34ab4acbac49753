/*
 * idem_action.c
 *		What makes the library one that PostgreSQL loads.
 */
#include "idem_action.h"

#include "utils/guc.h"

PG_MODULE_MAGIC;

/* fmgr.h has this from PostgreSQL 16 on */
extern PGDLLEXPORT void _PG_init(void);

void
_PG_init(void)
{
	idem_evidence_settings();
	MarkGUCPrefixReserved("idem_action");
}
