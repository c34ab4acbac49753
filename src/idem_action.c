/*
 * idem_action.c
 *		What makes the library one that PostgreSQL loads.
 */
#include "idem_action.h"

PG_MODULE_MAGIC;
