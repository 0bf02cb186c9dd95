-- name: exists
select exists (select from pg_constraint where conrelid = {default_partition}::regclass and conname = 'frostline_premake')

-- name: add
-- ACCESS EXCLUSIVE on DEFAULT, for a moment. With it ATTACH need not read DEFAULT under its locks.
alter table {default_partition} add constraint frostline_premake check ({tier_key} < {lower} or {tier_key} >= {upper}) not valid

-- name: validate
-- SHARE UPDATE EXCLUSIVE on DEFAULT while it is read: neither readers nor writers wait.
alter table {default_partition} validate constraint frostline_premake

-- name: drop
-- ACCESS EXCLUSIVE on DEFAULT, for a moment.
alter table {default_partition} drop constraint if exists frostline_premake
