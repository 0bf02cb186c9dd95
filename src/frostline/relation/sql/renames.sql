-- Other names and schemas of a managed table: docs/design/schema-changes.md.

-- name: names_found
-- Where heap and relation are now, whatever they are called: the heap by its trigger, the relation by its rule. Locks nothing.
create or replace function frostline.names_found(managed integer)
returns table (heap oid, heap_schema text, heap_name text, relation oid, relation_schema text, relation_name text)
language sql stable set search_path = pg_catalog, pg_temp as $$
    select h.oid, hn.nspname::text, h.relname::text, v.oid, vn.nspname::text, v.relname::text
      from pg_trigger g
      join pg_class h on h.oid = g.tgrelid and h.relkind = 'p' and not h.relispartition
      join pg_depend d on d.refclassid = 'pg_class'::regclass and d.refobjid = h.oid and d.classid = 'pg_rewrite'::regclass
      join pg_rewrite w on w.oid = d.objid and w.rulename = 'frostline_insert'
      join pg_class v on v.oid = w.ev_class and v.relkind = 'v'
      join pg_namespace hn on hn.oid = h.relnamespace
      join pg_namespace vn on vn.oid = v.relnamespace
     where g.tgname = '!frostline_truncate_all' and g.tgfoid = to_regproc(format('frostline_relation.truncate_%s', managed))
     limit 1
$$;

-- name: names_follow
-- The catalog gets the names that heap and relation have. In the table's place the relation leads and the heap follows it; beside it the
-- heap leads. ACCESS EXCLUSIVE on both views, and on the heap if it follows. The lake keeps the name that it has.
create or replace function frostline.names_follow(managed integer) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    known record;
    now_is record;
    leader text;
    led text;
begin
    select t.*, t.relation_name is null as is_in_place into known from frostline.managed_table t where t.table_id = managed;
    select f.*, h.relowner <> r.relowner as is_another into now_is
      from frostline.names_found(managed) f join pg_class h on h.oid = f.heap join pg_class r on r.oid = f.relation;
    if not found or (now_is.heap_schema, now_is.heap_name, now_is.relation_schema, now_is.relation_name)
                  = (known.schema_name, known.heap_name, known.schema_name, coalesce(known.relation_name, known.table_name)) then
        return;
    end if;
    leader := case when known.is_in_place then now_is.relation_schema else now_is.heap_schema end;
    led := case when known.is_in_place then now_is.heap_schema else now_is.relation_schema end;
    if leader <> led and leader = known.schema_name or known.is_in_place and now_is.relation_name = known.table_name and now_is.heap_name <> known.heap_name then
        raise object_not_in_prerequisite_state using
            message = format('%s has to be in the schema of %s, and to be called after it',
                             case when known.is_in_place then 'the heap' else 'the relation' end,
                             format('%I.%I', known.schema_name, known.table_name)),
            hint = case when known.is_in_place
                        then format('Send it to the relation, and the heap follows: alter view %I.%I rename to ..., or set schema ...', known.schema_name, known.table_name)
                        else format('Send it to the table, and the relation follows: alter table %I.%I set schema ...', known.schema_name, known.table_name) end;
    end if;
    if now_is.is_another then
        raise insufficient_privilege using
            message = format('%s has another owner than %s, its heap', now_is.relation::regclass, now_is.heap::regclass),
            hint = 'Both follow each other only if they have the same.';
    end if;
    if known.is_in_place and octet_length(now_is.relation_name) > 62 then
        raise name_too_long using message = format('the heap of %I would have a name that is too long', now_is.relation_name),
            hint = 'Use a name of 62 bytes at most.';
    end if;
    insert into frostline.following values (pg_current_xact_id(), managed);
    if led <> leader then
        execute format('alter %s %s set schema %I', case when known.is_in_place then 'table' else 'view' end,
                       case when known.is_in_place then now_is.heap else now_is.relation end::regclass, leader);
    end if;
    if known.is_in_place and now_is.heap_name <> '_' || now_is.relation_name then
        execute format('alter table %s rename to %I', now_is.heap::regclass, '_' || now_is.relation_name);
    end if;
    update frostline.managed_table t
       set schema_name = leader, table_name = case when known.is_in_place then now_is.relation_name else now_is.heap_name end,
           relation_name = case when not known.is_in_place then now_is.relation_name end,
           first_schema = coalesce(t.first_schema, t.schema_name), first_name = coalesce(t.first_name, t.table_name)
     where t.table_id = managed;
    perform frostline.names_of_partitions(managed);
    perform frostline.replace_objects(managed);
    delete from frostline.following f where f.xid = pg_current_xact_id() and f.table_id = managed;
end
$$;

-- name: names_of_partitions
-- SET SCHEMA leaves partitions where they are; ALTER SCHEMA takes them along. Then they are in the schema that the table is in now.
create or replace function frostline.names_of_partitions(managed integer) returns void
language sql set search_path = pg_catalog, pg_temp as $$
    update frostline.archived_partition a set partition_name = format('%I.%I', t.schema_name, (parse_ident(a.partition_name))[2])
      from frostline.managed_table t
     where a.table_id = managed and t.table_id = managed and to_regclass(a.partition_name) is null
       and exists (select from pg_inherits i join pg_class c on c.oid = i.inhrelid
                    where i.inhparent = frostline.heap_of(managed) and c.relname = (parse_ident(a.partition_name))[2]
                      and c.relnamespace = to_regnamespace(quote_ident(t.schema_name)));
    update frostline.made_table m set schema_name = n.nspname
      from pg_class c join pg_namespace n on n.oid = c.relnamespace
     where m.table_id = managed and c.oid = m.relation and c.relname = m.table_name
       and to_regclass(format('%I.%I', m.schema_name, m.table_name)) is null;
$$;

-- name: names_function
-- Before all others: they know heap and relation by the names that the catalog has.
create or replace function frostline.follow_names() returns event_trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $body$
declare
    altered record;
    ours text := (select n.nspname from pg_event_trigger_ddl_commands() d join pg_namespace n on n.oid = d.objid
                   where d.classid = 'pg_namespace'::regclass limit 1);
begin
    if tg_tag = 'ALTER SCHEMA' and ours is not null and exists (
        select from unnest(array['frostline', 'frostline_relation', 'frostline_overlay', 'frostline_lake', 'frostline_write']) as s (name)
         where to_regnamespace(s.name) is null) then
        raise object_not_in_prerequisite_state using message = format('a schema of Frostline''s cannot be called %I', ours),
            hint = 'Its functions know it by its name.';
    end if;
    if frostline.is_following() or current_setting('frostline.guard', true) = 'off' and pg_has_role(session_user, current_user, 'member') then
        return;
    end if;
    for altered in
        select distinct t.table_id
          from pg_event_trigger_ddl_commands() d
         cross join frostline.managed_table t
          join lateral frostline.names_found(t.table_id) f on true
         where t.mode = 'tiered'
           and (d.classid = 'pg_class'::regclass and d.objid in (f.heap, f.relation)
                or d.classid = 'pg_namespace'::regclass and (t.schema_name <> f.heap_schema or t.schema_name <> f.relation_schema))
         order by 1
    loop
        perform frostline.names_follow(altered.table_id);
    end loop;
end
$body$;
revoke execute on function frostline.follow_names() from public
