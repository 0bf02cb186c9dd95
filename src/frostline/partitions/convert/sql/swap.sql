-- The swap. Postgres prints what belongs to the table while that still has its name; the same statements, run when the
-- shadow has the name, give it the same. All under ACCESS EXCLUSIVE on the original, in one transaction.

-- name: lock
lock table only {original} in access exclusive mode

-- name: belongings
select statement from (
    select 1, a.privilege_type, format('grant %%s on table %%s to %%s%%s', a.privilege_type, c.oid::regclass,
               case when a.grantee = 0 then 'public' else quote_ident(g.rolname) end,
               case when a.is_grantable then ' with grant option' else '' end)
      from pg_class c cross join lateral aclexplode(c.relacl) a left join pg_roles g on g.oid = a.grantee
     where c.oid = %(oid)s and a.grantee <> c.relowner
    union all
    select 1, t.attname, format('grant %%s (%%I) on table %%s to %%s%%s', a.privilege_type, t.attname, t.attrelid::regclass,
               case when a.grantee = 0 then 'public' else quote_ident(g.rolname) end,
               case when a.is_grantable then ' with grant option' else '' end)
      from pg_attribute t cross join lateral aclexplode(t.attacl) a left join pg_roles g on g.oid = a.grantee
     where t.attrelid = %(oid)s and not t.attisdropped
    union all
    select 2, polname, format('create policy %%I on %%s as %%s for %%s to %%s%%s%%s', polname, polrelid::regclass,
               case when polpermissive then 'permissive' else 'restrictive' end,
               case polcmd when 'r' then 'select' when 'a' then 'insert' when 'w' then 'update' when 'd' then 'delete' else 'all' end,
               (select string_agg(case when u.role = 0 then 'public' else quote_ident(r.rolname) end, ', ')
                  from unnest(polroles) as u (role) left join pg_roles r on r.oid = u.role),
               ' using (' || pg_get_expr(polqual, polrelid) || ')', ' with check (' || pg_get_expr(polwithcheck, polrelid) || ')')
      from pg_policy where polrelid = %(oid)s
    union all
    select 2, '', format('alter table %%s %%s', oid::regclass, setting)
      from pg_class, unnest(array[case when relrowsecurity then 'enable row level security' end,
                                  case when relforcerowsecurity then 'force row level security' end]) as u (setting)
     where oid = %(oid)s and setting is not null
    union all
    select 3, tgname, pg_get_triggerdef(oid)
      from pg_trigger where tgrelid = %(oid)s and not tgisinternal and tgname not like '!frostline\_convert%%'
    union all
    select 4, tgname, format('alter table %%s %%s trigger %%I', tgrelid::regclass,
               case tgenabled when 'D' then 'disable' when 'R' then 'enable replica' else 'enable always' end, tgname)
      from pg_trigger
     where tgrelid = %(oid)s and not tgisinternal and tgname not like '!frostline\_convert%%' and tgenabled <> 'O'
    union all
    select 5, stxname, pg_get_statisticsobjdef(oid) from pg_statistic_ext where stxrelid = %(oid)s
    union all
    select 6, stxname, format('alter statistics %%s.%%I owner to %%I', stxnamespace::regnamespace, stxname, r.rolname)
      from pg_statistic_ext s join pg_roles r on r.oid = s.stxowner where stxrelid = %(oid)s
    union all
    select 7, '', format('comment on table %%s is %%L', objoid::regclass, description)
      from pg_description where classoid = 'pg_class'::regclass and objoid = %(oid)s and objsubid = 0
    union all
    select 7, o.conname, format('comment on constraint %%I on %%s is %%L', o.conname, o.conrelid::regclass, d.description)
      from pg_description d join pg_constraint o on d.classoid = 'pg_constraint'::regclass and d.objoid = o.oid
     where o.conrelid = %(oid)s
    union all
    select 7, i.indexrelid::regclass::text, format('comment on index %%s is %%L', i.indexrelid::regclass, d.description)
      from pg_description d join pg_index i on d.classoid = 'pg_class'::regclass and d.objoid = i.indexrelid
     where i.indrelid = %(oid)s
    union all
    select 7, t.tgname, format('comment on trigger %%I on %%s is %%L', t.tgname, t.tgrelid::regclass, d.description)
      from pg_description d join pg_trigger t on d.classoid = 'pg_trigger'::regclass and d.objoid = t.oid
     where t.tgrelid = %(oid)s
    union all
    select 7, p.polname, format('comment on policy %%I on %%s is %%L', p.polname, p.polrelid::regclass, d.description)
      from pg_description d join pg_policy p on d.classoid = 'pg_policy'::regclass and d.objoid = p.oid
     where p.polrelid = %(oid)s
    union all
    select 7, s.stxname, format('comment on statistics %%s.%%I is %%L', s.stxnamespace::regnamespace, s.stxname, d.description)
      from pg_description d join pg_statistic_ext s on d.classoid = 'pg_statistic_ext'::regclass and d.objoid = s.oid
     where s.stxrelid = %(oid)s
) as printed (place, name, statement)
 order by place, name

-- name: sequences
-- Sequences that a column owns, as serial ones, and those inside of identity columns.
select s.oid::regclass::text, a.attname, a.attidentity::text,
       format('sequence name %%s start with %%s increment by %%s minvalue %%s maxvalue %%s cache %%s %%s', s.oid::regclass, q.seqstart,
              q.seqincrement, q.seqmin, q.seqmax, q.seqcache, case when q.seqcycle then 'cycle' else 'no cycle' end),
       q.seqincrement
  from pg_depend d
  join pg_class s on s.oid = d.objid and s.relkind = 'S'
  join pg_sequence q on q.seqrelid = s.oid
  join pg_attribute a on a.attrelid = d.refobjid and a.attnum = d.refobjsubid
 where d.classid = 'pg_class'::regclass and d.refclassid = 'pg_class'::regclass and d.refobjid = %(oid)s
   and d.deptype in ('a', 'i')
 order by 1

-- name: sequence_grants
select format('grant %%s on sequence %%s to %%s%%s', a.privilege_type, c.oid::regclass,
              case when a.grantee = 0 then 'public' else quote_ident(g.rolname) end,
              case when a.is_grantable then ' with grant option' else '' end)
  from pg_class c cross join lateral aclexplode(c.relacl) a left join pg_roles g on g.oid = a.grantee
 where c.oid = %(sequence)s::regclass and a.grantee <> c.relowner
 order by 1

-- name: freeze_sequence
-- Changes nothing, but waits for whoever is just taking a number, and lets nobody take one before the transaction ends.
alter sequence {sequence} increment by {increment}

-- name: sequence_value
select last_value, is_called from {sequence}

-- name: drop_identity
alter table {original} alter column {column} drop identity

-- name: add_identity
alter table {table} alter column {column} add generated {how} as identity ({options})

-- name: set_sequence
select setval({sequence}::regclass, {value}, {is_called})

-- name: disown
alter sequence {sequence} owned by none

-- name: own
-- The old table lets go of the sequence, or it could not be dropped with the new one.
alter table {old} alter column {column} drop default;
alter sequence {sequence} owned by {table}.{column}

-- name: statistics
select format('%%s.%%I', stxnamespace::regnamespace, stxname) from pg_statistic_ext where stxrelid = %(oid)s order by 1

-- name: move_statistics
alter statistics {statistics} set schema {schema}

-- name: step_aside
create schema {old_schema};
grant usage, create on schema {old_schema} to {owner};
alter table {original} set schema {old_schema}

-- name: step_in
alter table {shadow} set schema {schema};
drop schema {shadow_schema}

-- name: drop_old
-- ACCESS EXCLUSIVE on the old table, which nobody can name any more.
drop table if exists {old};
drop schema if exists {old_schema}
