-- Columns that are added in steps: docs/design/added-columns.md. Filled by `relation.filling` through psycopg.sql.

-- name: trial
-- A table of the heap's columns, with nothing on them. It goes with the transaction.
create temp table frostline_trial (like {heap}) on commit drop

-- name: known
-- Those that the heap has. Reads catalogs only.
select max(a.attnum) from pg_attribute a where a.attrelid = 'pg_temp.frostline_trial'::regclass

-- name: tried
alter table pg_temp.frostline_trial {change}

-- name: in_full
-- Names are printed with their schemas, so that they mean the same to the table's owner.
set local search_path = pg_catalog

-- name: has_more
-- Whether the change has made more than columns that may be NOT NULL. Reads catalogs only.
select exists (select from pg_constraint c where c.conrelid = 'pg_temp.frostline_trial'::regclass and c.contype <> 'n')

-- name: added
-- What it has added. Reads catalogs only.
select a.attname::text as name, format_type(a.atttypid, a.atttypmod) as type,
       case when l.oid is not null then format('collate %I.%I', n.nspname, l.collname) end as collated,
       pg_get_expr(d.adbin, d.adrelid) as default_value, a.attnotnull as is_not_null, a.attidentity::text as identity,
       a.attgenerated::text as generated,
       s.oid is not null as has_sequence, coalesce(frostline.sequence_options(s.oid), '') as options
  from pg_attribute a
  left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
  left join pg_collation l on l.oid = a.attcollation and l.oid <> 100
  left join pg_namespace n on n.oid = l.collnamespace
  left join pg_depend o on o.classid = 'pg_class'::regclass and o.refclassid = 'pg_class'::regclass and o.refobjid = a.attrelid
                       and o.refobjsubid = a.attnum and o.deptype in ('a', 'i')
  left join pg_class s on s.oid = o.objid and s.relkind = 'S'
 where a.attrelid = 'pg_temp.frostline_trial'::regclass and a.attnum > {known} and not a.attisdropped
 order by a.attnum

-- name: make_sequence
create sequence {sequence} as {type} {options};
alter sequence {sequence} owner to {owner}

-- name: options
-- As `make_sequence` was given them. Reads catalogs only.
select coalesce('(' || frostline.sequence_options({sequence_text}::regclass) || ')', '')

-- name: own_sequence
-- So it goes with the column.
alter sequence {sequence} owned by {heap}.{column}

-- name: as_owner
-- The default's functions and the table's triggers run as the table's owner, not with our rights.
set local role {owner}

-- name: fill
-- Row locks; cold rows are marked.
update {relation} set {column} = {value} where {column} is null and {inside}

-- name: bring
-- Into the heap, as they are, which computes the column: cold rows that have another value in it, or none. Row locks; they are marked. Of rows
-- as text, because every type has that, and postgres_fdw sends no such condition: what the value must be, Postgres says.
update {relation} set {tier_key} = {tier_key} where {is_unlike} and {inside}

-- name: is_unlike
row({column})::text <> row({value})::text

-- name: mark_waiting
-- Rows of partitions that wait for their clean: the lake does not have what the ALTER has written into them. The caller holds ACCESS EXCLUSIVE
-- on the heap.
insert into {overlay} ({columns}, frostline_live)
select {columns}, true from {heap} as h where h.{tier_key} < {line}
on conflict do nothing

-- name: is_kept
-- Whether row security may keep rows from whoever asks. Reads catalogs only.
select row_security_active({heap_text}::regclass)

-- name: is_lacking
-- Whether a row has another value. Reads both tiers.
select exists (select from {relation} where {is_unlike})

-- name: is_checked
-- Reads catalogs only.
select exists (select from pg_constraint c where c.conrelid = {heap_oid} and c.conname = {constraint_name})

-- name: validate
-- SHARE UPDATE EXCLUSIVE on the heap. Asks the lake, by the event trigger.
alter table {heap} validate constraint {constraint}

-- name: disown_sequence
-- Before the column gets another one, that of its identity: a column with two would not say which counts.
alter sequence {sequence} owned by none

-- name: go_on
-- The numbers of the identity go on where those of the default have come to.
select setval(pg_get_serial_sequence({heap_text}, {column_text}), nextval({sequence_text}), false);
drop sequence {sequence}
