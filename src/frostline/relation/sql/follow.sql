-- Lets a relation follow its heap, in the transaction of whoever altered that: docs/design/schema-changes.md. Called by the event
-- triggers, and by `frostline table sync` where there are none. What a function makes goes through format, with names quoted.

-- name: lake_encoding
-- How a type travels, as `model.types.encoding` has it; a test compares the two.
create or replace function frostline.lake_encoding(type oid, modifier integer, collation_oid oid)
returns table (lake_type text, as_text boolean, pushable boolean)
language sql stable set search_path = pg_catalog, pg_temp as $$
    select coalesce(n.native, 'string'), n.native is null,
           case when n.native is null then b.builtin and t.typname = 'uuid' else coalesce(l.collisdeterministic, true) end
      from pg_type t
      left join pg_collation l on l.oid = collation_oid
     cross join lateral (select t.oid < 16384 and t.typnamespace = 'pg_catalog'::regnamespace as builtin,
                                ((modifier - 4) >> 16) & 65535 as digits, (((modifier - 4) & 2047) # 1024) - 1024 as scale) b
     cross join lateral (select case when b.builtin then
            case t.typname when 'bool' then 'boolean' when 'int2' then 'int' when 'int4' then 'int' when 'int8' then 'long'
                           when 'float4' then 'float' when 'float8' then 'double' when 'date' then 'date'
                           when 'timestamp' then 'timestamp' when 'timestamptz' then 'timestamptz'
                           when 'text' then 'string' when 'varchar' then 'string' when 'bytea' then 'binary'
                           when 'numeric' then case when modifier >= 4 and b.scale between 0 and b.digits and b.digits <= 38
                                                    then format('decimal(%s, %s)', b.digits, b.scale) end end end as native) n
     where t.oid = type
$$;

-- name: address_text
create or replace function frostline.address_text(address jsonb) returns text
language sql immutable set search_path = pg_catalog, pg_temp as $$
    select format('%s %s', address ->> 'kind', address ->> 'name')
           || case when address ->> 'relation' <> '' then ' on ' || (address ->> 'relation') else '' end
$$;

-- name: object_definition
-- As Postgres prints it; null when it is not there.
create or replace function frostline.object_definition(kind text, name text, relation text) returns text
language sql stable set search_path = pg_catalog, pg_temp as $$
    select concat_ws('|', c.reloptions, case c.relkind when 'v' then pg_get_viewdef(c.oid) end) from pg_class c
     where kind in ('table', 'view') and c.oid = to_regclass(name) and (c.relkind = 'v') = (kind = 'view')
    union all
    select pg_get_functiondef(p.oid) from pg_proc p where kind = 'function' and p.oid = to_regproc(name)
    union all
    select concat_ws('|', r.ev_enabled, pg_get_ruledef(r.oid)) from pg_rewrite r
     where kind = 'rule' and r.ev_class = to_regclass(relation) and r.rulename = name
    union all
    select concat_ws('|', t.tgenabled, pg_get_triggerdef(t.oid)) from pg_trigger t
     where kind = 'trigger' and t.tgrelid = to_regclass(relation) and t.tgname = name and not t.tgisinternal
$$;

-- name: relation_state
-- The objects that can be put in the place of others, whether each is there, and what stands for its statements, for the server and
-- for the object as Postgres has it. ACCESS SHARE on what a view or rule of them reads.
create or replace function frostline.relation_state(managed integer) returns table (object jsonb, key text, is_present boolean, digest text)
language sql stable set search_path = pg_catalog, pg_temp as $$
    select o.object, frostline.address_text(o.object -> 'addresses' -> 0), d.texts is not null,
           left(encode(sha256(convert_to(array_to_string(
               (current_setting('server_version_num')::integer >= 180000)::text
               || array(select jsonb_array_elements_text(o.object -> 'create')) || d.texts, E'\n'), 'UTF8')), 'hex'), 32)
      from frostline.relation_objects(managed) o
     cross join lateral (
        select array_agg(format('%s %s', frostline.address_text(a.address), md5(p.definition)) order by a.place)
                   filter (where p.definition is not null) as texts
          from jsonb_array_elements(o.object -> 'addresses') with ordinality as a (address, place)
          left join lateral frostline.object_definition(a.address ->> 'kind', a.address ->> 'name', a.address ->> 'relation') as p (definition) on true) d
     where (o.object ->> 'is_replaceable')::boolean
     order by o.place
$$;

-- name: replace_objects
-- Puts all that can be replaced in its place, and writes down what was made. ACCESS EXCLUSIVE on the views.
create or replace function frostline.replace_objects(managed integer) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    statement text;
begin
    for statement in
        select s.text from frostline.relation_objects(managed) o
         cross join lateral jsonb_array_elements_text(o.object -> 'create') with ordinality as s (text, number)
         where (o.object ->> 'is_replaceable')::boolean and (o.object ->> 'is_wanted')::boolean and not o.object ? 'holds_keys'
         order by o.place, s.number
    loop
        execute statement;
    end loop;
    perform frostline.follow_keys(managed);
    if current_setting('server_version_num')::integer >= 180000 then
        execute format('alter function frostline_relation.update_%s() set plan_cache_mode = force_generic_plan', managed);
        execute format('alter function frostline_relation.delete_%s() set plan_cache_mode = force_generic_plan', managed);
    end if;
    update frostline.managed_table t
       set objects_digest = (t.objects_digest::jsonb
                             || (select jsonb_object_agg(s.key, s.digest) from frostline.relation_state(managed) s
                                  where (s.object ->> 'is_wanted')::boolean))::text
     where t.table_id = managed and left(t.objects_digest, 1) = chr(123);
end
$$;

-- name: follow_renames
-- Through names of their own, so that two columns may exchange theirs. ACCESS EXCLUSIVE on views, overlay and lake tables.
create or replace function frostline.follow_renames(managed integer) returns text[]
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    p jsonb := frostline.relation_names(managed);
    renamed record;
    relation text;
    done text[] := array[]::text[];
begin
    for step in 1 .. 2 loop
        for renamed in
            select m.field_id, m.name as old, a.attname::text as new, m.remote_name, 'frostline_' || m.field_id as passing
              from frostline.carried_columns(managed, frostline.heap_of(managed)) c
              join frostline.managed_column m on m.table_id = managed and m.field_id = c.field_id
              join pg_attribute a on a.attrelid = frostline.heap_of(managed) and a.attnum = c.attnum and not a.attisdropped
             where m.name <> a.attname
             order by m.field_id
        loop
            if exists (select from frostline.filling f where f.table_id = managed and f.column_name = renamed.old and f.becomes is not null) then
                raise feature_not_supported using message = format('column %I of %s keeps its name until all rows have its value', renamed.old,
                                                                   frostline.heap_of(managed)::regclass),
                    hint = format('frostline table alter, with the change that added it, goes on. If it has the other name already: alter table %s '
                                  'rename column %I to %I', frostline.heap_of(managed)::regclass, renamed.new, renamed.old);
            end if;
            foreach relation in array array[p ->> 'overlay', p ->> 'lake', p ->> 'inner', p ->> 'relation'] loop
                continue when to_regclass(relation) is null;  -- it stands aside
                execute format('alter %s %s rename column %I to %I',
                    case when relation in (p ->> 'inner', p ->> 'relation') then 'view' else 'table' end, relation,
                    case step when 1 then renamed.old else renamed.passing end, case step when 1 then renamed.passing else renamed.new end);
            end loop;
            if step = 2 then
                done := done || format('%s is %s now', renamed.old, renamed.new);
            end if;
        end loop;
    end loop;
    if cardinality(done) = 0 then
        return done;
    end if;
    update frostline.managed_table t set tier_key = a.attname
      from pg_partitioned_table h join pg_attribute a on a.attrelid = h.partrelid and a.attnum = h.partattrs[0]
     where t.table_id = managed and h.partrelid = frostline.heap_of(managed);
    update frostline.managed_column m set name = a.attname
      from frostline.carried_columns(managed, frostline.heap_of(managed)) c
      join pg_attribute a on a.attrelid = frostline.heap_of(managed) and a.attnum = c.attnum and not a.attisdropped
     where m.table_id = managed and m.field_id = c.field_id;
    perform frostline.name_remote_columns(managed);
    return done;
end
$$;

-- name: name_remote_columns
-- The lake server is asked for a column by the name that it had first.
create or replace function frostline.name_remote_columns(managed integer, only_of oid default null) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    remote record;
begin
    for remote in
        select format('alter foreign table %s alter column %I options (%s column_name %L)', f.ftrelid::regclass, a.attname,
                      case when a.attfdwoptions is null then 'add' else 'set' end, m.remote_name) as statement
          from pg_inherits i
          join pg_foreign_table f on f.ftrelid = i.inhrelid
          join pg_attribute a on a.attrelid = f.ftrelid and a.attnum > 0 and not a.attisdropped
          join frostline.managed_column m on m.table_id = managed and m.name = a.attname
         where i.inhparent = to_regclass(frostline.relation_names(managed) ->> 'lake')
           and m.remote_name <> coalesce((select o.option_value from pg_options_to_table(a.attfdwoptions) o where o.option_name = 'column_name'), a.attname)
           and (only_of is null or f.ftrelid = only_of)
    loop
        execute remote.statement;
    end loop;
end
$$;

-- name: fill_waiting_rows
-- Rows of partitions that wait for their clean are in the lake too, and were given other values by Postgres: they get the lake's. No trigger
-- fires, and no mark is made. Row locks; the caller has altered the heap.
create or replace function frostline.fill_waiting_rows(managed integer, named text, missing text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    p jsonb := frostline.relation_names(managed);
    role text := current_setting('session_replication_role');
    statement text := (
        select format('update %s as h set %I = frostline.missing_v1(%L, frostline.key_v1(%s))::%s where h.%s < %s and not exists (select from %s as o where %s)',
                      p ->> 'heap', named, missing, string_agg(format('frostline.text_v1(h.%s)', c.name), ', ' order by c.key_place) filter (where c.key_place is not null),
                      max(c.type) filter (where c.column_name = named), max(c.name) filter (where c.is_tier), p ->> 'line',
                      p ->> 'overlay', string_agg(format('o.%1$s = h.%1$s', c.name), ' and ' order by c.key_place) filter (where c.key_place is not null))
          from frostline.relation_columns(managed) c);
begin
    insert into frostline.folding (xid, table_id) values (pg_current_xact_id(), managed);
    perform set_config('frostline.folding', 'on', true), set_config('session_replication_role', 'replica', true);
    execute statement;
    perform set_config('session_replication_role', role, true), set_config('frostline.folding', 'off', true);
    delete from frostline.folding f where f.xid = pg_current_xact_id() and f.table_id = managed;
end
$$;

-- name: add_columns
-- Overlay, lake tables and catalog get what the heap has more. `older` says by name what older rows have in them, if that was looked for.
-- No row is written, and no file is asked for.
create or replace function frostline.add_columns(managed integer, older jsonb default null) returns text[]
language plpgsql set search_path = pg_catalog, pg_temp
set timezone = 'UTC' set datestyle = 'ISO' set intervalstyle = 'postgres' as $$
declare
    heap oid := frostline.heap_of(managed);
    p jsonb := frostline.relation_names(managed);
    known integer[] := array(select m.field_id from frostline.carried_columns(managed, heap) m order by m.attnum);
    own jsonb := '[]';
    said text := concat_ws(E';\n', current_query(), current_setting('frostline.statement', true));
    added record;
    done text[] := array[]::text[];
    filled text;
begin
    perform frostline.renumber_columns(managed);
    if older is null and exists (select from frostline.lake_file f where f.table_id = managed) then
        select coalesce(jsonb_agg(jsonb_build_object('attnum', a.attnum, 'missing', frostline.own_missing_value(managed, k.kind))), '[]') into own
          from pg_attribute a cross join lateral frostline.filled_by(managed, a.attnum) as k (kind)
         where a.attrelid = heap and a.attnum > 0 and not a.attisdropped and k.kind is not null
           and not exists (select from frostline.managed_column m where m.table_id = managed and m.attnum = a.attnum);
    end if;
    insert into frostline.managed_column (table_id, attnum, field_id, lake_type, as_text, pushable, is_later, name, missing, remote_name)
    -- The lake server knows the column by this name when nobody else can see it yet. What older rows have is in it if it fits into each query;
    -- parsers cut a name after 63 bytes, so a longer one must not begin as another does.
    select managed, n.attnum, n.field_id, e.lake_type, e.as_text, e.pushable, true, n.name, n.missing,
           case when octet_length(convert_to(r.announced, 'UTF8')) < case when u.is_taken then 63 else 2000 end then r.announced
                else format('#%s%s:%s', n.field_id, case when n.missing is not null then '!' end, r.type) end || case when u.is_taken then '#' else '' end
      from (select a.attnum, a.attname::text as name, a.atttypid, a.atttypmod, a.attcollation,
                   case when older is not null then older ->> a.attname else coalesce(frostline.missing_value(heap, a.attnum), f.missing) end as missing,
                   greatest((select max(m.field_id) from frostline.managed_column m where m.table_id = managed),
                            (select max(d.field_id) from frostline.dropped_column d where d.table_id = managed)) + row_number() over (order by a.attnum) as field_id
              from pg_attribute a
              left join jsonb_to_recordset(own) as f (attnum smallint, missing text) on f.attnum = a.attnum
             where a.attrelid = heap and a.attnum > 0 and not a.attisdropped
               and not exists (select from frostline.managed_column m where m.table_id = managed and m.attnum = a.attnum)) n
     cross join lateral frostline.lake_encoding(n.atttypid, n.atttypmod, n.attcollation) e
     cross join lateral (select exists (select from frostline.managed_column o where o.table_id = managed
                                           and o.remote_name ~ format('^#%s[:=!]', n.field_id)) as is_taken) u
     cross join lateral (select t.type, format('#%s%s:%s', n.field_id, '=' || n.missing, t.type) as announced
                           from (select case when n.atttypid < 16384 then format_type(n.atttypid, n.atttypmod) else '?' end) as t (type)) r;
    for added in
        select c.name, c.column_name, c.type, c.typed, c.lake_typed, c.needs_domain,
               case when c.type <> 'uuid' or m.missing not like 'uuid%' then m.missing end as missing
          from frostline.relation_columns(managed) c join frostline.managed_column m on m.table_id = managed and m.attnum = c.attnum
         where m.field_id <> all (known) order by c.number
    loop
        if added.needs_domain and to_regtype(format('frostline_lake.%I', 'lake ' || added.type)) is null then
            execute format('create domain frostline_lake.%I as %s', 'lake ' || added.type, added.type);
        end if;
        -- Images that are there have the missing value.
        execute format('alter table %s add column %s default %L', p ->> 'overlay', added.typed, added.missing);
        execute format('alter table %s alter column %s drop default', p ->> 'overlay', added.name);
        execute format('alter table %s add column %s', p ->> 'lake', added.lake_typed);
        done := done || added.column_name;
    end loop;
    if cardinality(done) > 0 then
        update frostline.lake_file f set fields = known where f.table_id = managed and f.fields is null;
        perform frostline.name_remote_columns(managed);
    end if;
    -- Marks that were made before have what the heap has, which may be a value of its own for each row while the lake has none; or what was
    -- written into a column that nobody has followed until now. Not looked for where it is certain that it has just been added. Row locks.
    if cardinality(done) > 0 and (older is not null or own <> '[]' or not exists (select from frostline.lake_file f where f.table_id = managed)
                                  or said ~* '\mif\s+not\s+exists\M' or (select count(*) from regexp_matches(said, '\malter\s+table\M', 'gi')) <> 1
                                  or exists (select from pg_attribute a
                                              where a.attrelid = heap and a.attname = any (done)
                                                and not (age(a.xmin) <= age(pg_current_xact_id()::xid) and frostline.says_added(said, a.attname)))
                                  or exists (select from frostline.filling f where f.table_id = managed and f.column_name = any (done))) then
        select format('update %s as o set %s from %s as h where %s and o.frostline_live and row(%s)::text <> row(%s)::text', p ->> 'overlay',
                      string_agg(format('%1$I = h.%1$I', c), ', '), heap::regclass,
                      (select string_agg(format('h.%1$I = o.%1$I', a.attname), ' and ')
                         from pg_index i join pg_attribute a on a.attrelid = i.indrelid and a.attnum = any (i.indkey)
                        where i.indrelid = to_regclass(p ->> 'overlay') and i.indisprimary),
                      string_agg(format('h.%I', c), ', '), string_agg(format('o.%I', c), ', '))
          into filled from unnest(done) as c;
        execute filled;
    end if;
    for added in select a.attname::text as name, f.missing from jsonb_to_recordset(own) as f (attnum smallint, missing text)
                   join pg_attribute a on a.attrelid = heap and a.attnum = f.attnum
    loop
        perform frostline.fill_waiting_rows(managed, added.name, added.missing);
    end loop;
    return done;
end
$$;

-- name: relation_drop_doors
-- Before the views that they are built on change. What makes the relation's objects anew makes them too. ACCESS EXCLUSIVE on them.
create or replace function frostline.relation_drop_doors(names jsonb) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    door text;
begin
    foreach door in array array['update_hot', 'update_cold', 'delete_hot', 'delete_cold', 'insert'] loop
        execute format('drop view if exists %s', names ->> (door || '_door'));
    end loop;
end
$$;

-- name: widen_relation
-- The views get the new columns at their ends, and all else is made anew for them. ACCESS EXCLUSIVE on the views.
create or replace function frostline.widen_relation(managed integer) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    p jsonb := frostline.relation_parts(managed);
begin
    p := p || jsonb_build_object('arms', frostline.filled('objects.arms', p));
    perform frostline.relation_drop_doors(p);
    if (p ->> 'is_secured')::boolean then
        -- What asks the policies takes the columns as arguments. Nobody can see the views in between.
        execute format('drop rule if exists frostline_insert on %s', p ->> 'relation');
        execute frostline.filled('objects.inner_view', p);
        perform frostline.forget_policies(managed);
        perform frostline.follow_policies(managed);
    end if;
    execute frostline.filled(case when (p ->> 'is_secured')::boolean then 'objects.inner_view_secured' else 'objects.inner_view' end, p);
    execute frostline.filled('objects.widen_view', p);
end
$$;

-- name: relation_stale_defaults
-- The columns whose default in the relation is not the heap's, and what that is.
create or replace function frostline.relation_stale_defaults(managed integer) returns table (name text, column_name text, default_value text)
language sql stable set search_path = pg_catalog, pg_temp as $$
    select c.name, c.column_name, c.default_value
      from frostline.relation_columns(managed) c
      join pg_attribute a on a.attrelid = to_regclass(frostline.relation_names(managed) ->> 'relation') and a.attname = c.column_name
      left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
     where c.default_value is distinct from
           case when c.identity <> '' then regexp_replace(pg_get_expr(d.adbin, d.adrelid), '^nextval\((.*)::regclass\)$', 'nextval(\1)')
                else pg_get_expr(d.adbin, d.adrelid) end
$$;

-- name: untrusted_defaults
-- Columns whose default would run code of somebody with fewer rights when its text is read, with ours: a constant that a domain checks, as
-- part of an array, a row or a range, or that a range brings into its form.
create or replace function frostline.untrusted_defaults(relation oid) returns table (column_name text, code text)
language sql stable set search_path = pg_catalog, pg_temp as $$
    select distinct a.attname::text, format('%s %s', case t.typtype when 'd' then 'domain' else 'type' end, t.oid::regtype)
      from pg_class c
      join pg_attribute a on a.attrelid = c.oid
      join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
     cross join lateral regexp_matches(d.adbin::text, ':consttype (\d+)', 'g') as m (number)
     cross join lateral frostline.cold_types_in(m.number[1]::oid) as y (oid)
      join pg_type t on t.oid = y.oid and not frostline.is_trusted(t.typowner)
     where c.oid = relation and not frostline.is_trusted(c.relowner)
       and (t.typtype = 'd' or exists (select from pg_range r where r.rngtypid = t.oid and r.rngcanonical <> 0))
$$;

-- name: refuse_untrusted_default
create or replace function frostline.refuse_untrusted_default(relation oid, named text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    code text := (select min(d.code) from frostline.untrusted_defaults(relation) d where d.column_name = named);
begin
    if code is not null then
        raise insufficient_privilege using
            message = format('the default of column %I of %s would run %s with the rights of Frostline', named, relation::regclass, code),
            hint = format('Let a function return the value, and call that in the default; or read it, then: alter %s owner to %I', code, current_user);
    end if;
end
$$;

-- name: follow_defaults
-- The heap's are the relation's, so that an INSERT through it has the same. ACCESS EXCLUSIVE on the relation if one differs.
create or replace function frostline.follow_defaults(managed integer) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    stale record;
    has_changed boolean := false;
begin
    for stale in select d.name, d.column_name, d.default_value from frostline.relation_stale_defaults(managed) d loop
        perform frostline.refuse_untrusted_default(frostline.heap_of(managed), stale.column_name);
        execute format('alter view %s alter column %s %s', frostline.relation_names(managed) ->> 'relation', stale.name,
                       coalesce('set default ' || stale.default_value, 'drop default'));
        has_changed := true;
    end loop;
    return has_changed;
end
$$;

-- name: relation_is_owners
-- Whether the relation has the heap's owner, and that role may use the inner view.
create or replace function frostline.relation_is_owners(managed integer) returns boolean
language sql stable set search_path = pg_catalog, pg_temp as $$
    select (select r.relowner from pg_class r where r.oid = to_regclass(n.p ->> 'relation')) = h.relowner
           and exists (select from pg_class i cross join lateral aclexplode(coalesce(i.relacl, acldefault('r', i.relowner))) a
                        where i.oid = to_regclass(n.p ->> 'inner') and a.grantee = h.relowner and a.privilege_type = 'SELECT')
      from (select frostline.relation_names(managed) as p) n join pg_class h on h.oid = frostline.heap_of(managed)
$$;

-- name: follow_owner
-- REASSIGN OWNED, which no event trigger hears of, moves heap and relation, and nobody's rights.
create or replace function frostline.follow_owner(managed integer) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    p jsonb := frostline.relation_names(managed);
    owner oid := (select c.relowner from pg_class c where c.oid = frostline.heap_of(managed));
    former oid;
begin
    if frostline.relation_is_owners(managed) then
        return false;
    end if;
    execute format('grant select, insert, update, delete on %s to %I', p ->> 'inner', pg_get_userbyid(owner));
    execute format('alter view %s owner to %I', p ->> 'relation', pg_get_userbyid(owner));
    for former in
        select distinct a.grantee from pg_class c cross join lateral aclexplode(c.relacl) a
         where c.oid = to_regclass(p ->> 'inner') and a.grantee not in (0, owner, c.relowner)
    loop
        execute format('revoke all on %s from %I', p ->> 'inner', pg_get_userbyid(former));
    end loop;
    return true;
end
$$;

-- name: follow_comments
-- What was said of the heap or of a column of it.
create or replace function frostline.follow_comments(managed integer) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    heap oid := frostline.heap_of(managed);
    relation text := frostline.relation_names(managed) ->> 'relation';
    differing record;
begin
    for differing in
        select coalesce('column ' || relation || '.' || c.name, 'view ' || relation) as target, h.text
          from (select null::text as name, 0 as heap_number, 0 as relation_number
                union all
                select c.name, c.attnum, a.attnum from frostline.relation_columns(managed) c
                  join pg_attribute a on a.attrelid = to_regclass(relation) and a.attname = c.column_name) c
         cross join lateral (select case c.heap_number when 0 then obj_description(heap, 'pg_class') else col_description(heap, c.heap_number) end as text,
                                    case c.relation_number when 0 then obj_description(to_regclass(relation), 'pg_class')
                                         else col_description(to_regclass(relation), c.relation_number) end as known) h
         where h.text is distinct from h.known
    loop
        execute format('comment on %s is %L', differing.target, differing.text);
    end loop;
end
$$;

-- name: follow_descriptions
create or replace function frostline.follow_descriptions(managed integer) returns void
language sql set search_path = pg_catalog, pg_temp as $$
    select frostline.follow_defaults(managed);
    select frostline.follow_comments(managed);
    select frostline.follow_owner(managed);
    select frostline.follow_rights(managed);
    select frostline.follow_keys(managed);
$$;

-- name: columns_left_to_sync
-- Why the new columns are not followed at once: rows of the lake would need a value that has to be looked for. Null if they can be.
create or replace function frostline.columns_left_to_sync(managed integer) returns text
language sql stable set search_path = pg_catalog, pg_temp as $$
    select string_agg(format('%I', a.attname), ', ' order by a.attnum)
      from pg_attribute a
      join pg_type t on t.oid = a.atttypid
     where a.attrelid = frostline.heap_of(managed) and a.attnum > 0 and not a.attisdropped
       and a.attnum not in (select c.attnum from frostline.carried_columns(managed, frostline.heap_of(managed)) c)
       and (a.attgenerated <> '' or a.attidentity <> ''
            or a.attnum <= (select m.left_to_sync from frostline.managed_table m where m.table_id = managed)
            or frostline.missing_value(a.attrelid, a.attnum) is null and frostline.filled_by(managed, a.attnum) is null
               and (a.atthasdef or a.attnotnull or t.typtype = 'd' and not frostline.takes_null(a.attrelid, t.oid)
                    or exists (select from pg_partition_tree(a.attrelid) l join pg_attribute b on b.attrelid = l.relid
                                where b.attname = a.attname and b.atthasmissing)))
       and a.attname not in (select f.column_name from frostline.filling f where f.table_id = managed)
       and exists (select from frostline.lake_file f where f.table_id = managed)
$$;

-- name: refuse_columns
-- What must not be followed, and so must not be there: names that are ours, and types that go with a session and would take the view along.
create or replace function frostline.refuse_columns(managed integer) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    refused record;
begin
    select a.attname, t.typnamespace = pg_my_temp_schema() as is_temporary into refused
      from pg_attribute a join pg_type t on t.oid = a.atttypid
     where a.attrelid = frostline.heap_of(managed) and a.attnum > 0 and not a.attisdropped
       and (a.attname like 'frostline\_%' or t.typnamespace = pg_my_temp_schema())
     limit 1;
    if found then
        raise feature_not_supported using
            message = case when refused.is_temporary then format('column %I of a managed table has a temporary type', refused.attname)
                           else format('column name %I of a managed table begins as those of Frostline do', refused.attname) end,
            hint = case when refused.is_temporary then 'Use a type of another schema.' else 'Use another name.' end;
    end if;
end
$$;

-- name: follow_heap
-- All that can be followed at once. The caller's transaction has altered the heap, and so holds ACCESS EXCLUSIVE on it.
create or replace function frostline.follow_heap(managed integer) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    heap oid := frostline.heap_of(managed);
    renamed text[];
    added boolean := exists (select from pg_attribute a where a.attrelid = heap and a.attnum > 0 and not a.attisdropped
                                and a.attnum not in (select c.attnum from frostline.carried_columns(managed, heap) c));
    left_over text := frostline.columns_left_to_sync(managed);
begin
    -- What is recorded of the lake's files is written down anew, of all of them: of those too that a job has published since the snapshot.
    if current_setting('transaction_isolation') in ('repeatable read', 'serializable') then
        perform from frostline.seam as s where s.table_id = managed for share;
    end if;
    perform frostline.refuse_columns(managed);
    perform frostline.refuse_unfilled_columns(managed);
    perform frostline.refuse_other_key(managed);
    perform frostline.refuse_other_generation(managed);
    insert into frostline.following values (pg_current_xact_id(), managed);
    perform frostline.stand_again(managed);
    renamed := frostline.follow_renames(managed);
    if added and left_over is null then
        perform frostline.add_columns(managed);
        perform frostline.widen_relation(managed);
    end if;
    if cardinality(renamed) > 0 or added and left_over is null or exists (
        select from frostline.relation_state(managed) s join frostline.managed_table t on t.table_id = managed
         where (s.object ->> 'is_wanted')::boolean and not s.object ? 'holds_keys'
           and s.digest is distinct from t.objects_digest::jsonb ->> s.key) then
        perform frostline.replace_objects(managed);
    end if;
    perform frostline.follow_descriptions(managed);
    perform frostline.note_generations(managed);
    delete from frostline.following f where f.xid = pg_current_xact_id() and f.table_id = managed;
    if left_over is not null then
        -- Whatever becomes of its default, it is not followed here any more: what older rows have is not to be seen from it then.
        update frostline.managed_table t set left_to_sync = (select max(a.attnum) from pg_attribute a where a.attrelid = heap)
         where t.table_id = managed;
        raise warning using message = format('the relation of %s does not have column %s yet', heap::regclass, left_over),
            hint = format('frostline table sync %s, which the worker does by itself', (select format('%I.%I', t.schema_name, t.table_name)
                                                          from frostline.managed_table t where t.table_id = managed));
    end if;
end
$$;

-- name: follow_function
create or replace function frostline.follow_ddl() returns event_trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $body$
declare
    altered record;
    relation oid;
begin
    if frostline.is_following() then
        return;
    end if;
    for altered in
        select t.table_id, d.command_tag, bool_or(t.is_aside) as is_aside
          from (select t.table_id, frostline.heap_of(t.table_id) as heap,
                       exists (select from frostline.aside a where a.xid = pg_current_xact_id_if_assigned() and a.table_id = t.table_id) as is_aside
                  from frostline.managed_table t where t.mode = 'tiered') t
          left join pg_event_trigger_ddl_commands() d on d.objid = t.heap and d.classid = 'pg_class'::regclass
         where d.objid is not null or t.is_aside
         group by t.table_id, d.command_tag
    loop
        -- The text has this statement and one that drops a column: the relation stands aside for both, and what is said of it now is said of its stub.
        relation := to_regclass(frostline.relation_names(altered.table_id) ->> 'relation');
        if altered.is_aside and (relation is null or frostline.heap_of(altered.table_id) is null or exists (
               select from pg_event_trigger_ddl_commands() d where d.classid = 'pg_class'::regclass and d.objid = relation)) then
            raise feature_not_supported using
                message = 'a managed table cannot be renamed or altered by its relation''s name in the query string that drops a column or changes a type',
                hint = 'Send the statements one by one.';
        end if;
        -- The relation has no name for a moment while the table gets its other form.
        continue when not altered.is_aside and (to_regclass(frostline.relation_names(altered.table_id) ->> 'inner') is null or relation is null);
        if altered.command_tag = 'COMMENT' then
            perform frostline.follow_comments(altered.table_id);
        else
            perform frostline.follow_heap(altered.table_id);
        end if;
    end loop;
end
$body$;
revoke execute on function frostline.follow_ddl() from public

-- name: take_relation
-- Statements lock the relation and then the heap; so does an ALTER of the heap, by this, and there is no deadlock. For the heap's owner.
create or replace function frostline_write.take_relation(heap oid) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    managed integer := (select t.table_id from frostline.managed_table t where t.mode = 'tiered' and frostline.heap_of(t.table_id) = heap);
    view text;
begin
    if managed is null or not pg_has_role(session_user, (select c.relowner from pg_class c where c.oid = heap), 'member') then
        return;
    end if;
    if frostline.needs_aside(concat_ws(E';\n', current_query(), current_setting('frostline.statement', true))) then
        -- Views of others on it may have to be made anew, and whoever reads them locks them before the relation.
        for view in
            -- What it has is said again, which changes nothing and takes ACCESS EXCLUSIVE, on this view alone.
            select format('%I.%I %s', n.nspname, c.relname,
                          coalesce('set (' || array_to_string(c.reloptions, ', ') || ')', 'reset (check_option)'))
              from frostline.relation_readers(to_regclass(frostline.relation_names(managed) ->> 'relation')) r
              join pg_class c on c.oid = r.view
              join pg_namespace n on n.oid = c.relnamespace
             order by 1
        loop
            execute 'alter view ' || view;
        end loop;
    end if;
    foreach view in array array['relation', 'inner'] loop
        view := frostline.relation_names(managed) ->> view;
        if to_regclass(view) is not null then
            -- ACCESS EXCLUSIVE on this view alone: LOCK TABLE would lock all that it reads. Changes nothing.
            execute format('alter view %s reset (check_option)', view);
        end if;
    end loop;
end
$$;
grant execute on function frostline_write.take_relation(oid) to public;

-- name: keeps_readers_function
-- Whether all that is said behind ALTER TABLE and the name takes a lock that lets readers of a plain table go on, and changes nothing of the
-- relation. What is not known here does not.
create or replace function frostline_write.keeps_readers(change text) returns boolean
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
declare
    -- Without names in quotes and literals, and then without what is in parentheses, from the inside.
    bare text := split_part(regexp_replace(change, '"(?:[^"]|"")+"|''(?:[^'']|'''')*''', 'x', 'g'), ';', 1);
begin
    while bare ~ '\([^()]*\)' loop
        bare := regexp_replace(bare, '\([^()]*\)', ' list ', 'g');
    end loop;
    return (select bool_and(c ~* ('^\s*(?:'
                'validate\s+constraint\s+[\w$]+'
                '|add\s+(?:constraint\s+[\w$]+\s+)?foreign\s+key\s+list\s+references\s+[\w\s.$]+'
                '|attach\s+partition\s+[\w\s.$]+'
                '|detach\s+partition\s+[\w\s.$]+\s+(?:concurrently|finalize)'
                '|(?:enable|disable)\s+(?:(?:always|replica)\s+)?trigger\s+[\w$]+'
                '|alter\s+(?:column\s+)?[\w$]+\s+set\s+statistics\s+(?:-?\d+|default)'
                '|alter\s+(?:column\s+)?[\w$]+\s+(?:set|reset)\s+list'
                ')\s*$')) from regexp_split_to_table(bare, ',') as c);
end
$$;
grant execute on function frostline_write.keeps_readers(text) to public;

-- name: order_function
-- A hint only: what the statement names is known from its text alone, as the caller would find it. Runs as the caller, so no operator is
-- left to the caller's search path.
create or replace function frostline_write.take_relations_first() returns event_trigger
language plpgsql as $body$
declare
    said text;
    named text[];
    heaps text[] := array[]::text[];
begin
    for said in
        select s from pg_catalog.regexp_split_to_table(pg_catalog.concat_ws(E';\n', pg_catalog.current_query(),
                                                                            pg_catalog.current_setting('frostline.statement', true)),
            '\malter\s+table\M', 'i') as s offset 1
    loop
        named := pg_catalog.regexp_match(said,
            '^\s*(?:if\s+exists\s+)?(?:only\s+)?((?:"(?:[^"]|"")+"|[a-z_][\w$]*)(?:\s*\.\s*(?:"(?:[^"]|"")+"|[a-z_][\w$]*))?)(?![\w$"]|\s*\.)(.*)$', 'i');
        continue when named is null or frostline_write.keeps_readers(named[2]);
        perform frostline_write.take_relation(pg_catalog.to_regclass(named[1]));
        heaps := pg_catalog.array_append(heaps, pg_catalog.to_regclass(named[1])::oid::text);
    end loop;
    -- For `frostline_stand_aside`, which comes next and does not see names as the caller does.
    perform pg_catalog.set_config('frostline.named', pg_catalog.array_to_string(heaps, ','), true);
end
$body$;
revoke execute on function frostline_write.take_relations_first() from public
