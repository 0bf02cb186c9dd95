-- name: insert
-- A second live table of that name is refused by the unique index; waits for whoever is making one just now.
insert into frostline.lake_table (table_uuid, namespace, table_name, owner, location)
values (%(uuid)s, %(namespace)s, %(table)s, coalesce(%(owner)s, session_user), %(location)s)
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
select lake_table_id as id, namespace, table_name as table, table_uuid::text as uuid, owner, location,
       dropped_metadata as metadata_location
  from frostline.lake_table where state = 'dropped' order by lake_table_id

-- name: acts_for
-- Whether a role is the owner of a lake table, a member of it or a superuser; the owner may be gone. Locks nothing.
select exists (select from pg_roles r
                where r.rolname = %(role)s
                  and (r.rolsuper or exists (select from pg_roles o
                                              where o.rolname = %(owner)s and pg_has_role(r.oid, o.oid, 'usage'))))
