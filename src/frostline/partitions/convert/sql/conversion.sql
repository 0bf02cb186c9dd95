-- name: batch_end
-- The key of the last row of the next batch; no row at the end of the table. No lock.
select array[{texts}]
  from (select {key} from only {original} as o where {after} order by {key} limit {size}) as batch
 order by {descending} limit 1

-- name: as_owner
-- Constraints and indexes of the table call functions of its owner, with the owner's rights.
set local role {owner}

-- name: as_ourselves
set local role none

-- name: copy
-- A share lock on each row that is copied, to the end of the transaction: nobody changes it between the look and the
-- insert. A row that the trigger has brought already is as new as this one, or newer. Harmless to repeat.
insert into {shadow} ({columns})
select {original_columns} from only {original} as o where {after} and {until} for share of o
    on conflict ({new_key}) do nothing

-- name: by_index
-- A batch is a range of the primary key, whatever Postgres believes about the table's size.
set local enable_seqscan = off

-- name: estimate
select greatest(reltuples, 0)::bigint from pg_class where oid = %(oid)s

-- name: compare
-- One statement, so one snapshot; no lock that anybody notices. In every snapshot both must have the same rows, because
-- the trigger changes the shadow in the transaction that changes the original.
select o.rows = s.rows and o.hash = s.hash, o.rows, s.rows
  from (select count(*) as rows, coalesce(sum(hashtextextended((t.*)::text collate "C", 0)), 0) as hash
          from only {original} as t) as o,
       (select count(*) as rows, coalesce(sum(hashtextextended((t.*)::text collate "C", 0)), 0) as hash
          from {shadow} as t) as s
