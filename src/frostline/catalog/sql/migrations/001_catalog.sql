-- The catalog: which tables are managed, where their tiers meet, what was moved and when.
-- Everything here is plain tables, so any engine can read them.

create schema if not exists frostline;
create schema frostline_relation;
create schema frostline_overlay;
create schema frostline_lake;

comment on schema frostline is 'Frostline: catalog of tiered tables';
comment on schema frostline_relation is 'Frostline: inner views, one per managed table';
comment on schema frostline_overlay is 'Frostline: newest images of rows whose lake version is stale';
comment on schema frostline_lake is 'Frostline: foreign tables over the lake server';

create table frostline.managed_table (
    table_id        integer generated always as identity primary key,
    schema_name     text not null,
    table_name      text not null,
    tier_key        text not null,
    tier_kind       text not null check (tier_kind in (
                        'timestamp with time zone', 'timestamp without time zone', 'date',
                        'smallint', 'integer', 'bigint')),
    lake_partition  text not null,
    hot_interval    interval,
    hot_span        bigint check (hot_span > 0),
    grace_period    interval not null check (grace_period >= interval '0'),
    fold_rows       bigint not null default 100000 check (fold_rows > 0),
    fold_age        interval not null default '1 day' check (fold_age > interval '0'),
    added_at        timestamptz not null default now(),
    unique (schema_name, table_name),
    check (num_nonnulls(hot_interval, hot_span) = 1)
);

-- Name and type are the heap's own; this row says how the column travels, whatever it is called.
create table frostline.managed_column (
    table_id    integer not null references frostline.managed_table on delete cascade,
    attnum      smallint not null,
    field_id    integer not null,
    lake_type   text not null,
    as_text     boolean not null,
    pushable    boolean not null,
    primary key (table_id, attnum),
    unique (table_id, field_id)
);

-- One row a table, and one only: T, S and the metadata location change together.
-- T is kept in the tier key's own type, so that the view compares like with like.
create table frostline.seam (
    table_id            integer primary key references frostline.managed_table on delete cascade,
    line_timestamptz    timestamptz,
    line_timestamp      timestamp,
    line_date           date,
    line_integer        bigint,
    snapshot_id         bigint,
    metadata_location   text,
    check (num_nonnulls(line_timestamptz, line_timestamp, line_date, line_integer) = 1)
) with (fillfactor = 50);

-- Tier values below are axis values: microseconds or days since 1970, or the integer itself.
create table frostline.job (
    job_id      bigint generated always as identity primary key,
    table_id    integer not null references frostline.managed_table on delete cascade,
    kind        text not null check (kind in ('archive', 'fold')),
    state       text not null check (state in (
                    'planned', 'captured', 'exported', 'published', 'cleaned', 'failed')),
    from_line   bigint not null,
    to_line     bigint not null,
    rows        bigint not null default 0,
    size_bytes  bigint not null default 0,
    error       text,
    started_at  timestamptz not null default now(),
    changed_at  timestamptz not null default now()
);
create index on frostline.job (table_id, job_id);

-- A heap partition that left the hot tier. Until cleaned_at it is still the complete truth of its range.
create table frostline.archived_partition (
    table_id        integer not null references frostline.managed_table on delete cascade,
    partition_name  text not null,
    lower           bigint,
    upper           bigint not null,
    job_id          bigint not null references frostline.job,
    published_xid   xid8 not null,
    published_at    timestamptz not null default now(),
    cleaned_at      timestamptz,
    primary key (table_id, upper)
);

-- The files of the lake that Frostline wrote, with the fingerprint that each must still have.
create table frostline.lake_file (
    table_id    integer not null references frostline.managed_table on delete cascade,
    path        text not null,
    rows        bigint not null,
    size_bytes  bigint not null,
    lower       bigint not null,
    upper       bigint not null,
    hash_sum    numeric not null,
    job_id      bigint not null references frostline.job,
    primary key (table_id, path)
);

create sequence frostline.overlay_version;

-- The transaction that is publishing a fold, for its own length: the marking trigger is silent for it.
create unlogged table frostline.folding (
    xid     xid8 primary key
);

-- The standard layout of the Iceberg SQL (JDBC) catalog: any engine that knows it can open the lake.
create table frostline.iceberg_tables (
    catalog_name                varchar(255) not null,
    table_namespace             varchar(255) not null,
    table_name                  varchar(255) not null,
    metadata_location           varchar(1000),
    previous_metadata_location  varchar(1000),
    iceberg_type                varchar(5),
    primary key (catalog_name, table_namespace, table_name)
);
create table frostline.iceberg_namespace_properties (
    catalog_name    varchar(255) not null,
    namespace       varchar(255) not null,
    property_key    varchar(255) not null,
    property_value  varchar(1000) not null,
    primary key (catalog_name, namespace, property_key)
);

-- Called by the insert rule of a table with row security: evaluated by the caller, for the caller.
create function frostline.require(allowed boolean, relation text) returns boolean
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
begin
    if allowed is not true then
        raise insufficient_privilege
            using message = format('new row violates row-level security policy for table %I', relation);
    end if;
    return true;
end
$$;

-- The relation's views and rules run with their owner's rights, so users need no more than this.
grant usage on schema frostline to public;
grant select on frostline.seam to public;
