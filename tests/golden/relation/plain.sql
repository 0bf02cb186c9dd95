alter table "public"."events" rename to "_events";

create table "public"."events_default" partition of "public"."_events" default;
comment on table "public"."events_default" is 'made by Frostline: rows for which there is no other partition';

create table "frostline_overlay"."events_7" (
    "id" bigint,
    "ts" timestamp with time zone,
    "status" text,
    frostline_live boolean not null,
    frostline_version bigint not null default nextval('frostline.overlay_version'),
    frostline_marked_at timestamptz not null default now(),
    primary key ("id", "ts")
) with (vacuum_truncate = off);
-- Kept pages: a table without any looks free to read, so a statement planned after a fold would read it whole for each
-- cold row, the ones that the statement itself has marked included.
create index on "frostline_overlay"."events_7" ("ts");

create table "frostline_lake"."events_7" (
    frostline_snapshot bigint,
    "id" bigint,
    "ts" timestamp with time zone,
    "status" text
) partition by range ("ts");
-- Always empty, at the very end of the range. Postgres prunes at run time only among two partitions or more.
create table "frostline_lake"."events_7 nothing" partition of "frostline_lake"."events_7" for values from ('infinity') to (maxvalue);

create view "frostline_relation"."events_7" as
select h."id", h."ts", h."status", 'heap'::text as frostline_tier, null::bigint as frostline_snapshot
  from "public"."_events" as h
 where h."ts" >= (select s."line_timestamptz" from frostline.seam as s where s.table_id = 7)
union all
select c."id", c."ts", c."status", 'lake'::text, c.frostline_snapshot
  from "frostline_lake"."events_7" as c
 where c.frostline_snapshot = (select s.snapshot_id from frostline.seam as s where s.table_id = 7)
   and c."ts" < (select s."line_timestamptz" from frostline.seam as s where s.table_id = 7)
   and not exists (select from "frostline_overlay"."events_7" as m where m."id" = c."id" and m."ts" = c."ts")
union all
select o."id", o."ts", o."status", 'heap'::text, null::bigint
  from "frostline_overlay"."events_7" as o
 where o.frostline_live and o."ts" < (select s."line_timestamptz" from frostline.seam as s where s.table_id = 7);

create view "public"."events" as select "id", "ts", "status" from "frostline_relation"."events_7" as "events";

alter view "public"."events" alter column "ts" set default now();

create rule frostline_insert as on insert to "public"."events" do instead
    insert into "public"."_events" ("id", "ts", "status") values (new."id", new."ts", new."status") returning "id", "ts", "status";

create function "frostline_relation"."copy_7"() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $body$
#variable_conflict use_column
begin
    insert into "public"."_events" ("id", "ts", "status") values (new."id", new."ts", new."status");
    return new;
end
$body$;
revoke execute on function "frostline_relation"."copy_7"() from public;

create trigger frostline_copy instead of insert on "public"."events" for each row execute function "frostline_relation"."copy_7"();

create function "frostline_relation"."update_7"() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp
-- A plan made while overlay and DEFAULT partition are empty is kept, and would read them whole for each row later.
set enable_seqscan = off set jit = off as $body$
#variable_conflict use_column
declare
    frostline_row record;
begin
    
    update "public"."_events" as h set "id" = new."id", "ts" = new."ts", "status" = new."status"
     where h."id" = old."id" and h."ts" = old."ts" and row(h."status") is not distinct from row(old."status")
     returning h."id", h."ts", h."status", 'heap'::text, null::bigint into frostline_row;
    if found then
        return frostline_row;
    end if;
    -- The row was not in the heap as the statement saw it. Inserting its mark is the lock on a lake row.
    if old.frostline_tier = 'heap' or exists (select from "public"."_events" as h where h."id" = old."id" and h."ts" = old."ts") then
        raise serialization_failure using message = 'could not serialize access to events due to concurrent update', hint = 'Run the transaction again.';
    end if;
    insert into "frostline_overlay"."events_7" ("id", "ts", frostline_live) values (old."id", old."ts", false) on conflict do nothing;
    if not found then
        raise serialization_failure using message = 'could not serialize access to events due to concurrent update', hint = 'Run the transaction again.';
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
        raise serialization_failure using message = 'could not serialize access to events due to concurrent update', hint = 'Run the transaction again.';
    end if;
    insert into "public"."_events" as h ("id", "ts", "status") values (new."id", new."ts", new."status")
     returning h."id", h."ts", h."status", 'heap'::text, null::bigint into frostline_row;
    return frostline_row;
end
$body$;
revoke execute on function "frostline_relation"."update_7"() from public;

create trigger frostline_update instead of update on "frostline_relation"."events_7" for each row execute function "frostline_relation"."update_7"();

create function "frostline_relation"."delete_7"() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp
-- A plan made while overlay and DEFAULT partition are empty is kept, and would read them whole for each row later.
set enable_seqscan = off set jit = off as $body$
#variable_conflict use_column
begin
    delete from "public"."_events" as h where h."id" = old."id" and h."ts" = old."ts" and row(h."status") is not distinct from row(old."status");
    if found then
        return old;
    end if;
    -- The row was not in the heap as the statement saw it. Inserting its mark is the lock on a lake row.
    if old.frostline_tier = 'heap' or exists (select from "public"."_events" as h where h."id" = old."id" and h."ts" = old."ts") then
        raise serialization_failure using message = 'could not serialize access to events due to concurrent update', hint = 'Run the transaction again.';
    end if;
    insert into "frostline_overlay"."events_7" ("id", "ts", frostline_live) values (old."id", old."ts", false) on conflict do nothing;
    if not found then
        raise serialization_failure using message = 'could not serialize access to events due to concurrent update', hint = 'Run the transaction again.';
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
        raise serialization_failure using message = 'could not serialize access to events due to concurrent update', hint = 'Run the transaction again.';
    end if;
    return old;
end
$body$;
revoke execute on function "frostline_relation"."delete_7"() from public;

create trigger frostline_delete instead of delete on "frostline_relation"."events_7" for each row execute function "frostline_relation"."delete_7"();

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
        execute format('select exists (select from only %s as h where h.%I < $1)', tg_relid::regclass, 'ts')
           into has_cold_rows using (select s."line_timestamptz" from frostline.seam as s where s.table_id = 7);
        if has_cold_rows then
            raise object_not_in_prerequisite_state using
                message = format('%s has rows below the frost line of %s', tg_relid::regclass, 'public.events'),
                hint = format('They are part of it. To have them gone: delete from %s ...', 'public.events');
        end if;
        execute format('insert into %s (%s, frostline_live) select %2$s, false from only %3$s on conflict (%4$s) do update '
                       'set %5$s frostline_live = false, frostline_version = nextval(''frostline.overlay_version'')',
                       '"frostline_overlay"."events_7"', '"id", "ts"', tg_relid::regclass, '"id", "ts"', '"status" = null, ');
        return null;
    end if;
    if tg_op = 'DELETE' or (tg_op = 'UPDATE' and row(old."id", old."ts") is distinct from row(new."id", new."ts")) then
        -- What the heap holds under this key now. What the trigger is told may be old: a trigger of another row of the same
        -- statement may have come first. A partition that was detached keeps its triggers, and has no say any more.
        insert into "frostline_overlay"."events_7" ("id", "ts", "status", frostline_live)
        select h."id", h."ts", h."status", true from "public"."_events" as h where h."id" = old."id" and h."ts" = old."ts"
        on conflict ("id", "ts") do update set "status" = excluded."status", 
            frostline_live = true, frostline_version = nextval('frostline.overlay_version');
        if not found then
            insert into "frostline_overlay"."events_7" ("id", "ts", frostline_live)
            select old."id", old."ts", false from pg_class as p where p.oid = tg_relid and p.relispartition
            on conflict ("id", "ts") do update set "status" = null, 
                frostline_live = false, frostline_version = nextval('frostline.overlay_version');
        end if;
    end if;
    if tg_op = 'DELETE' then
        return null;
    end if;
    if tg_op = 'UPDATE' then
        key_is_new := row(old."id", old."ts") is distinct from row(new."id", new."ts");
    end if;
    -- Whoever was not told of the newest R writes a row that the next `frostline retain` removes.
    if key_is_new and new."ts" < (select s."retained_timestamptz" from frostline.seam as s where s.table_id = 7) and not exists (select from "frostline_overlay"."events_7" as m where m."id" = new."id" and m."ts" = new."ts") then
        raise check_violation using message = 'new row of events is older than its retention period',
            detail = format('Rows before %s were removed for good.', (select s."retained_timestamptz" from frostline.seam as s where s.table_id = 7)), hint = 'How long rows are kept: frostline table set public.events --retention ...',
            schema = 'public', table = 'events';
    end if;
    if key_is_new and new."ts" < (select s."line_timestamptz" from frostline.seam as s where s.table_id = 7)
       and coalesce(current_setting('frostline.check_cold_keys', true), '') <> 'off' then
        -- A key that has a mark needs no look: what the lake has of it does not count. Locked, so that it stays until ours.
        perform from "frostline_overlay"."events_7" as m where m."id" = new."id" and m."ts" = new."ts" for update;
        must_look := not found;
    end if;
    -- What the heap holds under this key now. What the trigger is told may be old: a trigger of another row of the same
        -- statement may have come first. A partition that was detached keeps its triggers, and has no say any more.
        insert into "frostline_overlay"."events_7" ("id", "ts", "status", frostline_live)
        select h."id", h."ts", h."status", true from "public"."_events" as h where h."id" = new."id" and h."ts" = new."ts"
        on conflict ("id", "ts") do update set "status" = excluded."status", 
            frostline_live = true, frostline_version = nextval('frostline.overlay_version');
        if not found then
            insert into "frostline_overlay"."events_7" ("id", "ts", frostline_live)
            select new."id", new."ts", false from pg_class as p where p.oid = tg_relid and p.relispartition
            on conflict ("id", "ts") do update set "status" = null, 
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
        if exists (select from "frostline_lake"."events_7" as c
                    where c.frostline_snapshot = (select s.snapshot_id from frostline.seam as s where s.table_id = 7)
                      and new."id" = c."id" and new."ts" = c."ts") then
            raise unique_violation using message = 'duplicate key value violates the primary key of events', detail = 'The key exists in the lake.',
                hint = 'Update the row instead: update public.events ...', schema = 'public', table = 'events';
        end if;
    end if;
    -- What the heap holds under this key now. What the trigger is told may be old: a trigger of another row of the same
        -- statement may have come first. A partition that was detached keeps its triggers, and has no say any more.
        insert into "frostline_overlay"."events_7" ("id", "ts", "status", frostline_live)
        select h."id", h."ts", h."status", true from "public"."_events" as h where h."id" = new."id" and h."ts" = new."ts"
        on conflict ("id", "ts") do update set "status" = excluded."status", 
            frostline_live = true, frostline_version = nextval('frostline.overlay_version');
        if not found then
            insert into "frostline_overlay"."events_7" ("id", "ts", frostline_live)
            select new."id", new."ts", false from pg_class as p where p.oid = tg_relid and p.relispartition
            on conflict ("id", "ts") do update set "status" = null, 
                frostline_live = false, frostline_version = nextval('frostline.overlay_version');
        end if;
    return null;
end
$body$;
revoke execute on function "frostline_relation"."mark_7"() from public;

-- Triggers fire in the order of their names. They fire also for what a replication worker writes.
create or replace trigger "!frostline_mark" after insert or update or delete on "public"."events_default"
    for each row execute function "frostline_relation"."mark_7"();
create or replace trigger "!frostline_truncate" before truncate on "public"."events_default"
    for each statement execute function "frostline_relation"."mark_7"();
alter table "public"."events_default" enable always trigger "!frostline_mark", enable always trigger "!frostline_truncate";

comment on view "public"."events" is 'what happened';

comment on column "public"."events"."status" is 'how it went';
