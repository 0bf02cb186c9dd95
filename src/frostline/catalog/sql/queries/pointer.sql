-- name: standing
-- The seam, and where the Iceberg catalog points to, as of one moment. Locks nothing.
select s.snapshot_id, s.metadata_location, p.metadata_location
  from frostline.seam s
  left join frostline.iceberg_tables p
         on p.catalog_name = 'frostline' and p.table_namespace = %(namespace)s and p.table_name = %(table)s
 where s.table_id = %(table_id)s

-- name: find
-- Locks nothing.
select metadata_location from frostline.iceberg_tables
 where catalog_name = 'frostline' and table_namespace = %(namespace)s and table_name = %(table)s

-- name: within
-- Of whole namespaces: which pointer was it that a commit of many could not move? Locks nothing.
select table_namespace, table_name, metadata_location from frostline.iceberg_tables
 where catalog_name = 'frostline' and table_namespace = any(%(namespaces)s)

-- name: other_names
-- Pointers of other names into the folder of the table: somebody has renamed it. Locks nothing.
select table_namespace, table_name from frostline.iceberg_tables
 where catalog_name = 'frostline' and starts_with(metadata_location, %(folder)s || '/')
   and (table_namespace, table_name) <> (%(namespace)s, %(table)s)
 order by 1, 2

-- name: lock
-- Nobody else moves it before the transaction ends. Waits for whoever is moving it just now.
select metadata_location from frostline.iceberg_tables
 where catalog_name = 'frostline' and table_namespace = %(namespace)s and table_name = %(table)s
   for update

-- name: insert
-- The first commit of a table: somebody else's pointer of that name stays, and no row is counted. Waits for whoever is making it
-- just now.
insert into frostline.iceberg_tables
       (catalog_name, table_namespace, table_name, metadata_location, previous_metadata_location, iceberg_type)
values ('frostline', %(namespace)s, %(table)s, %(metadata_location)s, null, 'TABLE')
on conflict do nothing

-- name: swap
-- The Iceberg commit itself: compare-and-set of one pointer. Row lock; who lost the race changes nothing.
update frostline.iceberg_tables
   set metadata_location = %(metadata_location)s, previous_metadata_location = %(previous_location)s
 where catalog_name = 'frostline' and table_namespace = %(namespace)s and table_name = %(table)s
   and metadata_location = %(previous_location)s

-- name: put
-- Where it was before does not matter: `lock` came first.
insert into frostline.iceberg_tables as t
       (catalog_name, table_namespace, table_name, metadata_location, previous_metadata_location, iceberg_type)
values ('frostline', %(namespace)s, %(table)s, %(metadata_location)s, null, 'TABLE')
on conflict (catalog_name, table_namespace, table_name) do update
   set metadata_location = excluded.metadata_location, previous_metadata_location = t.metadata_location,
       iceberg_type = 'TABLE'

-- name: drop
-- Row lock; harmless to repeat.
delete from frostline.iceberg_tables
 where catalog_name = 'frostline' and table_namespace = %(namespace)s and table_name = %(table)s

-- name: add_namespace
-- Harmless to repeat.
insert into frostline.iceberg_namespace_properties (catalog_name, namespace, property_key, property_value)
values ('frostline', %(namespace)s, 'exists', 'true')
on conflict do nothing

-- name: drop_empty_namespaces
-- Only those that hold no table, directly or further down.
delete from frostline.iceberg_namespace_properties p
 where p.catalog_name = 'frostline' and p.namespace = any(%(namespaces)s)
   and not exists (select from frostline.iceberg_tables t
                    where t.catalog_name = 'frostline'
                      and (t.table_namespace = p.namespace or starts_with(t.table_namespace, p.namespace || '.')))

-- name: lake_tables
-- All live lake tables and where they are, as of one moment: the cut that a transaction reads. Locks nothing.
select t.lake_table_id as id, t.namespace, t.table_name as table, t.table_uuid::text as uuid, t.owner, t.location,
       p.metadata_location, p.previous_metadata_location as previous_location
  from frostline.lake_table t
  join frostline.iceberg_tables p
    on p.catalog_name = 'frostline' and p.table_namespace = t.namespace and p.table_name = t.table_name
 where t.state = 'live'
 order by t.namespace, t.table_name

-- name: swap_lake
-- The commit of lake tables, whatever they are called by now: all of them, or none and the first that is elsewhere. Row locks in the
-- order of the ids, for one statement: no lock waits for a client, which may be frozen.
with wanted as materialized (
    select w.id, w.previous, w.location
      from unnest(%(ids)s::integer[], %(previous)s::text[], %(locations)s::text[]) as w(id, previous, location)
), found as materialized (
    select w.id, w.previous, w.location, p.table_namespace, p.table_name
      from wanted w
      join frostline.lake_table t on t.lake_table_id = w.id and t.state = 'live'
      join frostline.iceberg_tables p
        on p.catalog_name = 'frostline' and p.table_namespace = t.namespace and p.table_name = t.table_name
       and p.metadata_location = w.previous
     order by w.id
       for update of p
), moved as (
    update frostline.iceberg_tables p set metadata_location = f.location, previous_metadata_location = f.previous
      from found f
     where p.catalog_name = 'frostline' and p.table_namespace = f.table_namespace and p.table_name = f.table_name
       and (select count(*) from found) = (select count(*) from wanted)
)
select min(w.id) from wanted w where not exists (select from found f where f.id = w.id)

-- name: lock_lake
-- Nobody else moves or drops these before the transaction ends. Row locks in the order of the ids, as `swap_lake` has them: two that want
-- the same tables do not wait for each other in a circle.
select t.lake_table_id
  from frostline.lake_table t
  join frostline.iceberg_tables p
    on p.catalog_name = 'frostline' and p.table_namespace = t.namespace and p.table_name = t.table_name
 where t.lake_table_id = any(%(ids)s::integer[]) and t.state = 'live'
 order by t.lake_table_id
   for update of p

-- name: rename_lake
-- Row lock: waits for a commit, and a commit that waits for it is refused and tried again.
update frostline.iceberg_tables
   set table_namespace = %(new_namespace)s, table_name = %(new_table)s
 where catalog_name = 'frostline' and table_namespace = %(namespace)s and table_name = %(table)s

-- name: lead_into
-- Locks nothing.
select exists (select from frostline.iceberg_tables i where starts_with(i.metadata_location, %(folder)s || '/'))
