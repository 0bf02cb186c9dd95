-- name: record
insert into frostline.archived_partition (table_id, partition_name, lower, upper, job_id, published_xid)
values (%(table_id)s, %(partition_name)s, %(lower)s, %(upper)s, %(job_id)s, pg_current_xact_id())
on conflict (table_id, upper) do update
   set partition_name = excluded.partition_name, lower = excluded.lower, job_id = excluded.job_id,
       published_xid = excluded.published_xid, published_at = now(), cleaned_at = null

-- name: rename
update frostline.archived_partition set partition_name = %(partition_name)s where table_id = %(table_id)s and upper = %(upper)s

-- name: list
-- With %(only_uncleaned)s, those that still hold their rows.
select a.partition_name as name, a.lower, a.upper, a.job_id, a.published_xid::text,
       now() >= a.published_at + t.grace_period as grace_is_over,
       a.published_at + t.grace_period as grace_ends_at,
       a.cleaned_at is not null as is_cleaned
  from frostline.archived_partition a join frostline.managed_table t using (table_id)
 where a.table_id = %(table_id)s and (a.cleaned_at is null or not %(only_uncleaned)s)
 order by a.upper

-- name: forget_above
-- In the transaction that lowers the line: what lies above it is hot again.
delete from frostline.archived_partition where table_id = %(table_id)s and upper > %(line)s

-- name: emptied
select a.partition_name from frostline.archived_partition a
 where a.table_id = %(table_id)s and a.cleaned_at is not null and to_regclass(a.partition_name) is not null
 order by a.upper

-- name: set_cleaned
update frostline.archived_partition set cleaned_at = now() where table_id = %(table_id)s and upper = %(upper)s

-- name: finish_cleaned_jobs
update frostline.job j set state = 'cleaned', changed_at = clock_timestamp()
 where j.table_id = %(table_id)s and j.state = 'published' and j.kind = 'archive'
   and not exists (select from frostline.archived_partition a where a.job_id = j.job_id and a.cleaned_at is null)

-- name: adopt_xids
-- A number that this server has not given out yet is another server's: the rows were restored from a dump. From now
-- on they count as published by this very statement, so that whoever is open at this moment is waited for.
update frostline.archived_partition set published_xid = pg_current_xact_id()
 where table_id = %(table_id)s and cleaned_at is null
   and published_xid >= (select pg_snapshot_xmax(pg_current_snapshot()))
