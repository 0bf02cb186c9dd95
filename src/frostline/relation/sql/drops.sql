-- What keeps a managed table's objects from being dropped, detached or replaced by hand: docs/design/guards.md. Each function
-- runs with its owner's rights, calls nothing of the user's, and lets those pass who say frostline.guard = off and may.

-- name: schema_owner
select n.nspowner = r.oid, pg_get_userbyid(n.nspowner) from pg_namespace n join pg_roles r on r.rolname = current_user
 where n.nspname = 'frostline_guard'

-- name: schema
-- Of its own: an event trigger falls with its function, unasked, so the guard of a schema cannot be in it.
create schema if not exists frostline_guard;
comment on schema frostline_guard is 'Frostline: what refuses to drop its other schemas'

-- name: drop_function
-- All is dropped already when this runs, so tables are known by their names. Without the catalog, which may have been dropped
-- too, inner views tell that there are managed tables.
create or replace function frostline_guard.refuse_drop() returns event_trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $body$
declare
    lost record;
begin
    if current_setting('frostline.guard', true) = 'off' and pg_has_role(session_user, current_user, 'member') then
        return;
    end if;
    if to_regclass('frostline.managed_table') is null then
        if exists (select from pg_event_trigger_dropped_objects() d where d.schema_name = 'frostline' and d.object_name = 'managed_table')
           and (exists (select from pg_event_trigger_dropped_objects() d where d.schema_name = 'frostline_relation' and d.object_type = 'view')
                or exists (select from pg_class c where c.relnamespace = to_regnamespace('frostline_relation') and c.relkind = 'v')) then
            raise dependent_objects_still_exist using
                message = 'cannot drop the catalog of Frostline: there are managed tables',
                hint = 'frostline table list, then frostline table remove for each of them';
        end if;
        return;
    end if;
    if frostline.is_following() then
        return;
    end if;
    select d.object_type, d.object_identity, d.original, t.schema_name, t.table_name, o.part into lost
      from pg_event_trigger_dropped_objects() d
     cross join frostline.managed_table t
     cross join lateral (select coalesce(t.relation_name, t.table_name) as relation,
                                to_regclass(format('%I.%I', t.schema_name, t.heap_name)) as heap,
                                d.object_type in ('trigger', 'rule', 'policy', 'default value') as is_on_table) r
     cross join lateral (select case
            when d.object_type in ('table', 'view') and d.schema_name = t.schema_name and d.object_name in (r.relation, t.heap_name) then 1
            when d.object_type = 'server' and d.object_name = 'frostline_lake' then 2
            when d.object_type = 'schema' and d.object_name = any ({own_schemas}) then 2
            when not r.is_on_table and d.schema_name = 'frostline_write' and d.address_names[2] ~ '^(policy_)?may_[a-z]+_\d+$' then null
            when not r.is_on_table and d.schema_name = 'frostline_stage' and d.object_type <> 'function' then null
            when not r.is_on_table and d.schema_name = any ({own_schemas}) then 2
            when d.object_type = 'rule' and d.original and d.address_names = array[t.schema_name, r.relation, 'frostline_insert'] then 2
            when d.object_type = 'trigger' and d.original and d.address_names[1] = 'frostline_overlay' then 2
            when d.object_type = 'trigger' and d.original and d.address_names[3] ~ '^!frostline_(mark|truncate)'
                 and exists (select from pg_class c where c.oid = to_regclass(format('%I.%I', d.address_names[1], d.address_names[2]))
                                and r.heap in (c.oid, pg_partition_root(c.oid))) then 2
            when d.object_type = 'table'
                 and exists (select from pg_partitioned_table p
                              where p.partrelid = r.heap and p.partdefid = 0 and age(p.xmin) <= age(pg_current_xact_id()::xid))
                 and exists (select from pg_event_trigger_dropped_objects() g
                              where g.address_names = array[d.schema_name, d.object_name, '!frostline_mark']) then 3
            when d.object_type = 'table' and exists (select from frostline.archived_partition a
                    where a.table_id = t.table_id and a.cleaned_at is null
                      and parse_ident(a.partition_name) = array[d.schema_name, d.object_name]) then 4
            -- It has another name than when it was archived: what goes with its marking trigger may be the one that is missed.
            when d.object_type = 'trigger' and not d.original and d.address_names[3] = '!frostline_mark'
                 and to_regclass(format('%I.%I', d.address_names[1], d.address_names[2])) is null
                 and exists (select from frostline.archived_partition a where a.table_id = t.table_id and a.cleaned_at is null
                                and to_regclass(a.partition_name) is null) then 4
            end as part) o
     where t.mode = 'tiered' and not d.is_temporary and o.part is not null
     order by o.part, d.original desc, (d.object_identity ~ format('[_ ]%s\M', t.table_id)) desc, t.table_id
     limit 1;
    if found then
        raise dependent_objects_still_exist using
            message = format(case lost.part
                when 3 then 'cannot drop the DEFAULT partition of %2$I.%3$I: rows without another partition need it'
                when 4 then 'cannot drop %1$s: it is a partition of %2$I.%3$I that is archived and not cleaned'
                else 'cannot drop %1$s: it is part of the managed table %2$I.%3$I' end,
                concat_ws(' ', lost.object_type, lost.object_identity), lost.schema_name, lost.table_name),
            detail = case when lost.original then
                case lost.part when 3 then 'They would be lost, and new ones refused.' when 4 then 'Until then frostline undo needs it.'
                               else 'Rows of the table would not be seen any more, or changes of them be lost.' end
                else format('It would be dropped with %s.', (select string_agg(d.object_type || ' ' || d.object_identity, ', ')
                                                               from pg_event_trigger_dropped_objects() d where d.original)) end,
            hint = format(case lost.part
                when 3 then 'To have its rows gone: delete from %I.%I ...'
                when 4 then 'frostline clean %I.%I drops it once its grace period is over.'
                else 'frostline table remove %I.%I: with --thaw all rows come back first, with --keep-lake those in the lake stay there.' end,
                lost.schema_name, lost.table_name);
    end if;
end
$body$;
revoke execute on function frostline_guard.refuse_drop() from public

-- name: drop_trigger
create event trigger frostline_lost_objects on sql_drop execute function frostline_guard.refuse_drop()

-- name: guard_function
-- Nobody is left to ask when the guard itself is dropped, but this one, which is in another schema.
create or replace function frostline.refuse_drop_of_guard() returns event_trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $body$
begin
    if current_setting('frostline.guard', true) = 'off' and pg_has_role(session_user, current_user, 'member') then
        return;
    end if;
    if not exists (select from pg_event_trigger_dropped_objects() d where 'frostline_guard' in (d.schema_name, d.object_name)) then
        return;
    end if;
    if exists (select from frostline.managed_table t where t.mode = 'tiered') then
        raise dependent_objects_still_exist using
            message = 'cannot drop the guard of Frostline: there are managed tables',
            hint = 'frostline table list, then frostline table remove for each of them';
    end if;
end
$body$;
revoke execute on function frostline.refuse_drop_of_guard() from public

-- name: guard_trigger
create event trigger frostline_lost_guard on sql_drop execute function frostline.refuse_drop_of_guard()

-- name: guards_function
-- Each guard outlives the other's schema, and a statement that drops both leaves nobody to look at it: so its text is looked at before it
-- begins, also inside a DO. What a function puts together is not seen, and a text that only looks like one is refused.
create or replace function frostline_guard.refuse_drop_of_guards() returns event_trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $body$
declare
    role text := coalesce(nullif(current_setting('role'), 'none'), session_user);
    said record;
begin
    if current_setting('frostline.guard', true) = 'off' and pg_has_role(session_user, current_user, 'member')
       or to_regclass('frostline.managed_table') is null then
        return;
    end if;
    for said in
        select lower(m[1]) as kind,
               array(select case when w[1] is not null then replace(w[1], '""', '"')::name
                                 when lower(w[2]) in ('current_user', 'current_role') then role::name
                                 when lower(w[2]) = 'session_user' then session_user else lower(w[2])::name end
                       from regexp_matches(m[2], '"((?:[^"]|"")+)"|([^\s"'',.();]+)', 'g') as w) as names
          from regexp_matches(current_query(), '\mdrop\s+(schema|owned|function|routine|extension|language)\M([^;]*)', 'gi') as m
    loop
        continue when not case said.kind when 'schema' then said.names @> array['frostline', 'frostline_guard']::name[]
                                         when 'owned' then current_user = any (said.names)
                                         when 'extension' then said.names @> array['plpgsql']::name[]
                                         when 'language' then said.names @> array['plpgsql']::name[]
                                         else said.names @> array['refuse_drop', 'refuse_drop_of_guard']::name[] end;
        if exists (select from frostline.managed_table t where t.mode = 'tiered') then
            raise dependent_objects_still_exist using
                message = 'cannot drop both guards of Frostline: there are managed tables',
                hint = 'frostline table list, then frostline table remove for each of them';
        end if;
    end loop;
end
$body$;
revoke execute on function frostline_guard.refuse_drop_of_guards() from public

-- name: guards_trigger
create event trigger frostline_lost_guards on ddl_command_start
    when tag in ('DROP SCHEMA', 'DROP OWNED', 'DROP FUNCTION', 'DROP ROUTINE', 'DROP EXTENSION', 'DROP LANGUAGE')
    execute function frostline_guard.refuse_drop_of_guards()

-- name: hide_function
-- Only what this transaction has changed is judged: damage from before must not keep anybody from altering the table.
create or replace function frostline.refuse_hiding_rows() returns event_trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $body$
declare
    lost record;
    now_age integer := age(pg_current_xact_id()::xid);
begin
    if frostline.is_following() or current_setting('frostline.guard', true) = 'off' and pg_has_role(session_user, current_user, 'member') then
        return;
    end if;
    select t.schema_name, t.table_name, r.relation, o.problem, o.command into lost
      from frostline.managed_table t
     cross join lateral (select to_regclass(format('%I.%I', t.schema_name, t.heap_name))::oid as heap,
                                to_regclass(format('%I.%I', t.schema_name, coalesce(t.relation_name, t.table_name)))::oid as relation,
                                to_regclass(frostline.identifier('frostline_lake', frostline.cut_name(coalesce(t.first_name, t.table_name),
                                                                                                      '_' || t.table_id)))::oid as lake,
                                to_regproc('frostline_relation.mark_' || t.table_id)::oid as mark) r
     cross join lateral (
        select format('cannot detach %s: it is archived and not cleaned', c.oid::regclass) as problem, 'clean' as command
          from frostline.archived_partition a
          join pg_class c on c.oid = to_regclass(a.partition_name) and not c.relispartition and age(c.xmin) <= now_age
          join pg_trigger g on g.tgrelid = c.oid and g.tgfoid = r.mark and g.tgname = '!frostline_mark'
         where a.table_id = t.table_id and a.cleaned_at is null
        union all
        select format('cannot detach %s: rows of %s without another partition need it', c.oid::regclass, p.partrelid::regclass), null
          from pg_partitioned_table p
          join pg_trigger g on g.tgfoid = r.mark and g.tgname = '!frostline_mark'
          join pg_class c on c.oid = g.tgrelid and not c.relispartition and age(c.xmin) <= now_age
         where p.partrelid = r.heap and p.partdefid = 0 and age(p.xmin) <= now_age
        union all
        -- A partition that is marked has rows that overlay or lake have too.
        select format('column %I of %s cannot be computed anew: rows of %s in the lake would keep the values that they have', a.attname, a.attrelid::regclass,
                      r.heap::regclass), null
          from pg_event_trigger_ddl_commands() e
          join pg_trigger g on g.tgrelid = e.objid and g.tgfoid = r.mark and g.tgname = '!frostline_mark'
          join pg_attrdef x on x.adrelid = g.tgrelid and age(x.xmin) <= now_age
          join pg_attribute a on a.attrelid = x.adrelid and a.attnum = x.adnum and a.attgenerated <> ''
         where e.classid = 'pg_class'::regclass and pg_partition_root(g.tgrelid) = r.heap and g.tgrelid <> r.heap
        union all
        select format('cannot detach %s: rows of %s in the lake would not be seen any more', c.oid::regclass, r.relation::regclass), null
          from pg_event_trigger_ddl_commands() e
          join pg_class c on c.relnamespace = 'frostline_lake'::regnamespace and c.relkind = 'f' and not c.relispartition and age(c.xmin) <= now_age
         where e.classid = 'pg_class'::regclass and e.objid = r.lake
        union all
        select format('cannot switch off trigger %I on %s: changes of cold rows would be lost', g.tgname, c.oid::regclass), null
          from pg_trigger g join pg_class c on c.oid = g.tgrelid
         where g.tgfoid = r.mark and g.tgenabled <> 'A' and age(g.xmin) <= now_age and r.heap in (c.oid, pg_partition_root(c.oid))
        union all
        select format('cannot replace view %s: it would not show the rows in the lake', r.relation::regclass), 'table remove'
          from pg_event_trigger_ddl_commands() d
         where d.classid = 'pg_class'::regclass and d.objid = r.relation
           and not exists (select from pg_rewrite w
                             join pg_depend e on e.classid = 'pg_rewrite'::regclass and e.objid = w.oid and e.refclassid = 'pg_class'::regclass
                             join pg_class i on i.oid = e.refobjid and i.relnamespace = to_regnamespace('frostline_relation')
                            where w.ev_class = r.relation and i.relname like '%\_' || t.table_id)
     ) o
     where t.mode = 'tiered'
       and exists (select from pg_event_trigger_ddl_commands() d
                    where d.classid = 'pg_class'::regclass
                      and (d.objid in (r.heap, r.relation, r.lake) or pg_partition_root(d.objid) = r.heap))
     limit 1;
    if found then
        raise object_not_in_prerequisite_state using message = lost.problem,
            hint = case when lost.command is not null then format('frostline %s %I.%I', lost.command, lost.schema_name, lost.table_name)
                        else 'What belongs to a managed table: docs/design/guards.md' end;
    end if;
end
$body$;
revoke execute on function frostline.refuse_hiding_rows() from public

-- name: hide_trigger
create event trigger frostline_hidden_rows on ddl_command_end when tag in ('ALTER TABLE', 'CREATE VIEW', 'ALTER VIEW')
    execute function frostline.refuse_hiding_rows()
