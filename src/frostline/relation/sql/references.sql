-- name: inbound
-- The foreign keys that point at a table, its partitions' copies of them left out. Reads the system catalogs only; locks nothing.
select c.conname::text as constraint, n.nspname::text as schema, r.relname::text as child,
       array(select a.attname::text from unnest(c.confkey) with ordinality as k (attnum, position)
               join pg_attribute a on a.attrelid = c.confrelid and a.attnum = k.attnum order by k.position) as parent_columns,
       array(select a.attname::text from unnest(c.conkey) with ordinality as k (attnum, position)
               join pg_attribute a on a.attrelid = c.conrelid and a.attnum = k.attnum order by k.position) as child_columns
  from pg_constraint c
  join pg_class r on r.oid = c.conrelid
  join pg_namespace n on n.oid = r.relnamespace
 where c.confrelid = {heap}::regclass and c.contype = 'f' and c.conparentid = 0
 order by 1

-- name: referenced
-- The first few rows of a partition that another table references.
select row({key})::text from only {partition} as h
 where exists (select from {child} as c where {same})
 limit {most}

-- name: keep_referenced
-- In a transaction that has locked the rows: nobody can reference one of them any more, and whoever does already is seen.
delete from pg_temp.frostline_locked as l using {heap} as h
 where h.tableoid = l.frostline_partition and h.ctid = l.frostline_row
   and exists (select from {child} as c where {same})

-- name: delete_rows
-- Under a lock that keeps out writers and those who would reference a row. Postgres truncates no table that a foreign key points at.
delete from only {partition}

-- name: detach
alter table {heap} detach partition {partition}
