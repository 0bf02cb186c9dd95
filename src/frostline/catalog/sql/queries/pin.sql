-- name: insert
-- The foreign key takes FOR KEY SHARE on the state: it waits for an expiry that is just committing, and then fails.
insert into frostline.pin (table_id, metadata_location, holder, expires_at)
values (%(table_id)s, %(metadata_location)s, %(holder)s, clock_timestamp() + make_interval(secs => %(seconds)s))
returning pin_id

-- name: renew
-- One that has run out stays so, even while its row is still there: its state may go at any moment. The others go on.
update frostline.pin set expires_at = clock_timestamp() + make_interval(secs => %(seconds)s)
 where pin_id = any(%(pin_ids)s::bigint[]) and expires_at > clock_timestamp()

-- name: release
delete from frostline.pin where pin_id = %(pin_id)s returning expires_at > clock_timestamp()

-- name: remove_dead
-- A renewal that comes first makes this wait, and look again. Row locks of pins that nobody may use any more.
delete from frostline.pin where table_id = %(table_id)s and expires_at <= clock_timestamp()

-- name: held
-- While its row is there, even a pin that has run out keeps its state from being deleted, by the foreign key.
select metadata_location, holder from frostline.pin
 where table_id = %(table_id)s and (%(dead)s or expires_at > clock_timestamp())
 order by pin_id

-- name: list_all
select p.pin_id as id, t.schema_name as schema, t.table_name as table, l.snapshot_id, p.metadata_location, p.holder,
       p.made_at, p.expires_at, p.expires_at > clock_timestamp() as is_alive
  from frostline.pin p join frostline.managed_table t using (table_id)
  join frostline.lake_state l using (table_id, metadata_location)
 order by p.pin_id
