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
