-- name: inbound
-- The foreign keys that point at a table, its partitions' copies of them left out. Of a managed table that holds its keys, what its rows
-- in the lake are: those count too. Reads the system catalogs only; locks nothing.
select c.conname::text as constraint, n.nspname::text as schema, r.relname::text as child, r.oid as child_oid,
       array(select a.attname::text from unnest(c.confkey) with ordinality as k (attnum, position)
               join pg_attribute a on a.attrelid = c.confrelid and a.attnum = k.attnum order by k.position) as parent_columns,
       array(select a.attname::text from unnest(c.conkey) with ordinality as k (attnum, position)
               join pg_attribute a on a.attrelid = c.conrelid and a.attnum = k.attnum order by k.position) as child_columns,
       array(select p.atttypid = a.atttypid from unnest(c.confkey, c.conkey) with ordinality as k (ours, theirs, position)
               join pg_attribute p on p.attrelid = c.confrelid and p.attnum = k.ours
               join pg_attribute a on a.attrelid = c.conrelid and a.attnum = k.theirs order by k.position) as same_types,
       (select frostline.cold_rows(t.table_id) from frostline.managed_table t
         where t.mode = 'tiered' and t.foreign_keys = 'hold' and frostline.heap_of(t.table_id) = c.conrelid
           and frostline.foreign_key_obstacle(c.oid) is null) as cold_rows
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

-- name: referenced_from_both_tiers
-- The same of a managed table, whose rows in the lake count too; asks the lake if the heap has none. One statement, with one snapshot: a
-- row that a job moves from one tier to the other meanwhile is seen in one of them.
with cold as materialized (select {their_columns} from ({cold_rows}) as c where {in_range})
select f.referenced
  from (select row({key})::text as referenced from only {partition} as h where exists (select from {child} as c where {same})
        union all
        select row({key})::text from only {partition} as h where exists (select from cold as c where {same})) as f
 limit {most}

-- name: keep_referenced
-- In a transaction that has locked the rows: nobody can reference one of them any more, and whoever does already is seen.
delete from pg_temp.frostline_locked as l using {heap} as h
 where h.tableoid = l.frostline_partition and h.ctid = l.frostline_row
   and exists (select from {child} as c where {same})

-- name: has_locked
select exists (select from pg_temp.frostline_locked)

-- name: keep_referenced_from_both_tiers
-- The same of a managed table, whose rows in the lake count too: one question there, for the keys of the locked rows.
with keys as materialized (
    select {our_columns} from pg_temp.frostline_locked as l
      join {heap} as h on h.tableoid = l.frostline_partition and h.ctid = l.frostline_row
), cold as materialized (
    select {their_columns} from ({cold_rows}) as c where {is_listed}
)
delete from pg_temp.frostline_locked as l using {heap} as h
 where h.tableoid = l.frostline_partition and h.ctid = l.frostline_row
   and (exists (select from {child} as c where {same}) or exists (select from cold as c where {same}))

-- name: cold_children
-- Managed tables with foreign keys of a heap that hold for rows in the lake. Reads catalogs, locks nothing.
select t.schema_name, t.table_name
  from frostline.managed_table t
 where t.mode = 'tiered' and t.foreign_keys = 'hold'
   and exists (select from pg_constraint c
                where c.conrelid = frostline.heap_of(t.table_id) and c.confrelid = {heap}::regclass and c.contype = 'f' and c.conparentid = 0)
 order by t.table_id

-- name: look_for_cold_children
-- 23503 if a row in the lake references one of the partition. Asks the lake if it has rows; locks nothing.
select frostline.cold_children_of_detached({table_id}, {heap}::regclass, {name}::regclass)

-- name: delete_rows
-- Under a lock that keeps out writers and those who would reference a row. Postgres truncates no table that a foreign key points at.
delete from only {partition}

-- name: detach
alter table {heap} detach partition {partition}
