-- name: see_anew
-- Postgres shows a transaction the activity of others as it was at its first look.
select pg_stat_clear_snapshot()

-- name: watchers
-- Who has a snapshot of this database, and might look into the heap with it once it is free. Under ACCESS EXCLUSIVE on it.
-- One whose snapshot is hidden from this role counts. A single statement that waits for the heap does not: it takes its
-- snapshot when it has the lock, unless the isolation level is higher by default. Nor does what renews our lease.
select a.pid
  from pg_stat_activity a
 where a.pid <> pg_backend_pid() and a.datname = current_database()
   and a.backend_type <> 'autovacuum worker' and a.application_name <> 'frostline lease'
   and (a.backend_xmin is not null or a.state is null and a.backend_type = 'client backend')
   and not (a.state = 'active' and a.xact_start = a.query_start
            and exists (select from pg_locks l where l.pid = a.pid and not l.granted and l.relation = {heap}::regclass)
            and not exists (select from pg_db_role_setting s, unnest(s.setconfig) as one
                             where one ilike 'default_transaction_isolation=%'))
 order by 1
