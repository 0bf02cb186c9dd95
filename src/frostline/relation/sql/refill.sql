-- name: forget
drop table if exists pg_temp.frostline_applied

-- name: note
-- Which marks are in the refilled table already, and which version of each. Ends with the session.
create temp table frostline_applied as select {key}, frostline_version from {overlay} limit 0

-- name: index_note
create index on pg_temp.frostline_applied ({key})

-- name: fresh
create temp table frostline_fresh on commit drop as
    select {overlay_key}, o.frostline_version
      from {overlay} as o
     where {in_range}
       and not exists (select from pg_temp.frostline_applied as a
                        where {applied_is_overlay} and a.frostline_version = o.frostline_version)

-- name: analyze_fresh
analyze pg_temp.frostline_fresh

-- name: take_out
delete from only {refill} as r using pg_temp.frostline_fresh as f where {refill_is_fresh}

-- name: put_in
-- A mark that changed since it was noted has another version by now, and is noted again next time.
insert into {refill} ({written})
select {overlay_written} from {overlay} as o join pg_temp.frostline_fresh as f on {overlay_is_fresh} where o.frostline_live

-- name: remember
insert into pg_temp.frostline_applied select * from pg_temp.frostline_fresh

-- name: done_with_fresh
drop table pg_temp.frostline_fresh

-- name: leave_default
-- These rows are in the overlay, and so in the refilled table.
delete from only {partition} as h using {overlay} as o where {heap_in_range} and {overlay_is_heap} and o.frostline_live

-- name: has_rows_in_range
select exists (select from only {partition} as h where {heap_in_range})

-- name: indexes
select c.relname from pg_index i join pg_class c on c.oid = i.indexrelid where i.indrelid = {refill}::regclass order by 1

-- name: holders
select distinct l.pid
  from pg_locks l
 where l.locktype = 'relation' and l.granted and l.pid <> pg_backend_pid()
   and l.database = (select oid from pg_database where datname = current_database())
   and l.relation = any(array[{relations}]::regclass[])
 order by 1
