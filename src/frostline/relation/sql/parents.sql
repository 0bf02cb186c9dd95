-- Lets what holds a managed table's foreign keys follow them, in the transaction of whoever makes or drops one, gives the table another
-- owner or name, or the referenced one another partition: docs/design/foreign-keys.md. The templates are in children.sql.

-- name: relation_key_objects
-- The door, the function and the triggers, each after what it needs. Without a foreign key that is held, nothing of it is wanted.
create or replace function frostline.relation_key_objects(managed integer, parts jsonb) returns jsonb
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    heap oid := frostline.heap_of(managed);
    holds boolean := (select t.foreign_keys = 'hold' from frostline.managed_table t where t.table_id = managed)
                     and exists (select from frostline.foreign_key_parents(heap));
    owner name := (select pg_get_userbyid(h.relowner) from pg_class h where h.oid = heap);
    on_delete text := format('!frostline_children_%s_delete', managed);
    on_update text := format('!frostline_children_%s_update', managed);
    p jsonb := parts || jsonb_build_object(
        'owner', quote_ident(owner), 'owner_text', quote_literal(owner), 'children_text', quote_literal(parts ->> 'children' || '()'),
        'children_hint', quote_literal((
            select format('frostline up, or frostline serve; without the lake: frostline table set %I.%I --foreign-keys ignore', t.schema_name, t.table_name)
              from frostline.managed_table t where t.table_id = managed)),
        'on_delete', frostline.identifier(on_delete), 'on_update', frostline.identifier(on_update),
        'numbered_columns', (select string_agg(format('i.%s as c%s', c.name, c.attnum), ', ' order by c.number)
                               from frostline.relation_columns(managed) c));
    triggers jsonb := (
        select jsonb_agg(frostline.relation_object('trigger', array[on_delete, on_update], f.name,
                                                   array[frostline.filled('children.triggers', p || jsonb_build_object('parent', f.name))], null)
                         order by c.oid)
          from frostline.foreign_key_parents(heap) r
          join pg_class c on c.oid = r.parent
          join pg_namespace n on n.oid = c.relnamespace
         cross join lateral (select frostline.identifier(n.nspname, c.relname) as name) f
         where holds);
begin
    return (
        select jsonb_agg(o.value || jsonb_build_object('holds_keys', true) order by o.place)
          from jsonb_array_elements(
               jsonb_build_array(
                   frostline.relation_object('view', array[p ->> 'foreign_keys_door'], '', array[frostline.filled('children.door', p)],
                                             frostline.filled('children.drop_door', p), true, holds),
                   frostline.relation_function(p, 'children', 'children.function', holds))
               || coalesce(triggers, '[]')) with ordinality as o (value, place));
end
$$;

-- name: relation_stray_triggers
-- Those that stand where no foreign key leads any more. They do nothing there; that of a role with more rights is that role's to drop.
create or replace function frostline.relation_stray_triggers(managed integer) returns table (trigger_name name, parent regclass)
language sql stable set search_path = pg_catalog, pg_temp as $$
    select g.tgname, c.oid::regclass
      from pg_trigger g
      join pg_class c on c.oid = g.tgrelid and pg_has_role(c.relowner, 'usage')
     where g.tgfoid = to_regproc(format('frostline_relation.children_%s', managed))
       and not exists (select from frostline.foreign_key_parents(frostline.heap_of(managed)) p where p.parent = g.tgrelid)
     order by c.oid, g.tgname
$$;

-- name: relation_forbidden_parents
-- Where triggers are missing, and we may not put them.
create or replace function frostline.relation_forbidden_parents(managed integer) returns table (parent regclass, is_partition boolean)
language sql stable set search_path = pg_catalog, pg_temp as $$
    select p.parent, not exists (select from pg_constraint c where c.conrelid = frostline.heap_of(managed) and c.confrelid = p.parent and c.contype = 'f'
                                    and c.conparentid = 0)
      from frostline.managed_table t
     cross join lateral frostline.foreign_key_parents(frostline.heap_of(managed)) p
     where t.table_id = managed and t.foreign_keys = 'hold' and not has_table_privilege(p.parent, 'trigger')
       and not exists (select from pg_trigger g where g.tgrelid = p.parent
                          and g.tgfoid = to_regproc(format('frostline_relation.children_%s', managed)))
     order by p.parent
$$;

-- name: follow_keys
-- What holds the table's foreign keys as they are now: made where it is missing or differs, gone where no key leads. SHARE ROW EXCLUSIVE on
-- a table that gets a trigger, ACCESS EXCLUSIVE on one that loses it, nothing on the others.
create or replace function frostline.follow_keys(managed integer) returns void
language plpgsql set search_path = pg_catalog, pg_temp set client_min_messages = warning as $$
declare
    heap oid := frostline.heap_of(managed);
    known jsonb;
    stale record;
    said text;
    advice text;
    statement text;
begin
    select case when left(t.objects_digest, 1) = chr(123) then t.objects_digest::jsonb end into known
      from frostline.managed_table t
     where t.table_id = managed
       and (to_regproc(format('frostline_relation.children_%s', managed)) is not null
            or t.foreign_keys = 'hold' and exists (select from frostline.foreign_key_parents(heap)));
    if not found then
        return;
    end if;
    for stale in select f.* from frostline.relation_forbidden_parents(managed) f loop
        said := format('%s references %s, and %I may not put a trigger there', heap::regclass, stale.parent, current_user);
        advice := format('grant trigger on %s to %I, or: frostline table set %s --foreign-keys ignore', stale.parent, current_user,
                         (select format('%I.%I', t.schema_name, t.table_name) from frostline.managed_table t where t.table_id = managed));
        if not stale.is_partition then
            raise insufficient_privilege using message = said, hint = advice;
        end if;
        raise warning using message = said, hint = advice;
    end loop;
    for stale in
        select s.object, (s.object ->> 'is_wanted')::boolean as is_wanted
          from frostline.relation_state(managed) with ordinality as s (object, key, is_present, digest, place)
         where s.object ? 'holds_keys'
           and not exists (select from frostline.relation_forbidden_parents(managed) f
                            where f.parent = to_regclass(s.object -> 'addresses' -> 0 ->> 'relation'))
           and case when (s.object ->> 'is_wanted')::boolean then s.digest is distinct from known ->> s.key else s.is_present end
         order by s.place
    loop
        for statement in
            select s.text from jsonb_array_elements_text(case when stale.is_wanted then stale.object -> 'create'
                                                              else jsonb_build_array(stale.object -> 'drop') end) as s (text)
        loop
            execute statement;
        end loop;
    end loop;
    for stale in select t.* from frostline.relation_stray_triggers(managed) t loop
        execute format('drop trigger %I on %s', stale.trigger_name, stale.parent);
    end loop;
    update frostline.managed_table t set objects_digest = (known || s.digests)::text
      from (select jsonb_object_agg(s.key, s.digest) as digests from frostline.relation_state(managed) s
             where s.object ? 'holds_keys' and (s.object ->> 'is_wanted')::boolean) s
     where t.table_id = managed and not known @> s.digests;
end
$$;

-- name: parents_function
-- Partitions that a referenced table gets or loses, its other name, and what makes its keys fit to be held, or unfit. A managed table
-- keeps no owner of a referenced one from altering it: where we may not put a trigger, the owner is told.
create or replace function frostline.follow_parents() returns event_trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $body$
declare
    managed integer;
    said text;
    advice text;
begin
    if frostline.is_following() then
        return;
    end if;
    for managed in
        select t.table_id
          from frostline.managed_table t
         where t.mode = 'tiered' and t.foreign_keys = 'hold' and exists (
            select from pg_event_trigger_ddl_commands() d
             cross join lateral (select d.objid
                                  union all select a.relid from pg_partition_ancestors(d.objid) a
                                  union all select i.inhparent from pg_inherits i where i.inhrelid = d.objid) altered (oid)
             where d.classid = 'pg_class'::regclass
               and (exists (select from pg_constraint c where c.conrelid = frostline.heap_of(t.table_id) and c.confrelid = altered.oid and c.contype = 'f')
                    or exists (select from pg_trigger g where g.tgrelid = altered.oid
                                  and g.tgfoid = to_regproc(format('frostline_relation.children_%s', t.table_id)))))
         order by t.table_id
    loop
        -- It is just being registered, or gets its other form.
        continue when to_regclass(frostline.relation_names(managed) ->> 'inner') is null;
        insert into frostline.following values (pg_current_xact_id(), managed);
        begin
            perform frostline.follow_keys(managed);
        exception when insufficient_privilege then
            get stacked diagnostics said = message_text, advice = pg_exception_hint;
            raise warning using message = said, hint = advice;
        end;
        delete from frostline.following f where f.xid = pg_current_xact_id() and f.table_id = managed;
    end loop;
end
$body$;
revoke execute on function frostline.follow_parents() from public
