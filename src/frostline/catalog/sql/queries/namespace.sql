-- name: children
-- The next level below a namespace, in order, after one of them. Locks nothing.
with known as (select string_to_array(namespace, '.') as levels from frostline.catalog_namespace)
select distinct levels[cardinality(%(parent)s::text[]) + 1] collate "C" as level
  from known
 where cardinality(levels) > cardinality(%(parent)s::text[])
   and levels[:cardinality(%(parent)s::text[])] = %(parent)s::text[]
   and (%(after)s::text is null or levels[cardinality(%(parent)s::text[]) + 1] collate "C" > %(after)s::text)
 order by 1
 limit %(most)s

-- name: exists
-- A namespace is there if it was made, or anything is in it. Locks nothing.
select exists (select from frostline.catalog_namespace
                where namespace = %(namespace)s or starts_with(namespace, %(namespace)s || '.'))

-- name: properties
-- Without the row that only says that the namespace is there. Locks nothing.
select property_key, property_value from frostline.iceberg_namespace_properties
 where catalog_name = 'frostline' and namespace = %(namespace)s and property_key <> 'exists'
 order by 1

-- name: lock
-- Nobody else makes, drops or fills a namespace of the catalog server before the transaction ends: what is looked at after this
-- stays so. Jobs do not wait for it.
select pg_advisory_xact_lock(hashtext('frostline.iceberg_namespace_properties'))

-- name: put_property
insert into frostline.iceberg_namespace_properties (catalog_name, namespace, property_key, property_value)
values ('frostline', %(namespace)s, %(key)s, %(value)s)
on conflict (catalog_name, namespace, property_key) do update set property_value = excluded.property_value

-- name: remove_properties
delete from frostline.iceberg_namespace_properties
 where catalog_name = 'frostline' and namespace = %(namespace)s and property_key = any(%(keys)s) and property_key <> 'exists'

-- name: drop
delete from frostline.iceberg_namespace_properties where catalog_name = 'frostline' and namespace = %(namespace)s

-- name: is_of_a_snapshot
-- Whether the namespace belongs to a named snapshot, or would to the next version of one. Locks nothing.
select exists (select from frostline.snapshot
                where name = split_part(%(namespace)s, '.', 1) and catalog_uri is null and state in ('running', 'published'))

-- name: tables
-- The tables of a namespace that a role may read, in order, after one of them. Locks nothing.
select t.table_name collate "C" as name
  from frostline.catalog_table t
 where t.table_namespace = %(namespace)s
   and (%(after)s::text is null or t.table_name collate "C" > %(after)s::text)
   and frostline.may_read_all(%(role)s, t.kind, t.source, t.secured, t.owner)
 order by 1
 limit %(most)s

-- name: table
-- What a pointer leads to, whose it is, and what a role may do with it. Locks nothing.
select t.metadata_location, t.kind, t.belongs_to, t.lake_table_id,
       frostline.may_read_all(%(role)s, t.kind, t.source, t.secured, t.owner) as is_readable,
       t.kind = 'lake' and frostline.may_change_all(%(role)s, t.source, t.owner) as is_writable,
       t.kind = 'lake' and frostline.owns_lake_table(%(role)s, t.source, t.owner) as is_owned
  from frostline.catalog_table t
 where t.table_namespace = %(namespace)s and t.table_name = %(table)s

-- name: owner_of_name
-- What a name that has no pointer yet is kept for. Locks nothing.
select belongs_to from frostline.own_pointer where table_namespace = %(namespace)s and table_name = %(table)s

-- name: overlapping
-- Another table whose files are in that folder, around it, or in a folder inside of it. Locks nothing.
select t.table_namespace, t.table_name
  from frostline.catalog_table t
 cross join lateral (select regexp_replace(t.metadata_location, '/metadata/[^/]*$', '') as folder) own
 where (t.table_namespace, t.table_name) <> (%(namespace)s, %(table)s)
   and (starts_with(own.folder || '/', %(folder)s || '/') or starts_with(%(folder)s || '/', own.folder || '/'))
 order by 1, 2
 limit 1
