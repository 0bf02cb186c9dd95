alter table "public"."messages" rename to "_messages";

create table "public"."messages_default" partition of "public"."_messages" default;
comment on table "public"."messages_default" is 'made by Frostline: rows for which there is no other partition';

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

create table "frostline_lake"."messages_7" (
    frostline_snapshot bigint,
    "tenant" "frostline_lake"."lake name" collate pg_catalog."C",
    "day" date,
    "number" smallint,
    "body" text
) partition by range ("day");
-- Always empty, at the very end of the range. Postgres prunes at run time only among two partitions or more.
create table "frostline_lake"."messages_7 nothing" partition of "frostline_lake"."messages_7" for values from ('infinity') to (maxvalue);

-- The policy stands here, behind a barrier, and not in the outer view: an UPDATE would put the outer view's condition and
-- the user's on this view together, and a function of the user could see a row before the policy does.
create view "frostline_relation"."messages_7" with (security_barrier) as
select "tenant", "day", "number", "body", frostline_tier, frostline_snapshot
  from (
select h."tenant", h."day", h."number", h."body", 'heap'::text as frostline_tier, null::bigint as frostline_snapshot
  from "public"."_messages" as h
 where h."day" >= (select s."line_date" from frostline.seam as s where s.table_id = 7)
union all
select c."tenant"::name, c."day", c."number", c."body", 'lake'::text, c.frostline_snapshot
  from "frostline_lake"."messages_7" as c
 where c.frostline_snapshot = (select s.snapshot_id from frostline.seam as s where s.table_id = 7)
   and c."day" < (select s."line_date" from frostline.seam as s where s.table_id = 7)
   and not exists (select from "frostline_overlay"."messages_7" as m where m."tenant" = c."tenant"::name and m."day" = c."day" and m."number" = c."number")
union all
select o."tenant", o."day", o."number", o."body", 'heap'::text, null::bigint
  from "frostline_overlay"."messages_7" as o
 where o.frostline_live and o."day" < (select s."line_date" from frostline.seam as s where s.table_id = 7)
) as "messages"
 where not pg_catalog.row_security_active('public._messages'::regclass) or ((((tenant = CURRENT_USER)) or ((pg_catalog.pg_has_role(current_user, 'pg_read_all_data', 'usage')) and (true))));

create view "public"."messages" as select "tenant", "day", "number", "body" from "frostline_relation"."messages_7" as "messages";

create rule frostline_insert as on insert to "public"."messages" do instead
    insert into "public"."_messages" ("tenant", "day", "number", "body")
    select "tenant", "day", "number", "body" from (select new."tenant" as "tenant", new."day" as "day", new."number" as "number", new."body" as "body") as "messages"
     where frostline.require(not pg_catalog.row_security_active('public._messages'::regclass) or ((((tenant = CURRENT_USER))) and not (true and ((body <> upper(body))) is not true)), 'messages')
    returning "tenant", "day", "number", "body";

create function "frostline_relation"."policy_7"() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $body$
#variable_conflict use_column
declare
    allowed boolean;
begin
    if not row_security_active('public._messages'::regclass) then
        return case when tg_op = 'DELETE' then old else new end;
    end if;
    if tg_op = 'DELETE' then
        select (((tenant = CURRENT_USER))) into allowed from (select old."tenant" as "tenant", old."day" as "day", old."number" as "number", old."body" as "body") as "messages";
        return case when allowed then old end;
    end if;
    select (((tenant = CURRENT_USER))) into allowed from (select old."tenant" as "tenant", old."day" as "day", old."number" as "number", old."body" as "body") as "messages";
    if allowed is not true then
        return null;
    end if;
    select (((tenant = CURRENT_USER))) and (((tenant = CURRENT_USER)) or ((pg_catalog.pg_has_role(current_user, 'pg_read_all_data', 'usage')) and (true))) into allowed from (select new."tenant" as "tenant", new."day" as "day", new."number" as "number", new."body" as "body") as "messages";
    perform frostline.require(allowed, 'messages');
    return new;
end
$body$;
revoke execute on function "frostline_relation"."policy_7"() from public;

create trigger frostline_a_policy instead of update or delete on "frostline_relation"."messages_7" for each row execute function "frostline_relation"."policy_7"();

create function "frostline_relation"."update_7"() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp
-- A plan made while overlay and DEFAULT partition are empty is kept, and would read them whole for each row later.
set enable_seqscan = off set jit = off as $body$
#variable_conflict use_column
declare
    frostline_row record;
begin
    
    update "public"."_messages" as h set "tenant" = new."tenant", "day" = new."day", "number" = new."number", "body" = new."body"
     where h."tenant" = old."tenant" and h."day" = old."day" and h."number" = old."number" and row(h."body") is not distinct from row(old."body")
     returning h."tenant", h."day", h."number", h."body", 'heap'::text, null::bigint into frostline_row;
    if found then
        return frostline_row;
    end if;
    -- The row was not in the heap as the statement saw it. Inserting its mark is the lock on a lake row.
    if old.frostline_tier = 'heap' or exists (select from "public"."_messages" as h where h."tenant" = old."tenant" and h."day" = old."day" and h."number" = old."number") then
        raise serialization_failure using message = 'could not serialize access to messages due to concurrent update', hint = 'Run the transaction again.';
    end if;
    insert into "frostline_overlay"."messages_7" ("tenant", "day", "number", frostline_live) values (old."tenant", old."day", old."number", false) on conflict do nothing;
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
       is distinct from old.frostline_snapshot then
        raise serialization_failure using message = 'could not serialize access to messages due to concurrent update', hint = 'Run the transaction again.';
    end if;
    insert into "public"."_messages" as h ("tenant", "day", "number", "body") values (new."tenant", new."day", new."number", new."body")
     returning h."tenant", h."day", h."number", h."body", 'heap'::text, null::bigint into frostline_row;
    return frostline_row;
end
$body$;
revoke execute on function "frostline_relation"."update_7"() from public;

create trigger frostline_update instead of update on "frostline_relation"."messages_7" for each row execute function "frostline_relation"."update_7"();

create function "frostline_relation"."delete_7"() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp
-- A plan made while overlay and DEFAULT partition are empty is kept, and would read them whole for each row later.
set enable_seqscan = off set jit = off as $body$
#variable_conflict use_column
begin
    delete from "public"."_messages" as h where h."tenant" = old."tenant" and h."day" = old."day" and h."number" = old."number" and row(h."body") is not distinct from row(old."body");
    if found then
        return old;
    end if;
    -- The row was not in the heap as the statement saw it. Inserting its mark is the lock on a lake row.
    if old.frostline_tier = 'heap' or exists (select from "public"."_messages" as h where h."tenant" = old."tenant" and h."day" = old."day" and h."number" = old."number") then
        raise serialization_failure using message = 'could not serialize access to messages due to concurrent update', hint = 'Run the transaction again.';
    end if;
    insert into "frostline_overlay"."messages_7" ("tenant", "day", "number", frostline_live) values (old."tenant", old."day", old."number", false) on conflict do nothing;
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
       is distinct from old.frostline_snapshot then
        raise serialization_failure using message = 'could not serialize access to messages due to concurrent update', hint = 'Run the transaction again.';
    end if;
    return old;
end
$body$;
revoke execute on function "frostline_relation"."delete_7"() from public;

create trigger frostline_delete instead of delete on "frostline_relation"."messages_7" for each row execute function "frostline_relation"."delete_7"();

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
begin
    -- Silent for the statement of a fold itself, not for what a trigger of the user makes of it.
    if current_setting('frostline.folding', true) = 'on' and pg_trigger_depth() = 1
       and exists (select from frostline.folding as f where f.xid = pg_current_xact_id() and f.table_id = 7) then
        return null;
    end if;
    if tg_op = 'TRUNCATE' then
        -- As if each row were deleted: an archive may have exported them. A detached partition has no say any more.
        if not (select p.relispartition from pg_class as p where p.oid = tg_relid) then
            return null;
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
        -- What the heap holds under this key now. What the trigger is told may be old: a trigger of another row of the same
        -- statement may have come first. A partition that was detached keeps its triggers, and has no say any more.
        insert into "frostline_overlay"."messages_7" ("tenant", "day", "number", "body", frostline_live)
        select h."tenant", h."day", h."number", h."body", true from "public"."_messages" as h where h."tenant" = old."tenant" and h."day" = old."day" and h."number" = old."number"
        on conflict ("tenant", "day", "number") do update set "body" = excluded."body", 
            frostline_live = true, frostline_version = nextval('frostline.overlay_version');
        if not found then
            insert into "frostline_overlay"."messages_7" ("tenant", "day", "number", frostline_live)
            select old."tenant", old."day", old."number", false from pg_class as p where p.oid = tg_relid and p.relispartition
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
    if key_is_new and new."day" < (select s."line_date" from frostline.seam as s where s.table_id = 7)
       and coalesce(current_setting('frostline.check_cold_keys', true), '') <> 'off' then
        -- A key that has a mark needs no look: what the lake has of it does not count. Locked, so that it stays until ours.
        perform from "frostline_overlay"."messages_7" as m where m."tenant" = new."tenant" and m."day" = new."day" and m."number" = new."number" for update;
        must_look := not found;
    end if;
    -- What the heap holds under this key now. What the trigger is told may be old: a trigger of another row of the same
        -- statement may have come first. A partition that was detached keeps its triggers, and has no say any more.
        insert into "frostline_overlay"."messages_7" ("tenant", "day", "number", "body", frostline_live)
        select h."tenant", h."day", h."number", h."body", true from "public"."_messages" as h where h."tenant" = new."tenant" and h."day" = new."day" and h."number" = new."number"
        on conflict ("tenant", "day", "number") do update set "body" = excluded."body", 
            frostline_live = true, frostline_version = nextval('frostline.overlay_version');
        if not found then
            insert into "frostline_overlay"."messages_7" ("tenant", "day", "number", frostline_live)
            select new."tenant", new."day", new."number", false from pg_class as p where p.oid = tg_relid and p.relispartition
            on conflict ("tenant", "day", "number") do update set "body" = null, 
                frostline_live = false, frostline_version = nextval('frostline.overlay_version');
        end if;
    -- The mark comes first. Whoever brings rows into the lake holds marks of their keys until the lake has them: so either he
    -- finds ours, or we wait for him here and then look into the lake as he has left it.
    if must_look then
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
        -- statement may have come first. A partition that was detached keeps its triggers, and has no say any more.
        insert into "frostline_overlay"."messages_7" ("tenant", "day", "number", "body", frostline_live)
        select h."tenant", h."day", h."number", h."body", true from "public"."_messages" as h where h."tenant" = new."tenant" and h."day" = new."day" and h."number" = new."number"
        on conflict ("tenant", "day", "number") do update set "body" = excluded."body", 
            frostline_live = true, frostline_version = nextval('frostline.overlay_version');
        if not found then
            insert into "frostline_overlay"."messages_7" ("tenant", "day", "number", frostline_live)
            select new."tenant", new."day", new."number", false from pg_class as p where p.oid = tg_relid and p.relispartition
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
