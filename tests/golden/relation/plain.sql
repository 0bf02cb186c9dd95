alter table "public"."events" rename to "_events";

create table "public"."events_default" partition of "public"."_events" default;
comment on table "public"."events_default" is 'made by Frostline: rows for which there is no other partition';
alter table "public"."events_default" owner to "postgres";

create table "frostline_overlay"."events_7" (
    "id" bigint,
    "ts" timestamp with time zone,
    "status" text,
    "source" integer,
    frostline_live boolean not null,
    frostline_version bigint not null default nextval('frostline.overlay_version'),
    frostline_marked_at timestamptz not null default now(),
    primary key ("id", "ts")
) with (vacuum_truncate = off);
-- Kept pages: a table without any looks free to read, so a statement planned after a fold would read it whole for each
-- cold row, the ones that the statement itself has marked included.
create index on "frostline_overlay"."events_7" ("ts");

create or replace trigger "!frostline_truncate" before truncate on "frostline_overlay"."events_7"
    for each statement execute function frostline.refuse_truncate_of_overlay();
alter table "frostline_overlay"."events_7" enable always trigger "!frostline_truncate";

create table "frostline_lake"."events_7" (
    frostline_snapshot bigint,
    "id" bigint,
    "ts" timestamp with time zone,
    "status" text,
    "source" integer
) partition by range ("ts");

-- Always empty, before the first value. Postgres prunes at run time only among two partitions or more, and at the lower
-- end this one is out of the way of every statement that says how new its rows are.
create table "frostline_lake"."events_7 nothing" partition of "frostline_lake"."events_7" for values from (minvalue) to ('-infinity');

create or replace view "frostline_relation"."events_7" as
-- Postgres makes one Append of the three tables only if no arm has a condition of its own; so all stand above, and each
-- folds away where it does not apply. docs/design/relation.md says why each is written as it is.
select u."id", u."ts", u."status", u."source", frostline_tier, frostline_snapshot, (select s.write_secret from frostline.seam as s where s.table_id = 7) as frostline_secret, frostline_partition, frostline_place
  from (
    select h."id", h."ts", h."status", h."source", 'heap'::text as frostline_tier, null::bigint as frostline_snapshot,
           h.tableoid as frostline_partition, h.ctid as frostline_place,
           true as frostline_is_hot, null::boolean as frostline_is_cold, true as frostline_live
      from "public"."_events" as h
    union all
    select c."id", c."ts", c."status", c."source", 'lake'::text, c.frostline_snapshot, null::oid, null::tid, false, true, true
      from "frostline_lake"."events_7" as c
    union all
    select o."id", o."ts", o."status", o."source", 'overlay'::text, null::bigint, null::oid, o.ctid, false, true, o.frostline_live
      from "frostline_overlay"."events_7" as o
  ) as u
 where (u."ts" >= (select s."line_timestamptz" from frostline.seam as s where s.table_id = 7) or u.frostline_is_cold)
   and (u.frostline_is_hot or nullif(u."ts" < (select s."line_timestamptz" from frostline.seam as s where s.table_id = 7), false) is not null)
   and u.frostline_live
   and (u.frostline_tier <> 'lake' or u.frostline_snapshot
        = (select frostline_write.checked_lake(s.snapshot_id, s.table_id, 'public._events'::regclass, '"frostline_overlay"."events_7"'::regclass)
             from frostline.seam as s where s.table_id = 7))
   and (u.frostline_tier <> 'lake' or nullif((u."id", u."ts") in (select m."id", m."ts" from "frostline_overlay"."events_7" as m
            where nullif(m.frostline_version, m.frostline_version) is null), true) is not null);

create view "public"."events" as select "id", "ts", "status", "source" from "frostline_relation"."events_7" as "events";

alter view "public"."events" alter column "ts" set default now();

create or replace rule frostline_insert as on insert to "public"."events" do instead
    insert into "public"."_events" ("id", "ts", "status", "source") values (new."id", new."ts", new."status", new."source") returning "id", "ts", "status", "source";

create or replace view "frostline_write"."update hot 7" as select null::bigint as n1, null::timestamp with time zone as n2, null::text as n3, null::integer as n4, null::bigint as o1, null::timestamp with time zone as o2, null::pg_catalog.oid as partition, null::pg_catalog.tid as place, null::pg_catalog.uuid as secret;
grant select, update on "frostline_write"."update hot 7" to public;

create or replace rule frostline_write as on update to "frostline_write"."update hot 7" do instead
    update "public"."_events" as h set "id" = new.n1, "ts" = new.n2, "status" = new.n3, "source" = new.n4
     where h."id" = case when (select s.write_secret = new.secret from frostline.seam as s where s.table_id = 7) then new.o1 end and h."ts" = new.o2 and case when (select s.write_secret = new.secret from frostline.seam as s where s.table_id = 7) then h.tableoid = new.partition and h.ctid is not distinct from new.place else false end
    returning h."id", h."ts", h."status", h."source", null::bigint as o1, null::timestamp with time zone as o2, null::pg_catalog.oid as partition, null::pg_catalog.tid as place, null::pg_catalog.uuid as secret;

create or replace view "frostline_write"."update cold 7" as select null::bigint as n1, null::timestamp with time zone as n2, null::text as n3, null::integer as n4, null::bigint as o1, null::timestamp with time zone as o2, null::text as o3, null::integer as o4, null::pg_catalog.uuid as secret;
grant select, update on "frostline_write"."update cold 7" to public;

create or replace rule frostline_write as on update to "frostline_write"."update cold 7" do instead
    update "public"."_events" as h set "id" = new.n1, "ts" = new.n2, "status" = new.n3, "source" = new.n4
     where h."id" = case when (select s.write_secret = new.secret from frostline.seam as s where s.table_id = 7) then new.o1 end and h."ts" = new.o2 and case when (select s.write_secret = new.secret from frostline.seam as s where s.table_id = 7) then row(h."status", h."source") is not distinct from row(new.o3, new.o4) else false end
    returning h."id", h."ts", h."status", h."source", null::bigint as o1, null::timestamp with time zone as o2, null::text as o3, null::integer as o4, null::pg_catalog.uuid as secret;

create or replace view "frostline_write"."delete hot 7" as select null::bigint as o1, null::timestamp with time zone as o2, null::pg_catalog.oid as partition, null::pg_catalog.tid as place, null::pg_catalog.uuid as secret;
grant select, update on "frostline_write"."delete hot 7" to public;

create or replace rule frostline_write as on update to "frostline_write"."delete hot 7" do instead
    delete from "public"."_events" as h
     where h."id" = case when (select s.write_secret = new.secret from frostline.seam as s where s.table_id = 7) then new.o1 end and h."ts" = new.o2 and case when (select s.write_secret = new.secret from frostline.seam as s where s.table_id = 7) then h.tableoid = new.partition and h.ctid is not distinct from new.place else false end
    returning null::bigint as o1, null::timestamp with time zone as o2, null::pg_catalog.oid as partition, null::pg_catalog.tid as place, null::pg_catalog.uuid as secret;

create or replace view "frostline_write"."delete cold 7" as select null::bigint as o1, null::timestamp with time zone as o2, null::text as o3, null::integer as o4, null::pg_catalog.uuid as secret;
grant select, update on "frostline_write"."delete cold 7" to public;

create or replace rule frostline_write as on update to "frostline_write"."delete cold 7" do instead
    delete from "public"."_events" as h
     where h."id" = case when (select s.write_secret = new.secret from frostline.seam as s where s.table_id = 7) then new.o1 end and h."ts" = new.o2 and case when (select s.write_secret = new.secret from frostline.seam as s where s.table_id = 7) then row(h."status", h."source") is not distinct from row(new.o3, new.o4) else false end
    returning null::bigint as o1, null::timestamp with time zone as o2, null::text as o3, null::integer as o4, null::pg_catalog.uuid as secret;

create or replace view "frostline_write"."insert 7" as select null::bigint as n1, null::timestamp with time zone as n2, null::text as n3, null::integer as n4, null::pg_catalog.uuid as secret;
grant select, insert on "frostline_write"."insert 7" to public;

create or replace rule frostline_write as on insert to "frostline_write"."insert 7" do instead
    insert into "public"."_events" as h ("id", "ts", "status", "source")
    select new.n1, new.n2, new.n3, new.n4
     where (select s.write_secret = new.secret from frostline.seam as s where s.table_id = 7)
    returning h."id", h."ts", h."status", h."source", null::pg_catalog.uuid as secret;

-- A hot row was not written. True: leave it out, because this statement has written it already, or a trigger of the user
-- has kept it as it is. False: it is gone, and who took it is for the last trigger to find out. 40001: somebody changed it.
-- Runs with its owner's rights, and calls nothing of the user's: of the heap it reads keys and places.
create or replace function "frostline_write"."missed_7"(frostline_old "frostline_relation"."events_7") returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off
set row_security = off as $body$
#variable_conflict use_column
declare
    frostline_row record;
begin
    if frostline_old.frostline_secret
       is distinct from (select s.write_secret from frostline.seam as s where s.table_id = 7) then
        raise insufficient_privilege using message = 'only statements on public.events call this function';
    end if;
    select h.tableoid as partition, h.ctid as place, frostline.is_own(h.xmin) as is_own into frostline_row
      from "public"."_events" as h (n1, n2, n3, n4) where h.n1 = frostline_old."id" and h.n2 = frostline_old."ts";
    if found then
        if frostline_row.is_own
           or frostline_row.partition = frostline_old.frostline_partition and frostline_row.place = frostline_old.frostline_place then
            return true;
        end if;
        raise serialization_failure using message = 'could not serialize access to events due to concurrent update', hint = 'Run the transaction again.';
    end if;
    -- With one snapshot for all statements Postgres itself tells (40001) when somebody else has removed the row.
    return current_setting('transaction_isolation') in ('repeatable read', 'serializable');
end
$body$;

grant execute on function "frostline_write"."missed_7"("frostline_relation"."events_7") to public;

-- Before a cold row is written. False: this statement has written it already. 40001: somebody changed it meanwhile.
-- Runs with its owner's rights, and calls nothing of the user's.
create or replace function "frostline_write"."may_write_cold_7"(frostline_old "frostline_relation"."events_7") returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off as $body$
#variable_conflict use_column
declare
    frostline_mark record;
begin
    if frostline_old.frostline_secret
       is distinct from (select s.write_secret from frostline.seam as s where s.table_id = 7) then
        raise insufficient_privilege using message = 'only statements on public.events call this function';
    end if;
    select m.ctid as place, frostline.is_own(m.xmin) as is_own into frostline_mark
      from "frostline_overlay"."events_7" as m where m."id" = frostline_old."id" and m."ts" = frostline_old."ts";
    if not found or frostline_old.frostline_tier = 'overlay' and frostline_mark.place = frostline_old.frostline_place then
        return true;
    end if;
    if frostline_mark.is_own then
        return false;
    end if;
    raise serialization_failure using message = 'could not serialize access to events due to concurrent update', hint = 'Run the transaction again.';
end
$body$;

grant execute on function "frostline_write"."may_write_cold_7"("frostline_relation"."events_7") to public;

-- The heap has no row as the statement saw it. A row that is only in the lake is locked by inserting its mark, and true says so.
-- False: a trigger of the user has kept the row as it is. Runs with its owner's rights, and calls nothing of the user's.
create or replace function "frostline_write"."claim_7"(frostline_old "frostline_relation"."events_7") returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off
set row_security = off as $body$
#variable_conflict use_column
declare
    frostline_partition oid;
begin
    if not "frostline_write"."may_write_cold_7"(frostline_old) then
        return false;
    end if;
    perform frostline_write.require_known_heap(7, 'public._events'::regclass, '"frostline_overlay"."events_7"'::regclass, 'written');
    select h.tableoid into frostline_partition from "public"."_events" as h (n1, n2, n3, n4) where h.n1 = frostline_old."id" and h.n2 = frostline_old."ts";
    if found and exists (select from pg_trigger as t
                          where t.tgrelid = frostline_partition and not t.tgisinternal and t.tgtype & 3 = 3) then
        return false;
    end if;
    if found or frostline_old.frostline_tier = 'overlay' then
        raise serialization_failure using message = 'could not serialize access to events due to concurrent update', hint = 'Run the transaction again.';
    end if;
    insert into "frostline_overlay"."events_7" ("id", "ts", frostline_live) values (frostline_old."id", frostline_old."ts", false) on conflict do nothing;
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
       is distinct from frostline_old.frostline_snapshot then
        raise serialization_failure using message = 'could not serialize access to events due to concurrent update', hint = 'Run the transaction again.';
    end if;
    return true;
end
$body$;

grant execute on function "frostline_write"."claim_7"("frostline_relation"."events_7") to public;

-- A trigger of the user has kept the new version of a cold row from being inserted: the row stays as it is.
create or replace function "frostline_write"."unclaim_7"(frostline_old "frostline_relation"."events_7") returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off as $body$
#variable_conflict use_column
begin
    if frostline_old.frostline_secret
       is distinct from (select s.write_secret from frostline.seam as s where s.table_id = 7) then
        raise insufficient_privilege using message = 'only statements on public.events call this function';
    end if;
    delete from "frostline_overlay"."events_7" as m where m."id" = frostline_old."id" and m."ts" = frostline_old."ts" and not m.frostline_live and frostline.is_own(m.xmin);
end
$body$;

grant execute on function "frostline_write"."unclaim_7"("frostline_relation"."events_7") to public;

-- COPY names the relation itself, so its caller may insert into it; a column that the caller may not set has its default already.
create or replace function "frostline_relation"."copy_7"() returns trigger
language plpgsql as $body$
#variable_conflict use_column
begin
    if pg_catalog.has_table_privilege('"public"."events"', 'insert') then
        insert into "public"."events" ("id", "ts", "status", "source") values (new."id", new."ts", new."status", new."source");
        return new;
    end if;
    execute (select pg_catalog.format('insert into %s (%s) select %2$s from (select ($1).*) as r', '"public"."events"',
                 pg_catalog.string_agg(pg_catalog.quote_ident(c), ', '))
               from pg_catalog.unnest(array['id', 'ts', 'status', 'source']::pg_catalog.text[]) as c
              where pg_catalog.has_column_privilege('"public"."events"', c, 'insert')) using new;
    return new;
end
$body$;
revoke execute on function "frostline_relation"."copy_7"() from public;

create or replace trigger frostline_copy instead of insert on "public"."events" for each row execute function "frostline_relation"."copy_7"();

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
    if not coalesce(new."ts" operator(pg_catalog.=) old."ts", false)
       and pg_catalog.current_setting('server_version_num')::pg_catalog.int4 operator(pg_catalog.>=) 180000 then
        perform pg_catalog.set_config('plan_cache_mode', 'force_custom_plan', true);
    end if;
    if old.frostline_tier operator(pg_catalog.=) 'heap' then
        update "frostline_write"."update hot 7" set n1 = new."id", n2 = new."ts", n3 = new."status", n4 = new."source", o1 = old."id", o2 = old."ts", partition = old.frostline_partition, place = old.frostline_place, secret = old.frostline_secret
         returning n1, n2, n3, n4, 'heap'::pg_catalog.text, null::pg_catalog.int8, null::pg_catalog.uuid, null::pg_catalog.oid, null::pg_catalog.tid into frostline_row;
        if found then
            
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
    update "frostline_write"."update cold 7" set n1 = new."id", n2 = new."ts", n3 = new."status", n4 = new."source", o1 = old."id", o2 = old."ts", o3 = old."status", o4 = old."source", secret = old.frostline_secret
     returning n1, n2, n3, n4, 'heap'::pg_catalog.text, null::pg_catalog.int8, null::pg_catalog.uuid, null::pg_catalog.oid, null::pg_catalog.tid into frostline_row;
    if found then
        
        return frostline_row;
    end if;
    if not "frostline_write"."claim_7"(old) then
        return null;
    end if;
    insert into "frostline_write"."insert 7" (n1, n2, n3, n4, secret) values (new."id", new."ts", new."status", new."source", old.frostline_secret)
     returning n1, n2, n3, n4, 'heap'::pg_catalog.text, null::pg_catalog.int8, null::pg_catalog.uuid, null::pg_catalog.oid, null::pg_catalog.tid into frostline_row;
    if not found then
        perform "frostline_write"."unclaim_7"(old);
        return null;
    end if;
    
    return frostline_row;
end
$body$;
revoke execute on function "frostline_relation"."update_7"() from public;

create or replace trigger frostline_update instead of update on "frostline_relation"."events_7" for each row execute function "frostline_relation"."update_7"();
create or replace trigger frostline_z_settle_update instead of update on "frostline_relation"."events_7"
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
        with gone as (update "frostline_write"."delete hot 7" set o1 = old."id", o2 = old."ts", partition = old.frostline_partition, place = old.frostline_place, secret = old.frostline_secret returning true)
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
    with gone as (update "frostline_write"."delete cold 7" set o1 = old."id", o2 = old."ts", o3 = old."status", o4 = old."source", secret = old.frostline_secret returning true)
    select true into frostline_gone from gone;
    if found or "frostline_write"."claim_7"(old) then
        return old;
    end if;
    return null;
end
$body$;
revoke execute on function "frostline_relation"."delete_7"() from public;

create or replace trigger frostline_delete instead of delete on "frostline_relation"."events_7" for each row execute function "frostline_relation"."delete_7"();
create or replace trigger frostline_z_settle_delete instead of delete on "frostline_relation"."events_7"
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
        perform frostline_write.require_known_heap(7, 'public._events'::regclass, '"frostline_overlay"."events_7"'::regclass, 'marked');
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
        execute format('select exists (select from only %s as h where h.%I < $1)', tg_relid::regclass, 'ts')
           into has_cold_rows using (select s."line_timestamptz" from frostline.seam as s where s.table_id = 7);
        if has_cold_rows then
            raise object_not_in_prerequisite_state using
                message = format('%s has rows below the frost line of %s', tg_relid::regclass, 'public.events'),
                hint = format('They are part of it. To have them gone: delete from %s ...', 'public.events');
        end if;
        execute format('insert into %s (%s, frostline_live) select %2$s, false from only %3$s on conflict (%4$s) do update '
                       'set %5$s frostline_live = false, frostline_version = nextval(''frostline.overlay_version'')',
                       '"frostline_overlay"."events_7"', '"id", "ts"', tg_relid::regclass, '"id", "ts"', '"status" = null, "source" = null, ');
        return null;
    end if;
    if tg_op = 'DELETE' or (tg_op = 'UPDATE' and row(old."id", old."ts") is distinct from row(new."id", new."ts")) then
        -- 40001 if a job has taken away the mark that this transaction still sees: ours would stand beside it.
        if has_one_snapshot then
            perform from "frostline_overlay"."events_7" as m where m."id" = old."id" and m."ts" = old."ts" for update;
        end if;
        -- What the heap holds under this key now. What the trigger is told may be old: a trigger of another row of the same
        -- statement may have come first. By their places: two columns may have exchanged their names, and the overlay not yet.
        -- A partition that was detached keeps its triggers, and has no say any more. Postgres is asked for that by a function:
        -- pg_class has it as of this transaction's snapshot, and the partition may have been attached since.
        insert into "frostline_overlay"."events_7" ("id", "ts", "status", "source", frostline_live)
        select h.n1, h.n2, h.n3, h.n4, true from "public"."_events" as h (n1, n2, n3, n4)
         where frostline_write.has_known_key(7, 'public._events'::regclass, '"frostline_overlay"."events_7"'::regclass) and h.n1 = old."id" and h.n2 = old."ts"
        on conflict ("id", "ts") do update set "status" = excluded."status", "source" = excluded."source", 
            frostline_live = true, frostline_version = nextval('frostline.overlay_version');
        if not found then
            insert into "frostline_overlay"."events_7" ("id", "ts", frostline_live)
            select old."id", old."ts", false where pg_partition_root(tg_relid) is not null
            on conflict ("id", "ts") do update set "status" = null, "source" = null, 
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
    must_look := key_is_new and new."ts" < (select s."line_timestamptz" from frostline.seam as s where s.table_id = 7)
        and coalesce(current_setting('frostline.check_cold_keys', true), '') <> 'off';
    if must_look or has_one_snapshot then
        -- A key that has a mark needs no look: what the lake has of it does not count. Locked, so that it stays until ours;
        -- and 40001, as above.
        perform from "frostline_overlay"."events_7" as m where m."id" = new."id" and m."ts" = new."ts" for update;
        must_look := must_look and not found;
    end if;
    -- What the heap holds under this key now. What the trigger is told may be old: a trigger of another row of the same
        -- statement may have come first. By their places: two columns may have exchanged their names, and the overlay not yet.
        -- A partition that was detached keeps its triggers, and has no say any more. Postgres is asked for that by a function:
        -- pg_class has it as of this transaction's snapshot, and the partition may have been attached since.
        insert into "frostline_overlay"."events_7" ("id", "ts", "status", "source", frostline_live)
        select h.n1, h.n2, h.n3, h.n4, true from "public"."_events" as h (n1, n2, n3, n4)
         where frostline_write.has_known_key(7, 'public._events'::regclass, '"frostline_overlay"."events_7"'::regclass) and h.n1 = new."id" and h.n2 = new."ts"
        on conflict ("id", "ts") do update set "status" = excluded."status", "source" = excluded."source", 
            frostline_live = true, frostline_version = nextval('frostline.overlay_version');
        if not found then
            insert into "frostline_overlay"."events_7" ("id", "ts", frostline_live)
            select new."id", new."ts", false where pg_partition_root(tg_relid) is not null
            on conflict ("id", "ts") do update set "status" = null, "source" = null, 
                frostline_live = false, frostline_version = nextval('frostline.overlay_version');
        end if;
    -- The mark comes first. A job that brings rows into the lake holds marks of their keys until the lake has them: so either it
    -- finds ours, or we wait for it here and then look into the lake as it has left it.
    if must_look then
        perform frostline_write.require_known_heap(7, 'public._events'::regclass, '"frostline_overlay"."events_7"'::regclass, 'inserted');
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
        -- statement may have come first. By their places: two columns may have exchanged their names, and the overlay not yet.
        -- A partition that was detached keeps its triggers, and has no say any more. Postgres is asked for that by a function:
        -- pg_class has it as of this transaction's snapshot, and the partition may have been attached since.
        insert into "frostline_overlay"."events_7" ("id", "ts", "status", "source", frostline_live)
        select h.n1, h.n2, h.n3, h.n4, true from "public"."_events" as h (n1, n2, n3, n4)
         where frostline_write.has_known_key(7, 'public._events'::regclass, '"frostline_overlay"."events_7"'::regclass) and h.n1 = new."id" and h.n2 = new."ts"
        on conflict ("id", "ts") do update set "status" = excluded."status", "source" = excluded."source", 
            frostline_live = true, frostline_version = nextval('frostline.overlay_version');
        if not found then
            insert into "frostline_overlay"."events_7" ("id", "ts", frostline_live)
            select new."id", new."ts", false where pg_partition_root(tg_relid) is not null
            on conflict ("id", "ts") do update set "status" = null, "source" = null, 
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

-- Of the heap as a whole, also by CASCADE through a foreign key: the lake's half would stay. One partition may be truncated.
create or replace function "frostline_relation"."truncate_7"() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $body$
begin
    if exists (select from frostline.lake_file as f where f.table_id = 7) then
        raise object_not_in_prerequisite_state using message = 'public.events has rows in the lake, which TRUNCATE would leave there', hint = 'All rows of both tiers go by: frostline truncate public.events';
    end if;
    return null;
end
$body$;
revoke execute on function "frostline_relation"."truncate_7"() from public;

create or replace trigger "!frostline_truncate_all" before truncate on "public"."_events"
    for each statement execute function "frostline_relation"."truncate_7"();
alter table only "public"."_events" enable always trigger "!frostline_truncate_all";

-- The lake's rows as the heap's owner writes them when a row goes that they reference, with columns called by the heap's attribute
-- numbers. ACCESS EXCLUSIVE on the old one: waits for statements that use it.
drop view if exists "frostline_write"."foreign keys 7";
create view "frostline_write"."foreign keys 7" as select i.frostline_tier as tier, i."id" as c1, i."ts" as c2, i."status" as c3, i."source" as c4 from "frostline_relation"."events_7" as i;
grant select, update, delete on "frostline_write"."foreign keys 7" to postgres;

-- Belongs to the heap's owner, as whom Postgres acts for a foreign key. No search_path of its own: what fires on the heap has the
-- caller's, so every name and operator in here is qualified. Nobody else can run it, or make it another one.
create or replace function "frostline_relation"."children_7"() returns trigger
language plpgsql security definer as $body$
declare
    frostline_task record;
    frostline_is_there boolean;
    frostline_reason text;
begin
    if not exists (select from frostline_old) or not frostline.may_have_cold_children(7) then
        return null;
    end if;
    if tg_op operator(pg_catalog.=) 'UPDATE' then
        execute coalesce(frostline.changed_keys_question(7, tg_relid), 'select false') into frostline_is_there;
        if not frostline_is_there then
            return null;
        end if;
    end if;
    lock table "public"."_events" in access share mode;
    for frostline_task in select t.* from frostline.foreign_key_tasks(7, tg_relid, tg_op) as t loop
        if frostline_task.heap_owner operator(pg_catalog.<>) current_user then
            raise insufficient_privilege using
                message = pg_catalog.format('foreign keys of %I.%I are held as role %I, and it belongs to %I',
                    frostline_task.heap_schema, frostline_task.heap_name, current_user, frostline_task.heap_owner),
                hint = 'frostline init';
        end if;
        execute frostline_task.has_keys into frostline_is_there;
        if frostline_is_there is null then
            raise feature_not_supported using
                message = 'cannot tell which new key each updated row has, because a trigger has kept some of them from being written',
                hint = 'update fewer rows at a time';
        end if;
        continue when not frostline_is_there;
        begin
            if frostline_task.kind operator(pg_catalog.=) 'act' then
                execute frostline_task.act;
                continue;
            end if;
            if frostline_task.kind operator(pg_catalog.=) 'defer' then
                -- What the heap has below the line stays there until the end of the transaction, when Postgres looks for it.
                execute frostline_task.hold;
            end if;
            execute frostline_task.ask into frostline_is_there;
            if frostline_is_there and frostline_task.kind operator(pg_catalog.=) 'defer' then
                -- Written as they are, so that Postgres looks for what they reference, now or when the constraint is due.
                execute frostline_task.act;
                execute frostline_task.ask into frostline_is_there;
            end if;
        exception
            when foreign_key_violation then
                if frostline_task.kind operator(pg_catalog.=) 'act' then
                    raise;
                end if;
                frostline_is_there := true;
            when others then
                if pg_catalog.left(sqlstate, 2) operator(pg_catalog.<>) all (array['08', 'HV']::pg_catalog.text[]) then
                    raise;
                end if;
                get stacked diagnostics frostline_reason = message_text;
                raise exception using errcode = sqlstate,
                    message = pg_catalog.format('cannot tell whether rows of %I.%I in the lake reference %s: %s',
                        frostline_task.heap_schema, frostline_task.heap_name, tg_relid::pg_catalog.regclass, frostline_reason),
                    hint = 'frostline up, or frostline serve; without the lake: frostline table set public.events --foreign-keys ignore';
        end;
        if frostline_is_there then
            raise exception using errcode = frostline_task.errcode, message = frostline_task.message, detail = frostline_task.detail,
                schema = frostline_task.heap_schema, table = frostline_task.heap_name, constraint = frostline_task.constraint_name;
        end if;
    end loop;
    return null;
end
$body$;
revoke execute on function "frostline_relation"."children_7"() from public;
select frostline.give_function('"frostline_relation"."children_7"()'::regprocedure, 'postgres');

-- SHARE ROW EXCLUSIVE on the referenced table: waits for its writers, and keeps them out until the end of the transaction. They fire
-- before those of users, as Postgres' own do.
create or replace trigger "!frostline_children_7_delete" after delete on "public"."sources" referencing old table as frostline_old
    for each statement execute function "frostline_relation"."children_7"();
create or replace trigger "!frostline_children_7_update" after update on "public"."sources" referencing old table as frostline_old new table as frostline_new
    for each statement execute function "frostline_relation"."children_7"();

comment on view "public"."events" is 'what happened';

comment on column "public"."events"."status" is 'how it went';

grant select, insert, update, delete on "frostline_relation"."events_7" to "postgres";

alter view "public"."events" owner to "postgres";
