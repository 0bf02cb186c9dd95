-- Upkeep of lake tables: docs/design/lake-tables.md, "Upkeep".

-- Where a lake table was before, and when its pointer left that place by this server's clock: whoever has read the pointers since then
-- has a newer state. A row goes when the state is expired.
create table frostline.former_lake_state (
    lake_table_id       integer not null references frostline.lake_table on delete cascade,
    metadata_location   text not null,
    replaced_at         timestamptz not null,
    primary key (lake_table_id, metadata_location)
);
create index on frostline.former_lake_state (lake_table_id, replaced_at);

-- With our rights: a role that may move a pointer need not be able to write here. It runs nothing of anybody else's.
create function frostline.remember_lake_state() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    insert into frostline.former_lake_state (lake_table_id, metadata_location, replaced_at)
    select t.lake_table_id, old.metadata_location, clock_timestamp()
      from frostline.lake_table t
     where t.namespace = old.table_namespace and t.table_name = old.table_name and t.state = 'live'
    on conflict (lake_table_id, metadata_location) do update set replaced_at = excluded.replaced_at;
    return null;
end
$$;
revoke execute on function frostline.remember_lake_state() from public;
create trigger remember_lake_state after update on frostline.iceberg_tables for each row
    when (old.catalog_name = 'frostline' and old.metadata_location is distinct from new.metadata_location
          and old.metadata_location is not null)
    execute function frostline.remember_lake_state();

-- What a lake table consisted of when somebody looked last, and what was its policy then: status and the worker read no lake.
create table frostline.lake_look (
    lake_table_id       integer primary key references frostline.lake_table on delete cascade,
    metadata_location   text not null,
    rows                bigint not null,
    files               bigint not null,
    delete_files        bigint not null,
    size_bytes          bigint not null,
    snapshots           bigint not null,
    age                 interval not null,
    crowded_age         interval not null,
    looked_at           timestamptz not null default now()
);

-- The lineage in which the table was made: in another one, the database that this one comes from may still have it.
alter table frostline.lake_table add column swept_at timestamptz not null default now(),
                                 add column server text not null default frostline.this_server();
-- Nobody knows that of the tables which are there. In a database that was restored or promoted, and has not taken over, they are taken for
-- those of one that it comes from.
update frostline.lake_table set server = (select min(o.server) from frostline.own_history o)
 where exists (select from frostline.own_history)
   and not exists (select from frostline.own_history o where o.server = frostline.this_server());

-- Jobs on lake tables have no lease. Their rows name the table, and the session that runs them; when that is gone, so is the job.
alter table frostline.job add column lake_table_id integer references frostline.lake_table on delete set null,
                          add column backend_pid integer,
                          add column backend_start timestamptz,
                          add constraint job_is_of_one_table check (num_nonnulls(table_id, lake_table_id) <= 1);
create index on frostline.job (lake_table_id, job_id) where lake_table_id is not null;
