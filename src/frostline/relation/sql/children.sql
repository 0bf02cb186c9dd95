-- What holds foreign keys of a managed table for the rows that only the lake has: docs/design/foreign-keys.md. Filled by parents.sql.

-- name: door
-- The lake's rows as the heap's owner writes them when a row goes that they reference, with columns called by the heap's attribute
-- numbers. ACCESS EXCLUSIVE on the old one: waits for statements that use it.
drop view if exists {foreign_keys_door};
create view {foreign_keys_door} as select i.frostline_tier as tier, {numbered_columns} from {inner} as i;
grant select, update, delete on {foreign_keys_door} to {owner};

-- name: drop_door
drop view if exists {foreign_keys_door};

-- name: function
-- Belongs to the heap's owner, as whom Postgres acts for a foreign key. No search_path of its own: what fires on the heap has the
-- caller's, so every name and operator in here is qualified. Nobody else can run it, or make it another one.
create or replace function {children}() returns trigger
language plpgsql security definer as {body}
declare
    frostline_task record;
    frostline_is_there boolean;
    frostline_reason text;
begin
    if not exists (select from frostline_old) or not frostline.may_have_cold_children({table_id}) then
        return null;
    end if;
    if tg_op operator(pg_catalog.=) 'UPDATE' then
        execute coalesce(frostline.changed_keys_question({table_id}, tg_relid), 'select false') into frostline_is_there;
        if not frostline_is_there then
            return null;
        end if;
    end if;
    lock table {heap} in access share mode;
    for frostline_task in select t.* from frostline.foreign_key_tasks({table_id}, tg_relid, tg_op) as t loop
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
                    hint = {children_hint};
        end;
        if frostline_is_there then
            raise exception using errcode = frostline_task.errcode, message = frostline_task.message, detail = frostline_task.detail,
                schema = frostline_task.heap_schema, table = frostline_task.heap_name, constraint = frostline_task.constraint_name;
        end if;
    end loop;
    return null;
end
{body};
revoke execute on function {children}() from public;
select frostline.give_function({children_text}::regprocedure, {owner_text});

-- name: triggers
-- SHARE ROW EXCLUSIVE on the referenced table: waits for its writers, and keeps them out until the end of the transaction. They fire
-- before those of users, as Postgres' own do.
create or replace trigger {on_delete} after delete on {parent} referencing old table as frostline_old
    for each statement execute function {children}();
create or replace trigger {on_update} after update on {parent} referencing old table as frostline_old new table as frostline_new
    for each statement execute function {children}();
