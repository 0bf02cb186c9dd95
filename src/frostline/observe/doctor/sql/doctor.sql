-- Everything here reads system catalogs and locks nothing, unless it says so.

-- name: version
select current_setting('server_version_num')::integer, current_setting('server_version')

-- name: limit_ourselves
-- For this session: a check that waits is a check that failed.
select set_config('statement_timeout', '8s', false), set_config('lock_timeout', '2s', false)

-- name: role
select current_user::text, current_database()::text, has_database_privilege(current_database(), 'create'),
       pg_has_role(current_user, 'pg_read_all_stats', 'usage'),
       has_function_privilege('pg_catalog.pg_control_system()', 'execute')

-- name: strange_owners
-- The owners of these relations whom the connected role may not act for.
select format('%%I.%%I', w.schema, w.name), r.rolname::text
  from unnest(%(schemas)s::text[], %(names)s::text[]) as w(schema, name)
  join pg_namespace n on n.nspname = w.schema
  join pg_class c on c.relnamespace = n.oid and c.relname = w.name
  join pg_roles r on r.oid = c.relowner
 where not pg_has_role(current_user, r.oid, 'usage')
 order by 1

-- name: pointer_guard
-- Whether both triggers that keep others from the pointers fire.
select count(*) = 2 from pg_trigger
 where tgrelid = 'frostline.iceberg_tables'::regclass and tgname in ('keep_pointer', 'keep_pointers')
   and tgenabled in ('O', 'A')

-- name: event_triggers
select evtname::text, evtenabled <> 'D' from pg_event_trigger where evtname like 'frostline\_%%' order by 2, 1

-- name: wrapper
select exists (select from pg_extension where extname = 'postgres_fdw'),
       exists (select from pg_available_extensions where name = 'postgres_fdw'),
       coalesce((select has_foreign_data_wrapper_privilege(oid, 'usage') from pg_foreign_data_wrapper
                  where fdwname = 'postgres_fdw'), false)

-- name: ask_lake_server
-- A foreign table of this session, in a transaction that is rolled back: nobody else sees it, nothing of it stays.
create foreign table pg_temp.frostline_doctor (version text) server frostline_lake
    options (schema_name 'frostline', table_name 'doctor')

-- name: lake_version
select version from pg_temp.frostline_doctor

-- name: clock
select extract(epoch from clock_timestamp())::float8

-- name: time_zone
select current_setting('TimeZone'), extract(timezone from now())::integer

-- name: time_limit
-- Before `limit_ourselves`.
select current_setting('statement_timeout')

-- name: old_transactions
-- What holds back clean and expiry, if it has done so for long.
select pid, usename::text, extract(epoch from now() - xact_start)::bigint
  from pg_stat_activity
 where pid <> pg_backend_pid() and datname = current_database()
   and (backend_xmin is not null or backend_xid is not null) and xact_start < now() - %(old)s::interval
 order by xact_start

-- name: prepared_transactions
select gid, extract(epoch from now() - prepared)::bigint
  from pg_prepared_xacts
 where database = current_database() and prepared < now() - %(old)s::interval
 order by prepared

-- name: old_slots
-- A slot with an xmin keeps every row version since. Nobody reads one that is not active.
select slot_name::text, age(xmin), active
  from pg_replication_slots
 where xmin is not null and (not active or age(xmin) > 1000000)
 order by 2 desc

-- name: connections
-- How many ordinary roles may open altogether, and how many are open.
select current_setting('max_connections')::integer - current_setting('superuser_reserved_connections')::integer
           - coalesce(current_setting('reserved_connections', true)::integer, 0),
       (select count(*) from pg_stat_activity where backend_type = 'client backend')

-- name: compiling
-- Whether JIT is there and on, what it begins at, and how many rows Postgres knows of in the largest lake.
select pg_jit_available() and current_setting('jit')::boolean, current_setting('jit_above_cost')::float8,
       coalesce((select max(c.reltuples) from pg_foreign_table f
                   join pg_foreign_server s on s.oid = f.ftserver and s.srvname = 'frostline_lake'
                   join pg_class c on c.oid = f.ftrelid), 0)::float8

-- name: replanning_roles
-- Who may log in and read one of these relations, and has not said that plans are kept.
select r.rolname::text from pg_roles r
 where r.rolcanlogin and not r.rolsuper
   and exists (select from unnest(%(relations)s::text[]) as w(name)
                where has_table_privilege(r.oid, to_regclass(w.name), 'select'))
   and not exists (select from pg_db_role_setting s, unnest(s.setconfig) as c(setting)
                    where s.setrole in (0, r.oid) and c.setting = 'plan_cache_mode=force_generic_plan'
                      and s.setdatabase in (0, (select d.oid from pg_database d where d.datname = current_database())))
 order by 1
