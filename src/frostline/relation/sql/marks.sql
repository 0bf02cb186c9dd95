-- name: remember
-- Under the fold's snapshot: which marks it saw, and which version of each.
create temp table frostline_folded on commit preserve rows as
    select {key}, frostline_version from {overlay} where {below_line}

-- name: forget
drop table if exists pg_temp.frostline_folded

-- name: count
select count(*) from pg_temp.frostline_folded

-- name: index
-- Overlay and heap change too fast for their statistics, and a note of a million keys fits into no hash table. With an
-- index on our side, no join of the two is slow either way.
create index on pg_temp.{note} ({key})

-- name: analyze
analyze pg_temp.{note}

-- name: be_silent
insert into frostline.folding (xid, table_id) values (pg_current_xact_id(), {table_id})

-- name: be_silent_setting
select set_config('frostline.folding', 'on', true)

-- name: speak_again
delete from frostline.folding where xid = pg_current_xact_id() and table_id = {table_id}

-- name: replication_role
select current_setting('session_replication_role')

-- name: set_replication_role
select set_config('session_replication_role', {role}, true)

-- name: lock_heap
-- Heap rows first: the order in which writers lock. Whoever holds one keeps its mark.
create temp table frostline_locked on commit drop as
    select {heap_key}, h.tableoid as frostline_partition
      from {heap} as h join pg_temp.frostline_folded as f on {heap_is_folded}
     where {heap_below_line}
       for update of h skip locked

-- name: lock_overlay
create temp table frostline_done on commit drop as
    select {overlay_key}
      from {overlay} as o
      join pg_temp.frostline_folded as f on {overlay_is_folded} and o.frostline_version = f.frostline_version
     where exists (select from pg_temp.frostline_locked as l where {overlay_is_locked})
        or not exists (select from {heap} as h where {heap_is_overlay} and {heap_below_line})
       for update of o skip locked

-- name: delete_heap
-- A partition in its grace period keeps its rows: it is still the complete truth of its range.
delete from {heap} as h
 using pg_temp.frostline_done as d join pg_temp.frostline_locked as l on {done_is_locked}
 where {heap_is_done} and {heap_below_line} and h.tableoid = l.frostline_partition and not (l.frostline_partition = any({in_grace}::oid[]))

-- name: delete_overlay
delete from {overlay} as o using pg_temp.frostline_done as d where {overlay_is_done}

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
