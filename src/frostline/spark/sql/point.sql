-- name: join
-- A transaction that sees what the exported snapshot saw. No lock but those of readers.
begin isolation level repeatable read read only; set transaction snapshot {snapshot}

-- name: horizon
-- Under the snapshot. Two snapshots with this text see the same rows.
select pg_current_snapshot()::text

-- name: target
-- ACCESS SHARE on that table, for a moment.
select pg_relation_filenode({target}::regclass), pg_relation_size({target}::regclass) / current_setting('block_size')::int

-- name: marks
-- Under the snapshot.
select count(*) from {overlay} where {condition}

-- name: row_security
select row_security_active({heap}::regclass)
