-- name: insert
insert into frostline.job (table_id, kind, state, from_line, to_line)
values (%(table_id)s, %(kind)s, 'planned', %(from_line)s, %(to_line)s)
returning job_id

-- name: advance
-- Somebody may have called the job failed while its worker was paused. Then it stays so, and its files go.
update frostline.job
   set state = %(state)s, rows = coalesce(%(rows)s, rows), size_bytes = coalesce(%(size_bytes)s, size_bytes),
       changed_at = clock_timestamp(), ended_at = case when %(state)s = 'published' then clock_timestamp() end
 where job_id = %(job_id)s and state <> 'failed'

-- name: describe
update frostline.job set detail = %(detail)s where job_id = %(job_id)s

-- name: fail
-- What is published stays so, whatever went wrong afterwards: a failed job has nothing in the lake that is read.
update frostline.job set state = 'failed', error = %(error)s, tidied = false, changed_at = clock_timestamp(),
       ended_at = clock_timestamp(), interrupted = %(interrupted)s
 where job_id = %(job_id)s and state not in ('published', 'cleaned')

-- name: abandon_unfinished
-- Under the table's lease: whoever held these jobs is gone, or may not publish them any more. Their files are garbage for the orphan sweep.
update frostline.job
   set state = 'failed', error = 'abandoned: the process that ran it is gone', tidied = false,
       changed_at = clock_timestamp(), ended_at = clock_timestamp()
 where table_id = %(table_id)s and state in ('planned', 'captured', 'exported')
returning job_id

-- name: leave_other_histories
-- In a restored database the next number has been given to a job of the other history too, and files are named by it: the
-- leftovers of one would be the lake of the other. So the first job of a history jumps to where nobody else is.
with moved as (
    update frostline.history set server = frostline.this_server() where server <> frostline.this_server() returning server
)
select setval('frostline.job_job_id_seq', s.last_value + 1000000 + (random() * 1000000000)::bigint)
  from moved, frostline.job_job_id_seq s

-- name: untidied
select job_id from frostline.job
 where table_id = %(table_id)s and state = 'failed' and not tidied and server = frostline.this_server()
 order by job_id

-- name: set_tidied
update frostline.job set tidied = true where job_id = %(job_id)s

-- name: last
select job_id, kind, case when interrupted then 'interrupted' else state end, rows, size_bytes, error, started_at, changed_at
  from frostline.job where table_id = %(table_id)s order by job_id desc limit 1

-- name: failures
-- How often each kind failed since it last succeeded, when last, and why. One that somebody stopped has not failed.
select j.kind, count(*), max(j.changed_at), (array_agg(j.error order by j.job_id desc))[1]
  from frostline.job j
 where j.table_id = %(table_id)s and j.state = 'failed' and not j.interrupted
   and j.job_id > coalesce((select max(o.job_id) from frostline.job o
                             where o.table_id = j.table_id and o.kind = j.kind
                               and o.state in ('published', 'cleaned')), 0)
 group by j.kind

-- name: totals
-- By table and kind, those that were pruned included.
select t.schema_name, t.table_name, a.kind, sum(a.done)::bigint, sum(a.failed)::bigint, sum(a.seconds)::float,
       sum(a.rows)::bigint, sum(a.size_bytes)::bigint
  from (select j.table_id, j.kind, count(*) filter (where j.state in ('published', 'cleaned')) as done,
               count(*) filter (where j.state = 'failed' and not j.interrupted) as failed,
               coalesce(sum(extract(epoch from j.ended_at - j.started_at))
                        filter (where j.state in ('published', 'cleaned')), 0)::float as seconds,
               coalesce(sum(j.rows) filter (where j.state in ('published', 'cleaned')), 0) as rows,
               coalesce(sum(j.size_bytes) filter (where j.state in ('published', 'cleaned')), 0) as size_bytes
          from frostline.job j group by 1, 2
         union all
        select p.table_id, p.kind, p.done, p.failed, p.seconds, p.rows, p.size_bytes from frostline.job_total p) a
  join frostline.managed_table t using (table_id)
 group by 1, 2, 3 order by 1, 2, 3

-- name: prune
-- Jobs that ended long ago, and that nothing refers to: no file or partition that they recorded, no file that lies in the
-- warehouse, no leftovers. Of each kind the last one and the last that succeeded stay: they tell what is wrong. Row locks; one
-- statement, so a job is either there or counted in the totals.
with newest as (
    select max(job_id) as job_id from frostline.job where table_id = %(table_id)s group by kind
     union
    select max(job_id) from frostline.job where table_id = %(table_id)s and state in ('published', 'cleaned') group by kind
), gone as (
    delete from frostline.job j
     where j.table_id = %(table_id)s and j.ended_at < now() - %(days)s * interval '1 day'
       and (j.state in ('published', 'cleaned') or j.state = 'failed' and j.tidied)
       and not j.job_id = any(%(kept)s) and j.job_id not in (select n.job_id from newest n)
       and not exists (select from frostline.lake_file f where f.job_id = j.job_id)
       and not exists (select from frostline.archived_partition a where a.job_id = j.job_id)
    returning j.kind, j.state, j.interrupted, j.rows, j.size_bytes, j.ended_at - j.started_at as took
), counted as (
    insert into frostline.job_total as p (table_id, kind, done, failed, seconds, rows, size_bytes)
    select %(table_id)s, g.kind, count(*) filter (where g.state <> 'failed'),
           count(*) filter (where g.state = 'failed' and not g.interrupted),
           coalesce(sum(extract(epoch from g.took)) filter (where g.state <> 'failed'), 0),
           coalesce(sum(g.rows) filter (where g.state <> 'failed'), 0),
           coalesce(sum(g.size_bytes) filter (where g.state <> 'failed'), 0)
      from gone g group by g.kind
    on conflict (table_id, kind) do update
       set done = p.done + excluded.done, failed = p.failed + excluded.failed, seconds = p.seconds + excluded.seconds,
           rows = p.rows + excluded.rows, size_bytes = p.size_bytes + excluded.size_bytes
    returning p.kind
)
select count(*) from gone

-- name: prune_removed
-- Those of tables that are not managed any more: nothing refers to them. Row locks.
delete from frostline.job where table_id is null and coalesce(ended_at, changed_at) < now() - %(days)s * interval '1 day'

-- name: insert_done
insert into frostline.job (table_id, kind, state, detail, ended_at)
values (%(table_id)s, %(kind)s, 'published', %(detail)s, now())

-- name: insert_partition
insert into frostline.archived_partition (table_id, partition_name, lower, upper, job_id, published_xid)
values (%(table_id)s, %(partition_name)s, %(lower)s, %(upper)s, %(job_id)s, pg_current_xact_id())
on conflict (table_id, upper) do update
   set partition_name = excluded.partition_name, lower = excluded.lower, job_id = excluded.job_id,
       published_xid = excluded.published_xid, published_at = now(), cleaned_at = null

-- name: rename_partition
update frostline.archived_partition set partition_name = %(partition_name)s where table_id = %(table_id)s and upper = %(upper)s

-- name: uncleaned
select a.partition_name, a.lower, a.upper, a.job_id, a.published_xid::text,
       now() >= a.published_at + t.grace_period as grace_is_over, a.published_at + t.grace_period
  from frostline.archived_partition a join frostline.managed_table t using (table_id)
 where a.table_id = %(table_id)s and a.cleaned_at is null
 order by a.upper

-- name: archived
select a.partition_name, a.lower, a.upper, a.cleaned_at is not null
  from frostline.archived_partition a where a.table_id = %(table_id)s order by a.upper

-- name: forget_archived
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

-- name: older_snapshots
-- Backends of this database, walsenders and slots whose snapshot may be older than the transaction that published, and
-- transactions that have been writing since before it: they keep `settle_standbys` from working.
-- A backend whose horizon is hidden from this role counts as old. Nobody can be older than a transaction which is
-- so long ago that Postgres would not let anybody be.
with published as (
    select %(xid)s::xid8::xid as xid
     where pg_snapshot_xmax(pg_current_snapshot())::text::numeric - %(xid)s::xid8::text::numeric < 2000000000
)
select a.pid::text
  from pg_stat_activity a, published
 where a.pid <> pg_backend_pid()
   and (a.datname = current_database() or a.datname is null)
   and (age(a.backend_xmin) >= age(published.xid)
        or age(a.backend_xid) >= age(published.xid)
        or a.backend_xmin is null and a.state is null and a.backend_type = 'client backend')
union all
select s.slot_name from pg_replication_slots s, published
 where s.xmin is not null and age(s.xmin) >= age(published.xid)
union all
select p.gid from pg_prepared_xacts p, published
 where p.database = current_database() and age(p.transaction) >= age(published.xid)

-- name: limit_settling
select set_config('statement_timeout', %(limit)s, false)

-- name: end_limit
reset statement_timeout

-- name: settle_standbys
-- Takes the seam's old versions away. A standby that replays this first ends every query that still sees one of them,
-- and so the old frost line; TRUNCATE comes after it in the WAL, and would not. FREEZE makes it wait for pinned pages
-- instead of passing over them. Nothing waits for it: SHARE UPDATE EXCLUSIVE on a table of one row a managed table.
vacuum (freeze) frostline.seam

-- name: insert_files
-- All in one statement: what they add up to is counted once for each.
insert into frostline.lake_file (table_id, path, rows, size_bytes, lower, upper, hash_sum, job_id)
select %(table_id)s, f.path, f.rows, f.size_bytes, f.lower, f.upper, f.hash_sum, %(job_id)s
  from unnest(%(paths)s::text[], %(rows)s::bigint[], %(sizes)s::bigint[], %(lowers)s::bigint[], %(uppers)s::bigint[],
              %(hash_sums)s::numeric[]) f (path, rows, size_bytes, lower, upper, hash_sum)

-- name: delete_range
-- The lake is overwritten in this range, so what was recorded of it goes.
delete from frostline.lake_file
 where table_id = %(table_id)s and lower >= %(lower)s and upper >= %(lower)s and upper < %(upper)s

-- name: delete_files
delete from frostline.lake_file where table_id = %(table_id)s and path = any(%(paths)s)

-- name: files
select f.path, f.rows, f.size_bytes, f.lower, f.upper, f.hash_sum, c.sha256
  from frostline.lake_file f left join frostline.file_checksum c using (path)
 where f.table_id = %(table_id)s order by f.lower, f.path

-- name: files_within
-- Locks nothing.
select f.path, f.rows, f.size_bytes, f.lower, f.upper, f.hash_sum, c.sha256
  from frostline.lake_file f left join frostline.file_checksum c using (path)
 where f.table_id = %(table_id)s
   and (%(lower)s::bigint is null or f.upper >= %(lower)s) and (%(upper)s::bigint is null or f.lower < %(upper)s)
 order by f.lower, f.path

-- name: lake_totals
select files, rows, size_bytes from frostline.lake_total where table_id = %(table_id)s

-- name: changed_files
-- Which lake files came or went since nothing was worth merging, and for which target size that was.
select changed_from, changed_to, settled_for from frostline.lake_total where table_id = %(table_id)s

-- name: settle
-- Compare-and-set: a file that came meanwhile has to be looked at. Row lock.
update frostline.lake_total set changed_from = null, changed_to = null, settled_for = %(target)s
 where table_id = %(table_id)s
   and changed_from is not distinct from %(changed_from)s and changed_to is not distinct from %(changed_to)s

-- name: history
-- Newest first, with those of tables that were removed; locks nothing.
select j.job_id, coalesce(t.schema_name, j.schema_name), coalesce(t.table_name, j.table_name), j.kind,
       case when j.interrupted then 'interrupted' else j.state end, j.rows, j.size_bytes, j.error, j.detail, j.started_at,
       coalesce(j.ended_at, clock_timestamp()) - j.started_at
  from frostline.job j left join frostline.managed_table t using (table_id)
 where (%(table)s::text is null
        or coalesce(t.schema_name, j.schema_name) = %(schema)s and coalesce(t.table_name, j.table_name) = %(table)s)
   and (j.state = 'failed' and not j.interrupted or not %(failed)s)
 order by j.job_id desc limit %(limit)s

-- name: is_remembered
-- Whether a table of that name was managed once, and had jobs. Locks nothing.
select exists (select from frostline.job where schema_name = %(schema)s and table_name = %(table)s)
