-- Columns may be dropped and change their type: docs/design/schema-changes.md. A field id is never given again, whatever became of its column.
create table frostline.dropped_column (
    table_id    integer not null references frostline.managed_table on delete cascade,
    field_id    integer not null,
    name        text not null,
    lake_type   text not null,
    dropped_at  timestamptz not null default now(),
    primary key (table_id, field_id)
);

-- The lake types that `fields` had when the fingerprint was taken. Null: those that the table has now, of `fields` or of all its columns.
alter table frostline.lake_file add column types text[];

-- Between statements it is empty: whose objects are out of the way of an ALTER TABLE of this transaction, what was said, and what was
-- granted on the inner view.
create table frostline.aside (
    xid         xid8 not null,
    table_id    integer not null,
    statement   text not null,
    grants      text[] not null,
    primary key (xid, table_id)
);
