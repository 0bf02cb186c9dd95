-- name: adopt_xids
-- A number that this server has not given out yet is another server's: the rows were restored from a dump. From now on
-- they count as replaced by this very statement, so that whoever is open at this moment is waited for. Row locks.
update frostline.lake_state set replaced_xid = pg_current_xact_id()
 where table_id = %(table_id)s and replaced_xid >= (select pg_snapshot_xmax(pg_current_snapshot()))

-- name: adopt
-- A state that the lake has and the catalog does not know: it counts as replaced now. Harmless to repeat.
insert into frostline.lake_state (table_id, metadata_location, snapshot_id, replaced_at, replaced_xid)
values (%(table_id)s, %(metadata_location)s, %(snapshot_id)s, now(), pg_current_xact_id())
on conflict (table_id, metadata_location) do nothing

-- name: list_all
-- Locks nothing. The oldest horizon of all backends of this database, walsenders, slots and prepared transactions is
-- looked up once for all states; horizon.older_snapshots says who they are, and why each of them counts.
with oldest as materialized (
    select max(held.age) as age
      from (select case when a.backend_xmin is null and a.state is null and a.backend_type = 'client backend'
                        then 2147483647 else greatest(age(a.backend_xmin), age(a.backend_xid)) end as age
              from pg_stat_activity a
             where a.pid <> pg_backend_pid() and (a.datname = current_database() or a.datname is null)
            union all
            select age(s.xmin) from pg_replication_slots s
            union all
            select age(p.transaction) from pg_prepared_xacts p where p.database = current_database()) held
)
select l.metadata_location, l.snapshot_id, l.replaced_xid::text,
       coalesce(l.replaced_at <= now() - t.snapshot_retention, false) as is_over,
       coalesce(oldest.age >= age(l.replaced_xid::xid)
                and pg_snapshot_xmax(pg_current_snapshot())::text::numeric - l.replaced_xid::text::numeric < 2000000000,
                false) as is_seen
  from frostline.lake_state l join frostline.managed_table t using (table_id) cross join oldest
 where l.table_id = %(table_id)s
 order by l.replaced_at nulls last, l.metadata_location

-- name: manifests
select manifests from frostline.lake_state where table_id = %(table_id)s and replaced_at is null

-- name: lock
-- In the transaction that expires them. A pin that is being made holds its state FOR KEY SHARE by its foreign key, and
-- is passed over; one that comes later waits for this transaction, and then finds its state gone. Pins are read in the
-- statement after this one, whose snapshot has every pin that was committed before the lock.
select metadata_location from frostline.lake_state
 where table_id = %(table_id)s and metadata_location = any(%(locations)s) and replaced_at is not null
   for update skip locked

-- name: delete
-- Under the lock above.
delete from frostline.lake_state
 where table_id = %(table_id)s and metadata_location = any(%(locations)s) and replaced_at is not null

-- name: state_of_snapshot
-- Locks nothing: who reads the state pins it next, and is told if it has gone meanwhile.
select metadata_location, snapshot_id from frostline.lake_state
 where table_id = %(table_id)s and snapshot_id = %(snapshot_id)s
 order by replaced_at desc nulls first limit 1

-- name: state_at
-- The one state that was current then, by the start of the transactions that published it and replaced it. Locks nothing.
select metadata_location, snapshot_id from frostline.lake_state
 where table_id = %(table_id)s and published_at <= %(at)s and (replaced_at is null or replaced_at > %(at)s)
 order by published_at desc limit 1

-- name: snapshot_table
-- One table of a named snapshot: of the version that is asked for, else of the newest. Locks nothing.
select t.metadata_location, t.lake_snapshot_id as snapshot_id
  from frostline.snapshot s join frostline.snapshot_table t using (snapshot_id)
 where s.name = %(name)s and s.state = 'published' and t.schema_name = %(schema)s and t.table_name = %(table)s
   and s.version = coalesce(%(version)s::integer,
                            (select max(n.version) from frostline.snapshot n
                              where n.name = %(name)s and n.state = 'published'))

-- name: own_jobs
-- The ended jobs of a table whose files may be deleted: those of this very lineage, and of the others that it owns. In
-- a restored or promoted database `own_history` is a copy of somebody else's, which does not name this server; then it
-- says nothing. Locks nothing.
select j.job_id from frostline.job j
 where j.table_id = %(table_id)s and j.state in ('published', 'cleaned', 'failed')
   and (j.server = frostline.this_server()
        or %(any_lineage)s
        or j.server in (select o.server from frostline.own_history o)
           and exists (select from frostline.own_history o where o.server = frostline.this_server()))

-- name: take_over
-- Harmless to repeat.
insert into frostline.own_history (server)
select j.server from frostline.job j where j.server is not null
union select s.server from frostline.snapshot s
union select l.server from frostline.lake_table l
union select frostline.this_server()
on conflict (server) do nothing

-- name: is_copy
-- Whether this database was restored or promoted since a job of its lineage. Locks nothing.
select exists (select from frostline.job j
                where j.state in ('published', 'cleaned') and j.server <> frostline.this_server())
