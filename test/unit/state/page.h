/*
 * page.h
 *		doc/state.md shows the table that decides, and tells the timelines.
 *
 * The page is found from this file's own path, as the compiler was told it.
 */
#ifndef STATE_PAGE_H
#define STATE_PAGE_H

#define main draw_state_main
#include "../../../doc/draw_state.c"
#undef main

static FILE *
open_page(void)
{
	static const char name[] = "../../../doc/state.md";
	const char *slash = strrchr(__FILE__, '/');
	char		path[4096];

	snprintf(path, sizeof(path), "%.*s%s", slash == NULL ? 0 : (int) (slash - __FILE__ + 1),
			 __FILE__, name);
	return fopen(path, "r");
}

/* the page is what drawing it anew makes of it, byte by byte */
static bool
is_drawn_alike(FILE *page)
{
	FILE	   *drawn = tmpfile();
	bool		is_alike;
	int			a;
	int			b;

	if (drawn == NULL)
		return false;
	is_alike = redraw(page, drawn);
	rewind(page);
	rewind(drawn);
	do
	{
		a = getc(page);
		b = getc(drawn);
	} while (a == b && a != EOF);
	fclose(drawn);
	return is_alike && a == b;
}

static void
test_page(void)
{
	FILE	   *page = open_page();

	tap(page != NULL && is_drawn_alike(page), "doc/state.md is what `make doc` makes of it");
	if (page != NULL)
		fclose(page);
}

#endif							/* STATE_PAGE_H */
