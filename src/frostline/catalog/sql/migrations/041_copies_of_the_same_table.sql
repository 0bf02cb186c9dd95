-- The rights on a table copy of a named snapshot are those of the table that was copied. Which one that is was told by its name alone: who made
-- another table under that name, after a rename or a drop, could read the copy.
create or replace view frostline.pointer_source as
with lake as (
    -- Of several foreign tables the oldest counts, of those whose owner could be the server's: any other role may let its foreign table ask
    -- for whatever lake table it likes.
    select l.lake_table_id, l.namespace, l.table_name, l.owner, f.oid
      from frostline.lake_table l
      left join lateral (select t.ftrelid as oid from pg_foreign_table t
                           join pg_foreign_server s on s.oid = t.ftserver and s.srvname = 'frostline_lake'
                           join pg_class c on c.oid = t.ftrelid
                          where 'table_name=lake_' || l.lake_table_id = any(t.ftoptions)
                            and (c.relowner = s.srvowner or pg_has_role(c.relowner, s.srvowner, 'member'))
                          order by t.ftrelid limit 1) f on true
     where l.state = 'live')
select o.table_namespace, o.table_name, o.belongs_to, 'tiered' as kind,
       to_regclass(o.belongs_to)::oid as source, r.heap_oid as secured, null::integer as lake_table_id, null::text as owner
  from frostline.own_pointer o
  left join frostline.seam_relation r on r.schema_name = o.table_namespace and r.overlay = o.table_name
 where not starts_with(o.belongs_to, 'snapshot ')
union all
select t.namespace, t.lake_table, 'snapshot ' || s.name, 'copy', source.oid, coalesce(source.heap_oid, source.oid), null, null
  from frostline.snapshot_table t
  join frostline.snapshot s on s.snapshot_id = t.snapshot_id
  left join lateral (
    -- By its number, or, of one that another server has copied and that this one was restored from, by its name.
    select n.oid, r.heap_oid
      from (select to_regclass(format('%I.%I', t.schema_name, t.table_name))::oid as oid) n
      left join frostline.seam_relation r on r.schema_name = t.schema_name and r.table_name = t.table_name
     where t.read_from is null and (t.source_oid = coalesce(r.heap_oid, n.oid) or s.server <> frostline.this_server())
    union all
    select l.oid, null from lake l where t.read_from is not null and l.lake_table_id::bigint = t.source_oid::bigint) source on true
 where s.state = 'published' and s.catalog_uri is null
   and s.version = (select max(n.version) from frostline.snapshot n
                     where n.name = s.name and n.state = 'published' and n.catalog_uri is null)
union all
select l.namespace, l.table_name, format('%I.%I', l.namespace, l.table_name), 'lake', l.oid, l.oid, l.lake_table_id, l.owner from lake l;
