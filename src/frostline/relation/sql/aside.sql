-- Lets a column of the heap be dropped, or have another type: what Postgres would refuse for, our own objects, steps out of the way when
-- the ALTER TABLE begins and is made anew when it has ended. docs/design/schema-changes.md. What a function makes goes through format,
-- with names quoted.

-- name: stands_aside
-- What a view reads that stands aside: an error is better than no rows.
create or replace function frostline_write.stands_aside() returns boolean
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
begin
    raise object_in_use using message = 'a managed table cannot be read while its columns are altered',
        hint = 'What ALTER TABLE itself calls must not read the relation.';
end
$$;
grant execute on function frostline_write.stands_aside() to public;

-- name: alter_table
-- For a statement that is put together at run time, which nobody could see otherwise. With the caller's rights.
create or replace function frostline.alter_table(heap regclass, change text) returns void
language plpgsql as $$
declare
    statement text := pg_catalog.format('alter table %s %s', heap, change);
begin
    perform pg_catalog.set_config('frostline.statement', statement, true);
    execute statement;
    perform pg_catalog.set_config('frostline.statement', '', true);
end
$$;
grant execute on function frostline.alter_table(regclass, text) to public;

-- name: needs_aside
-- Whether the text may drop a column or change a type. Where it does neither, what stood aside comes back as it was.
create or replace function frostline.needs_aside(said text) returns boolean
language sql immutable set search_path = pg_catalog, pg_temp as $$
    select said ~* '\mdrop\s+(?!constraint\M|not\M|default\M|expression\M|identity\M)' or said ~* '\mtype\M'
$$;

-- name: says_cascade
create or replace function frostline.says_cascade(said text, column_name text) returns boolean
language sql immutable set search_path = pg_catalog, pg_temp as $$
    select said ~* format('\mdrop\s+(?:column\s+)?(?:if\s+exists\s+)?(?:"%s"|%s)\s+cascade\M',
                          regexp_replace(replace(column_name, '"', '""'), '(\W)', '\\\1', 'g'), regexp_replace(column_name, '(\W)', '\\\1', 'g'))
$$;

-- name: says_only_casts
-- USING may compute anything, and rows of the lake would not get it. What tools write says no more than the type does:
-- `alter column n type bigint using n::bigint`, spelled alike.
create or replace function frostline.says_only_casts(said text) returns boolean
language sql immutable set search_path = pg_catalog, pg_temp as $$
    select (select count(*) from regexp_matches(said, '\musing\M', 'gi'))
         = (select count(*) from regexp_matches(said,
                '\malter\s+(?:column\s+)?("(?:[^"]|"")+"|\w+)\s+(?:set\s+data\s+)?type\s+(\w+(?:\s+\w+)?(?:\s*\([\d\s,]*\))?)\s+using\s+\1\s*::\s*\2\s*(?=$|[,;])',
                'gi'))
$$;

-- name: relation_stub
-- A view of the same columns that reads no table, in its own place: what reads it stays, and so do rights, owner and comments.
create or replace function frostline.relation_stub(view oid) returns text
language sql stable set search_path = pg_catalog, pg_temp as $$
    select format('create or replace view %I.%I%s as select %s where frostline_write.stands_aside()', n.nspname, c.relname,
                  (select ' with (' || string_agg(o, ', ') || ')' from unnest(c.reloptions) as o where o not like 'check_option=%'),
                  string_agg(format('null::%s%s as %I', format_type(a.atttypid, a.atttypmod),
                                    case when a.attcollation <> t.typcollation
                                         then format(' collate %s.%I', l.collnamespace::regnamespace, l.collname) end, a.attname),
                             ', ' order by a.attnum))
      from pg_class c
      join pg_namespace n on n.oid = c.relnamespace
      join pg_attribute a on a.attrelid = c.oid and a.attnum > 0
      join pg_type t on t.oid = a.atttypid
      left join pg_collation l on l.oid = a.attcollation
     where c.oid = view
     group by n.nspname, c.relname, c.reloptions
$$;

-- name: relation_grants
-- What gives another of the same name what was granted on this one. Whoever granted it, the owner did then.
create or replace function frostline.relation_grants(granted oid, columns text[] default null) returns text[]
language sql stable set search_path = pg_catalog, pg_temp as $$
    select array(
        select format('grant %s%s on %I.%I to %s%s', x.privilege_type, ' (' || frostline.identifier(g.column_name) || ')', n.nspname, c.relname,
                      case x.grantee when 0 then 'public' else frostline.identifier(pg_get_userbyid(x.grantee)) end,
                      case when x.is_grantable then ' with grant option' end)
          from pg_class c
          join pg_namespace n on n.oid = c.relnamespace
         cross join lateral (select null::text as column_name, c.relacl as acl
                             union all
                             select a.attname, a.attacl from pg_attribute a where a.attrelid = c.oid and a.attnum > 0 and (columns is null or a.attname = any (columns))) g
         cross join lateral aclexplode(g.acl) x
         where c.oid = granted)
$$;

-- name: relation_readers
-- What others have made on the relation or its row type: described, the columns that it uses, and the view if it is a plain one, which
-- can stand aside too.
create or replace function frostline.relation_readers(relation oid)
returns table (class oid, object oid, described text, view oid, used text[])
language sql stable set search_path = pg_catalog, pg_temp as $$
    select o.class, o.object, pg_describe_object(o.class, o.object, 0),
           max(v.oid::bigint) filter (where v.relkind = 'v' and not pg_is_other_temp_schema(v.relnamespace))::oid,
           coalesce(array_agg(distinct a.attname::text order by a.attname::text) filter (where a.attname is not null), array[]::text[])
      from pg_class c
      join pg_depend d on d.refclassid = 'pg_class'::regclass and d.refobjid = c.oid
                       or d.refclassid = 'pg_type'::regclass
                          and d.refobjid in (c.reltype, (select t.typarray from pg_type t where t.oid = c.reltype))
      left join pg_attribute a on d.refclassid = 'pg_class'::regclass and a.attrelid = c.oid and a.attnum = d.refobjsubid and d.refobjsubid > 0
      left join pg_rewrite w on d.classid = 'pg_rewrite'::regclass and w.oid = d.objid
      left join pg_class v on v.oid = w.ev_class and w.rulename = '_RETURN'
     cross join lateral (select case when v.oid is null then d.classid else 'pg_class'::regclass end as class, coalesce(v.oid, d.objid) as object) o
     where c.oid = relation and d.deptype <> 'i' and o.object <> c.oid
       and not exists (select from pg_attrdef f where d.classid = 'pg_attrdef'::regclass and f.oid = d.objid and f.adrelid = c.oid)
       and not exists (select from pg_trigger g where d.classid = 'pg_trigger'::regclass and g.oid = d.objid
                                                  and g.tgrelid = c.oid and g.tgname = 'frostline_copy')
       and (w.oid is null or w.ev_class <> c.oid or w.rulename <> 'frostline_insert')
     group by o.class, o.object
$$;

-- name: renumber_columns
-- After a restored dump, the numbers of the columns are not those that the heap has now.
create or replace function frostline.renumber_columns(managed integer) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    update frostline.managed_column m set attnum = -c.attnum from frostline.carried_columns(managed, frostline.heap_of(managed)) c
     where m.table_id = managed and m.field_id = c.field_id;
    update frostline.managed_column m set attnum = -m.attnum where m.table_id = managed;
end
$$;

-- name: stand_aside
-- Nothing of ours uses a column of the heap afterwards. The caller alters the heap next, and `stand_again` follows in the same transaction.
-- ACCESS EXCLUSIVE on the views.
create or replace function frostline.stand_aside(managed integer, said text) returns void
language plpgsql set search_path = pg_catalog, pg_temp set client_min_messages = warning as $$
declare
    p jsonb := frostline.relation_names(managed);
    door text;
    name text;
begin
    if to_regclass(p ->> 'relation') is null or to_regclass(p ->> 'inner') is null
       or exists (select from frostline.aside a where a.xid = pg_current_xact_id() and a.table_id = managed) then
        return;
    end if;
    perform frostline.renumber_columns(managed);
    insert into frostline.following values (pg_current_xact_id(), managed);
    insert into frostline.aside values (pg_current_xact_id(), managed, said, frostline.relation_grants(to_regclass(p ->> 'inner')));
    execute format('drop rule if exists frostline_insert on %s', p ->> 'relation');
    execute frostline.relation_stub(to_regclass(p ->> 'relation'));
    -- They need what falls with a column, such as its sequence. The heap has them.
    for name in select a.attname from pg_attribute a where a.attrelid = to_regclass(p ->> 'relation') and a.atthasdef loop
        execute format('alter view %s alter column %I drop default', p ->> 'relation', name);
    end loop;
    foreach door in array array['update_hot', 'update_cold', 'delete_hot', 'delete_cold', 'insert'] loop
        execute format('drop view if exists %s', p ->> (door || '_door'));
    end loop;
    execute format('drop view %s cascade', p ->> 'inner');
    perform frostline.forget_policies(managed);
    delete from frostline.following f where f.xid = pg_current_xact_id() and f.table_id = managed;
end
$$;

-- name: widens
-- Whether each value is the same in the other type, and files of the lake that have the one can be read as the other: what Iceberg calls
-- a promotion, and what is the same lake type anyway.
create or replace function frostline.widens(old regtype, old_modifier integer, new regtype, new_modifier integer) returns boolean
language sql immutable set search_path = pg_catalog, pg_temp as $$
    select case when old in ('int2'::regtype, 'int4'::regtype) then new = 'int8'::regtype or old = 'int2'::regtype and new = 'int4'::regtype
                when old = 'float4'::regtype then new = 'float8'::regtype
                when old = 'numeric'::regtype then new = old and old_modifier >= 4 and new_modifier >= old_modifier
                     and (old_modifier - 4) & 2047 = (new_modifier - 4) & 2047 and ((new_modifier - 4) & 2047) < 1024
                     and ((new_modifier - 4) >> 16) & 65535 <= 38
                when old in ('varchar'::regtype, 'text'::regtype) and new in ('varchar'::regtype, 'text'::regtype)
                  or old in ('timestamp'::regtype, 'timestamptz'::regtype) and new = old
                then new_modifier = -1 or old_modifier <> -1 and new_modifier >= old_modifier
                else false end
$$;

-- name: changed_columns
-- What the ALTER TABLE has done to the columns that the relation has: `type` is null for one that was dropped. The overlay has them as they were.
create or replace function frostline.changed_columns(managed integer)
returns table (field_id integer, column_name text, is_key boolean, old_type text, type text, is_widened boolean)
language sql stable set search_path = pg_catalog, pg_temp as $$
    select m.field_id, m.name, o.attnum = any (i.indkey), format_type(o.atttypid, o.atttypmod),
           case when not a.attisdropped then format_type(a.atttypid, a.atttypmod) end,
           not a.attisdropped and a.attcollation = o.attcollation
           and frostline.widens(o.atttypid::regtype, o.atttypmod, a.atttypid::regtype, a.atttypmod)
           and not exists (select from frostline.lake_encoding(o.atttypid, o.atttypmod, o.attcollation) e where e.as_text)
           and not exists (select from frostline.lake_encoding(a.atttypid, a.atttypmod, a.attcollation) e where e.as_text)
      from frostline.managed_column m
      join pg_attribute a on a.attrelid = frostline.heap_of(managed) and a.attnum = m.attnum
      join pg_index i on i.indrelid = to_regclass(frostline.relation_names(managed) ->> 'overlay') and i.indisprimary
      join pg_attribute o on o.attrelid = i.indrelid and o.attname = m.name and not o.attisdropped
     where m.table_id = managed
       and (a.attisdropped or (a.atttypid, a.atttypmod, a.attcollation) is distinct from (o.atttypid, o.atttypmod, o.attcollation))
$$;

-- name: refuse_changes
-- Before anything of ours is made anew: what cannot be followed, and readers of the relation that Postgres would refuse for on a table.
create or replace function frostline.refuse_changes(managed integer, said text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    heap regclass := frostline.heap_of(managed);
    relation regclass := to_regclass(frostline.relation_names(managed) ->> 'relation');
    called text := (select format('%I.%I', t.schema_name, t.table_name) from frostline.managed_table t where t.table_id = managed);
    changed record;
    readers text;
begin
    for changed in select c.* from frostline.changed_columns(managed) c order by c.field_id loop
        if changed.type is null and changed.is_key then
            raise feature_not_supported using
                message = format('column %I is part of the primary key of %s, by which a managed table knows its rows', changed.column_name, heap),
                hint = format('frostline table remove %s --thaw brings all rows back; then change the key, and add the table again', called);
        elsif changed.type is not null and not changed.is_widened then
            raise feature_not_supported using
                message = format('column %I of %s cannot become %s: rows in the lake have %s', changed.column_name, heap, changed.type, changed.old_type),
                hint = format('add a column of the new type, fill it by updates of %s, drop this one, and rename the new one', relation);
        elsif changed.type is not null and not frostline.says_only_casts(said) then
            raise feature_not_supported using
                message = format('column %I of %s cannot be computed by USING: rows in the lake would not be', changed.column_name, heap),
                hint = format('write no more than: alter column %I type %s using %1$I::%2$s; where the statement is put together in a function: '
                              'frostline.alter_table', changed.column_name, changed.type);
        end if;
        select string_agg(format('%s depends on column %I of %s', r.described, changed.column_name, relation), E'\n' order by r.described) into readers
          from frostline.relation_readers(relation) r where changed.column_name = any (r.used);
        if readers is not null and changed.type is not null then
            raise feature_not_supported using message = 'cannot alter type of a column used by a view or rule', detail = readers;
        elsif readers is not null and not frostline.says_cascade(said, changed.column_name) then
            raise dependent_objects_still_exist using
                message = format('cannot drop column %I of %s because other objects depend on it', changed.column_name, heap),
                detail = readers, hint = 'Use DROP ... CASCADE to drop the dependent objects too.';
        end if;
    end loop;
end
$$;

-- name: drop_readers
-- Of columns that were dropped with CASCADE. What is left does not use them; a plain view can stand aside, and nothing else can.
create or replace function frostline.drop_readers(managed integer) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    relation regclass := to_regclass(frostline.relation_names(managed) ->> 'relation');
    reader record;
begin
    loop
        select i.type, i.identity into reader
          from frostline.relation_readers(relation) r
         cross join lateral pg_identify_object(r.class, r.object, 0) i
         where exists (select from frostline.changed_columns(managed) c where c.type is null and c.column_name = any (r.used))
         order by i.identity limit 1;
        exit when not found;
        execute format('drop %s %s cascade', reader.type, reader.identity);
    end loop;
    for reader in select r.described from frostline.relation_readers(relation) r where r.view is null order by 1 loop
        raise dependent_objects_still_exist using
            message = format('columns of %s cannot be dropped or change their type while others than views use it', relation),
            detail = format('%s depends on it', reader.described), hint = 'Drop it first, and create it again.';
    end loop;
end
$$;

-- name: forget_columns
-- Overlay, lake tables and catalog without what was dropped. What is recorded of files is of these columns, with these types.
create or replace function frostline.forget_columns(managed integer) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    p jsonb := frostline.relation_names(managed);
    known integer[] := array(select m.field_id from frostline.managed_column m where m.table_id = managed order by m.attnum);
    gone record;
begin
    update frostline.lake_file f
       set fields = coalesce(f.fields, known),
           types = array(select m.lake_type from unnest(coalesce(f.fields, known)) with ordinality as u (field_id, place)
                           join frostline.managed_column m on m.table_id = managed and m.field_id = u.field_id order by u.place)
     where f.table_id = managed and f.types is null;
    for gone in select c.* from frostline.changed_columns(managed) c where c.type is null loop
        execute format('alter table %s drop column %I', p ->> 'overlay', gone.column_name);
        execute format('alter table %s drop column %I', p ->> 'lake', gone.column_name);
        with deleted as (delete from frostline.managed_column m where m.table_id = managed and m.field_id = gone.field_id returning m.*)
        insert into frostline.dropped_column (table_id, field_id, name, lake_type) select d.table_id, d.field_id, d.name, d.lake_type from deleted d;
    end loop;
end
$$;

-- name: change_types
-- Overlay, lake tables and catalog with the heap's types. The lake server is asked under another name, so that nobody who remembers
-- the column takes it for what it was.
create or replace function frostline.change_types(managed integer) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    p jsonb := frostline.relation_names(managed);
    changed record;
begin
    for changed in
        select c.field_id, r.name, r.type, r.needs_domain, substr(r.typed, length(r.name) + 2) as typed,
               substr(r.lake_typed, length(r.name) + 2) as lake_typed, e.lake_type, e.as_text, e.pushable
          from frostline.changed_columns(managed) c
          join frostline.relation_columns(managed) r on r.column_name = c.column_name
          join pg_attribute a on a.attrelid = frostline.heap_of(managed) and a.attnum = r.attnum
         cross join lateral frostline.lake_encoding(a.atttypid, a.atttypmod, a.attcollation) e
    loop
        if changed.needs_domain and to_regtype(format('frostline_lake.%I', 'lake ' || changed.type)) is null then
            execute format('create domain frostline_lake.%I as %s', 'lake ' || changed.type, changed.type);
        end if;
        execute format('alter table %s alter column %s type %s', p ->> 'overlay', changed.name, changed.typed);
        execute format('alter table %s alter column %s type %s', p ->> 'lake', changed.name, changed.lake_typed);
        update frostline.managed_column m
           set lake_type = changed.lake_type, as_text = changed.as_text, pushable = changed.pushable,
               missing = case when changed.lake_type = 'double' then m.missing::float4::float8::text else m.missing end,
               remote_name = format('#%s%s:%s', m.field_id, case when m.missing is not null then '!' end, changed.type)
                   || case when exists (select from frostline.managed_column o where o.table_id = managed and o.field_id <> m.field_id
                                           and o.remote_name like '#' || m.field_id || '%') then '#' else '' end
         where m.table_id = managed and m.field_id = changed.field_id;
    end loop;
    perform frostline.name_remote_columns(managed);
end
$$;

-- name: put_aside_readers
-- Views of others on the relation stand aside too, each in its own place, with what is needed to bring them back.
create or replace function frostline.put_aside_readers(relation oid) returns jsonb
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    views jsonb := coalesce((
        select jsonb_agg(jsonb_build_object('view', r.view::bigint, 'described', r.described, 'used', r.used, 'statement',
                   format('create or replace view %I.%I%s as %s', n.nspname, v.relname,
                          ' with (' || array_to_string(v.reloptions, ', ') || ')', pg_get_viewdef(v.oid))))
          from frostline.relation_readers(relation) r
          join pg_class v on v.oid = r.view
          join pg_namespace n on n.oid = v.relnamespace), '[]');
    reader jsonb;
begin
    for reader in select * from jsonb_array_elements(views) loop
        execute frostline.relation_stub((reader ->> 'view')::oid);
    end loop;
    return views;
end
$$;

-- name: bring_back_readers
-- As they were. A list of aliases that was printed for other columns could name the wrong ones: then they would use others than before.
create or replace function frostline.bring_back_readers(relation oid, views jsonb) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    reader jsonb;
begin
    for reader in select * from jsonb_array_elements(views) loop
        begin
            execute reader ->> 'statement';
        exception when syntax_error_or_access_rule_violation or invalid_table_definition then
            raise dependent_objects_still_exist using message = format('%s cannot be made anew: %s', reader ->> 'described', sqlerrm),
                hint = 'Drop it first, and create it again.';
        end;
    end loop;
    for reader in
        select v.value from jsonb_array_elements(views) v
         where not exists (select from frostline.relation_readers(relation) r
                            where r.view = (v.value ->> 'view')::oid and to_jsonb(r.used) = v.value -> 'used')
    loop
        raise dependent_objects_still_exist using message = format('%s would use other columns than before', reader ->> 'described'),
            hint = 'Drop it first, and create it again.';
    end loop;
end
$$;

-- name: make_relation
-- The relation in the place of what stands for it: the same view, or another of other columns with the same owner, rights and options.
create or replace function frostline.make_relation(managed integer, is_another boolean) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    p jsonb := frostline.relation_parts(managed);
    view record;
    grants text[];
    statement text;
begin
    select c.oid, c.relacl, array_to_string(c.reloptions, ', ') as options, frostline.identifier(pg_get_userbyid(c.relowner)) as owner into view
      from pg_class c where c.oid = to_regclass(p ->> 'relation');
    grants := frostline.relation_grants(view.oid, array(select r.column_name from frostline.relation_columns(managed) r));
    if is_another then
        execute format('drop view %s', p ->> 'relation');
    end if;
    execute frostline.filled(case when is_another then 'objects.outer_view' else 'objects.widen_view' end, p);
    if view.options is not null then
        execute format('alter view %s set (%s)', p ->> 'relation', view.options);
    end if;
    if not is_another then
        return;
    end if;
    execute format('alter view %s owner to %s', p ->> 'relation', view.owner);
    -- What default privileges have given to it, it did not have.
    for statement in
        select distinct format('revoke all on %s from %s', p ->> 'relation',
                               case x.grantee when 0 then 'public' else frostline.identifier(pg_get_userbyid(x.grantee)) end)
          from pg_class c
         cross join lateral aclexplode(coalesce(c.relacl, acldefault('r', c.relowner))) x
         where c.oid = to_regclass(p ->> 'relation')
    loop
        execute statement;
    end loop;
    if view.relacl is null then
        execute format('grant all on %s to %s', p ->> 'relation', view.owner);
    end if;
    foreach statement in array grants loop
        execute statement;
    end loop;
end
$$;

-- name: stand_again
-- All that stood aside, for the heap as it is now; nothing if nothing did. The caller has altered the heap, and follows the rest.
-- ACCESS EXCLUSIVE on views, overlay and lake tables; asks nobody, and reads no file.
create or replace function frostline.stand_again(managed integer) returns void
language plpgsql set search_path = pg_catalog, pg_temp set client_min_messages = warning as $$
declare
    p jsonb := frostline.relation_names(managed);
    was record;
    is_another boolean;
    readers jsonb := '[]';
    statement text;
begin
    delete from frostline.aside a where a.xid = pg_current_xact_id() and a.table_id = managed returning a.* into was;
    if not found then
        return;
    end if;
    perform frostline.refuse_changes(managed, was.statement);
    is_another := exists (select from frostline.changed_columns(managed));
    if is_another then
        perform frostline.drop_readers(managed);
        readers := frostline.put_aside_readers(to_regclass(p ->> 'relation'));
        perform frostline.forget_columns(managed);
        perform frostline.change_types(managed);
    end if;
    perform frostline.follow_renames(managed);
    if (select h.relrowsecurity from pg_class h where h.oid = frostline.heap_of(managed)) then
        perform frostline.follow_policies(managed);
    end if;
    p := frostline.relation_parts(managed);
    p := p || jsonb_build_object('arms', frostline.filled('objects.arms', p));
    execute frostline.filled(case when (p ->> 'is_secured')::boolean then 'objects.inner_view_secured' else 'objects.inner_view' end, p);
    foreach statement in array was.grants loop
        execute statement;
    end loop;
    perform frostline.make_relation(managed, is_another);
    perform frostline.bring_back_readers(to_regclass(p ->> 'relation'), readers);
    perform frostline.replace_objects(managed);
end
$$;

-- name: aside_function
-- Where the statement that begins may drop a column of a heap or change its type. Only an ALTER TABLE calls it, whose end brings all back:
-- what has stood aside cannot be committed. Runs with its owner's rights, and calls nothing of the user's.
create or replace function frostline.stand_aside_first() returns event_trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $body$
declare
    said text := concat_ws(E';\n', current_query(), current_setting('frostline.statement', true));
    managed integer;
begin
    if frostline.is_following() or not frostline.needs_aside(said)
       or not exists (select from pg_event_trigger e join pg_event_trigger o on o.evtname = 'frostline_stand_aside' and o.evtenabled = e.evtenabled
                       where e.evtname = 'frostline_follow') then
        return;
    end if;
    for managed in
        select t.table_id from frostline.managed_table t join pg_class h on h.oid = frostline.heap_of(t.table_id)
         where t.mode = 'tiered' and h.oid = any (string_to_array(nullif(current_setting('frostline.named', true), ''), ',')::oid[])
           and pg_has_role(session_user, h.relowner, 'member')
         order by t.table_id
    loop
        perform frostline.stand_aside(managed, said);
    end loop;
end
$body$;
revoke execute on function frostline.stand_aside_first() from public
