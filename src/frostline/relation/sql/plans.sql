-- name: plans_anew
-- A row if the function is there and leaves the choice to Postgres. Locks nothing.
select from pg_proc p
 where p.oid = to_regprocedure({function})
   and not coalesce(p.proconfig, '{{}}') @> array['plan_cache_mode=force_generic_plan'];

-- name: keep_plan
-- By cost Postgres would plan for each row as soon as the heap has more than a few partitions: it does not know how little of a kept
-- plan is left at its start. No lock on a table; a session takes it at its next statement. Harmless to repeat.
alter function {function}() set plan_cache_mode = force_generic_plan;
