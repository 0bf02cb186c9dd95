-- name: ripe_at_timestamptz
select {upper}::timestamptz + {hot}::interval

-- name: ripe_at_time
select ({upper}::timestamp + {hot}::interval) at time zone 'UTC'

-- name: fold_due_at
select min(frostline_marked_at) + {age}::interval from {overlay} where {condition}

-- name: tier_value
select {text}::{kind}::text

-- name: is_captured
-- A partition that is gone or has another name by now is not.
select exists (select from pg_trigger t
                 join pg_class c on c.oid = t.tgrelid and c.relname = {table}
                 join pg_namespace n on n.oid = c.relnamespace and n.nspname = {schema}
                where t.tgfoid = to_regproc({function}) and t.tgenabled = 'A' and t.tgtype & 1 = 1)

-- name: forget_marks
-- Under the lock of the trigger's creation. Marks from before it, above the frost line, mean nothing: of rows that were moved
-- here out of another partition, or of one that was here before.
delete from {overlay} where {condition} and {tier_key} >= {line}

-- name: mark_all
-- Under the lock of the trigger's creation: from here on every change marks itself, and this marks what was there. A row that
-- was moved here out of DEFAULT has a mark that says it is gone.
insert into {overlay} ({columns}, frostline_live) select {columns}, true from only {partition}
on conflict ({key}) do update set {replace} frostline_live = true, frostline_version = nextval('frostline.overlay_version')

-- name: lowest_value
select min({tier_key})::text from only {partition} where {tier_key} >= {from}

-- name: marks_in_range
select count(*) from {overlay} where {condition}

-- name: oldest_mark
select extract(epoch from now() - min(frostline_marked_at))::bigint from {overlay} where {condition}

-- name: has_older_mark
select exists (select from {overlay} where {condition} and frostline_marked_at <= now() - {age}::interval)

-- name: empty
truncate table only {partition}
