-- name: join
-- A transaction that sees what the exported snapshot saw. No lock but those of readers. Row security hides nothing: it is an error.
begin isolation level repeatable read read only; set transaction snapshot {snapshot}; set local row_security = off

-- name: horizon
-- Under the snapshot. Two snapshots with this text see the same rows.
select pg_current_snapshot()::text

-- name: lock
-- ACCESS SHARE, as a reader has it, until the point is taken: what is looked at next is what is there.
lock table only {target} in access share mode

-- name: target
-- After the lock. The file and the columns as the snapshot has them; the functions see what is there now.
select c.relfilenode::bigint, pg_relation_filenode(c.oid)::bigint,
       pg_relation_size(c.oid) / current_setting('block_size')::int, row_security_active(c.oid),
       array(select a.attnum::int from pg_attribute a
              where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped order by a.attnum),
       array(select a.attname::text from pg_attribute a
              where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped order by a.attnum),
       array(select a.atttypid::bigint from pg_attribute a
              where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped order by a.attnum)
  from pg_class c where c.oid = {target}::regclass

-- name: marks
-- Under the snapshot.
select count(*) from {overlay} where {condition}

-- name: rights
-- Of the role that reads, on a relation that may be gone. No lock.
select has_schema_privilege(n.oid, 'usage') and has_table_privilege(c.oid, 'select'), row_security_active(c.oid)
  from pg_class c join pg_namespace n on n.oid = c.relnamespace
 where n.nspname = {schema} and c.relname = {relation}
