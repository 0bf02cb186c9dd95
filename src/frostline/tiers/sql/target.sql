-- name: lock
-- ACCESS SHARE, as a reader has it, until the transaction ends: what is looked at next is what is there.
lock table {targets} in access share mode

-- name: targets
-- After the lock. Name, file and columns as the snapshot has them; the functions see what is there now.
select n.nspname::text, c.relname::text, c.relfilenode::bigint, pg_relation_filenode(c.oid)::bigint, c.oid::bigint,
       pg_relation_size(c.oid) / current_setting('block_size')::int, row_security_active(c.oid),
       array(select a.attnum::int from pg_attribute a
              where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped order by a.attnum),
       array(select a.attname::text from pg_attribute a
              where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped order by a.attnum),
       array(select a.atttypid::bigint from pg_attribute a
              where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped order by a.attnum)
  from unnest(array[{names}]::text[]) as w (name)
  join pg_class c on c.oid = w.name::regclass
  join pg_namespace n on n.oid = c.relnamespace

-- name: join
-- First in every transaction that reads a target. Row security hides nothing: it is an error. ACCESS SHARE, as a reader has it: from here on nobody rewrites or empties the table.
set transaction snapshot {snapshot}; {settings}; set local row_security = off;
lock table only {target} in access share mode

-- name: check
-- After the lock, so the file is the one that will be read. The functions see what is there now, whatever the snapshot is.
select pg_current_snapshot()::text as horizon, to_regclass({name})::oid::bigint as oid,
       pg_relation_filenode({oid}::oid)::bigint as filenode, {is_as_it_was} as is_as_it_was

-- name: is_called
-- The name that the column with this number has now. A query of pg_attribute would show the name at the moment.
(pg_identify_object('pg_class'::regclass, {oid}::oid, {number})).identity
  is not distinct from format('%I.%I.%I', {schema}, {relation}, {column})

-- name: types
-- When all columns are there. A change of a type's modifier either rewrites the table or leaves every value as it is.
select {is_as_it_was} as is_as_it_was

-- name: is_of_type
pg_typeof((null::{target}).{column})::oid = {type_id}

-- name: named
-- When the rows were read: no lock on a table keeps its schema from being renamed.
select to_regclass({name})::oid::bigint as oid
