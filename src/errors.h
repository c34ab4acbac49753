/*
 * errors.h
 *		SQLSTATE class ID: what PostgreSQL's own codes have no word for.
 *
 * A code is part of the interface: programs branch on it.  Never renumber,
 * never reuse; doc/errors.md and the README list every one.
 */
#ifndef IDEM_ERRORS_H
#define IDEM_ERRORS_H

#include "utils/elog.h"

#define ERRCODE_IDEM_PARAMETER_CONFLICT		MAKE_SQLSTATE('I','D','0','0','1')
#define ERRCODE_IDEM_STALE_GENERATION		MAKE_SQLSTATE('I','D','0','0','2')
#define ERRCODE_IDEM_ILLEGAL_TRANSITION		MAKE_SQLSTATE('I','D','0','0','3')
#define ERRCODE_IDEM_RESULT_CONFLICT		MAKE_SQLSTATE('I','D','0','0','4')
#define ERRCODE_IDEM_UNKNOWN_ACTION			MAKE_SQLSTATE('I','D','0','0','5')
#define ERRCODE_IDEM_UNDEFINED_OPERATION	MAKE_SQLSTATE('I','D','0','0','6')
#define ERRCODE_IDEM_MISSING_PARAMETER		MAKE_SQLSTATE('I','D','0','0','7')
#define ERRCODE_IDEM_OPEN_LOCAL_CLAIM		MAKE_SQLSTATE('I','D','0','0','8')
#define ERRCODE_IDEM_REPLAY_EXPIRED			MAKE_SQLSTATE('I','D','0','0','9')
#define ERRCODE_IDEM_SIDE_EFFECTS_SUPPRESSED	MAKE_SQLSTATE('I','D','0','1','0')

#endif							/* IDEM_ERRORS_H */
