-- name: extension
create extension if not exists postgres_fdw with schema public

-- name: server_options
select coalesce((select jsonb_object_agg(option_name, option_value) from pg_options_to_table(srvoptions)), '{{}}')
  from pg_foreign_server where srvname = 'frostline_lake'

-- name: create_server
create server frostline_lake foreign data wrapper postgres_fdw
    options (host {host}, port {port}, dbname 'lake', fetch_size '1000', keep_connections 'on', sslmode 'prefer'{passfile})

-- name: alter_server
alter server frostline_lake options ({changes})

-- name: mapping_options
select coalesce((select jsonb_object_agg(option_name, option_value) from pg_options_to_table(umoptions)), '{{}}')
  from pg_user_mappings where srvname = 'frostline_lake' and usename = current_user

-- name: create_mapping
create user mapping for current_user server frostline_lake options ({changes})

-- name: alter_mapping
alter user mapping for current_user server frostline_lake options ({changes})

-- name: public_mapping_options
-- The way that all other roles have to lake tables: docs/design/lake-tables.md. Its options are hidden from them.
select coalesce((select jsonb_object_agg(option_name, option_value) from pg_options_to_table(umoptions)), '{{}}')
  from pg_user_mappings where srvname = 'frostline_lake' and umuser = 0

-- name: alter_public_mapping
alter user mapping for public server frostline_lake options ({changes})

-- name: is_superuser
select rolsuper from pg_roles where rolname = current_user
