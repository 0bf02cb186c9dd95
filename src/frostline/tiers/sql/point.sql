-- name: marks
-- Under the snapshot.
select count(*) from {overlay} where {condition}

-- name: rights
-- Of the role that reads, on a relation that may be gone. No lock.
select has_schema_privilege(n.oid, 'usage') and has_table_privilege(c.oid, 'select'), row_security_active(c.oid)
  from pg_class c join pg_namespace n on n.oid = c.relnamespace
 where n.nspname = {schema} and c.relname = {relation}
