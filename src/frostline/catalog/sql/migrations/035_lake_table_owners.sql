-- A lake table's rights are those of its foreign table. Which one that is was told by what foreign tables ask for, and their owners may
-- change that: a role could make the rights on any lake table its own. And who might change all rows could drop, rename and alter the
-- table too, which in Postgres is for its owner.
create or replace view frostline.pointer_source as
select o.table_namespace, o.table_name, o.belongs_to, 'tiered' as kind,
       to_regclass(o.belongs_to)::oid as source, r.heap_oid as secured, null::integer as lake_table_id, null::text as owner
  from frostline.own_pointer o
  left join frostline.seam_relation r on r.schema_name = o.table_namespace and r.overlay = o.table_name
 where not starts_with(o.belongs_to, 'snapshot ')
union all
select t.namespace, t.lake_table, 'snapshot ' || s.name, 'copy', source.oid, coalesce(r.heap_oid, source.oid), null, null
  from frostline.snapshot_table t
  join frostline.snapshot s on s.snapshot_id = t.snapshot_id
 cross join lateral (select to_regclass(format('%I.%I', t.schema_name, t.table_name))::oid as oid) source
  left join frostline.seam_relation r on r.schema_name = t.schema_name and r.table_name = t.table_name
 where s.state = 'published' and s.catalog_uri is null
   and s.version = (select max(n.version) from frostline.snapshot n
                     where n.name = s.name and n.state = 'published' and n.catalog_uri is null)
union all
-- Of several foreign tables the oldest counts, of those whose owner could be the server's: any other role may let its foreign table ask
-- for whatever lake table it likes.
select l.namespace, l.table_name, format('%I.%I', l.namespace, l.table_name), 'lake', f.oid, f.oid, l.lake_table_id, l.owner
  from frostline.lake_table l
  left join lateral (select t.ftrelid as oid from pg_foreign_table t
                       join pg_foreign_server s on s.oid = t.ftserver and s.srvname = 'frostline_lake'
                       join pg_class c on c.oid = t.ftrelid
                      where 'table_name=lake_' || l.lake_table_id = any(t.ftoptions)
                        and (c.relowner = s.srvowner or pg_has_role(c.relowner, s.srvowner, 'member'))
                      order by t.ftrelid limit 1) f on true
 where l.state = 'live';

-- Whether a role can become the owner of a lake table: of its foreign table, or, where there is none, of the lake table itself.
create function frostline.owns_lake_table(role name, source oid, owner text) returns boolean
language sql stable set search_path = pg_catalog, pg_temp as $$
    select frostline.acts_for(role, coalesce((select pg_get_userbyid(c.relowner)::text from pg_class c where c.oid = source), owner))
$$;
revoke execute on function frostline.owns_lake_table(name, oid, text) from public;
