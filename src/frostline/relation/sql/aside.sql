-- Lets a column of the heap be dropped, or have another type: what Postgres would refuse for, our own objects, steps out of the way when
-- the ALTER TABLE begins and is made anew when it has ended. docs/design/schema-changes.md. What a function makes goes through format,
-- with names quoted.

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
    select said ~* '\malter\s+table\M[^;]*\m(?:drop\s+(?!constraint\M|not\M|default\M|expression\M)|type\M)'
$$;

-- name: says_cascade
-- In each statement of the text that drops the column from a table of this name: others may be of other tables.
create or replace function frostline.says_cascade(said text, heap oid, column_name text) returns boolean
language sql stable set search_path = pg_catalog, pg_temp as $$
    select coalesce(bool_and(s.statement ~* (d.dropped || '\s+cascade\M') and s.statement !~* (d.dropped || '(?!["\w$]|\s+cascade\M)')), false)
      from (select format('\malter\s+table\s+(?:if\s+exists\s+)?(?:only\s+)?(?:(?:"(?:[^"]|"")+"|[\w$]+)\s*\.\s*)?(?:"%s"|%s)(?![\w$"])', n.quoted[1], n.plain[1]),
                   format('\mdrop\s+(?:column\s+)?(?:if\s+exists\s+)?(?:"%s"|%s)', n.quoted[2], n.plain[2])
              from (select array_agg(regexp_replace(replace(u.name, '"', '""'), '(\W)', '\\\1', 'g') order by u.place),
                           array_agg(regexp_replace(u.name, '(\W)', '\\\1', 'g') order by u.place)
                      from unnest(array[(select c.relname::text from pg_class c where c.oid = heap), column_name]) with ordinality as u (name, place)
                   ) as n (quoted, plain)) as d (altered, dropped)
     cross join lateral regexp_split_to_table(said, ';') as s (statement)
     where s.statement ~* d.altered and s.statement ~* (d.dropped || '(?!["\w$])')
$$;

-- name: says_only_casts
-- USING may compute anything, and rows of the lake would not get it. What tools write says no more than the type does:
-- `alter column n type bigint using n::bigint`, spelled alike.
create or replace function frostline.says_only_casts(said text) returns boolean
language sql immutable set search_path = pg_catalog, pg_temp as $$
    select (select count(*) from regexp_matches(said, '\musing\M', 'gi'))
         = (select count(*) from regexp_matches(said,
                '\malter\s+(?:column\s+)?("(?:[^"]|"")+"|\w+)\s+(?:set\s+data\s+)?type\s+(\w+(?:\s+\w+)?(?:\s*\([\d\s,]*\))?)'
                '\s+using\s+(\1)\s*::\s*\2\s*(?=$|[,;''"])', 'gi') as m
             where m[1] = m[3] or left(m[1], 1) <> '"')
$$;

-- name: says_using
-- By what the text computes the column where it gives it another type: '' if by nothing, null if that cannot be told, as in a function. The
-- text is taken apart by strings, names, comments and parentheses. A string in dollars with a tag would need another way, and is not told.
create or replace function frostline.says_using(said text, heap oid, named text) returns text
language sql stable set search_path = pg_catalog, pg_temp as $body$
    with token as (
        select t.place, t.word[1] as word,
               coalesce(sum(case when t.word[1] in ('(', '[') then 1 when t.word[1] in (')', ']') then -1 end) over (order by t.place), 0) as depth
          from regexp_matches(said, $re$(--[^\n]*|/\*(?:[^*]|\*(?!/))*\*/|[eE]'(?:[^'\\]|\\.|'')*'|'(?:[^']|'')*'|"(?:[^"]|"")*"$re$
                                    || $re$|\$\$(?:[^$]|\$[^$])*\$\$|\w[\w$]*|.)$re$, 'g') with ordinality as t (word, place)
         where said !~ '\$[[:alpha:]_]\w*\$'
    ), part as (
        select t.*, count(*) filter (where t.word = ';' and t.depth = 0) over (order by t.place) as statement,
               count(*) filter (where t.word in (';', ',') and t.depth = 0) over (order by t.place) as number
          from token t
    ), split as (
        select p.*, min(p.place) filter (where lower(p.word) = 'using' and p.depth = 0) over (partition by p.number) as using from part p
         where p.word not in (';', ',') or p.depth > 0
    ), change as (
        select s.statement, s.number, string_agg(w.word, '' order by s.place) filter (where s.place < coalesce(s.using, s.place + 1)) as head,
               coalesce(btrim(string_agg(w.word, '' order by s.place) filter (where s.place > s.using), E' \n\t\r'), '') as expression
          from split s cross join lateral (select case when s.word ~ '^(--|/\*)' then ' ' else s.word end) as w (word)
         group by s.statement, s.number
    ), altered as (
        select c.expression, regexp_match(c.head, format('^\s*(?:%s\s*\*?\s+)?alter\s+(?:column\s+)?(%s)\s+(?:set\s+data\s+)?type\M', m.opened, m.name), 'i') as changed,
               first_value(regexp_match(c.head, '^\s*' || m.opened, 'i')) over (partition by c.statement order by c.number) as opened
          from change c
         cross join (select n.name, format('alter\s+table\s+(?:if\s+exists\s+)?(?:only\s+)?((?:%1$s\s*\.\s*)?%1$s)', n.name) as opened
                       from (select '(?:"(?:[^"]|"")+"|[[:alpha:]_][\w$]*)') as n (name)) as m
    )
    select case when count(*) = 1 then max(a.expression) when count(*) = 0 and said !~* '\musing\M' then '' end
      from altered a
     cross join lateral (select parse_ident(a.opened[1]) as altered, parse_ident(a.changed[2]) as changed) as n
     where n.altered[cardinality(n.altered)] = (select c.relname from pg_class c where c.oid = says_using.heap) and n.changed = array[named]
$body$;

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

-- name: refuse_readers_of_inner
-- The inner view is dropped and made again, and what others have made on it or its row type would go with it.
create or replace function frostline.refuse_readers_of_inner(managed integer) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    p jsonb := frostline.relation_names(managed);
    inner_view regclass := to_regclass(p ->> 'inner');
    reader text;
begin
    select min(pg_describe_object(i.classid, i.objid, 0)) into reader
      from pg_class c
      join pg_depend d on d.deptype = 'n' and (d.refclassid = 'pg_class'::regclass and d.refobjid = c.oid
                                               or d.refclassid = 'pg_type'::regclass
                                                  and d.refobjid in (select t.oid from pg_type t where t.typrelid = c.oid
                                                                     union all select t.typarray from pg_type t where t.typrelid = c.oid))
      left join pg_rewrite w on d.classid = 'pg_rewrite'::regclass and w.oid = d.objid
     cross join lateral (select case when w.oid is null then d.classid else 'pg_class'::regclass::oid end as classid, coalesce(w.ev_class, d.objid) as objid) i
     cross join lateral pg_identify_object(i.classid, i.objid, 0) o
     where c.oid = inner_view and i.objid not in (c.oid, to_regclass(p ->> 'relation')::oid)
       and coalesce(o.schema, '') not in ('frostline_relation', 'frostline_write')
       and not (i.classid = 'pg_trigger'::regclass and exists (select from pg_trigger t where t.oid = i.objid and t.tgrelid = c.oid and t.tgname like 'frostline%'));
    if reader is not null then
        raise dependent_objects_still_exist using
            message = format('columns of %s cannot be dropped or change their type while %s depends on %s, which is not for others', p ->> 'heap', reader, inner_view),
            hint = format('Drop it, and create it on %s, which has the same rows.', p ->> 'relation');
    end if;
end
$$;

-- name: stand_aside
-- Nothing of ours uses a column of the heap afterwards. The caller alters the heap next, and `stand_again` follows in the same transaction.
-- ACCESS EXCLUSIVE on the views.
create or replace function frostline.stand_aside(managed integer, said text) returns void
language plpgsql set search_path = pg_catalog, pg_temp set client_min_messages = warning as $$
declare
    p jsonb := frostline.relation_names(managed);
    name text;
begin
    if to_regclass(p ->> 'relation') is null or to_regclass(p ->> 'inner') is null
       or exists (select from frostline.aside a where a.xid = pg_current_xact_id() and a.table_id = managed) then
        return;
    end if;
    perform frostline.refuse_readers_of_inner(managed);
    perform frostline.renumber_columns(managed);
    insert into frostline.following values (pg_current_xact_id(), managed);
    insert into frostline.aside values (pg_current_xact_id(), managed, said, frostline.relation_grants(to_regclass(p ->> 'inner')));
    execute format('drop rule if exists frostline_insert on %s', p ->> 'relation');
    execute frostline.relation_stub(to_regclass(p ->> 'relation'));
    -- They need what falls with a column, such as its sequence. The heap has them.
    for name in select a.attname from pg_attribute a where a.attrelid = to_regclass(p ->> 'relation') and a.atthasdef loop
        execute format('alter view %s alter column %I drop default', p ->> 'relation', name);
    end loop;
    perform frostline.relation_drop_doors(p);
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
        -- Constraints that fell with it: one of the same name and text in the same statement is of another column.
        delete from frostline.cold_constraint k
         where k.table_id = managed and k.heap = frostline.heap_of(managed)
           and (k.kind = 'not null' and k.name = gone.column_name
                or k.kind = 'check' and not exists (select from pg_constraint o where o.oid = k.number));
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
language plpgsql set search_path = pg_catalog, pg_temp set extra_float_digits = 1 as $$
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
                                           and o.remote_name ~ format('^#%s[:=!]', m.field_id)) then '#' else '' end
         where m.table_id = managed and m.field_id = changed.field_id;
    end loop;
    perform frostline.name_remote_columns(managed);
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
        perform frostline.cold_keep(managed);
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
    inside text;
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
        -- A function that the client has called may say more than the client: what it sends is told by who called whom, in whatever
        -- language messages are. A function in SQL does not tell it, so it may compute anything.
        get diagnostics inside = pg_context;
        inside := substr(inside, nullif(strpos(inside, E'\n'), 0) + 1);
        perform frostline.stand_aside(managed, concat_ws(E';\n', said, inside, case when inside <> '' and inside !~* '^[^\n]*\malter\s+table\M' then 'using' end));
    end loop;
end
$body$;
revoke execute on function frostline.stand_aside_first() from public
