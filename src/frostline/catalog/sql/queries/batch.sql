-- name: begin
-- Waits for a transaction that has the same label. KEY SHARE on the table's row until the transaction ends.
select is_new, was_mode as mode, was_rows as rows
  from frostline_stage.begin_batch(%(schema)s::text, %(table)s::text, %(label)s::text, %(mode)s::text, %(rows)s::bigint)

-- name: relation
-- A relation and its heap, by the name of either, but not by that of a heap whose place the relation has taken. Reads the system
-- catalogs only, so a role needs no right for it: the rule of the relation says which its heap is. Both have one owner, so that
-- nobody can put a view of their own between.
select v.relname::text, v.oid, h.oid
  from pg_rewrite r
  join pg_class v on v.oid = r.ev_class and v.relkind = 'v'
  join pg_depend d on d.classid = 'pg_rewrite'::regclass and d.objid = r.oid and d.refclassid = 'pg_class'::regclass
  join pg_class h on h.oid = d.refobjid and h.relkind = 'p' and h.relnamespace = v.relnamespace and h.relowner = v.relowner
  join pg_namespace n on n.oid = v.relnamespace
 where r.rulename = 'frostline_insert' and r.ev_type = '3' and n.nspname = %(schema)s
   and (v.relname = %(table)s or h.relname = %(table)s and h.relname <> '_' || v.relname)
 limit 1

-- name: columns
-- Reads the system catalogs only, so a role needs no right for it. A domain counts as the type inside it. A view's
-- defaults are those of the relation; its columns have the heap's order.
with recursive inside as (
    select a.attnum, t.oid as type, t.typtype, t.typbasetype, t.typelem, t.typcategory
      from pg_attribute a join pg_type t on t.oid = a.atttypid
     where a.attrelid = %(heap)s::oid and a.attnum > 0 and not a.attisdropped
     union all
    select f.attnum, t.oid, t.typtype, t.typbasetype, t.typelem, t.typcategory
      from inside f join pg_type t on t.oid = f.typbasetype
     where f.typtype = 'd'
)
select a.attname::text as name, format_type(a.atttypid, a.atttypmod) as formatted,
       case when a.attcollation not in (0, 100) then quote_ident(ln.nspname) || '.' || quote_ident(l.collname) end
           as collation,
       case when f.typcategory = 'A' and f.typelem <> 0 then (select e.typname from pg_type e where e.oid = f.typelem)
            else (select t.typname from pg_type t where t.oid = f.type) end::text as type_name,
       f.typcategory = 'A' and f.typelem <> 0 as is_array, a.attnotnull as not_null, a.attgenerated <> '' as generated,
       exists (select from pg_attrdef d join pg_attribute v on v.attrelid = d.adrelid and v.attnum = d.adnum
                where d.adrelid = %(relation)s::oid and v.attname = a.attname) or a.attidentity <> '' as has_default,
       a.attnum = (select p.partattrs[0] from pg_partitioned_table p where p.partrelid = a.attrelid) as is_tier_key
  from pg_attribute a
  join inside f on f.attnum = a.attnum and f.typtype <> 'd'
  left join pg_collation l on l.oid = a.attcollation
  left join pg_namespace ln on ln.oid = l.collnamespace
 where a.attrelid = %(heap)s::oid
 order by a.attnum

-- name: keep_session
-- The session waits while Spark works.
select set_config('idle_session_timeout', '0', false)

-- name: hold
-- An advisory lock of the session, in the transaction that makes the table: whoever sees the table finds it held.
select pg_advisory_lock(1179538516, oid::int4) from pg_class
 where relnamespace = 'frostline_stage'::regnamespace and relname = %(stage)s

-- name: abandoned
-- Those that the role may drop and whose driver's session is gone. Takes no lock on them: each is tried when it is dropped.
select c.relname::text
  from pg_class c join pg_namespace n on n.oid = c.relnamespace
 where n.nspname = 'frostline_stage' and c.relkind = 'r' and c.relname like 'batch\_%%'
   and (pg_has_role(c.relowner, 'usage') or pg_has_role(n.nspowner, 'usage'))
   and not exists (select from pg_locks k
                    where k.locktype = 'advisory' and k.classid = 1179538516 and k.objid = c.oid and k.objsubid = 2
                      and k.database = (select d.oid from pg_database d where d.datname = current_database()))
 order by 1
