-- name: relation
-- The foreign table of that name. Reads the system catalogs only, so a role needs no right for it. `is_renamed` when a column asks
-- for one of another name. Locks nothing.
select c.oid, exists (select from pg_attribute a where a.attrelid = c.oid and not a.attisdropped and a.attfdwoptions is not null)
  from pg_class c join pg_namespace n on n.oid = c.relnamespace
 where n.nspname = %(schema)s and c.relname = %(table)s and c.relkind = 'f'

-- name: may_insert
-- Whether the role may insert all these columns. Locks nothing.
select coalesce(bool_and(has_column_privilege(%(relation)s::oid, a.attnum, 'insert')), false)
  from pg_attribute a
 where a.attrelid = %(relation)s::oid and a.attname = any (%(columns)s::name[])

-- name: applied
-- How many rows a batch of this role with the label had. Locks nothing, and does not wait for one that is being committed.
select rows from frostline.applied_lake_batch
 where lake_table_id = %(lake_table_id)s and label = %(label)s and written_by = session_user

-- name: claim
-- In the transaction that moves the pointer. Waits for a transaction that has the same label; no row is counted when it was committed.
insert into frostline.applied_lake_batch (lake_table_id, label, rows)
values (%(lake_table_id)s, %(label)s, %(rows)s)
on conflict do nothing
