-- name: children
-- Of each partition its kind, and whether it is half detached: a DETACH CONCURRENTLY that was interrupted.
select n.nspname, c.relname, c.relkind::text, i.inhdetachpending, c.oid
  from pg_inherits i
  join pg_class c on c.oid = i.inhrelid
  join pg_namespace n on n.oid = c.relnamespace
 where i.inhparent = {oid}

-- name: detach
-- ACCESS EXCLUSIVE on the heap and on its DEFAULT partition: tried for a moment at a time.
alter table {heap} detach partition {partition}

-- name: detach_concurrently
-- SHARE UPDATE EXCLUSIVE. Waits for those who have read the partition; nobody waits for it.
alter table {heap} detach partition {partition} concurrently

-- name: finalize
-- Goes on with one that was interrupted; the same locks.
alter table {heap} detach partition {partition} finalize

-- name: attach_again
-- SHARE UPDATE EXCLUSIVE on the heap, ACCESS EXCLUSIVE on the partition. Reads nothing: DETACH CONCURRENTLY has left a check.
alter table {heap} attach partition {partition} for values from ({lower}) to ({upper})

-- name: lock
-- Tried for a moment at a time.
lock table only {partition} in access exclusive mode

-- name: is_detached
-- Under that lock: whether the table of this name is still the one that was detached.
select exists (select from pg_class c where c.oid = {oid} and c.oid = to_regclass({name}) and not c.relispartition)

-- name: drop
-- ACCESS EXCLUSIVE on a table that is no partition any more. Never with CASCADE.
drop {kind} {partition}
