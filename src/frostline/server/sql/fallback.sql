-- Asked in the lake server's own session, by psycopg's RawCursor: parameters have numbers.

-- name: volatile
-- Which of these names are not those of immutable functions (some have a stable variant for time zones). Reads system catalogs, locks nothing.
select f.name from unnest($1::text[]) as f(name)
 where not exists (select from pg_catalog.pg_proc p where p.proname = f.name
                      and p.pronamespace = 'pg_catalog'::regnamespace and p.provolatile = 'i')
    or exists (select from pg_catalog.pg_proc p where p.proname = f.name
                  and p.pronamespace = 'pg_catalog'::regnamespace and p.provolatile = 'v')
