-- name: begin
insert into frostline.expiring_partition (table_id, partition_oid, partition_name, upper, drops)
values (%(table_id)s, %(oid)s, %(name)s, %(upper)s, %(drops)s)
on conflict (table_id, partition_oid) do update
   set partition_name = excluded.partition_name, upper = excluded.upper, drops = excluded.drops, detached = false,
       server = excluded.server

-- name: set_detached
update frostline.expiring_partition set detached = true where table_id = %(table_id)s and partition_oid = %(oid)s

-- name: forget
delete from frostline.expiring_partition where table_id = %(table_id)s and partition_oid = %(oid)s

-- name: list_all
-- What the catalogs of Postgres have now under each oid; nothing for one that is gone. Locks nothing.
select e.partition_oid as oid, e.upper, e.drops, e.detached as is_detached, e.partition_name as known_as,
       n.nspname as schema, c.relname as table, c.relkind::text as kind, coalesce(c.relispartition, false) as is_partition
  from frostline.expiring_partition e
  left join pg_class c on c.oid = e.partition_oid and c.relkind in ('r', 'p', 'f') and e.server = frostline.this_server()
  left join pg_namespace n on n.oid = c.relnamespace
 where e.table_id = %(table_id)s
 order by e.upper
