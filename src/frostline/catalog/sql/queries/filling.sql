-- Columns that are added in steps: docs/design/added-columns.md.

-- name: begin
-- In the transaction that adds the column.
insert into frostline.filling (table_id, column_name, change, default_value, sequence_name, is_not_null, identity)
values (%(table_id)s, %(name)s, %(change)s, %(default_value)s, %(sequence_name)s, %(is_not_null)s, %(identity)s)

-- name: forget_dropped
-- Those of which the heap has no column of that name any more. Row locks; harmless to repeat.
delete from frostline.filling f
 where f.table_id = %(table_id)s
   and not exists (select from pg_attribute a
                    where a.attrelid = frostline.heap_of(f.table_id) and a.attname = f.column_name and not a.attisdropped)

-- name: list_all
-- In the order of the columns. Locks nothing.
select f.column_name as name, f.change, f.default_value, f.sequence_name, f.is_not_null, f.identity
  from frostline.filling f
  join pg_attribute a on a.attrelid = frostline.heap_of(f.table_id) and a.attname = f.column_name and not a.attisdropped
 where f.table_id = %(table_id)s
 order by a.attnum

-- name: forget
-- In the transaction of the last step.
delete from frostline.filling where table_id = %(table_id)s and column_name = %(name)s
