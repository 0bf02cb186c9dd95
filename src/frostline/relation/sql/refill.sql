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

-- name: keep_added
-- The values of columns that were added to the heap later: the overlay's images have none.
update only {refill} as r set {assignments} from only {partition} as h where {heap_in_range} and {refill_is_heap}

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

-- name: foreign_keys
-- Of the heap: name, the other table, and the condition under which a row of the first has its row in the other. Only
-- those that are compared with operators of Postgres' own. Locks nothing.
select c.conname, c.confrelid::regclass::text,
       (select string_agg(format('r.%I is not null', a.attname), ' and ' order by k.place)
          from unnest(c.conkey) with ordinality k (number, place)
          join pg_attribute a on a.attrelid = c.conrelid and a.attnum = k.number),
       (select string_agg(format('p.%I operator(pg_catalog.%s) r.%I', b.attname, o.oprname, a.attname), ' and ' order by k.place)
          from unnest(c.conkey, c.confkey, c.conpfeqop) with ordinality k (number, other, operator, place)
          join pg_attribute a on a.attrelid = c.conrelid and a.attnum = k.number
          join pg_attribute b on b.attrelid = c.confrelid and b.attnum = k.other
          join pg_operator o on o.oid = k.operator)
  from pg_constraint c
 where c.conrelid = {heap}::regclass and c.contype = 'f' and c.conparentid = 0
   and not exists (select from unnest(c.conpfeqop) q join pg_operator o on o.oid = q
                    where o.oprnamespace <> 'pg_catalog'::regnamespace)
 order by 1

-- name: orphans
select count(*) from only {refill} as r where {has_key} and not exists (select from {parent} as p where {is_parent})
