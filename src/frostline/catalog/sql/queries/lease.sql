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
update frostline.lease set expires_at = clock_timestamp() + make_interval(secs => %(seconds)s)
 where table_id = %(table_id)s and epoch = %(epoch)s and holder is not null and expires_at > clock_timestamp()

-- name: release
update frostline.lease set holder = null where table_id = %(table_id)s and epoch = %(epoch)s

-- name: check
-- In the transaction that publishes. The lock keeps everybody from taking the lease until that transaction has ended.
select true from frostline.lease
 where table_id = %(table_id)s and holder is not null and expires_at > clock_timestamp()
   and backend_pid = pg_backend_pid() and backend_start = %(backend_start)s
   for share
