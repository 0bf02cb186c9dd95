-- Only Frostline commits to the Iceberg tables that are its own: docs/design/foreign-commits.md.

-- What the lake half of a managed table is called in the Iceberg catalog. The cast to `name` cuts between characters.
create function frostline.lake_name(table_name text, table_id integer) returns text
language sql immutable set search_path = pg_catalog, pg_temp as $$
    select substr((repeat('_', length(suffix.text)) || lake_name.table_name)::name::text, length(suffix.text) + 1)
           || suffix.text
      from (select '_' || lake_name.table_id) suffix (text)
$$;

-- Where the pointer of that name has to be when a transaction ends: where the seam of its table is, or the newest version
-- of its snapshot. No row: it is nothing of ours.
create function frostline.own_pointer(of_namespace text, of_table text, out belongs_to text, out location text)
returns setof record
language sql stable set search_path = pg_catalog, pg_temp as $$
    select format('%I.%I', t.schema_name, t.table_name), s.metadata_location
      from frostline.managed_table t join frostline.seam s on s.table_id = t.table_id
     where t.schema_name = of_namespace and frostline.lake_name(t.table_name, t.table_id) = of_table
    union all
    select 'snapshot ' || s.name, t.metadata_location
      from frostline.snapshot_table t join frostline.snapshot s on s.snapshot_id = t.snapshot_id
     where t.namespace = of_namespace and t.lake_table = of_table
       and s.state = 'published' and s.catalog_uri is null
       and s.version = (select max(n.version) from frostline.snapshot n
                         where n.name = s.name and n.state = 'published' and n.catalog_uri is null)
$$;

-- Of one pointer, when a transaction ends. Whoever moved it and not what it belongs to is not Frostline.
create function frostline.check_pointer(of_catalog text, of_namespace text, of_table text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    own record;
    found_at text := (select p.metadata_location from frostline.iceberg_tables p
                       where p.catalog_name = of_catalog and p.table_namespace = of_namespace and p.table_name = of_table);
begin
    if of_catalog <> 'frostline' then
        return;
    end if;
    for own in select * from frostline.own_pointer(of_namespace, of_table) loop
        if own.location is distinct from found_at then
            raise object_not_in_prerequisite_state using
                message = format('only Frostline commits to the Iceberg table %s.%s', of_namespace, of_table),
                detail = format('It belongs to %s and is at %s. This transaction would leave it at %s.',
                                own.belongs_to, coalesce(own.location, 'no place yet'), coalesce(found_at, 'no place')),
                hint = 'Other engines may read it. To change rows, use SQL in Postgres, or frostline.spark.write.';
        end if;
    end loop;
end
$$;

-- With our rights: a role that may write the catalog need not see the seam. It runs nothing of anybody else's.
create function frostline.keep_pointer() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    if tg_op <> 'INSERT' then
        perform frostline.check_pointer(old.catalog_name, old.table_namespace, old.table_name);
    end if;
    if tg_op <> 'DELETE' then
        perform frostline.check_pointer(new.catalog_name, new.table_namespace, new.table_name);
    end if;
    return null;
end
$$;

-- At the end of the transaction, when our own have moved both the pointer and what it belongs to.
create constraint trigger keep_pointer after insert or update or delete on frostline.iceberg_tables
    deferrable initially deferred for each row execute function frostline.keep_pointer();

create function frostline.refuse_truncate() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    raise object_not_in_prerequisite_state using
        message = 'frostline.iceberg_tables has the pointers of managed tables',
        hint = 'Delete the rows of your own tables only.';
end
$$;
create trigger keep_pointers before truncate on frostline.iceberg_tables
    for each statement execute function frostline.refuse_truncate();

revoke execute on function
    frostline.lake_name(text, integer), frostline.own_pointer(text, text),
    frostline.check_pointer(text, text, text), frostline.keep_pointer(), frostline.refuse_truncate()
from public;

alter table frostline.job drop constraint job_kind_check,
                          add constraint job_kind_check check (kind in (
                              'archive', 'fold', 'undo', 'thaw', 'clean',
                              'premake', 'retain', 'compact', 'expire', 'sweep', 'load', 'repair'));
