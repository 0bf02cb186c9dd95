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

-- name: lake_foreign_tables
-- The foreign tables in this database that ask for a lake table, and for which.
select format('%%I.%%I', n.nspname, c.relname), substr(o.option_value, 6)::numeric
  from pg_foreign_table f
  join pg_foreign_server s on s.oid = f.ftserver and s.srvname = 'frostline_lake'
  join pg_class c on c.oid = f.ftrelid
  join pg_namespace n on n.oid = c.relnamespace
 cross join lateral pg_options_to_table(f.ftoptions) o
 where o.option_name = 'table_name' and o.option_value ~ '^lake_[0-9]+$'
 order by 1

-- name: connections
-- How many ordinary roles may open altogether, and how many are open.
select current_setting('max_connections')::integer - current_setting('superuser_reserved_connections')::integer
           - coalesce(current_setting('reserved_connections', true)::integer, 0),
       (select count(*) from pg_stat_activity where backend_type = 'client backend')

-- name: compiling
-- Whether JIT is there and on, and what it begins at.
select pg_jit_available() and current_setting('jit')::boolean, current_setting('jit_above_cost')::float8

-- name: lake_tables
-- The lake tables that the connected role may read.
select n.nspname::text, c.relname::text
  from pg_foreign_table f
  join pg_foreign_server s on s.oid = f.ftserver and s.srvname = 'frostline_lake'
  join pg_class c on c.oid = f.ftrelid
  join pg_namespace n on n.oid = c.relnamespace
 where n.nspname <> 'frostline_lake' and not pg_is_other_temp_schema(n.oid)
   and has_schema_privilege(n.oid, 'usage') and has_table_privilege(c.oid, 'select')
 order by 1, 2

-- name: cold_scan
-- What Postgres expects of all cold rows. It plans only: the lake server is not asked.
explain (format json) select * from {relation} where {tier_key} < {line}

-- name: lake_scan
-- The same of a table that is in the lake alone.
explain (format json) select * from {table}

-- name: replanning_roles
-- Who may log in and read one of these relations, and has not said that plans are kept.
select r.rolname::text from pg_roles r
 where r.rolcanlogin and not r.rolsuper
   and exists (select from unnest(%(relations)s::text[]) as w(name)
                where has_table_privilege(r.oid, to_regclass(w.name), 'select'))
   and not exists (select from pg_db_role_setting s, unnest(s.setconfig) as c(setting)
                    where s.setrole in (0, r.oid) and c.setting = 'plan_cache_mode=force_generic_plan'
                      and s.setdatabase in (0, (select d.oid from pg_database d where d.datname = current_database())))
   and not exists (select from pg_settings g
                    where g.name = 'plan_cache_mode' and g.setting = 'force_generic_plan' and g.source = 'configuration file')
 order by 1

-- name: hot_key
-- The key of some row at or above the frost line, as texts. Reads one row.
select {key_texts} from {heap} as s where s.{tier_key} >= {line} limit 1

-- name: prepare_look_up
-- For this session: the row of a key, as an application asks for it.
prepare frostline_doctor as select * from {relation} where ({key}) = ({values})

-- name: measure
-- For this transaction, in which nothing is written: how plans are kept, and when to give up.
select set_config('transaction_read_only', 'on', true), set_config('plan_cache_mode', %(mode)s, true),
       set_config('statement_timeout', '2s', true)

-- name: look_up
-- What it takes Postgres to plan and to execute it.
explain (analyze, timing off, format json) execute frostline_doctor ({values})

-- name: forget_look_ups
-- The session is the doctor's own.
deallocate all
