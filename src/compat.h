/*
 * compat.h
 *		Every test of the server's version, each saying when it can go.
 */
#ifndef IDEM_COMPAT_H
#define IDEM_COMPAT_H

#include "postgres.h"

#if PG_VERSION_NUM < 150000
#error "idem_action needs PostgreSQL 15 or later"
#endif

#endif							/* IDEM_COMPAT_H */
