-- name: create
-- The foreign table of a lake table; nothing is asked of the lake server. postgres_fdw sends rows in batches.
create foreign table {table} ({columns}) server frostline_lake
    options (batch_size '5000', fetch_size '10000')

-- name: set_not_null
-- ACCESS EXCLUSIVE on a foreign table that was made in this transaction.
alter foreign table {table} alter column {column} set not null

-- name: checks
-- The CHECKs of a table, and what of each the lake server must not run. Reads system catalogs, locks nothing.
select name, expression, strange from frostline.lake_checks({oid})

-- name: left_behind
-- What a lake table does not take over from a table that it is like, in words. Reads system catalogs, locks nothing.
select what from (
    select 1 as place, format('column %I is an identity', a.attname) as what
      from pg_attribute a where a.attrelid = {oid} and a.attidentity <> '' and not a.attisdropped
    union all
    select 2, format('column %I is generated; here it is a plain one', a.attname)
      from pg_attribute a where a.attrelid = {oid} and a.attgenerated <> '' and not a.attisdropped
    union all
    select 3, format('constraint %I: %s', c.conname, pg_get_constraintdef(c.oid))
      from pg_constraint c where c.conrelid = {oid} and c.contype in ('p', 'u', 'x', 'f') and c.conparentid = 0
    union all
    select 4, format('unique index %I', i.indexrelid::regclass)
      from pg_index i where i.indrelid = {oid} and i.indisunique
       and not exists (select from pg_constraint c where c.conindid = i.indexrelid)
    union all
    select 5, format('trigger %I', t.tgname) from pg_trigger t where t.tgrelid = {oid} and not t.tgisinternal
    union all
    select 6, 'row security' from pg_class c where c.oid = {oid} and c.relrowsecurity) as found
 order by place, what

-- name: table_comment
select obj_description({oid}, 'pg_class')

-- name: comment_on_table
comment on foreign table {table} is {comment}

-- name: comment_on_column
comment on column {column} is {comment}

-- name: grant_use
-- The owner of a foreign table could let it ask for another lake table, so that stays with the role that made it.
grant select, insert, update, delete on {table} to {role}

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

-- name: asked_for
-- What the foreign table of that name asks the lake server for. Reads the system catalogs only, so a role needs no right for it.
select o.option_value
  from pg_foreign_table f
  join pg_foreign_server s on s.oid = f.ftserver
  join pg_class c on c.oid = f.ftrelid
  join pg_namespace n on n.oid = c.relnamespace
 cross join pg_options_to_table(f.ftoptions) o
 where s.srvname = 'frostline_lake' and n.nspname = {schema} and c.relname = {name} and o.option_name = 'table_name'

-- name: set_remote
-- ACCESS EXCLUSIVE on a foreign table that was made in this transaction.
alter foreign table {table} options (add schema_name {schema}, add table_name {remote})

-- name: remote_schema
-- The schema that a foreign table names: which columns it was made for. Locks nothing.
select (select o.option_value from pg_options_to_table(f.ftoptions) o where o.option_name = 'schema_name')
  from pg_foreign_table f where f.ftrelid = to_regclass({table})

-- name: remote_names
-- What the columns of a foreign table are called in the lake table. Locks nothing.
select a.attname::text,
       coalesce((select o.option_value from pg_options_to_table(a.attfdwoptions) o where o.option_name = 'column_name'), a.attname::text)
  from pg_attribute a where a.attrelid = to_regclass({table}) and a.attnum > 0 and not a.attisdropped

-- name: rename_column
-- ACCESS EXCLUSIVE on the foreign table, as with all of these.
alter foreign table {table} rename column {old} to {new}

-- name: drop_column
-- What depends on it is an error.
alter foreign table {table} drop column {column}

-- name: add_column
alter foreign table {table} add column {column} {type}

-- name: retype_column
-- Views that read it are an error.
alter foreign table {table} alter column {column} type {type}

-- name: require_column
alter foreign table {table} alter column {column} set not null

-- name: relax_column
alter foreign table {table} alter column {column} drop not null

-- name: point_column
-- A column that has a name of its own in Postgres.
alter foreign table {table} alter column {column} options (set column_name {remote})

-- name: add_schema
-- To a foreign table that names none.
alter foreign table {table} options (add schema_name {schema})

-- name: set_schema
alter foreign table {table} options (set schema_name {schema})
