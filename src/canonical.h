/*
 * canonical.h
 *		What node.c, pointer.c, canonical.c, digest.c and difference.c share.
 *
 * Everything here reads a detoasted jsonb in place: a node, a member's name
 * or a text that needed no conversion points into it, so the document must
 * stay where it is meanwhile.
 */
#ifndef IDEM_CANONICAL_H
#define IDEM_CANONICAL_H

#include "idem_action.h"

/* ---- node.c: a jsonb read where it lies ---- */

typedef struct JsonNode
{
	uint32		type;			/* JENTRY_ISSTRING and so on, see jsonb.h */
	uint32		length;			/* bytes */
	const char *data;			/* in the jsonb; of a container, its header */
} JsonNode;

typedef struct JsonMember
{
	uint64		prefix;			/* first eight bytes of the name, big-endian */
	const char *name;			/* UTF-8, not terminated */
	uint32		length;			/* of the name, bytes */
	uint32		entry;			/* which child of the container the value is */
	uint32		offset;			/* where the value's data begin */
} JsonMember;

#define MEMBERS_INLINED 24

/* members of the objects around the place of a walk, the innermost on top */
typedef struct MemberStack
{
	JsonMember *members;		/* inlined, or palloc'd once too small */
	int			used;
	int			size;
	JsonMember	inlined[MEMBERS_INLINED];
} MemberStack;

#define NodeContainer(node) \
	((const JsonbContainer *) (node)->data)
#define NodeIsObject(node) \
	((node)->type == JENTRY_ISCONTAINER && JsonContainerIsObject(NodeContainer(node)))
#define NodeIsArray(node) \
	((node)->type == JENTRY_ISCONTAINER && JsonContainerIsArray(NodeContainer(node)))
#define NodeCount(node) \
	((int) JsonContainerSize(NodeContainer(node)))

/* the whole document; a scalar at the root is that scalar */
extern void idem_node_root(const Jsonb *document, JsonNode *node);

/* false when there is no such member or element, or the node is no such container */
extern bool idem_node_member(const JsonNode *object, const char *name, uint32 length,
							 JsonNode *value);
extern bool idem_node_element(const JsonNode *array, int64 index, JsonNode *value);

/*
 * Pushes the members of an object in canonical order and returns where they
 * begin; to pop them, set stack->used back to that.  A push may move the
 * stack: hold indexes, not addresses.
 */
extern void idem_members_init(MemberStack *stack);
extern int	idem_members_push(MemberStack *stack, const JsonNode *object);
extern void idem_members_free(MemberStack *stack);

/* the order of RFC 8785 of two UTF-8 texts: by UTF-16 code units */
extern int	idem_utf16_compare(const char *a, uint32 alen, const char *b, uint32 blen);

/* a text of the server in UTF-8: the very bytes where they will do, else palloc'd */
extern const char *idem_utf8(const char *bytes, uint32 *length);

/* first byte of a container's data */
static inline const char *
node_base(const JsonNode *container)
{
	const JsonbContainer *header = NodeContainer(container);
	uint32		nchildren = JsonContainerSize(header);

	if (JsonContainerIsObject(header))
		nchildren *= 2;
	return (const char *) &header->children[nchildren];
}

/* the child with this entry, whose data begin at offset; returns where they end */
static inline uint32
node_child(const JsonNode *container, const char *base, uint32 entry, uint32 offset,
		   JsonNode *child)
{
	JEntry		je = NodeContainer(container)->children[entry];
	uint32		end = offset;
	uint32		begin = offset;

	JBE_ADVANCE_OFFSET(end, je);
	child->type = je & JENTRY_TYPEMASK;
	if (child->type == JENTRY_ISCONTAINER || child->type == JENTRY_ISNUMERIC)
		begin = INTALIGN(offset);	/* padding leads the datum */
	child->data = base + begin;
	child->length = end - begin;
	return end;
}

/* ---- pointer.c: JSON Pointers and what they leave out ---- */

/*
 * The exclusions that may still apply below some place.  Entering a child
 * brings those that go on there to the front of the one array, within the
 * part that the place itself has, so no level needs a copy.
 */
typedef struct Exclusions
{
	const JsonPointer **pointers;
	int			count;
	int			depth;			/* tokens that led to the place */
} Exclusions;

extern bool idem_pointer_find(const JsonPointer *pointer, const JsonNode *root,
							  JsonNode *found);

/* the pointers of a rule, once each, sorted as names are; palloc'd */
extern const JsonPointer **idem_pointers_sorted(const DigestRule *rule, int *count);

extern void idem_exclusions_init(Exclusions *all, const DigestRule *rule);

/* false when the member or element is itself excluded, else what applies below it */
extern bool idem_exclusions_member(const Exclusions *all, const JsonMember *member,
								   Exclusions *below);
extern bool idem_exclusions_element(const Exclusions *all, int64 index,
									Exclusions *below);

/* ---- canonical.c: one text for equal parameters ---- */

#define CANONICAL_INLINED 1024

typedef struct CanonicalText
{
	char	   *bytes;			/* UTF-8; inlined, or palloc'd once too small */
	Size		length;
	Size		size;
	MemberStack stack;			/* of the walk */
	char		inlined[CANONICAL_INLINED];
} CanonicalText;

extern void idem_canonical_init(CanonicalText *out);
extern void idem_canonical_free(CanonicalText *out);

/*
 * Writes the document that a rule selects.  Returns NULL when done, else the
 * first included pointer that the parameters do not have.
 */
extern const char *idem_canonical_write(CanonicalText *out, const Jsonb *params,
										const DigestRule *rule);

#endif							/* IDEM_CANONICAL_H */
