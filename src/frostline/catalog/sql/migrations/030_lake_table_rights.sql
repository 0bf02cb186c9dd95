-- A lake table without a foreign table was for every token, so a plain DROP FOREIGN TABLE opened it to all. Now it is for those who can
-- become its owner. Nor is a foreign table believed for its name any more: anybody who may use some other foreign server could make one.
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
-- Of several foreign tables the oldest counts.
select l.namespace, l.table_name, format('%I.%I', l.namespace, l.table_name), 'lake', f.oid, f.oid, l.lake_table_id, l.owner
  from frostline.lake_table l
  left join lateral (select t.ftrelid as oid from pg_foreign_table t
                       join pg_foreign_server s on s.oid = t.ftserver and s.srvname = 'frostline_lake'
                      where 'table_name=lake_' || l.lake_table_id = any(t.ftoptions)
                      order by t.ftrelid limit 1) f on true
 where l.state = 'live';

create or replace view frostline.catalog_table as
select p.table_namespace, p.table_name, p.metadata_location, s.belongs_to, coalesce(s.kind, 'other') as kind, s.source, s.secured,
       s.lake_table_id, s.owner
  from frostline.iceberg_tables p
  left join frostline.pointer_source s on s.table_namespace = p.table_namespace and s.table_name = p.table_name
 where p.catalog_name = 'frostline' and coalesce(p.iceberg_type, 'TABLE') = 'TABLE' and p.metadata_location is not null;

-- Whether a role can become the one of that name, or, when there is none, the one that owns the catalog.
create function frostline.acts_for(role name, owner text) returns boolean
language sql stable set search_path = pg_catalog, pg_temp as $$
    select pg_has_role(role, coalesce((select r.oid from pg_roles r where r.rolname = owner),
                                      (select c.relowner from pg_class c where c.oid = 'frostline.seam'::regclass)), 'usage')
$$;

drop function frostline.may_read_all(name, text, oid, oid), frostline.may_change_all(name, oid);

-- Whether a role may read all rows of what a pointer leads to: SELECT on the table and no row security that applies, since files have all
-- rows. What has no table in Postgres is for those who can become the owner of the lake table, or of the catalog; what others
-- have put into the catalog is for every token.
create function frostline.may_read_all(reader name, kind text, source oid, secured oid, owner text) returns boolean
language sql stable set search_path = pg_catalog, pg_temp as $$
    select case when kind = 'other' and source is null then true
                when source is null or secured is null then frostline.acts_for(reader, owner)
                else has_table_privilege(reader, source, 'select') and exists (
                    select from pg_class t
                      join pg_class s on s.oid = secured
                      join pg_roles r on r.rolname = reader
                     where t.oid = source and has_schema_privilege(reader, t.relnamespace, 'usage')
                       and (not s.relrowsecurity or r.rolsuper or r.rolbypassrls
                            or not s.relforcerowsecurity and pg_has_role(reader, s.relowner, 'usage')))
           end
$$;

-- Whether a role may change any rows of a lake table: a commit may hold each kind of change.
create function frostline.may_change_all(writer name, source oid, owner text) returns boolean
language sql stable set search_path = pg_catalog, pg_temp as $$
    select case when source is null then frostline.acts_for(writer, owner)
                else has_table_privilege(writer, source, 'insert') and has_table_privilege(writer, source, 'update')
                     and has_table_privilege(writer, source, 'delete') end
$$;
revoke execute on function frostline.acts_for(name, text), frostline.may_read_all(name, text, oid, oid, text),
                           frostline.may_change_all(name, oid, text) from public;
