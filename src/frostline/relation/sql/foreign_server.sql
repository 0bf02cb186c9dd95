-- name: extension
create extension if not exists postgres_fdw with schema public

-- name: server_options
select coalesce((select jsonb_object_agg(option_name, option_value) from pg_options_to_table(srvoptions)), '{{}}')
  from pg_foreign_server where srvname = 'frostline_lake'

-- name: create_server
-- A cold query must fail soon when the lake is down.
create server frostline_lake foreign data wrapper postgres_fdw
    options (host {host}, port {port}, dbname 'lake', connect_timeout '5', tcp_user_timeout '9000', fetch_size '1000',
             keep_connections 'on', fdw_startup_cost '10', fdw_tuple_cost '0.02', sslmode 'prefer')

-- name: alter_server
alter server frostline_lake options (set host {host}, set port {port})

-- name: mapping_options
select coalesce((select jsonb_object_agg(option_name, option_value) from pg_options_to_table(umoptions)), '{{}}')
  from pg_user_mappings where srvname = 'frostline_lake' and usename = current_user

-- name: create_mapping
create user mapping for current_user server frostline_lake options (user {user}, password {password})

-- name: alter_mapping
alter user mapping for current_user server frostline_lake options (set user {user}, set password {password})
