-- name: columns
-- Those of the heap and those of the overlay, which was made with the same ones, in their order. Reads catalogs only.
select a.attrelid = {overlay}::regclass as is_known, a.attname, format_type(a.atttypid, a.atttypmod)
  from pg_attribute as a
 where a.attrelid in ({heap}::regclass, {overlay}::regclass) and a.attnum > 0 and not a.attisdropped
   and not (a.attrelid = {overlay}::regclass and a.attname in ('frostline_live', 'frostline_version', 'frostline_marked_at'))
 order by a.attnum
