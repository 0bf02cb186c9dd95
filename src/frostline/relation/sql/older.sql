-- What rows that are older than a column have in it: what Postgres remembers or has written, as text for the lake's rows.
-- docs/design/added-columns.md says why it is right.

-- name: cold_types_in
-- A type, and those that it consists of.
create or replace function frostline.cold_types_in(whole oid) returns setof oid
language sql stable set search_path = pg_catalog, pg_temp as $$
    with recursive inside as (
        select whole as oid
         union
        select n.oid from inside i join pg_type t on t.oid = i.oid
         cross join lateral (select t.typbasetype where t.typbasetype <> 0
                              union all
                             select t.typelem where t.typelem <> 0
                              union all
                             select r.rngsubtype from pg_range r where t.oid in (r.rngtypid, r.rngmultitypid)
                              union all
                             select a.atttypid from pg_attribute a where a.attrelid = t.typrelid and a.attnum > 0 and not a.attisdropped) n (oid))
    select i.oid from inside i
$$;

-- name: made_of_types
-- A type with its modifier, and if it is a domain, those that it is made of, down to the one that is none.
create or replace function frostline.made_of_types(kind oid, kind_modifier integer) returns table (oid oid, modifier integer, is_domain boolean)
language sql stable set search_path = pg_catalog, pg_temp as $$
    with recursive made_of (oid, modifier) as (
        select kind, kind_modifier
         union all
        select t.typbasetype, t.typtypmod from made_of m join pg_type t on t.oid = m.oid and t.typtype = 'd')
    select m.oid, m.modifier, t.typtype = 'd' from made_of m join pg_type t on t.oid = m.oid
$$;

-- name: has_one_text
-- Whether each value of the type has one text, which Postgres' own code prints and reads: types of its own, enums, rows and arrays of them.
-- A domain too, if its checks run no code of others: docs/design/deputies.md.
create or replace function frostline.has_one_text(heap oid, kind oid) returns boolean
language sql stable set search_path = pg_catalog, pg_temp as $$
    select coalesce(bool_and(t.typtype in ('e', 'c', 'd') or t.typcategory = 'A' and t.typelem <> 0 or t.oid < 16384 and t.typname in (
                        'bool', 'int2', 'int4', 'int8', 'float4', 'float8', 'numeric', 'text', 'varchar', 'bpchar', 'bytea', 'uuid', 'date', 'time',
                        'timetz', 'timestamp', 'timestamptz', 'interval', 'inet', 'cidr', 'json', 'jsonb')), false)
           and not exists (select from frostline.made_of_types(kind, -1) m join pg_cast c on c.castsource = m.oid and c.casttarget = 'text'::regtype
                            where m.oid >= 16384)
           and (bool_and(t.typtype <> 'd') or not exists (select from frostline.untrusted_code(heap)))
      from frostline.cold_types_in(kind) as i (oid) join pg_type t on t.oid = i.oid
$$;

-- name: says_added
-- Whether the text of a statement adds a column of that name.
create or replace function frostline.says_added(said text, named text) returns boolean
language sql immutable set search_path = pg_catalog, pg_temp as $$
    select said ~* format('\madd\s+(?:column\s+)?(?:if\s+not\s+exists\s+)?(?:"%s"|%s)(?!["\w$])', regexp_replace(replace(named, '"', '""'), '(\W)', '\\\1', 'g'),
                          regexp_replace(named, '(\W)', '\\\1', 'g'))
$$;

-- name: constant_default
-- What a constant default has given the rows that were there if no partition remembers it: Postgres writes it into each row for a domain with
-- constraints, and for all columns of a statement that rewrites the heap for another one. Null where the text does not say that it has added
-- the column, and where old rows may have NULL because it set the default afterwards: any row of the heap tells, or else the text, as for
-- `filled_by`. A domain's checks run with our rights: the caller has seen that they may.
create or replace function frostline.constant_default(heap oid, number smallint) returns text
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    said text := concat_ws(E';\n', current_query(), current_setting('frostline.statement', true));
    given record;
    is_filled boolean;
    canonical text;
begin
    select a.attname, d.adbin is null as is_types, format_type(a.atttypid, a.atttypmod) as type, format_type(m.oid, m.modifier) as base,
           coalesce(pg_get_expr(d.adbin, a.attrelid), pg_get_expr(t.typdefaultbin, 0)) as value into given
      from pg_attribute a
      join pg_type t on t.oid = a.atttypid
      join lateral frostline.made_of_types(a.atttypid, a.atttypmod) m on not m.is_domain
      left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
     cross join lateral (select coalesce(d.adbin::text, t.typdefaultbin::text) as tree) n
     where a.attrelid = heap and a.attnum = number and a.attgenerated = '' and a.attidentity = '' and age(a.xmin) <= age(pg_current_xact_id()::xid)
       and frostline.says_added(said, a.attname)
       and n.tree !~ '\u007B(?!(CONST|COERCETODOMAIN|RELABELTYPE|FUNCEXPR|OPEXPR|ARRAYEXPR|ARRAY|ROWEXPR|ROW) )'
       and not exists (select from regexp_matches(n.tree, ':(?:op)?funcid (\d+)', 'g') as r (funcid) left join pg_proc f on f.oid = r.funcid[1]::oid
                        where f.oid is null or f.oid >= 16384 or f.provolatile <> 'i');
    if not found then
        return null;
    end if;
    execute format('select h.%I is not null from %s as h limit 1', given.attname, heap::regclass) into is_filled;
    if coalesce(is_filled, said !~* '\mset\s+default\M' and (given.is_types or said ~* '\madd\M.*\mdefault\M')) then
        execute format('select (%s)::%s::%s::text', given.value, given.type, given.base) into canonical;
    end if;
    return canonical;
exception when others then
    return null;
end
$$;

-- name: takes_null
-- Whether rows that are older than a column of this type have NULL in it: a domain may have a default, or refuse NULL, by a check too.
create or replace function frostline.takes_null(heap oid, kind oid) returns boolean
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
begin
    if exists (select from pg_type t where t.oid = kind and t.typdefault is not null) then
        return false;
    end if;
    if exists (select from frostline.made_of_types(kind, -1) m join pg_type t on t.oid = m.oid
                where m.is_domain and (t.typnotnull or exists (select from pg_constraint c where c.contypid = m.oid))) then
        if exists (select from frostline.untrusted_code(heap)) then
            return false;
        end if;
        execute format('select null::%s', format_type(kind, -1));
    end if;
    return true;
exception when others then
    return false;
end
$$;

-- name: missing_value
-- What Postgres shows in rows that are older than the column, as canonical text, under the settings in which every value has one; null
-- for types that are not ours to print or have values that the lake cannot hold, and where the DEFAULT partition, which is as old as
-- the table's management, does not remember it or others differ.
create or replace function frostline.missing_value(heap oid, number smallint) returns text
language plpgsql stable set search_path = pg_catalog, pg_temp
set timezone = 'UTC' set datestyle = 'ISO' set intervalstyle = 'postgres' set extra_float_digits = 1 set bytea_output = 'hex' as $$
declare
    remembered record;
    canonical text;
begin
    select (a.attmissingval::text::text[])[1] as text, format_type(m.oid, m.modifier) as type, t.oid < 16384 as is_builtin, t.typname into remembered
      from pg_attribute h
      join lateral frostline.made_of_types(h.atttypid, h.atttypmod) m on not m.is_domain
      join pg_type t on t.oid = m.oid
      join pg_partitioned_table p on p.partrelid = h.attrelid
      left join pg_attribute a on a.attrelid = p.partdefid and a.attname = h.attname and a.atthasmissing
     where h.attrelid = heap and h.attnum = number and frostline.has_one_text(heap, h.atttypid)
       and not exists (select from pg_partition_tree(heap) l join pg_attribute o on o.attrelid = l.relid and o.attname = h.attname
                        where o.atthasmissing and o.attmissingval::text is distinct from a.attmissingval::text);
    if not found then
        return null;
    end if;
    canonical := coalesce(remembered.text, frostline.constant_default(heap, number));
    if remembered.text is not null and remembered.is_builtin then
        execute format('select %L::%s::text', remembered.text, remembered.type) into canonical;
    end if;
    -- A NaN may have bits that no text tells, or be too much for a decimal; a year of six digits may be too much for a timestamp.
    return case when canonical <> 'NaN' and not (remembered.typname like 'timestamp%' and canonical ~ '^\d\d\d\d\d\d') then canonical end;
end
$$;

-- name: filled_by
-- How Postgres has just filled a new column by a volatile default, of those that have no value in particular: uuid4, uuid7, clock. Null
-- for all others, also where old rows may have NULL because the same statement set the default afterwards. The heap says, by any row; if it
-- has none, the text of the statement. A column that is older than this transaction, or of a heap that it has not written anew, may have got
-- its default later. Rows that the lake has too must be given what the lake shows: none of that may run code of others.
create or replace function frostline.filled_by(managed integer, number smallint) returns text
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    heap oid := frostline.heap_of(managed);
    said text := concat_ws(E';\n', current_query(), current_setting('frostline.statement', true));
    now_age integer := age(pg_current_xact_id()::xid);
    is_filled boolean;
    named text;
    kind text;
begin
    select a.attname, case when a.atttypid = 'uuid'::regtype and f.proname in ('gen_random_uuid', 'uuidv4', 'uuid_generate_v4') then 'uuid4'
                when a.atttypid = 'uuid'::regtype and f.proname = 'uuidv7' then 'uuid7'
                when a.atttypid = 'timestamptz'::regtype and f.proname = 'clock_timestamp' then 'clock' end into named, kind
      from pg_attribute a
      join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
     cross join lateral regexp_match(d.adbin::text, '^\u007BFUNCEXPR :funcid (\d+) [^\u007B]*:args <> :location -?\d+\u007D$') as m (funcid)
      join pg_proc f on f.oid = m.funcid[1]::oid
     where a.attrelid = heap and a.attnum = number and a.attgenerated = '' and a.attidentity = '' and age(a.xmin) <= now_age
       and exists (select from pg_partitioned_table p join pg_class c on c.oid = p.partdefid where p.partrelid = heap and age(c.xmin) <= now_age)
       and (f.oid < 16384 and f.pronamespace = 'pg_catalog'::regnamespace
            or exists (select from pg_depend e join pg_extension x on x.oid = e.refobjid and x.extname in ('uuid-ossp', 'pgcrypto')
                        where e.classid = 'pg_proc'::regclass and e.objid = f.oid and e.deptype = 'e'));
    if kind is null then
        return null;
    end if;
    execute format('select h.%I is not null from %s as h limit 1', named, heap::regclass) into is_filled;
    if not coalesce(is_filled, said ~* '\madd\M.*\mdefault\M' and said !~* '\mset\s+default\M') then
        return null;
    end if;
    if exists (select from frostline.untrusted_code(heap)) or not has_parameter_privilege('session_replication_role', 'set') or exists (
           select from pg_partition_tree(heap) l join pg_trigger t on t.tgrelid = l.relid join pg_proc f on f.oid = t.tgfoid
            where not t.tgisinternal and t.tgenabled in ('A', 'R') and f.pronamespace <> 'frostline_relation'::regnamespace) or exists (
           select from pg_partition_tree(heap) l join pg_rewrite r on r.ev_class = l.relid where r.ev_enabled in ('A', 'R')) then
        return null;
    end if;
    return kind;
end
$$;

-- name: own_missing_value
-- What rows of the lake have in a column that was filled so: the time, or how to compute a uuid from the row's key. Another one at each call.
create or replace function frostline.own_missing_value(managed integer, filled_by text) returns text
language sql volatile set search_path = pg_catalog, pg_temp set timezone = 'UTC' set datestyle = 'ISO' as $$
    select case filled_by
               when 'clock' then clock_timestamp()::text
               else format('%s%s:%s:%s', filled_by,
                           case filled_by when 'uuid7' then lpad(to_hex((extract(epoch from clock_timestamp()) * 1000)::bigint), 12, '0') end,
                           left(encode(sha256(uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid())), 'hex'), 24),
                           (select string_agg(m.field_id || case
                                       when m.lake_type in ('int', 'long') then 'i' when m.lake_type = 'binary' then 'x' when m.lake_type = 'timestamptz' then 'z'
                                       when m.lake_type like 'decimal%' then 'n' || substring(m.lake_type from ', ?(\d+)')
                                       else left(m.lake_type, 1) end, ',' order by c.key_place)
                              from frostline.relation_columns(managed) c
                              join frostline.managed_column m on m.table_id = managed and m.name = c.column_name
                             where c.key_place is not null)) end
$$;
