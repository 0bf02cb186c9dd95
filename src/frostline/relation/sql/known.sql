-- What keeps cold rows from being read or written in a way that is wrong while a relation has not followed its heap yet. With event
-- triggers it has at once; where there are none, `frostline table sync` comes later: docs/design/schema-changes.md.

-- name: require_known_heap
-- Cold rows are to be 'read', 'written' or 'inserted', and the heap must have the columns that the overlay was made with, in their order. To
-- read those, it may have more behind them. Called for each statement that asks the lake, and for each row that is written there or looked
-- for. Rows that are 'marked' are taken for those of the key that they have by name: it is enough that its columns are still called so.
-- Takes no lock: the statement has one that keeps ALTER TABLE out. Runs with its owner's rights, and reads catalogs only.
create or replace function frostline_write.require_known_heap(managed integer, heap oid, marked oid, wanted text) returns void
language plpgsql stable parallel safe security definer set search_path = pg_catalog, pg_temp as $$
declare
    known name[] := array(select a.attname from pg_attribute a where a.attrelid = marked and a.attnum > 0 and not a.attisdropped
                             and a.attname not in ('frostline_live', 'frostline_version', 'frostline_marked_at') order by a.attnum);
    present name[] := array(select a.attname from pg_attribute a where a.attrelid = heap and a.attnum > 0 and not a.attisdropped order by a.attnum);
    key name[] := array(select a.attname from pg_index i join pg_attribute a on a.attrelid = marked and a.attnum = any (i.indkey)
                         where i.indrelid = marked and i.indisprimary);
    is_followed boolean := case wanted when 'read' then present[:cardinality(known)] = known
                                       when 'marked' then (select bool_and(present[array_position(known, k)] = k) from unnest(key) as k)
                                       else present = known end;
begin
    if is_followed and wanted <> 'marked' and exists (select from frostline.managed_column m where m.table_id = managed and m.generation is not null) then
        -- A column that is computed no more keeps its values: whoever reads them has the right ones.
        is_followed := not exists (select from frostline.changed_generations(managed) g where wanted <> 'read' or not g.is_plain);
    end if;
    if is_followed and wanted = 'inserted' then
        -- As `relation_stale_defaults` has it, which takes as long as to ask the lake.
        is_followed := not exists (
            select from frostline.managed_table t
              join pg_attribute r on r.attrelid = to_regclass(format('%I.%I', t.schema_name, coalesce(t.relation_name, t.table_name)))
              join pg_attribute h on h.attrelid = heap and h.attname = r.attname and h.attgenerated = '' and h.attidentity = ''
              left join pg_attrdef s on s.adrelid = r.attrelid and s.adnum = r.attnum
              left join pg_attrdef d on d.adrelid = h.attrelid and d.adnum = h.attnum
             where t.table_id = managed and (r.atthasdef or h.atthasdef)
               and pg_get_expr(s.adbin, s.adrelid) is distinct from pg_get_expr(d.adbin, d.adrelid));
    end if;
    if not is_followed then
        raise object_not_in_prerequisite_state using
            message = (select format('cold rows of %I.%I cannot be %s: the columns of %s were altered, and it has not followed them yet',
                                     t.schema_name, coalesce(t.relation_name, t.table_name), wanted, heap::regclass)
                         from frostline.managed_table t where t.table_id = managed),
            hint = (select format('frostline table sync %I.%I', t.schema_name, t.table_name) from frostline.managed_table t where t.table_id = managed);
    end if;
    -- All that was as of the one snapshot of the transaction. What describes an object goes by what is there now.
    if wanted <> 'read' and current_setting('transaction_isolation') in ('repeatable read', 'serializable') and exists (
           select from pg_class c
            cross join lateral (select a.attnum, format('.%I', a.attname) as suffix from pg_attribute a
                                 where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
                                    and (wanted <> 'marked' or a.attname = any (key))
                                 union all
                                select c.relnatts + 1, null where wanted <> 'marked') s
            where c.oid = heap
              and (select i.identity from pg_identify_object('pg_class'::regclass, c.oid, s.attnum) i)
                  is distinct from (select i.identity || s.suffix from pg_identify_object('pg_class'::regclass, c.oid, 0) i)
            union all
           select from pg_attrdef d
            where d.adrelid = heap and wanted <> 'marked' and (select i.identity from pg_identify_object('pg_attrdef'::regclass, d.oid, 0) i) is null) then
        raise serialization_failure using message = format('%s was altered after the snapshot of this transaction', heap::regclass),
            hint = 'Run the transaction again.';
    end if;
end
$$;
grant execute on function frostline_write.require_known_heap(integer, oid, oid, text) to public;

-- name: has_known_key
-- The same for rows that are 'marked', as part of a query of the heap. IMMUTABLE, so that it is asked when that is planned: whatever alters
-- the heap has the query planned anew, and a row that is marked by a kept plan pays nothing.
create or replace function frostline_write.has_known_key(managed integer, heap oid, marked oid) returns boolean
language plpgsql immutable parallel safe set search_path = pg_catalog, pg_temp as $$
begin
    perform frostline_write.require_known_heap(managed, heap, marked, 'marked');
    return true;
end
$$;
grant execute on function frostline_write.has_known_key(integer, oid, oid) to public;
