-- name: clock
select clock_timestamp()

-- name: old_plans
-- Sessions that hold the lake table and are still in a statement that began before the bound was raised. One whose
-- activity is hidden from this role counts as such until its transaction ends.
select distinct l.pid
  from pg_locks l
  left join pg_stat_activity a on a.pid = l.pid
 where l.locktype = 'relation' and l.relation = %(lake)s and l.pid <> pg_backend_pid()
   and l.database = (select oid from pg_database where datname = current_database())
   and not coalesce(a.state in ('idle', 'idle in transaction', 'idle in transaction (aborted)')
                    or a.query_start > %(attached_at)s, false)

-- name: written
select pg_current_wal_flush_lsn()::text

-- name: inserted
-- Further than `written`: a VACUUM does not flush what it logs.
select pg_current_wal_insert_lsn()::text

-- name: standbys_behind
-- Standbys that follow and have not replayed so far; how far one is may be hidden from this role.
select count(*), count(*) filter (where coalesce(replay_lsn < %(written)s::pg_lsn, true))
  from pg_stat_replication where coalesce(state, 'streaming') = 'streaming'

-- name: queries_behind
-- Standbys, also one that is catching up, where a query may still run that sees what was written before. Who only
-- receives (pg_receivewal, a base backup) writes and never replays; a logical subscriber has no seam of ours.
select count(*), count(*) filter (where coalesce(r.replay_lsn < %(written)s::pg_lsn, r.write_lsn is null))
  from pg_stat_replication r
 where coalesce(r.state, 'streaming') in ('startup', 'catchup', 'streaming')
   and not exists (select from pg_replication_slots s where s.active_pid = r.pid and s.slot_type = 'logical')

-- name: detach
-- Under the ACCESS EXCLUSIVE lock on the lake table, which nobody queued for; the same transaction attaches it again.
alter table {lake} detach partition {foreign_table}

-- name: drop_nothing
-- As above.
drop table {nothing}

-- name: drop_detached
-- Somebody has detached it, and nothing reads it.
drop foreign table if exists {foreign_table}

-- name: rename
-- As above.
alter foreign table {foreign_table} rename to {name}

-- name: ask_for
-- As above. Its columns are those of the lake table already: whatever changed them there has changed them here.
alter foreign table {foreign_table} options (set table_name {table_name})

-- name: analyze
-- SHARE UPDATE EXCLUSIVE: readers and writers go on. Harmless to repeat.
analyze {table}
