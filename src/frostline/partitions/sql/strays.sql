-- name: count
-- ACCESS SHARE on DEFAULT. Stops counting where more would not matter.
select count(*), min({tier_key})::text, max({tier_key})::text
  from (select {tier_key} from {partition} where {condition} limit {most}) as counted

-- name: move
-- Under ACCESS EXCLUSIVE on the heap and ACCESS EXCLUSIVE on DEFAULT: nobody else reads or writes it. Generated columns are computed anew.
with moved as (delete from only {default_partition} where {condition} returning {columns})
insert into {partition} ({columns}) select {columns} from moved

-- name: about
-- What DEFAULT is, how big, and whether a foreign key points at it or at the heap: deleting a row would act on others.
select c.relkind::text, pg_relation_size(c.oid),
       exists (select from pg_constraint k where k.contype = 'f' and k.confrelid in (c.oid, {heap}::regclass))
  from pg_class c where c.oid = {default_partition}::regclass
