-- name: columns
-- Those of the heap and those of the overlay, which was made with the same ones, in their order. Reads catalogs only.
select a.attrelid = {overlay}::regclass as is_known, a.attname, format_type(a.atttypid, a.atttypmod)
  from pg_attribute as a
 where a.attrelid in ({heap}::regclass, {overlay}::regclass) and a.attnum > 0 and not a.attisdropped
   and not (a.attrelid = {overlay}::regclass and a.attname in ('frostline_live', 'frostline_version', 'frostline_marked_at'))
 order by a.attnum

-- name: domain
-- What the domains have that the column's type is made of, and the type inside them. Reads catalogs only.
with recursive made_of (oid, typmod) as (
    select a.atttypid, a.atttypmod from pg_attribute as a where a.attrelid = {oid} and a.attnum = {attnum}
    union all
    select t.typbasetype, t.typtypmod from made_of as m join pg_type as t on t.oid = m.oid and t.typtype = 'd'
)
select coalesce(bool_or(t.typdefault is not null) filter (where t.typtype = 'd'), false) as has_default,
       coalesce(bool_or(t.typnotnull) filter (where t.typtype = 'd'), false) as refuses_null,
       max(format_type(m.oid, m.typmod)) filter (where t.typtype <> 'd') as inside
  from made_of as m join pg_type as t on t.oid = m.oid

-- name: remembered
-- What Postgres shows in rows that are older than the column, by partition: an array of one value. Reads catalogs only.
select p.relid = d.partdefid as is_default, m.value::text as text, {sent} as sent, coalesce({unholdable}, false) as is_unholdable
  from pg_partition_tree({heap_name}::regclass) as p
  join pg_partitioned_table as d on d.partrelid = {heap_name}::regclass
  join pg_attribute as a on a.attrelid = p.relid and a.attname = {column_name} and a.atthasmissing
 cross join lateral (select (a.attmissingval::text::text[])[1]::{type} as value) as m

-- name: has_other_values
-- Whether a row that the lake has, too, has another value in the heap than the lake shows. ACCESS SHARE on the heap. Reads
-- its partitions below the frost line, which are there for their grace period.
select exists (select from {heap} as h where {below_line} and h.{column}::text is distinct from {missing}
                  and not exists (select from {overlay} as o where {heap_is_overlay} and o.frostline_live))

-- name: alter
-- What somebody wants to be done to the heap. ACCESS EXCLUSIVE on it, for most changes.
alter table {heap} {change}
