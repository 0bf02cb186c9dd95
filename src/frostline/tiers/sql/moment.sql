-- name: no_time_limits
select set_config(name, '0', false) from pg_settings
 where name in ('idle_in_transaction_session_timeout', 'transaction_timeout', 'statement_timeout')

-- name: no_idle_limits
select set_config(name, '0', false) from pg_settings
 where name in ('idle_session_timeout', 'idle_in_transaction_session_timeout')

-- name: waiting
-- Who waits for a lock on a table because of this session, and for how many seconds: the one who has waited longest.
-- What waits behind that session is blocked by it, not by us. pg_blocking_pids stops the lock manager for a moment, so
-- it is asked only of those that have waited long enough. Locks nothing.
with waiting as materialized (
    select w.pid, w.relation, extract(epoch from clock_timestamp() - w.waitstart)::int as waited_s
      from pg_locks w
      join pg_locks ours on ours.locktype = 'relation' and ours.database = w.database and ours.relation = w.relation
                        and ours.pid = pg_backend_pid() and ours.granted
     where w.locktype = 'relation' and not w.granted
       and w.waitstart <= clock_timestamp() - make_interval(secs => %(longer_s)s)
)
select pid, relation::regclass::text, waited_s from waiting
 where pg_backend_pid() = any(pg_blocking_pids(pid))
 order by waited_s desc
 limit 1

-- name: begin
begin isolation level repeatable read read only

-- name: export
-- Two snapshots with the second text see the same rows: it is what `pg_current_snapshot()` says to all that join.
select pg_export_snapshot(), pg_current_snapshot()::text

-- name: position
-- Read after the snapshot was taken: all that the snapshot has is before it.
select pg_current_wal_insert_lsn()::text, clock_timestamp()

-- name: join
-- A transaction that sees what the exported snapshot sees. No lock but those of readers. Row security hides nothing: it is an error.
begin isolation level repeatable read read only; set transaction snapshot {snapshot}; set local row_security = off

-- name: horizon
-- Under the snapshot.
select pg_current_snapshot()::text

-- name: end
rollback

-- name: moment
-- The position is read after the snapshot was taken: all that the snapshot has is before it.
select pg_export_snapshot() as snapshot, pg_current_wal_insert_lsn()::text as lsn, clock_timestamp() as taken_at
