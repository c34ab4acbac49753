/*
 * compat.h
 *		Every test of the server's version, each saying when it can go.
 */
#ifndef IDEM_COMPAT_H
#define IDEM_COMPAT_H

#include "postgres.h"

#include "catalog/namespace.h"
#include "miscadmin.h"
#if PG_VERSION_NUM >= 170000
#include "storage/dsm_registry.h"
#endif
#include "storage/lwlock.h"
#include "storage/shmem.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/relcache.h"

#if PG_VERSION_NUM < 150000
#error "idem_action needs PostgreSQL 15 or later"
#endif

/* soft errors came with PostgreSQL 16; delete with PostgreSQL 15 */
#if PG_VERSION_NUM < 160000
#define ereturn(context, dummy_value, ...) ereport(ERROR, __VA_ARGS__)
#endif

/*
 * Pin search_path to pg_catalog for a statement of ours, and unpin it.  An
 * error in between is undone by the transaction's abort.
 *
 * Before 17: an override on the namespace stack, which costs next to nothing.
 * Delete that branch with PostgreSQL 16.
 */
#if PG_VERSION_NUM >= 170000
static inline int
idem_pin_search_path(void)
{
	int			level = NewGUCNestLevel();

	RestrictSearchPath();
	return level;
}

static inline void
idem_unpin_search_path(int level)
{
	AtEOXact_GUC(false, level);
}
#else
static inline int
idem_pin_search_path(void)
{
	OverrideSearchPath path = {.schemas = NIL,.addCatalog = true,.addTemp = false};

	PushOverrideSearchPath(&path);
	return 0;
}

static inline void
idem_unpin_search_path(int level)
{
	PopOverrideSearchPath();
}
#endif

/* 18 can be asked for deferrable keys too; delete with PostgreSQL 17 */
#if PG_VERSION_NUM >= 180000
#define idem_primary_key(relation) RelationGetPrimaryKeyIndex(relation, false)
#else
#define idem_primary_key(relation) RelationGetPrimaryKeyIndex(relation)
#endif

/* 16 has one check for all kinds of object; delete with PostgreSQL 15 */
#if PG_VERSION_NUM >= 160000
#define idem_may_execute(function) \
	object_aclcheck(ProcedureRelationId, function, GetUserId(), ACL_EXECUTE)
#else
#define idem_may_execute(function) pg_proc_aclcheck(function, GetUserId(), ACL_EXECUTE)
#endif

/* likewise for ownership; delete with PostgreSQL 15 */
#if PG_VERSION_NUM >= 160000
#define idem_owns_table(relid) \
	object_ownercheck(RelationRelationId, relid, GetUserId())
#else
#define idem_owns_table(relid) pg_class_ownercheck(relid, GetUserId())
#endif

/* likewise for schemas; delete with PostgreSQL 15 */
#if PG_VERSION_NUM >= 160000
#define idem_may_use_schema(schema, role) \
	object_aclcheck(NamespaceRelationId, schema, role, ACL_USAGE)
#else
#define idem_may_use_schema(schema, role) pg_namespace_aclcheck(schema, role, ACL_USAGE)
#endif

/* 17 keeps it with the rest of the virtual transaction id; delete with PostgreSQL 16 */
#if PG_VERSION_NUM >= 170000
#define idem_local_xid() (MyProc->vxid.lxid)
#else
#define idem_local_xid() (MyProc->lxid)
#endif

/* 18 is told which row to leave out, here the one being inserted; delete with PostgreSQL 17 */
#if PG_VERSION_NUM >= 180000
#define idem_is_unique(target, slot, estate, conflict, arbiters) \
	ExecCheckIndexConstraints(target, slot, estate, conflict, &(slot)->tts_tid, arbiters)
#else
#define idem_is_unique(target, slot, estate, conflict, arbiters) \
	ExecCheckIndexConstraints(target, slot, estate, conflict, arbiters)
#endif

/* 16 is told whether only summarizing indexes are meant; delete with PostgreSQL 15 */
#if PG_VERSION_NUM >= 160000
#define idem_insert_index_tuples(target, slot, estate, is_lost, arbiters) \
	ExecInsertIndexTuples(target, slot, estate, false, true, is_lost, arbiters, false)
#else
#define idem_insert_index_tuples(target, slot, estate, is_lost, arbiters) \
	ExecInsertIndexTuples(target, slot, estate, false, true, is_lost, arbiters)
#endif

/*
 * Memory that all backends share, under a name, without
 * shared_preload_libraries; whoever is first initializes it.  It lasts until
 * the server stops.  Raises an error where it cannot be had.
 *
 * Before 17 there is no memory for this but what every server has to spare in
 * its main segment, about 100 kB for everybody: take little of it.  Delete
 * that branch, and the smaller number of slots, with PostgreSQL 16.
 */
#if PG_VERSION_NUM >= 170000
#define IDEM_OBSERVE_SLOTS 1000

static inline void *
idem_shared_memory(const char *name, Size size, void (*init) (void *memory))
{
	bool		is_found;
	void	   *memory;

	if (IsUnderPostmaster)
		return GetNamedDSMSegment(name, size, init, &is_found);
	/* a single-user backend has no such segments, and nobody to share with */
	memory = MemoryContextAlloc(TopMemoryContext, size);
	init(memory);
	return memory;
}
#else
#define IDEM_OBSERVE_SLOTS 200

static inline void *
idem_shared_memory(const char *name, Size size, void (*init) (void *memory))
{
	bool		is_found;
	void	   *memory;

	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	memory = ShmemInitStruct(name, size, &is_found);
	if (!is_found)
		init(memory);
	LWLockRelease(AddinShmemInitLock);
	return memory;
}
#endif

/* 18 counts what a scan does where EXPLAIN asks for it; delete with PostgreSQL 17 */
#if PG_VERSION_NUM >= 180000
#define idem_index_beginscan(relation, index, snapshot, nkeys) \
	index_beginscan(relation, index, snapshot, NULL, nkeys, 0)
#else
#define idem_index_beginscan(relation, index, snapshot, nkeys) \
	index_beginscan(relation, index, snapshot, nkeys, 0)
#endif

#endif							/* IDEM_COMPAT_H */
