-- Foreign keys of a heap, for the rows that only the lake has: docs/design/constraints.md. Called by constraints.sql, for keys that can be
-- held for the lake alone: `foreign_key_obstacle` leaves out what operators of others compare, so nothing of theirs runs with our rights.

-- name: cold_orphan
-- The condition that a row of `child` lacks the row that it references: as Postgres asks, or as a person would who is told of it. Reads
-- system catalogs, locks nothing.
create or replace function frostline.cold_orphan(key oid, child text, is_told boolean default false) returns text
language sql stable set search_path = pg_catalog, pg_temp as $$
    select format('(%s) and not exists (select from %s as %s where %s)',
                  string_agg(format('%s.%I is not null', child, fk.attname), case c.confmatchtype when 'f' then ' or ' else ' and ' end
                             order by k.place),
                  c.confrelid::regclass, case when is_told then 'parent' else 'frostline_parent' end,
                  string_agg(case when is_told then format('parent.%I %s %s.%I', pk.attname, o.oprname, child, fk.attname)
                                  else format('frostline_parent.%I%s%s operator(pg_catalog.%s) %s.%I%s', pk.attname, kind.pk_cast,
                                              kind.collation, o.oprname, child, fk.attname, kind.fk_cast) end, ' and ' order by k.place))
      from pg_constraint c
     cross join unnest(c.conkey, c.confkey, c.conpfeqop) with ordinality as k (fk, pk, operator, place)
      join pg_attribute fk on fk.attrelid = c.conrelid and fk.attnum = k.fk
      join pg_attribute pk on pk.attrelid = c.confrelid and pk.attnum = k.pk
      join pg_operator o on o.oid = k.operator
      left join pg_collation pc on pc.oid = pk.attcollation
      left join pg_collation fc on fc.oid = fk.attcollation
     cross join lateral (
        select case when pk.atttypid <> o.oprleft then '::' || o.oprleft::regtype else '' end as pk_cast,
               case when fk.atttypid <> o.oprright then '::' || o.oprright::regtype else '' end as fk_cast,
               case when pk.attcollation = 0 or fk.attcollation = 0 or pk.attcollation = fk.attcollation then ''
                    when not pc.collisdeterministic then ' collate ' || pc.oid::regcollation
                    when not fc.collisdeterministic then ' collate ' || fc.oid::regcollation
                    else ' collate pg_catalog."default"' end as collation) kind
     where c.oid = key
     group by c.oid, c.confmatchtype, c.confrelid
$$;

-- name: cold_require_parent
-- An error if this role does not see all rows that the key may reference, or sees some that are gone: of the heap's rows Postgres asks with a
-- snapshot of now, whatever that of the transaction is.
create or replace function frostline.cold_require_parent(key oid) returns void
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    parent regclass := (select c.confrelid from pg_constraint c where c.oid = key);
begin
    if not has_table_privilege(parent, 'select') then
        raise insufficient_privilege using
            message = format('%I may not read %s, which rows in the lake reference', current_user, parent),
            hint = format('grant select on %s to %I', parent, current_user);
    end if;
    if row_security_active(parent) then
        raise insufficient_privilege using
            message = format('row security hides rows of %s, which rows in the lake reference, from %I', parent, current_user),
            hint = format('alter role %I bypassrls', current_user);
    end if;
    if current_setting('transaction_isolation') in ('repeatable read', 'serializable') then
        raise object_not_in_prerequisite_state using
            message = format('rows in the lake reference %s, whose rows may have gone since the snapshot of this transaction', parent),
            hint = 'Do it at READ COMMITTED.';
    end if;
end
$$;

-- name: cold_key_proof
-- Whether each row of the lake has its parent by what the catalog knows: no file has a column of the key, and what such rows have instead
-- is NULL, or there is a row with that key.
create or replace function frostline.cold_key_proof(managed integer, key oid) returns boolean
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    known record;
    is_orphan boolean;
begin
    select o.confmatchtype = 'f' as is_full, count(c.attnum) < cardinality(o.conkey) as is_left_to_sync,
           bool_or(f.is_there) as is_in_files, bool_or(not f.is_there and m.missing is null) as has_null,
           bool_or(c.type = 'uuid' and coalesce(m.missing, '') like 'uuid%') as has_own, bool_or(m.missing is not null) as has_value,
           string_agg(format('%L::%s as %s', m.missing, c.type, c.name), ', ') as instead
      into known
      from pg_constraint o
      join frostline.relation_columns(managed) c on c.attnum = any (o.conkey)
      join frostline.managed_column m on m.table_id = managed and m.name = c.column_name
     cross join lateral (
        select exists (select from frostline.lake_file f
                        where f.table_id = managed and (f.fields is null or m.field_id = any (f.fields))) as is_there) f
     where o.oid = key
     group by o.oid, o.confmatchtype, o.conkey;
    if not found or known.is_left_to_sync then
        return false;
    elsif known.has_null and not known.is_full then
        return true;
    elsif known.is_in_files or known.has_own then
        return false;
    elsif not known.has_value then
        return true;
    end if;
    perform frostline.cold_require_parent(key);
    execute format('select %s from (select %s) as child', frostline.cold_orphan(key, 'child'), known.instead) into is_orphan;
    return not is_orphan;
end
$$;

-- name: cold_look_at_new_key
-- ADD FOREIGN KEY keeps writers of both tables out while it looks, and no readers: the lake is asked at once. Where this transaction keeps
-- readers out all the same, it is refused. A key of a column that the relation does not have yet is left to `table sync`, as that is.
create or replace function frostline.cold_look_at_new_key(managed integer, named text, attnums smallint[]) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    heap oid := frostline.heap_of(managed);
    names jsonb := frostline.relation_names(managed);
begin
    if not attnums <@ array(select c.attnum from frostline.relation_columns(managed) c) then
        return;
    end if;
    if exists (select from pg_locks l
                where l.pid = pg_backend_pid() and l.granted and l.locktype = 'relation' and l.mode = 'AccessExclusiveLock'
                  and l.database = (select d.oid from pg_database d where d.datname = current_database())
                  and l.relation in (heap, to_regclass(names ->> 'relation')::oid, to_regclass(names ->> 'inner')::oid)) then
        raise object_not_in_prerequisite_state using
            message = format('%s has rows in the lake, which ADD CONSTRAINT %I cannot look at in this transaction', heap::regclass, named),
            detail = 'It keeps all readers of the table waiting, and would do so for as long as the lake takes.',
            hint = 'Add the foreign key in a transaction of its own, by an ALTER TABLE that does nothing else.';
    end if;
    perform frostline.cold_look(managed, 'foreign key', named);
end
$$;

-- name: cold_warn_of_keys
-- Whoever adds a key that cannot be held for the lake is told, as `table add` tells it.
create or replace function frostline.cold_warn_of_keys(managed integer) returns void
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    added record;
begin
    for added in
        select o.conname, o.conrelid::regclass as heap, f.obstacle
          from frostline.managed_table t
          join pg_constraint o on o.conrelid = frostline.heap_of(t.table_id) and o.contype = 'f' and o.conparentid = 0
         cross join lateral (select frostline.foreign_key_obstacle(o.oid) as obstacle) f
         where t.table_id = managed and t.foreign_keys = 'hold' and f.obstacle is not null and age(o.xmin) <= age(pg_current_xact_id()::xid)
         order by o.oid
    loop
        raise warning using
            message = format('foreign key %I of %s cannot be held for rows in the lake, because %s', added.conname, added.heap, added.obstacle);
    end loop;
end
$$;
