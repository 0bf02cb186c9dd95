-- Jobs work with the rights of the installing role on tables of other roles. docs/design/deputies.md says what may run there.

-- Tables that we made and that are not, or not only, the user's: known by their oid and name, not by what anybody could write
-- on a table of his own. `premake` and `thaw` are on their way to become partitions; `default` is a DEFAULT partition of ours.
create table frostline.made_table (
    table_id        integer not null references frostline.managed_table on delete cascade,
    relation        oid not null,
    schema_name     text not null,
    table_name      text not null,
    purpose         text not null check (purpose in ('default', 'premake', 'thaw')),
    server          text not null default frostline.this_server(),
    primary key (table_id, relation)
);

-- Those of before were known by their comments. Only one that is the heap's DEFAULT, or its owner's, is believed.
insert into frostline.made_table (table_id, relation, schema_name, table_name, purpose)
select t.table_id, c.oid, n.nspname, c.relname, m.purpose
  from frostline.managed_table t
  join pg_namespace hn on hn.nspname = t.schema_name
  join pg_class h on h.relnamespace = hn.oid and h.relname = case t.mode when 'tiered' then '_' else '' end || t.table_name
  join pg_partitioned_table p on p.partrelid = h.oid
  join pg_class c on c.relkind = 'r'
  join pg_namespace n on n.oid = c.relnamespace
  join lateral (values
      ('default', 'made by Frostline: rows for which there is no other partition'),
      ('premake', 'made by Frostline: to be a partition of table ' || t.table_id),
      ('thaw', 'made by Frostline: rows on their way back into table ' || t.table_id)) m (purpose, said)
    on m.said = obj_description(c.oid, 'pg_class')
 where case m.purpose when 'default' then c.oid = p.partdefid else c.relowner = h.relowner and not c.relispartition end;

-- Whose code may run in a job: the installing role's own, that of superusers, and that of roles which could become it anyway.
create function frostline.is_trusted(role oid) returns boolean
language sql stable set search_path = pg_catalog, pg_temp as $body$
    select pg_has_role(role, current_user, 'member')
$body$;
revoke execute on function frostline.is_trusted(oid) from public;

-- What would run with the rights of whoever reads or writes a table, its partitions included, and is neither Postgres' own nor a
-- trusted role's. Nothing for a table of a trusted role: it is what he put there. Triggers and rules are not here: jobs silence
-- them. Nor are defaults, which no job asks for, nor policies, which job sessions refuse (row_security = off).
-- Postgres calls a function of constants when it plans, so an index is enough to have code run by who only reads.
-- `age` tells what is new: it is that of the youngest entry of the system catalogs that brings the code to the table.
create function frostline.untrusted_code(relation oid) returns table (object text, code text, age integer)
language sql stable set search_path = pg_catalog, pg_temp as $body$
with recursive tree as (
    select c.oid, c.relowner, c.reltype, age(i.xmin) as age
      from pg_class c left join pg_inherits i on i.inhrelid = c.oid
     where c.oid = relation or c.oid in (with recursive tree as (  -- pg_partition_tree would lock every partition
                        select i.inhrelid from pg_inherits i where i.inhparent = relation
                         union all
                        select i.inhrelid from pg_inherits i join tree t on i.inhparent = t.inhrelid)
                    select inhrelid from tree)
), guarded as (
    select t.* from tree t where exists (select from tree o where not frostline.is_trusted(o.relowner))
), types as (
    select a.atttypid as oid from guarded g join pg_attribute a on a.attrelid = g.oid and a.attnum > 0 and not a.attisdropped
     union
    select g.reltype from guarded g
     union
    select inside.oid
      from types t
      join pg_type p on p.oid = t.oid
      cross join lateral (
          select p.typbasetype where p.typbasetype <> 0
           union all
          select p.typelem where p.typelem <> 0
           union all
          select a.atttypid from pg_attribute a where a.attrelid = p.typrelid and a.attnum > 0 and not a.attisdropped
           union all
          select r.rngsubtype from pg_range r where r.rngtypid = p.oid
           union all
          select r.rngtypid from pg_range r where r.rngmultitypid = p.oid) inside (oid)
), expressions (object, tree, age) as (
    select 'index ' || i.indexrelid::regclass, concat(i.indexprs, i.indpred), least(age(i.xmin), g.age)
      from guarded g join pg_index i on i.indrelid = g.oid
     union all
    select format('constraint %I of %s', c.conname, c.conrelid::regclass), c.conbin::text, least(age(c.xmin), g.age)
      from guarded g join pg_constraint c on c.conrelid = g.oid and c.contype = 'c'
     union all
    select format('domain %s', c.contypid::regtype), c.conbin::text, age(c.xmin)
      from types t join pg_constraint c on c.contypid = t.oid and c.contype = 'c'
     union all
    select format('column %I of %s', a.attname, a.attrelid::regclass), d.adbin::text, least(age(d.xmin), g.age)
      from guarded g
      join pg_attribute a on a.attrelid = g.oid and a.attgenerated <> ''
      join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
     union all
    select format('statistics %I.%I', n.nspname, s.stxname), s.stxexprs::text, least(age(s.xmin), g.age)
      from guarded g join pg_statistic_ext s on s.stxrelid = g.oid join pg_namespace n on n.oid = s.stxnamespace
     union all
    select format('the partition key of %s', p.partrelid::regclass), p.partexprs::text, least(age(p.xmin), g.age)
      from guarded g join pg_partitioned_table p on p.partrelid = g.oid
), calls (object, function, age) as (
    select e.object, found.number[1]::oid, e.age
      from expressions e cross join lateral regexp_matches(e.tree, ':(?:funcid|opfuncid) (\d+)', 'g') found (number)
     union
    select e.object, o.oprcode::oid, e.age
      from expressions e cross join lateral regexp_matches(e.tree, ':opno (\d+)', 'g') found (number)
      join pg_operator o on o.oid = found.number[1]::oid
     union
    select format('cast from %s to %s', c.castsource::regtype, c.casttarget::regtype), c.castfunc, age(c.xmin)
      from types t join pg_cast c on c.castsource = t.oid and c.castfunc <> 0
     union
    select format('type %s', r.rngtypid::regtype), own.function, age(r.xmin)
      from types t join pg_range r on r.rngtypid = t.oid
      cross join lateral (values (r.rngcanonical::oid), (r.rngsubdiff::oid)) own (function)
)
select c.object, f.oid::regprocedure::text, min(c.age)
  from calls c join pg_proc f on f.oid = c.function
 where not frostline.is_trusted(f.proowner)
    -- Postgres' own can run a query that is a text, or act on files and sessions. None of those is called immutable or stable but
    -- the ones that make XML of a table.
    or f.provolatile = 'v' and f.proname not in ('random', 'clock_timestamp', 'gen_random_uuid', 'timeofday', 'uuidv4', 'uuidv7')
    or f.proname like '%\_to\_xml%'
 group by c.object, f.oid
 union
-- A coercion to a domain runs its constraints, which its owner may change.
select e.object, 'domain ' || y.oid::regtype, min(e.age)
  from expressions e cross join lateral regexp_matches(e.tree, ':resulttype (\d+)', 'g') found (number)
  join pg_type y on y.oid = found.number[1]::oid
 where y.typtype = 'd' and not frostline.is_trusted(y.typowner)
 group by e.object, y.oid
 order by 1, 2
$body$;
revoke execute on function frostline.untrusted_code(oid) from public;

-- What the jobs add up to that are not in frostline.job any more: its history is bounded, and counters must not fall.
create table frostline.job_total (
    table_id    integer not null references frostline.managed_table on delete cascade,
    kind        text not null,
    done        bigint not null default 0,
    failed      bigint not null default 0,
    seconds     double precision not null default 0,
    rows        bigint not null default 0,
    size_bytes  bigint not null default 0,
    primary key (table_id, kind)
);
