alter table "Odd ""Shop"""."Größe" rename to "_Größe";

create table "frostline_overlay"."Größe_7" (
    "Id" integer,
    "seq" bigint,
    "day" integer,
    "price" numeric(12,2),
    "exact" numeric,
    "doc" jsonb,
    "feeling" public.mood,
    "tags" text[],
    "code" text collate pg_catalog."C",
    "total" numeric(14,2),
    frostline_live boolean not null,
    frostline_version bigint not null default nextval('frostline.overlay_version'),
    frostline_marked_at timestamptz not null default now(),
    primary key ("day", "Id")
) with (vacuum_truncate = off);
-- Kept pages: a table without any looks free to read, so a statement planned after a fold would read it whole for each
-- cold row, the ones that the statement itself has marked included.
create index on "frostline_overlay"."Größe_7" ("day");

create table "frostline_lake"."Größe_7" (
    frostline_snapshot bigint,
    "Id" integer,
    "seq" bigint,
    "day" integer,
    "price" numeric(12,2),
    "exact" "frostline_lake"."lake numeric",
    "doc" "frostline_lake"."lake jsonb",
    "feeling" public.mood,
    "tags" "frostline_lake"."lake text[]",
    "code" text collate pg_catalog."C",
    "total" numeric(14,2)
) partition by range ("day");
-- Always empty, at the very end of the range. Postgres prunes at run time only among two partitions or more.
create table "frostline_lake"."Größe_7 nothing" partition of "frostline_lake"."Größe_7" for values from ('2147483647') to (maxvalue);

create view "frostline_relation"."Größe_7" as
select h."Id", h."seq", h."day", h."price", h."exact", h."doc", h."feeling", h."tags", h."code", h."total", 'heap'::text as frostline_tier, null::bigint as frostline_snapshot
  from "Odd ""Shop"""."_Größe" as h
 where h."day" >= (select s."line_integer"::integer from frostline.seam as s where s.table_id = 7)
union all
select c."Id", c."seq", c."day", c."price", c."exact"::numeric, c."doc"::jsonb, c."feeling", c."tags"::text[], c."code", c."total", 'lake'::text, c.frostline_snapshot
  from "frostline_lake"."Größe_7" as c
 where c.frostline_snapshot = (select s.snapshot_id from frostline.seam as s where s.table_id = 7)
   and c."day" < (select s."line_integer"::integer from frostline.seam as s where s.table_id = 7)
   and not exists (select from "frostline_overlay"."Größe_7" as m where m."day" = c."day" and m."Id" = c."Id")
union all
select o."Id", o."seq", o."day", o."price", o."exact", o."doc", o."feeling", o."tags", o."code", o."total", 'heap'::text, null::bigint
  from "frostline_overlay"."Größe_7" as o
 where o.frostline_live and o."day" < (select s."line_integer"::integer from frostline.seam as s where s.table_id = 7);

create view "Odd ""Shop"""."Größe" as select "Id", "seq", "day", "price", "exact", "doc", "feeling", "tags", "code", "total" from "frostline_relation"."Größe_7" as "Größe";

alter view "Odd ""Shop"""."Größe" alter column "Id" set default nextval('"Odd ""Shop"""."Größe_Id_seq"');

alter view "Odd ""Shop"""."Größe" alter column "seq" set default nextval('"Odd ""Shop"""."Größe_seq_seq"');

alter view "Odd ""Shop"""."Größe" alter column "price" set default 0.00;

alter view "Odd ""Shop"""."Größe" alter column "doc" set default '{}'::jsonb;

create rule frostline_insert as on insert to "Odd ""Shop"""."Größe" do instead
    insert into "Odd ""Shop"""."_Größe" ("Id", "seq", "day", "price", "exact", "doc", "feeling", "tags", "code") overriding system value values (new."Id", new."seq", new."day", new."price", new."exact", new."doc", new."feeling", new."tags", new."code") returning "Id", "seq", "day", "price", "exact", "doc", "feeling", "tags", "code", "total";

create function "frostline_relation"."copy_7"() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $body$
#variable_conflict use_column
begin
    insert into "Odd ""Shop"""."_Größe" ("Id", "seq", "day", "price", "exact", "doc", "feeling", "tags", "code") overriding system value values (new."Id", new."seq", new."day", new."price", new."exact", new."doc", new."feeling", new."tags", new."code");
    return new;
end
$body$;
revoke execute on function "frostline_relation"."copy_7"() from public;

create trigger frostline_copy instead of insert on "Odd ""Shop"""."Größe" for each row execute function "frostline_relation"."copy_7"();

create function "frostline_relation"."update_7"() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp
-- A plan made while overlay and DEFAULT partition are empty is kept, and would read them whole for each row later.
set enable_seqscan = off set jit = off as $body$
#variable_conflict use_column
declare
    frostline_row record;
begin
    if new."Id" is distinct from old."Id" then
        raise generated_always using message = 'column Id of Größe can only be updated to DEFAULT', hint = 'It is GENERATED ALWAYS: leave it out of the UPDATE.';
    end if;
    update "Odd ""Shop"""."_Größe" as h set "seq" = new."seq", "day" = new."day", "price" = new."price", "exact" = new."exact", "doc" = new."doc", "feeling" = new."feeling", "tags" = new."tags", "code" = new."code"
     where h."day" = old."day" and h."Id" = old."Id" and row(h."seq", h."price", h."exact"::text, h."doc"::text, h."feeling"::text, h."tags"::text, h."code", h."total") is not distinct from row(old."seq", old."price", old."exact"::text, old."doc"::text, old."feeling"::text, old."tags"::text, old."code", old."total")
     returning h."Id", h."seq", h."day", h."price", h."exact", h."doc", h."feeling", h."tags", h."code", h."total", 'heap'::text, null::bigint into frostline_row;
    if found then
        return frostline_row;
    end if;
    -- The row was not in the heap as the statement saw it. Inserting its mark is the lock on a lake row.
    if old.frostline_tier = 'heap' or exists (select from "Odd ""Shop"""."_Größe" as h where h."day" = old."day" and h."Id" = old."Id") then
        raise serialization_failure using message = 'could not serialize access to Größe due to concurrent update', hint = 'Run the transaction again.';
    end if;
    insert into "frostline_overlay"."Größe_7" ("day", "Id", "feeling", frostline_live) values (old."day", old."Id", old."feeling", false) on conflict do nothing;
    if not found then
        raise serialization_failure using message = 'could not serialize access to Größe due to concurrent update', hint = 'Run the transaction again.';
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
        raise serialization_failure using message = 'could not serialize access to Größe due to concurrent update', hint = 'Run the transaction again.';
    end if;
    insert into "Odd ""Shop"""."_Größe" as h ("Id", "seq", "day", "price", "exact", "doc", "feeling", "tags", "code") overriding system value values (new."Id", new."seq", new."day", new."price", new."exact", new."doc", new."feeling", new."tags", new."code")
     returning h."Id", h."seq", h."day", h."price", h."exact", h."doc", h."feeling", h."tags", h."code", h."total", 'heap'::text, null::bigint into frostline_row;
    return frostline_row;
end
$body$;
revoke execute on function "frostline_relation"."update_7"() from public;

create trigger frostline_update instead of update on "frostline_relation"."Größe_7" for each row execute function "frostline_relation"."update_7"();

create function "frostline_relation"."delete_7"() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp
-- A plan made while overlay and DEFAULT partition are empty is kept, and would read them whole for each row later.
set enable_seqscan = off set jit = off as $body$
#variable_conflict use_column
begin
    delete from "Odd ""Shop"""."_Größe" as h where h."day" = old."day" and h."Id" = old."Id" and row(h."seq", h."price", h."exact"::text, h."doc"::text, h."feeling"::text, h."tags"::text, h."code", h."total") is not distinct from row(old."seq", old."price", old."exact"::text, old."doc"::text, old."feeling"::text, old."tags"::text, old."code", old."total");
    if found then
        return old;
    end if;
    -- The row was not in the heap as the statement saw it. Inserting its mark is the lock on a lake row.
    if old.frostline_tier = 'heap' or exists (select from "Odd ""Shop"""."_Größe" as h where h."day" = old."day" and h."Id" = old."Id") then
        raise serialization_failure using message = 'could not serialize access to Größe due to concurrent update', hint = 'Run the transaction again.';
    end if;
    insert into "frostline_overlay"."Größe_7" ("day", "Id", "feeling", frostline_live) values (old."day", old."Id", old."feeling", false) on conflict do nothing;
    if not found then
        raise serialization_failure using message = 'could not serialize access to Größe due to concurrent update', hint = 'Run the transaction again.';
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
        raise serialization_failure using message = 'could not serialize access to Größe due to concurrent update', hint = 'Run the transaction again.';
    end if;
    return old;
end
$body$;
revoke execute on function "frostline_relation"."delete_7"() from public;

create trigger frostline_delete instead of delete on "frostline_relation"."Größe_7" for each row execute function "frostline_relation"."delete_7"();

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
           into has_cold_rows using (select s."line_integer"::integer from frostline.seam as s where s.table_id = 7);
        if has_cold_rows then
            raise object_not_in_prerequisite_state using
                message = format('%s has rows below the frost line of %s', tg_relid::regclass, '"Odd ""Shop"""."Größe"'),
                hint = format('They are part of it. To have them gone: delete from %s ...', '"Odd ""Shop"""."Größe"');
        end if;
        execute format('insert into %s (%s, frostline_live) select %2$s, false from only %3$s on conflict (%4$s) do update '
                       'set %5$s frostline_live = false, frostline_version = nextval(''frostline.overlay_version'')',
                       '"frostline_overlay"."Größe_7"', '"day", "Id", "feeling"', tg_relid::regclass, '"day", "Id"', '"seq" = null, "price" = null, "exact" = null, "doc" = null, "tags" = null, "code" = null, "total" = null, ');
        return null;
    end if;
    if tg_op = 'DELETE' or (tg_op = 'UPDATE' and row(old."day", old."Id") is distinct from row(new."day", new."Id")) then
        -- What the heap holds under this key now. What the trigger is told may be old: a trigger of another row of the same
        -- statement may have come first. A partition that was detached keeps its triggers, and has no say any more.
        insert into "frostline_overlay"."Größe_7" ("Id", "seq", "day", "price", "exact", "doc", "feeling", "tags", "code", "total", frostline_live)
        select h."Id", h."seq", h."day", h."price", h."exact", h."doc", h."feeling", h."tags", h."code", h."total", true from "Odd ""Shop"""."_Größe" as h where h."day" = old."day" and h."Id" = old."Id"
        on conflict ("day", "Id") do update set "seq" = excluded."seq", "price" = excluded."price", "exact" = excluded."exact", "doc" = excluded."doc", "feeling" = excluded."feeling", "tags" = excluded."tags", "code" = excluded."code", "total" = excluded."total", 
            frostline_live = true, frostline_version = nextval('frostline.overlay_version');
        if not found then
            insert into "frostline_overlay"."Größe_7" ("day", "Id", "feeling", frostline_live)
            select old."day", old."Id", old."feeling", false from pg_class as p where p.oid = tg_relid and p.relispartition
            on conflict ("day", "Id") do update set "seq" = null, "price" = null, "exact" = null, "doc" = null, "tags" = null, "code" = null, "total" = null, 
                frostline_live = false, frostline_version = nextval('frostline.overlay_version');
        end if;
    end if;
    if tg_op = 'DELETE' then
        return null;
    end if;
    if tg_op = 'UPDATE' then
        key_is_new := row(old."day", old."Id") is distinct from row(new."day", new."Id");
    end if;
    -- Whoever was not told of the newest R writes a row that the next `frostline retain` removes.
    if key_is_new and new."day" < (select s."retained_integer"::integer from frostline.seam as s where s.table_id = 7) and not exists (select from "frostline_overlay"."Größe_7" as m where m."day" = new."day" and m."Id" = new."Id") then
        raise check_violation using message = 'new row of Größe is older than its retention period',
            detail = format('Rows before %s were removed for good.', (select s."retained_integer"::integer from frostline.seam as s where s.table_id = 7)), hint = 'How long rows are kept: frostline table set "Odd ""Shop"""."Größe" --retention ...',
            schema = 'Odd "Shop"', table = 'Größe';
    end if;
    if key_is_new and new."day" < (select s."line_integer"::integer from frostline.seam as s where s.table_id = 7)
       and coalesce(current_setting('frostline.check_cold_keys', true), '') <> 'off' then
        -- A key that has a mark needs no look: what the lake has of it does not count. Locked, so that it stays until ours.
        perform from "frostline_overlay"."Größe_7" as m where m."day" = new."day" and m."Id" = new."Id" for update;
        must_look := not found;
    end if;
    -- What the heap holds under this key now. What the trigger is told may be old: a trigger of another row of the same
        -- statement may have come first. A partition that was detached keeps its triggers, and has no say any more.
        insert into "frostline_overlay"."Größe_7" ("Id", "seq", "day", "price", "exact", "doc", "feeling", "tags", "code", "total", frostline_live)
        select h."Id", h."seq", h."day", h."price", h."exact", h."doc", h."feeling", h."tags", h."code", h."total", true from "Odd ""Shop"""."_Größe" as h where h."day" = new."day" and h."Id" = new."Id"
        on conflict ("day", "Id") do update set "seq" = excluded."seq", "price" = excluded."price", "exact" = excluded."exact", "doc" = excluded."doc", "feeling" = excluded."feeling", "tags" = excluded."tags", "code" = excluded."code", "total" = excluded."total", 
            frostline_live = true, frostline_version = nextval('frostline.overlay_version');
        if not found then
            insert into "frostline_overlay"."Größe_7" ("day", "Id", "feeling", frostline_live)
            select new."day", new."Id", new."feeling", false from pg_class as p where p.oid = tg_relid and p.relispartition
            on conflict ("day", "Id") do update set "seq" = null, "price" = null, "exact" = null, "doc" = null, "tags" = null, "code" = null, "total" = null, 
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
        if exists (select from "frostline_lake"."Größe_7" as c
                    where c.frostline_snapshot = (select s.snapshot_id from frostline.seam as s where s.table_id = 7)
                      and new."day" = c."day" and new."Id" = c."Id") then
            raise unique_violation using message = 'duplicate key value violates the primary key of Größe', detail = 'The key exists in the lake.',
                hint = 'Update the row instead: update "Odd ""Shop"""."Größe" ...', schema = 'Odd "Shop"', table = 'Größe';
        end if;
    end if;
    -- What the heap holds under this key now. What the trigger is told may be old: a trigger of another row of the same
        -- statement may have come first. A partition that was detached keeps its triggers, and has no say any more.
        insert into "frostline_overlay"."Größe_7" ("Id", "seq", "day", "price", "exact", "doc", "feeling", "tags", "code", "total", frostline_live)
        select h."Id", h."seq", h."day", h."price", h."exact", h."doc", h."feeling", h."tags", h."code", h."total", true from "Odd ""Shop"""."_Größe" as h where h."day" = new."day" and h."Id" = new."Id"
        on conflict ("day", "Id") do update set "seq" = excluded."seq", "price" = excluded."price", "exact" = excluded."exact", "doc" = excluded."doc", "feeling" = excluded."feeling", "tags" = excluded."tags", "code" = excluded."code", "total" = excluded."total", 
            frostline_live = true, frostline_version = nextval('frostline.overlay_version');
        if not found then
            insert into "frostline_overlay"."Größe_7" ("day", "Id", "feeling", frostline_live)
            select new."day", new."Id", new."feeling", false from pg_class as p where p.oid = tg_relid and p.relispartition
            on conflict ("day", "Id") do update set "seq" = null, "price" = null, "exact" = null, "doc" = null, "tags" = null, "code" = null, "total" = null, 
                frostline_live = false, frostline_version = nextval('frostline.overlay_version');
        end if;
    return null;
end
$body$;
revoke execute on function "frostline_relation"."mark_7"() from public;

-- Triggers fire in the order of their names. They fire also for what a replication worker writes.
create or replace trigger "!frostline_mark" after insert or update or delete on "Odd ""Shop"""."rest"
    for each row execute function "frostline_relation"."mark_7"();
create or replace trigger "!frostline_truncate" before truncate on "Odd ""Shop"""."rest"
    for each statement execute function "frostline_relation"."mark_7"();
alter table "Odd ""Shop"""."rest" enable always trigger "!frostline_mark", enable always trigger "!frostline_truncate";
