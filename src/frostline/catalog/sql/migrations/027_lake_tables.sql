-- Tables that live in the lake alone: docs/design/lake-tables.md. Where each of them is, is said by its pointer in
-- frostline.iceberg_tables and nowhere else; this row says that it is a lake table, so anybody with the right may commit to it.
create table frostline.lake_table (
    lake_table_id       integer generated always as identity primary key,
    table_uuid          uuid not null unique,
    namespace           text not null check (namespace <> ''),
    table_name          text not null check (table_name <> ''),
    owner               text not null,
    location            text not null,
    state               text not null default 'live' check (state in ('live', 'dropped')),
    created_at          timestamptz not null default now(),
    dropped_at          timestamptz,
    -- The last state of a dropped table: its files stay until they are purged.
    dropped_metadata    text,
    check ((state = 'dropped') = (dropped_at is not null))
);
create unique index lake_table_live on frostline.lake_table (namespace, table_name) where state = 'live';
