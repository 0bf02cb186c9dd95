-- name: one_snapshot
set transaction isolation level repeatable read, read only

-- name: marked_keys
select {key_hash} from {overlay} where {condition}

-- name: heap_fingerprint
-- Only the rows that were not changed since the export.
select count(*), coalesce(sum({row_hash}), 0)::text
  from only {partition} as h
 where not exists (select from {overlay} as m where {key_is_marked})
