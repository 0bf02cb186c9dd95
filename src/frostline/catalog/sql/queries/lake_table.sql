-- name: insert
-- A second live table of that name is refused by the unique index; waits for whoever is making one just now. Its lineage is this one, unless
-- its files came from another.
insert into frostline.lake_table (table_uuid, namespace, table_name, owner, location, server)
values (%(uuid)s, %(namespace)s, %(table)s, coalesce(%(owner)s, session_user), %(location)s,
        coalesce(%(server)s, frostline.this_server()))
on conflict do nothing
returning lake_table_id

-- name: insert_numbered
-- One whose number a foreign table has already. Waits for whoever is making one of that name just now.
insert into frostline.lake_table (lake_table_id, table_uuid, namespace, table_name, owner, location)
overriding system value values (%(id)s, %(uuid)s, %(namespace)s, %(table)s, %(owner)s, %(location)s)
on conflict do nothing
returning lake_table_id

-- name: drop
-- Row lock; nothing happens to one that is dropped already.
update frostline.lake_table
   set state = 'dropped', dropped_at = now(), dropped_metadata = %(metadata_location)s
 where lake_table_id = %(id)s and state = 'live'

-- name: rename
-- Row lock; a name that another live table has is an error of the unique index.
update frostline.lake_table set namespace = %(new_namespace)s, table_name = %(new_table)s
 where lake_table_id = %(id)s and state = 'live'

-- name: forget
-- Its files are gone. Harmless to repeat.
delete from frostline.lake_table where lake_table_id = %(id)s and state = 'dropped'

-- name: dropped
-- Those whose files may still be there. Locks nothing.
select lake_table_id as id, namespace, table_name as table, table_uuid::text as uuid, owner, location, server,
       coalesce(dropped_metadata, '') as metadata_location, dropped_metadata is null as is_purged
  from frostline.lake_table where state = 'dropped' order by lake_table_id

-- name: begin_purge
-- Its files go from now on, so it has no state to come back to. Row lock; nothing happens to one that somebody has taken up. Harmless to
-- repeat.
update frostline.lake_table set dropped_metadata = null
 where lake_table_id = %(id)s and state = 'dropped'
returning lake_table_id

-- name: acts_for
-- Whether a role has what the owner of a lake table has; the owner may be gone. Locks nothing.
select frostline.acts_for(%(role)s, %(owner)s)

-- name: wait_no_longer
-- Until the transaction ends: a client that says nothing for so long has lost it.
select set_config('idle_in_transaction_session_timeout', '30s', true)
