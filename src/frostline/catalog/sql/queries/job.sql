-- name: insert
insert into frostline.job (table_id, kind, state, from_line, to_line)
values (%(table_id)s, %(kind)s, 'planned', %(from_line)s, %(to_line)s)
returning job_id

-- name: advance
update frostline.job
   set state = %(state)s, rows = coalesce(%(rows)s, rows), size_bytes = coalesce(%(size_bytes)s, size_bytes),
       changed_at = clock_timestamp()
 where job_id = %(job_id)s

-- name: fail
update frostline.job set state = 'failed', error = %(error)s, changed_at = clock_timestamp() where job_id = %(job_id)s

-- name: abandon_unfinished
-- Under the table's advisory lock: whoever held these jobs is gone. Their files are garbage for the orphan sweep.
update frostline.job set state = 'failed', error = 'abandoned: the process that ran it is gone', changed_at = clock_timestamp()
 where table_id = %(table_id)s and state in ('planned', 'captured', 'exported')
returning job_id

-- name: last
select job_id, kind, state, rows, size_bytes, error, started_at, changed_at
  from frostline.job where table_id = %(table_id)s order by job_id desc limit 1

-- name: try_lock
-- Session-level advisory lock: one job a table at a time; gone with the connection.
select pg_try_advisory_lock(7205759, %(table_id)s)

-- name: unlock
select pg_advisory_unlock(7205759, %(table_id)s)

-- name: insert_partition
insert into frostline.archived_partition (table_id, partition_name, lower, upper, job_id, published_xid)
values (%(table_id)s, %(partition_name)s, %(lower)s, %(upper)s, %(job_id)s, pg_current_xact_id())
on conflict (table_id, upper) do update
   set partition_name = excluded.partition_name, lower = excluded.lower, job_id = excluded.job_id,
       published_xid = excluded.published_xid, published_at = now(), cleaned_at = null

-- name: uncleaned
select a.partition_name, a.lower, a.upper, a.job_id, a.published_xid::text,
       now() >= a.published_at + t.grace_period as grace_is_over, a.published_at + t.grace_period
  from frostline.archived_partition a join frostline.managed_table t using (table_id)
 where a.table_id = %(table_id)s and a.cleaned_at is null
 order by a.upper

-- name: emptied
select a.partition_name from frostline.archived_partition a
 where a.table_id = %(table_id)s and a.cleaned_at is not null and to_regclass(a.partition_name) is not null
 order by a.upper

-- name: set_cleaned
update frostline.archived_partition set cleaned_at = now() where table_id = %(table_id)s and upper = %(upper)s

-- name: finish_cleaned_jobs
update frostline.job j set state = 'cleaned', changed_at = clock_timestamp()
 where j.table_id = %(table_id)s and j.state = 'published'
   and not exists (select from frostline.archived_partition a where a.job_id = j.job_id and a.cleaned_at is null)

-- name: older_snapshots
-- Backends of this database, walsenders and slots whose snapshot may be older than the transaction that published.
-- A backend whose horizon is hidden from this role counts as old.
select a.pid::text
  from pg_stat_activity a
 where a.pid <> pg_backend_pid()
   and (a.datname = current_database() or a.datname is null)
   and (a.backend_xmin is not null and age(a.backend_xmin) >= age(%(xid)s::xid8::xid)
        or a.backend_xmin is null and a.state is null and a.backend_type = 'client backend')
union all
select s.slot_name from pg_replication_slots s
 where s.xmin is not null and age(s.xmin) >= age(%(xid)s::xid8::xid)

-- name: insert_file
insert into frostline.lake_file (table_id, path, rows, size_bytes, lower, upper, hash_sum, job_id)
values (%(table_id)s, %(path)s, %(rows)s, %(size_bytes)s, %(lower)s, %(upper)s, %(hash_sum)s, %(job_id)s)

-- name: delete_files
-- The lake is overwritten in this range, so what was recorded of it goes.
delete from frostline.lake_file where table_id = %(table_id)s and lower >= %(lower)s and upper < %(upper)s

-- name: delete_file
delete from frostline.lake_file where table_id = %(table_id)s and path = %(path)s

-- name: files
select path, rows, size_bytes, lower, upper, hash_sum
  from frostline.lake_file where table_id = %(table_id)s order by lower, path

-- name: lake_totals
select count(*), coalesce(sum(rows), 0)::bigint, coalesce(sum(size_bytes), 0)::bigint
  from frostline.lake_file where table_id = %(table_id)s
