-- name: role
select rolname from pg_roles where rolname = %(role)s

-- name: missing_privileges
-- Own grants only: what the role has through another one may be taken away there.
select p.privilege
  from unnest(array['SELECT', 'INSERT', 'UPDATE', 'DELETE']) with ordinality as p (privilege, position)
 where not exists (select from pg_class c cross join lateral aclexplode(c.relacl) a
                    where c.oid = %(oid)s and a.grantee = (select oid from pg_roles where rolname = %(role)s)
                      and a.privilege_type = p.privilege)
 order by p.position

-- name: lacks_schema
select not has_schema_privilege(%(role)s::name, %(schema)s, 'usage')

-- name: missing_sequences
-- A view's default is computed with the caller's rights, the next number of a sequence included.
select distinct s.oid::regclass::text
  from pg_attrdef d
  join pg_depend p on p.classid = 'pg_attrdef'::regclass and p.objid = d.oid and p.refclassid = 'pg_class'::regclass
  join pg_class s on s.oid = p.refobjid
 where d.adrelid = %(oid)s
   and case when s.relkind = 'S' then not has_sequence_privilege(%(role)s::name, s.oid, 'usage') else false end
 order by 1

-- name: rights_on_heap
select p.privilege
  from unnest(array['SELECT', 'INSERT', 'UPDATE', 'DELETE']) with ordinality as p (privilege, position)
 where has_table_privilege(%(role)s::name, %(heap)s::oid, p.privilege)
 order by p.position

-- name: grant_schema
grant usage on schema {schema} to {role}

-- name: grant_relation
grant {privileges} on {relation} to {role}

-- name: grant_sequence
grant usage on sequence {sequence} to {role}
