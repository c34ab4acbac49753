/*
 * pointer.c
 *		JSON Pointers (RFC 6901), and what a rule of them leaves out.
 *
 * A pointer is split once, when the contract is read; finding or excluding a
 * place then only compares tokens.  A token is kept in the server's encoding,
 * as jsonb keeps names, and in UTF-8, as the walk sees them.
 *
 * A token names a member of an object or an element of an array, whichever
 * the document has there.  An index is written without leading zeros; "-",
 * the element after the last, is never there.
 *
 * Results live in the current context.  Raises 22023 for what is no pointer
 * or cannot be a rule, 22004 for a NULL in a rule.
 */
#include "canonical.h"

#include "catalog/pg_type.h"
#include "utils/builtins.h"

/* more digits would be more elements than a jsonb can hold */
#define MAX_INDEX_DIGITS 9

static int64
token_index(const char *name, uint32 length)
{
	int64		index = 0;

	if (length == 0 || length > MAX_INDEX_DIGITS || (name[0] == '0' && length > 1))
		return -1;
	for (uint32 i = 0; i < length; i++)
	{
		if (name[i] < '0' || name[i] > '9')
			return -1;
		index = index * 10 + (name[i] - '0');
	}
	return index;
}

static void
pointer_error(const char *text, const char *detail)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("\"%s\" is not a JSON Pointer", text),
			 errdetail("%s", detail)));
}

/* unescapes up to the next slash or the end; returns where it stopped */
static const char *
parse_token(const char *text, const char *at, PointerToken *token)
{
	char	   *name = palloc(strcspn(at, "/") + 1);
	char	   *out = name;

	while (*at != '\0' && *at != '/')
	{
		char		c = *at++;

		if (c == '~')
		{
			if (*at != '0' && *at != '1')
				pointer_error(text, "A tilde is followed by 0 (for a tilde) or 1 (for a slash).");
			c = (*at++ == '0') ? '~' : '/';
		}
		*out++ = c;
	}
	*out = '\0';
	token->name = name;
	token->length = out - name;
	token->utf8_length = token->length;
	token->utf8 = idem_utf8(token->name, &token->utf8_length);
	token->index = token_index(token->name, token->length);
	return at;
}

/* RFC 6901; raises 22023 when the text is no pointer; allocates in the current context */
static void
pointer_parse(const char *text, JsonPointer *pointer)
{
	const char *at;
	int			ntokens = 0;

	if (text[0] != '\0' && text[0] != '/')
		pointer_error(text, "A pointer is empty or begins with a slash.");
	for (at = text; *at != '\0'; at++)
		ntokens += (*at == '/');

	pointer->text = pstrdup(text);
	pointer->utf8_length = strlen(text);
	pointer->utf8 = idem_utf8(pointer->text, &pointer->utf8_length);
	pointer->ntokens = ntokens;
	pointer->tokens = palloc(Max(ntokens, 1) * sizeof(PointerToken));
	at = text;

	for (int i = 0; i < ntokens; i++)
		at = parse_token(text, at + 1, &pointer->tokens[i]);
}

bool
idem_pointer_find(const JsonPointer *pointer, const JsonNode *root, JsonNode *found)
{
	JsonNode	node = *root;

	for (int i = 0; i < pointer->ntokens; i++)
	{
		const PointerToken *token = &pointer->tokens[i];
		JsonNode	child;

		if (!idem_node_member(&node, token->name, token->length, &child) &&
			!idem_node_element(&node, token->index, &child))
			return false;
		node = child;
	}
	*found = node;
	return true;
}

static int
pointer_order(const void *a, const void *b)
{
	const JsonPointer *left = *(const JsonPointer *const *) a;
	const JsonPointer *right = *(const JsonPointer *const *) b;

	return idem_utf16_compare(left->utf8, left->utf8_length,
							  right->utf8, right->utf8_length);
}

const JsonPointer **
idem_pointers_sorted(const DigestRule *rule, int *count)
{
	const JsonPointer **sorted = palloc(rule->npointers * sizeof(JsonPointer *));
	int			distinct = 0;

	for (int i = 0; i < rule->npointers; i++)
		sorted[i] = &rule->pointers[i];
	qsort(sorted, rule->npointers, sizeof(JsonPointer *), pointer_order);
	for (int i = 0; i < rule->npointers; i++)
	{
		if (distinct == 0 || pointer_order(&sorted[distinct - 1], &sorted[i]) != 0)
			sorted[distinct++] = sorted[i];
	}
	*count = distinct;
	return sorted;
}

/* an array of pointers as a rule of them */
static void
rule_from_array(ArrayType *array, const char *field, DigestRule *rule)
{
	Datum	   *texts;
	bool	   *nulls;
	int			count;

	if (ARR_NDIM(array) > 1)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s must have one dimension", field)));
	if (ARR_NDIM(array) == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s must not be empty", field),
				 errhint("Leave it out if everything counts.")));
	deconstruct_array(array, TEXTOID, -1, false, TYPALIGN_INT, &texts, &nulls, &count);
	rule->npointers = count;
	rule->pointers = palloc(count * sizeof(JsonPointer));
	for (int i = 0; i < count; i++)
	{
		if (nulls[i])
			ereport(ERROR,
					(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
					 errmsg("%s must not contain nulls", field)));
		pointer_parse(TextDatumGetCString(texts[i]), &rule->pointers[i]);
		if (rule->pointers[i].ntokens == 0)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("%s must not name the whole document", field),
					 errhint("Leave it out if everything counts.")));
	}
}

static void
check_distinct(const char *field, const DigestRule *rule)
{
	int			distinct;
	const JsonPointer **sorted = idem_pointers_sorted(rule, &distinct);

	pfree(sorted);
	if (distinct != rule->npointers)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s names a pointer twice", field)));
}

void
idem_digest_rule(ArrayType *include, ArrayType *exclude, DigestRule *rule)
{
	const char *field = include != NULL ? "digest_include" : "digest_exclude";

	memset(rule, 0, sizeof(*rule));
	if (include != NULL && exclude != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("digest_include and digest_exclude exclude each other"),
				 errhint("Give one of them, or neither: then everything counts.")));
	if (include == NULL && exclude == NULL)
		return;
	rule->include = include != NULL;
	rule_from_array(rule->include ? include : exclude, field, rule);
	check_distinct(field, rule);
}

void
idem_exclusions_init(Exclusions *all, const DigestRule *rule)
{
	all->pointers = NULL;
	all->count = 0;
	all->depth = 0;
	if (rule->include || rule->npointers == 0)
		return;
	all->count = rule->npointers;
	all->pointers = palloc(all->count * sizeof(JsonPointer *));
	for (int i = 0; i < all->count; i++)
	{
		if (rule->pointers[i].ntokens == 0)
			elog(ERROR, "a rule excludes the whole document");
		all->pointers[i] = &rule->pointers[i];
	}
}

/* keeps the pointer at i for below; false when it ends here */
static bool
go_on_with(const Exclusions *all, int i, Exclusions *below)
{
	const JsonPointer *pointer = all->pointers[i];

	if (pointer->ntokens == below->depth)
		return false;
	all->pointers[i] = all->pointers[below->count];
	all->pointers[below->count++] = pointer;
	return true;
}

bool
idem_exclusions_member(const Exclusions *all, const JsonMember *member, Exclusions *below)
{
	below->pointers = all->pointers;
	below->count = 0;
	below->depth = all->depth + 1;
	for (int i = 0; i < all->count; i++)
	{
		const PointerToken *token = &all->pointers[i]->tokens[all->depth];

		if (token->utf8_length == member->length &&
			memcmp(token->utf8, member->name, member->length) == 0 &&
			!go_on_with(all, i, below))
			return false;
	}
	return true;
}

bool
idem_exclusions_element(const Exclusions *all, int64 index, Exclusions *below)
{
	below->pointers = all->pointers;
	below->count = 0;
	below->depth = all->depth + 1;
	for (int i = 0; i < all->count; i++)
	{
		if (all->pointers[i]->tokens[all->depth].index == index &&
			!go_on_with(all, i, below))
			return false;
	}
	return true;
}
