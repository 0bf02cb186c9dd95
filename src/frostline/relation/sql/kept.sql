-- What of a heap must stay as it is while overlay or lake have rows of it: its key, and how its generated columns are computed.
-- docs/design/schema-changes.md. Called by the event triggers, and by `frostline table sync` where there are none.

-- name: refuse_other_key
-- Overlay and lake know rows by the key that the table had when it was added. Only what this transaction has done is judged; a dropped
-- column is for `refuse_changes`.
create or replace function frostline.refuse_other_key(managed integer, is_dropped boolean default false) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    heap oid := frostline.heap_of(managed);
    known smallint[] := frostline.known_key(managed);
    present smallint[];
    is_new boolean;
begin
    select i.indkey::smallint[], age(i.xmin) <= age(pg_current_xact_id()::xid) into present, is_new
      from pg_index i where i.indrelid = heap and i.indisprimary;
    if known is null or not (is_dropped and present is null or is_new is true) or present @> known and present <@ known
       or exists (select from pg_attribute a where a.attrelid = heap and a.attnum = any (known) and a.attisdropped) then
        return;
    end if;
    raise feature_not_supported using
        message = format('a managed table knows its rows by the primary key that it was added with: that of %s must be (%s)', heap::regclass,
                         (select string_agg(format('%I', a.attname), ', ' order by array_position(known, a.attnum))
                            from pg_attribute a where a.attrelid = heap and a.attnum = any (known))),
        hint = format('frostline table remove %s --thaw brings all rows back; then change the key, and add the table again',
                      (select format('%I.%I', t.schema_name, t.table_name) from frostline.managed_table t where t.table_id = managed));
end
$$;

-- name: changed_generations
-- The columns that are computed otherwise than when they were looked at last, or not any more.
create or replace function frostline.changed_generations(managed integer)
returns table (field_id integer, column_name text, attnum smallint, is_plain boolean)
language sql stable set search_path = pg_catalog, pg_temp as $$
    select m.field_id, a.attname::text, a.attnum, a.attgenerated = ''
      from frostline.managed_column m
      join frostline.carried_columns(managed, frostline.heap_of(managed)) c on c.field_id = m.field_id
      join pg_attribute a on a.attrelid = frostline.heap_of(managed) and a.attnum = c.attnum and not a.attisdropped
     where m.table_id = managed and m.generation is not null
       and (a.attgenerated = '' or not m.generation && frostline.generation_of(a.attrelid, a.attnum))
$$;

-- name: note_generations
-- How generated columns are computed now. Says which are not any more.
create or replace function frostline.note_generations(managed integer) returns text[]
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    plain text[] := array(select g.column_name from frostline.changed_generations(managed) g where g.is_plain);
begin
    update frostline.managed_column m set generation = n.generation
      from frostline.carried_columns(managed, frostline.heap_of(managed)) c
     cross join lateral frostline.generation_of(frostline.heap_of(managed), c.attnum) as n (generation)
     where m.table_id = managed and m.field_id = c.field_id and m.generation is distinct from n.generation;
    return plain;
end
$$;

-- name: refuse_other_generation
-- Postgres computes such a column anew in each row of the heap, and in no row of the lake. With another type it does so too: what is rounded
-- otherwise then would differ. A column that is computed no more keeps its values everywhere, and is followed.
create or replace function frostline.refuse_other_generation(managed integer) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    p jsonb := frostline.relation_names(managed);
    heap oid := frostline.heap_of(managed);
    is_cold boolean := exists (select from frostline.lake_file f where f.table_id = managed);
    changed record;
begin
    if not is_cold then
        execute format('select exists (select from %s)', p ->> 'overlay') into is_cold;
    end if;
    select a.attname, pg_get_expr(d.adbin, d.adrelid) as expression into changed
      from pg_attribute a
      join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
     where is_cold and a.attrelid = heap and a.attgenerated <> ''
       and case when a.attname in (select x.column_name from frostline.changed_columns(managed) x)
                then a.atttypid in ('float8'::regtype, 'timestamp'::regtype, 'timestamptz'::regtype)
                else a.attnum in (select g.attnum from frostline.changed_generations(managed) g) end
     limit 1;
    if found then
        raise feature_not_supported using
            message = format('column %I of %s cannot be computed anew: rows in the lake would keep the values that they have', changed.attname, heap::regclass),
            hint = format('Make it a plain column, which a trigger computes, of cold rows too: alter table %1$s alter column %2$I drop expression; '
                          'create trigger ... before insert or update on %1$s for each row ...; update %3$s set %2$I = %4$s', heap::regclass,
                          changed.attname, p ->> 'relation', changed.expression);
    end if;
end
$$;

-- name: refuse_truncate_of_overlay
-- The lake's rows would be shown as they were, and those that were deleted be back. For whoever may drop the overlay, frostline.guard = off.
create or replace function frostline.refuse_truncate_of_overlay() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    if current_setting('frostline.guard', true) = 'off' and pg_has_role(session_user, current_user, 'member') then
        return null;
    end if;
    raise object_not_in_prerequisite_state using
        message = format('%s cannot be truncated: cold rows that were changed or deleted would be as they are in the lake', tg_relid::regclass),
        hint = (select format('frostline fold %I.%I writes them into the lake', t.schema_name, t.table_name) from frostline.managed_table t
                 where to_regclass(frostline.relation_names(t.table_id) ->> 'overlay') = tg_relid);
end
$$;
revoke execute on function frostline.refuse_truncate_of_overlay() from public;

-- name: relation_lacks_marks
-- Whether DEFAULT has a row below the frost line without a mark, which nobody sees: somebody has emptied the overlay. Changed cold rows are
-- there until they are folded, so it reads few; a DEFAULT that has grown beyond 128 MB, by rows without a partition, is not read at each
-- look. ACCESS SHARE on both. False where one of them is gone, and of a table with code of others: to plan a query is to run some of it.
create or replace function frostline.relation_lacks_marks(managed integer) returns boolean
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    p jsonb := frostline.relation_names(managed);
    question text := (
        select format('select exists (select from only %s as h where h.%I < %s and not exists (select from %s as o where %s))',
                      t.partdefid::regclass, max(c.column_name) filter (where c.is_tier), p ->> 'line', p ->> 'overlay',
                      string_agg(format('o.%I = h.%I', m.name, c.column_name), ' and ') filter (where c.key_place is not null))
          from pg_partitioned_table t
         cross join frostline.relation_columns(managed) c
          join frostline.carried_columns(managed, t.partrelid) f on f.attnum = c.attnum
          join frostline.managed_column m on m.table_id = managed and m.field_id = f.field_id
         where t.partrelid = frostline.heap_of(managed) and t.partdefid <> 0 and pg_relation_size(t.partdefid) <= 1 << 27
           and to_regclass(p ->> 'overlay') is not null
         group by t.partdefid);
    lacks_marks boolean := false;
begin
    if question is not null and not exists (select from frostline.untrusted_code(frostline.heap_of(managed))) then
        execute question into lacks_marks;
    end if;
    return lacks_marks;
end
$$;
