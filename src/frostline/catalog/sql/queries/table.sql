-- name: number
-- Of a table that is about to be managed, with what makes its folder in the lake unlike any other.
select nextval(pg_get_serial_sequence('frostline.managed_table', 'table_id'))::integer,
       left(replace(gen_random_uuid()::text, '-', ''), 8)

-- name: leave_out
-- Not rolled back with its transaction, as no sequence is: numbers are only left out.
select setval(s.name, greatest(%(table_id)s, nextval(s.name)))
  from pg_get_serial_sequence('frostline.managed_table', 'table_id') as s (name)

-- name: insert
insert into frostline.managed_table
       (table_id, token, schema_name, table_name, relation_name, tier_key, tier_kind, lake_partition, mode, foreign_keys, hot_interval, hot_span, grace_period,
        retention_interval, retention_span, every_interval, every_span, premake, expire_by, fold_rows, fold_age,
        snapshot_retention, target_file_size)
overriding system value
values (%(table_id)s, %(token)s, %(schema)s, %(table)s, %(relation)s, %(tier_key)s, %(tier_kind)s, coalesce(%(lake_partition)s, ''), %(mode)s, %(foreign_keys)s,
        %(hot_interval)s::text::interval, %(hot_span)s::text::bigint, %(grace)s::text::interval,
        %(retention_interval)s::text::interval, %(retention_span)s::text::bigint,
        %(every_interval)s::text::interval, %(every_span)s::text::bigint, %(premake)s, %(expire_by)s,
        %(fold_rows)s, %(fold_age)s::text::interval, %(snapshot_retention)s::text::interval, %(target_file_size)s)

-- name: delete_columns
-- In the transaction that inserts them anew. Row locks.
delete from frostline.managed_column where table_id = %(table_id)s

-- name: insert_column
insert into frostline.managed_column (table_id, attnum, field_id, lake_type, as_text, pushable, is_later, missing, name, remote_name)
values (%(table_id)s, %(attnum)s, %(field_id)s, %(lake_type)s, %(as_text)s, %(pushable)s, %(is_later)s, %(missing)s, %(name)s,
        %(remote_name)s)

-- name: insert_dropped
-- Fields that files of an adopted lake may have, and no column: their ids are not given again.
insert into frostline.dropped_column (table_id, field_id, name, lake_type)
select %(table_id)s, f.field_id, f.name, f.lake_type
  from unnest(%(field_ids)s::integer[], %(names)s::text[], %(lake_types)s::text[]) f (field_id, name, lake_type)

-- name: find
-- All, or the one of a number or of a name: its own, or its relation's. Locks nothing.
select t.table_id, t.schema_name, t.table_name, t.relation_name, t.tier_key, t.tier_kind, nullif(t.lake_partition, '') as lake_partition, t.mode, t.held_from, t.token,
       t.foreign_keys, t.first_schema, t.first_name,
       coalesce(t.hot_interval::text, t.hot_span::text) as hot_period, t.grace_period::text,
       coalesce(t.retention_interval::text, t.retention_span::text) as retention_period,
       coalesce(t.every_interval::text, t.every_span::text) as partition_interval, t.premake, t.expire_by,
       t.fold_rows, t.fold_age::text, t.snapshot_retention::text, t.target_file_size
  from frostline.managed_table t
 where (%(table_id)s::numeric is null or t.table_id = %(table_id)s::numeric)
   and (%(table)s::text is null or t.schema_name = %(schema)s and %(table)s in (t.table_name, t.relation_name))
 order by t.schema_name, t.table_name

-- name: names
select t.schema_name, t.table_name from frostline.managed_table t order by t.schema_name, t.table_name

-- name: heaps
select t.schema_name, t.table_name, t.heap_name from frostline.managed_table t

-- name: own_name
select t.schema_name, t.table_name from frostline.managed_table t
 where t.schema_name = %(schema)s and t.relation_name = %(table)s

-- name: set_relation
-- In the transaction that renames the relation and the heap.
update frostline.managed_table set relation_name = %(relation)s where table_id = %(table_id)s

-- name: set_foreign_keys
-- In the transaction that makes or drops what holds them.
update frostline.managed_table set foreign_keys = %(foreign_keys)s where table_id = %(table_id)s

-- name: columns
-- With the attribute numbers that the heap has today.
select c.attnum, c.field_id, c.lake_type, c.as_text, c.pushable, c.is_later, m.missing, m.remote_name
  from frostline.carried_columns(%(table_id)s, %(oid)s) c
  join frostline.managed_column m on m.table_id = %(table_id)s and m.field_id = c.field_id

-- name: key
-- By which overlay and lake know a row, as the heap calls it; the heap may have got another key since.
select array_agg(a.attname::text order by k.place)
  from unnest(frostline.known_key(%(table_id)s)) with ordinality as k (attnum, place)
  join pg_attribute a on a.attrelid = %(oid)s and a.attnum = k.attnum

-- name: delete_pins
delete from frostline.pin where table_id = %(table_id)s

-- name: name_jobs
-- In the transaction that forgets the table: its jobs stay, and nobody else knows its name then. Row locks.
update frostline.job j set schema_name = t.schema_name, table_name = t.table_name
  from frostline.managed_table t
 where t.table_id = %(table_id)s and j.table_id = t.table_id
returning j.job_id

-- name: delete_jobs
-- When nothing refers to them any more. Row locks.
delete from frostline.job where job_id = any(%(jobs)s)

-- name: delete
delete from frostline.managed_table where table_id = %(table_id)s

-- name: set_policy
update frostline.managed_table
   set hot_interval = %(hot_interval)s::text::interval, hot_span = %(hot_span)s::text::bigint,
       grace_period = %(grace)s::text::interval,
       retention_interval = %(retention_interval)s::text::interval, retention_span = %(retention_span)s::text::bigint,
       every_interval = %(every_interval)s::text::interval, every_span = %(every_span)s::text::bigint,
       premake = %(premake)s, expire_by = %(expire_by)s, fold_rows = %(fold_rows)s,
       fold_age = %(fold_age)s::text::interval, snapshot_retention = %(snapshot_retention)s::text::interval,
       target_file_size = %(target_file_size)s
 where table_id = %(table_id)s

-- name: now
select now()

-- name: swept_at
select swept_at from frostline.managed_table where table_id = %(table_id)s

-- name: set_swept
update frostline.managed_table set swept_at = now() where table_id = %(table_id)s

-- name: hold
-- In the transaction that lowers the line.
update frostline.managed_table set held_from = %(line)s, lowered_xid = pg_current_xact_id() where table_id = %(table_id)s

-- name: release
update frostline.managed_table set held_from = null where table_id = %(table_id)s

-- name: lower
-- In the transaction that empties the table: what was held is gone.
update frostline.managed_table set held_from = null, lowered_xid = pg_current_xact_id() where table_id = %(table_id)s

-- name: lowered_xid
-- None also for a number that this server has not given out yet: then a dump brought it here, and nobody is older.
select case when lowered_xid < pg_snapshot_xmax(pg_current_snapshot()) then lowered_xid::text end
  from frostline.managed_table where table_id = %(table_id)s

-- name: strayed_row_security
select t.schema_name, t.table_name, s.problem
  from frostline.strayed_row_security(%(table_id)s::integer) s join frostline.managed_table t using (table_id)
 order by 1, 2

-- name: has_row_security
select h.relrowsecurity from pg_class h where h.oid = frostline.heap_of(%(table_id)s)

-- name: heap_oid
select c.oid from pg_class c join pg_namespace n on n.oid = c.relnamespace
 where n.nspname = %(schema)s and c.relname = %(table)s
