-- Snapshots of many tables: one point in time of Postgres, copied to Iceberg, visible all at once.

-- A version of a named snapshot. Readers see those that are published, and nothing of the others. `unknown`: a catalog
-- outside Postgres may have taken some of its tables. `token` is in the names of the folders that the run made: only
-- the database that has it here may delete files there. `locations` are the folders that a catalog outside gave us,
-- `told_at` is when it was asked to take the tables. The id is in the names of files, and those folders may be shared
-- with other databases: so it is random, of 44 bits, and says nothing of the order.
create table frostline.snapshot (
    snapshot_id     bigint primary key
                    default ('x' || left(replace(gen_random_uuid()::text, '-', ''), 11))::bit(44)::bigint,
    name            text not null check (name ~ '^[a-z][a-z0-9_]{0,62}$'),
    version         integer not null,
    state           text not null default 'running'
                    check (state in ('running', 'published', 'failed', 'unknown', 'dropped')),
    atomic          boolean not null default true,
    catalog_uri     text,
    catalog_warehouse text,
    warehouse       text not null,
    locations       text[] not null default '{}',
    token           text not null default left(replace(gen_random_uuid()::text, '-', ''), 8),
    lsn             pg_lsn,
    taken_at        timestamptz,
    started_at      timestamptz not null default now(),
    told_at         timestamptz,
    published_at    timestamptz,
    error           text,
    tidied          boolean not null default false,
    server          text not null default frostline.this_server(),
    unique (name, version)
);

-- One table of it, as it was at that point. `columns` says how each column travels, by attribute number and field id:
-- the next version goes on from there. An oid means nothing on another server.
create table frostline.snapshot_table (
    snapshot_id         bigint not null references frostline.snapshot on delete cascade,
    schema_name         text not null,
    table_name          text not null,
    namespace           text not null,
    lake_table          text not null,
    metadata_location   text not null,
    lake_snapshot_id    bigint,
    rows                bigint not null,
    size_bytes          bigint not null,
    hash_sum            numeric not null,
    reused              boolean not null default false,
    source_oid          oid not null,
    columns             jsonb not null,
    last_field_id       integer not null,
    primary key (snapshot_id, schema_name, table_name)
);

-- The newest published version of each: one select over it is a consistent cut.
create view frostline.snapshot_cut as
select s.name, s.version, s.lsn, s.taken_at, t.schema_name, t.table_name, t.namespace, t.lake_table,
       t.metadata_location, t.lake_snapshot_id, t.rows, t.size_bytes
  from frostline.snapshot s
  join frostline.snapshot_table t using (snapshot_id)
 where s.state = 'published'
   and s.version = (select max(n.version) from frostline.snapshot n where n.name = s.name and n.state = 'published');
