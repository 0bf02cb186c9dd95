-- Which foreign keys managed tables have: docs/design/foreign-keys.md. Filled by `relation.foreign_keys` through psycopg.sql.

-- name: read
-- The foreign keys of a table. Reads system catalogs, locks nothing.
select c.conname::text as constraint,
       array(select a.attname::text from unnest(c.conkey) with ordinality k (number, place)
               join pg_attribute a on a.attrelid = c.conrelid and a.attnum = k.number order by k.place) as columns,
       n.nspname::text as schema, p.relname::text as parent, c.confdeltype::text as on_delete, c.confupdtype::text as on_update,
       c.condeferrable as deferrable, frostline.foreign_key_obstacle(c.oid) as obstacle,
       exists (select from frostline.managed_table t
                where t.mode = 'tiered' and t.schema_name = n.nspname and t.heap_name = p.relname) as parent_is_managed
  from pg_constraint c
  join pg_class p on p.oid = c.confrelid
  join pg_namespace n on n.oid = p.relnamespace
 where c.conrelid = {heap}::regclass and c.contype = 'f' and c.conparentid = 0
 order by c.oid

-- name: forbidden
-- Where triggers are wanted, and this role may not put them. Reads system catalogs, locks nothing.
select n.nspname::text, c.relname::text, current_user::text
  from frostline.foreign_key_parents({heap}::regclass) p
  join pg_class c on c.oid = p.parent
  join pg_namespace n on n.oid = c.relnamespace
 where not has_table_privilege(c.oid, 'trigger')
 order by c.oid

-- name: strayed
-- Tables whose foreign keys lead to another place than their triggers, or are held by another role than the heap's owner. Reads
-- system catalogs, locks nothing.
select t.schema_name, t.table_name
  from frostline.managed_table t
 cross join lateral (select frostline.heap_of(t.table_id) as heap,
                            to_regproc('frostline_relation.children_' || t.table_id)::oid as function) r
 where t.mode = 'tiered' and t.foreign_keys = 'hold' and r.heap is not null
   and (exists (select from frostline.foreign_key_parents(r.heap) p
                 where not exists (select from pg_trigger g where g.tgrelid = p.parent and g.tgfoid = r.function))
        or exists (select from frostline.relation_stray_triggers(t.table_id))
        or exists (select from frostline.cold_children_silenced(t.table_id))
        or (select f.proowner from pg_proc f where f.oid = r.function) <> (select c.relowner from pg_class c where c.oid = r.heap))
 order by 1, 2
