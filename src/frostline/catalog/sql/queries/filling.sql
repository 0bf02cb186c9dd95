-- Columns that are added in steps: docs/design/added-columns.md.

-- name: begin
-- In the transaction that adds the column.
insert into frostline.filling (table_id, column_name, change, default_value, sequence_name, is_not_null, identity, becomes)
values (%(table_id)s, %(name)s, %(change)s, %(default_value)s, %(sequence_name)s, %(is_not_null)s, %(identity)s, %(becomes)s)

-- name: forget_dropped
-- Those of which the heap has no such column any more, or a plain one that was generated. One that has another name, which nobody has followed
-- yet, is still the column that the relation has. Row locks; harmless to repeat.
delete from frostline.filling f
 where f.table_id = %(table_id)s
   and not exists (select from pg_attribute a
                    where a.attrelid = frostline.heap_of(f.table_id) and not a.attisdropped and (f.becomes is null or a.attgenerated <> '')
                      and (a.attname = f.column_name
                           or a.attnum in (select c.attnum from frostline.managed_column m
                                             join frostline.carried_columns(f.table_id, a.attrelid) c on c.field_id = m.field_id
                                            where m.table_id = f.table_id and m.name = f.column_name)))

-- name: list_all
-- In the order of the columns. What a generated one is computed from may have another name by now. Locks nothing.
select f.column_name as name, f.change, f.sequence_name, f.is_not_null, f.identity, f.becomes,
       case when f.becomes is null then f.default_value
            else format('(%%s)::%%s', (frostline.generation_of(a.attrelid, a.attnum))[1], format_type(a.atttypid, a.atttypmod)) end as default_value
  from frostline.filling f
  join pg_attribute a on a.attrelid = frostline.heap_of(f.table_id) and a.attname = f.column_name and not a.attisdropped
 where f.table_id = %(table_id)s
 order by a.attnum

-- name: forget
-- In the transaction of the last step.
delete from frostline.filling where table_id = %(table_id)s and column_name = %(name)s
