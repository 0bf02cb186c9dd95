-- name: over
-- Former states that the policy does not keep any more, the oldest first: those that were replaced a minute longer ago than it says, for
-- the time that a commit takes. The newest are kept for longer than what comes before them. What was replaced since %(began)s is being
-- read by a named snapshot that is made. Locks nothing.
select f.metadata_location, f.replaced_at
  from (select s.metadata_location, s.replaced_at, row_number() over (order by s.replaced_at desc, s.metadata_location) as place
          from frostline.former_lake_state s where s.lake_table_id = %(lake_table_id)s) f
 where f.replaced_at <= now() - interval '1 minute'
                        - case when f.place >= %(most)s then %(short_age)s::interval else %(age)s::interval end
   and f.replaced_at <= coalesce(%(began)s::timestamptz, 'infinity') - interval '1 minute'
 order by f.replaced_at, f.metadata_location

-- name: former
-- All former states that somebody may read, the oldest first. Locks nothing.
select metadata_location from frostline.former_lake_state
 where lake_table_id = %(lake_table_id)s order by replaced_at, metadata_location

-- name: forget
-- In the transaction that expires them. One that was current again meanwhile has another time, and stays. Row locks; harmless to repeat.
delete from frostline.former_lake_state f
 using unnest(%(locations)s::text[], %(times)s::timestamptz[]) as g(location, replaced_at)
 where f.lake_table_id = %(lake_table_id)s and f.metadata_location = g.location and f.replaced_at = g.replaced_at
returning f.metadata_location

-- name: is_own
-- Whether nobody else can need what this database takes for garbage of the table: it was made in this very lineage, or in another one that
-- this database owns, as for the files of managed tables (lake_state.own_jobs). True of one that is gone: whoever wants to do something with
-- it is told that. Locks nothing.
select coalesce((
    select t.server = frostline.this_server()
           or t.server in (select o.server from frostline.own_history o)
              and exists (select from frostline.own_history o where o.server = frostline.this_server())
      from frostline.lake_table t where t.lake_table_id = %(lake_table_id)s), true)

-- name: look
-- Row lock; the latest look counts.
insert into frostline.lake_look as l (lake_table_id, metadata_location, rows, files, delete_files, size_bytes, snapshots, age, crowded_age)
values (%(lake_table_id)s, %(metadata_location)s, %(rows)s, %(files)s, %(delete_files)s, %(size_bytes)s, %(snapshots)s, %(age)s,
        %(short_age)s)
on conflict (lake_table_id) do update
   set metadata_location = excluded.metadata_location, rows = excluded.rows, files = excluded.files,
       delete_files = excluded.delete_files, size_bytes = excluded.size_bytes, snapshots = excluded.snapshots, age = excluded.age,
       crowded_age = excluded.crowded_age, looked_at = excluded.looked_at

-- name: set_swept
-- Row lock.
update frostline.lake_table set swept_at = now() where lake_table_id = %(lake_table_id)s

-- name: survey
-- Every live lake table: what the last look has found, what runs on it, and how many states are to be expired. These are none until the oldest one is over by an eighth of its time, or by an hour, so that many go with one commit. Locks nothing.
with this as materialized (  -- a standby cannot say which server it is, and deletes nothing anyway
    select frostline.this_server() as server where not pg_is_in_recovery())
select t.lake_table_id as id, now() as now, t.swept_at,
       l.metadata_location as looked_at_location, l.looked_at, l.rows, l.files, l.delete_files, l.size_bytes, l.snapshots,
       case when o.is_due then o.count else 0 end as expirable, r.holder as leased_by,
       pg_is_in_recovery() or t.server = (select server from this)
       or t.server in (select h.server from frostline.own_history h)
          and exists (select from frostline.own_history h where h.server = (select server from this)) as is_own
  from frostline.lake_table t
  left join frostline.lake_look l using (lake_table_id)
 cross join lateral (
    select count(*) as count,
           bool_or(f.replaced_at <= now() - interval '1 minute' - f.age - least(f.age / 8, interval '1 hour')) as is_due
      from (select s.replaced_at,
                   case when row_number() over (order by s.replaced_at desc, s.metadata_location) >= %(most)s
                        then l.crowded_age else l.age end as age
              from frostline.former_lake_state s where s.lake_table_id = t.lake_table_id) f
     where f.replaced_at <= now() - interval '1 minute' - f.age) o
  left join lateral (
    select format('%%s %%s, process %%s', j.kind, j.job_id, j.backend_pid) as holder
      from frostline.job j
     where j.lake_table_id = t.lake_table_id and j.state in ('planned', 'captured', 'exported')
       and exists (select from pg_stat_activity a
                    where a.pid = j.backend_pid and coalesce(a.backend_start = j.backend_start, true))
     order by j.job_id desc limit 1) r on true
 where t.state = 'live'
 order by t.namespace, t.table_name

-- name: abandon
-- Jobs whose session is gone: nobody does them any more. Row locks.
update frostline.job j
   set state = 'failed', error = 'abandoned: the process that ran it is gone', changed_at = clock_timestamp(), ended_at = clock_timestamp()
 where j.lake_table_id = %(lake_table_id)s and j.state in ('planned', 'captured', 'exported')
   and not exists (select from pg_stat_activity a
                    where a.pid = j.backend_pid and coalesce(a.backend_start = j.backend_start, true))

-- name: start
insert into frostline.job (lake_table_id, schema_name, table_name, kind, state, backend_pid, backend_start)
select %(lake_table_id)s, %(schema)s, %(table)s, %(kind)s, 'planned', a.pid, a.backend_start
  from pg_stat_activity a where a.pid = pg_backend_pid()
returning job_id

-- name: record_done
insert into frostline.job (lake_table_id, schema_name, table_name, kind, state, detail, ended_at)
values (%(lake_table_id)s, %(schema)s, %(table)s, %(kind)s, 'published', %(detail)s, now())

-- name: failures
-- How often each kind failed since it last succeeded, when last, and why. One that somebody stopped has not failed. Locks nothing.
select j.lake_table_id, j.kind, count(*), max(j.changed_at) as last_at, (array_agg(j.error order by j.job_id desc))[1] as error
  from frostline.job j
 where j.lake_table_id is not null and j.state = 'failed' and not j.interrupted
   and j.job_id > coalesce((select max(o.job_id) from frostline.job o
                             where o.lake_table_id = j.lake_table_id and o.kind = j.kind and o.state = 'published'), 0)
 group by j.lake_table_id, j.kind

-- name: last
-- The newest job of each lake table. Locks nothing.
select distinct on (j.lake_table_id) j.lake_table_id, j.job_id, j.kind,
       case when j.interrupted then 'interrupted' else j.state end as state, j.rows, j.size_bytes, j.error, j.started_at, j.changed_at
  from frostline.job j where j.lake_table_id is not null order by j.lake_table_id, j.job_id desc

-- name: prune
-- Jobs that ended long ago; of each kind the last one and the last that succeeded stay. Row locks.
delete from frostline.job j
 where j.lake_table_id = %(lake_table_id)s and j.ended_at < now() - %(days)s * interval '1 day'
   and j.job_id not in (select max(n.job_id) from frostline.job n where n.lake_table_id = %(lake_table_id)s
                         group by n.kind, n.state = 'published')
