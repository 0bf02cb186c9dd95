-- Foreign keys of a managed table, for the rows that only the lake has: docs/design/foreign-keys.md. Filled by
-- `relation.foreign_keys` through psycopg.sql. {body} is a dollar quote that no name of the table contains.

-- name: read
-- The foreign keys of a table. Reads system catalogs, locks nothing.
select c.conname::text,
       array(select a.attname::text from unnest(c.conkey) with ordinality k (number, place)
               join pg_attribute a on a.attrelid = c.conrelid and a.attnum = k.number order by k.place),
       n.nspname::text, p.relname::text, c.confdeltype::text, c.confupdtype::text, c.condeferrable,
       frostline.foreign_key_obstacle(c.oid),
       exists (select from frostline.managed_table t where t.mode = 'tiered' and t.schema_name = n.nspname and t.heap_name = p.relname)
  from pg_constraint c
  join pg_class p on p.oid = c.confrelid
  join pg_namespace n on n.oid = p.relnamespace
 where c.conrelid = {heap}::regclass and c.contype = 'f' and c.conparentid = 0
 order by c.oid

-- name: parents
-- Where triggers are wanted. Reads system catalogs, locks nothing.
select n.nspname::text, c.relname::text
  from frostline.foreign_key_parents({heap}::regclass) p
  join pg_class c on c.oid = p.parent
  join pg_namespace n on n.oid = c.relnamespace
 order by c.oid

-- name: forbidden
-- Where this role may not put them. Reads system catalogs, locks nothing.
select n.nspname::text, c.relname::text, current_user::text
  from frostline.foreign_key_parents({heap}::regclass) p
  join pg_class c on c.oid = p.parent
  join pg_namespace n on n.oid = c.relnamespace
 where not has_table_privilege(c.oid, 'trigger')
 order by c.oid

-- name: unwanted
-- Triggers that stand where no foreign key leads any more. Reads system catalogs, locks nothing.
select g.tgname::text, n.nspname::text, c.relname::text
  from pg_trigger g
  join pg_class c on c.oid = g.tgrelid
  join pg_namespace n on n.oid = c.relnamespace
 where g.tgfoid = to_regproc({function}) and g.tgrelid not in (select p.parent from frostline.foreign_key_parents({heap}::regclass) p)
 order by c.oid, g.tgname

-- name: strayed
-- Tables whose foreign keys lead to another place than their triggers, or are held by another role than the heap's owner. Reads
-- system catalogs, locks nothing.
select t.schema_name, t.table_name
  from frostline.managed_table t
 cross join lateral (select frostline.heap_of(t.table_id) as heap,
                            to_regproc('frostline_relation.children_' || t.table_id)::oid as function) r
 where t.mode = 'tiered' and t.foreign_keys = 'hold' and r.heap is not null
   and (array(select p.parent from frostline.foreign_key_parents(r.heap) p order by 1)
            <> array(select distinct g.tgrelid from pg_trigger g where g.tgfoid = r.function order by 1)
        or (select f.proowner from pg_proc f where f.oid = r.function) <> (select c.relowner from pg_class c where c.oid = r.heap))
 order by 1, 2

-- name: door
-- The lake's rows as the heap's owner writes them when a row goes that they reference. ACCESS EXCLUSIVE on the old one: waits for
-- statements that use it.
drop view if exists {door};
create view {door} as select i.frostline_tier as tier, {columns} from {inner} as i;
grant select, update, delete on {door} to {owner};

-- name: drop_door
drop view if exists {door};

-- name: function
-- Belongs to the heap's owner, as whom Postgres acts for a foreign key. No search_path of its own: what fires on the heap has the
-- caller's, so every name and operator in here is qualified. Nobody else can run it, or make it another one.
create or replace function {function}() returns trigger
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
                    hint = {hint};
        end;
        if frostline_is_there then
            raise exception using errcode = frostline_task.errcode, message = frostline_task.message, detail = frostline_task.detail,
                schema = frostline_task.heap_schema, table = frostline_task.heap_name, constraint = frostline_task.constraint_name;
        end if;
    end loop;
    return null;
end
{body};
revoke execute on function {function}() from public;

-- name: own
select frostline.give_function({signature}::regprocedure, {owner});

-- name: triggers
-- SHARE ROW EXCLUSIVE on the referenced table: waits for its writers, and keeps them out until the end of the transaction.
create or replace trigger {on_delete} after delete on {parent} referencing old table as frostline_old
    for each statement execute function {function}();
create or replace trigger {on_update} after update on {parent} referencing old table as frostline_old new table as frostline_new
    for each statement execute function {function}();

-- name: drop_trigger
-- ACCESS EXCLUSIVE on the table that was referenced.
drop trigger if exists {trigger} on {parent};
