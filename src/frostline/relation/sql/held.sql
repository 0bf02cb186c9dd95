-- DDL on a table that a managed one references, by which foreign keys would no longer be held for rows in the lake:
-- docs/design/foreign-keys.md. Called by an event trigger, before what follows the keys.

-- name: cold_children_silenced
-- Triggers of ours on referenced tables that are switched off while Postgres' own go on, as by DISABLE TRIGGER USER. By ALL, both are off.
create or replace function frostline.cold_children_silenced(managed integer) returns table (trigger_name name, parent regclass)
language sql stable set search_path = pg_catalog, pg_temp as $$
    select g.tgname, g.tgrelid::regclass
      from pg_trigger g
     where g.tgfoid = to_regproc(format('frostline_relation.children_%s', managed)) and g.tgenabled not in ('O', 'A')
       and exists (select from pg_trigger r where r.tgrelid = g.tgrelid and r.tgisinternal and r.tgenabled in ('O', 'A')
                                              and r.tgconstrrelid = frostline.heap_of(managed))
     order by g.tgrelid, g.tgname
$$;

-- name: cold_children_of_detached
-- A partition leaves a referenced table: 23503 if a row of the lake references one of its rows, as Postgres does for rows of the heap. Asks
-- the lake, what Postgres' own types and operators compare; nothing where the lake has no row.
create or replace function frostline.cold_children_of_detached(managed integer, parent oid, detached regclass) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    heap regclass := frostline.heap_of(managed);
    task record;
    is_referenced boolean;
    reason text;
begin
    if not frostline.may_have_cold_children(managed) then
        return;
    end if;
    for task in select t.* from frostline.foreign_key_tasks(managed, parent, 'DELETE') t loop
        begin
            execute replace(task.ask, ' from frostline_old as o)', format(' from %s as o)', detached)) into is_referenced;
        exception when others then
            if left(sqlstate, 2) not in ('08', 'HV') then
                raise;
            end if;
            get stacked diagnostics reason = message_text;
            raise exception using errcode = sqlstate,
                message = format('cannot tell whether rows of %s in the lake reference %s: %s', heap, detached, reason),
                hint = 'Try again when the lake server is up; frostline doctor says what is wrong with it.';
        end;
        if is_referenced then
            raise foreign_key_violation using
                message = format('removing partition %s violates foreign key constraint %I of %s', detached, task.constraint_name, heap),
                detail = 'Rows in the lake reference rows of it.', schema = task.heap_schema, table = task.heap_name, constraint = task.constraint_name;
        end if;
    end loop;
end
$$;

-- name: held_function
create or replace function frostline.hold_cold_children() returns event_trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $body$
declare
    altered record;
begin
    if frostline.is_following() or current_setting('frostline.guard', true) = 'off' and pg_has_role(session_user, current_user, 'member') then
        return;
    end if;
    for altered in
        select t.table_id, s.trigger_name, s.parent
          from frostline.managed_table t cross join lateral frostline.cold_children_silenced(t.table_id) s
         where t.mode = 'tiered' and t.foreign_keys = 'hold'
           and s.parent in (select d.objid from pg_event_trigger_ddl_commands() d
                             union all select p.relid from pg_event_trigger_ddl_commands() d cross join lateral pg_partition_tree(d.objid) p)
    loop
        insert into frostline.following values (pg_current_xact_id(), altered.table_id);
        execute format('alter table %s enable trigger %I', altered.parent, altered.trigger_name);
        delete from frostline.following f where f.xid = pg_current_xact_id() and f.table_id = altered.table_id;
        raise notice using message = format('trigger %I on %s stays on: it holds a foreign key for rows in the lake', altered.trigger_name, altered.parent);
    end loop;
    for altered in
        select distinct t.table_id, k.confrelid as parent, c.oid::regclass as detached
          from frostline.managed_table t
          join pg_trigger g on g.tgfoid = to_regproc(format('frostline_relation.children_%s', t.table_id))
          join pg_class c on c.oid = g.tgrelid and not c.relispartition and age(c.xmin) <= age(pg_current_xact_id()::xid)
          join pg_constraint k on k.conrelid = frostline.heap_of(t.table_id) and k.contype = 'f' and k.conparentid = 0
         where t.mode = 'tiered' and t.foreign_keys = 'hold' and c.oid <> k.confrelid
           and c.oid not in (select p.parent from frostline.foreign_key_parents(k.conrelid) p)
           and k.confrelid in (select coalesce(pg_partition_root(d.objid), d.objid) from pg_event_trigger_ddl_commands() d)
    loop
        perform frostline.cold_children_of_detached(altered.table_id, altered.parent, altered.detached);
    end loop;
end
$body$;
revoke execute on function frostline.hold_cold_children() from public
