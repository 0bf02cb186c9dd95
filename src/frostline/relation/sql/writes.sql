-- How a relation's rows are written, with the rights, the search_path and the settings of whoever sent the statement.
-- Filled by `frostline.relation_objects`; golden files hold the result. docs/design/writing-as-the-caller.md says why.
-- {body} is a dollar quote that no name of the table contains. A column may be called as a variable is (found, tg_op):
-- in a statement its name means the column.
--
-- A door is a view of one row that holds nothing. An UPDATE or INSERT of it brings the row to be written as its new values, and
-- its rule writes the heap: the rule's owner needs the rights for that, and all that fires runs as the caller. Without the
-- secret, which only the relation's own triggers are given, a rule does nothing. It stands in a CASE around every value but the
-- tier key's, by which Postgres prunes: whatever the order of a plan, no expression of a stranger is evaluated for a row.

-- name: door
create or replace view {door} as select {nothing};
grant select, {right} on {door} to public;

-- name: update_rule
create or replace rule frostline_write as on update to {door} do instead
    update {heap} as h set {assigned}
     where {row_is_meant}
    returning {returned};

-- name: delete_rule
create or replace rule frostline_write as on update to {door} do instead
    delete from {heap} as h
     where {row_is_meant}
    returning {returned};

-- name: insert_rule
create or replace rule frostline_write as on insert to {door} do instead
    insert into {heap} as h ({written}){overriding}
    select {new_numbers}
     where (select s.write_secret = new.secret from frostline.seam as s where s.table_id = {table_id})
    returning {returned};

-- name: copy_function
-- COPY names the relation itself, so its caller may insert into it; a column that the caller may not set has its default already.
create or replace function {function}() returns trigger
language plpgsql as {body}
#variable_conflict use_column
begin
    if pg_catalog.has_table_privilege({relation_text}, 'insert') then
        insert into {relation} ({written}) values ({new_written});
        return new;
    end if;
    execute (select pg_catalog.format('insert into %s (%s) select %2$s from (select ($1).*) as r', {relation_text},
                 pg_catalog.string_agg(pg_catalog.quote_ident(c), ', '))
               from pg_catalog.unnest({written_names}) as c
              where pg_catalog.has_column_privilege({relation_text}, c, 'insert')) using new;
    return new;
end
{body};
revoke execute on function {function}() from public;

-- name: update_function
-- No search_path of its own: what fires on the heap has the caller's. So every name and operator in here is qualified.
create or replace function {function}() returns trigger
language plpgsql
-- A plan made while overlay and DEFAULT partition are empty is kept, and would read them whole for each row later.
set enable_seqscan = off set jit = off
-- A plan made for known values has the secret in it, and everybody may have plans printed.
set debug_print_plan = off set debug_print_parse = off set debug_print_rewritten = off as {body}
#variable_conflict use_column
declare
    frostline_row record;
begin
    {guards}
    -- A kept plan leaves partitions out when it begins, and Postgres 18 then takes what a row that moves RETURNs by the columns of
    -- another partition than its own: an error, or another column's value.
    if not coalesce(new.{tier_key} operator(pg_catalog.=) old.{tier_key}, false)
       and pg_catalog.current_setting('server_version_num')::pg_catalog.int4 operator(pg_catalog.>=) 180000 then
        perform pg_catalog.set_config('plan_cache_mode', 'force_custom_plan', true);
    end if;
    if old.frostline_tier operator(pg_catalog.=) 'heap' then
        update {update_hot_door} set {new_values}, {old_key_values}, {old_place}
         returning {returned_numbers} into frostline_row;
        if found then
            {row_is_allowed}
            return frostline_row;
        end if;
        if {missed}(old) then
            return null;
        end if;
        new.frostline_tier := 'missed';
        return new;
    end if;
    if not {may_write_cold}(old) then
        return null;
    end if;
    update {update_cold_door} set {new_values}, {old_values}, secret = old.frostline_secret
     returning {returned_numbers} into frostline_row;
    if found then
        {row_is_allowed}
        return frostline_row;
    end if;
    if not {claim}(old) then
        return null;
    end if;
    insert into {insert_door} ({numbers}, secret) values ({new_row}, old.frostline_secret)
     returning {returned_numbers} into frostline_row;
    if not found then
        perform {unclaim}(old);
        return null;
    end if;
    {row_is_allowed}
    return frostline_row;
end
{body};
revoke execute on function {function}() from public;

-- name: delete_function
-- As the one for UPDATE. A rule on UPDATE that deletes tells its number of rows inside WITH only.
create or replace function {function}() returns trigger
language plpgsql
set enable_seqscan = off set jit = off
set debug_print_plan = off set debug_print_parse = off set debug_print_rewritten = off as {body}
#variable_conflict use_column
declare
    frostline_gone boolean;
begin
    if old.frostline_tier operator(pg_catalog.=) 'heap' then
        with gone as (update {delete_hot_door} set {old_key_values}, {old_place} returning true)
        select true into frostline_gone from gone;
        if found then
            return old;
        end if;
        if {missed}(old) then
            return null;
        end if;
        perform pg_catalog.set_config('frostline.missed', 'yes', true);
        return old;
    end if;
    if not {may_write_cold}(old) then
        return null;
    end if;
    with gone as (update {delete_cold_door} set {old_values}, secret = old.frostline_secret returning true)
    select true into frostline_gone from gone;
    if found or {claim}(old) then
        return old;
    end if;
    return null;
end
{body};
revoke execute on function {function}() from public;

-- name: missed_function
-- A hot row was not written. True: leave it out, because this statement has written it already, or a trigger of the user
-- has kept it as it is. False: it is gone, and who took it is for the last trigger to find out. 40001: somebody changed it.
-- Runs with its owner's rights, and calls nothing of the user's: of the heap it reads keys and places.
create or replace function {function}(frostline_old {inner}) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off
set row_security = off as {body}
#variable_conflict use_column
declare
    frostline_row record;
begin
    {require_secret}
    select h.tableoid as partition, h.ctid as place, frostline.is_own(h.xmin) as is_own into frostline_row
      from {heap} as h ({numbers}) where {heap_key_is_old};
    if found then
        if frostline_row.is_own
           or frostline_row.partition = frostline_old.frostline_partition and frostline_row.place = frostline_old.frostline_place then
            return true;
        end if;
        raise serialization_failure using message = {concurrent}, hint = {run_again};
    end if;
    -- With one snapshot for all statements Postgres itself tells (40001) when somebody else has removed the row.
    return current_setting('transaction_isolation') in ('repeatable read', 'serializable');
end
{body};

grant execute on function {function}({inner}) to public;

-- name: may_write_cold_function
-- Before a cold row is written. False: this statement has written it already. 40001: somebody changed it meanwhile.
-- Runs with its owner's rights, and calls nothing of the user's.
create or replace function {function}(frostline_old {inner}) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off as {body}
#variable_conflict use_column
declare
    frostline_mark record;
begin
    {require_secret}
    select m.ctid as place, frostline.is_own(m.xmin) as is_own into frostline_mark
      from {overlay} as m where {mark_key_is_old};
    if not found or frostline_old.frostline_tier = 'overlay' and frostline_mark.place = frostline_old.frostline_place then
        return true;
    end if;
    if frostline_mark.is_own then
        return false;
    end if;
    raise serialization_failure using message = {concurrent}, hint = {run_again};
end
{body};

grant execute on function {function}({inner}) to public;

-- name: claim_function
-- The heap has no row as the statement saw it. A row that is only in the lake is locked by inserting its mark, and true says so.
-- False: a trigger of the user has kept the row as it is. Runs with its owner's rights, and calls nothing of the user's.
create or replace function {function}(frostline_old {inner}) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off
set row_security = off as {body}
#variable_conflict use_column
declare
    frostline_partition oid;
begin
    if not {may_write_cold}(frostline_old) then
        return false;
    end if;
    perform frostline_write.require_known_heap({table_id}, {heap_name}::regclass, {overlay_text}::regclass, 'written');
    select h.tableoid into frostline_partition from {heap} as h ({numbers}) where {heap_key_is_old};
    if found and exists (select from pg_trigger as t
                          where t.tgrelid = frostline_partition and not t.tgisinternal and t.tgtype & 3 = 3) then
        return false;
    end if;
    if found or frostline_old.frostline_tier = 'overlay' then
        raise serialization_failure using message = {concurrent}, hint = {run_again};
    end if;
    insert into {overlay} ({marked}, frostline_live) values ({old_marked}, false) on conflict do nothing;
    if not found then
        raise serialization_failure using message = {concurrent}, hint = {run_again};
    end if;
    {seam_is_current}
    if (select s.snapshot_id from frostline.seam as s where s.table_id = {table_id})
       is distinct from frostline_old.frostline_snapshot then
        raise serialization_failure using message = {concurrent}, hint = {run_again};
    end if;
    return true;
end
{body};

grant execute on function {function}({inner}) to public;

-- name: unclaim_function
-- A trigger of the user has kept the new version of a cold row from being inserted: the row stays as it is.
create or replace function {function}(frostline_old {inner}) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off as {body}
#variable_conflict use_column
begin
    {require_secret}
    delete from {overlay} as m where {mark_key_is_old} and not m.frostline_live and frostline.is_own(m.xmin);
end
{body};

grant execute on function {function}({inner}) to public;

-- name: require_secret
if frostline_old.frostline_secret
       is distinct from (select s.write_secret from frostline.seam as s where s.table_id = {table_id}) then
        raise insufficient_privilege using message = {only_relation};
    end if;

-- name: row_is_allowed
-- As Postgres does it: of the row as triggers and generated columns have made it.
    if pg_catalog.row_security_active({heap_name}::pg_catalog.regclass) then
        perform frostline.require({may_become}({row_numbers}), {relation_name});
    end if;

-- name: secret_is_right
(select s.write_secret = new.secret from frostline.seam as s where s.table_id = {table_id})

-- name: identity_guard
if {changed} then
        raise generated_always using message = {message}, hint = {hint};
    end if;

-- name: update_trigger
create or replace trigger frostline_update instead of update on {inner} for each row execute function {function}();
create or replace trigger frostline_z_settle_update instead of update on {inner}
    for each row execute function frostline_write.settle_update();

-- name: delete_trigger
create or replace trigger frostline_delete instead of delete on {inner} for each row execute function {function}();
create or replace trigger frostline_z_settle_delete instead of delete on {inner}
    for each row execute function frostline_write.settle_delete();

-- name: copy_trigger
create or replace trigger frostline_copy instead of insert on {relation} for each row execute function {function}();
