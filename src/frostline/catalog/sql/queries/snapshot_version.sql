-- name: lock
-- A session lock, on the session that publishes: when it is lost, so is the right to publish.
select pg_try_advisory_lock(hashtextextended('frostline snapshot ' || %(name)s::text, 0))

-- name: unlock
select pg_advisory_unlock(hashtextextended('frostline snapshot ' || %(name)s::text, 0))

-- name: start
-- Under the name's lock, so that no two runs get the same number.
insert into frostline.snapshot (name, version, warehouse, catalog_uri, catalog_warehouse)
select %(name)s, coalesce(max(version), 0) + 1, %(warehouse)s, %(catalog_uri)s, %(catalog_warehouse)s
  from frostline.snapshot where name = %(name)s
returning snapshot_id as id, version, token, server

-- name: began
-- The names of which a version is being made, and since when: those whose lock is held, which one of a dead run is not. The lock is the
-- first that a run takes, and its row is there before its snapshot of the tables is. Locks nothing.
select s.name, s.started_at
  from frostline.snapshot s
  join pg_locks l on l.locktype = 'advisory' and l.objsubid = 1 and l.granted
                 and l.database = (select d.oid from pg_database d where d.datname = current_database())
                 and (l.classid::bigint << 32 | l.objid::bigint) = hashtextextended('frostline snapshot ' || s.name, 0)
 where s.state = 'running'

-- name: fail
-- Never one that was published. One that a catalog outside was told of stays unknown: an error is no proof.
update frostline.snapshot
   set state = case state when 'running' then 'failed' else state end, error = %(error)s
 where snapshot_id = %(snapshot_id)s and state in ('running', 'unknown')

-- name: publish
update frostline.snapshot
   set state = 'published', published_at = clock_timestamp(), lsn = %(lsn)s::pg_lsn, taken_at = %(taken_at)s,
       atomic = %(atomic)s
 where snapshot_id = %(snapshot_id)s and state = 'running'

-- name: prepare
-- Before a catalog outside is told: from here on the run's files may be needed, until somebody knows.
update frostline.snapshot
   set state = 'unknown', told_at = clock_timestamp(), lsn = %(lsn)s::pg_lsn, taken_at = %(taken_at)s,
       locations = %(locations)s
 where snapshot_id = %(snapshot_id)s and state = 'running'

-- name: give_up
-- The catalog outside has nothing of it. A request that was lost on the way may still arrive, but not after an hour.
update frostline.snapshot set state = 'failed', error = 'the catalog never got it'
 where snapshot_id = %(snapshot_id)s and state = 'unknown' and told_at < clock_timestamp() - interval '1 hour'

-- name: refused
-- The catalog outside has said that nothing has changed.
update frostline.snapshot set state = 'failed' where snapshot_id = %(snapshot_id)s and state = 'unknown'

-- name: settle
-- Harmless to repeat.
update frostline.snapshot
   set state = 'published', published_at = clock_timestamp(), atomic = %(atomic)s, error = null
 where snapshot_id = %(snapshot_id)s and state = 'unknown'

-- name: settle_table
update frostline.snapshot_table set metadata_location = %(location)s
 where snapshot_id = %(snapshot_id)s and schema_name = %(schema)s and table_name = %(table)s

-- name: set_locations
update frostline.snapshot set locations = %(locations)s where snapshot_id = %(snapshot_id)s

-- name: locations
select distinct unnest(s.locations) from frostline.snapshot s where s.snapshot_id = any(%(snapshot_ids)s)

-- name: insert_table
insert into frostline.snapshot_table
       (snapshot_id, schema_name, table_name, namespace, lake_table, metadata_location, lake_snapshot_id, rows,
        size_bytes, hash_sum, reused, source_oid, columns, last_field_id, read_from)
values (%(snapshot_id)s, %(schema)s, %(table)s, %(namespace)s, %(lake_table)s, %(metadata_location)s,
        %(lake_snapshot_id)s, %(rows)s, %(size_bytes)s, %(hash_sum)s, %(reused)s, %(source_oid)s,
        %(columns)s::jsonb, %(last_field_id)s, %(read_from)s)

-- name: newest
-- The newest published copy of each table, whether it is of this lineage, and whether it is in the newest version.
select distinct on (t.schema_name, t.table_name)
       t.schema_name as schema, t.table_name as table, t.namespace, t.lake_table, t.metadata_location,
       t.lake_snapshot_id, t.rows, t.size_bytes, t.hash_sum, t.source_oid, t.columns, t.last_field_id,
       t.read_from, s.server = frostline.this_server() as is_ours, s.version = max(s.version) over () as is_current
  from frostline.snapshot s join frostline.snapshot_table t using (snapshot_id)
 where s.name = %(name)s and s.state = 'published' and s.catalog_uri is not distinct from %(catalog_uri)s
   and s.catalog_warehouse is not distinct from %(catalog_warehouse)s
 order by t.schema_name, t.table_name, s.version desc

-- name: versions
-- All that can be seen, and with %(include_unpublished)s those that failed too.
select s.snapshot_id as id, s.name, s.version, s.state, s.taken_at, s.lsn::text, s.atomic, s.catalog_uri, s.catalog_warehouse,
       s.server, s.error, count(t.table_name) as tables, coalesce(sum(t.rows), 0)::bigint as rows,
       coalesce(sum(t.size_bytes), 0)::bigint as size_bytes
  from frostline.snapshot s left join frostline.snapshot_table t using (snapshot_id)
 where (s.name = %(name)s or %(name)s::text is null) and (s.state = 'published' or %(include_unpublished)s)
 group by s.snapshot_id
 order by s.name, s.version

-- name: tables
select t.schema_name as schema, t.table_name as table, t.namespace, t.lake_table, t.metadata_location,
       t.lake_snapshot_id, t.rows, t.size_bytes, t.hash_sum, t.reused
  from frostline.snapshot_table t
 where t.snapshot_id = %(snapshot_id)s
 order by t.schema_name, t.table_name

-- name: drop
-- Its rows go; that it was stays, so that its files can be told from those of others.
update frostline.snapshot set state = 'dropped', tidied = false
 where snapshot_id = any(%(snapshot_ids)s) and state in ('published', 'unknown')

-- name: drop_tables
delete from frostline.snapshot_table where snapshot_id = any(%(snapshot_ids)s)

-- name: dead
-- Runs of the name that nobody sees, of histories that this database owns (see lake_state.own_jobs). One that is tidied may
-- have left files that a version needed then, and not now. The caller holds the name's lock, so a run that is `running`
-- is dead.
select s.snapshot_id, s.tidied from frostline.snapshot s
 where s.name = %(name)s and s.state in ('running', 'failed', 'dropped')
   and (s.server = frostline.this_server()
        or s.server in (select o.server from frostline.own_history o)
           and exists (select from frostline.own_history o where o.server = frostline.this_server()))

-- name: owners
-- The histories that this database may take for its own (see lake_state.own_jobs).
select frostline.this_server()
 union
select o.server from frostline.own_history o
 where exists (select from frostline.own_history p where p.server = frostline.this_server())

-- name: folders
-- The tokens of the folders that this database made for the name, and the warehouses they are in.
select distinct s.token, s.warehouse from frostline.snapshot s
 where s.name = %(name)s
   and (s.server = frostline.this_server()
        or s.server in (select o.server from frostline.own_history o)
           and exists (select from frostline.own_history o where o.server = frostline.this_server()))

-- name: needed
-- The metadata of every copy that may still be read, or only of those that may have files in %(folders)s. In the
-- built-in catalog a copy's metadata and its files are in one folder; a catalog outside has them in `locations`.
select distinct t.metadata_location from frostline.snapshot s join frostline.snapshot_table t using (snapshot_id)
 where s.name = %(name)s and s.state in ('published', 'unknown') and t.metadata_location <> ''
   and (%(folders)s::text[] is null
        or s.catalog_uri is null
           and regexp_replace(t.metadata_location, '/metadata/[^/]*$', '') = any(%(folders)s::text[])
        or s.catalog_uri is not null and (s.locations && %(folders)s::text[] or s.locations = '{}'))

-- name: set_tidied
update frostline.snapshot
   set tidied = true, state = case state when 'running' then 'failed' else state end,
       error = case state when 'running' then 'the run was killed' else error end
 where snapshot_id = any(%(snapshot_ids)s)

-- name: names
select distinct name from frostline.snapshot where state in ('running', 'failed', 'dropped') and not tidied order by 1
