create domain frostline_lake."lake name" as name;

alter table "public"."messages" rename to "_messages";

create table "public"."messages_default" partition of "public"."_messages" default;
comment on table "public"."messages_default" is 'made by Frostline: rows for which there is no other partition';
alter table "public"."messages_default" owner to "postgres";

create table "frostline_overlay"."messages_7" (
    "tenant" name collate pg_catalog."C",
    "day" date,
    "number" smallint,
    "body" text,
    frostline_live boolean not null,
    frostline_version bigint not null default nextval('frostline.overlay_version'),
    frostline_marked_at timestamptz not null default now(),
    primary key ("tenant", "day", "number")
) with (vacuum_truncate = off);
-- Kept pages: a table without any looks free to read, so a statement planned after a fold would read it whole for each
-- cold row, the ones that the statement itself has marked included.
create index on "frostline_overlay"."messages_7" ("day");

create or replace trigger "!frostline_truncate" before truncate on "frostline_overlay"."messages_7"
    for each statement execute function frostline.refuse_truncate_of_overlay();
alter table "frostline_overlay"."messages_7" enable always trigger "!frostline_truncate";

create table "frostline_lake"."messages_7" (
    frostline_snapshot bigint,
    "tenant" "frostline_lake"."lake name" collate pg_catalog."C",
    "day" date,
    "number" smallint,
    "body" text
) partition by range ("day");

-- Always empty, before the first value. Postgres prunes at run time only among two partitions or more, and at the lower
-- end this one is out of the way of every statement that says how new its rows are.
create table "frostline_lake"."messages_7 nothing" partition of "frostline_lake"."messages_7" for values from (minvalue) to ('-infinity');

select frostline.follow_policies(7);

-- The policy stands here, behind a barrier, and not in the outer view: an UPDATE would put the outer view's condition and
-- the user's on this view together, and a function of the user could see a row before the policy does.
create or replace view "frostline_relation"."messages_7" with (security_barrier) as
select "tenant", "day", "number", "body", frostline_tier, frostline_snapshot, frostline_secret, frostline_partition, frostline_place
  from (
-- Postgres makes one Append of the three tables only if no arm has a condition of its own; so all stand above, and each
-- folds away where it does not apply. docs/design/relation.md says why each is written as it is.
select u."tenant", u."day", u."number", u."body", frostline_tier, frostline_snapshot, (select s.write_secret from frostline.seam as s where s.table_id = 7) as frostline_secret, frostline_partition, frostline_place
  from (
    select h."tenant", h."day", h."number", h."body", 'heap'::text as frostline_tier, null::bigint as frostline_snapshot,
           h.tableoid as frostline_partition, h.ctid as frostline_place,
           true as frostline_is_hot, null::boolean as frostline_is_cold, true as frostline_live
      from "public"."_messages" as h
    union all
    select c."tenant"::name, c."day", c."number", c."body", 'lake'::text, c.frostline_snapshot, null::oid, null::tid, false, true, true
      from "frostline_lake"."messages_7" as c
    union all
    select o."tenant", o."day", o."number", o."body", 'overlay'::text, null::bigint, null::oid, o.ctid, false, true, o.frostline_live
      from "frostline_overlay"."messages_7" as o
  ) as u
 where (u."day" >= (select s."line_date" from frostline.seam as s where s.table_id = 7) or u.frostline_is_cold)
   and (u.frostline_is_hot or nullif(u."day" < (select s."line_date" from frostline.seam as s where s.table_id = 7), false) is not null)
   and u.frostline_live
   and (u.frostline_tier <> 'lake' or u.frostline_snapshot
        = (select frostline_write.checked_lake(s.snapshot_id, s.table_id, 'public._messages'::regclass, '"frostline_overlay"."messages_7"'::regclass)
             from frostline.seam as s where s.table_id = 7))
   and (u.frostline_tier <> 'lake' or nullif((u."tenant"::pg_catalog.text, u."day", u."number") in (select m."tenant"::pg_catalog.text, m."day", m."number" from "frostline_overlay"."messages_7" as m
            where nullif(m.frostline_version, m.frostline_version) is null), true) is not null)
) as "messages"
 where not pg_catalog.row_security_active('public._messages'::regclass) or "frostline_write"."may_select_7"("tenant", "day", "number", "body");

create view "public"."messages" as select "tenant", "day", "number", "body" from "frostline_relation"."messages_7" as "messages";

-- RETURNING is evaluated only where it is asked for, and then the caller must be allowed to see the row. Each value is
-- computed once: a volatile expression must not show one to the policy and another to the heap.
create or replace rule frostline_insert as on insert to "public"."messages" do instead
    insert into "public"."_messages" as h ("tenant", "day", "number", "body")
    select r."tenant", r."day", r."number", r."body" from (select new."tenant" as "tenant", new."day" as "day", new."number" as "number", new."body" as "body") as r
     where frostline.require(not pg_catalog.row_security_active('public._messages'::regclass) or "frostline_write"."may_insert_7"(r."tenant", r."day", r."number", r."body"), 'messages')
    returning (case when frostline.require(not pg_catalog.row_security_active('public._messages'::regclass) or "frostline_write"."may_select_7"(h."tenant", h."day", h."number", h."body"), 'messages')
               then h."tenant" end)::name, (case when frostline.require(not pg_catalog.row_security_active('public._messages'::regclass) or "frostline_write"."may_select_7"(h."tenant", h."day", h."number", h."body"), 'messages')
               then h."day" end)::date, (case when frostline.require(not pg_catalog.row_security_active('public._messages'::regclass) or "frostline_write"."may_select_7"(h."tenant", h."day", h."number", h."body"), 'messages')
               then h."number" end)::smallint, (case when frostline.require(not pg_catalog.row_security_active('public._messages'::regclass) or "frostline_write"."may_select_7"(h."tenant", h."day", h."number", h."body"), 'messages')
               then h."body" end)::text;

create or replace function "frostline_relation"."policy_7"() returns trigger
language plpgsql as $body$
#variable_conflict use_column
begin
    if not pg_catalog.row_security_active('public._messages'::pg_catalog.regclass) then
        return case when tg_op operator(pg_catalog.=) 'DELETE' then old else new end;
    end if;
    if tg_op operator(pg_catalog.=) 'DELETE' then
        return case when "frostline_write"."may_delete_7"(old."tenant", old."day", old."number", old."body") then old end;
    end if;
    return case when "frostline_write"."may_update_7"(old."tenant", old."day", old."number", old."body") then new end;
end
$body$;
revoke execute on function "frostline_relation"."policy_7"() from public;

create or replace trigger frostline_a_policy instead of update or delete on "frostline_relation"."messages_7" for each row execute function "frostline_relation"."policy_7"();

create or replace view "frostline_write"."update hot 7" as select null::name as n1, null::date as n2, null::smallint as n3, null::text as n4, null::name as o1, null::date as o2, null::smallint as o3, null::pg_catalog.oid as partition, null::pg_catalog.tid as place, null::pg_catalog.uuid as secret;
grant select, update on "frostline_write"."update hot 7" to public;

create or replace rule frostline_write as on update to "frostline_write"."update hot 7" do instead
    update "public"."_messages" as h set "tenant" = new.n1, "day" = new.n2, "number" = new.n3, "body" = new.n4
     where h."tenant" = case when (select s.write_secret = new.secret from frostline.seam as s where s.table_id = 7) then new.o1 end and h."day" = new.o2 and h."number" = case when (select s.write_secret = new.secret from frostline.seam as s where s.table_id = 7) then new.o3 end and case when (select s.write_secret = new.secret from frostline.seam as s where s.table_id = 7) then h.tableoid = new.partition and h.ctid is not distinct from new.place else false end
    returning h."tenant", h."day", h."number", h."body", null::name as o1, null::date as o2, null::smallint as o3, null::pg_catalog.oid as partition, null::pg_catalog.tid as place, null::pg_catalog.uuid as secret;

create or replace view "frostline_write"."update cold 7" as select null::name as n1, null::date as n2, null::smallint as n3, null::text as n4, null::name as o1, null::date as o2, null::smallint as o3, null::text as o4, null::pg_catalog.uuid as secret;
grant select, update on "frostline_write"."update cold 7" to public;

create or replace rule frostline_write as on update to "frostline_write"."update cold 7" do instead
    update "public"."_messages" as h set "tenant" = new.n1, "day" = new.n2, "number" = new.n3, "body" = new.n4
     where h."tenant" = case when (select s.write_secret = new.secret from frostline.seam as s where s.table_id = 7) then new.o1 end and h."day" = new.o2 and h."number" = case when (select s.write_secret = new.secret from frostline.seam as s where s.table_id = 7) then new.o3 end and case when (select s.write_secret = new.secret from frostline.seam as s where s.table_id = 7) then row(h."body") is not distinct from row(new.o4) else false end
    returning h."tenant", h."day", h."number", h."body", null::name as o1, null::date as o2, null::smallint as o3, null::text as o4, null::pg_catalog.uuid as secret;

create or replace view "frostline_write"."delete hot 7" as select null::name as o1, null::date as o2, null::smallint as o3, null::pg_catalog.oid as partition, null::pg_catalog.tid as place, null::pg_catalog.uuid as secret;
grant select, update on "frostline_write"."delete hot 7" to public;

create or replace rule frostline_write as on update to "frostline_write"."delete hot 7" do instead
    delete from "public"."_messages" as h
     where h."tenant" = case when (select s.write_secret = new.secret from frostline.seam as s where s.table_id = 7) then new.o1 end and h."day" = new.o2 and h."number" = case when (select s.write_secret = new.secret from frostline.seam as s where s.table_id = 7) then new.o3 end and case when (select s.write_secret = new.secret from frostline.seam as s where s.table_id = 7) then h.tableoid = new.partition and h.ctid is not distinct from new.place else false end
    returning null::name as o1, null::date as o2, null::smallint as o3, null::pg_catalog.oid as partition, null::pg_catalog.tid as place, null::pg_catalog.uuid as secret;

create or replace view "frostline_write"."delete cold 7" as select null::name as o1, null::date as o2, null::smallint as o3, null::text as o4, null::pg_catalog.uuid as secret;
grant select, update on "frostline_write"."delete cold 7" to public;

create or replace rule frostline_write as on update to "frostline_write"."delete cold 7" do instead
    delete from "public"."_messages" as h
     where h."tenant" = case when (select s.write_secret = new.secret from frostline.seam as s where s.table_id = 7) then new.o1 end and h."day" = new.o2 and h."number" = case when (select s.write_secret = new.secret from frostline.seam as s where s.table_id = 7) then new.o3 end and case when (select s.write_secret = new.secret from frostline.seam as s where s.table_id = 7) then row(h."body") is not distinct from row(new.o4) else false end
    returning null::name as o1, null::date as o2, null::smallint as o3, null::text as o4, null::pg_catalog.uuid as secret;

create or replace view "frostline_write"."insert 7" as select null::name as n1, null::date as n2, null::smallint as n3, null::text as n4, null::pg_catalog.uuid as secret;
grant select, insert on "frostline_write"."insert 7" to public;

create or replace rule frostline_write as on insert to "frostline_write"."insert 7" do instead
    insert into "public"."_messages" as h ("tenant", "day", "number", "body")
    select new.n1, new.n2, new.n3, new.n4
     where (select s.write_secret = new.secret from frostline.seam as s where s.table_id = 7)
    returning h."tenant", h."day", h."number", h."body", null::pg_catalog.uuid as secret;

-- A hot row was not written. True: leave it out, because this statement has written it already, or a trigger of the user
-- has kept it as it is. False: it is gone, and who took it is for the last trigger to find out. 40001: somebody changed it.
-- Runs with its owner's rights, and calls nothing of the user's: of the heap it reads keys and places.
create or replace function "frostline_write"."missed_7"(frostline_old "frostline_relation"."messages_7") returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off
set row_security = off as $body$
#variable_conflict use_column
declare
    frostline_row record;
begin
    if frostline_old.frostline_secret
       is distinct from (select s.write_secret from frostline.seam as s where s.table_id = 7) then
        raise insufficient_privilege using message = 'only statements on public.messages call this function';
    end if;
    select h.tableoid as partition, h.ctid as place, frostline.is_own(h.xmin) as is_own into frostline_row
      from "public"."_messages" as h (n1, n2, n3, n4) where h.n1 = frostline_old."tenant" and h.n2 = frostline_old."day" and h.n3 = frostline_old."number";
    if found then
        if frostline_row.is_own
           or frostline_row.partition = frostline_old.frostline_partition and frostline_row.place = frostline_old.frostline_place then
            return true;
        end if;
        raise serialization_failure using message = 'could not serialize access to messages due to concurrent update', hint = 'Run the transaction again.';
    end if;
    -- With one snapshot for all statements Postgres itself tells (40001) when somebody else has removed the row.
    return current_setting('transaction_isolation') in ('repeatable read', 'serializable');
end
$body$;

grant execute on function "frostline_write"."missed_7"("frostline_relation"."messages_7") to public;

-- Before a cold row is written. False: this statement has written it already. 40001: somebody changed it meanwhile.
-- Runs with its owner's rights, and calls nothing of the user's.
create or replace function "frostline_write"."may_write_cold_7"(frostline_old "frostline_relation"."messages_7") returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off as $body$
#variable_conflict use_column
declare
    frostline_mark record;
begin
    if frostline_old.frostline_secret
       is distinct from (select s.write_secret from frostline.seam as s where s.table_id = 7) then
        raise insufficient_privilege using message = 'only statements on public.messages call this function';
    end if;
    select m.ctid as place, frostline.is_own(m.xmin) as is_own into frostline_mark
      from "frostline_overlay"."messages_7" as m where m."tenant" = frostline_old."tenant" and m."day" = frostline_old."day" and m."number" = frostline_old."number";
    if not found or frostline_old.frostline_tier = 'overlay' and frostline_mark.place = frostline_old.frostline_place then
        return true;
    end if;
    if frostline_mark.is_own then
        return false;
    end if;
    raise serialization_failure using message = 'could not serialize access to messages due to concurrent update', hint = 'Run the transaction again.';
end
$body$;

grant execute on function "frostline_write"."may_write_cold_7"("frostline_relation"."messages_7") to public;

-- The heap has no row as the statement saw it. A row that is only in the lake is locked by inserting its mark, and true says so.
-- False: a trigger of the user has kept the row as it is. Runs with its owner's rights, and calls nothing of the user's.
create or replace function "frostline_write"."claim_7"(frostline_old "frostline_relation"."messages_7") returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off
set row_security = off as $body$
#variable_conflict use_column
declare
    frostline_partition oid;
begin
    if not "frostline_write"."may_write_cold_7"(frostline_old) then
        return false;
    end if;
    perform frostline_write.require_known_heap(7, 'public._messages'::regclass, '"frostline_overlay"."messages_7"'::regclass, 'written');
    select h.tableoid into frostline_partition from "public"."_messages" as h (n1, n2, n3, n4) where h.n1 = frostline_old."tenant" and h.n2 = frostline_old."day" and h.n3 = frostline_old."number";
    if found and exists (select from pg_trigger as t
                          where t.tgrelid = frostline_partition and not t.tgisinternal and t.tgtype & 3 = 3) then
        return false;
    end if;
    if found or frostline_old.frostline_tier = 'overlay' then
        raise serialization_failure using message = 'could not serialize access to messages due to concurrent update', hint = 'Run the transaction again.';
    end if;
    insert into "frostline_overlay"."messages_7" ("tenant", "day", "number", frostline_live) values (frostline_old."tenant", frostline_old."day", frostline_old."number", false) on conflict do nothing;
    if not found then
        raise serialization_failure using message = 'could not serialize access to messages due to concurrent update', hint = 'Run the transaction again.';
    end if;
    -- A transaction with one snapshot for all its statements cannot see that the seam moved; asking for the row's lock
    -- tells (40001). The lock is given back at once with the block's savepoint, so that nobody has to wait for it.
    if current_setting('transaction_isolation') in ('repeatable read', 'serializable') then
        begin
            perform from frostline.seam as s where s.table_id = 7 for share;
            raise exception using errcode = 'FL000', message = 'the seam is current';
        exception when sqlstate 'FL000' then
            null;
        end;
    end if;
    if (select s.snapshot_id from frostline.seam as s where s.table_id = 7)
       is distinct from frostline_old.frostline_snapshot then
        raise serialization_failure using message = 'could not serialize access to messages due to concurrent update', hint = 'Run the transaction again.';
    end if;
    return true;
end
$body$;

grant execute on function "frostline_write"."claim_7"("frostline_relation"."messages_7") to public;

-- A trigger of the user has kept the new version of a cold row from being inserted: the row stays as it is.
create or replace function "frostline_write"."unclaim_7"(frostline_old "frostline_relation"."messages_7") returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off as $body$
#variable_conflict use_column
begin
    if frostline_old.frostline_secret
       is distinct from (select s.write_secret from frostline.seam as s where s.table_id = 7) then
        raise insufficient_privilege using message = 'only statements on public.messages call this function';
    end if;
    delete from "frostline_overlay"."messages_7" as m where m."tenant" = frostline_old."tenant" and m."day" = frostline_old."day" and m."number" = frostline_old."number" and not m.frostline_live and frostline.is_own(m.xmin);
end
$body$;

grant execute on function "frostline_write"."unclaim_7"("frostline_relation"."messages_7") to public;

-- No search_path of its own: what fires on the heap has the caller's. So every name and operator in here is qualified.
create or replace function "frostline_relation"."update_7"() returns trigger
language plpgsql
-- A plan made while overlay and DEFAULT partition are empty is kept, and would read them whole for each row later.
set enable_seqscan = off set jit = off
-- A plan made for known values has the secret in it, and everybody may have plans printed.
set debug_print_plan = off set debug_print_parse = off set debug_print_rewritten = off as $body$
#variable_conflict use_column
declare
    frostline_row record;
begin
    
    -- A kept plan leaves partitions out when it begins, and Postgres 18 then takes what a row that moves RETURNs by the columns of
    -- another partition than its own: an error, or another column's value.
    if not coalesce(new."day" operator(pg_catalog.=) old."day", false)
       and pg_catalog.current_setting('server_version_num')::pg_catalog.int4 operator(pg_catalog.>=) 180000 then
        perform pg_catalog.set_config('plan_cache_mode', 'force_custom_plan', true);
    end if;
    if old.frostline_tier operator(pg_catalog.=) 'heap' then
        update "frostline_write"."update hot 7" set n1 = new."tenant", n2 = new."day", n3 = new."number", n4 = new."body", o1 = old."tenant", o2 = old."day", o3 = old."number", partition = old.frostline_partition, place = old.frostline_place, secret = old.frostline_secret
         returning n1, n2, n3, n4, 'heap'::pg_catalog.text, null::pg_catalog.int8, null::pg_catalog.uuid, null::pg_catalog.oid, null::pg_catalog.tid into frostline_row;
        if found then
            -- As Postgres does it: of the row as triggers and generated columns have made it.
    if pg_catalog.row_security_active('public._messages'::pg_catalog.regclass) then
        perform frostline.require("frostline_write"."may_become_7"(frostline_row.n1, frostline_row.n2, frostline_row.n3, frostline_row.n4), 'messages');
    end if;
            return frostline_row;
        end if;
        if "frostline_write"."missed_7"(old) then
            return null;
        end if;
        new.frostline_tier := 'missed';
        return new;
    end if;
    if not "frostline_write"."may_write_cold_7"(old) then
        return null;
    end if;
    update "frostline_write"."update cold 7" set n1 = new."tenant", n2 = new."day", n3 = new."number", n4 = new."body", o1 = old."tenant", o2 = old."day", o3 = old."number", o4 = old."body", secret = old.frostline_secret
     returning n1, n2, n3, n4, 'heap'::pg_catalog.text, null::pg_catalog.int8, null::pg_catalog.uuid, null::pg_catalog.oid, null::pg_catalog.tid into frostline_row;
    if found then
        -- As Postgres does it: of the row as triggers and generated columns have made it.
    if pg_catalog.row_security_active('public._messages'::pg_catalog.regclass) then
        perform frostline.require("frostline_write"."may_become_7"(frostline_row.n1, frostline_row.n2, frostline_row.n3, frostline_row.n4), 'messages');
    end if;
        return frostline_row;
    end if;
    if not "frostline_write"."claim_7"(old) then
        return null;
    end if;
    insert into "frostline_write"."insert 7" (n1, n2, n3, n4, secret) values (new."tenant", new."day", new."number", new."body", old.frostline_secret)
     returning n1, n2, n3, n4, 'heap'::pg_catalog.text, null::pg_catalog.int8, null::pg_catalog.uuid, null::pg_catalog.oid, null::pg_catalog.tid into frostline_row;
    if not found then
        perform "frostline_write"."unclaim_7"(old);
        return null;
    end if;
    -- As Postgres does it: of the row as triggers and generated columns have made it.
    if pg_catalog.row_security_active('public._messages'::pg_catalog.regclass) then
        perform frostline.require("frostline_write"."may_become_7"(frostline_row.n1, frostline_row.n2, frostline_row.n3, frostline_row.n4), 'messages');
    end if;
    return frostline_row;
end
$body$;
revoke execute on function "frostline_relation"."update_7"() from public;

create or replace trigger frostline_update instead of update on "frostline_relation"."messages_7" for each row execute function "frostline_relation"."update_7"();
create or replace trigger frostline_z_settle_update instead of update on "frostline_relation"."messages_7"
    for each row execute function frostline_write.settle_update();

-- As the one for UPDATE. A rule on UPDATE that deletes tells its number of rows inside WITH only.
create or replace function "frostline_relation"."delete_7"() returns trigger
language plpgsql
set enable_seqscan = off set jit = off
set debug_print_plan = off set debug_print_parse = off set debug_print_rewritten = off as $body$
#variable_conflict use_column
declare
    frostline_gone boolean;
begin
    if old.frostline_tier operator(pg_catalog.=) 'heap' then
        with gone as (update "frostline_write"."delete hot 7" set o1 = old."tenant", o2 = old."day", o3 = old."number", partition = old.frostline_partition, place = old.frostline_place, secret = old.frostline_secret returning true)
        select true into frostline_gone from gone;
        if found then
            return old;
        end if;
        if "frostline_write"."missed_7"(old) then
            return null;
        end if;
        perform pg_catalog.set_config('frostline.missed', 'yes', true);
        return old;
    end if;
    if not "frostline_write"."may_write_cold_7"(old) then
        return null;
    end if;
    with gone as (update "frostline_write"."delete cold 7" set o1 = old."tenant", o2 = old."day", o3 = old."number", o4 = old."body", secret = old.frostline_secret returning true)
    select true into frostline_gone from gone;
    if found or "frostline_write"."claim_7"(old) then
        return old;
    end if;
    return null;
end
$body$;
revoke execute on function "frostline_relation"."delete_7"() from public;

create or replace trigger frostline_delete instead of delete on "frostline_relation"."messages_7" for each row execute function "frostline_relation"."delete_7"();
create or replace trigger frostline_z_settle_delete instead of delete on "frostline_relation"."messages_7"
    for each row execute function frostline_write.settle_delete();

create or replace function "frostline_relation"."mark_7"() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp
-- A plan made while overlay and DEFAULT partition are empty is kept, and would read them whole for each row later.
set enable_seqscan = off set jit = off
-- An error, should a policy of the heap hide a row from us: it would be taken for one that is gone.
set row_security = off as $body$
#variable_conflict use_column
declare
    key_is_new boolean := true;
    must_look boolean := false;
    has_cold_rows boolean;
    has_one_snapshot boolean := current_setting('transaction_isolation') in ('repeatable read', 'serializable');
begin
    -- Silent for the statement of a fold itself, not for what a trigger of the user makes of it.
    if current_setting('frostline.folding', true) = 'on' and pg_trigger_depth() = 1
       and exists (select from frostline.folding as f where f.xid = pg_current_xact_id() and f.table_id = 7) then
        return null;
    end if;
    if tg_op = 'TRUNCATE' then
        perform frostline_write.require_known_heap(7, 'public._messages'::regclass, '"frostline_overlay"."messages_7"'::regclass, 'marked');
        -- As if each row were deleted: an archive may have exported them. A detached partition has no say any more.
        if pg_partition_root(tg_relid) is null then
            return null;
        end if;
        -- Rows that this transaction does not see would go without a mark.
        if has_one_snapshot and pg_relation_size(tg_relid) > 0 then
            raise object_not_in_prerequisite_state using
                message = format('%s cannot be truncated at %s', tg_relid::regclass, upper(current_setting('transaction_isolation'))),
                detail = 'It may have rows that this transaction does not see.', hint = 'Do it at READ COMMITTED.';
        end if;
        execute format('select exists (select from only %s as h where h.%I < $1)', tg_relid::regclass, 'day')
           into has_cold_rows using (select s."line_date" from frostline.seam as s where s.table_id = 7);
        if has_cold_rows then
            raise object_not_in_prerequisite_state using
                message = format('%s has rows below the frost line of %s', tg_relid::regclass, 'public.messages'),
                hint = format('They are part of it. To have them gone: delete from %s ...', 'public.messages');
        end if;
        execute format('insert into %s (%s, frostline_live) select %2$s, false from only %3$s on conflict (%4$s) do update '
                       'set %5$s frostline_live = false, frostline_version = nextval(''frostline.overlay_version'')',
                       '"frostline_overlay"."messages_7"', '"tenant", "day", "number"', tg_relid::regclass, '"tenant", "day", "number"', '"body" = null, ');
        return null;
    end if;
    if tg_op = 'DELETE' or (tg_op = 'UPDATE' and row(old."tenant", old."day", old."number") is distinct from row(new."tenant", new."day", new."number")) then
        -- 40001 if a job has taken away the mark that this transaction still sees: ours would stand beside it.
        if has_one_snapshot then
            perform from "frostline_overlay"."messages_7" as m where m."tenant" = old."tenant" and m."day" = old."day" and m."number" = old."number" for update;
        end if;
        -- What the heap holds under this key now. What the trigger is told may be old: a trigger of another row of the same
        -- statement may have come first. By their places: two columns may have exchanged their names, and the overlay not yet.
        -- A partition that was detached keeps its triggers, and has no say any more. Postgres is asked for that by a function:
        -- pg_class has it as of this transaction's snapshot, and the partition may have been attached since.
        insert into "frostline_overlay"."messages_7" ("tenant", "day", "number", "body", frostline_live)
        select h.n1, h.n2, h.n3, h.n4, true from "public"."_messages" as h (n1, n2, n3, n4)
         where frostline_write.has_known_key(7, 'public._messages'::regclass, '"frostline_overlay"."messages_7"'::regclass) and h.n1 = old."tenant" and h.n2 = old."day" and h.n3 = old."number"
        on conflict ("tenant", "day", "number") do update set "body" = excluded."body", 
            frostline_live = true, frostline_version = nextval('frostline.overlay_version');
        if not found then
            insert into "frostline_overlay"."messages_7" ("tenant", "day", "number", frostline_live)
            select old."tenant", old."day", old."number", false where pg_partition_root(tg_relid) is not null
            on conflict ("tenant", "day", "number") do update set "body" = null, 
                frostline_live = false, frostline_version = nextval('frostline.overlay_version');
        end if;
    end if;
    if tg_op = 'DELETE' then
        return null;
    end if;
    if tg_op = 'UPDATE' then
        key_is_new := row(old."tenant", old."day", old."number") is distinct from row(new."tenant", new."day", new."number");
    end if;
    -- Whoever was not told of the newest R writes a row that the next `frostline retain` removes.
    if key_is_new and new."day" < (select s."retained_date" from frostline.seam as s where s.table_id = 7) and not exists (select from "frostline_overlay"."messages_7" as m where m."tenant" = new."tenant" and m."day" = new."day" and m."number" = new."number") then
        raise check_violation using message = 'new row of messages is older than its retention period',
            detail = format('Rows before %s were removed for good.', (select s."retained_date" from frostline.seam as s where s.table_id = 7)), hint = 'How long rows are kept: frostline table set public.messages --retention ...',
            schema = 'public', table = 'messages';
    end if;
    must_look := key_is_new and new."day" < (select s."line_date" from frostline.seam as s where s.table_id = 7)
        and coalesce(current_setting('frostline.check_cold_keys', true), '') <> 'off';
    if must_look or has_one_snapshot then
        -- A key that has a mark needs no look: what the lake has of it does not count. Locked, so that it stays until ours;
        -- and 40001, as above.
        perform from "frostline_overlay"."messages_7" as m where m."tenant" = new."tenant" and m."day" = new."day" and m."number" = new."number" for update;
        must_look := must_look and not found;
    end if;
    -- What the heap holds under this key now. What the trigger is told may be old: a trigger of another row of the same
        -- statement may have come first. By their places: two columns may have exchanged their names, and the overlay not yet.
        -- A partition that was detached keeps its triggers, and has no say any more. Postgres is asked for that by a function:
        -- pg_class has it as of this transaction's snapshot, and the partition may have been attached since.
        insert into "frostline_overlay"."messages_7" ("tenant", "day", "number", "body", frostline_live)
        select h.n1, h.n2, h.n3, h.n4, true from "public"."_messages" as h (n1, n2, n3, n4)
         where frostline_write.has_known_key(7, 'public._messages'::regclass, '"frostline_overlay"."messages_7"'::regclass) and h.n1 = new."tenant" and h.n2 = new."day" and h.n3 = new."number"
        on conflict ("tenant", "day", "number") do update set "body" = excluded."body", 
            frostline_live = true, frostline_version = nextval('frostline.overlay_version');
        if not found then
            insert into "frostline_overlay"."messages_7" ("tenant", "day", "number", frostline_live)
            select new."tenant", new."day", new."number", false where pg_partition_root(tg_relid) is not null
            on conflict ("tenant", "day", "number") do update set "body" = null, 
                frostline_live = false, frostline_version = nextval('frostline.overlay_version');
        end if;
    -- The mark comes first. A job that brings rows into the lake holds marks of their keys until the lake has them: so either it
    -- finds ours, or we wait for it here and then look into the lake as it has left it.
    if must_look then
        perform frostline_write.require_known_heap(7, 'public._messages'::regclass, '"frostline_overlay"."messages_7"'::regclass, 'inserted');
        -- A transaction with one snapshot for all its statements cannot see that the seam moved; asking for the row's lock
    -- tells (40001). The lock is given back at once with the block's savepoint, so that nobody has to wait for it.
    if current_setting('transaction_isolation') in ('repeatable read', 'serializable') then
        begin
            perform from frostline.seam as s where s.table_id = 7 for share;
            raise exception using errcode = 'FL000', message = 'the seam is current';
        exception when sqlstate 'FL000' then
            null;
        end;
    end if;
        if exists (select from "frostline_lake"."messages_7" as c
                    where c.frostline_snapshot = (select s.snapshot_id from frostline.seam as s where s.table_id = 7)
                      and new."tenant" = c."tenant"::name and new."day" = c."day" and new."number" = c."number") then
            raise unique_violation using message = 'duplicate key value violates the primary key of messages', detail = 'The key exists in the lake.',
                hint = 'Update the row instead: update public.messages ...', schema = 'public', table = 'messages';
        end if;
    end if;
    -- What the heap holds under this key now. What the trigger is told may be old: a trigger of another row of the same
        -- statement may have come first. By their places: two columns may have exchanged their names, and the overlay not yet.
        -- A partition that was detached keeps its triggers, and has no say any more. Postgres is asked for that by a function:
        -- pg_class has it as of this transaction's snapshot, and the partition may have been attached since.
        insert into "frostline_overlay"."messages_7" ("tenant", "day", "number", "body", frostline_live)
        select h.n1, h.n2, h.n3, h.n4, true from "public"."_messages" as h (n1, n2, n3, n4)
         where frostline_write.has_known_key(7, 'public._messages'::regclass, '"frostline_overlay"."messages_7"'::regclass) and h.n1 = new."tenant" and h.n2 = new."day" and h.n3 = new."number"
        on conflict ("tenant", "day", "number") do update set "body" = excluded."body", 
            frostline_live = true, frostline_version = nextval('frostline.overlay_version');
        if not found then
            insert into "frostline_overlay"."messages_7" ("tenant", "day", "number", frostline_live)
            select new."tenant", new."day", new."number", false where pg_partition_root(tg_relid) is not null
            on conflict ("tenant", "day", "number") do update set "body" = null, 
                frostline_live = false, frostline_version = nextval('frostline.overlay_version');
        end if;
    return null;
end
$body$;
revoke execute on function "frostline_relation"."mark_7"() from public;

-- Triggers fire in the order of their names. They fire also for what a replication worker writes.
create or replace trigger "!frostline_mark" after insert or update or delete on "public"."messages_default"
    for each row execute function "frostline_relation"."mark_7"();
create or replace trigger "!frostline_truncate" before truncate on "public"."messages_default"
    for each statement execute function "frostline_relation"."mark_7"();
alter table "public"."messages_default" enable always trigger "!frostline_mark", enable always trigger "!frostline_truncate";

-- Of the heap as a whole, also by CASCADE through a foreign key: the lake's half would stay. One partition may be truncated.
create or replace function "frostline_relation"."truncate_7"() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $body$
begin
    if exists (select from frostline.lake_file as f where f.table_id = 7) then
        raise object_not_in_prerequisite_state using message = 'public.messages has rows in the lake, which TRUNCATE would leave there', hint = 'All rows of both tiers go by: frostline truncate public.messages';
    end if;
    return null;
end
$body$;
revoke execute on function "frostline_relation"."truncate_7"() from public;

create or replace trigger "!frostline_truncate_all" before truncate on "public"."_messages"
    for each statement execute function "frostline_relation"."truncate_7"();
alter table only "public"."_messages" enable always trigger "!frostline_truncate_all";

grant select, insert, update, delete on "frostline_relation"."messages_7" to "postgres";

alter view "public"."messages" owner to "postgres";
