-- Foreign keys of managed tables hold over both tiers: docs/design/foreign-keys.md.

-- Tables that are managed already go on as they were, until `frostline table set --foreign-keys hold`.
alter table frostline.managed_table
    add column foreign_keys text not null default 'ignore' check (foreign_keys in ('hold', 'ignore'));

-- Why a foreign key of a heap cannot be held, null if it can.
create function frostline.foreign_key_obstacle(key oid) returns text
language sql stable set search_path = pg_catalog, pg_temp as $$
    select case
        when c.confrelid = c.conrelid then 'it references its own table'
        when not coalesce((to_jsonb(c) ->> 'conenforced')::boolean, true) then 'it is not enforced'
        when coalesce((to_jsonb(c) ->> 'conperiod')::boolean, false) then 'it is about periods'
        when exists (select from unnest(c.conpfeqop || c.conppeqop) as used (oid) join pg_operator o on o.oid = used.oid
                      where o.oprnamespace <> 'pg_catalog'::regnamespace) then 'its columns are compared by an operator that is not of Postgres'
        when p.relkind = 'r' and exists (select from pg_inherits i where i.inhparent = p.oid) then 'other tables inherit from the one that it references'
        end
      from pg_constraint c join pg_class p on p.oid = c.confrelid
     where c.oid = key
$$;
revoke execute on function frostline.foreign_key_obstacle(oid) from public;

-- Where the triggers of a heap's foreign keys stand: on the tables that it references, and on their partitions, which can be
-- written by their own names. A managed table's partitions are left to its jobs. Reads system catalogs, locks nothing.
create function frostline.foreign_key_parents(heap oid) returns table (parent oid)
language sql stable set search_path = pg_catalog, pg_temp as $$
    with recursive tree as (
        select c.confrelid as member
          from pg_constraint c
         where c.conrelid = heap and c.contype = 'f' and c.conparentid = 0 and frostline.foreign_key_obstacle(c.oid) is null
         union
        select i.inhrelid
          from tree t
          join pg_class p on p.oid = t.member and p.relkind = 'p'
          join pg_inherits i on i.inhparent = t.member
         where not exists (select from frostline.managed_table m where frostline.heap_of(m.table_id) = t.member)
    )
    select t.member from tree t join pg_class p on p.oid = t.member and p.relkind in ('r', 'p')
$$;
revoke execute on function frostline.foreign_key_parents(oid) from public;

-- Whether the lake has rows of a table, so that a statement on a table that it references has to think of them. A transaction with
-- one snapshot for all its statements cannot see that the seam moved, or that a partition was cleaned; asking for the rows' locks
-- tells (40001). They are given back at once with the block's savepoint. Runs with its owner's rights, and tells everybody yes or no.
create function frostline.may_have_cold_children(managed integer) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $body$
begin
    if current_setting('transaction_isolation') in ('repeatable read', 'serializable') then
        begin
            perform from frostline.seam s where s.table_id = managed for share;
            perform from frostline.archived_partition a where a.table_id = managed and a.cleaned_at is null for share;
            raise exception using errcode = 'FL000', message = 'the seam is current';
        exception when sqlstate 'FL000' then
            null;
        end;
    end if;
    return exists (select from frostline.lake_file f where f.table_id = managed)
        or exists (select from frostline.archived_partition a where a.table_id = managed);
end
$body$;

-- The question whether an UPDATE of a referenced table has changed a key, for its trigger to ask: most have not, and this is all that
-- they pay. Compared by their bytes, as Postgres does. Null if no foreign key leads there. Tells names of columns only.
create function frostline.changed_keys_question(managed integer, parent oid) returns text
language sql stable security definer set search_path = pg_catalog, pg_temp as $body$
    select format('select row((select pg_catalog.array_agg(row(%1$s)::pg_catalog.record) from frostline_old as r))::pg_catalog.record '
                  'operator(pg_catalog.*<>) '
                  'row((select pg_catalog.array_agg(row(%1$s)::pg_catalog.record) from frostline_new as r))::pg_catalog.record',
                  string_agg(format('r.%I', a.attname), ', '))
      from (select distinct unnest(c.confkey) as number from pg_constraint c
             where c.conrelid = frostline.heap_of(managed) and c.confrelid = parent and c.contype = 'f') k
      join pg_attribute a on a.attrelid = parent and a.attnum = k.number
    having count(*) > 0
$body$;

-- What a statement on a referenced table has to do about rows that are only in the lake: for each foreign key, statements that the
-- trigger runs as the heap's owner. They read its transition tables, and write through the door `"foreign keys N"`, whose columns
-- are called by the heap's attribute numbers. The caller has ACCESS SHARE on the heap and its partitions, as Postgres' own triggers
-- take it: until the end of the transaction no partition is cleaned, and none comes back from the lake.
--
-- Runs with its owner's rights, reads catalogs and calls nothing of the user's. What it writes is fit for any search_path.
create function frostline.foreign_key_tasks(managed integer, parent oid, operation text)
returns table (heap_owner name, kind text, has_keys text, hold text, ask text, act text,
               errcode text, message text, detail text, heap_schema name, heap_name name, constraint_name name)
language plpgsql security definer set search_path = pg_catalog, pg_temp set timezone = 'UTC' set datestyle = 'ISO' as $body$
declare
    door text := format('frostline_write.%I', 'foreign keys ' || managed);
    heap oid := frostline.heap_of(managed);
    child record;
    parent_name name := (select c.relname from pg_class c where c.oid = parent);
    cold text;
    -- Below the line, a partition that is not cleaned has all rows of its range: Postgres has seen to those.
    only_lake_has_rows boolean := exists (
        select from frostline.lake_file f
         where f.table_id = managed
           and not exists (select from frostline.archived_partition a
                            where a.table_id = managed and a.cleaned_at is null
                              and coalesce(a.lower <= f.lower, true) and f.upper < a.upper));
    key record;
    action "char";
    keys text;
    condition text;
begin
    select n.nspname, c.relname, pg_get_userbyid(c.relowner) as owner, t.tier_kind, a.attnum as tier_number,
           coalesce(s.line_timestamptz::text, s.line_timestamp::text, s.line_date::text, s.line_integer::text) as line,
           c.relrowsecurity and c.relforcerowsecurity and not r.rolsuper and not r.rolbypassrls as is_hidden
      into child
      from pg_class c
      join pg_namespace n on n.oid = c.relnamespace
      join pg_roles r on r.oid = c.relowner
      join frostline.managed_table t on t.table_id = managed
      join frostline.seam s on s.table_id = managed
      join pg_partitioned_table p on p.partrelid = c.oid
      join pg_attribute a on a.attrelid = c.oid and a.attnum = p.partattrs[0]
     where c.oid = heap;
    if child.is_hidden then
        raise object_not_in_prerequisite_state using
            message = format('foreign keys of %I.%I cannot be held: row security is forced upon its owner', child.nspname, child.relname),
            hint = format('alter table %I.%I no force row level security', child.nspname, child.relname);
    end if;
    select format('i.tier operator(pg_catalog.=) ''lake'' and i.c%s operator(pg_catalog.<) %L::%s',
                  child.tier_number, child.line, child.tier_kind)
           || coalesce(string_agg(format(' and (%s i.c%s operator(pg_catalog.>=) %L::%s)',
                  case when a.lower is not null then format('i.c%s operator(pg_catalog.<) %L::%s or', child.tier_number,
                                                            frostline.tier_text(a.lower, child.tier_kind), child.tier_kind) end,
                  child.tier_number, frostline.tier_text(a.upper, child.tier_kind), child.tier_kind), ''), '')
      into cold
      from frostline.archived_partition a
     where a.table_id = managed and a.cleaned_at is null;
    for key in
        select c.conname, c.condeferrable, c.confdeltype, c.confupdtype, c.conkey,
               coalesce(c.confdelsetcols, c.conkey) as set_on_delete, columns.*,
               (with recursive above as (
                    select c.conname as name, c.conparentid as next
                     union all
                    select u.conname, u.conparentid from above join pg_constraint u on u.oid = above.next)
                select above.name from above where above.next = 0) as root_name
          from pg_constraint c
         cross join lateral (
            select string_agg(format('o.%I as o%s', pk.attname, k.place), ', ' order by k.place) as old_keys,
                   string_agg(format('n.%I as n%s', pk.attname, k.place), ', ' order by k.place) as new_keys,
                   string_agg(format('o.o%s%s as k%1$s', k.place, kind.pk_cast), ', ' order by k.place) as cast_keys,
                   string_agg('o.o' || k.place, ', ' order by k.place) as old_row,
                   string_agg('n.n' || k.place, ', ' order by k.place) as new_row,
                   string_agg(format('o.o%s is not null', k.place), ' and ' order by k.place) as has_value,
                   string_agg(format('k.k%s%s operator(pg_catalog.%s) i.c%s%s', k.place, kind.collation, pf.oprname, fk.attnum,
                                     kind.fk_cast), ' and ' order by k.place) as is_child,
                   string_agg(format('k.k%s%s operator(pg_catalog.%s) i.%I%s', k.place, kind.collation, pf.oprname, fk.attname,
                                     kind.fk_cast), ' and ' order by k.place) as is_heap_child,
                   string_agg(format('w.%I%s operator(pg_catalog.%s) o.o%s%2$s', pk.attname, kind.pk_cast, pp.oprname, k.place),
                              ' and ' order by k.place) as is_there_again,
                   coalesce(string_agg(format(' and i.c%s%s operator(pg_catalog.%s) any (array(select k.k%s%s from frostline_key as k))',
                                     fk.attnum, kind.fk_cast, swapped.oprname, k.place, kind.collation), '' order by k.place)
                       filter (where kind.is_comparable), '') as is_listed,
                   count(*) = 1 and bool_and(kind.is_comparable) as list_is_enough,
                   string_agg(format('c%s = k.n%s', fk.attnum, k.place), ', ' order by k.place) as follow,
                   string_agg(format('c%s = i.c%1$s', fk.attnum), ', ' order by k.place) as touch,
                   string_agg(format('%I', pk.attname), ', ' order by k.place) as key_names
              from unnest(c.conkey, c.confkey, c.conpfeqop, c.conppeqop) with ordinality as k (fk, pk, pf, pp, place)
              join pg_attribute pk on pk.attrelid = c.confrelid and pk.attnum = k.pk
              join pg_attribute fk on fk.attrelid = c.conrelid and fk.attnum = k.fk
              join pg_operator pf on pf.oid = k.pf
              join pg_operator pp on pp.oid = k.pp
              join pg_type lt on lt.oid = pf.oprleft
              join pg_type rt on rt.oid = pf.oprright
              left join pg_operator swapped on swapped.oid = pf.oprcom and swapped.oprnamespace = 'pg_catalog'::regnamespace
              left join pg_collation pc on pc.oid = pk.attcollation
              left join pg_collation fc on fc.oid = fk.attcollation
             cross join lateral (
                select case when pk.atttypid <> lt.oid then format('::pg_catalog.%I', lt.typname) else '' end as pk_cast,
                       case when fk.atttypid <> rt.oid then format('::pg_catalog.%I', rt.typname) else '' end as fk_cast,
                       case when pk.attcollation = 0 or fk.attcollation = 0 then ''
                            when not pc.collisdeterministic then format(' collate %s', pc.oid::regcollation)
                            when not fc.collisdeterministic then format(' collate %s', fc.oid::regcollation)
                            else ' collate pg_catalog."default"' end as collation,
                       swapped.oid is not null and lt.typtype = 'b' and rt.typtype = 'b'
                           and coalesce(pc.collisdeterministic and fc.collisdeterministic, true) as is_comparable) kind
         ) columns
         where c.conrelid = heap and c.confrelid = parent and c.contype = 'f' and frostline.foreign_key_obstacle(c.oid) is null
         -- In the order of Postgres' triggers; but what goes by one key goes before another writes it, which would look for all its parents.
         order by case operation when 'DELETE' then c.confdeltype else c.confupdtype end in ('n', 'd'), c.oid
    loop
        action := case operation when 'DELETE' then key.confdeltype else key.confupdtype end;
        -- What is deferred is looked for later, when a fold may have brought it into the lake.
        continue when not only_lake_has_rows and not (action = 'a' and key.condeferrable);
        if operation = 'DELETE' then
            keys := format('with frostline_key as materialized (select %s from (select %s from frostline_old as o) as o where %s) ',
                           key.cast_keys, key.old_keys, key.has_value);
            has_keys := keys || 'select exists (select from frostline_key)';
        else
            -- Both transition tables have the rows in the order in which they were updated.
            keys := format('with frostline_key as materialized (select %s, %s '
                           'from (select pg_catalog.row_number() over () as place, %s from frostline_old as o) as o '
                           'join (select pg_catalog.row_number() over () as place, %s from frostline_new as n) as n '
                           'on n.place operator(pg_catalog.=) o.place '
                           'where row(%s)::pg_catalog.record operator(pg_catalog.*<>) row(%s)::pg_catalog.record and %s%s) ',
                           key.cast_keys, key.new_row, key.old_keys, key.new_keys, key.old_row, key.new_row, key.has_value,
                           case when action = 'a' then format(' and not exists (select from frostline_new as w where %s)',
                                                              key.is_there_again) end);
            has_keys := keys || 'select case when (select pg_catalog.count(*) from frostline_old) operator(pg_catalog.=) '
                                '(select pg_catalog.count(*) from frostline_new) then exists (select from frostline_key) end';
        end if;
        condition := cold || key.is_listed
            || case when key.list_is_enough then '' else format(' and exists (select from frostline_key as k where %s)', key.is_child) end;
        ask := format('%sselect true from %s as i where %s limit 1', keys, door, condition);
        hold := format('%sselect true from %s as i where exists (select from frostline_key as k where %s) for key share of i',
                       keys, heap::regclass, key.is_heap_child);
        kind := case when action = 'a' and key.condeferrable then 'defer' when action in ('a', 'r') then 'refuse' else 'act' end;
        act := case
            when action = 'c' and operation = 'DELETE' then format('%sdelete from %s as i where %s', keys, door, condition)
            when action = 'c' then
                format('%supdate %s as i set %s from frostline_key as k where %s%s and %s', keys, door, key.follow, cold, key.is_listed,
                       key.is_child)
            when action = 'a' then format('%supdate %s as i set %s where %s', keys, door, key.touch, condition)
            when action in ('n', 'd') then format('%supdate %s as i set %s where %s', keys, door, (
                select string_agg(format('c%s = %s', a.attnum,
                                         case action when 'd' then coalesce('(' || pg_get_expr(d.adbin, d.adrelid) || ')', 'null')
                                                     else 'null' end), ', ')
                  from unnest(case operation when 'DELETE' then key.set_on_delete else key.conkey end) as s (number)
                  join pg_attribute a on a.attrelid = heap and a.attnum = s.number
                  left join pg_attrdef d on d.adrelid = heap and d.adnum = a.attnum), condition)
            end;
        heap_owner := child.owner;
        heap_schema := child.nspname;
        heap_name := child.relname;
        constraint_name := key.root_name;
        if action = 'r' and current_setting('server_version_num')::integer >= 180000 then
            errcode := '23001';
            message := format('update or delete on table "%s" violates RESTRICT setting of foreign key constraint "%s" on table "%s"',
                              parent_name, key.root_name, child.relname);
        else
            errcode := '23503';
            message := format('update or delete on table "%s" violates foreign key constraint "%s" on table "%s"',
                              parent_name, key.root_name, child.relname);
        end if;
        detail := format('Key (%s) is still referenced from table "%s", by rows in the lake.', key.key_names, child.relname);
        return next;
    end loop;
end
$body$;

-- A tier value as text, from the number that stands for it: microseconds or days since 1970, or the integer itself.
create function frostline.tier_text(axis bigint, tier_kind text) returns text
language sql stable strict set search_path = pg_catalog, pg_temp set timezone = 'UTC' set datestyle = 'ISO' as $$
    select case tier_kind
        when 'date' then (date '1970-01-01' + axis::integer)::text
        when 'timestamp without time zone' then
            (timestamp '1970-01-01' + (axis / 86400000000) * interval '1 day' + (axis % 86400000000) * interval '1 microsecond')::text
        when 'timestamp with time zone' then
            (timestamptz '1970-01-01 00:00+00' + (axis / 86400000000) * interval '1 day'
             + (axis % 86400000000) * interval '1 microsecond')::text
        else axis::text end
$$;
revoke execute on function frostline.tier_text(bigint, text) from public;

-- Gives a function of ours to another role. Postgres wants him to be one who could have made it there, so for that moment of the
-- transaction he is. Runs as the caller.
create function frostline.give_function(given regprocedure, receiver text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $body$
declare
    home text := (select quote_ident(n.nspname) from pg_proc p join pg_namespace n on n.oid = p.pronamespace where p.oid = given);
    may_create boolean := has_schema_privilege(receiver, (select p.pronamespace from pg_proc p where p.oid = given), 'create');
begin
    if pg_get_userbyid((select p.proowner from pg_proc p where p.oid = given)) = receiver then
        return;
    end if;
    if not may_create then
        execute format('grant create on schema %s to %I', home, receiver);
    end if;
    execute format('alter function %s owner to %I', given, receiver);
    if not may_create then
        execute format('revoke create on schema %s from %I', home, receiver);
    end if;
end
$body$;
revoke execute on function frostline.give_function(regprocedure, text) from public;
