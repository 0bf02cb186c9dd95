-- Writes the statements that make a managed table's objects, from the templates of objects.sql and writes.sql and from what the
-- heap is now. It is in the database so that a schema change can be followed in its own transaction: docs/design/schema-changes.md.
-- Every function reads system catalogs and our own tables only, and is called by us alone. Names go in quoted, in one pass:
-- no name can be taken for a gap.

-- name: identifier
create or replace function frostline.identifier(variadic names text[]) returns text
language sql immutable set search_path = pg_catalog, pg_temp as $$
    select string_agg('"' || replace(n, '"', '""') || '"', '.' order by place) from unnest(names) with ordinality as u (n, place)
$$;

-- name: cut_name
-- As `model.names` cuts it. The cast to `name` cuts between characters.
create or replace function frostline.cut_name(stem text, suffix text) returns text
language sql immutable set search_path = pg_catalog, pg_temp as $$
    select substr((repeat('_', octet_length(suffix)) || stem)::name::text, octet_length(suffix) + 1) || suffix
$$;

-- name: filled
create or replace function frostline.filled(template_name text, parts jsonb) returns text
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    template text := (select t.text from frostline.relation_template t where t.name = template_name);
    -- 7B and 7D are the braces, which stand for gaps in this file too.
    pieces text[] := regexp_split_to_array(template, '\x7B[a-z_]+\x7D');
    gaps text[] := array(select m[1] from regexp_matches(template, '\x7B([a-z_]+)\x7D', 'g') with ordinality as r (m, place) order by place);
    result text := pieces[1];
begin
    for n in 1 .. cardinality(gaps) loop
        if parts ->> gaps[n] is null then
            raise invalid_parameter_value using message = format('template %s has a gap %s, and nothing to fill it', template_name, gaps[n]);
        end if;
        result := result || (parts ->> gaps[n]) || pieces[n + 1];
    end loop;
    return result;
end
$$;

-- name: carried_columns
-- How the columns travel, with the attribute numbers that the heap has today. A restored dump numbers columns anew: in the same
-- order, but without the gaps that dropped ones left. So a gap in our numbers that is no dropped column tells of a restore.
create or replace function frostline.carried_columns(managed integer, heap oid)
returns table (attnum smallint, field_id integer, lake_type text, as_text boolean, pushable boolean, is_later boolean)
language sql stable set search_path = pg_catalog, pg_temp as $$
    with managed as (
        select m.*, row_number() over (order by m.attnum) as position from frostline.managed_column m where m.table_id = carried_columns.managed
    ), present as (
        select a.attnum, row_number() over (order by a.attnum) as position
          from pg_attribute a where a.attrelid = heap and a.attnum > 0 and not a.attisdropped
    ), restored as (
        select exists (
            select from generate_series(1, (select max(m.attnum) from managed m)) as gap (number)
             where gap.number not in (select m.attnum from managed m)
               and not exists (select from pg_attribute a where a.attrelid = heap and a.attnum = gap.number and a.attisdropped)) as is_true
    )
    select case when r.is_true then p.attnum else m.attnum end, m.field_id, m.lake_type, m.as_text, m.pushable, m.is_later
      from managed m left join present p using (position) cross join restored r
$$;

-- name: known_key
-- By which columns of the heap overlay and lake know a row, in their order: those of the overlay's key, whatever key the heap has got since.
-- Before there is an overlay, and if it is lost, the heap's own. For whoever may describe a table, too, and not look into our schemas.
create or replace function frostline.known_key(managed integer) returns smallint[]
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
    select coalesce(
        (select array_agg(c.attnum order by k.place)
           from frostline.managed_table t
           join pg_index i on i.indisprimary and i.indrelid = to_regclass(frostline.identifier(
                    'frostline_overlay', frostline.cut_name(coalesce(t.first_name, t.table_name), '_' || t.table_id)))
          cross join unnest(i.indkey::smallint[]) with ordinality as k (attnum, place)
           join pg_attribute o on o.attrelid = i.indrelid and o.attnum = k.attnum
           join frostline.managed_column m on m.table_id = managed and m.name = o.attname
           join frostline.carried_columns(managed, frostline.heap_of(managed)) c on c.field_id = m.field_id
          where t.table_id = managed),
        (select i.indkey::smallint[] from pg_index i where i.indrelid = frostline.heap_of(managed) and i.indisprimary))
$$;

-- name: relation_columns
-- The columns that the relation has, in the heap's order. `typed` is what a column definition says, `lake_typed` the same in the
-- lake's tables, where a domain keeps postgres_fdw from sending conditions.
create or replace function frostline.relation_columns(managed integer)
returns table (number integer, name text, column_name text, attnum smallint, type text, typed text, lake_typed text, as_text boolean,
               needs_domain boolean, builtin boolean, generated boolean, identity text, default_value text, is_later boolean,
               key_place integer, is_tier boolean)
language sql stable set search_path = pg_catalog, pg_temp as $$
    select (row_number() over (order by a.attnum))::integer, frostline.identifier(a.attname), a.attname::text, a.attnum, f.type,
           concat_ws(' ', frostline.identifier(a.attname), f.type, f.collated),
           concat_ws(' ', frostline.identifier(a.attname),
                     case when f.needs_domain then frostline.identifier('frostline_lake', 'lake ' || f.type) else f.type end, f.collated),
           m.as_text, f.needs_domain, f.builtin, a.attgenerated <> '', a.attidentity::text,
           case when a.attidentity <> '' then
                    format('nextval(%L)', pg_get_serial_sequence(frostline.identifier(n.nspname, h.relname), a.attname))
                when a.attgenerated = '' then pg_get_expr(d.adbin, d.adrelid) end,
           m.is_later, array_position(k.attnums, a.attnum), p.partattrs[0] = a.attnum
      from frostline.carried_columns(managed, frostline.heap_of(managed)) m
      join pg_attribute a on a.attrelid = frostline.heap_of(managed) and a.attnum = m.attnum and not a.attisdropped
      join pg_class h on h.oid = a.attrelid
      join pg_namespace n on n.oid = h.relnamespace
      join pg_type t on t.oid = a.atttypid
      left join pg_partitioned_table p on p.partrelid = h.oid
      left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
      left join pg_collation l on l.oid = a.attcollation and l.oid <> 100
     cross join (select frostline.known_key(managed) as attnums) k
     cross join lateral (
        select format_type(a.atttypid, a.atttypmod) as type,
               case when l.oid is not null
                    then format('collate %s.%I', l.collnamespace::regnamespace, l.collname) end as collated,
               t.oid < 16384 and t.typnamespace = 'pg_catalog'::regnamespace as builtin,
               t.oid < 16384 and t.typnamespace = 'pg_catalog'::regnamespace and not m.pushable as needs_domain) f
$$;

-- name: relation_names
-- What the table and its objects are called, quoted, and the messages that name it.
create or replace function frostline.relation_names(managed integer) returns jsonb
language sql stable set search_path = pg_catalog, pg_temp as $$
    select jsonb_build_object(
        'table_id', t.table_id,
        'relation', frostline.identifier(t.schema_name, r.relation),
        'heap', frostline.identifier(t.schema_name, t.heap_name),
        'inner', frostline.identifier('frostline_relation', r.internal),
        'overlay', frostline.identifier('frostline_overlay', r.internal),
        'lake', frostline.identifier('frostline_lake', r.internal),
        'nothing', frostline.identifier('frostline_lake', frostline.cut_name(r.internal, ' nothing')),
        'aside', frostline.identifier(t.schema_name, 'frostline_' || t.table_id),
        'alias', frostline.identifier(t.table_name),
        'heap_name', quote_literal(format('%I.%I', t.schema_name, t.heap_name)),
        'relation_name', quote_literal(r.relation),
        'relation_text', quote_literal(frostline.identifier(t.schema_name, r.relation)),
        'relation_shown', quote_literal(r.shown),
        'overlay_text', quote_literal(frostline.identifier('frostline_overlay', r.internal)),
        'schema_name', quote_literal(t.schema_name),
        'table_name', quote_literal(t.table_name),
        'line', frostline.filled('objects.line', s.line || jsonb_build_object('line_column', frostline.identifier('line_' || s.kind))),
        'retained', frostline.filled('objects.line', s.line || jsonb_build_object('line_column', frostline.identifier('retained_' || s.kind))),
        'lowest', quote_literal(s.lowest)
    ) || jsonb_build_object(
        'concurrent', quote_literal(format('could not serialize access to %s due to concurrent update', r.relation)),
        'run_again', quote_literal('Run the transaction again.'),
        'only_relation', quote_literal(format('only statements on %s call this function', r.shown)),
        'below_retention', quote_literal(format('new row of %s is older than its retention period', t.table_name)),
        'retention', quote_literal(format('How long rows are kept: frostline table set %I.%I --retention ...', t.schema_name, t.table_name)),
        'duplicate', quote_literal(format('duplicate key value violates the primary key of %s', t.table_name)),
        'update_instead', quote_literal(format('Update the row instead: update %s ...', r.shown)),
        'not_truncated', quote_literal(format('%s has rows in the lake, which TRUNCATE would leave there', r.shown)),
        'truncate_hint', quote_literal(format('All rows of both tiers go by: frostline truncate %I.%I', t.schema_name, t.table_name))
    ) || (select jsonb_object_agg(f, frostline.identifier('frostline_relation', format('%s_%s', f, t.table_id)))
            from unnest(array['mark', 'update', 'delete', 'copy', 'policy', 'truncate', 'children']) as f)
      || (select jsonb_object_agg(f, frostline.identifier('frostline_write', format('%s_%s', f, t.table_id)))
            from unnest(array['missed', 'may_write_cold', 'claim', 'unclaim']) as f)
      || (select jsonb_object_agg('may_' || f, frostline.identifier('frostline_write', format('may_%s_%s', f, t.table_id)))
            from unnest(array['select', 'insert', 'update', 'become', 'delete']) as f)
      || (select jsonb_object_agg(replace(f, ' ', '_') || '_door', frostline.identifier('frostline_write', format('%s %s', f, t.table_id)))
            from unnest(array['update hot', 'update cold', 'delete hot', 'delete cold', 'insert', 'foreign keys']) as f)
      from frostline.managed_table t
     cross join lateral (
        select coalesce(t.relation_name, t.table_name) as relation, frostline.cut_name(coalesce(t.first_name, t.table_name), '_' || t.table_id) as internal,
               format('%I.%I', t.schema_name, coalesce(t.relation_name, t.table_name)) as shown) r
     cross join lateral (
        select jsonb_build_object('table_id', t.table_id, 'line_cast',
                                  case when t.tier_kind in ('smallint', 'integer') then '::' || t.tier_kind else '' end) as line,
               case t.tier_kind when 'timestamp with time zone' then 'timestamptz' when 'timestamp without time zone' then 'timestamp'
                                when 'date' then 'date' else 'integer' end as kind,
               case t.tier_kind when 'smallint' then '-32768' when 'integer' then '-2147483648' when 'bigint' then '-9223372036854775808'
                                else '-infinity' end as lowest) s
     where t.table_id = managed
$$;

-- name: relation_lists
-- Lists of the table's columns, and conditions on them, as the templates need them.
create or replace function frostline.relation_lists(managed integer) returns jsonb
language sql stable set search_path = pg_catalog, pg_temp as $$
    with c as materialized (
        select c.*, c.key_place is not null as is_key, c.key_place is not null or not c.builtin as is_marked,
               coalesce(c.key_place, 1000 + c.number) as mark_place,
               'c.' || c.name || case when c.needs_domain then '::' || c.type else '' end as from_lake,
               case when c.as_text then '::pg_catalog.text' else '' end as hashed,
               case when c.as_text then '::text' else '' end as comparable,
               frostline.filled('writes.secret_is_right', jsonb_build_object('table_id', managed)) as secret_is_right
          from frostline.relation_columns(managed) c
    )
    select jsonb_build_object(
        'columns', string_agg(name, ', ' order by number),
        'typed_columns', string_agg(typed, E',\n    ' order by number),
        'lake_typed_columns', string_agg(lake_typed, E',\n    ' order by number),
        'heap_columns', string_agg('h.' || name, ', ' order by number),
        'lake_columns', string_agg(from_lake, ', ' order by number),
        'overlay_columns', string_agg('o.' || name, ', ' order by number),
        'old_columns', string_agg('old.' || name, ', ' order by number),
        'row_columns', string_agg('r.' || name, ', ' order by number),
        'new_row', string_agg('new.' || name, ', ' order by number),
        'first', string_agg(name, ', ' order by number) filter (where not is_later),
        'first_of_union', string_agg('u.' || name, ', ' order by number) filter (where not is_later),
        'later', coalesce(string_agg(', ' || name, '' order by number) filter (where is_later), ''),
        'later_of_union', coalesce(string_agg(', u.' || name, '' order by number) filter (where is_later), ''),
        'key', string_agg(name, ', ' order by key_place) filter (where is_key),
        'old_key', string_agg('old.' || name, ', ' order by key_place) filter (where is_key),
        'new_key', string_agg('new.' || name, ', ' order by key_place) filter (where is_key),
        'hashed_key', string_agg('u.' || name || hashed, ', ' order by key_place) filter (where is_key),
        'marked_key', string_agg('m.' || name || hashed, ', ' order by key_place) filter (where is_key),
        'tier_key', min(name) filter (where is_tier),
        'tier_key_name', quote_literal(min(column_name) filter (where is_tier)),
        'written', string_agg(name, ', ' order by number) filter (where not generated),
        'new_written', string_agg('new.' || name, ', ' order by number) filter (where not generated),
        'written_values', string_agg('r.' || name, ', ' order by number) filter (where not generated),
        'written_names', format('array[%s]::pg_catalog.text[]', string_agg(quote_literal(column_name), ', ' order by number) filter (where not generated)),
        'new_as_columns', string_agg(format('new.%s as %1$s', name), ', ' order by number),
        'overriding', case when bool_or(identity <> '') then ' overriding system value' else '' end
    ) || jsonb_build_object(
        'replace', coalesce(string_agg(format('%s = excluded.%1$s, ', name), '' order by number) filter (where not is_key), ''),
        'clear', coalesce(string_agg(format('%s = null, ', name), '' order by number) filter (where not is_marked), ''),
        'marked', string_agg(name, ', ' order by mark_place) filter (where is_marked),
        'old_marked', string_agg('frostline_old.' || name, ', ' order by mark_place) filter (where is_marked),
        'old_row_marked', string_agg('old.' || name, ', ' order by mark_place) filter (where is_marked),
        'new_row_marked', string_agg('new.' || name, ', ' order by mark_place) filter (where is_marked),
        'heap_is_old_row', string_agg(format('h.n%s = old.%s', number, name), ' and ' order by key_place) filter (where is_key),
        'heap_is_new_row', string_agg(format('h.n%s = new.%s', number, name), ' and ' order by key_place) filter (where is_key),
        'heap_key_is_old', string_agg(format('h.n%s = frostline_old.%s', number, name), ' and ' order by key_place) filter (where is_key),
        'mark_key_is_old', string_agg(format('m.%s = frostline_old.%1$s', name), ' and ' order by key_place) filter (where is_key),
        'mark_is_old', string_agg(format('m.%s = old.%1$s', name), ' and ' order by key_place) filter (where is_key),
        'mark_is_new', string_agg(format('m.%s = new.%1$s', name), ' and ' order by key_place) filter (where is_key),
        'lake_is_new', string_agg(format('new.%s = %s', name, from_lake), ' and ' order by key_place) filter (where is_key)
    ) || jsonb_build_object(
        'heap_numbers', string_agg('h.n' || number, ', ' order by number),
        'numbers', string_agg('n' || number, ', ' order by number),
        'row_numbers', string_agg('frostline_row.n' || number, ', ' order by number),
        'first_numbers', string_agg('n' || number, ', ' order by number) filter (where not is_later),
        'later_numbers', coalesce(string_agg(', n' || number, '' order by number) filter (where is_later), ''),
        'new_numbers', string_agg('new.n' || number, ', ' order by number) filter (where not generated),
        'assigned', string_agg(format('%s = new.n%s', name, number), ', ' order by number) filter (where not generated and identity <> 'a'),
        'typed_new', string_agg(format('null::%s as n%s', type, number), ', ' order by number),
        'typed_old', string_agg(format('null::%s as o%s', type, number), ', ' order by number),
        'typed_old_key', string_agg(format('null::%s as o%s', type, number), ', ' order by key_place) filter (where is_key),
        'new_values', string_agg(format('n%s = new.%s', number, name), ', ' order by number),
        'old_values', string_agg(format('o%s = old.%s', number, name), ', ' order by number),
        'old_key_values', string_agg(format('o%s = old.%s', number, name), ', ' order by key_place) filter (where is_key),
        'key_is_old_number', string_agg(case when is_tier then format('h.%s = new.o%s', name, number)
            else format('h.%s = case when %s then new.o%s end', name, secret_is_right, number) end, ' and ' order by key_place) filter (where is_key),
        'rest_is_old_number', case when bool_and(is_key) then 'true' else format('row(%s) is not distinct from row(%s)',
            string_agg(format('h.%s%s', name, comparable), ', ' order by number) filter (where not is_key),
            string_agg(format('new.o%s%s', number, comparable), ', ' order by number) filter (where not is_key)) end
    ) from c
$$;

-- name: relation_parts
-- All that fills the templates. The body's dollar quote is one that no name can end.
create or replace function frostline.relation_parts(managed integer) returns jsonb
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    parts jsonb := frostline.relation_names(managed) || frostline.relation_lists(managed);
    secured boolean := (select c.relrowsecurity from pg_class c where c.oid = frostline.heap_of(managed));
    quote text := '$body$';
    number integer := 0;
    guards text;
    conditions text[];
begin
    while position(quote in parts::text) > 0 loop
        number := number + 1;
        quote := format('$body%s$', number);
    end loop;
    parts := parts || jsonb_build_object('body', quote);
    select string_agg(frostline.filled('writes.identity_guard', jsonb_build_object('changed', g.changed, 'message', quote_literal(g.message),
                                                                                   'hint', quote_literal(g.hint))), E'\n    ' order by g.place)
      into guards
      from (select c.number as place, frostline.is_changed(c.name) as changed,
                   format('column %s of %s can only be updated to DEFAULT', c.column_name, r.relation) as message, 'It is a generated column.' as hint
              from frostline.relation_columns(managed) c, frostline.relation_called(managed) as r (relation) where c.generated
            union all
            select 10000, string_agg(frostline.is_changed(c.name), ' or ' order by c.column_name collate "C"),
                   format('column %s of %s can only be updated to DEFAULT', string_agg(c.column_name, ', ' order by c.column_name collate "C"), min(r.relation)),
                   'It is GENERATED ALWAYS: leave it out of the UPDATE.'
              from frostline.relation_columns(managed) c, frostline.relation_called(managed) as r (relation) where c.identity = 'a'
            having count(*) > 0) g;
    conditions := array(select frostline.filled('objects.no_generated', parts || jsonb_build_object(
                                   'is_null', format('r.%s is null', c.name), 'column', quote_literal(c.column_name)))
                          from frostline.relation_columns(managed) c where c.generated order by c.number);
    if secured then
        conditions := conditions || frostline.filled('objects.may_insert', parts);
        parts := parts || jsonb_build_object(
            'returned', (select string_agg(frostline.filled('objects.returned_checked', parts || jsonb_build_object('column', c.name, 'type', c.type)),
                                           ', ' order by c.number) from frostline.relation_columns(managed) c),
            'row_is_allowed', frostline.filled('writes.row_is_allowed', parts));
    else
        parts := parts || jsonb_build_object(
            'returned', case when cardinality(conditions) > 0 then parts ->> 'heap_columns' else parts ->> 'columns' end, 'row_is_allowed', '');
    end if;
    parts := parts || jsonb_build_object(
        'guards', coalesce(guards, ''), 'may_write', array_to_string(conditions, ' and '),
        'is_checked', cardinality(conditions) > 0, 'is_secured', secured,
        'seam_is_current', frostline.filled('objects.seam_is_current', parts), 'secret', frostline.filled('objects.secret', parts),
        'require_secret', frostline.filled('writes.require_secret', parts), 'secret_is_right', frostline.filled('writes.secret_is_right', parts),
        'old_place', 'partition = old.frostline_partition, place = old.frostline_place, secret = old.frostline_secret',
        'returned_numbers', format('%s, ''heap''::pg_catalog.text, null::pg_catalog.int8, null::pg_catalog.uuid, null::pg_catalog.oid, '
                                   'null::pg_catalog.tid%s', parts ->> 'first_numbers', parts ->> 'later_numbers'));
    return parts;
end
$$;

-- name: relation_called
create or replace function frostline.relation_called(managed integer) returns text
language sql stable set search_path = pg_catalog, pg_temp as $$
    select coalesce(t.relation_name, t.table_name) from frostline.managed_table t where t.table_id = managed
$$;

-- name: is_changed
-- By their text, with an operator that no search_path replaces. DEFAULT for a generated column arrives as NULL.
create or replace function frostline.is_changed(quoted_name text) returns text
language sql immutable set search_path = pg_catalog, pg_temp as $$
    select format('(new.%s is not null and not coalesce(new.%1$s::pg_catalog.text operator(pg_catalog.=) old.%1$s::pg_catalog.text, false))', quoted_name)
$$;

-- name: relation_object
create or replace function frostline.relation_object(kind text, names text[], relation text, creates text[], drops text,
    is_replaceable boolean default true, is_wanted boolean default true, follows boolean default false) returns jsonb
language sql immutable set search_path = pg_catalog, pg_temp as $$
    select jsonb_build_object('addresses', (select jsonb_agg(jsonb_build_object('kind', kind, 'name', n, 'relation', relation)) from unnest(names) as n),
                              'create', to_jsonb(creates), 'drop', drops, 'is_replaceable', is_replaceable, 'is_wanted', is_wanted, 'follows', follows)
$$;

-- name: relation_door
-- A view through which the heap is written, and its rule.
create or replace function frostline.relation_door(parts jsonb, verb text, rule text, new_typed text, old_typed text, at_place boolean) returns jsonb
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    door text := parts ->> (verb || '_door');
    more text := case when at_place then 'null::pg_catalog.oid as partition, null::pg_catalog.tid as place, ' else '' end
                 || 'null::pg_catalog.uuid as secret';
    rest text := concat_ws(', ', old_typed, more);
    is_meant text := case when at_place then 'h.tableoid = new.partition and h.ctid is not distinct from new.place' else parts ->> 'rest_is_old_number' end;
begin
    parts := parts || jsonb_build_object(
        'door', door, 'nothing', concat_ws(', ', new_typed, rest),
        'right', case when verb = 'insert' then 'insert' else 'update' end,
        'returned', concat_ws(', ', case when new_typed is not null then parts ->> 'heap_columns' end, rest),
        -- IS NOT DISTINCT FROM, so that Postgres looks by the key and tests the place: a scan by place is not
        -- tested again when somebody has changed the row meanwhile.
        'row_is_meant', format('%s and case when %s then %s else false end', parts ->> 'key_is_old_number', parts ->> 'secret_is_right', is_meant));
    return jsonb_build_array(
        frostline.relation_object('view', array[door], '', array[frostline.filled('writes.door', parts)], format('drop view if exists %s;', door)),
        frostline.relation_object('rule', array['frostline_write'], door, array[frostline.filled('writes.' || rule, parts)], null));
end
$$;

-- name: relation_function
create or replace function frostline.relation_function(parts jsonb, name text, template_name text, is_wanted boolean default true) returns jsonb
language sql stable set search_path = pg_catalog, pg_temp as $$
    select frostline.relation_object('function', array[parts ->> name], '',
        array[frostline.filled(template_name, parts || jsonb_build_object('function', parts ->> name))],
        frostline.filled('objects.drop_function', jsonb_build_object('function', parts ->> name)), true, is_wanted)
$$;

-- name: relation_triggers
create or replace function frostline.relation_triggers(parts jsonb, relation text, names text[], function text, template_name text, is_wanted boolean default true)
returns jsonb
language sql stable set search_path = pg_catalog, pg_temp as $$
    select frostline.relation_object('trigger', names, parts ->> relation,
        array[frostline.filled(template_name, parts || jsonb_build_object('function', parts ->> function))], null, true, is_wanted)
$$;

-- name: relation_objects
-- All that the table has in Postgres, or could have, each after what it needs. What comes and goes in its life is made elsewhere:
-- marking triggers when a partition is captured, the lake's foreign tables, which fall with its table. The DEFAULT partition is the heap's.
create or replace function frostline.relation_objects(managed integer) returns table (place bigint, object jsonb)
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    p jsonb := frostline.relation_parts(managed);
    secured boolean := (p ->> 'is_secured')::boolean;
    policies text[] := array(select frostline.identifier('frostline_write', format('%smay_%s_%s', prefix, verb, managed))
                               from unnest(array['', 'policy_']) with ordinality as a (prefix, first),
                                    unnest(array['select', 'insert', 'update', 'become', 'delete']) with ordinality as b (verb, second) order by first, second);
    default_partition text := (select frostline.identifier(n.nspname, c.relname) from pg_partitioned_table t join pg_class c on c.oid = t.partdefid
                                 join pg_namespace n on n.oid = c.relnamespace where t.partrelid = frostline.heap_of(managed));
    objects jsonb;
begin
    p := p || jsonb_build_object(
        'arms', frostline.filled('objects.arms', p), 'truncate_rows', frostline.filled('objects.truncate', p || jsonb_build_object(
            'marked_text', quote_literal(p ->> 'marked'), 'key_text', quote_literal(p ->> 'key'), 'clear_text', quote_literal(p ->> 'clear'))),
        'mark_old', frostline.filled('objects.mark_row', p || jsonb_build_object('heap_key_is_row', p -> 'heap_is_old_row', 'row_marked', p -> 'old_row_marked')),
        'mark_new', frostline.filled('objects.mark_row', p || jsonb_build_object('heap_key_is_row', p -> 'heap_is_new_row', 'row_marked', p -> 'new_row_marked')));
    objects := jsonb_build_array(
        frostline.relation_object('table', array[p ->> 'overlay'], '', array[frostline.filled('objects.overlay', p)],
            frostline.filled('objects.drop_table', jsonb_build_object('table', p -> 'overlay')), false),
        frostline.relation_object('trigger', array['!frostline_truncate'], p ->> 'overlay', array[frostline.filled('objects.overlay_trigger', p)], null),
        frostline.relation_object('table', array[p ->> 'lake', p ->> 'nothing'], '', array[frostline.filled('objects.lake', p), frostline.filled('objects.nothing', p)],
            frostline.filled('objects.drop_table', jsonb_build_object('table', p -> 'lake')), false),
        -- Those called policy_ are there if one has a query.
        frostline.relation_object('function', policies, '', array[frostline.filled('objects.follow_policies', p)],
            frostline.filled('objects.forget_policies', p), true, secured, true),
        frostline.relation_object('view', array[p ->> 'inner'], '',
            array[frostline.filled(case when secured then 'objects.inner_view_secured' else 'objects.inner_view' end, p)],
            frostline.filled('objects.drop_view_cascade', jsonb_build_object('view', p -> 'inner'))),
        -- With grants and views of other people on it. Dropped when it has stepped aside.
        frostline.relation_object('view', array[p ->> 'relation'], '',
            frostline.filled('objects.outer_view', p) || array(
                select frostline.filled('objects.view_default', p || jsonb_build_object('column', c.name, 'default', c.default_value))
                  from frostline.relation_columns(managed) c where c.default_value is not null order by c.number),
            frostline.filled('objects.drop_view', jsonb_build_object('view', p -> 'aside')), false),
        frostline.relation_object('rule', array['frostline_insert'], p ->> 'relation',
            array[frostline.filled(case when (p ->> 'is_checked')::boolean then 'objects.insert_rule_checked' else 'objects.insert_rule' end, p)], null),
        frostline.relation_function(p, 'policy', 'objects.policy_function', secured),
        frostline.relation_triggers(p, 'inner', array['frostline_a_policy'], 'policy', 'objects.policy_trigger', secured)
    ) || frostline.relation_door(p, 'update_hot', 'update_rule', p ->> 'typed_new', p ->> 'typed_old_key', true)
      || frostline.relation_door(p, 'update_cold', 'update_rule', p ->> 'typed_new', p ->> 'typed_old', false)
      || frostline.relation_door(p, 'delete_hot', 'delete_rule', null, p ->> 'typed_old_key', true)
      || frostline.relation_door(p, 'delete_cold', 'delete_rule', null, p ->> 'typed_old', false)
      || frostline.relation_door(p, 'insert', 'insert_rule', p ->> 'typed_new', null, false)
      || jsonb_build_array(
        frostline.relation_function(p, 'missed', 'writes.missed_function'),
        frostline.relation_function(p, 'may_write_cold', 'writes.may_write_cold_function'),
        frostline.relation_function(p, 'claim', 'writes.claim_function'),
        frostline.relation_function(p, 'unclaim', 'writes.unclaim_function'),
        -- Postgres refuses COPY FROM on a table with row security; without this trigger it refuses it here too.
        frostline.relation_function(p, 'copy', 'writes.copy_function', not secured),
        frostline.relation_triggers(p, 'relation', array['frostline_copy'], 'copy', 'writes.copy_trigger', not secured),
        frostline.relation_function(p, 'update', 'writes.update_function'),
        frostline.relation_triggers(p, 'inner', array['frostline_update', 'frostline_z_settle_update'], 'update', 'writes.update_trigger'),
        frostline.relation_function(p, 'delete', 'writes.delete_function'),
        frostline.relation_triggers(p, 'inner', array['frostline_delete', 'frostline_z_settle_delete'], 'delete', 'writes.delete_trigger'),
        frostline.relation_function(p, 'mark', 'objects.mark_function')
    ) || case when default_partition is null then jsonb_build_array() else jsonb_build_array(
        frostline.relation_object('trigger', array['!frostline_mark', '!frostline_truncate'], default_partition,
            array[frostline.filled('objects.mark_trigger', p || jsonb_build_object('partition', default_partition, 'function', p -> 'mark'))], null, false)) end
      || jsonb_build_array(
        frostline.relation_function(p, 'truncate', 'objects.truncate_function'),
        frostline.relation_triggers(p, 'heap', array['!frostline_truncate_all'], 'truncate', 'objects.truncate_trigger'))
      || frostline.relation_key_objects(managed, p);
    return query select o.place, o.value from jsonb_array_elements(objects) with ordinality as o (value, place);
end
$$;
