-- name: count
-- ACCESS SHARE on DEFAULT. Stops counting where more would not matter.
select count(*), min({tier_key})::text, max({tier_key})::text
  from (select {tier_key} from {partition} where {condition} limit {most}) as counted

-- name: move
-- Under SHARE ROW EXCLUSIVE on DEFAULT: nobody else writes to it. Generated columns are computed anew.
with moved as (delete from only {default_partition} where {condition} returning {columns})
insert into {partition} ({columns}) select {columns} from moved

-- name: guard
-- ACCESS EXCLUSIVE on DEFAULT, for a moment. With it ATTACH need not read DEFAULT under its locks.
alter table {default_partition} add constraint frostline_premake check ({tier_key} < {lower} or {tier_key} >= {upper}) not valid

-- name: validate_guard
-- SHARE UPDATE EXCLUSIVE on DEFAULT while it is read: neither readers nor writers wait.
alter table {default_partition} validate constraint frostline_premake

-- name: drop_guard
-- ACCESS EXCLUSIVE on DEFAULT, for a moment.
alter table {default_partition} drop constraint if exists frostline_premake

-- name: has_guard
select exists (select from pg_constraint where conrelid = {default_partition}::regclass and conname = 'frostline_premake')

-- name: about
-- What DEFAULT is, how big, and whether a foreign key points at it or at the heap: deleting a row would act on others.
select c.relkind::text, pg_relation_size(c.oid),
       exists (select from pg_constraint k where k.contype = 'f' and k.confrelid in (c.oid, {heap}::regclass))
  from pg_class c where c.oid = {default_partition}::regclass

-- name: replica_identity
select relreplident::text from pg_class where oid = {partition}::regclass

-- name: set_replica_identity
alter table {partition} replica identity {identity}
