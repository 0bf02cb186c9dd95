-- What rows of files that lack the field have in the column, as canonical text; null is NULL. Postgres gave it to the rows that were there
-- when the column was added with a default: docs/design/added-columns.md. It is written once, with the field id, and never changes.
alter table frostline.managed_column add column missing text;

-- Readers outside Postgres need it, too. Otherwise the view is as it was.
create or replace view frostline.seam_column_v1 with (security_barrier) as
with heap as (
    select t.table_id, t.heap_oid as oid, overlay.oid as overlay_oid
      from frostline.seam_relation t
      left join pg_class overlay on overlay.relname = t.overlay
                                and overlay.relnamespace = (select n.oid from pg_namespace n
                                                             where n.nspname = 'frostline_overlay')
     where has_table_privilege(t.heap_oid, 'select')
), managed as (
    select m.*, row_number() over (partition by m.table_id order by m.attnum) as place, h.oid
      from frostline.managed_column m join heap h on h.table_id = m.table_id
), present as (
    select h.table_id, a.attnum, a.attname, a.atttypid, a.atttypmod,
           row_number() over (partition by h.table_id order by a.attnum) as place
      from heap h join pg_attribute a on a.attrelid = h.oid and a.attnum > 0 and not a.attisdropped
), marked as (
    select h.table_id, a.attname, row_number() over (partition by h.table_id order by a.attnum) as place
      from heap h join pg_attribute a on a.attrelid = h.overlay_oid and a.attnum > 0 and not a.attisdropped
     where a.attname not in ('frostline_live', 'frostline_version', 'frostline_marked_at')
), restored as (
    select h.table_id, exists (
        select from generate_series(1, (select max(m.attnum) from managed m where m.table_id = h.table_id)) as gap (number)
         where not exists (select from managed m where m.table_id = h.table_id and m.attnum = gap.number)
           and not exists (select from pg_attribute a
                            where a.attrelid = h.oid and a.attnum = gap.number and a.attisdropped)) as is_true
      from heap h
)
select m.table_id, (row_number() over (partition by m.table_id order by p.attnum))::integer as position,
       p.attname::text as name, o.attname::text as overlay_name, format_type(p.atttypid, p.atttypmod) as type,
       m.field_id, m.lake_type, m.as_text, m.missing
  from managed m
  join restored r on r.table_id = m.table_id
  join present p on p.table_id = m.table_id
                and case when r.is_true then p.place = m.place else p.attnum = m.attnum end
  left join marked o on o.table_id = m.table_id and o.place = m.place;
