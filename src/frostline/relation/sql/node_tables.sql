-- name: lock
-- Until the end of the transaction: whoever else attaches or detaches in this database waits.
select pg_advisory_xact_lock(hashtext('frostline lake attach'))

-- name: attached
-- The foreign tables of lake tables in this database, by the names that they ask for. Locks nothing.
select c.oid::bigint, n.nspname::text, c.relname::text, o.option_value
  from pg_foreign_table f
  join pg_foreign_server s on s.oid = f.ftserver and s.srvname = 'frostline_lake'
  join pg_class c on c.oid = f.ftrelid
  join pg_namespace n on n.oid = c.relnamespace
 cross join pg_options_to_table(f.ftoptions) o
 where o.option_name = 'table_name'
 order by n.nspname, c.relname

-- name: catalog
-- Of which catalog this is a node. Locks nothing.
select obj_description(oid, 'pg_foreign_server') from pg_foreign_server where srvname = 'frostline_lake'

-- name: set_catalog
comment on server frostline_lake is {identity}

-- name: has_schema
select exists (select from pg_namespace where nspname = %(schema)s)

-- name: create_schema
-- The comment is how `drop_schemas` knows it again.
create schema {schema}; comment on schema {schema} is 'made by frostline lake attach'

-- name: own_schemas
-- The schemas that attach has made and that nothing is in any more.
select n.nspname::text from pg_namespace n
 where obj_description(n.oid, 'pg_namespace') = 'made by frostline lake attach'
   and not exists (select from pg_depend d where d.refclassid = 'pg_namespace'::regclass and d.refobjid = n.oid)
 order by 1

-- name: drop_schema
drop schema {schema}

-- name: create
-- Nothing is asked of the lake server. postgres_fdw sends rows in batches.
create foreign table {table} ({columns}) server frostline_lake
    options (schema_name {schema}, table_name {remote}, batch_size '5000', fetch_size '10000')

-- name: set_type
-- ACCESS EXCLUSIVE on the foreign table, for a moment.
alter foreign table {table} alter column {column} type {type}

-- name: drop
-- ACCESS EXCLUSIVE on the foreign table. What depends on it is an error.
drop foreign table {table}

-- name: drop_server
-- With its mappings. A foreign table that is left is an error.
drop user mapping if exists for public server frostline_lake; drop server frostline_lake

-- name: types
-- What types consist of, and the types that they are made of: NULL for one that is not there. Locks nothing.
with recursive used as (
    select w.name as root, to_regtype(w.name)::oid as oid from unnest(%(types)s::text[]) as w(name)
    union
    select u.root, n.oid
      from used u
      join pg_type t on t.oid = u.oid
     cross join lateral (select t.typelem as oid union all select t.typbasetype
                         union all select r.rngsubtype from pg_range r where r.rngtypid = t.oid
                         union all select a.atttypid from pg_attribute a
                                    where a.attrelid = t.typrelid and t.typtype = 'c' and a.attnum > 0 and not a.attisdropped) n
     where n.oid <> 0 and t.typnamespace <> 'pg_catalog'::regnamespace
)
select u.root, case when bool_or(u.oid is null) then null else
       string_agg(format_type(u.oid, null) || case t.typtype
           when 'e' then ' enum ' || (select string_agg(quote_literal(e.enumlabel), ' ' order by e.enumsortorder)
                                        from pg_enum e where e.enumtypid = t.oid)
           when 'd' then ' domain ' || format_type(t.typbasetype, t.typtypmod) || case when t.typnotnull then ' not null' else '' end
                         || coalesce((select string_agg(' ' || pg_get_constraintdef(k.oid), '' order by pg_get_constraintdef(k.oid))
                                        from pg_constraint k where k.contypid = t.oid and k.contype = 'c'), '')
           when 'c' then ' row ' || coalesce((select string_agg(quote_ident(a.attname) || ' ' || format_type(a.atttypid, a.atttypmod), ' '
                                                                order by a.attnum)
                                                from pg_attribute a
                                               where a.attrelid = t.typrelid and a.attnum > 0 and not a.attisdropped), '')
           when 'r' then ' range ' || (select format_type(r.rngsubtype, null) from pg_range r where r.rngtypid = t.oid)
           else '' end, '; ' order by format_type(u.oid, null)) end
  from used u
  left join pg_type t on t.oid = u.oid
 group by u.root
 order by u.root
