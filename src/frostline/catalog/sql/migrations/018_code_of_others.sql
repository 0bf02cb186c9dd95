-- Whose code is on a table is asked several times in every job, and of each managed table when anybody makes a function or a type.
-- The search allocates tables for as many types as Postgres expects of its recursion, which are millions, before it looks at one:
-- 0.1 s. So it begins small, and is not begun for a table that only trusted roles own, as most are.
alter function frostline.untrusted_code(oid) rename to code_of_others;
alter function frostline.code_of_others(oid) set work_mem = '1MB';

create function frostline.untrusted_code(relation oid) returns table (object text, code text, age integer)
language plpgsql stable set search_path = pg_catalog, pg_temp as $body$
begin
    if exists (
        with recursive tree as (  -- pg_partition_tree would lock every partition
            select relation as member
             union all
            select i.inhrelid from pg_inherits i join tree t on i.inhparent = t.member)
        select from tree t join pg_class c on c.oid = t.member where not frostline.is_trusted(c.relowner)
    ) then
        return query select o.object, o.code, o.age from frostline.code_of_others(relation) o;
    end if;
end
$body$;
revoke execute on function frostline.untrusted_code(oid) from public;
