/*
 * key.c
 *		The base type idem_key: "tenant/operation/id", the identity of an action.
 *
 * A value is laid out exactly like text, so it can be handed to SPI as text
 * and cast to text without a function.  What must hold for every value, and
 * is checked by every way in (input, receive, the casts, the constructor):
 *
 *	- the first slash ends the tenant, the second ends the operation, the
 *	  rest is the id; none of the three is empty;
 *	- tenant and operation hold no white space, no part holds a control
 *	  character, the id neither starts nor ends with white space;
 *	- it has at most IDEM_KEY_MAX_BYTES bytes in the server's encoding.
 *
 * Nothing is normalized: a key is its bytes.  Order and equality are those of
 * memcmp, a shorter key before a longer one that it begins, whatever the
 * collation of the database.  So equal keys are equal images, and the keys of
 * one tenant are neighbours in an index.
 *
 * Which characters are white space or control characters is written down
 * here and asked of no locale: the same key must be accepted on every server,
 * before and after an upgrade of its libraries.  Server encodings never use a
 * byte below 0x80 inside a longer character, so the ASCII rules can look at
 * bytes under any of them; the rules beyond ASCII apply where the encoding
 * is UTF8.
 *
 * Results are allocated in the caller's context.  (key_order.c compares and
 * hashes.)
 */
#include "postgres.h"

#include "libpq/pqformat.h"
#include "mb/pg_wchar.h"
#include "nodes/nodes.h"
#include "utils/builtins.h"

#include "idem_action.h"

#define NAME_MAX_BYTES 256

/* stands for every character that no rule speaks of */
#define OTHER_CHARACTER 0xFFFFFFFF


/* what is wrong with a key; the two make a phrase, "tenant" "is empty" */
typedef struct KeyFault
{
	const char *subject;		/* "tenant", "operation", "id" or "key" */
	const char *problem;		/* a verb and its object */
} KeyFault;

typedef struct CodePointRange
{
	uint32		first;
	uint32		last;			/* included */
} CodePointRange;

/* the code points with the Unicode property White_Space */
static const CodePointRange white_space[] = {
	{0x0009, 0x000D},
	{0x0020, 0x0020},
	{0x0085, 0x0085},
	{0x00A0, 0x00A0},
	{0x1680, 0x1680},
	{0x2000, 0x200A},
	{0x2028, 0x2029},
	{0x202F, 0x202F},
	{0x205F, 0x205F},
	{0x3000, 0x3000},
};

static bool
is_white_space(uint32 character)
{
	for (int i = 0; i < lengthof(white_space); i++)
	{
		if (character >= white_space[i].first && character <= white_space[i].last)
			return true;
	}
	return false;
}

/* Unicode category Cc: C0, DEL and C1 */
static bool
is_control(uint32 character)
{
	return character < 0x20 || (character >= 0x7F && character <= 0x9F);
}

/*
 * Steps over one character and returns its code point, or OTHER_CHARACTER.
 * No rule speaks of a code point that takes four bytes in UTF-8, so those are
 * passed byte by byte.  Never reads at or beyond end, whatever the bytes are.
 */
static uint32
next_character(const char **at, const char *end, bool is_utf8)
{
	const unsigned char *bytes = (const unsigned char *) *at;
	ptrdiff_t	left = end - *at;

	if (is_utf8 && left >= 2 && (bytes[0] & 0xE0) == 0xC0)
	{
		*at += 2;
		return ((bytes[0] & 0x1F) << 6) | (bytes[1] & 0x3F);
	}
	if (is_utf8 && left >= 3 && (bytes[0] & 0xF0) == 0xE0)
	{
		*at += 3;
		return ((bytes[0] & 0x0F) << 12) | ((bytes[1] & 0x3F) << 6) | (bytes[2] & 0x3F);
	}
	*at += 1;
	return bytes[0] < 0x80 ? bytes[0] : OTHER_CHARACTER;
}

/* nothing but visible ASCII: the usual key, on which no character rule can fail */
static bool
is_visible_ascii(const char *bytes, int length)
{
	for (int i = 0; i < length; i++)
	{
		unsigned char byte = bytes[i];

		if (byte <= 0x20 || byte >= 0x7F)
			return false;
	}
	return true;
}

/* what is wrong with the characters of a part, or NULL */
static const char *
character_problem(const KeyPart *part, bool may_hold_white_space)
{
	const char *at = part->bytes;
	const char *end = part->bytes + part->length;
	bool		is_utf8 = GetDatabaseEncoding() == PG_UTF8;
	bool		is_first = true;
	bool		is_space = false;

	while (at < end)
	{
		uint32		character = next_character(&at, end, is_utf8);

		is_space = is_white_space(character);
		if (is_control(character))
			return "holds a control character";
		if (is_space && !may_hold_white_space)
			return "holds white space";
		if (is_space && is_first)
			return "starts with white space";
		is_first = false;
	}
	return is_space ? "ends with white space" : NULL;
}

/* what is wrong with one part, or NULL; bytes are NULL where its slash is missing */
static const char *
part_problem(const KeyPart *part, bool may_hold_white_space)
{
	if (part->bytes == NULL)
		return "is missing";
	if (part->length == 0)
		return "is empty";
	if (is_visible_ascii(part->bytes, part->length))
		return NULL;
	return character_problem(part, may_hold_white_space);
}

static KeyPart
part_between(const char *begin, const char *end)
{
	KeyPart		part = {begin, end - begin};

	return part;
}

/* cuts at the first two slashes; parts behind a missing slash get NULL */
static void
split(const char *bytes, int length, KeyParts *parts)
{
	const char *end = bytes + length;
	const char *first = memchr(bytes, '/', length);
	const char *second = first ? memchr(first + 1, '/', end - first - 1) : NULL;

	memset(parts, 0, sizeof(*parts));
	parts->tenant = part_between(bytes, first ? first : end);
	if (first)
		parts->operation = part_between(first + 1, second ? second : end);
	if (second)
		parts->id = part_between(second + 1, end);
}

/* returns whether there is a fault, the first from the left */
static bool
find_fault(const char *bytes, Size length, KeyFault *fault)
{
	KeyParts	parts;

	if (length > IDEM_KEY_MAX_BYTES)
	{
		fault->subject = "key";
		fault->problem = "is longer than " CppAsString2(IDEM_KEY_MAX_BYTES) " bytes";
		return true;
	}

	split(bytes, length, &parts);
	fault->subject = "tenant";
	if ((fault->problem = part_problem(&parts.tenant, false)) != NULL)
		return true;
	fault->subject = "operation";
	if ((fault->problem = part_problem(&parts.operation, false)) != NULL)
		return true;
	fault->subject = "id";
	fault->problem = part_problem(&parts.id, true);
	return fault->problem != NULL;
}

/*
 * The bytes as an error message may show them: control characters, and white
 * space that looks like a plain space or like nothing, are written \uXXXX.
 */
static char *
visible(const char *bytes, int length)
{
	const char *at = bytes;
	const char *end = bytes + length;
	bool		is_utf8 = GetDatabaseEncoding() == PG_UTF8;
	StringInfoData shown;

	initStringInfo(&shown);
	while (at < end)
	{
		const char *begin = at;
		uint32		character = next_character(&at, end, is_utf8);

		if (character != ' ' && (is_control(character) || is_white_space(character)))
			appendStringInfo(&shown, "\\u%04X", character);
		else
			appendBinaryStringInfo(&shown, begin, at - begin);
	}
	return shown.data;
}

/* reports the fault; returns false where the caller's context asks for soft errors */
static bool
report_fault(const KeyFault *fault, const char *bytes, Size length, Node *context)
{
	ereturn(context, false,
			(errcode(ERRCODE_INVALID_TEXT_REPRESENTATION),
			 errmsg("invalid idem_key: %s %s", fault->subject, fault->problem),
			 length <= IDEM_KEY_MAX_BYTES ?
			 errdetail("The key is \"%s\".", visible(bytes, length)) :
			 errdetail("The key has %zu bytes.", length),
			 errhint("Write a key as \"tenant/operation/id\".")));
}

static bool
check_key(const char *bytes, Size length, Node *context)
{
	KeyFault	fault;

	if (!find_fault(bytes, length, &fault))
		return true;
	return report_fault(&fault, bytes, length, context);
}

void
idem_key_split(const IdemKey *key, KeyParts *parts)
{
	split(VARDATA_ANY(key), VARSIZE_ANY_EXHDR(key), parts);
	if (parts->id.bytes == NULL)
		elog(ERROR, "idem_key without its two slashes");
}

/* the same bytes? */
bool
idem_key_part_is(const KeyPart *part, const text *name)
{
	return part->length == VARSIZE_ANY_EXHDR(name) &&
		memcmp(part->bytes, VARDATA_ANY(name), part->length) == 0;
}

/* the faults of an operation's name, in the order in which they are looked for */
static const char *
name_problem(const KeyPart *name)
{
	if (name->length > NAME_MAX_BYTES)
		return "is longer than " CppAsString2(NAME_MAX_BYTES) " bytes";
	if (memchr(name->bytes, '/', name->length) != NULL)
		return "holds a slash";
	return part_problem(name, false);
}

void
idem_key_check_name(const char *bytes, int length, const char *what)
{
	KeyPart		name = {bytes, length};
	const char *problem = name_problem(&name);

	if (problem == NULL)
		return;
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("%s name %s", what, problem),
			 length <= NAME_MAX_BYTES ?
			 errdetail("The name is \"%s\".", visible(bytes, length)) :
			 errdetail("The name has %d bytes.", length)));
}

/* ---- ways in and out ---- */

PG_FUNCTION_INFO_V1(idem_key_in);
Datum
idem_key_in(PG_FUNCTION_ARGS)
{
	char	   *bytes = PG_GETARG_CSTRING(0);
	Size		length = strlen(bytes);

	if (!check_key(bytes, length, fcinfo->context))
		PG_RETURN_NULL();
	PG_RETURN_TEXT_P(cstring_to_text_with_len(bytes, length));
}

PG_FUNCTION_INFO_V1(idem_key_out);
Datum
idem_key_out(PG_FUNCTION_ARGS)
{
	PG_RETURN_CSTRING(TextDatumGetCString(PG_GETARG_DATUM(0)));
}

PG_FUNCTION_INFO_V1(idem_key_recv);
Datum
idem_key_recv(PG_FUNCTION_ARGS)
{
	StringInfo	message = (StringInfo) PG_GETARG_POINTER(0);
	int			length;
	char	   *bytes = pq_getmsgtext(message, message->len - message->cursor, &length);

	if (!check_key(bytes, length, fcinfo->context))
		PG_RETURN_NULL();
	PG_RETURN_TEXT_P(cstring_to_text_with_len(bytes, length));
}

PG_FUNCTION_INFO_V1(idem_key_send);
Datum
idem_key_send(PG_FUNCTION_ARGS)
{
	IdemKey    *key = PG_GETARG_IDEM_KEY_PP(0);
	StringInfoData message;

	pq_begintypsend(&message);
	pq_sendtext(&message, VARDATA_ANY(key), VARSIZE_ANY_EXHDR(key));
	PG_RETURN_BYTEA_P(pq_endtypsend(&message));
}

/* the casts from text and varchar: the value itself, once it is known to be a key */
PG_FUNCTION_INFO_V1(idem_key_from_text);
Datum
idem_key_from_text(PG_FUNCTION_ARGS)
{
	text	   *source = PG_GETARG_TEXT_PP(0);

	if (!check_key(VARDATA_ANY(source), VARSIZE_ANY_EXHDR(source), fcinfo->context))
		PG_RETURN_NULL();
	PG_RETURN_TEXT_P(source);
}

static bool
holds_slash(const text *part)
{
	return memchr(VARDATA_ANY(part), '/', VARSIZE_ANY_EXHDR(part)) != NULL;
}

static char *
append_bytes(char *to, const text *part)
{
	memcpy(to, VARDATA_ANY(part), VARSIZE_ANY_EXHDR(part));
	return to + VARSIZE_ANY_EXHDR(part);
}

/* the three parts with slashes between them, unchecked */
static IdemKey *
join_parts(const text *tenant, const text *operation, const text *id, Size length)
{
	IdemKey    *key = palloc(VARHDRSZ + length);
	char	   *to = VARDATA(key);

	SET_VARSIZE(key, VARHDRSZ + length);
	to = append_bytes(to, tenant);
	*to++ = '/';
	to = append_bytes(to, operation);
	*to++ = '/';
	append_bytes(to, id);
	return key;
}

/* NULL where a fault was reported softly */
static IdemKey *
construct_key(const text *tenant, const text *operation, const text *id, Node *context)
{
	Size		length = (Size) VARSIZE_ANY_EXHDR(tenant) + VARSIZE_ANY_EXHDR(operation) +
		VARSIZE_ANY_EXHDR(id) + 2;
	IdemKey    *key;

	/* too long: refused by its length alone, before anything is copied */
	if (length > IDEM_KEY_MAX_BYTES)
	{
		check_key(NULL, length, context);
		return NULL;
	}

	key = join_parts(tenant, operation, id, length);

	/* such a slash would become the border between two parts */
	if (holds_slash(tenant) || holds_slash(operation))
	{
		KeyFault	fault = {holds_slash(tenant) ? "tenant" : "operation", "holds a slash"};

		report_fault(&fault, VARDATA(key), length, context);
		return NULL;
	}
	return check_key(VARDATA(key), length, context) ? key : NULL;
}

PG_FUNCTION_INFO_V1(idem_key);
Datum
idem_key(PG_FUNCTION_ARGS)
{
	IdemKey    *key = construct_key(PG_GETARG_TEXT_PP(0), PG_GETARG_TEXT_PP(1),
									PG_GETARG_TEXT_PP(2), fcinfo->context);

	if (key == NULL)
		PG_RETURN_NULL();
	PG_RETURN_POINTER(key);
}

/* ---- accessors ---- */

static Datum
part_datum(KeyPart part)
{
	return PointerGetDatum(cstring_to_text_with_len(part.bytes, part.length));
}

PG_FUNCTION_INFO_V1(idem_key_tenant);
Datum
idem_key_tenant(PG_FUNCTION_ARGS)
{
	KeyParts	parts;

	idem_key_split(PG_GETARG_IDEM_KEY_PP(0), &parts);
	PG_RETURN_DATUM(part_datum(parts.tenant));
}

PG_FUNCTION_INFO_V1(idem_key_operation);
Datum
idem_key_operation(PG_FUNCTION_ARGS)
{
	KeyParts	parts;

	idem_key_split(PG_GETARG_IDEM_KEY_PP(0), &parts);
	PG_RETURN_DATUM(part_datum(parts.operation));
}

PG_FUNCTION_INFO_V1(idem_key_id);
Datum
idem_key_id(PG_FUNCTION_ARGS)
{
	KeyParts	parts;

	idem_key_split(PG_GETARG_IDEM_KEY_PP(0), &parts);
	PG_RETURN_DATUM(part_datum(parts.id));
}
