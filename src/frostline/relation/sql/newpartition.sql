-- name: create
-- ACCESS SHARE on the heap. The check spares ATTACH from reading the table under its locks. Identity belongs to the heap alone.
create table {partition} (like {heap} including all excluding identity,
    constraint frostline_range check ({tier_key} is not null and {in_range}));
comment on table {partition} is {made_by};
alter table {partition} owner to {owner}

-- name: leftovers
select c.oid, n.nspname, c.relname
  from pg_class c join pg_namespace n on n.oid = c.relnamespace
 where c.relkind = 'r' and not c.relispartition and obj_description(c.oid, 'pg_class') = {made_by}
 order by 2, 3

-- name: is_leftover
-- Under ACCESS EXCLUSIVE on the table of that name: whether it is still the one that was found, and no partition.
select exists (select from pg_class c
                where c.oid = {oid} and c.oid = to_regclass({name}) and not c.relispartition
                  and obj_description(c.oid, 'pg_class') = {made_by})

-- name: attach
-- SHARE UPDATE EXCLUSIVE on the heap, which nobody who reads or writes waits for, and ACCESS EXCLUSIVE on DEFAULT.
alter table {heap} attach partition {partition} for values from ({lower}) to ({upper});
alter table {partition} drop constraint frostline_range;
comment on table {partition} is null

-- name: triggers
-- The user's that would fire. Ours stay as they are, and are silent.
select tgname, tgenabled::text
  from pg_trigger
 where tgrelid = {partition}::regclass and not tgisinternal and tgenabled <> 'D' and tgname !~ '^!frostline_'
 order by 1

-- name: set_trigger
-- SHARE ROW EXCLUSIVE on the partition.
alter table {partition} {state} trigger {trigger}

-- name: replica_identity
select relreplident::text from pg_class where oid = {partition}::regclass

-- name: set_replica_identity
alter table {partition} replica identity {identity}
