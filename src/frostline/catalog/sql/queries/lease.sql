-- name: me
select backend_start from pg_stat_activity where pid = pg_backend_pid()

-- name: take
-- Free, run out, or left behind by a session that is gone: then it is ours, with a new epoch.
insert into frostline.lease as l (table_id, holder, backend_pid, backend_start, expires_at)
values (%(table_id)s, %(holder)s, pg_backend_pid(), %(backend_start)s,
        clock_timestamp() + make_interval(secs => %(seconds)s))
on conflict (table_id) do update
   set epoch = l.epoch + 1, holder = excluded.holder, backend_pid = excluded.backend_pid,
       backend_start = excluded.backend_start, expires_at = excluded.expires_at
 where l.holder is null or l.expires_at <= clock_timestamp()
    or not exists (select from pg_stat_activity a
                    where a.pid = l.backend_pid and coalesce(a.backend_start = l.backend_start, true))
returning epoch

-- name: holder
select holder from frostline.lease where table_id = %(table_id)s

-- name: renew
-- The holder's own transaction may have the row locked (`check`) for longer than the lease lasts. So the lock comes
-- first, and the new end is reckoned after the wait. It must not have run out before that: then somebody may have had it.
with locked as (select table_id from frostline.lease where table_id = %(table_id)s for no key update)
update frostline.lease l set expires_at = clock_timestamp() + make_interval(secs => %(seconds)s)
  from locked
 where l.table_id = locked.table_id and l.epoch = %(epoch)s and l.holder is not null
   and l.expires_at > statement_timestamp()

-- name: release
update frostline.lease set holder = null where table_id = %(table_id)s and epoch = %(epoch)s

-- name: check
-- In the transaction that publishes. The lock keeps everybody from taking the lease until that transaction has ended.
select true from frostline.lease
 where table_id = %(table_id)s and holder is not null and expires_at > clock_timestamp()
   and backend_pid = pg_backend_pid() and backend_start = %(backend_start)s
   for share

-- name: take_lead
-- As `take`, of the one row that says which worker leads.
insert into frostline.leader as l (holder, backend_pid, backend_start, expires_at)
values (%(holder)s, pg_backend_pid(), %(backend_start)s, clock_timestamp() + make_interval(secs => %(seconds)s))
on conflict (only_one) do update
   set epoch = l.epoch + 1, holder = excluded.holder, backend_pid = excluded.backend_pid,
       backend_start = excluded.backend_start, expires_at = excluded.expires_at
 where l.holder is null or l.expires_at <= clock_timestamp()
    or not exists (select from pg_stat_activity a
                    where a.pid = l.backend_pid and coalesce(a.backend_start = l.backend_start, true))
returning epoch

-- name: renew_lead
update frostline.leader set expires_at = clock_timestamp() + make_interval(secs => %(seconds)s)
 where epoch = %(epoch)s and holder is not null and expires_at > clock_timestamp()

-- name: release_lead
update frostline.leader set holder = null where epoch = %(epoch)s

-- name: leader
-- Who leads now; nothing if the lease has run out or the session behind it is gone.
select l.holder from frostline.leader l
 where l.holder is not null and l.expires_at > clock_timestamp()
   and exists (select from pg_stat_activity a
                where a.pid = l.backend_pid and coalesce(a.backend_start = l.backend_start, true))

-- name: current_holder
-- The same for a table.
select l.holder from frostline.lease l
 where l.table_id = %(table_id)s and l.holder is not null and l.expires_at > clock_timestamp()
   and exists (select from pg_stat_activity a
                where a.pid = l.backend_pid and coalesce(a.backend_start = l.backend_start, true))
