-- Everybody could read where the lines and the lake's files of all tables are. Nobody needs to: the inner views and
-- the trigger functions read the seam with their owner's rights.
revoke select on frostline.seam from public;

-- Of the functions, only `require` is called with the caller's rights.
do $$
declare
    ours record;
begin
    for ours in
        select p.oid::regprocedure as signature
          from pg_proc p
         where p.pronamespace in ('frostline'::regnamespace, 'frostline_relation'::regnamespace)
           and p.oid <> 'frostline.require(boolean, text)'::regprocedure
           and pg_has_role(current_user, p.proowner, 'usage')
    loop
        execute format('revoke execute on function %s from public', ours.signature);
    end loop;
end
$$;
