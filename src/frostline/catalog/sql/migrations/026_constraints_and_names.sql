-- Which CHECK and NOT NULL constraints of a heap its rows in the lake are known to hold: docs/design/constraints.md. A constraint that the
-- heap holds and that is not here, or here as 'unseen', was not looked at for them. `number` is the constraint's oid, or the column's
-- number for NOT NULL, as long as the heap is the same; a restored dump has other ones, and is known by name and definition.
create table frostline.cold_constraint (
    table_id    integer not null references frostline.managed_table on delete cascade,
    kind        text not null check (kind in ('check', 'not null')),
    name        text not null,
    heap        oid not null,
    number      oid not null,
    definition  text not null,
    state       text not null check (state in ('not valid', 'unseen', 'held')),
    primary key (table_id, kind, name)
);

-- What a table was called when it was added, if it was renamed since: its objects in our schemas, its lake in the Iceberg catalog and its
-- folder in the warehouse keep that name. docs/design/schema-changes.md.
alter table frostline.managed_table
    add column first_schema text,
    add column first_name text,
    add check (num_nonnulls(first_schema, first_name) <> 1);

create or replace view frostline.seam_relation as
select t.table_id, t.schema_name, t.table_name, t.tier_kind,
       heap.oid as heap_oid, format('%I.%I', n.nspname, heap.relname) as heap, own.overlay
  from frostline.managed_table t
  join pg_namespace n on n.nspname = t.schema_name
  join pg_class heap on heap.relnamespace = n.oid and heap.relname = t.heap_name
 cross join lateral (select '_' || t.table_id as text) suffix
 -- The cast to `name` cuts between characters, as the name was cut when the overlay was made.
 cross join lateral (
    select substr((repeat('_', length(suffix.text)) || coalesce(t.first_name, t.table_name))::name::text, length(suffix.text) + 1)
           || suffix.text as overlay) own
 where t.mode = 'tiered';

create or replace view frostline.own_pointer as
select coalesce(t.first_schema, t.schema_name) as table_namespace, own.name as table_name,
       format('%I.%I', t.schema_name, t.table_name) as belongs_to, s.metadata_location
  from frostline.managed_table t
  join frostline.seam s on s.table_id = t.table_id
 cross join lateral (select '_' || t.table_id as text) suffix
 cross join lateral (
    select substr((repeat('_', length(suffix.text)) || coalesce(t.first_name, t.table_name))::name::text, length(suffix.text) + 1)
           || suffix.text as name) own
union all
select t.namespace, t.lake_table, 'snapshot ' || s.name, t.metadata_location
  from frostline.snapshot_table t
  join frostline.snapshot s on s.snapshot_id = t.snapshot_id
 where s.state = 'published' and s.catalog_uri is null
   and s.version = (select max(n.version) from frostline.snapshot n
                     where n.name = s.name and n.state = 'published' and n.catalog_uri is null);
