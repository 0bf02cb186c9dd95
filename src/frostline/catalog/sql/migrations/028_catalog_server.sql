-- The catalog server: other engines read the Iceberg catalog over HTTP, each with a token of a role. docs/design/catalog-server.md.

-- Of a token only its SHA-256 is kept. It is 256 random bits, so nothing slower is needed against guessing.
create table frostline.token (
    token_id    integer generated always as identity primary key,
    token_hash  bytea not null unique check (length(token_hash) = 32),
    role_name   text not null,
    may_write   boolean not null,
    created_at  timestamptz not null default now(),
    expires_at  timestamptz
);

-- What each pointer that Frostline knows belongs to: the table of Postgres whose rights count, and where its row security is. Both are
-- null when there is no such table. For a lake table that is its foreign table, if this database has one: the one that asks for it,
-- whatever the two are called by now, or else one of its name.
create view frostline.pointer_source as
select o.table_namespace, o.table_name, o.belongs_to, 'tiered' as kind,
       to_regclass(o.belongs_to)::oid as source, r.heap_oid as secured, null::integer as lake_table_id
  from frostline.own_pointer o
  left join frostline.seam_relation r on r.schema_name = o.table_namespace and r.overlay = o.table_name
 where not starts_with(o.belongs_to, 'snapshot ')
union all
select t.namespace, t.lake_table, 'snapshot ' || s.name, 'copy', source.oid, coalesce(r.heap_oid, source.oid), null
  from frostline.snapshot_table t
  join frostline.snapshot s on s.snapshot_id = t.snapshot_id
 cross join lateral (select to_regclass(format('%I.%I', t.schema_name, t.table_name))::oid as oid) source
  left join frostline.seam_relation r on r.schema_name = t.schema_name and r.table_name = t.table_name
 where s.state = 'published' and s.catalog_uri is null
   and s.version = (select max(n.version) from frostline.snapshot n
                     where n.name = s.name and n.state = 'published' and n.catalog_uri is null)
union all
select l.namespace, l.table_name, format('%I.%I', l.namespace, l.table_name), 'lake', f.oid, f.oid, l.lake_table_id
  from frostline.lake_table l
  left join lateral (select t.ftrelid as oid from pg_foreign_table t
                       join pg_foreign_server s on s.oid = t.ftserver and s.srvname = 'frostline_lake'
                      where 'table_name=lake_' || l.lake_table_id = any(t.ftoptions)
                      union all
                     select c.oid from pg_class c
                      where c.oid = to_regclass(format('%I.%I', l.namespace, l.table_name)) and c.relkind = 'f'
                      limit 1) f on true
 where l.state = 'live';

-- Every table of the Iceberg catalog, and what is known of it. What only has a pointer was put there by somebody else.
create view frostline.catalog_table as
select p.table_namespace, p.table_name, p.metadata_location, s.belongs_to, coalesce(s.kind, 'other') as kind, s.source, s.secured,
       s.lake_table_id
  from frostline.iceberg_tables p
  left join frostline.pointer_source s on s.table_namespace = p.table_namespace and s.table_name = p.table_name
 where p.catalog_name = 'frostline' and coalesce(p.iceberg_type, 'TABLE') = 'TABLE' and p.metadata_location is not null;

-- Every namespace that was made, or that a table is in.
create view frostline.catalog_namespace as
select namespace from frostline.iceberg_namespace_properties where catalog_name = 'frostline'
union
select table_namespace from frostline.iceberg_tables where catalog_name = 'frostline';

-- Whether a role may read all rows of what a pointer leads to: SELECT on the table and no row security that applies, since files have all
-- rows. A tiered table or a copy whose table is gone is for those who can become the role that owns the catalog; a lake table
-- without a foreign table, and what others have put into the catalog, is for every token.
create function frostline.may_read_all(reader name, kind text, source oid, secured oid) returns boolean
language sql stable set search_path = pg_catalog, pg_temp as $$
    select case when kind in ('lake', 'other') and source is null then true
                when source is null or secured is null
                then pg_has_role(reader, (select c.relowner from pg_class c where c.oid = 'frostline.seam'::regclass), 'usage')
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
create function frostline.may_change_all(writer name, source oid) returns boolean
language sql stable set search_path = pg_catalog, pg_temp as $$
    select source is null or has_table_privilege(writer, source, 'insert') and has_table_privilege(writer, source, 'update')
                             and has_table_privilege(writer, source, 'delete')
$$;
revoke execute on function frostline.may_read_all(name, text, oid, oid), frostline.may_change_all(name, oid) from public;
