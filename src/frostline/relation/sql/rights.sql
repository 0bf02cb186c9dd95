-- Lets rights follow, in the transaction of whoever gives or takes them: docs/design/schema-changes.md. Called by an event trigger, and by
-- `frostline table sync` where there is none. GRANT says to no trigger whom or what it was about, so what heap and relation have is
-- compared with what was written down.

-- name: relation_rights
-- What others than the owner have on the heap or the relation, of what a view can give. `grantee` of all is `public`, which no role can
-- be called; a field of 0 is the whole table. A right to pass it on is a row of its own.
create or replace function frostline.relation_rights(managed integer, relation oid)
returns table (grantee text, privilege text, field_id integer, with_option boolean)
language sql stable set search_path = pg_catalog, pg_temp as $$
    select distinct case a.grantee when 0 then 'public' else pg_get_userbyid(a.grantee)::text end, a.privilege_type, g.field_id, o.with_option
      from pg_class c
     cross join lateral (select 0 as field_id, c.relacl as acl
                         union all
                         select m.field_id, t.attacl from pg_attribute t
                           join frostline.managed_column m on m.table_id = managed and m.name = t.attname
                          where t.attrelid = c.oid and t.attnum > 0 and not t.attisdropped) g
     cross join lateral aclexplode(g.acl) a
     cross join lateral (select false union all select true where a.is_grantable) as o (with_option)
     where c.oid = relation and a.grantee <> c.relowner
       and a.privilege_type in ('SELECT', 'INSERT', 'UPDATE', 'DELETE', 'REFERENCES', 'TRIGGER')
$$;

-- name: relation_stale_rights
-- The statements that make heap and relation alike again, in order: first what is taken, then what is given. What was taken of the relation
-- is taken of a heap whose place it has.
create or replace function frostline.relation_stale_rights(managed integer) returns table (statement text)
language sql stable set search_path = pg_catalog, pg_temp as $$
    with own as materialized (
        select frostline.relation_names(managed) as p, frostline.heap_of(managed) as heap, t.relation_name is null as is_in_place
          from frostline.managed_table t where t.table_id = managed
    ), heap as materialized (
        select r.* from own cross join lateral frostline.relation_rights(managed, own.heap) r
    ), relation as materialized (
        select r.* from own cross join lateral frostline.relation_rights(managed, to_regclass(own.p ->> 'relation')) r
    ), known as (
        select k.grantee, k.privilege, k.field_id, k.with_option from frostline.heap_right k where k.table_id = managed and not k.is_apart
    ), stale as (
        select 1 as step, 'relation' as target, x.* from ((select * from known except select * from heap) intersect select * from relation) x
        union all
        select 1, 'heap', x.* from ((select * from known except select * from relation) intersect select * from heap) x
         where (select own.is_in_place from own)
        union all
        select 2, 'relation', x.* from (
            select * from heap
            except select k.grantee, k.privilege, k.field_id, k.with_option from frostline.heap_right k where k.table_id = managed
            except select * from relation) x
    )
    select format(case s.step when 1 then 'revoke %s%s%s on %s from %s cascade' else 'grant %2$s%3$s on %4$s to %5$s%6$s' end,
                  case when s.with_option then 'grant option for ' else '' end, s.privilege,
                  (select ' (' || frostline.identifier(m.name) || ')' from frostline.managed_column m
                    where m.table_id = managed and m.field_id = s.field_id),
                  own.p ->> s.target, case s.grantee when 'public' then 'public' else frostline.identifier(s.grantee) end,
                  case when s.with_option then ' with grant option' end)
      from stale s cross join own
     order by s.step, s.with_option = (s.step = 2), s.target, s.grantee, s.privilege, s.field_id
$$;

-- name: relation_stale_numbers
-- USAGE on the sequences of identity columns, which a view's default needs of whoever inserts: what is missing, and what registration or
-- this has given to somebody who may not insert any more. `key` is as the catalog has it.
create or replace function frostline.relation_stale_numbers(managed integer) returns table (statement text, key text, is_given boolean)
language sql stable set search_path = pg_catalog, pg_temp as $$
    with sequences as (
        select pg_get_serial_sequence(frostline.relation_names(managed) ->> 'heap', a.attname) as name
          from pg_attribute a where a.attrelid = frostline.heap_of(managed) and a.attidentity <> '' and not a.attisdropped
    ), inserting as (
        select distinct r.grantee
          from frostline.relation_rights(managed, to_regclass(frostline.relation_names(managed) ->> 'relation')) r where r.privilege = 'INSERT'
    ), present as (
        select s.name, case a.grantee when 0 then 'public' else pg_get_userbyid(a.grantee)::text end as grantee
          from sequences s join pg_class c on c.oid = s.name::regclass cross join lateral aclexplode(c.relacl) a
         where a.privilege_type = 'USAGE' and a.grantee <> c.relowner
    ), recorded as (
        select k.key, (substr(k.key, 19)::jsonb) ->> 0 as name, coalesce((substr(k.key, 19)::jsonb) ->> 1, 'public') as grantee
          from frostline.managed_table t cross join lateral jsonb_object_keys(t.objects_digest::jsonb) as k (key)
         where t.table_id = managed and left(t.objects_digest, 1) = chr(123) and k.key like 'usage on sequence %'
    )
    select format('grant usage on sequence %s to %s', s.name, case i.grantee when 'public' then 'public' else frostline.identifier(i.grantee) end),
           'usage on sequence ' || jsonb_build_array(s.name, nullif(i.grantee, 'public'))::text, true
      from sequences s cross join inserting i
     where (s.name, i.grantee) not in (select p.name, p.grantee from present p)
    union all
    select format('revoke usage on sequence %s from %s', r.name, case r.grantee when 'public' then 'public' else frostline.identifier(r.grantee) end),
           r.key, false
      from recorded r join present p on p.name = r.name and p.grantee = r.grantee
     where r.grantee not in (select i.grantee from inserting i)
     order by 1
$$;

-- name: relation_note_rights
-- What the heap has now is known; what the relation does not have of it stays apart from it.
create or replace function frostline.relation_note_rights(managed integer) returns void
language sql set search_path = pg_catalog, pg_temp as $$
    delete from frostline.heap_right k
     where k.table_id = managed and (k.grantee, k.privilege, k.field_id, k.with_option) not in (
           select h.grantee, h.privilege, h.field_id, h.with_option from frostline.relation_rights(managed, frostline.heap_of(managed)) h);
    insert into frostline.heap_right as k
    select managed, h.*, (h.grantee, h.privilege, h.field_id, h.with_option) not in (
           select r.grantee, r.privilege, r.field_id, r.with_option
             from frostline.relation_rights(managed, to_regclass(frostline.relation_names(managed) ->> 'relation')) r)
      from frostline.relation_rights(managed, frostline.heap_of(managed)) h
        on conflict on constraint heap_right_pkey do update set is_apart = excluded.is_apart where k.is_apart <> excluded.is_apart;
$$;

-- name: follow_rights
-- Says whether anything was to be done. Row locks of the system catalogs, as GRANT takes them; nobody waits for it.
create or replace function frostline.follow_rights(managed integer) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    stale record;
    has_changed boolean := false;
begin
    for stale in select r.statement from frostline.relation_stale_rights(managed) r loop
        execute stale.statement;
        has_changed := true;
    end loop;
    for stale in select n.* from frostline.relation_stale_numbers(managed) n loop
        execute stale.statement;
        update frostline.managed_table t
           set objects_digest = (case when stale.is_given then t.objects_digest::jsonb || jsonb_build_object(stale.key, '')
                                      else t.objects_digest::jsonb - stale.key end)::text
         where t.table_id = managed and left(t.objects_digest, 1) = chr(123);
        has_changed := true;
    end loop;
    perform frostline.relation_note_rights(managed);
    return has_changed;
end
$$;

-- name: rights_function
create or replace function frostline.follow_granted() returns event_trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $body$
declare
    managed integer;
begin
    if frostline.is_following() then
        return;
    end if;
    for managed in
        select t.table_id from frostline.managed_table t
         where t.mode = 'tiered' and frostline.heap_of(t.table_id) is not null
           and to_regclass(frostline.relation_names(t.table_id) ->> 'relation') is not null
         order by t.table_id
    loop
        if current_setting('frostline.guard', true) = 'off' and pg_has_role(session_user, current_user, 'member') then
            perform frostline.relation_note_rights(managed);
            continue;
        end if;
        insert into frostline.following values (pg_current_xact_id(), managed);
        perform frostline.follow_owner(managed);
        perform frostline.follow_rights(managed);
        perform frostline.follow_keys(managed);
        delete from frostline.following f where f.xid = pg_current_xact_id() and f.table_id = managed;
    end loop;
end
$body$;
revoke execute on function frostline.follow_granted() from public
