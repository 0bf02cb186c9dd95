-- The table where a batch's rows wait, and the statements that take them into the relation. Filled through psycopg.sql.
-- {stage} has the attempt and then the batch's columns, named by position, so no name of a user can be in the way.

-- name: create
create unlogged table {stage} (attempt bigint not null, {columns})

-- name: copy
-- By a task, in a transaction of its own.
copy {stage} from stdin (format csv, encoding 'UTF8')

-- name: analyze
analyze {stage}

-- name: drop
-- ACCESS EXCLUSIVE: waits for a task that has lost and is still copying, for as long as the caller's lock_timeout says.
drop table if exists {stage}

-- name: won
-- The rows of the attempts that count, and no others: a task that has lost may commit at any moment.
(select * from {stage} where attempt = any ({attempts}::bigint[]))

-- name: ranges
-- The tier values of the batch, cut at their widest gaps: within each range they are dense, as far as that can be had.
with found as (
    select distinct {tier_key} as v from {won} as w where {tier_key} is not null
), gaps as (
    select v, {axis} - lag({axis}) over (order by v) as gap from found
), cuts as (
    select v from gaps where gap is not null order by gap desc limit {most} - 1
), numbered as (
    select v, count(*) filter (where v in (select v from cuts)) over (order by v) as range_number from found
)
select min(v)::text, max(v)::text from numbered group by range_number order by range_number

-- name: duplicate
-- A key that the batch has more than once.
select {key_texts} from {won} as s group by {key} having count(*) > 1 limit 1

-- name: append
-- Locks of an INSERT into the relation.
insert into {relation} ({columns}) select {staged} from {won} as s

-- name: update
-- Locks of an UPDATE of the relation. 40001 when a row changed since the statement began.
update {relation} as r set {assignments} from {won} as s where {key_is_same} and ({within})

-- name: insert_missing
-- A key that somebody else inserted meanwhile is 23505, or is not inserted here: the caller counts.
insert into {relation} ({columns})
select {staged} from {won} as s
 where not exists (select from {relation} as r where {key_is_same} and ({within}))

-- name: delete
-- A row that is found twice would be changed the second time, which the relation's trigger refuses: hence DISTINCT.
delete from {relation} as r using (select distinct {key} from {won} as w) as s where {key_is_same} and ({within})
