-- name: untrusted
-- What of a table's code the connected role must not run. Reads the system catalogs only, and locks nothing.
select object, code from frostline.untrusted_code(%(oid)s)
 union all
select format('the default of column %%I', column_name), code from frostline.untrusted_defaults(%(oid)s)

-- name: untrusted_readers
-- What of it runs when the tables are only read: what Postgres looks at to plan, and casts.
select t.oid, c.object, c.code
  from unnest(%(oids)s::oid[]) as t (oid) cross join lateral frostline.untrusted_code(t.oid) c
 where c.object ~ '^(index|statistics|cast|the partition key) '
 order by 1, 2, 3

-- name: loud
-- What fires when a job deletes a row of a partition: what cannot be silenced, if somebody else's; and ordinary triggers and
-- rules, where the role may not silence them. Ours are told by their functions, which nobody else may use.
with tree as (
    select c.oid, c.relowner from pg_class c
     where c.oid = %(oid)s or c.oid in (with recursive tree as (
                        select i.inhrelid from pg_inherits i where i.inhparent = %(oid)s::oid
                         union all
                        select i.inhrelid from pg_inherits i join tree t on i.inhparent = t.inhrelid)
                    select inhrelid from tree)
), loud as (
    select case when exists (select from tree where not frostline.is_trusted(relowner)) then 'AR' else '' end
        || case when has_parameter_privilege('session_replication_role', 'set') then '' else 'OAR' end as enabled
)
select format('trigger %%I on %%s', t.tgname, t.tgrelid::regclass)
  from loud cross join tree
  join pg_trigger t on t.tgrelid = tree.oid
  join pg_proc f on f.oid = t.tgfoid
 where not t.tgisinternal and t.tgparentid = 0 and t.tgtype & 8 = 8 and (t.tgtype & 1 = 1 or t.tgrelid <> %(oid)s)
   and strpos(loud.enabled, t.tgenabled::text) > 0 and f.pronamespace <> 'frostline_relation'::regnamespace
 union
select format('rule %%I on %%s', r.rulename, r.ev_class::regclass)
  from loud cross join tree
  join pg_rewrite r on r.ev_class = tree.oid
 where r.ev_type = '4' and r.ev_class <> %(oid)s and strpos(loud.enabled, r.ev_enabled::text) > 0
 order by 1
