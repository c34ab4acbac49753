/*
 * idem_action.h
 *		What the rooms of idem_action show each other.
 *
 * Prototypes stand under the file that defines them.  A room includes this
 * header and nothing else of ours; arrows between rooms point down only:
 *
 *		key, canonical -> digest		pure values, no tables
 *		state							pure rules (state.h), no SQL, no clock
 *		contract						reads contracts, caches them
 *		store							the only one that touches the action tables
 *		action							parses arguments, asks state, tells store
 *
 * Modules are loaded RTLD_GLOBAL, so whatever is not static is prefixed
 * idem_.
 */
#ifndef IDEM_ACTION_H
#define IDEM_ACTION_H

#include "postgres.h"

#include "fmgr.h"
#include "utils/array.h"
#include "utils/jsonb.h"

#include "compat.h"
#include "errors.h"

/* ---- key.c: the identity of an action ---- */

typedef struct varlena IdemKey; /* laid out as text: "tenant/operation/id" */

#define IDEM_KEY_MAX_BYTES 512

typedef struct KeyPart
{
	const char *bytes;			/* points into the key, not terminated */
	int			length;			/* bytes */
} KeyPart;

typedef struct KeyParts
{
	KeyPart		tenant;			/* before the first slash */
	KeyPart		operation;		/* up to the second */
	KeyPart		id;				/* the rest, slashes included */
} KeyParts;

/* the parts of a valid key; the key must stay where it is meanwhile */
extern void idem_key_split(const IdemKey *key, KeyParts *parts);

/* an operation's name as it may stand in a key; raises 22023 if it may not */
extern void idem_key_check_operation(const char *bytes, int length);

/* ---- canonical.c: one text for equal parameters ---- */

typedef struct JsonPointer
{
	char	   *text;			/* as written, e.g. "/order/amount" */
	int			ntokens;		/* 0: the whole document */
	char	  **tokens;			/* unescaped, terminated, server encoding */
} JsonPointer;

/* RFC 6901; raises 22023 when the text is no pointer; allocates in the current context */
extern void idem_pointer_parse(const char *text, JsonPointer *pointer);

/* ---- digest.c: what counts, as 33 bytes ---- */

#define IDEM_DIGEST_VERSION 1

typedef struct Digest
{
	uint8		version;		/* rule that made it: IDEM_DIGEST_VERSION */
	uint8		hash[32];		/* SHA-256 of the canonical text in UTF-8 */
} Digest;

#define DatumGetDigestP(datum)	((Digest *) DatumGetPointer(datum))
#define DigestPGetDatum(digest)	PointerGetDatum(digest)

typedef struct DigestRule
{
	bool		include;		/* pointers name what counts, else what does not */
	int			npointers;		/* 0: everything counts */
	JsonPointer *pointers;		/* in the order of the contract */
} DigestRule;

/*
 * The digest of the parameters under a rule.  Returns NULL when it was made,
 * else the first included pointer that the parameters do not have.
 */
extern const char *idem_digest_params(Jsonb *params, const DigestRule *rule,
									  Digest *digest);

/* pointers (never values) at which two documents differ under a rule, as text[] */
extern ArrayType *idem_digest_differences(Jsonb *stored, Jsonb *given,
										  const DigestRule *rule);

#endif							/* IDEM_ACTION_H */
