/*
 * node.c
 *		A jsonb read where it lies, its members in canonical order.
 *
 * jsonb keeps the members of an object sorted by the length of their names
 * and then bytewise in the server's encoding; RFC 8785 wants them by the
 * UTF-16 code units of their names.  So the members are listed and sorted
 * once more, on a stack that all objects of a walk share.
 *
 * Nothing is copied unless the server's encoding is not UTF-8 and a text is
 * not ASCII: idem_utf8() then allocates in the current context, and whoever
 * called it leaves the result to that context.  Raises 22021 for bytes that
 * are not text (possible under SQL_ASCII) and what the conversion raises.
 */
#include "canonical.h"

#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "port/pg_bswap.h"

/* below this, an insertion sort beats a call of qsort */
#define INSERTION_SORT_LIMIT 12

void
idem_node_root(const Jsonb *document, JsonNode *node)
{
	JsonNode	container;

	container.type = JENTRY_ISCONTAINER;
	container.length = VARSIZE(document) - VARHDRSZ;
	container.data = (const char *) &document->root;

	/* a scalar is kept as the one element of a marked array */
	if (JsonContainerIsScalar(&document->root))
		(void) node_child(&container, node_base(&container), 0, 0, node);
	else
		*node = container;
}

/* binary search in jsonb's own order: by length, then bytewise */
bool
idem_node_member(const JsonNode *object, const char *name, uint32 length,
				 JsonNode *value)
{
	const JsonbContainer *header;
	const char *base;
	int			low = 0;
	int			high;

	if (!NodeIsObject(object))
		return false;
	header = NodeContainer(object);
	base = node_base(object);
	high = NodeCount(object);
	while (low < high)
	{
		int			middle = low + (high - low) / 2;
		uint32		found = getJsonbLength(header, middle);
		int			order = (found > length) - (found < length);

		if (order == 0)
			order = memcmp(base + getJsonbOffset(header, middle), name, length);
		if (order == 0)
		{
			uint32		entry = NodeCount(object) + middle;

			(void) node_child(object, base, entry, getJsonbOffset(header, entry), value);
			return true;
		}
		if (order < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return false;
}

bool
idem_node_element(const JsonNode *array, int64 index, JsonNode *value)
{
	if (!NodeIsArray(array) || index < 0 || index >= NodeCount(array))
		return false;
	(void) node_child(array, node_base(array), (uint32) index,
					  getJsonbOffset(NodeContainer(array), (int) index), value);
	return true;
}

void
idem_members_init(MemberStack *stack)
{
	stack->members = stack->inlined;
	stack->used = 0;
	stack->size = MEMBERS_INLINED;
}

void
idem_members_free(MemberStack *stack)
{
	if (stack->members != stack->inlined)
		pfree(stack->members);
	idem_members_init(stack);
}

static void
members_grow(MemberStack *stack, int needed)
{
	Size		size = Max((Size) stack->size * 2, (Size) stack->used + needed);

	/* jsonb has at most 2^28 members in one object: no overflow of Size */
	if (stack->members == stack->inlined)
	{
		stack->members = MemoryContextAllocHuge(CurrentMemoryContext,
												size * sizeof(JsonMember));
		memcpy(stack->members, stack->inlined, stack->used * sizeof(JsonMember));
	}
	else
		stack->members = repalloc_huge(stack->members, size * sizeof(JsonMember));
	stack->size = (int) size;
}

/* the first bytes as one number that orders as they do; no name holds a NUL */
static inline uint64
name_prefix(const char *name, uint32 length)
{
	uint64		prefix = 0;

	if (length >= sizeof(prefix))
	{
		memcpy(&prefix, name, sizeof(prefix));
		return pg_ntoh64(prefix);
	}
	if (length >= 4)
	{
		uint32		first;
		uint32		last;

		/* the two reads overlap; the bytes they share are the same */
		memcpy(&first, name, 4);
		memcpy(&last, name + length - 4, 4);
		return (uint64) pg_ntoh32(first) << 32 |
			(uint64) pg_ntoh32(last) << (8 * (8 - length));
	}
	for (uint32 i = 0; i < length; i++)
		prefix |= (uint64) (unsigned char) name[i] << (56 - 8 * i);
	return prefix;
}

/*
 * UTF-8 sorts by code point, UTF-16 by code unit.  They disagree in one place
 * only: a supplementary character (lead byte F0 to F4) is a surrogate pair
 * from D800 on, which comes before U+E000 to U+FFFF (lead byte EE or EF).
 * Only where texts part company can it matter, and there only if both bytes
 * are such lead bytes, since a continuation byte is below C0.
 */
static inline int
byte_order(unsigned char a, unsigned char b)
{
	if (a >= 0xEE && b >= 0xEE && (a >= 0xF0) != (b >= 0xF0))
		return a >= 0xF0 ? -1 : 1;
	return (a > b) - (a < b);
}

int
idem_utf16_compare(const char *a, uint32 alen, const char *b, uint32 blen)
{
	uint32		shorter = Min(alen, blen);

	for (uint32 i = 0; i < shorter; i++)
	{
		if (a[i] != b[i])
			return byte_order((unsigned char) a[i], (unsigned char) b[i]);
	}
	return (alen > blen) - (alen < blen);
}

static inline int
member_order(const JsonMember *a, const JsonMember *b)
{
	/* without a byte beyond ASCII in either, numbers decide */
	if (a->prefix != b->prefix &&
		((a->prefix | b->prefix) & UINT64CONST(0x8080808080808080)) == 0)
		return a->prefix < b->prefix ? -1 : 1;
	return idem_utf16_compare(a->name, a->length, b->name, b->length);
}

static int
member_order_qsort(const void *a, const void *b)
{
	CHECK_FOR_INTERRUPTS();
	return member_order(a, b);
}

static void
sort_members(JsonMember *members, int count)
{
	if (count > INSERTION_SORT_LIMIT)
	{
		qsort(members, count, sizeof(JsonMember), member_order_qsort);
		return;
	}
	for (int i = 1; i < count; i++)
	{
		JsonMember	moved = members[i];
		int			j = i;

		while (j > 0 && member_order(&members[j - 1], &moved) > 0)
		{
			members[j] = members[j - 1];
			j--;
		}
		if (j != i)
			members[j] = moved;
	}
}

int
idem_members_push(MemberStack *stack, const JsonNode *object)
{
	const JsonbContainer *header = NodeContainer(object);
	const char *base = node_base(object);
	int			count = NodeCount(object);
	int			begin = stack->used;
	bool		is_utf8 = GetDatabaseEncoding() == PG_UTF8;
	uint32		offset = 0;
	JsonMember *members;

	if (stack->size - begin < count)
		members_grow(stack, count);
	members = stack->members + begin;

	/* all names lie before all values */
	for (int i = 0; i < count; i++)
	{
		JsonMember *member = &members[i];

		member->name = base + offset;
		member->length = offset;
		JBE_ADVANCE_OFFSET(offset, header->children[i]);
		member->length = offset - member->length;
		if (!is_utf8)
			member->name = idem_utf8(member->name, &member->length);
		member->prefix = name_prefix(member->name, member->length);
	}
	for (int i = 0; i < count; i++)
	{
		members[i].entry = count + i;
		members[i].offset = offset;
		JBE_ADVANCE_OFFSET(offset, header->children[count + i]);
	}
	stack->used = begin + count;
	sort_members(members, count);
	return begin;
}

/* every server encoding writes ASCII as itself, and nothing else in bytes below 80 */
static bool
is_ascii(const char *bytes, uint32 length)
{
	for (uint32 i = 0; i < length; i++)
	{
		if (IS_HIGHBIT_SET(bytes[i]))
			return false;
	}
	return true;
}

const char *
idem_utf8(const char *bytes, uint32 *length)
{
	const char *converted;

	if (GetDatabaseEncoding() == PG_UTF8 || is_ascii(bytes, *length))
		return bytes;
	converted = pg_server_to_any(bytes, (int) *length, PG_UTF8);
	if (converted != bytes)
		*length = strlen(converted);
	return converted;
}
