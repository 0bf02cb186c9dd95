-- name: columns
-- Those of the heap and those of the overlay, which was made with the same ones, in their order. Reads catalogs only.
select a.attrelid = {overlay}::regclass as is_known, a.attname, format_type(a.atttypid, a.atttypmod)
  from pg_attribute as a
 where a.attrelid in ({heap}::regclass, {overlay}::regclass) and a.attnum > 0 and not a.attisdropped
   and not (a.attrelid = {overlay}::regclass and a.attname in ('frostline_live', 'frostline_version', 'frostline_marked_at'))
 order by a.attnum

-- name: is_domain
select from pg_attribute as a join pg_type as t on t.oid = a.atttypid
 where a.attrelid = {oid} and a.attnum = {attnum} and t.typtype = 'd'

-- name: has_old_values
-- ACCESS SHARE on the heap. Reads its partitions below the frost line, which are there for their grace period.
select exists (select from pg_attribute as a
                where a.attrelid in (select relid from pg_partition_tree({heap_name}::regclass))
                  and a.attname = {column_name} and a.atthasmissing)
    or exists (select from {heap} as h where {below_line} and h.{column} is not null
                  and not exists (select from {overlay} as o where {heap_is_overlay} and o.frostline_live))
