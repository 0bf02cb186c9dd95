-- Asked in the lake server's own session, by psycopg's RawCursor: parameters have numbers.

-- name: first_broken
-- The number of a CHECK that is false for one of the rows, whose texts come in an array for each column. Locks nothing.
select broken
  from (select case {cases} end as broken
          from (select {columns} from unnest({arrays}) as given ({names})) as given) as found
 where broken is not null
 limit 1
