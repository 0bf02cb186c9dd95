-- Folders in the warehouse of tables that are not managed any more, until their files are deleted: docs/design/leaving.md. The jobs are
-- those that the table had: they tell whose the files are, and go with them. Whoever has read the seam before the transaction that gave
-- the table back may still read files, and so may whoever had pinned a state.
create table frostline.left_folder (
    location        text primary key,
    jobs            bigint[] not null,
    left_xid        xid8 not null default pg_current_xact_id(),
    pinned_until    timestamptz
);

-- Columns that `frostline table alter` adds in steps, until all rows have a value: docs/design/added-columns.md. The change says who goes on
-- with it; the rest is what comes behind the values.
create table frostline.filling (
    table_id        integer not null references frostline.managed_table on delete cascade,
    column_name     text not null,
    change          text not null,
    default_value   text not null,
    sequence_name   text,
    is_not_null     boolean not null,
    identity        text not null check (identity in ('', 'a', 'd')),
    primary key (table_id, column_name)
);
