/*
 * difference.c
 *		Where two documents differ, as far as a rule lets them count.
 *
 * Both documents are walked side by side in canonical order, and the place of
 * each difference is written as a JSON Pointer, never its value.  A place is
 * as deep as both documents still have it with a container of the same kind.
 * Array elements are compared by their index, also where others are excluded:
 * an exclusion takes the same indexes from both, so two arrays are equal
 * without them exactly if they are equal at every other index.
 *
 * The walk stops at IDEM_MAX_DIFFERENCES.  Results live in the current
 * context.  Raises 54001 for documents nested too deeply.
 */
#include "canonical.h"

#include "catalog/pg_type.h"
#include "lib/stringinfo.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/numeric.h"

/* the way to a place, innermost step first */
typedef struct Step
{
	const struct Step *parent;	/* NULL at the root */
	const char *name;			/* member's name, UTF-8; NULL: an element */
	uint32		length;			/* of the name */
	int			index;			/* of the element */
} Step;

typedef struct Differences
{
	const char *prefix;			/* pointer to the root of the walk, UTF-8 */
	uint32		prefix_length;
	MemberStack stored;			/* members of the objects around the place */
	MemberStack given;
	int			count;
	Datum		pointers[IDEM_MAX_DIFFERENCES]; /* text */
} Differences;

static void compare_nodes(Differences *differences, const JsonNode *stored,
						  const JsonNode *given, const Exclusions *exclusions,
						  const Step *at);

static void
append_token(StringInfo pointer, const char *name, uint32 length)
{
	for (uint32 i = 0; i < length; i++)
	{
		if (name[i] == '~')
			appendStringInfoString(pointer, "~0");
		else if (name[i] == '/')
			appendStringInfoString(pointer, "~1");
		else
			appendStringInfoCharMacro(pointer, name[i]);
	}
}

static void
append_steps(StringInfo pointer, const Step *at)
{
	check_stack_depth();
	if (at == NULL)
		return;
	append_steps(pointer, at->parent);
	appendStringInfoChar(pointer, '/');
	if (at->name != NULL)
		append_token(pointer, at->name, at->length);
	else
		appendStringInfo(pointer, "%d", at->index);
}

/* included pointers may overlap, so that one place is met twice */
static bool
is_known(const Differences *differences, const text *pointer)
{
	for (int i = 0; i < differences->count; i++)
	{
		const text *known = (const text *) DatumGetPointer(differences->pointers[i]);

		if (VARSIZE(known) == VARSIZE(pointer) &&
			memcmp(known, pointer, VARSIZE(pointer)) == 0)
			return true;
	}
	return false;
}

static void
report(Differences *differences, const Step *at)
{
	StringInfoData pointer;
	char	   *converted;
	text	   *result;

	initStringInfo(&pointer);
	appendBinaryStringInfo(&pointer, differences->prefix, differences->prefix_length);
	append_steps(&pointer, at);
	converted = pg_any_to_server(pointer.data, pointer.len, PG_UTF8);
	result = cstring_to_text(converted);
	pfree(pointer.data);
	if (!is_known(differences, result))
		differences->pointers[differences->count++] = PointerGetDatum(result);
}

static bool
scalars_equal(const JsonNode *a, const JsonNode *b)
{
	if (a->type == JENTRY_ISSTRING)
		return a->length == b->length && memcmp(a->data, b->data, a->length) == 0;
	if (a->type == JENTRY_ISNUMERIC)
		return DatumGetBool(DirectFunctionCall2(numeric_eq,
												PointerGetDatum(a->data),
												PointerGetDatum(b->data)));
	return true;				/* null, true and false are types of their own */
}

/* which of two members comes first; a list that has ended comes last */
static int
merge_order(const MemberStack *stored, int i, const MemberStack *given, int j)
{
	const JsonMember *a = &stored->members[i];
	const JsonMember *b = &given->members[j];

	if (i == stored->used || j == given->used)
		return (i == stored->used) - (j == given->used);
	return idem_utf16_compare(a->name, a->length, b->name, b->length);
}

static void
compare_members(Differences *differences, const JsonNode *stored, const JsonNode *given,
				const JsonMember *a, const JsonMember *b, const Exclusions *exclusions,
				const Step *parent)
{
	const JsonMember *either = a != NULL ? a : b;
	Step		at = {parent, either->name, either->length, 0};
	Exclusions	below;
	JsonNode	stored_value;
	JsonNode	given_value;

	if (!idem_exclusions_member(exclusions, either, &below))
		return;
	if (a == NULL || b == NULL)
	{
		report(differences, &at);
		return;
	}
	(void) node_child(stored, node_base(stored), a->entry, a->offset, &stored_value);
	(void) node_child(given, node_base(given), b->entry, b->offset, &given_value);
	compare_nodes(differences, &stored_value, &given_value, &below, &at);
}

static void
compare_objects(Differences *differences, const JsonNode *stored, const JsonNode *given,
				const Exclusions *exclusions, const Step *at)
{
	int			stored_begin = idem_members_push(&differences->stored, stored);
	int			given_begin = idem_members_push(&differences->given, given);
	int			i = stored_begin;
	int			j = given_begin;

	while ((i < differences->stored.used || j < differences->given.used) &&
		   differences->count < IDEM_MAX_DIFFERENCES)
	{
		int			order = merge_order(&differences->stored, i, &differences->given, j);
		JsonMember	a = {0};
		JsonMember	b = {0};

		/* copies, since deeper objects may move the stacks */
		if (order <= 0)
			a = differences->stored.members[i++];
		if (order >= 0)
			b = differences->given.members[j++];
		compare_members(differences, stored, given,
						order <= 0 ? &a : NULL, order >= 0 ? &b : NULL, exclusions, at);
	}
	differences->stored.used = stored_begin;
	differences->given.used = given_begin;
}

static void
compare_arrays(Differences *differences, const JsonNode *stored, const JsonNode *given,
			   const Exclusions *exclusions, const Step *parent)
{
	const char *stored_base = node_base(stored);
	const char *given_base = node_base(given);
	int			nstored = NodeCount(stored);
	int			ngiven = NodeCount(given);
	uint32		stored_offset = 0;
	uint32		given_offset = 0;

	for (int i = 0; i < Max(nstored, ngiven); i++)
	{
		Step		at = {parent, NULL, 0, i};
		Exclusions	below;
		JsonNode	a;
		JsonNode	b;

		if (differences->count == IDEM_MAX_DIFFERENCES)
			return;
		if (i < nstored)
			stored_offset = node_child(stored, stored_base, i, stored_offset, &a);
		if (i < ngiven)
			given_offset = node_child(given, given_base, i, given_offset, &b);
		if (!idem_exclusions_element(exclusions, i, &below))
			continue;
		if (i < nstored && i < ngiven)
			compare_nodes(differences, &a, &b, &below, &at);
		else
			report(differences, &at);
	}
}

static void
compare_nodes(Differences *differences, const JsonNode *stored, const JsonNode *given,
			  const Exclusions *exclusions, const Step *at)
{
	CHECK_FOR_INTERRUPTS();
	check_stack_depth();
	if (NodeIsObject(stored) && NodeIsObject(given))
		compare_objects(differences, stored, given, exclusions, at);
	else if (NodeIsArray(stored) && NodeIsArray(given))
		compare_arrays(differences, stored, given, exclusions, at);
	else if (stored->type != given->type || stored->type == JENTRY_ISCONTAINER ||
			 !scalars_equal(stored, given))
		report(differences, at);
}

static void
compare_included(Differences *differences, const JsonNode *stored, const JsonNode *given,
				 const DigestRule *rule)
{
	Exclusions	none = {0};
	int			count;
	const JsonPointer **pointers = idem_pointers_sorted(rule, &count);

	for (int i = 0; i < count && differences->count < IDEM_MAX_DIFFERENCES; i++)
	{
		JsonNode	a;
		JsonNode	b;

		differences->prefix = pointers[i]->utf8;
		differences->prefix_length = pointers[i]->utf8_length;
		if (idem_pointer_find(pointers[i], stored, &a) &&
			idem_pointer_find(pointers[i], given, &b))
			compare_nodes(differences, &a, &b, &none, NULL);
		else
			report(differences, NULL);
	}
}

ArrayType *
idem_digest_differences(Jsonb *stored, Jsonb *given, const DigestRule *rule)
{
	Differences differences;
	Exclusions	exclusions;
	JsonNode	stored_root;
	JsonNode	given_root;

	differences.prefix = "";
	differences.prefix_length = 0;
	differences.count = 0;
	idem_members_init(&differences.stored);
	idem_members_init(&differences.given);
	idem_node_root(stored, &stored_root);
	idem_node_root(given, &given_root);
	if (rule->include && rule->npointers > 0)
		compare_included(&differences, &stored_root, &given_root, rule);
	else
	{
		idem_exclusions_init(&exclusions, rule);
		compare_nodes(&differences, &stored_root, &given_root, &exclusions, NULL);
	}
	idem_members_free(&differences.stored);
	idem_members_free(&differences.given);
	return construct_array(differences.pointers, differences.count, TEXTOID, -1, false,
						   TYPALIGN_INT);
}
