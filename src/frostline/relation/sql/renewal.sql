-- name: source
-- Locks nothing.
select p.prosrc from pg_proc p where p.oid = to_regprocedure({function})
