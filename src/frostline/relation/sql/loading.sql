-- A batch whose cold rows go into the lake as files: the table where its rows have the heap's shape, and the claims on their
-- keys. Filled through psycopg.sql. {load} has the heap's columns, and frostline_live, which is true for rows that go into files.

-- name: cold_rows
-- How many rows of the batch lie below the line.
select count(*) from {won} as s where s.{tier_key} < {line}

-- name: may_publish
-- Whether the role may do what a job does.
select has_table_privilege('frostline.seam', 'update') and has_table_privilege('frostline.job', 'insert')
   and has_schema_privilege('frostline_overlay', 'usage') and has_table_privilege({overlay}, 'insert, delete')

-- name: obstacle
-- What an INSERT would heed and a file would not, if there is such a thing. ACCESS SHARE on the partitions.
with tree as (
    select relid::oid as oid from pg_partition_tree({heap}::regclass)
), things as (
    select oid from tree union all select {relation}::regclass
)
select case
    when (select c.relrowsecurity from pg_class c where c.oid = {heap}::regclass) then 'it has row security'
    when exists (select from pg_constraint c where c.conrelid in (select oid from tree) and c.contype = 'f')
        then 'it has a foreign key'
    when exists (select from pg_constraint c where c.conrelid in (select oid from tree) and c.contype = 'x')
        then 'it has an exclusion constraint'
    when exists (select from pg_index i where i.indrelid in (select oid from tree) and i.indisunique and not i.indisprimary)
        then 'it has a unique index besides its primary key'
    when exists (select from pg_constraint c where c.conrelid in (select oid from tree) and c.contype = 'c'
                    and c.conrelid <> {heap}::regclass and c.coninhcount = 0)
        then 'one of its partitions has a check of its own'
    when exists (select from pg_trigger t where t.tgrelid in (select oid from things) and not t.tgisinternal
                    and t.tgtype & 4 <> 0 and t.tgenabled <> 'D' and t.tgname not in ('!frostline_mark', 'frostline_copy'))
        then 'it has a trigger on INSERT'
    when exists (select from pg_rewrite r where r.ev_class in (select oid from things) and r.ev_type = '3'
                    and r.rulename <> 'frostline_insert')
        then 'it has a rule on INSERT'
    when exists (select from pg_publication_tables p
                  where format('%I.%I', p.schemaname, p.tablename)::regclass in (select oid from tree))
        then 'it is published to other databases'
end

-- name: lock_heap
-- As an INSERT takes it: a session that adds a constraint or a trigger waits for us, or we for it.
lock table only {heap} in row exclusive mode

-- name: shape
-- All that the load table has of the heap.
select array(select row(a.attnum, a.attname, a.atttypid, a.atttypmod, a.attnotnull, a.attcollation,
                        case when a.attgenerated <> '' then pg_get_expr(d.adbin, d.adrelid) end)::text
               from pg_attribute a left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
              where a.attrelid = {heap}::regclass and a.attnum > 0 and not a.attisdropped order by 1)
    || array(select pg_get_constraintdef(c.oid) from pg_constraint c
              where c.conrelid = {heap}::regclass and c.contype = 'c' order by 1)

-- name: defaults
-- What the relation puts into a column that is not given.
select a.attname::text, pg_get_expr(d.adbin, d.adrelid)
  from pg_attrdef d join pg_attribute a on a.attrelid = d.adrelid and a.attnum = d.adnum
 where d.adrelid = {relation}::regclass

-- name: create
create unlogged table {load} (
    like {heap} including constraints including generated,
    frostline_live boolean not null default true
)

-- name: fill
insert into {load} ({written}, frostline_live)
select {values}, coalesce(s.{tier_key} < {line}, false) from {won} as s

-- name: copy
-- Rows as they are, all of them to go into files so far.
copy {load} ({written}) from stdin

-- name: leave_hot
-- What is not below the line goes through the relation.
update {load} as l set frostline_live = false where l.frostline_live and l.{tier_key} >= {line}

-- name: leave_range
-- The same of a range.
update {load} as l set frostline_live = false where l.frostline_live and {inside}

-- name: index
-- 23505 if the batch has a key twice.
create unique index on {load} ({key})

-- name: index_tier
create index on {load} ({tier_key})

-- name: analyze
analyze {load}

-- name: leave_marked
-- A key that has a mark goes through the relation, which knows what the mark means.
update {load} as l set frostline_live = false
 where l.frostline_live and exists (select from {overlay} as m where {mark_is_row})

-- name: live_rows
select count(*) from {load} where frostline_live

-- name: has_row
-- Whether a row that goes into a file lies there.
select exists (select from {load} where frostline_live and {inside})

-- name: key_of
-- The key with that hash.
select {key_texts} from {load} as l where l.frostline_live and {key_hash} = {hash} limit 1

-- name: is_known
-- In constants, so that Postgres asks the lake server for this row only.
select exists (select from {relation} where {key_is_same})

-- name: claim
-- Waits for everybody who has marked one of the keys and not ended yet. In one order, so that two who claim do not deadlock.
insert into {overlay} ({marked}, frostline_live)
select {marked}, false from {load} where frostline_live order by {key}
on conflict do nothing

-- name: rest
-- Locks of an INSERT into the relation.
insert into {relation} ({written}) select {written} from {load} where not frostline_live

-- name: unclaim
delete from {overlay} as o using {load} as l where l.frostline_live and {mark_is_row}
