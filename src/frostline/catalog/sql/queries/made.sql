-- name: record
-- In the transaction that made the table.
insert into frostline.made_table (table_id, relation, schema_name, table_name, purpose)
select %(table_id)s, c.oid, n.nspname, c.relname, %(purpose)s
  from pg_class c join pg_namespace n on n.oid = c.relnamespace
 where n.nspname = %(schema)s and c.relname = %(table)s
on conflict (table_id, relation) do update
   set schema_name = excluded.schema_name, table_name = excluded.table_name, purpose = excluded.purpose, server = excluded.server

-- name: forget
-- In the transaction that attaches or drops it.
delete from frostline.made_table where table_id = %(table_id)s and schema_name = %(schema)s and table_name = %(table)s

-- name: leftovers
-- Those that never became partitions and are still what they were when they were made. Locks nothing.
select c.oid, n.nspname, c.relname
  from frostline.made_table m
  join pg_class c on c.oid = m.relation and c.relkind = 'r' and not c.relispartition and c.relname = m.table_name
  join pg_namespace n on n.oid = c.relnamespace and n.nspname = m.schema_name
 where m.table_id = %(table_id)s and m.purpose = %(purpose)s and m.server = frostline.this_server()
 order by 2, 3

-- name: forget_gone
-- What is not there any more, or has become something else.
delete from frostline.made_table m
 where m.table_id = %(table_id)s and m.purpose = %(purpose)s
   and not exists (select from pg_class c join pg_namespace n on n.oid = c.relnamespace
                    where c.oid = m.relation and not c.relispartition and c.relname = m.table_name and n.nspname = m.schema_name)

-- name: is_default
-- Whether we made the DEFAULT partition of that name. What is asked for is one, and only the heap's owner can make another.
select exists (select from frostline.made_table
                where table_id = %(table_id)s and purpose = 'default' and schema_name = %(schema)s and table_name = %(table)s)
