/*
 * tap.h
 *		Lines of the Test Anything Protocol, each for one check or for many.
 *
 * A line that folds many checks fails when one of them does, and also when
 * none was made: a loop that runs over nothing proves nothing.
 */
#ifndef STATE_TAP_H
#define STATE_TAP_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>

#define FAULTS_SHOWN 3			/* of one line, that a flood hides nothing */

/* the checks behind one line */
typedef struct Line
{
	long		tried;
	long		failed;
} Line;

static int	tap_lines;
static int	tap_failures;

static void tap(bool is_ok, const char *format,...) __attribute__((format(printf, 2, 3)));

/* one line: "ok N - name" or "not ok N - name" */
static void
tap(bool is_ok, const char *format,...)
{
	va_list		args;

	printf("%sok %d - ", is_ok ? "" : "not ", ++tap_lines);
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	putchar('\n');
	if (!is_ok)
		tap_failures++;
}

/* counts a check; true when its fault should be explained with a "# " line */
static bool
line_fault(Line *line, bool is_ok)
{
	line->tried++;
	return !is_ok && line->failed++ < FAULTS_SHOWN;
}

static bool
line_is_ok(const Line *line)
{
	return line->tried > 0 && line->failed == 0;
}

static int
tap_end(void)
{
	printf("1..%d\n", tap_lines);
	return tap_failures == 0 ? 0 : 1;
}

#endif							/* STATE_TAP_H */
