-- name: create
-- ACCESS SHARE on the heap. The check spares ATTACH from reading the table under its locks. Identity, comments and extended
-- statistics belong to the heap alone, as with PARTITION OF.
create table {partition} (like {heap} including all excluding identity excluding comments excluding statistics,
    constraint frostline_range check ({tier_key} is not null and {in_range}));
alter table {partition} owner to {owner}

-- name: is_leftover
-- Under ACCESS EXCLUSIVE on the table of that name: whether it is still the one that was found, and no partition.
select exists (select from pg_class c where c.oid = {oid} and c.oid = to_regclass({name}) and not c.relispartition)

-- name: attach
-- SHARE UPDATE EXCLUSIVE on the heap, which nobody who reads or writes waits for, and ACCESS EXCLUSIVE on DEFAULT.
alter table {heap} attach partition {partition} for values from ({lower}) to ({upper});
alter table {partition} drop constraint frostline_range

-- name: triggers
-- The user's triggers that would fire, and the rules. Ours stay as they are, and are silent.
select 'trigger', t.tgname, t.tgenabled::text
  from pg_trigger t join pg_proc f on f.oid = t.tgfoid
 where t.tgrelid = {partition}::regclass and not t.tgisinternal and t.tgenabled <> 'D'
   and f.pronamespace <> 'frostline_relation'::regnamespace
 union all
select 'rule', r.rulename, r.ev_enabled::text from pg_rewrite r where r.ev_class = {partition}::regclass and r.ev_enabled <> 'D'
 order by 1, 2

-- name: set_trigger
-- Under ACCESS EXCLUSIVE on the partition, which a rule needs.
alter table {partition} {state} {kind} {name}

-- name: replica_identity
select relreplident::text from pg_class where oid = {partition}::regclass

-- name: set_replica_identity
alter table {partition} replica identity {identity}
