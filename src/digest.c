/*
 * digest.c
 *		Parameters as 33 bytes: a rule version and a SHA-256.
 *
 * The hash is over the canonical text in UTF-8, all of it built first and
 * given to libcrypto in one go.  libcrypto's context is made once and kept for
 * the life of the backend, since to look the algorithm up and allocate for it
 * costs more than to hash a few hundred bytes.  It holds no memory of ours,
 * every use begins by resetting it, and nothing between may throw, so an error
 * leaves it fit for the next.
 *
 * The type is ordered bytewise, version first.  Its input raises 22P02, its
 * binary input 22P03.  Functions of a rule raise 22023 and 22004 for a bad one
 * and ID007 for an included pointer that is not there.
 */
#include "canonical.h"

#include <openssl/evp.h>

#include "common/hashfn.h"
#include "lib/stringinfo.h"
#include "libpq/pqformat.h"
#include "utils/builtins.h"
#include "utils/sortsupport.h"

#define SHALLOW_BYTES 32768

PG_FUNCTION_INFO_V1(idem_digest);
PG_FUNCTION_INFO_V1(idem_digest_under_rule);
PG_FUNCTION_INFO_V1(idem_differences);
PG_FUNCTION_INFO_V1(idem_digest_in);
PG_FUNCTION_INFO_V1(idem_digest_out);
PG_FUNCTION_INFO_V1(idem_digest_recv);
PG_FUNCTION_INFO_V1(idem_digest_send);
PG_FUNCTION_INFO_V1(idem_digest_eq);
PG_FUNCTION_INFO_V1(idem_digest_ne);
PG_FUNCTION_INFO_V1(idem_digest_lt);
PG_FUNCTION_INFO_V1(idem_digest_le);
PG_FUNCTION_INFO_V1(idem_digest_gt);
PG_FUNCTION_INFO_V1(idem_digest_ge);
PG_FUNCTION_INFO_V1(idem_digest_cmp);
PG_FUNCTION_INFO_V1(idem_digest_sortsupport);
PG_FUNCTION_INFO_V1(idem_digest_hash);
PG_FUNCTION_INFO_V1(idem_digest_hash_extended);

#define HASH_BYTES  32
#define TEXT_PREFIX "v1:"
#define TEXT_LENGTH (3 + 2 * HASH_BYTES)

StaticAssertDecl(sizeof(Digest) == 33, "the SQL type is 33 bytes long");

static EVP_MD_CTX *sha256_context = NULL;	/* kept, set up for SHA-256 */

static void
make_sha256_context(void)
{
	EVP_MD_CTX *context = EVP_MD_CTX_new();

	if (context != NULL && EVP_DigestInit_ex(context, EVP_sha256(), NULL) == 1)
	{
		sha256_context = context;
		return;
	}
	EVP_MD_CTX_free(context);
	ereport(ERROR,
			(errcode(ERRCODE_SYSTEM_ERROR),
			 errmsg("could not set up SHA-256 in libcrypto")));
}

static void
digest_bytes(const char *bytes, Size length, Digest *digest)
{
	if (sha256_context == NULL)
		make_sha256_context();

	/* no algorithm given: the same one again, without another look-up */
	if (EVP_DigestInit_ex(sha256_context, NULL, NULL) != 1 ||
		EVP_DigestUpdate(sha256_context, bytes, length) != 1 ||
		EVP_DigestFinal_ex(sha256_context, digest->hash, NULL) != 1)
		ereport(ERROR,
				(errcode(ERRCODE_SYSTEM_ERROR),
				 errmsg("could not compute a SHA-256 in libcrypto")));
	digest->version = IDEM_DIGEST_VERSION;
}

const char *
idem_digest_params(Jsonb *params, const DigestRule *rule, Digest *digest)
{
	CanonicalText canonical;
	const char *missing;

	idem_canonical_init(&canonical);
	missing = idem_canonical_write(&canonical, params, rule);
	if (missing == NULL)
		digest_bytes(canonical.bytes, canonical.length, digest);
	idem_canonical_free(&canonical);
	return missing;
}

/*
 * Refuses what has no digest, which a purge must be able to make of every
 * result (54000, 54001).  A document is nested no deeper than an eighth of
 * its bytes, so a small one needs no trial.
 */
void
idem_digest_check(Jsonb *document)
{
	Digest		digest;

	if (VARSIZE(document) > SHALLOW_BYTES)
		(void) idem_digest_params(document, NULL, &digest);
}

bool
idem_digest_is_of(const Digest *digest, Jsonb *document)
{
	Digest		given;

	(void) idem_digest_params(document, NULL, &given);
	return memcmp(&given, digest, sizeof(Digest)) == 0;
}

Datum
idem_digest(PG_FUNCTION_ARGS)
{
	Jsonb	   *params = PG_GETARG_JSONB_P(0);
	Digest	   *digest = palloc(sizeof(Digest));

	(void) idem_digest_params(params, NULL, digest);
	PG_FREE_IF_COPY(params, 0);
	PG_RETURN_POINTER(digest);
}

static Jsonb *
params_argument(FunctionCallInfo fcinfo, int n)
{
	if (PG_ARGISNULL(n))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("parameters must not be null"),
				 errhint("Where there are none, give an empty object.")));
	return PG_GETARG_JSONB_P(n);
}

static void
rule_arguments(FunctionCallInfo fcinfo, int n, DigestRule *rule)
{
	ArrayType  *include = PG_ARGISNULL(n) ? NULL : PG_GETARG_ARRAYTYPE_P(n);
	ArrayType  *exclude = PG_ARGISNULL(n + 1) ? NULL : PG_GETARG_ARRAYTYPE_P(n + 1);

	idem_digest_rule(include, exclude, rule);
}

Datum
idem_digest_under_rule(PG_FUNCTION_ARGS)
{
	Jsonb	   *params = params_argument(fcinfo, 0);
	Digest	   *digest = palloc(sizeof(Digest));
	DigestRule	rule;
	const char *missing;

	rule_arguments(fcinfo, 1, &rule);
	missing = idem_digest_params(params, &rule, digest);
	if (missing != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_MISSING_PARAMETER),
				 errmsg("parameters have nothing at \"%s\"", missing),
				 errdetail("digest_include names this pointer, so it must be present."),
				 errhint("Correct the pointer or give the parameter.")));
	PG_RETURN_POINTER(digest);
}

Datum
idem_differences(PG_FUNCTION_ARGS)
{
	Jsonb	   *stored = params_argument(fcinfo, 0);
	Jsonb	   *given = params_argument(fcinfo, 1);
	DigestRule	rule;

	rule_arguments(fcinfo, 2, &rule);
	PG_RETURN_ARRAYTYPE_P(idem_digest_differences(stored, given, &rule));
}

/* ---- the type ---- */

static inline int
hex_value(unsigned char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c |= 0x20;
	return (c >= 'a' && c <= 'f') ? c - 'a' + 10 : -1;
}

static bool
parse_digest(const char *string, Digest *digest)
{
	if (strncmp(string, TEXT_PREFIX, strlen(TEXT_PREFIX)) != 0)
		return false;
	string += strlen(TEXT_PREFIX);
	for (int i = 0; i < HASH_BYTES; i++)
	{
		int			high = hex_value((unsigned char) string[0]);
		int			low;

		/* a short one ends here, before its terminator is passed */
		if (high < 0 || (low = hex_value((unsigned char) string[1])) < 0)
			return false;
		digest->hash[i] = high << 4 | low;
		string += 2;
	}
	digest->version = IDEM_DIGEST_VERSION;
	return *string == '\0';
}

Datum
idem_digest_in(PG_FUNCTION_ARGS)
{
	const char *string = PG_GETARG_CSTRING(0);
	Digest	   *digest = palloc(sizeof(Digest));

	if (!parse_digest(string, digest))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_TEXT_REPRESENTATION),
				 errmsg("invalid input syntax for type %s", "idem_digest"),
				 errdetail("A digest is \"" TEXT_PREFIX "\" and 64 hexadecimal digits."),
				 errhint("To make the digest of parameters given as a literal, cast it: "
						 "idem_digest('...'::jsonb).")));
	PG_RETURN_POINTER(digest);
}

static void
write_digest(const Digest *digest, char *to)
{
	static const char hex[] = "0123456789abcdef";

	memcpy(to, TEXT_PREFIX, strlen(TEXT_PREFIX));
	to += strlen(TEXT_PREFIX);
	for (int i = 0; i < HASH_BYTES; i++)
	{
		*to++ = hex[digest->hash[i] >> 4];
		*to++ = hex[digest->hash[i] & 0x0F];
	}
}

Datum
idem_digest_out(PG_FUNCTION_ARGS)
{
	char	   *string = palloc(TEXT_LENGTH + 1);

	write_digest(DatumGetDigestP(PG_GETARG_DATUM(0)), string);
	string[TEXT_LENGTH] = '\0';
	PG_RETURN_CSTRING(string);
}

Datum
idem_digest_text(const Digest *digest)
{
	text	   *string = palloc(VARHDRSZ + TEXT_LENGTH);

	SET_VARSIZE(string, VARHDRSZ + TEXT_LENGTH);
	write_digest(digest, VARDATA(string));
	return PointerGetDatum(string);
}

Datum
idem_digest_recv(PG_FUNCTION_ARGS)
{
	StringInfo	message = (StringInfo) PG_GETARG_POINTER(0);
	Digest	   *digest = palloc(sizeof(Digest));

	digest->version = pq_getmsgbyte(message);
	if (digest->version != IDEM_DIGEST_VERSION)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_BINARY_REPRESENTATION),
				 errmsg("unsupported version of type %s: %d", "idem_digest",
						digest->version)));
	pq_copymsgbytes(message, (char *) digest->hash, HASH_BYTES);
	PG_RETURN_POINTER(digest);
}

Datum
idem_digest_send(PG_FUNCTION_ARGS)
{
	Digest	   *digest = DatumGetDigestP(PG_GETARG_DATUM(0));
	StringInfoData message;

	pq_begintypsend(&message);
	pq_sendbytes(&message, (char *) digest, sizeof(Digest));
	PG_RETURN_BYTEA_P(pq_endtypsend(&message));
}

static inline int
digest_order(Datum a, Datum b)
{
	return memcmp(DatumGetPointer(a), DatumGetPointer(b), sizeof(Digest));
}

#define DIGEST_COMPARISON(name, operator) \
Datum \
name(PG_FUNCTION_ARGS) \
{ \
	PG_RETURN_BOOL(digest_order(PG_GETARG_DATUM(0), PG_GETARG_DATUM(1)) operator 0); \
}

DIGEST_COMPARISON(idem_digest_eq, ==)
DIGEST_COMPARISON(idem_digest_ne, !=)
DIGEST_COMPARISON(idem_digest_lt, <)
DIGEST_COMPARISON(idem_digest_le, <=)
DIGEST_COMPARISON(idem_digest_gt, >)
DIGEST_COMPARISON(idem_digest_ge, >=)

Datum
idem_digest_cmp(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT32(digest_order(PG_GETARG_DATUM(0), PG_GETARG_DATUM(1)));
}

static int
compare_for_sort(Datum a, Datum b, SortSupport ssup)
{
	return digest_order(a, b);
}

Datum
idem_digest_sortsupport(PG_FUNCTION_ARGS)
{
	SortSupport ssup = (SortSupport) PG_GETARG_POINTER(0);

	ssup->comparator = compare_for_sort;
	PG_RETURN_VOID();
}

Datum
idem_digest_hash(PG_FUNCTION_ARGS)
{
	Digest	   *digest = DatumGetDigestP(PG_GETARG_DATUM(0));

	return hash_any((unsigned char *) digest, sizeof(Digest));
}

Datum
idem_digest_hash_extended(PG_FUNCTION_ARGS)
{
	Digest	   *digest = DatumGetDigestP(PG_GETARG_DATUM(0));

	return hash_any_extended((unsigned char *) digest, sizeof(Digest),
							 (uint64) PG_GETARG_INT64(1));
}
