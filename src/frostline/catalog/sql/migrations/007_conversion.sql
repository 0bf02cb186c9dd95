-- Unpartitioned tables on their way to partitioned ones. All that a conversion has done so far, so that the next run can
-- go on where a dead one stopped. docs/design/conversion.md has the steps.
create table frostline.conversion (
    conversion_id   integer generated always as identity primary key,
    schema_name     text not null,
    table_name      text not null,
    original        oid not null,
    tier_key        text not null,
    every           text not null,
    keep_old        boolean not null,
    shape           text not null,
    state           text not null default 'prepared' check (state in (
                        'prepared', 'synced', 'filled', 'verified', 'swapped', 'done', 'abandoned')),
    position        text[],
    rows            bigint not null default 0,
    filled_xid      xid8,
    started_at      timestamptz not null default now(),
    changed_at      timestamptz not null default now()
);
create unique index on frostline.conversion (schema_name, table_name) where state not in ('done', 'abandoned');
comment on column frostline.conversion.position is 'the last primary key that was copied, as text';
comment on column frostline.conversion.shape is 'what the table looked like; when it looks different, the copy is of no use';
