-- name: settings
-- Under these every value has one text, whatever the role's or the database's own settings are.
set local TimeZone = 'UTC'; set local DateStyle = 'ISO'; set local IntervalStyle = 'postgres';
set local extra_float_digits = 1; set local bytea_output = 'hex'; set local search_path = pg_catalog

-- name: join
-- First in the transaction of every task. ACCESS SHARE, as a reader has it: from here on nobody rewrites or empties the table.
set transaction snapshot {snapshot}; {settings}; lock table only {target} in access share mode

-- name: check
-- After the lock, so the file is the one that will be read.
select pg_current_snapshot()::text as horizon, pg_relation_filenode({name}::regclass)::bigint as filenode

-- name: rows
-- Under the point's snapshot.
select {columns} from only {target} where {condition}
