-- name: children
-- Of each partition its kind, and whether it is half detached: a DETACH CONCURRENTLY that was interrupted.
select n.nspname, c.relname, c.relkind::text, i.inhdetachpending
  from pg_inherits i
  join pg_class c on c.oid = i.inhrelid
  join pg_namespace n on n.oid = c.relnamespace
 where i.inhparent = {oid}

-- name: to_be_dropped
-- Partitions that were detached to be dropped, by their comment.
select n.nspname, c.relname, c.relkind::text
  from pg_class c join pg_namespace n on n.oid = c.relnamespace
 where c.relkind in ('r', 'p', 'f') and not c.relispartition and obj_description(c.oid, 'pg_class') = {made_by}
 order by 1, 2

-- name: mark
-- SHARE UPDATE EXCLUSIVE on the partition.
comment on {kind} {partition} is {made_by}

-- name: detach
-- ACCESS EXCLUSIVE on the heap and on its DEFAULT partition: tried for a moment at a time.
alter table {heap} detach partition {partition}

-- name: detach_concurrently
-- SHARE UPDATE EXCLUSIVE. Waits for those who have read the partition; nobody waits for it.
alter table {heap} detach partition {partition} concurrently

-- name: finalize
-- Goes on with one that was interrupted; the same locks.
alter table {heap} detach partition {partition} finalize

-- name: drop
-- ACCESS EXCLUSIVE on a table that is no partition any more. Never with CASCADE.
drop {kind} {partition}
