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
select t.metadata_location, t.lake_snapshot_id
  from frostline.snapshot s join frostline.snapshot_table t using (snapshot_id)
 where s.name = %(name)s and s.state = 'published' and t.schema_name = %(schema)s and t.table_name = %(table)s
   and s.version = coalesce(%(version)s::integer,
                            (select max(n.version) from frostline.snapshot n
                              where n.name = %(name)s and n.state = 'published'))
