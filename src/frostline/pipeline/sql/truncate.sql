-- name: may_truncate
-- Reads the system catalogs only; locks nothing.
select has_table_privilege({heap}::regclass, 'truncate')

-- name: untrusted_triggers
-- What TRUNCATE would run with our rights: triggers whose function belongs to a role with fewer, unless the function brings its own.
-- None where the table's owner could have our rights anyway. Ours are told by their functions. Locks nothing.
with tree as (
    select c.oid, c.relowner from pg_class c
     where c.oid = {heap}::regclass or c.oid in (with recursive tree as (
                        select i.inhrelid from pg_inherits i where i.inhparent = {heap}::regclass
                         union all
                        select i.inhrelid from pg_inherits i join tree t on i.inhparent = t.inhrelid)
                    select inhrelid from tree)
)
select t.tgname::text, t.tgrelid::regclass::text, f.oid::regprocedure::text
  from tree
  join pg_trigger t on t.tgrelid = tree.oid
  join pg_proc f on f.oid = t.tgfoid
 where not t.tgisinternal and t.tgtype & 32 = 32 and t.tgenabled in ('O', 'A')
   and f.pronamespace <> 'frostline_relation'::regnamespace
   and not f.prosecdef and not frostline.is_trusted(f.proowner)
   and exists (select from tree as other where not frostline.is_trusted(other.relowner))
 order by 2, 1

-- name: lock
-- Waited for a moment only. All partitions with it: each session that has read or written one has ended its transaction then.
lock table {heap} in access exclusive mode

-- name: empty_overlay
-- A transaction with an older snapshot still needs the marks: without them it would see lake rows that were deleted. So no TRUNCATE.
delete from {overlay}

-- name: own_search_path
-- Triggers of the user find what they find when the same role truncates a plain table, and so do those that wait for the commit.
select set_config('search_path', coalesce(
    (select substring(setting from '^search_path=(.*)$')
       from pg_db_role_setting s cross join unnest(s.setconfig) as setting
      where s.setdatabase in (0, (select oid from pg_database where datname = current_database()))
        and s.setrole in (0, (select oid from pg_roles where rolname = current_user)) and setting like 'search_path=%'
      order by s.setrole = 0, s.setdatabase = 0 limit 1),
    (select boot_val from pg_settings where name = 'search_path')), true)

-- name: truncate
-- Under the lock. Its triggers fire as on any table; ours have nothing to say, for the lake has no file any more.
truncate table {heap} {identities}
