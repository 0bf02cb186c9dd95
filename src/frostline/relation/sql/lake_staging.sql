-- A batch of rows on its way into a lake table goes through a table of Postgres' own, so that types, NOT NULL, CHECK and defaults
-- are what they are for an INSERT. Only its session sees it, and it ends with that.

-- name: create
create temp table frostline_batch (like {table} including defaults including constraints)

-- name: give
copy pg_temp.frostline_batch ({columns}) from stdin (format csv, encoding 'UTF8')

-- name: take
-- Every value is in quotes, and NULL is not.
copy (select {columns} from pg_temp.frostline_batch) to stdout (format csv, force_quote *, encoding 'UTF8')

-- name: empty
truncate pg_temp.frostline_batch

-- name: fill
-- What a query gives, in an unlogged table: one statement, so all of it is of one Postgres snapshot. The query is the user's own.
create unlogged table {stage} as select * from ({query}) as frostline_query

-- name: everything
-- Of a table with its partitions and children, or of a managed table's relation. Part of `fill`.
select {columns} from {relation}
