-- name: record
-- Names of lake files are used once, so a row that is there is the same. Row locks on new rows only.
insert into frostline.file_checksum (path, table_id, size_bytes, sha256)
select f.path, %(table_id)s, f.size_bytes, f.sha256
  from unnest(%(paths)s::text[], %(sizes)s::bigint[], %(sums)s::bytea[]) f (path, size_bytes, sha256)
    on conflict (path) do nothing

-- name: of_paths
-- Locks nothing.
select path, sha256 from frostline.file_checksum where path = any(%(paths)s)

-- name: of_metadata
-- Locks nothing. By the partial index.
select path, sha256 from frostline.file_checksum where table_id = %(table_id)s and path not like '%%.parquet'

-- name: forget
-- Of files that are deleted. Row locks.
delete from frostline.file_checksum where path = any(%(paths)s)
