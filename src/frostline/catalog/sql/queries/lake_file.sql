-- name: insert
-- All in one statement: what they add up to is counted once for each.
insert into frostline.lake_file (table_id, path, rows, size_bytes, lower, upper, hash_sum, job_id)
select %(table_id)s, f.path, f.rows, f.size_bytes, f.lower, f.upper, f.hash_sum, %(job_id)s
  from unnest(%(paths)s::text[], %(rows)s::bigint[], %(sizes)s::bigint[], %(lowers)s::bigint[], %(uppers)s::bigint[],
              %(hash_sums)s::numeric[]) f (path, rows, size_bytes, lower, upper, hash_sum)

-- name: delete_range
-- The lake is overwritten in this range, so what was recorded of it goes.
delete from frostline.lake_file
 where table_id = %(table_id)s and lower >= %(lower)s and upper >= %(lower)s and upper < %(upper)s

-- name: delete
delete from frostline.lake_file where table_id = %(table_id)s and path = any(%(paths)s)

-- name: list_all
select f.path, f.rows, f.size_bytes, f.lower, f.upper, f.hash_sum, c.sha256, f.fields, f.types
  from frostline.lake_file f left join frostline.file_checksum c using (path)
 where f.table_id = %(table_id)s order by f.lower, f.path

-- name: within
-- Locks nothing.
select f.path, f.rows, f.size_bytes, f.lower, f.upper, f.hash_sum, c.sha256, f.fields, f.types
  from frostline.lake_file f left join frostline.file_checksum c using (path)
 where f.table_id = %(table_id)s
   and (%(lower)s::bigint is null or f.upper >= %(lower)s) and (%(upper)s::bigint is null or f.lower < %(upper)s)
 order by f.lower, f.path

-- name: totals
select files, rows, size_bytes from frostline.lake_total where table_id = %(table_id)s

-- name: changed
-- Which lake files came or went since nothing was worth merging, and for which target size that was.
select changed_from, changed_to, settled_for from frostline.lake_total where table_id = %(table_id)s

-- name: settle
-- Compare-and-set: a file that came meanwhile has to be looked at. Row lock.
update frostline.lake_total set changed_from = null, changed_to = null, settled_for = %(target)s
 where table_id = %(table_id)s
   and changed_from is not distinct from %(changed_from)s and changed_to is not distinct from %(changed_to)s

-- name: record_checksums
-- Names of lake files are used once, so a row that is there is the same. Row locks on new rows only.
insert into frostline.file_checksum (path, table_id, size_bytes, sha256)
select f.path, %(table_id)s, f.size_bytes, f.sha256
  from unnest(%(paths)s::text[], %(sizes)s::bigint[], %(sums)s::bytea[]) f (path, size_bytes, sha256)
    on conflict (path) do nothing

-- name: checksums
-- Locks nothing.
select path, sha256 from frostline.file_checksum where path = any(%(paths)s)

-- name: metadata_checksums
-- Locks nothing. By the partial index.
select path, sha256 from frostline.file_checksum where table_id = %(table_id)s and path not like '%%.parquet'

-- name: forget_checksums
-- Of files that are deleted. Row locks.
delete from frostline.file_checksum where path = any(%(paths)s)
