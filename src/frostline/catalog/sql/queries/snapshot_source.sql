-- name: relations
-- What has the name of a table, but for temporary ones, system schemas and Frostline's own. A managed table with a lake
-- is there under its relation's name with its heap's oid; the heap, its partitions and the view are not. Reads the system
-- catalogs only; locks nothing.
with managed as (
    select t.schema_name, t.table_name, c.oid
      from frostline.managed_table t
      join pg_namespace n on n.nspname = t.schema_name
      join pg_class c on c.relnamespace = n.oid and c.relname = '_' || t.table_name
     where t.mode = 'tiered'
)
select schema_name as schema, table_name as table, oid, 'p' as kind, false as is_partition, true as is_managed from managed
union all
select n.nspname::text, c.relname::text, c.oid, c.relkind::text, c.relispartition, false
  from pg_class c
  join pg_namespace n on n.oid = c.relnamespace
 where c.relkind in ('r', 'p', 'v', 'm', 'f') and c.relpersistence <> 't'
   and n.nspname <> 'information_schema' and n.nspname !~ '^(pg_|frostline(_|$))'
   and not exists (select from managed m
                    where m.oid in (c.oid, pg_partition_root(c.oid))
                       or m.schema_name = n.nspname and m.table_name = c.relname)

-- name: members
-- Each table with all that its rows are in: partitions and children of any depth. One that is just being detached is not
-- part of it any more. Locks nothing.
with recursive tree as (
    select o.oid as root, o.oid as member from unnest(%(oids)s::oid[]) as o (oid)
    union
    select t.root, i.inhrelid from tree t join pg_inherits i on i.inhparent = t.member and not i.inhdetachpending
)
select t.root, c.oid, n.nspname::text as schema, c.relname::text as table, c.relkind::text as kind
  from tree t join pg_class c on c.oid = t.member join pg_namespace n on n.oid = c.relnamespace
 order by t.root, n.nspname, c.relname

-- name: blocks
-- ACCESS SHARE on each, which the caller has already.
select o.oid, pg_relation_size(o.oid) / current_setting('block_size')::int from unnest(%(oids)s::oid[]) as o (oid)

-- name: oid
-- Of a relation that is there. Locks nothing.
select c.oid from pg_class c join pg_namespace n on n.oid = c.relnamespace
 where n.nspname = %(schema)s and c.relname = %(table)s

-- name: moment
-- The position is read after the snapshot was taken: all that the snapshot has is before it.
select pg_export_snapshot() as snapshot, pg_current_wal_insert_lsn()::text as lsn, clock_timestamp() as taken_at
