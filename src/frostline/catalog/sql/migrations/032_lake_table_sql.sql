-- How lake tables are made: docs/design/lake-tables.md.

-- The CHECKs of a table, as the lake server is to evaluate them, and what of each it must not run. It evaluates Postgres' own immutable
-- functions on values of Postgres' own types: then the answer depends on the row alone, and nothing of anybody's runs with its rights.
create function frostline.lake_checks(relation oid) returns table (name text, expression text, strange text)
language sql stable set search_path = pg_catalog, pg_temp as $$
    select c.conname::text, pg_get_expr(c.conbin, c.conrelid), coalesce(
           (select min(format('function %s', f.oid::regprocedure))
              from (select n[1]::oid as oid from regexp_matches(c.conbin::text, ':(?:funcid|opfuncid) (\d+)', 'g') n
                     union
                    select o.oprcode::oid from regexp_matches(c.conbin::text, ':opno (\d+)', 'g') n join pg_operator o on o.oid = n[1]::oid) u
              join pg_proc f on f.oid = u.oid
             where f.oid >= 16384 or f.pronamespace <> 'pg_catalog'::regnamespace or f.provolatile <> 'i'),
           (select min(pg_describe_object(d.refclassid, d.refobjid, 0)) from pg_depend d
             where d.classid = 'pg_constraint'::regclass and d.objid = c.oid and d.refclassid <> 'pg_class'::regclass),
           (select min(format('column %I of type %s', a.attname, format_type(t.oid, null)))
              from pg_attribute a join pg_type t on t.oid = a.atttypid
             where a.attrelid = c.conrelid and a.attnum = any (c.conkey)
               and not (t.oid < 16384 and t.typnamespace = 'pg_catalog'::regnamespace)),
           case when c.conbin::text ~ ':varattno (0|-)' then 'a whole row, or tableoid' end,
           case when c.conbin::text like '%{SQLVALUEFUNCTION %' then 'a value of the session' end,
           case when c.conbin::text like '%{COERCEVIAIO %'
                then (select min(format('a cast by the text of type %s', t.oid::regtype))
                        from regexp_matches(c.conbin::text, ':\w*type (\d+)', 'g') n
                        join pg_type t on t.oid = n[1]::oid
                        join pg_proc f on f.oid in (t.typinput, t.typoutput) and f.provolatile <> 'i') end)
      from pg_constraint c
     where c.conrelid = relation and c.contype = 'c' and coalesce(to_jsonb(c) ->> 'conenforced', 'true') = 'true'
     order by 1
$$;
revoke execute on function frostline.lake_checks(oid) from public;

-- Lake tables made and dropped in SQL, by roles that may use the foreign server: with the caller's rights, all or nothing with the rest of
-- the transaction. The foreign table is made here; the metadata, and at COMMIT the entry in the catalog, by the lake server, which
-- hears of it by a row that is inserted there: so a table can be written in the transaction that makes it. Nothing is written to our
-- own tables here: the lake server's commit, for which this transaction waits, would wait for it.

-- Let all roles share the caller's mapping, as `foreign_server.open_to_all` does: postgres_fdw has a remote transaction for each.
create function frostline.open_lake_server_to_all() returns void
language plpgsql set search_path = pg_catalog, pg_temp as $body$
declare
    mapping jsonb := (select (select jsonb_object_agg(o.option_name, o.option_value) from pg_options_to_table(m.umoptions) o)
                        from pg_user_mappings m where m.srvname = 'frostline_lake' and m.usename = current_user);
    other name;
begin
    if not mapping ? 'password' and (select r.rolsuper from pg_roles r where r.rolname = current_user) then
        mapping := mapping || '{"password_required": "false"}';
    end if;
    if mapping ?| array['password', 'password_required']
       and not exists (select from pg_user_mappings m where m.srvname = 'frostline_lake' and m.umuser = 0) then
        execute format('create user mapping for public server frostline_lake options (%s)',
                       (select string_agg(format('%I %L', o.key, o.value), ', ') from jsonb_each_text(mapping) o));
        for other in select m.usename from pg_user_mappings m where m.srvname = 'frostline_lake' and m.umuser <> 0 loop
            execute format('drop user mapping for %I server frostline_lake', other);
        end loop;
    end if;
end
$body$;

-- Tell the lake server. The foreign table is there for this one row.
create function frostline.ask_lake_server(lake_table integer, request jsonb) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $body$
begin
    create foreign table pg_temp.frostline_requests (lake_table integer, request text) server frostline_lake
        options (schema_name 'lake', table_name 'requests');
    execute 'insert into pg_temp.frostline_requests values ($1, $2)' using lake_table, request::text;
    drop foreign table pg_temp.frostline_requests;
end
$body$;

-- The columns of a foreign table that was made in this transaction, which the lake server does not see: as `facts.read_columns` has them.
create function frostline.lake_columns(relation oid) returns jsonb
language sql stable set search_path = pg_catalog, pg_temp as $$
    select jsonb_agg(jsonb_build_object(
               'name', a.attname, 'type', format_type(a.atttypid, a.atttypmod), 'type_name', t.typname,
               'builtin', t.oid < 16384 and t.typnamespace = 'pg_catalog'::regnamespace,
               'precision', case when t.oid = 'numeric'::regtype and a.atttypmod >= 4 then ((a.atttypmod - 4) >> 16) & 65535 end,
               'scale', case when t.oid = 'numeric'::regtype and a.atttypmod >= 4 then (((a.atttypmod - 4) & 2047) # 1024) - 1024 end,
               'not_null', a.attnotnull, 'generated', a.attgenerated <> '',
               'collation', case when a.attcollation = 0 then 'none'
                                 when not l.collisdeterministic then 'nondeterministic'
                                 when a.attcollation = 100 then
                                     case when b.datlocprovider = 'c' and b.datcollate in ('C', 'POSIX') then 'bytes'
                                          when b.datlocprovider = 'b' then 'bytes' else 'linguistic' end
                                 when l.collprovider = 'b' then 'bytes'
                                 when l.collprovider = 'c' and l.collcollate in ('C', 'POSIX') then 'bytes'
                                 else 'linguistic' end,
               'collation_name', case when a.attcollation not in (0, 100) then quote_ident(n.nspname) || '.' || quote_ident(l.collname) end)
               order by a.attnum)
      from pg_attribute a
      join pg_type t on t.oid = a.atttypid
      join pg_database b on b.datname = current_database()
      left join pg_collation l on l.oid = a.attcollation
      left join pg_namespace n on n.oid = l.collnamespace
     where a.attrelid = relation and a.attnum > 0 and not a.attisdropped
$$;

create function frostline.create_lake_table(
    schema_name text, table_name text, columns jsonb, partition text[] default '{}', sort text[] default '{}', key text[] default '{}'
) returns integer
language plpgsql set search_path = pg_catalog, pg_temp as $body$
declare
    number integer;
    wrong text;
    definitions text;
    relation regclass;
begin
    if schema_name is null or table_name is null or columns is null or partition is null or sort is null or key is null
       or array_position(partition || sort || key, null) is not null then
        raise null_value_not_allowed using message = 'no parameter of create_lake_table may be null';
    end if;
    if jsonb_typeof(columns) <> 'array' or columns = '[]' then
        raise invalid_parameter_value using message = 'columns is no list of columns',
            hint = 'columns => ''[{"name": "id", "type": "bigint", "not_null": true}]''';
    end if;
    select coalesce(min(e.value::text) filter (where jsonb_typeof(e.value) <> 'object'), min(o.name) filter (
               where o.name is not null and o.name not in ('name', 'type', 'not_null', 'default', 'check'))) into wrong
      from jsonb_array_elements(columns) e
      left join lateral jsonb_object_keys(case when jsonb_typeof(e.value) = 'object' then e.value else '{}' end) o (name) on true;
    if wrong is not null then
        raise invalid_parameter_value using message = format('a column has %s', wrong), hint = 'name, type, not_null, default and check';
    end if;
    -- A type is words, a modifier and brackets, so it is nothing else; a default and a CHECK are expressions, as in CREATE TABLE.
    select min(coalesce(c.type, 'null')) into wrong from jsonb_to_recordset(columns) as c (name text, type text)
     where coalesce(c.name, '') = '' or c.type is null or c.type !~ '^[\w$". ]+(\([\w ,-]+\))?[\w ]*(\[\])*$';
    if wrong is not null then
        raise invalid_parameter_value using message = format('a column has no name, or the type %L', wrong), hint = 'a name and a type of Postgres';
    end if;
    select string_agg(concat(format('%I %s', c.name, c.type), ' default (' || c."default" || ')', ' check (' || c."check" || ')',
                             case when c.not_null or c.name = any (key) then ' not null' end), ', ' order by c.place)
      into definitions
      from rows from (jsonb_to_recordset(columns) as (name text, type text, not_null boolean, "default" text, "check" text))
           with ordinality as c (name, type, not_null, "default", "check", place);
    number := nextval(pg_get_serial_sequence('frostline.lake_table', 'lake_table_id'));
    execute format($$create foreign table %I.%I (%s) server frostline_lake
                       options (schema_name 'schema_0', table_name %L, batch_size '5000', fetch_size '10000')$$,
                   schema_name, table_name, definitions, format('lake_%s', number));
    relation := to_regclass(format('%I.%I', schema_name, table_name));
    select format('CHECK %I uses %s', c.name, c.strange) into wrong from frostline.lake_checks(relation) c where c.strange is not null limit 1;
    if wrong is not null then
        raise feature_not_supported using message = wrong, hint = 'CHECKs are of built-in types and immutable functions; leave it out and add a row trigger';
    end if;
    perform frostline.open_lake_server_to_all();
    perform frostline.ask_lake_server(number, jsonb_build_object(
        'do', 'create', 'namespace', schema_name, 'table', table_name, 'owner', current_user,
        'partition', partition, 'sort', sort, 'key', key,
        'checks', (select coalesce(jsonb_object_agg(c.name, c.expression), '{}') from frostline.lake_checks(relation) c),
        'columns', frostline.lake_columns(relation)));
    return number;
end
$body$;

create function frostline.drop_lake_table(schema_name text, table_name text, purge boolean default false) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $body$
declare
    number integer;
    dropped regclass;
begin
    if schema_name is null or table_name is null or purge is null then
        raise null_value_not_allowed using message = 'no parameter of drop_lake_table may be null',
            hint = 'purge => true deletes the files too, false leaves them';
    end if;
    select (regexp_match(o.option_value, '^lake_(\d+)'))[1] into number
      from pg_foreign_table f
      join pg_foreign_server s on s.oid = f.ftserver and s.srvname = 'frostline_lake'
     cross join pg_options_to_table(f.ftoptions) o
     where f.ftrelid = to_regclass(format('%I.%I', schema_name, table_name)) and o.option_name = 'table_name' and o.option_value <> 'lake_0';
    if number is null then
        raise undefined_table using message = format('there is no lake table %I.%I', schema_name, table_name), hint = 'frostline lake list';
    end if;
    -- First the locks of Postgres: whoever holds one may commit to the lake next.
    for dropped in
        select f.ftrelid from pg_foreign_table f
          join pg_foreign_server s on s.oid = f.ftserver and s.srvname = 'frostline_lake'
         cross join pg_options_to_table(f.ftoptions) o
         where o.option_name = 'table_name' and o.option_value ~ format('^lake_%s(\D|$)', number)
         order by f.ftrelid
    loop
        execute format('drop foreign table %s', dropped);
    end loop;
    perform frostline.ask_lake_server(number, jsonb_build_object('do', 'drop', 'purge', purge));
end
$body$;
revoke execute on function frostline.open_lake_server_to_all(), frostline.ask_lake_server(integer, jsonb), frostline.lake_columns(oid),
                           frostline.create_lake_table(text, text, jsonb, text[], text[], text[]),
                           frostline.drop_lake_table(text, text, boolean) from public;
