-- name: printed
select %(text)s::interval::text

-- name: longer
select %(one)s::interval > %(other)s::interval

-- name: valid_interval
-- A period that goes back beyond Postgres' calendar is an error too.
select %(text)s::interval > interval '0', %(text)s::interval >= interval '0', (now() - %(text)s::interval)::text

-- name: seconds
select extract(epoch from %(text)s::interval)::float8
