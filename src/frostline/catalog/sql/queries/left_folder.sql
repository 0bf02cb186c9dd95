-- Folders of tables that are not managed any more: docs/design/leaving.md.

-- name: keep_pins_out
-- Whoever makes a pin wants its state FOR KEY SHARE, and waits: the statement after this one sees all pins. Row locks until the end.
select from frostline.lake_state where table_id = %(table_id)s for update

-- name: leave
-- In the transaction that forgets the table, before its rows go. Nothing if it never had a job, and so no file.
insert into frostline.left_folder (location, jobs, pinned_until)
select %(location)s, array_agg(j.job_id),
       (select max(p.expires_at) from frostline.pin p where p.table_id = %(table_id)s and p.expires_at > now())
  from frostline.job j where j.table_id = %(table_id)s
having count(*) > 0
on conflict (location) do nothing

-- name: adopt_xids
-- A number that this server has not given out yet is another server's: the rows were restored from a dump. Row locks.
update frostline.left_folder set left_xid = pg_current_xact_id()
 where left_xid >= (select pg_snapshot_xmax(pg_current_snapshot()))

-- name: list_all
-- Locks nothing. Whether a lake of ours is in the folder again, as one that was adopted; the pointers are asked apart.
select f.location, f.left_xid::text as xid, coalesce(f.pinned_until > now(), false) as is_pinned,
       exists (select from frostline.seam s where starts_with(s.metadata_location, f.location || '/'))
       or exists (select from frostline.lake_state l where starts_with(l.metadata_location, f.location || '/'))
       or exists (select from frostline.snapshot_table t where starts_with(t.metadata_location, f.location || '/')) as is_needed
  from frostline.left_folder f order by f.location

-- name: own_jobs
-- Those whose files may be deleted: of this very lineage, and of the others that it owns, as in lake_state.own_jobs. Locks nothing.
select j.job_id
  from frostline.left_folder f join frostline.job j on j.job_id = any (f.jobs)
 where f.location = %(location)s
   and (j.server = frostline.this_server()
        or j.server in (select o.server from frostline.own_history o)
           and exists (select from frostline.own_history o where o.server = frostline.this_server()))

-- name: forget
-- When its files are gone. With the jobs, unless the table is managed again under their numbers. Row locks.
with gone as (delete from frostline.left_folder f where f.location = %(location)s returning f.jobs)
delete from frostline.job j using gone g where j.job_id = any (g.jobs) and j.table_id is null and %(with_jobs)s
