-- name: remember
-- Under the fold's snapshot: which marks it saw, where they lie, and which version of each.
create temp table frostline_folded on commit preserve rows as
    select ctid as frostline_mark, {key}, frostline_version from {overlay} where {below_line}

-- name: forget
drop table if exists pg_temp.frostline_folded

-- name: count
select count(*) from pg_temp.frostline_folded

-- name: index
-- The heap changes too fast for its statistics, and a note of a million keys fits into no hash table. With an index on our
-- side, no join of the two is slow either way.
create index on pg_temp.frostline_folded ({key})

-- name: analyze
analyze pg_temp.{note}

-- name: disable_marking
insert into frostline.folding (xid, table_id) values (pg_current_xact_id(), {table_id})

-- name: disable_marking_setting
select set_config('frostline.folding', 'on', true)

-- name: enable_marking
delete from frostline.folding where xid = pg_current_xact_id() and table_id = {table_id}

-- name: replication_role
select current_setting('session_replication_role')

-- name: set_replication_role
select set_config('session_replication_role', {role}, true)

-- name: lock_heap
-- Heap rows first: the order in which writers lock. Whoever holds one keeps its mark.
create temp table frostline_locked on commit drop as
    select f.frostline_mark, h.tableoid as frostline_partition, h.ctid as frostline_row
      from {heap} as h join pg_temp.frostline_folded as f on {heap_is_folded}
     where {heap_below_line}
       for update of h skip locked

-- name: lock_overlay
-- A mark that was changed lies elsewhere, and what lies in its place has another version. Looked up by their places: the
-- overlay changes too fast for its statistics, and a join with it could read a note whole for each mark.
create temp table frostline_done on commit drop as
    with ready as materialized (
        select f.frostline_mark, f.frostline_version, l.frostline_partition, l.frostline_row
          from pg_temp.frostline_folded as f left join pg_temp.frostline_locked as l using (frostline_mark)
         where l.frostline_mark is not null
            or not exists (select from {heap} as h where {heap_is_folded} and {heap_below_line})
    ), held as materialized (
        select o.ctid as frostline_mark, o.frostline_version
          from {overlay} as o
         where o.ctid = any(array(select r.frostline_mark from ready as r))
           for update of o skip locked
    )
    select r.frostline_mark, r.frostline_partition, r.frostline_row
      from ready as r join held using (frostline_mark, frostline_version)

-- name: emptied_partitions
-- A partition in its grace period keeps its rows: it must have all of its range until it is cleaned.
select n.nspname, c.relname, c.oid
  from pg_catalog.pg_class as c join pg_catalog.pg_namespace as n on n.oid = c.relnamespace
 where c.oid in (select d.frostline_partition from pg_temp.frostline_done as d) and not (c.oid = any({in_grace}::oid[]))

-- name: lock_partition
-- As a writer has it.
lock table only {partition} in row exclusive mode

-- name: delete_heap
-- By their places, which cannot change: we have locked the rows.
delete from only {partition} as h
 where h.ctid = any(array(select d.frostline_row from pg_temp.frostline_done as d where d.frostline_partition = {oid}))

-- name: delete_overlay
delete from {overlay} as o where o.ctid = any(array(select d.frostline_mark from pg_temp.frostline_done as d))

-- name: lock_lost
-- Each looked up by its key, whatever the statistics say. Once its mark is locked, nobody else can mark that key.
create temp table frostline_lost on commit drop as
    select {overlay_key}
      from {overlay} as o
     where {overlay_in_range} and o.frostline_live
       and (select true from {heap} as h where {heap_is_overlay} and {heap_in_range} limit 1) is null
       for update of o skip locked

-- name: delete_lost
-- Looked up again, because the row may have come back before the lock was ours.
delete from {overlay} as o using pg_temp.frostline_lost as l
 where {overlay_is_lost} and o.frostline_live
   and (select true from {heap} as h where {heap_is_overlay} and {heap_in_range} limit 1) is null

-- name: done_with_lost
drop table pg_temp.frostline_lost
