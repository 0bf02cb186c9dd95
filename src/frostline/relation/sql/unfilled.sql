-- New columns of a heap for which each row of the lake would need a value of its own: docs/design/added-columns.md.

-- name: sequence_options
-- Those that are not what a sequence of its type has anyway, as CREATE SEQUENCE and identity take them; null if there are none.
create or replace function frostline.sequence_options(sequence oid) returns text
language sql stable set search_path = pg_catalog, pg_temp as $$
    select nullif(concat_ws(' ', case when s.seqincrement <> 1 then format('increment by %s', s.seqincrement) end,
                            case when s.seqmin <> case when s.seqincrement > 0 then 1 else t.lowest end then format('minvalue %s', s.seqmin) end,
                            case when s.seqmax <> case when s.seqincrement > 0 then -1 - t.lowest else -1 end then format('maxvalue %s', s.seqmax) end,
                            case when s.seqstart <> case when s.seqincrement > 0 then s.seqmin else s.seqmax end then format('start with %s', s.seqstart) end,
                            case when s.seqcache <> 1 then format('cache %s', s.seqcache) end,
                            case when s.seqcycle then 'cycle' end), '')
      from pg_sequence s
     cross join lateral (select case s.seqtypid when 'int2'::regtype then -32768 when 'int4'::regtype then -2147483648
                                                else -9223372036854775808 end::bigint as lowest) t
     where s.seqrelid = sequence
$$;

-- name: unfilled_columns
-- Those that an ALTER has just brought, and `frostline table sync` would refuse; and what adds each by itself, for `frostline table alter`.
create or replace function frostline.unfilled_columns(managed integer) returns table (column_name name, change text)
language sql stable set search_path = pg_catalog, pg_temp as $$
    select a.attname,
           concat_ws(' ', format('add column %I', a.attname),
                     case when s.is_serial then case format_type(a.atttypid, a.atttypmod) when 'bigint' then 'bigserial' when 'smallint' then 'smallserial' else 'serial' end
                          else format_type(a.atttypid, a.atttypmod) end,
                     case when l.oid is not null then format('collate %I.%I', n.nspname, l.collname) end,
                     case when a.attgenerated <> '' then format('generated always as (%s) %s', pg_get_expr(d.adbin, d.adrelid),
                                                                case a.attgenerated when 's' then 'stored' else 'virtual' end) end,
                     case when a.attidentity <> '' then format('generated %s as identity', case a.attidentity when 'a' then 'always' else 'by default' end)
                          else case when a.attnotnull and not coalesce(s.is_serial, false) then 'not null' end end,
                     case when a.attidentity <> '' then '(' || s.options || ')' end,
                     case when not coalesce(s.is_serial, false) and a.attgenerated = '' then 'default ' || pg_get_expr(d.adbin, d.adrelid) end)
      from frostline.managed_table t
      join pg_attribute a on a.attrelid = frostline.heap_of(t.table_id) and a.attnum > coalesce(t.left_to_sync, 0) and not a.attisdropped
      join pg_type y on y.oid = a.atttypid
      join pg_partitioned_table p on p.partrelid = a.attrelid
      left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
      left join pg_collation l on l.oid = a.attcollation and l.oid <> 100
      left join pg_namespace n on n.oid = l.collnamespace
      left join lateral (
        select o.deptype = 'a' as is_serial, frostline.sequence_options(c.oid) as options
          from pg_depend o join pg_class c on c.oid = o.objid and c.relkind = 'S'
         where o.classid = 'pg_class'::regclass and o.refclassid = 'pg_class'::regclass and o.refobjid = a.attrelid and o.refobjsubid = a.attnum
           and o.deptype in ('a', 'i')
         limit 1) s on true
     where t.table_id = managed
       and a.attnum not in (select c.attnum from frostline.carried_columns(managed, a.attrelid) c)
       and a.attname not in (select f.column_name from frostline.filling f where f.table_id = managed)
       and exists (select from frostline.lake_file f where f.table_id = managed)
       and (a.attgenerated <> '' or a.attidentity <> ''
            or (a.atthasdef or a.attnotnull or y.typtype = 'd' and y.typdefault is not null)
               and not exists (select from pg_attribute r where r.attrelid = p.partdefid and r.attname = a.attname and r.atthasmissing)
               and frostline.filled_by(managed, a.attnum) is null and frostline.missing_value(a.attrelid, a.attnum) is null)
     order by a.attnum
$$;

-- name: refuse_unfilled_columns
-- No job could go on with them: what rows of the lake have would not be known. Whoever allows it mends it before the next archive.
create or replace function frostline.refuse_unfilled_columns(managed integer) returns void
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    unfilled record;
begin
    if current_setting('frostline.unfilled_columns', true) = 'allow' then
        return;
    end if;
    select u.* into unfilled from frostline.unfilled_columns(managed) u limit 1;
    if found then
        raise feature_not_supported using
            message = format('column %I of %s needs a value of its own in each row, and ALTER TABLE writes none in the lake',
                             unfilled.column_name, frostline.heap_of(managed)::regclass),
            -- Steps can fill it: `relation.altering` knows that by the name.
            column = unfilled.column_name,
            detail = 'Jobs would stop until the column is dropped again. Who wants that: set frostline.unfilled_columns = ''allow''.',
            hint = format('frostline table alter %s %s', (select format('%I.%I', t.schema_name, t.table_name) from frostline.managed_table t
                                                           where t.table_id = managed),
                          -- Quoted for a shell.
                          '''' || replace(unfilled.change, '''', $quoted$'\''$quoted$) || '''');
    end if;
end
$$;
