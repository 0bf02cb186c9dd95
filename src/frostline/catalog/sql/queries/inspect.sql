-- name: relation
-- Reads the system catalogs only.
select c.oid, c.relkind::text, c.relpersistence::text as persistence, r.rolname::text as owner,
       p.partstrat::text as strategy, coalesce(p.partnatts, 0) as key_parts,
       case when p.partattrs[0] > 0 then p.partattrs[0] end as tier_attnum,
       c.relrowsecurity as row_security, c.relispartition as is_partition, c.reloftype <> 0 as is_typed
  from pg_class c
  join pg_namespace n on n.oid = c.relnamespace
  join pg_roles r on r.oid = c.relowner
  left join pg_partitioned_table p on p.partrelid = c.oid
 where n.nspname = %(schema)s and c.relname = %(table)s

-- name: columns
-- The database's default collation counts as one in byte order only when its provider says so for sure. To print defaults takes
-- ACCESS SHARE on the table; without them nothing is locked, so whoever alters it can ask for its cold rows meanwhile.
select a.attnum, a.attname as name, format_type(a.atttypid, a.atttypmod) as formatted, t.typname as type_name,
       t.oid < 16384 and t.typnamespace = 'pg_catalog'::regnamespace as builtin,
       case when t.oid = 'numeric'::regtype and a.atttypmod >= 4 then ((a.atttypmod - 4) >> 16) & 65535 end as precision,
       case when t.oid = 'numeric'::regtype and a.atttypmod >= 4
            then (((a.atttypmod - 4) & 2047) # 1024) - 1024 end as scale,
       a.attnotnull as not_null, a.attgenerated <> '' as generated, a.attidentity::text as identity,
       case when %(defaults)s and a.attgenerated = '' then pg_get_expr(d.adbin, d.adrelid) end as default,
       case when a.attcollation = 0 then 'none'
            when not l.collisdeterministic then 'nondeterministic'
            when a.attcollation = 100 then
                case when b.datlocprovider = 'c' and b.datcollate in ('C', 'POSIX') then 'bytes'
                     when b.datlocprovider = 'b' then 'bytes' else 'linguistic' end
            when l.collprovider = 'b' then 'bytes'
            when l.collprovider = 'c' and l.collcollate in ('C', 'POSIX') then 'bytes'
            else 'linguistic' end as collation,
       case when a.attcollation not in (0, 100) then quote_ident(ln.nspname) || '.' || quote_ident(l.collname) end
           as collation_name,
       col_description(a.attrelid, a.attnum) as comment,
       case when a.attidentity <> '' then pg_get_serial_sequence(quote_ident(n.nspname) || '.' || quote_ident(c.relname), a.attname) end
           as identity_sequence
  from pg_attribute a
  join pg_class c on c.oid = a.attrelid
  join pg_namespace n on n.oid = c.relnamespace
  join pg_type t on t.oid = a.atttypid
  join pg_database b on b.datname = current_database()
  left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
  left join pg_collation l on l.oid = a.attcollation
  left join pg_namespace ln on ln.oid = l.collnamespace
 where a.attrelid = %(oid)s and a.attnum > 0 and not a.attisdropped
 order by a.attnum

-- name: primary_key
select array_agg(a.attname::text order by k.position)
  from pg_index i
  cross join lateral unnest(i.indkey) with ordinality as k(attnum, position)
  join pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.attnum
 where i.indrelid = %(oid)s and i.indisprimary

-- name: key_types
-- What the primary key's columns are made of: domains and arrays are followed to the type inside, with its modifier.
with recursive inside as (
    select k.position, a.attname::text as name, format_type(a.atttypid, a.atttypmod) as formatted,
           a.atttypid as type, a.atttypmod as modifier, 0 as depth
      from pg_index i
      cross join lateral unnest(i.indkey) with ordinality as k(attnum, position)
      join pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.attnum
     where i.indrelid = %(oid)s and i.indisprimary
     union all
    select f.position, f.name, f.formatted,
           case when t.typtype = 'd' then t.typbasetype else e.oid end,
           case when t.typtype = 'd' then t.typtypmod else f.modifier end, f.depth + 1
      from inside f
      join pg_type t on t.oid = f.type
      left join pg_type e on e.typarray = t.oid
     where t.typtype = 'd' or e.oid is not null
)
select distinct on (f.position) f.name as column, f.formatted, t.typname::text as inside,
       t.oid < 16384 and t.typnamespace = 'pg_catalog'::regnamespace as builtin, t.typtype = 'e' as is_enum,
       f.modifier >= 0 as has_modifier,
       exists (select from inside g join pg_type d on d.oid = g.type join pg_roles r on r.oid = d.typowner
                where g.position = f.position and d.typtype = 'd' and not r.rolsuper and r.rolname <> current_user)
           as has_strange_domain
  from inside f
  join pg_type t on t.oid = f.type
 order by f.position, f.depth desc

-- name: partitions
-- Bounds come as Postgres prints them; `model.partitions` reads them. Sizes need ACCESS SHARE on each partition.
select n.nspname as schema, c.relname as table, c.relkind::text, pg_get_expr(c.relpartbound, 0) as bound, c.oid,
       case when %(sizes)s then pg_total_relation_size(c.oid) else 0 end as size_bytes,
       c.reltuples::bigint as rows_estimate, c.relpersistence <> 'p' as is_unlogged
  from pg_inherits i
  join pg_class c on c.oid = i.inhrelid
  join pg_namespace n on n.oid = c.relnamespace
 where i.inhparent = %(oid)s and c.relpartbound is not null -- a child by inheritance has none
 order by c.relname

-- name: inbound_foreign_keys
-- One of the table's own counts too: Postgres truncates no partition that a key points at.
select conname || ' on ' || conrelid::regclass::text
  from pg_constraint
 where confrelid = %(oid)s and contype = 'f' and conparentid = 0
 order by 1

-- name: name_exists
select exists (
    select from pg_class c join pg_namespace n on n.oid = c.relnamespace
     where n.nspname = %(schema)s and c.relname = %(name)s)

-- name: type_name_exists
-- A table needs its name among relations and among types.
select exists (
    select from pg_namespace n
     where n.nspname = %(schema)s
       and (exists (select from pg_class c where c.relnamespace = n.oid and c.relname = %(name)s)
            or exists (select from pg_type t where t.typnamespace = n.oid and t.typname = %(name)s)))

-- name: default_partition
-- The partition that takes what no other does.
select n.nspname, c.relname
  from pg_partitioned_table p
  join pg_class c on c.oid = p.partdefid
  join pg_namespace n on n.oid = c.relnamespace
 where p.partrelid = %(oid)s

-- name: dependent_views
-- The views and materialized views whose own query names the relation (a view on a view follows by itself). Ours are left out.
select distinct c.oid, c.relkind::text as kind, n.nspname as schema, c.relname as view,
       pg_get_viewdef(c.oid) as definition, c.reloptions as options
  from pg_depend d
  join pg_rewrite w on w.oid = d.objid and d.classid = 'pg_rewrite'::regclass
  join pg_class c on c.oid = w.ev_class
  join pg_namespace n on n.oid = c.relnamespace
 where d.refclassid = 'pg_class'::regclass and d.refobjid = %(oid)s and d.deptype = 'n'
   and c.oid <> %(oid)s and c.relkind in ('v', 'm') and w.rulename = '_RETURN'
   and n.nspname <> all (%(own_schemas)s::text[])
 order by 1

-- name: checked_views
-- Views that check what is written through them. Above a relation with rules Postgres does not.
with recursive above as (
    select %(oid)s::oid as oid
     union
    select w.ev_class from above a
      join pg_depend d on d.refclassid = 'pg_class'::regclass and d.refobjid = a.oid and d.classid = 'pg_rewrite'::regclass
      join pg_rewrite w on w.oid = d.objid
)
select c.oid::regclass::text from above a join pg_class c on c.oid = a.oid
 where c.relkind = 'v' and exists (select from unnest(c.reloptions) o where o like 'check_option=%%')
 order by 1

-- name: grouping_views
-- Their rule depends on the primary key itself.
select distinct w.ev_class::regclass::text
  from pg_depend d
  join pg_rewrite w on w.oid = d.objid and d.classid = 'pg_rewrite'::regclass
  join pg_constraint k on k.oid = d.refobjid and d.refclassid = 'pg_constraint'::regclass
 where k.conrelid = %(oid)s and k.contype = 'p'
 order by 1

-- name: other_policies
select format('%%I on %%s', p.polname, p.polrelid::regclass)
  from pg_depend d join pg_policy p on p.oid = d.objid and d.classid = 'pg_policy'::regclass
 where d.refclassid = 'pg_class'::regclass and d.refobjid = %(oid)s and p.polrelid <> %(oid)s
 group by p.polname, p.polrelid
 order by 1

-- name: dependent_functions
-- Functions with a BEGIN ATOMIC body hold the relation by its oid. Ours are left out.
select distinct p.oid, pg_get_functiondef(p.oid)
  from pg_depend d
  join pg_proc p on p.oid = d.objid and d.classid = 'pg_proc'::regclass
  join pg_namespace n on n.oid = p.pronamespace
 where d.refclassid = 'pg_class'::regclass and d.refobjid = %(oid)s and d.deptype = 'n'
   and n.nspname <> all (%(own_schemas)s::text[])
 order by 1

-- name: row_type_users
-- What uses the table's row type would be left behind on the heap.
select pg_describe_object(d.classid, d.objid, d.objsubid)
  from pg_depend d
  join pg_type t on t.oid = d.refobjid
 where d.refclassid = 'pg_type'::regclass and d.deptype = 'n'
   and (t.typrelid = %(oid)s or t.typelem = (select reltype from pg_class where oid = %(oid)s) and t.typelem <> 0)
   and not (d.classid = 'pg_class'::regclass and d.objid = %(oid)s)
 order by 1

-- name: table_grants
-- On the relation itself, to others than its owner; a grantee of NULL is PUBLIC.
select null as column, case when a.grantee = 0 then null else g.rolname end as grantee, a.privilege_type as privilege, a.is_grantable
  from pg_class c cross join lateral aclexplode(c.relacl) a left join pg_roles g on g.oid = a.grantee
 where c.oid = %(oid)s and a.grantee is distinct from c.relowner
 order by 2, 3

-- name: sequence_users
-- Who was granted USAGE, or ALL, on a sequence; no row when it is gone. Its name is qualified and quoted.
select case when a.grantee = 0 then null else g.rolname end
  from pg_class c cross join lateral aclexplode(c.relacl) a left join pg_roles g on g.oid = a.grantee
 where c.oid = to_regclass(%(sequence)s) and a.privilege_type = 'USAGE' and a.grantee is distinct from c.relowner

-- name: column_grants
select t.attname as column, case when a.grantee = 0 then null else g.rolname end as grantee, a.privilege_type as privilege, a.is_grantable
  from pg_attribute t cross join lateral aclexplode(t.attacl) a left join pg_roles g on g.oid = a.grantee
 where t.attrelid = %(oid)s and not t.attisdropped
 order by t.attnum, 2, 3

-- name: comment
select obj_description(%(oid)s, 'pg_class')

-- name: may_use
-- Whether the connected role can own objects for the table's owner.
select pg_has_role(current_user, %(owner)s, 'usage'), current_user::text

-- name: domain_exists
select exists (select from pg_type t join pg_namespace n on n.oid = t.typnamespace
                where n.nspname = 'frostline_lake' and t.typname = %(domain)s and t.typtype = 'd')

-- name: unused_domains
-- Of the lake's types, those that no column has any more: its table was removed, or it was dropped. Tables of one type share it.
select t.typname::text from pg_type t
 where t.typnamespace = 'frostline_lake'::regnamespace and t.typtype = 'd' and left(t.typname, 5) = 'lake '
   and not exists (select from pg_depend d where d.refclassid = 'pg_type'::regclass and d.refobjid = t.oid and d.deptype = 'n')
 order by 1

-- name: may_read
select coalesce(has_table_privilege(%(oid)s, 'select'), false)

-- name: objects
-- Which of these are there, and what stands for each as Postgres prints it. Names are qualified and quoted; a rule or trigger has
-- its plain name and the relation's. ACCESS SHARE on what a view or rule reads.
select w.number, o.catalog, o.oid, md5(o.definition)
  from unnest(%(kinds)s::text[], %(names)s::text[], %(relations)s::text[]) with ordinality as w (kind, name, relation, number)
 cross join lateral (
    select c.tableoid as catalog, c.oid, concat_ws('|', c.reloptions, case c.relkind when 'v' then pg_get_viewdef(c.oid) end) as definition
      from pg_class c
     where w.kind in ('table', 'view') and c.oid = to_regclass(w.name) and (c.relkind = 'v') = (w.kind = 'view')
    union all
    select p.tableoid, p.oid, pg_get_functiondef(p.oid) from pg_proc p where w.kind = 'function' and p.oid = to_regproc(w.name)
    union all
    select r.tableoid, r.oid, concat_ws('|', r.ev_enabled, pg_get_ruledef(r.oid)) from pg_rewrite r
     where w.kind = 'rule' and r.ev_class = to_regclass(w.relation) and r.rulename = w.name
    union all
    select t.tableoid, t.oid, concat_ws('|', t.tgenabled, pg_get_triggerdef(t.oid)) from pg_trigger t
     where w.kind = 'trigger' and t.tgrelid = to_regclass(w.relation) and t.tgname = w.name and not t.tgisinternal
 ) as o

-- name: relations
-- What has the name of a table, but for temporary ones, system schemas, Frostline's own and those of conversions. A managed
-- table with a lake is there under its own name with its heap's oid; the heap, its partitions and the view are not. A lake
-- table is there under the name of each foreign table that it has here; one that has none, because another node or the
-- catalog server has made it, under the name that the catalog has for it, if nothing else has that. Locks nothing.
with managed as (
    select t.schema_name, t.table_name, coalesce(t.relation_name, t.table_name) as relation, c.oid
      from frostline.managed_table t
      join pg_namespace n on n.nspname = t.schema_name
      join pg_class c on c.relnamespace = n.oid and c.relname = t.heap_name
     where t.mode = 'tiered'
), own as (
    select unnest(%(own_schemas)s::text[]) as schema
    union all
    select unnest(array['frostline_convert_' || conversion_id, 'frostline_old_' || conversion_id]) from frostline.conversion
), lake_foreign as (
    select f.ftrelid as oid, substring(o.option_value, '^lake_([0-9]{1,9})$')::integer as lake_table_id
      from pg_foreign_table f
      join pg_foreign_server s on s.oid = f.ftserver
     cross join pg_options_to_table(f.ftoptions) o
     where s.srvname = 'frostline_lake' and o.option_name = 'table_name'
)
select schema_name as schema, table_name as table, oid, 'p' as kind, false as is_partition, true as is_managed,
       null::integer as lake_table_id
  from managed
union all
select t.namespace, t.table_name, 0::oid, 'f', false, false, t.lake_table_id
  from frostline.lake_table t
 where t.state = 'live'
   and not exists (select from lake_foreign l where l.lake_table_id = t.lake_table_id)
   and not exists (select from pg_class c join pg_namespace n on n.oid = c.relnamespace
                    where n.nspname = t.namespace and c.relname = t.table_name)
union all
select n.nspname::text, c.relname::text, c.oid, c.relkind::text, c.relispartition, false, l.lake_table_id
  from pg_class c
  join pg_namespace n on n.oid = c.relnamespace
  left join lake_foreign l on l.oid = c.oid
 where c.relkind in ('r', 'p', 'v', 'm', 'f') and c.relpersistence <> 't'
   and n.nspname <> 'information_schema' and n.nspname !~ '^pg_' and n.nspname::text not in (select o.schema from own o)
   and not exists (select from managed m
                    where m.oid in (c.oid, pg_partition_root(c.oid))
                       or m.schema_name = n.nspname and m.relation = c.relname)

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
