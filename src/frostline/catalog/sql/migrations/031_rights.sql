-- What others than the owner have on a heap, as it was known last, of what its relation can give: docs/design/schema-changes.md. A field of 0
-- is the whole table. What the relation does not have of it is apart: nothing that is said of the one is done to the other.
create table frostline.heap_right (
    table_id    integer not null references frostline.managed_table on delete cascade,
    grantee     text not null,
    privilege   text not null,
    field_id    integer not null,
    with_option boolean not null,
    is_apart    boolean not null,
    primary key (table_id, grantee, privilege, field_id, with_option)
);

-- What differs between heap and relation of a table that is there already was meant so.
with own as (
    select t.table_id, s.is_heap, c.oid, c.relowner, c.relacl
      from frostline.managed_table t
     cross join (values (true), (false)) as s (is_heap)
      join pg_catalog.pg_class c
        on c.oid = to_regclass(format('%I.%I', t.schema_name, case when s.is_heap then t.heap_name else coalesce(t.relation_name, t.table_name) end))
     where t.mode = 'tiered'
), rights as (
    select distinct o.table_id, o.is_heap, case a.grantee when 0 then 'public' else pg_get_userbyid(a.grantee)::text end as grantee,
           a.privilege_type as privilege, g.field_id, w.with_option
      from own o
     cross join lateral (select 0 as field_id, o.relacl as acl
                         union all
                         select m.field_id, t.attacl from pg_catalog.pg_attribute t
                           join frostline.managed_column m on m.table_id = o.table_id and m.name = t.attname
                          where t.attrelid = o.oid and t.attnum > 0 and not t.attisdropped) g
     cross join lateral aclexplode(g.acl) a
     cross join lateral (select false union all select true where a.is_grantable) as w (with_option)
     where a.grantee <> o.relowner and a.privilege_type in ('SELECT', 'INSERT', 'UPDATE', 'DELETE', 'REFERENCES', 'TRIGGER')
)
insert into frostline.heap_right
select h.table_id, h.grantee, h.privilege, h.field_id, h.with_option,
       not exists (select from rights r where not r.is_heap and (r.table_id, r.grantee, r.privilege, r.field_id, r.with_option)
                                                             = (h.table_id, h.grantee, h.privilege, h.field_id, h.with_option))
  from rights h
 where h.is_heap;
