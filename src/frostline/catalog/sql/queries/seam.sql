-- name: insert
insert into frostline.seam (table_id, line_timestamptz, line_timestamp, line_date, line_integer)
values (%(table_id)s, %(line_timestamptz)s::timestamptz, %(line_timestamp)s::timestamp,
        %(line_date)s::date, %(line_integer)s::bigint)

-- name: get
select s.table_id, coalesce(line_timestamptz::text, line_timestamp::text, line_date::text, line_integer::text) as line,
       s.snapshot_id, s.metadata_location
  from frostline.seam s where s.table_id = %(table_id)s

-- name: move
-- One row, by compare-and-set on T, S and the location: whoever lost the race changes nothing. Row lock only; readers
-- never wait.
update frostline.seam
   set line_timestamptz = %(line_timestamptz)s::timestamptz, line_timestamp = %(line_timestamp)s::timestamp,
       line_date = %(line_date)s::date, line_integer = %(line_integer)s::bigint,
       snapshot_id = %(snapshot_id)s,
       metadata_location = %(metadata_location)s
 where table_id = %(table_id)s
   and coalesce(line_timestamptz::text, line_timestamp::text, line_date::text, line_integer::text) = %(old_line)s
   and snapshot_id is not distinct from %(old_snapshot_id)s
   and metadata_location is not distinct from %(old_metadata_location)s

-- name: replace_state
-- In the transaction that moves the seam: who has an older snapshot goes on reading the state that was.
update frostline.lake_state set replaced_at = now(), replaced_xid = pg_current_xact_id()
 where table_id = %(table_id)s and replaced_at is null and metadata_location is distinct from %(metadata_location)s

-- name: insert_state
insert into frostline.lake_state (table_id, metadata_location, snapshot_id, manifests)
select %(table_id)s, %(metadata_location)s, %(snapshot_id)s, %(manifests)s where %(metadata_location)s::text is not null
on conflict (table_id, metadata_location) do nothing

-- name: retained
select coalesce(retained_timestamptz::text, retained_timestamp::text, retained_date::text, retained_integer::text)
  from frostline.seam where table_id = %(table_id)s

-- name: retain
-- R only rises.
update frostline.seam
   set retained_timestamptz = %(line_timestamptz)s::timestamptz, retained_timestamp = %(line_timestamp)s::timestamp,
       retained_date = %(line_date)s::date, retained_integer = %(line_integer)s::bigint
 where table_id = %(table_id)s
