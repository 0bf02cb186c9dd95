-- name: read
-- What each table with a lake should have and has not, of all tables or of one; the gravest first. ACCESS SHARE on overlays and DEFAULT
-- partitions, which have few rows below the frost line; else it reads system catalogs.
select t.schema_name, t.table_name, o.what, o.name
  from frostline.managed_table t
 cross join lateral (select '_' || t.table_id as text) suffix
 -- As the names were cut when they were made: see frostline.seam_relation.
 cross join lateral (select substr((repeat('_', length(suffix.text)) || coalesce(t.first_name, t.table_name))::name::text, length(suffix.text) + 1)
                            || suffix.text as internal) own
 cross join lateral (select to_regclass(format('%%I.%%I', t.schema_name, t.heap_name))::oid as heap,
                            to_regclass(format('frostline_lake.%%I', own.internal))::oid as lake,
                            to_regproc('frostline_relation.mark_' || t.table_id)::oid as mark) r
 cross join lateral (
    select w.rank, w.what, w.name
      from (values (1, 'heap', 'p', format('%%I.%%I', t.schema_name, t.heap_name)),
                   (2, 'overlay', 'r', format('frostline_overlay.%%I', own.internal)),
                   (6, 'inner view', 'v', format('frostline_relation.%%I', own.internal)),
                   (7, 'relation', 'v', format('%%I.%%I', t.schema_name, coalesce(t.relation_name, t.table_name))),
                   (8, 'lake table', 'p', format('frostline_lake.%%I', own.internal))) as w (rank, what, kind, name)
     where not exists (select from pg_class c where c.oid = to_regclass(w.name) and c.relkind::text = w.kind)
    union all
    select 5, 'mark', format('of rows in %%s', p.partdefid::regclass)
      from pg_partitioned_table p where p.partrelid = r.heap and frostline.relation_lacks_marks(t.table_id)
    union all
    select 3, 'DEFAULT partition', format('of %%s', r.heap::regclass)
      from pg_partitioned_table p where p.partrelid = r.heap and p.partdefid = 0
    union all
    select 4, 'marking trigger', format('on %%s', c.oid::regclass)
      from pg_inherits i join pg_class c on c.oid = i.inhrelid
      left join pg_partitioned_table p on p.partrelid = i.inhparent and p.partdefid = c.oid
     where i.inhparent = r.heap
       and (p.partdefid is not null
            or exists (select from frostline.archived_partition a where a.table_id = t.table_id and a.cleaned_at is null
                          and to_regclass(a.partition_name) = c.oid))
       and not exists (select from pg_trigger g where g.tgrelid = c.oid and g.tgfoid = r.mark and g.tgtype & 1 = 1 and g.tgenabled = 'A')
    union all
    select 5, 'foreign server', 'frostline_lake' where not exists (select from pg_foreign_server where srvname = 'frostline_lake')
    union all
    select 9, 'foreign table', format('of %%s', r.lake::regclass)
     where r.lake is not null and exists (select from frostline.lake_file f where f.table_id = t.table_id)
       -- They follow on each other up to the frost line, or to what is above it.
       and not (with part as (
            select c.relkind, trim(m[1], '''') as lower, trim(m[2], '''') as upper
              from pg_inherits i
              join pg_class c on c.oid = i.inhrelid
             cross join lateral regexp_match(pg_get_expr(c.relpartbound, c.oid), 'FROM \((.*)\) TO \((.*)\)') as b (m)
             where i.inhparent = r.lake)
            select coalesce(bool_and(p.lower = 'MINVALUE' or exists (select from part o where o.upper = p.lower)) and bool_or(
                       case t.tier_kind when 'timestamp with time zone' then p.upper::timestamptz >= s.line_timestamptz
                                        when 'timestamp without time zone' then p.upper::timestamp >= s.line_timestamp
                                        when 'date' then p.upper::date >= s.line_date
                                        else p.upper::bigint >= s.line_integer end), false)
              from part p cross join frostline.seam s where p.relkind = 'f' and s.table_id = t.table_id)
 ) o
 where t.mode = 'tiered' and (%(table_id)s::integer is null or t.table_id = %(table_id)s::integer)
 order by t.schema_name, t.table_name, o.rank, o.name

-- name: renamed
-- The heap and the relation of a table under other names than the catalog has: by whose partitions call our function, and by our
-- rule on a view of the inner view. Locks nothing.
select distinct 'heap', root.oid::regclass::text
  from pg_trigger g
 cross join lateral (select pg_partition_root(g.tgrelid)::oid as oid) root
 where g.tgfoid = to_regproc('frostline_relation.mark_' || %(table_id)s::integer) and root.oid is not null
   and root.oid is distinct from to_regclass(%(heap)s)
union all
select distinct 'relation', w.ev_class::regclass::text
  from pg_rewrite w
  join pg_rewrite r on r.ev_class = w.ev_class and r.rulename = '_RETURN'
  join pg_depend d on d.classid = 'pg_rewrite'::regclass and d.objid = r.oid and d.refclassid = 'pg_class'::regclass
                  and d.refobjid = to_regclass(%(inner)s)
 where w.rulename = 'frostline_insert' and w.ev_class is distinct from to_regclass(%(relation)s)
