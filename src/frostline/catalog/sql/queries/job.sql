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
-- In a restored database the next number has been given to a job of the other lineage too, and files are named by it: the
-- leftovers of one would be the lake of the other. So the first job of a lineage jumps to where nobody else is.
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
select job_id, kind, case when interrupted then 'interrupted' else state end as state, rows, size_bytes, error,
       started_at, changed_at
  from frostline.job where table_id = %(table_id)s order by job_id desc limit 1

-- name: failures
-- How often each kind failed since it last succeeded, when last, and why. One that somebody stopped has not failed.
select j.kind, count(*), max(j.changed_at) as last_at, (array_agg(j.error order by j.job_id desc))[1] as error
  from frostline.job j
 where j.table_id = %(table_id)s and j.state = 'failed' and not j.interrupted
   and j.job_id > coalesce((select max(o.job_id) from frostline.job o
                             where o.table_id = j.table_id and o.kind = j.kind
                               and o.state in ('published', 'cleaned')), 0)
 group by j.kind

-- name: totals
-- By table and kind, those that were pruned included.
select t.schema_name as schema, t.table_name as table, a.kind, sum(a.done)::bigint as done, sum(a.failed)::bigint as failed,
       sum(a.seconds)::float as seconds, sum(a.rows)::bigint as rows, sum(a.size_bytes)::bigint as size_bytes
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
-- Those of tables that are not managed any more: nothing refers to them, but a folder that is still to be deleted. Row locks.
delete from frostline.job j
 where j.table_id is null and j.lake_table_id is null and coalesce(j.ended_at, j.changed_at) < now() - %(days)s * interval '1 day'
   and not exists (select from frostline.left_folder f where j.job_id = any (f.jobs))

-- name: insert_done
insert into frostline.job (table_id, kind, state, detail, ended_at)
values (%(table_id)s, %(kind)s, 'published', %(detail)s, now())

-- name: history
-- Newest first, with those of tables that were removed; locks nothing.
select j.job_id, coalesce(t.schema_name, j.schema_name) as schema, coalesce(t.table_name, j.table_name) as table, j.kind,
       case when j.interrupted then 'interrupted' else j.state end as state, j.rows, j.size_bytes, j.error, j.detail,
       j.started_at, coalesce(j.ended_at, clock_timestamp()) - j.started_at as duration
  from frostline.job j left join frostline.managed_table t using (table_id)
 where (%(table)s::text is null
        or coalesce(t.schema_name, j.schema_name) = %(schema)s and coalesce(t.table_name, j.table_name) = %(table)s)
   and (j.state = 'failed' and not j.interrupted or not %(failed)s)
 order by j.job_id desc limit %(limit)s

-- name: is_remembered
-- Whether a table of that name was managed once, or is a lake table, and had jobs. Locks nothing.
select exists (select from frostline.job where schema_name = %(schema)s and table_name = %(table)s)
