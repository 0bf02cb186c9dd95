-- GENERATED columns that `frostline table alter` adds in steps: until all rows have the value, the column has a name of its own, and this is
-- what it is called then. docs/design/added-columns.md.
alter table frostline.filling add column becomes text;

-- It has other columns now. The program brings it again.
drop function if exists frostline.unfilled_columns(integer);
