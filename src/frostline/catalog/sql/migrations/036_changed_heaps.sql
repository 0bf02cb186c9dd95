-- What a heap may not change unseen: the key by which its rows are known, and how its generated columns are computed.
-- docs/design/schema-changes.md.

-- How a generated column is computed, in two ways: as Postgres prints it, which a restored dump keeps, and as Postgres has it, which a RENAME
-- keeps. It is the same while either is. Null for a plain column.
create function frostline.generation_of(heap oid, number smallint) returns text[]
language sql stable set search_path = pg_catalog, pg_temp as $$
    select array[pg_get_expr(d.adbin, d.adrelid), d.adrelid || ' ' || regexp_replace(d.adbin::text, ':location -?\d+', '', 'g')]
      from pg_attribute a join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
     where a.attrelid = heap and a.attnum = number and a.attgenerated <> ''
$$;
revoke execute on function frostline.generation_of(oid, smallint) from public;

alter table frostline.managed_column add column generation text[];
update frostline.managed_column m set generation = frostline.generation_of(frostline.heap_of(m.table_id), m.attnum);

-- The key is the overlay's, as the heap calls its columns: where there are no event triggers, the heap may have got another one.
create or replace view frostline.seam_v1 with (security_barrier) as
select t.table_id, t.schema_name, t.table_name, t.heap, format('frostline_overlay.%I', t.overlay) as overlay,
       array(select c.name
               from pg_class o
               join pg_namespace n on n.oid = o.relnamespace and n.nspname = 'frostline_overlay'
               join pg_index i on i.indrelid = o.oid and i.indisprimary
              cross join unnest(i.indkey::smallint[]) with ordinality as k (attnum, position)
               join pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.attnum
               join frostline.seam_column_v1 c on c.table_id = t.table_id and c.overlay_name = a.attname
              where o.relname = t.overlay
              order by k.position) as key_columns,
       a.attname::text as tier_key, t.tier_kind,
       line.frost_line, frostline.axis_v1(line.frost_line, t.tier_kind) as frost_line_axis,
       s.snapshot_id, s.metadata_location,
       line.retained, frostline.axis_v1(line.retained, t.tier_kind) as retained_axis
  from frostline.seam_relation t
  join frostline.seam s on s.table_id = t.table_id
  join pg_partitioned_table p on p.partrelid = t.heap_oid
  join pg_attribute a on a.attrelid = t.heap_oid and a.attnum = p.partattrs[0]
 cross join lateral (
    select coalesce(frostline.text_v1(s.line_timestamptz), frostline.text_v1(s.line_timestamp),
                    frostline.text_v1(s.line_date), s.line_integer::text) as frost_line,
           coalesce(frostline.text_v1(s.retained_timestamptz), frostline.text_v1(s.retained_timestamp),
                    frostline.text_v1(s.retained_date), s.retained_integer::text) as retained) line
 where has_table_privilege(t.heap_oid, 'select');
