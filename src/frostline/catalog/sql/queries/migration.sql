-- name: encoding
show server_encoding

-- name: lock_out_other_installers
-- Advisory, held to the end of the transaction: a second installer waits, then finds nothing to do.
select pg_advisory_xact_lock(7205759403792793)

-- name: strange_schemas
-- Whoever owns a schema can drop and replace what is in it. A superuser can anyway.
select n.nspname, r.rolname
  from pg_namespace n join pg_roles r on r.oid = n.nspowner
 where n.nspname = any (%(own_schemas)s::text[])
   and r.rolname <> current_user and not r.rolsuper
 order by 1

-- name: make_room
create schema if not exists frostline;
create table if not exists frostline.migration (
    number      integer primary key,
    name        text not null,
    applied_at  timestamptz not null default now()
)

-- name: applied
select number from frostline.migration order by number

-- name: record
insert into frostline.migration (number, name) values (%(number)s, %(name)s)

-- name: is_installed
select to_regclass('frostline.migration') is not null

-- name: newest
select max(number) from frostline.migration
