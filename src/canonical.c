/*
 * canonical.c
 *		One text for equal parameters: RFC 8785 with exact decimals.
 *
 * The text is built in UTF-8 whatever the server's encoding, in one buffer
 * that begins on the caller's stack, by a walk of the jsonb that copies
 * nothing else.  doc/digest.md specifies it; what is written here may never
 * change for IDEM_DIGEST_VERSION 1, since stored digests depend on every byte.
 *
 * Numbers are read in the layout numeric has on disk.  numeric.c keeps that
 * to itself, but it cannot change: pg_upgrade carries the files over.  Going
 * through numeric_send() or numeric_out() costs several times as much, and
 * numeric_out() writes 1e131071 with 131072 digits.
 *
 * idem_canonical_init() ... idem_canonical_free() enclose a use; memory is the
 * current context's, so an error in between leaks nothing.  Raises 54001 for
 * a document nested too deeply and 54000 for a text beyond 1 GB.
 */
#include "canonical.h"

#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/memutils.h"

PG_FUNCTION_INFO_V1(idem_canonical);

/*
 * numeric on disk: one or two uint16 of header, then digits in base 10000,
 * most significant first, trailing zeros dropped.  The first digit counts
 * 10000^weight.  A short header holds it all in 16 bits; a long one holds sign
 * and scale, and the weight in another 16.  The scale is for display only.
 */
#define NUMERIC_KIND_MASK		0xC000
#define NUMERIC_KIND_NEGATIVE	0x4000	/* of a long header */
#define NUMERIC_KIND_SHORT		0x8000
#define NUMERIC_KIND_SPECIAL	0xC000	/* NaN, infinities: never in a jsonb */
#define SHORT_NEGATIVE			0x2000
#define SHORT_WEIGHT_NEGATIVE	0x0040
#define SHORT_WEIGHT_MASK		0x003F
#define DIGIT_CHARS				4	/* decimal digits in one of base 10000 */

/* ECMAScript Number::toString: beyond these an exponent is written */
#define MAX_PLAIN_POINT			21
#define MIN_PLAIN_POINT			(-5)

/* room before the digits for "-0.00000", behind them for zeros or an exponent */
#define NUMBER_LEAD				8
#define NUMBER_TRAIL			32

typedef struct Decimal
{
	bool		is_negative;
	int			weight;			/* of the first digit, in powers of 10000 */
	int			ndigits;		/* in base 10000; 0 for zero */
	const char *digits;			/* uint16 each, perhaps unaligned */
} Decimal;

static void write_node(CanonicalText *out, const JsonNode *node,
					   const Exclusions *exclusions);

void
idem_canonical_init(CanonicalText *out)
{
	out->bytes = out->inlined;
	out->length = 0;
	out->size = CANONICAL_INLINED;
	idem_members_init(&out->stack);
}

void
idem_canonical_free(CanonicalText *out)
{
	idem_members_free(&out->stack);
	if (out->bytes != out->inlined)
		pfree(out->bytes);
	out->bytes = out->inlined;
}

static void
grow(CanonicalText *out, Size extra)
{
	Size		needed = out->length + extra;
	Size		size = Max(out->size * 2, needed);

	if (needed > MaxAllocSize)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("canonical form of the parameters is too long"),
				 errdetail("It exceeds %zu bytes.", (Size) MaxAllocSize)));
	size = Min(size, MaxAllocSize);
	if (out->bytes == out->inlined)
	{
		out->bytes = palloc(size);
		memcpy(out->bytes, out->inlined, out->length);
	}
	else
		out->bytes = repalloc(out->bytes, size);
	out->size = size;
}

static inline char *
reserve(CanonicalText *out, Size extra)
{
	if (out->size - out->length < extra)
		grow(out, extra);
	return out->bytes + out->length;
}

static inline void
put_char(CanonicalText *out, char c)
{
	*reserve(out, 1) = c;
	out->length++;
}

static inline void
put_literal(CanonicalText *out, const char *literal, Size length)
{
	memcpy(reserve(out, length), literal, length);
	out->length += length;
}

/* does any of eight bytes need an escape: below 20, a quote, a backslash? */
static inline bool
has_special(uint64 word)
{
	const uint64 ones = UINT64CONST(0x0101010101010101);
	uint64		quote = word ^ (ones * '"');
	uint64		backslash = word ^ (ones * '\\');
	uint64		special;

	/* x - n borrows into the high bit of a byte where the byte is below n */
	special = (word - ones * 0x20) & ~word;
	special |= (quote - ones) & ~quote;
	special |= (backslash - ones) & ~backslash;
	return (special & (ones * 0x80)) != 0;
}

static void
put_escape(CanonicalText *out, unsigned char c)
{
	static const char hex[] = "0123456789abcdef";
	static const char letters[0x20] = {
		['\b'] = 'b',['\t'] = 't',['\n'] = 'n',['\f'] = 'f',['\r'] = 'r'
	};
	char	   *to = reserve(out, 6);

	to[0] = '\\';
	if (c >= 0x20 || letters[c] != 0)
	{
		to[1] = c >= 0x20 ? c : letters[c];
		out->length += 2;
		return;
	}
	to[1] = 'u';
	to[2] = '0';
	to[3] = '0';
	to[4] = hex[c >> 4];
	to[5] = hex[c & 0x0F];
	out->length += 6;
}

static void
put_string(CanonicalText *out, const char *from, uint32 length)
{
	const char *end = from + length;
	char	   *to = reserve(out, (Size) length + 2);

	*to++ = '"';
	while (from < end)
	{
		unsigned char c;

		if (end - from >= (int) sizeof(uint64))
		{
			uint64		word;

			memcpy(&word, from, sizeof(word));
			if (!has_special(word))
			{
				memcpy(to, &word, sizeof(word));
				to += sizeof(word);
				from += sizeof(word);
				continue;
			}
		}
		c = (unsigned char) *from++;
		if (c >= 0x20 && c != '"' && c != '\\')
		{
			*to++ = c;
			continue;
		}
		out->length = to - out->bytes;
		put_escape(out, c);
		to = reserve(out, (Size) (end - from) + 1);
	}
	*to++ = '"';
	out->length = to - out->bytes;
}

static inline uint16
read_uint16(const char *from)
{
	uint16		value;

	memcpy(&value, from, sizeof(value));
	return value;
}

static void
read_decimal(const char *datum, Decimal *parts)
{
	const char *data = VARDATA_ANY(datum);
	int			length = VARSIZE_ANY_EXHDR(datum);
	uint16		header = read_uint16(data);
	int			header_length = sizeof(uint16);

	switch (header & NUMERIC_KIND_MASK)
	{
		case NUMERIC_KIND_SPECIAL:
			elog(ERROR, "jsonb holds a number that is not finite");
			break;
		case NUMERIC_KIND_SHORT:
			parts->is_negative = (header & SHORT_NEGATIVE) != 0;
			parts->weight = header & SHORT_WEIGHT_MASK;
			if ((header & SHORT_WEIGHT_NEGATIVE) != 0)
				parts->weight -= SHORT_WEIGHT_MASK + 1;
			break;
		default:
			parts->is_negative = (header & NUMERIC_KIND_NEGATIVE) != 0;
			parts->weight = (int16) read_uint16(data + sizeof(uint16));
			header_length += sizeof(uint16);
			break;
	}
	parts->digits = data + header_length;
	parts->ndigits = (length - header_length) / (int) sizeof(uint16);

	/* numeric.c leaves no zeros at an end, but equality must not need that */
	while (parts->ndigits > 0 && read_uint16(parts->digits) == 0)
	{
		parts->digits += sizeof(uint16);
		parts->ndigits--;
		parts->weight--;
	}
}

static inline char *
put_digit(char *to, uint32 digit)
{
	uint32		high = digit / 100;
	uint32		low = digit % 100;

	to[0] = '0' + high / 10;
	to[1] = '0' + high % 10;
	to[2] = '0' + low / 10;
	to[3] = '0' + low % 10;
	return to + DIGIT_CHARS;
}

/*
 * Writes all decimal digits without zeros at either end.  Returns how many;
 * *point is where the decimal point belongs, counted from the first.
 */
static int
decimal_digits(const Decimal *parts, char *digits, int *point)
{
	uint32		first = read_uint16(parts->digits);
	int			leading = (first < 10) ? 3 : (first < 100) ? 2 : (first < 1000) ? 1 : 0;
	char		group[DIGIT_CHARS];
	char	   *to = digits;

	(void) put_digit(group, first);
	for (int i = leading; i < DIGIT_CHARS; i++)
		*to++ = group[i];
	for (int i = 1; i < parts->ndigits; i++)
		to = put_digit(to, read_uint16(parts->digits + i * sizeof(uint16)));
	while (to[-1] == '0')
		to--;
	*point = DIGIT_CHARS * (parts->weight + 1) - leading;
	return to - digits;
}

/* d.ddde+nn, the digits already standing at from, which is at or behind to */
static char *
put_exponent_form(char *to, const char *from, int ndigits, int point)
{
	*to++ = *from++;
	if (ndigits > 1)
	{
		/* from is at least two ahead of to, so the point destroys no digit */
		*to++ = '.';
		memmove(to, from, ndigits - 1);
		to += ndigits - 1;
	}
	return to + sprintf(to, "e%+d", point - 1);
}

static char *
put_plain_form(char *to, const char *from, int ndigits, int point)
{
	int			before = Min(Max(point, 0), ndigits);

	if (point <= 0)
	{
		*to++ = '0';
		*to++ = '.';
		memset(to, '0', -point);
		to += -point;
	}
	memmove(to, from, before);
	to += before;
	if (before > 0 && before < ndigits)
		*to++ = '.';
	memmove(to, from + before, ndigits - before);
	to += ndigits - before;
	if (point > ndigits)
	{
		memset(to, '0', point - ndigits);
		to += point - ndigits;
	}
	return to;
}

static void
put_number(CanonicalText *out, const char *datum)
{
	Decimal		parts;
	char	   *to;
	char	   *digits;
	int			ndigits;
	int			point;

	read_decimal(datum, &parts);
	if (parts.ndigits == 0)
	{
		put_char(out, '0');
		return;
	}
	to = reserve(out, (Size) parts.ndigits * DIGIT_CHARS + NUMBER_LEAD + NUMBER_TRAIL);

	/* the digits first, behind all that may come before them; then moved left */
	digits = to + NUMBER_LEAD;
	ndigits = decimal_digits(&parts, digits, &point);
	if (parts.is_negative)
		*to++ = '-';
	if (point > MAX_PLAIN_POINT || point < MIN_PLAIN_POINT)
		to = put_exponent_form(to, digits, ndigits, point);
	else
		to = put_plain_form(to, digits, ndigits, point);
	out->length = to - out->bytes;
}

static void
write_object(CanonicalText *out, const JsonNode *object, const Exclusions *exclusions)
{
	const char *base = node_base(object);
	int			count = NodeCount(object);
	int			begin = idem_members_push(&out->stack, object);
	bool		is_first = true;

	put_char(out, '{');
	for (int i = 0; i < count; i++)
	{
		JsonMember	member = out->stack.members[begin + i];
		Exclusions	below;
		JsonNode	value;

		if (exclusions != NULL && !idem_exclusions_member(exclusions, &member, &below))
			continue;
		if (!is_first)
			put_char(out, ',');
		is_first = false;
		put_string(out, member.name, member.length);
		put_char(out, ':');
		(void) node_child(object, base, member.entry, member.offset, &value);
		write_node(out, &value,
				   exclusions != NULL && below.count > 0 ? &below : NULL);
	}
	put_char(out, '}');
	out->stack.used = begin;
}

static void
write_array(CanonicalText *out, const JsonNode *array, const Exclusions *exclusions)
{
	const char *base = node_base(array);
	int			count = NodeCount(array);
	uint32		offset = 0;
	bool		is_first = true;

	put_char(out, '[');
	for (int i = 0; i < count; i++)
	{
		Exclusions	below;
		JsonNode	value;

		offset = node_child(array, base, i, offset, &value);
		if (exclusions != NULL && !idem_exclusions_element(exclusions, i, &below))
			continue;
		if (!is_first)
			put_char(out, ',');
		is_first = false;
		write_node(out, &value,
				   exclusions != NULL && below.count > 0 ? &below : NULL);
	}
	put_char(out, ']');
}

static void
write_container(CanonicalText *out, const JsonNode *node, const Exclusions *exclusions)
{
	check_stack_depth();
	if (NodeIsObject(node))
		write_object(out, node, exclusions);
	else
		write_array(out, node, exclusions);
}

static void
write_string(CanonicalText *out, const JsonNode *node)
{
	uint32		length = node->length;
	const char *utf8 = idem_utf8(node->data, &length);

	put_string(out, utf8, length);
	if (utf8 != node->data)
		pfree(unconstify(char *, utf8));
}

static void
write_node(CanonicalText *out, const JsonNode *node, const Exclusions *exclusions)
{
	CHECK_FOR_INTERRUPTS();
	switch (node->type)
	{
		case JENTRY_ISSTRING:
			write_string(out, node);
			break;
		case JENTRY_ISNUMERIC:
			put_number(out, node->data);
			break;
		case JENTRY_ISBOOL_FALSE:
			put_literal(out, "false", 5);
			break;
		case JENTRY_ISBOOL_TRUE:
			put_literal(out, "true", 4);
			break;
		case JENTRY_ISNULL:
			put_literal(out, "null", 4);
			break;
		case JENTRY_ISCONTAINER:
			write_container(out, node, exclusions);
			break;
		default:
			elog(ERROR, "unrecognized jsonb entry: %x", node->type);
	}
}

/* one object whose members are the pointers as written, with what they name */
static const char *
write_included(CanonicalText *out, const JsonNode *root, const DigestRule *rule)
{
	int			count;
	const JsonPointer **pointers = idem_pointers_sorted(rule, &count);

	put_char(out, '{');
	for (int i = 0; i < count; i++)
	{
		JsonNode	value;

		if (!idem_pointer_find(pointers[i], root, &value))
			return pointers[i]->text;
		if (i > 0)
			put_char(out, ',');
		put_string(out, pointers[i]->utf8, pointers[i]->utf8_length);
		put_char(out, ':');
		write_node(out, &value, NULL);
	}
	put_char(out, '}');
	pfree(pointers);
	return NULL;
}

static void
write_remaining(CanonicalText *out, const JsonNode *root, const DigestRule *rule)
{
	Exclusions	exclusions;

	idem_exclusions_init(&exclusions, rule);
	write_node(out, root, &exclusions);
	pfree(exclusions.pointers);
}

const char *
idem_canonical_write(CanonicalText *out, const Jsonb *params, const DigestRule *rule)
{
	JsonNode	root;

	idem_node_root(params, &root);
	if (rule == NULL || rule->npointers == 0)
		write_node(out, &root, NULL);
	else if (rule->include)
		return write_included(out, &root, rule);
	else
		write_remaining(out, &root, rule);
	return NULL;
}

Datum
idem_canonical(PG_FUNCTION_ARGS)
{
	Jsonb	   *params = PG_GETARG_JSONB_P(0);
	CanonicalText canonical;
	char	   *converted;
	text	   *result;

	idem_canonical_init(&canonical);
	(void) idem_canonical_write(&canonical, params, NULL);
	converted = pg_any_to_server(canonical.bytes, (int) canonical.length, PG_UTF8);
	if (converted == canonical.bytes)
		result = cstring_to_text_with_len(canonical.bytes, (int) canonical.length);
	else
		result = cstring_to_text(converted);
	idem_canonical_free(&canonical);
	PG_RETURN_TEXT_P(result);
}
