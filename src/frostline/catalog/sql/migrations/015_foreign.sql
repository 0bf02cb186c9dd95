-- Only Frostline commits to the Iceberg tables that are its own: docs/design/foreign-commits.md.

-- Where the pointers that are ours have to be when a transaction ends: where the seam of the table is, or the newest version
-- of the snapshot. The cast to `name` cuts between characters, as the names of the overlays were cut.
create view frostline.own_pointer as
select t.schema_name as table_namespace, own.name as table_name, format('%I.%I', t.schema_name, t.table_name) as belongs_to,
       s.metadata_location
  from frostline.managed_table t
  join frostline.seam s on s.table_id = t.table_id
 cross join lateral (select '_' || t.table_id as text) suffix
 cross join lateral (
    select substr((repeat('_', length(suffix.text)) || t.table_name)::name::text, length(suffix.text) + 1)
           || suffix.text as name) own
union all
select t.namespace, t.lake_table, 'snapshot ' || s.name, t.metadata_location
  from frostline.snapshot_table t
  join frostline.snapshot s on s.snapshot_id = t.snapshot_id
 where s.state = 'published' and s.catalog_uri is null
   and s.version = (select max(n.version) from frostline.snapshot n
                     where n.name = s.name and n.state = 'published' and n.catalog_uri is null);

-- Whoever has moved a pointer of ours and not what it belongs to is not Frostline. With our rights: a role that may write
-- the catalog need not see the seam. It runs nothing of anybody else's. OLD or NEW has nulls when there is none.
create function frostline.keep_pointer() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    own record;
begin
    for own in
        select o.*, p.metadata_location as found_at
          from frostline.own_pointer o
          left join frostline.iceberg_tables p
                 on p.catalog_name = 'frostline' and p.table_namespace = o.table_namespace and p.table_name = o.table_name
         where 'frostline' in (old.catalog_name, new.catalog_name)
           and (o.table_namespace, o.table_name) in ((old.table_namespace, old.table_name),
                                                     (new.table_namespace, new.table_name))
           and o.metadata_location is distinct from p.metadata_location
    loop
        raise object_not_in_prerequisite_state using
            message = format('only Frostline commits to the Iceberg table %s.%s', own.table_namespace, own.table_name),
            detail = format('It belongs to %s and is at %s. This transaction would leave it at %s.', own.belongs_to,
                            coalesce(own.metadata_location, 'no place yet'), coalesce(own.found_at, 'no place')),
            hint = 'Other engines may read it. To change rows, use SQL in Postgres, or frostline.spark.write.';
    end loop;
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

revoke execute on function frostline.keep_pointer(), frostline.refuse_truncate() from public;

alter table frostline.job drop constraint job_kind_check,
                          add constraint job_kind_check check (kind in (
                              'archive', 'fold', 'undo', 'thaw', 'clean',
                              'premake', 'retain', 'compact', 'expire', 'sweep', 'load', 'repair'));
