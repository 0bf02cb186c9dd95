-- What stands in the place of a relation and of views on it while a column of the heap is dropped or gets another type, and what brings
-- them back: docs/design/schema-changes.md. Called by `stand_again`. What a function makes goes through format, with names quoted.

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

-- name: checked_lake
-- The lake snapshot, with an overlay whose marks are seen: Postgres shows no row of a table to a snapshot that is older than its file, and
-- without its marks the lake's rows would come back. And with a heap whose columns the relation has followed. For the inner view, once for
-- each statement that asks the lake. Runs as the caller.
create or replace function frostline_write.checked_lake(lake_snapshot bigint, managed integer, heap oid, marked oid) returns bigint
language plpgsql stable parallel safe cost 1 as $$
begin
    -- The one is what the snapshot sees, the other what there is now: the statement has locked the overlay.
    if (select c.relfilenode operator(pg_catalog.<>) pg_catalog.pg_relation_filenode(c.oid) from pg_catalog.pg_class c
         where c.oid operator(pg_catalog.=) marked) then
        raise serialization_failure using message = 'a managed table was altered after the snapshot of this transaction',
            hint = 'Run the transaction again.';
    end if;
    perform frostline_write.require_known_heap(managed, heap, marked, 'read');
    return lake_snapshot;
end
$$;
grant execute on function frostline_write.checked_lake(bigint, integer, oid, oid) to public;

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
-- can stand aside too. Not one with a constant of a type that may have a domain in it: to read that text is to check the domain, with
-- code of whoever made it and with our rights.
create or replace function frostline.relation_readers(relation oid)
returns table (class oid, object oid, described text, view oid, used text[])
language sql stable set search_path = pg_catalog, pg_temp as $$
    select o.class, o.object, pg_describe_object(o.class, o.object, 0),
           max(v.oid::bigint) filter (where v.relkind = 'v' and not pg_is_other_temp_schema(v.relnamespace) and not exists (
               select from pg_depend k
                 join pg_type t on t.oid = k.refobjid
                 left join pg_type e on e.oid = t.typelem
                where k.classid = 'pg_rewrite'::regclass and k.objid = w.oid and k.refclassid = 'pg_type'::regclass
                  and 'dcrm' ~ coalesce(e.typtype, t.typtype)::text))::oid,
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

-- name: relation_conversion
-- The steps that give a column another type where ALTER TYPE cannot, as statements, or as commands where nothing follows a statement. What
-- USING says is computed from the old column; without it the value is assigned, as by ALTER TYPE. `using_text` is null where it is not known.
-- The heap has the new type already.
create or replace function frostline.relation_conversion(managed integer, field integer, using_text text) returns text
language sql stable set search_path = pg_catalog, pg_temp as $$
    select format('%s; update %s set %I = %s; %s; %s', steps.texts[1], frostline.relation_names(managed) ->> 'relation', free.name,
                  case using_text when '' then format('%I', m.name) else coalesce(using_text, '...') end, steps.texts[2], steps.texts[3])
      from frostline.managed_column m
      join frostline.managed_table t on t.table_id = m.table_id
     cross join lateral (select frostline.heap_of(managed) as oid) heap
      join pg_attribute a on a.attrelid = heap.oid and a.attnum = m.attnum
     cross join lateral (
        select frostline.cut_name(m.name, '_new' || coalesce(nullif(n.number, 1)::text, '')) as name from generate_series(1, 2000) as n (number)
         where not exists (select from pg_attribute x where x.attrelid = heap.oid
                              and x.attname = frostline.cut_name(m.name, '_new' || coalesce(nullif(n.number, 1)::text, '')))
         order by n.number limit 1) free
     cross join lateral (
        select array_agg(case when exists (select from pg_event_trigger e where e.evtname = 'frostline_follow' and e.evtenabled <> 'D')
                              then format('alter table %s %s', heap.oid::regclass, c.change)
                              -- Quoted for a shell.
                              else format('frostline table alter %I.%I ''%s''', t.schema_name, t.table_name, replace(c.change, '''', $quoted$'\''$quoted$)) end
                         order by c.place) as texts
          from unnest(array[
                   format('add column %I %s%s', free.name, format_type(a.atttypid, a.atttypmod),
                          (select format(' collate %s.%I', l.collnamespace::regnamespace, l.collname) from pg_collation l
                            where l.oid = a.attcollation and l.oid <> 100)),
                   format('drop column %I', m.name), format('rename column %I to %I', free.name, m.name)]) with ordinality as c (change, place)) steps
     where m.table_id = managed and m.field_id = field
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
    using_text text;
    readers text;
begin
    for changed in select c.* from frostline.changed_columns(managed) c order by c.field_id loop
        if changed.type is null and changed.is_key then
            raise feature_not_supported using
                message = format('column %I is part of the primary key of %s, by which a managed table knows its rows', changed.column_name, heap),
                hint = format('frostline table remove %s --thaw brings all rows back; then change the key, and add the table again', called);
        elsif changed.type is not null and not (changed.is_widened and frostline.says_only_casts(said)) then
            using_text := frostline.says_using(said, heap, changed.column_name);
            raise feature_not_supported using
                message = case when changed.is_widened then format('column %I of %s cannot be computed by USING: rows in the lake would not be', changed.column_name, heap)
                               else format('column %I of %s cannot become %s: rows in the lake have %s', changed.column_name, heap, changed.type, changed.old_type) end,
                detail = case when changed.is_key then 'It is part of the primary key, by which a managed table knows its rows.'
                              else 'Instead: add a column of the new type, fill it, by months where there are many rows, drop this one, and rename the new '
                                   'one. Its default, its constraints and its indexes are to be made again.' end
                         || case when using_text is null then ' What USING says goes in the place of the dots: a statement that a function puts together is not '
                                                              'read. Where it says no more than the type does, it is to be run by frostline.alter_table.'
                                 else '' end
                         || case when (select count(*) > 1 from frostline.changed_columns(managed) c where c.type is not null)
                                 then ' One column at a time: a USING that comes later sees what the others are by then.' else '' end,
                hint = case when changed.is_key then
                                 format('frostline table remove %s --thaw brings all rows back; then change the type, and add the table again', called)
                            else frostline.relation_conversion(managed, changed.field_id, using_text) end;
        end if;
        select string_agg(format('%s depends on column %I of %s', r.described, changed.column_name, relation), E'\n' order by r.described) into readers
          from frostline.relation_readers(relation) r where changed.column_name = any (r.used);
        if readers is not null and changed.type is not null then
            raise feature_not_supported using message = 'cannot alter type of a column used by a view or rule', detail = readers;
        elsif readers is not null and not frostline.says_cascade(said, heap, changed.column_name) then
            raise dependent_objects_still_exist using
                message = format('cannot drop column %I of %s because other objects depend on it', changed.column_name, heap),
                detail = readers, hint = 'Use DROP ... CASCADE to drop the dependent objects too.';
        end if;
    end loop;
end
$$;

-- name: drop_readers
-- Of columns that were dropped with CASCADE. What is left does not use them; a plain view can stand aside, and nothing else can.
-- The guards look at what falls with them: it may be part of another managed table.
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
        delete from frostline.following f where f.xid = pg_current_xact_id() and f.table_id = managed;
        execute format('drop %s %s cascade', reader.type, reader.identity);
        insert into frostline.following values (pg_current_xact_id(), managed);
    end loop;
    for reader in select r.described from frostline.relation_readers(relation) r where r.view is null order by 1 loop
        raise dependent_objects_still_exist using
            message = format('columns of %s cannot be dropped or change their type while %s depends on it', relation, reader.described),
            hint = 'Drop it first, and create it again.';
    end loop;
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
