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

-- name: take_back_defaults
-- What default privileges have given to others on tables, views, functions and schemas that this transaction has made: by the secrets in them, and the
-- templates, whoever has such a right could get all that we may do. What is meant for all was said of functions and schemas.
do $$
declare
    given record;
begin
    for given in
        select distinct 'table ' || c.oid::regclass as object, a.grantee
          from pg_depend d
          join pg_class c on d.classid = 'pg_class'::regclass and c.oid = d.objid and c.relkind in ('r', 'v', 'f', 'p', 'm')
         cross join lateral aclexplode(c.relacl) a
         where d.refclassid = 'pg_namespace'::regclass and d.refobjid = 'frostline'::regnamespace and d.objsubid = 0
           and age(d.xmin) <= age(pg_current_xact_id()::xid) and a.grantee <> c.relowner
        union
        select 'function ' || p.oid::regprocedure, a.grantee
          from pg_depend d
          join pg_proc p on d.classid = 'pg_proc'::regclass and p.oid = d.objid
          join pg_namespace n on d.refclassid = 'pg_namespace'::regclass and n.oid = d.refobjid and n.nspname ~ '^frostline'
         cross join lateral aclexplode(p.proacl) a
         where age(d.xmin) <= age(pg_current_xact_id()::xid) and a.grantee not in (0, p.proowner)
        union
        select format('schema %I', n.nspname), a.grantee
          from pg_namespace n cross join lateral aclexplode(n.nspacl) a
         where n.nspname ~ '^frostline' and n.nspowner = current_user::regrole and age(n.xmin) <= age(pg_current_xact_id()::xid)
           and a.grantee not in (0, n.nspowner)
    loop
        execute format('revoke all on %s from %s', given.object,
                       case given.grantee when 0 then 'public' else quote_ident(pg_get_userbyid(given.grantee)) end);
    end loop;
end
$$
