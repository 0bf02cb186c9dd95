-- name: create
-- The foreign table of a lake table; nothing is asked of the lake server. postgres_fdw sends rows in batches.
create foreign table {table} ({columns}) server frostline_lake
    options (schema_name 'lake', table_name {remote}, batch_size '5000', fetch_size '10000')

-- name: drop
-- ACCESS EXCLUSIVE on the foreign table.
drop foreign table {table}

-- name: foreign_tables
-- The foreign tables in this database that ask for a lake table, by what they ask for. Locks nothing.
select n.nspname::text, c.relname::text
  from pg_foreign_table f
  join pg_foreign_server s on s.oid = f.ftserver
  join pg_class c on c.oid = f.ftrelid
  join pg_namespace n on n.oid = c.relnamespace
 where s.srvname = 'frostline_lake' and {remote} in (select o.option_value from pg_options_to_table(f.ftoptions) o
                                                      where o.option_name = 'table_name')
 order by 1, 2

-- name: set_remote
-- ACCESS EXCLUSIVE on a foreign table that was made in this transaction.
alter foreign table {table} options (set table_name {remote})

-- name: public_mapping
-- Whether every role has a way to the lake server. The options are hidden from all but the server's owner.
select exists (select from pg_user_mappings where srvname = 'frostline_lake' and umuser = 0)

-- name: create_public_mapping
create user mapping for public server frostline_lake options (user {user}, password {password})
