-- name: one_snapshot
set transaction isolation level repeatable read, read only

-- name: marked_keys
select {key_hash} from {overlay} where {condition}

-- name: heap_fingerprint
-- Only the rows that were not changed since the export.
select count(*), coalesce(sum({row_hash}), 0)::text
  from only {partition} as h
 where not exists (select from {overlay} as m where {key_is_marked})

-- name: unlike_overlay
-- Marked keys whose row in the heap is not the overlay's image. Both sides have the range, so hot partitions are pruned.
select count(*)
  from (select {key}, frostline_live, {row_hash} as frostline_hash from {overlay} where {condition}) as m
  left join (select {key}, {row_hash} as frostline_hash from {heap} where {condition}) as h using ({key})
 where case when m.frostline_live then h.frostline_hash is distinct from m.frostline_hash
            else h.frostline_hash is not null end

-- name: unmarked_keys
-- Rows below the frost line that are neither marked nor in an archived partition that is not cleaned. Locks nothing.
select h.tableoid::regclass::text, {key_hash}
  from (select *, tableoid from {heap} where {condition}) as h
 where h.tableoid not in ({archived})
   and not exists (select from {overlay} as m where {key_is_marked})
