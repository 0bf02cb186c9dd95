-- Constraints of a heap, for the rows that only the lake has: docs/design/constraints.md. Called by the event trigger, and by
-- `frostline table sync`. What a CHECK calls runs with our rights, so it must be trusted code: docs/design/deputies.md.

-- name: cold_constraints
-- What the heap holds or will hold, with what is known of the rows in the lake; null for what came since we looked. Foreign keys are
-- among them that are held for the lake. Reads system catalogs and our own tables, locks nothing. The key's columns have been NOT NULL
-- from the beginning.
create or replace function frostline.cold_constraints(managed integer)
returns table (kind text, name text, heap oid, number oid, definition text, is_valid boolean, attnums smallint[], age integer, state text)
language sql stable set search_path = pg_catalog, pg_temp as $$
    select c.kind, c.name, h.heap, c.number, c.definition, c.is_valid, c.attnums, c.age,
           (select k.state from frostline.cold_constraint k
             where k.table_id = managed and k.kind = c.kind
               and (k.heap = h.heap and k.number = c.number
                    -- What a foreign key says is not all of what it means: its table may have got other keys.
                    or k.name = c.name and k.definition = c.definition and (c.kind <> 'foreign key' or k.heap <> h.heap))
             order by k.heap = h.heap and k.number = c.number desc limit 1)
      from (select frostline.heap_of(managed) as heap) h
     cross join lateral (
        select 'check' as kind, o.conname::text as name, o.oid as number, pg_get_expr(o.conbin, o.conrelid) as definition,
               o.convalidated as is_valid, coalesce(o.conkey, array[]::smallint[]) as attnums, age(o.xmin) as age
          from pg_constraint o where o.conrelid = h.heap and o.contype = 'c'
        union all
        select 'foreign key', o.conname, o.oid, regexp_replace(pg_get_constraintdef(o.oid), ' NOT VALID$', ''), o.convalidated, o.conkey, age(o.xmin)
          from pg_constraint o join frostline.managed_table t on t.table_id = managed and t.foreign_keys = 'hold'
         where o.conrelid = h.heap and o.contype = 'f' and o.conparentid = 0 and frostline.foreign_key_obstacle(o.oid) is null
        union all
        select 'not null', a.attname::text, a.attnum::integer::oid, '', not exists (
                   select from pg_constraint o where o.conrelid = h.heap and o.contype = 'n' and o.conkey = array[a.attnum] and not o.convalidated),
               array[a.attnum], least(age(a.xmin), (select age(o.xmin) from pg_constraint o
                                                     where o.conrelid = h.heap and o.contype = 'n' and o.conkey = array[a.attnum]))
          from pg_attribute a
         where a.attrelid = h.heap and a.attnum > 0 and not a.attisdropped and a.attnotnull
           and not a.attnum = any (frostline.known_key(managed))) c
$$;

-- name: cold_record
-- Writes down what there is now, if it is not known already. Where the lake has no row, what the heap holds is held.
create or replace function frostline.cold_record(managed integer) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    is_cold boolean := exists (select from frostline.lake_file f where f.table_id = managed);
    listed jsonb := (select coalesce(jsonb_agg(jsonb_build_object('kind', c.kind, 'name', c.name, 'heap', c.heap, 'number', c.number, 'definition', c.definition,
                         'state', case when not c.is_valid then 'not valid' when c.state = 'held' or not is_cold then 'held' else 'unseen' end)), '[]')
                       from frostline.cold_constraints(managed) c);
begin
    delete from frostline.cold_constraint k
     where k.table_id = managed and not listed @> jsonb_build_array(to_jsonb(k) - 'table_id');
    insert into frostline.cold_constraint (table_id, kind, name, heap, number, definition, state)
    select managed, c.kind, c.name, c.heap, c.number, c.definition, c.state
      from jsonb_to_recordset(listed) as c (kind text, name text, heap oid, number oid, definition text, state text)
    on conflict do nothing;
end
$$;

-- name: cold_proof
-- Whether rows of the lake hold it by what the catalog knows: a CHECK that says NOT NULL holds already, or no file has a column of it, and
-- the value that such rows have instead passes. Of foreign keys, `cold_key_proof` says it.
create or replace function frostline.cold_proof(managed integer, kind_of text, named text) returns boolean
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    wanted record;
    passes boolean;
begin
    select c.*, case c.kind when 'check' then c.definition else format('(%I IS NOT NULL)', c.name) end as condition into wanted
      from frostline.cold_constraints(managed) c where c.kind = kind_of and c.name = named;
    if kind_of = 'foreign key' then
        return frostline.cold_key_proof(managed, wanted.number);
    end if;
    if kind_of = 'not null' and exists (select from frostline.cold_constraints(managed) c
                                         where c.kind = 'check' and c.state = 'held' and c.is_valid and c.definition = wanted.condition) then
        return true;
    end if;
    if cardinality(wanted.attnums) = 0
       or (select o.conbin::text like '%:varattno 0 %' from pg_constraint o where kind_of = 'check' and o.oid = wanted.number)
       or exists (select from frostline.lake_file f
                    join frostline.carried_columns(managed, wanted.heap) c on c.attnum = any (wanted.attnums)
                   where f.table_id = managed and (f.fields is null or c.field_id = any (f.fields)))
       or not wanted.attnums <@ array(select c.attnum from frostline.carried_columns(managed, wanted.heap) c) then
        return false;
    end if;
    -- Each row has a value of its own, and not NULL.
    if exists (select from frostline.managed_column m
                 join frostline.relation_columns(managed) c on c.column_name = m.name and c.attnum = any (wanted.attnums)
                where m.table_id = managed and c.type = 'uuid' and m.missing like 'uuid%') then
        return kind_of = 'not null';
    end if;
    execute format('select (%s) is not false from (select %s) as %I', wanted.condition,
                   (select string_agg(format('%L::%s as %s', case when c.type <> 'uuid' or m.missing not like 'uuid%' then m.missing end, c.type, c.name), ', ' order by c.number)
                      from frostline.relation_columns(managed) c join frostline.managed_column m on m.table_id = managed and m.name = c.column_name),
                   (select h.relname from pg_class h where h.oid = wanted.heap)) into passes;
    return passes;
end
$$;

-- name: cold_rows
-- The query of the rows that only the lake shows, without the relation's policies. For `relation.references` too.
create or replace function frostline.cold_rows(managed integer) returns text
language sql stable set search_path = pg_catalog, pg_temp as $$
    select format('select %s from (%s) as u where u.frostline_tier = ''lake''', p.parts ->> 'columns', frostline.filled('objects.arms', p.parts))
      from (select frostline.relation_parts(managed) as parts) p
$$;

-- name: cold_question
-- Asks whether a row that only the lake has breaks it. Without the relation's policies: nobody sees a row of the answer.
create or replace function frostline.cold_question(managed integer, breaks text) returns text
language sql stable set search_path = pg_catalog, pg_temp as $$
    select format('select exists (select from (%s) as %I where %s)', frostline.cold_rows(managed),
                  (select h.relname from pg_class h where h.oid = frostline.heap_of(managed)), breaks)
$$;

-- name: cold_rows_break
-- The answer of the lake. A transaction with one snapshot for all its statements is told (40001) if the seam has moved since.
create or replace function frostline.cold_rows_break(managed integer, breaks text, constrained text) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    heap oid := frostline.heap_of(managed);
    strange record;
    is_broken boolean;
    reason text;
begin
    select c.object, c.code into strange from frostline.untrusted_code(heap) c limit 1;
    if found then
        raise insufficient_privilege using
            message = format('%s would run %s with the rights of Frostline on rows of %s in the lake', strange.object, strange.code, heap::regclass),
            hint = format('the function must be stable or immutable, and belong to a superuser or to %s', current_user);
    end if;
    if current_setting('transaction_isolation') in ('repeatable read', 'serializable') then
        begin
            perform from frostline.seam as s where s.table_id = managed for share;
            raise exception using errcode = 'FL000', message = 'the seam is current';
        exception when sqlstate 'FL000' then
            null;
        end;
    end if;
    execute frostline.cold_question(managed, breaks) into is_broken;
    return is_broken;
exception when others then
    if left(sqlstate, 2) not in ('08', 'HV') then
        raise;
    end if;
    get stacked diagnostics reason = message_text;
    raise exception using errcode = sqlstate,
        message = format('cannot tell whether rows of %s in the lake hold %s: %s', heap::regclass, constrained, reason),
        hint = 'Try again when the lake server is up; frostline doctor says what is wrong with it.';
end
$$;

-- name: cold_look
-- An error if a row of the lake breaks the constraint; else it is held from now on. Asks the lake.
create or replace function frostline.cold_look(managed integer, kind_of text, named text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    looked record;
    relation text := (select format('%I.%I', t.schema_name, coalesce(t.relation_name, t.table_name)) from frostline.managed_table t
                       where t.table_id = managed);
    breaks text;
begin
    select * into strict looked from frostline.cold_constraints(managed) c where c.kind = kind_of and c.name = named;
    if kind_of = 'foreign key' then
        perform frostline.cold_require_parent(looked.number);
    end if;
    breaks := case kind_of
        when 'check' then format('not (%s)', looked.definition)
        when 'not null' then format('%I is null', named)
        else frostline.cold_orphan(looked.number, (select quote_ident(c.relname) from pg_class c where c.oid = looked.heap)) end;
    if frostline.cold_rows_break(managed, breaks, case kind_of when 'check' then format('constraint %I', named)
                                                               when 'not null' then format('NOT NULL of %I', named)
                                                               else format('foreign key %I', named) end) then
        raise exception using
            errcode = case kind_of when 'check' then 'check_violation' when 'not null' then 'not_null_violation' else 'foreign_key_violation' end,
            message = case kind_of when 'not null' then format('column %I of relation %s contains null values in the lake', named, looked.heap::regclass)
                                   else format('%s constraint %I of relation %s is violated by some row in the lake', kind_of, named,
                                               looked.heap::regclass) end,
            hint = case kind_of when 'foreign key'
                                then format('They are cold rows: select * from %s as child where %s', relation,
                                            frostline.cold_orphan(looked.number, 'child', is_told => true))
                                else format('They are cold rows: select * from %s where %s', relation, breaks) end,
            schema = (select n.nspname from pg_class c join pg_namespace n on n.oid = c.relnamespace where c.oid = looked.heap),
            table = (select c.relname from pg_class c where c.oid = looked.heap),
            constraint = case kind_of when 'not null' then '' else named end,
            column = case kind_of when 'not null' then named else '' end;
    end if;
    -- By its number: whoever dropped it meanwhile and made another one of the same name has not had that looked at.
    insert into frostline.cold_constraint as k (table_id, kind, name, heap, number, definition, state)
    select managed, c.kind, c.name, c.heap, c.number, c.definition, 'held' from frostline.cold_constraints(managed) c
     where c.kind = kind_of and c.number = looked.number and c.is_valid
    on conflict (table_id, kind, name) do update
       set heap = excluded.heap, number = excluded.number, definition = excluded.definition, state = 'held';
end
$$;

-- name: cold_keep
-- ALTER TYPE makes each CHECK of the column anew, from its text. What was known of it is still known, if that text over the wider type says
-- the same of each value: text, decimals and times are what they were; so are whole numbers that are compared and reckoned with, but for
-- their bits and what functions make of them. Else it is as if it was new. Before `change_types`: the overlay has the old types.
create or replace function frostline.cold_keep(managed integer) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    altered oid := frostline.heap_of(managed);
    scratch text := frostline.identifier('frostline_relation', 'checked_' || managed);
    again record;
    same text;
begin
    -- A foreign key is made anew with the same text, and asks for the same rows: the values are the same.
    update frostline.cold_constraint k set number = o.oid
      from pg_constraint o
     where k.table_id = managed and k.kind = 'foreign key' and k.heap = altered and not exists (select from pg_constraint p where p.oid = k.number)
       and o.conrelid = altered and o.contype = 'f' and o.conparentid = 0 and o.conname = k.name
       and regexp_replace(pg_get_constraintdef(o.oid), ' NOT VALID$', '') = k.definition;
    -- The texts of the others are read again, with our rights.
    if exists (select from frostline.untrusted_code(altered)) then
        return;
    end if;
    for again in
        select k.name, k.definition as old, o.oid as number, n.definition
          from frostline.cold_constraint k
          join pg_constraint o on o.conrelid = altered and o.contype = 'c' and o.conname = k.name and o.convalidated
         cross join lateral (select pg_get_expr(o.conbin, o.conrelid) as definition) n
         -- Without literals and names in quotes, in which anything may be.
         cross join lateral (select regexp_replace(n.definition, '''[^'']*''|"[^"]*"', '', 'g') as code) c
         where k.table_id = managed and k.kind = 'check' and k.state <> 'not valid' and k.heap = altered
           and not exists (select from pg_constraint p where p.oid = k.number)
           and not exists (
               select from frostline.changed_columns(managed) x
                 join frostline.managed_column m on m.table_id = managed and m.field_id = x.field_id
                 join pg_attribute a on a.attrelid = altered and a.attnum = m.attnum
                where m.attnum = any (o.conkey)
                  and a.atttypid not in ('text'::regtype, 'varchar'::regtype, 'numeric'::regtype, 'timestamp'::regtype, 'timestamptz'::regtype)
                  and not (a.atttypid in ('int4'::regtype, 'int8'::regtype) and c.code !~ '[|&#~^!@?]|<<|>>'
                           and c.code !~* '\m(?!(and|or|not|any|all|array|in|when|then|else|case)\M)\w+\s*\('))
    loop
        begin
            execute format('create table %1$s (like %2$s); alter table %1$s add constraint again check (%3$s)', scratch, altered::regclass, again.old);
            select pg_get_expr(o.conbin, o.conrelid) into same from pg_constraint o where o.conrelid = scratch::regclass and o.conname = 'again';
            execute format('drop table %s', scratch);
        exception when syntax_error_or_access_rule_violation then
            continue;
        end;
        if same = again.definition then
            update frostline.cold_constraint k set number = again.number, definition = again.definition
             where k.table_id = managed and k.kind = 'check' and k.name = again.name;
        end if;
    end loop;
    update frostline.cold_constraint k set number = 0, definition = ''
      from pg_constraint o
     where k.table_id = managed and k.kind = 'check' and k.heap = altered and not exists (select from pg_constraint p where p.oid = k.number)
       and o.conrelid = altered and o.contype = 'c' and o.conname = k.name and o.conkey && array(
           select m.attnum from frostline.changed_columns(managed) x
             join frostline.managed_column m on m.table_id = managed and m.field_id = x.field_id where x.type is not null);
end
$$;

-- name: cold_judge
-- What an ALTER TABLE of this transaction has brought: held by proof, asked of the lake if it was NOT VALID before or is a foreign key, or
-- else refused: ADD CHECK and SET NOT NULL keep every reader out, and would do so for as long as the lake takes.
create or replace function frostline.cold_judge(managed integer) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    now_age integer := age(pg_current_xact_id()::xid);
    fresh record;
    held_by text;
begin
    if exists (select from frostline.lake_file f where f.table_id = managed) then
        for fresh in
            select c.* from frostline.cold_constraints(managed) c
             where c.is_valid and c.age <= now_age and (c.state is null or c.state = 'not valid')
             order by c.kind, c.number
        loop
            if frostline.cold_proof(managed, fresh.kind, fresh.name) then
                insert into frostline.cold_constraint as k (table_id, kind, name, heap, number, definition, state)
                values (managed, fresh.kind, fresh.name, fresh.heap, fresh.number, fresh.definition, 'held')
                on conflict (table_id, kind, name) do update
                   set heap = excluded.heap, number = excluded.number, definition = excluded.definition, state = 'held';
            elsif fresh.state = 'not valid' then
                perform frostline.cold_look(managed, fresh.kind, fresh.name);
            elsif fresh.kind = 'foreign key' then
                perform frostline.cold_look_at_new_key(managed, fresh.name, fresh.attnums);
            else
                held_by := case fresh.kind when 'check' then fresh.name else frostline.cut_name(fresh.name, '_not_null') end;
                raise object_not_in_prerequisite_state using
                    message = format('%s has rows in the lake, which %s does not look at', fresh.heap::regclass,
                                     case fresh.kind when 'check' then format('ADD CONSTRAINT %I', fresh.name)
                                                     else format('SET NOT NULL of column %I', fresh.name) end),
                    detail = 'It keeps all readers of the table waiting, and would do so for as long as the lake takes.',
                    hint = case when fresh.kind = 'check' and exists (
                                     select from frostline.cold_constraint k where k.table_id = managed and k.kind = 'check' and k.name = fresh.name)
                                then format('alter table %s drop constraint %I; then this statement again; then: ', fresh.heap::regclass, held_by) else '' end
                           || format('Add it NOT VALID, which holds for new rows at once: alter table %1$s add constraint %2$I %3$s not valid; '
                                  'then, in another transaction: alter table %1$s validate constraint %2$I%4$s', fresh.heap::regclass, held_by,
                                  case fresh.kind when 'check' then (select pg_get_constraintdef(o.oid) from pg_constraint o where o.oid = fresh.number)
                                                  else format('check (%I is not null)', fresh.name) end,
                                  case fresh.kind when 'check' then '' else format('; then SET NOT NULL once more; then alter table %s drop constraint %I',
                                                                                   fresh.heap::regclass, held_by) end);
            end if;
        end loop;
    end if;
    perform frostline.cold_warn_of_keys(managed);
    perform frostline.cold_record(managed);
end
$$;

-- name: cold_judge_domain
-- Rows of the lake are read by the domain's input function, which knows of each constraint, valid or not: so all of them must hold it, those
-- that a mark hides included. ALTER DOMAIN keeps writers out, and no readers.
create or replace function frostline.cold_judge_domain(managed integer, altered oid) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    relation text := (select format('%I.%I', t.schema_name, t.table_name) from frostline.managed_table t where t.table_id = managed);
    typed record;
    reason text;
begin
    for typed in
        select c.name from frostline.relation_columns(managed) c
          join pg_attribute a on a.attrelid = frostline.heap_of(managed) and a.attnum = c.attnum
         where exists (select from frostline.cold_types_in(a.atttypid) as y (oid) where y.oid = altered)
         order by c.number
    loop
        begin
            -- Never true; but each value has to be read for it, here and not by the lake server.
            perform frostline.cold_rows_break(managed, format('%s::text is distinct from %1$s::text || ''''', typed.name),
                                              format('domain %s', altered::regtype));
        exception when check_violation or not_null_violation then
            get stacked diagnostics reason = message_text;
            raise exception using errcode = sqlstate,
                message = format('column %s of %s has other values in the lake: %s', typed.name, frostline.heap_of(managed)::regclass, reason),
                hint = format('They are cold rows. Change them first, then have them written: UPDATE, then frostline fold %s', relation);
        end;
    end loop;
end
$$;

-- name: cold_type_is_other
-- Whether this transaction has changed what the text of a value means: an enum's label has another name, a row type more attributes or fewer.
-- A new label is one that Postgres does not let us use before the commit; a new attribute is told from a renamed one by the type's own row.
create or replace function frostline.cold_type_is_other(altered oid) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    now_age integer := age(pg_current_xact_id()::xid);
    label name;
begin
    -- A new one between two others may have Postgres number all of them anew.
    for label in
        select e.enumlabel from pg_enum e
         where e.enumtypid = altered and age(e.xmin) <= now_age
           and not (current_query() ~* '\madd\s+value\M' and current_query() !~* '\mrename\s+value\M')
    loop
        begin
            execute format('select %L::%s', label, altered::regtype);
            return true;
        exception when unsafe_new_enum_value_usage then
            null;
        end;
    end loop;
    return exists (select from pg_type y
                     join pg_class c on c.oid = y.typrelid
                     join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and age(a.xmin) <= now_age
                    where y.oid = altered
                      and (a.attisdropped or age(c.xmin) <= now_age and current_query() !~* '\mrename\s+attribute\M'));
end
$$;

-- name: type_function
-- What the lake has of an enum or a composite type is its text, which the type has to understand still.
create or replace function frostline.follow_types() returns event_trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $body$
declare
    lost record;
    labels text[] := regexp_match(current_query(), '\mrename\s+value\s+(''(?:[^'']|'''')+'')\s+to\s+(''(?:[^'']|'''')+'')', 'i');
begin
    if frostline.is_following() then
        return;
    end if;
    select y.oid::regtype as type, y.typtype = 'e' as is_enum, a.atttypid = y.oid as is_column, t.schema_name, t.table_name, c.name,
           format('%I.%I', t.schema_name, coalesce(t.relation_name, t.table_name)) as relation into lost
      from pg_event_trigger_ddl_commands() d
      join pg_type y on d.classid = 'pg_type'::regclass and y.oid = d.objid or d.classid = 'pg_class'::regclass and y.typrelid = d.objid
     cross join frostline.managed_table t
     cross join lateral frostline.relation_columns(t.table_id) c
      join pg_attribute a on a.attrelid = frostline.heap_of(t.table_id) and a.attnum = c.attnum
     where t.mode = 'tiered' and exists (select from frostline.lake_file f where f.table_id = t.table_id)
       and exists (select from frostline.cold_types_in(a.atttypid) as n (oid) where n.oid = y.oid) and frostline.cold_type_is_other(y.oid)
     limit 1;
    if found then
        raise object_not_in_prerequisite_state using
            message = format('rows of %I.%I in the lake have values of type %s as they were written', lost.schema_name, lost.table_name, lost.type),
            detail = format('Those in column %s could not be read any more.', lost.name),
            hint = case when lost.is_enum and lost.is_column
                        then format('alter type %1$s add value %2$s; update %3$s set %4$s = %2$s where %4$s = %5$s', lost.type,
                                                      coalesce(labels[2], '...'), lost.relation, lost.name, coalesce(labels[1], '...'))
                        when lost.is_enum then format('Add the new label instead, and change the rows: alter type %s add value ..., then update %s set ...',
                                                      lost.type, lost.relation)
                        else format('Add a column of another type to the table, and fill it: update %s set ...', lost.relation) end;
    end if;
end
$body$;
revoke execute on function frostline.follow_types() from public

-- name: constraint_function
create or replace function frostline.follow_constraints() returns event_trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $body$
declare
    is_ours boolean := current_setting('frostline.guard', true) = 'off' and pg_has_role(session_user, current_user, 'member');
    now_age integer := age(pg_current_xact_id()::xid);
    altered record;
begin
    if frostline.is_following() then
        return;
    end if;
    for altered in
        select distinct t.table_id, null::oid as domain
          from pg_event_trigger_ddl_commands() d
          join frostline.managed_table t on d.objid = frostline.heap_of(t.table_id)
         where d.classid = 'pg_class'::regclass and t.mode = 'tiered'
        union all
        select distinct t.table_id, y.oid
          from pg_event_trigger_ddl_commands() d
          join pg_type y on y.oid = coalesce((select o.contypid from pg_constraint o where d.classid = 'pg_constraint'::regclass and o.oid = d.objid), d.objid)
          join frostline.managed_table t on t.mode = 'tiered'
         where d.command_tag = 'ALTER DOMAIN'
           -- What adds nothing is known by its text, if that has nothing else.
           and current_query() !~* '^\s*alter\s+domain\s+(?:"(?:[^"]|"")+"|[\w$.])+\s+(?:rename|owner\s+to|drop|set\s+(?:default|schema))\M[^;]*;?\s*$'
           and exists (select from frostline.lake_file f where f.table_id = t.table_id)
           and (exists (select from pg_constraint o where o.contypid = y.oid and age(o.xmin) <= now_age)
                or y.typnotnull and age(y.xmin) <= now_age)
    loop
        if altered.domain is null and is_ours then
            perform frostline.cold_record(altered.table_id);
        elsif altered.domain is null then
            perform frostline.cold_judge(altered.table_id);
        else
            perform frostline.cold_judge_domain(altered.table_id, altered.domain);
        end if;
    end loop;
end
$body$;
revoke execute on function frostline.follow_constraints() from public

-- name: dropped_function
-- With what it calls, by CASCADE: the next one of its name is another. What ALTER TABLE drops, follow_constraints sees.
create or replace function frostline.follow_dropped_constraints() returns event_trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $body$
begin
    if to_regclass('frostline.managed_table') is null or to_regclass('frostline.cold_constraint') is null then
        return;  -- the catalog itself is dropped, which is for the guards to say
    end if;
    delete from frostline.cold_constraint k
     using pg_event_trigger_dropped_objects() d, frostline.managed_table t
     where tg_tag <> 'ALTER TABLE' and d.object_type = 'table constraint' and k.table_id = t.table_id and k.kind <> 'not null'
       and d.address_names = array[t.schema_name, t.heap_name, k.name];
    -- Nothing else tells that the primary key was among them.
    perform frostline.refuse_other_key(t.table_id, is_dropped => true)
       from pg_event_trigger_dropped_objects() d join frostline.managed_table t on d.address_names[1:2] = array[t.schema_name, t.heap_name]
      where d.object_type = 'table constraint' and t.mode = 'tiered' and not frostline.is_following()
        and frostline.heap_of(t.table_id) is not null;
end
$body$;
revoke execute on function frostline.follow_dropped_constraints() from public
