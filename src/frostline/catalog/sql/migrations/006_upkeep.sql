-- What the worker needs: more policies, the history of each lake, pins, and the retention line R.

-- `partition` is a table whose partitions are managed, and which has no lake. `every` is the width of its partitions
-- where it cannot be told from those that are there. `expire_by` says what becomes of a partition past its retention.
alter table frostline.managed_table
    add column mode text not null default 'tiered' check (mode in ('tiered', 'partition')),
    add column retention_interval interval check (retention_interval > interval '0'),
    add column retention_span bigint check (retention_span > 0),
    add column every_interval interval check (every_interval > interval '0'),
    add column every_span bigint check (every_span > 0),
    add column premake integer not null default 4 check (premake between 0 and 1000),
    add column expire_by text not null default 'drop' check (expire_by in ('drop', 'detach')),
    add column snapshot_retention interval not null default '7 days' check (snapshot_retention >= interval '0'),
    add column target_file_size bigint not null default 256000000 check (target_file_size >= 1000000),
    add column swept_at timestamptz not null default now(),
    drop constraint managed_table_check,
    add constraint hot_fits_mode check (num_nonnulls(hot_interval, hot_span) = (mode = 'tiered')::integer),
    add constraint retention_is_one check (num_nonnulls(retention_interval, retention_span) <= 1),
    add constraint retention_exceeds_hot check (retention_interval > hot_interval),
    add constraint span_exceeds_hot check (retention_span > hot_span),
    add constraint every_is_one check (num_nonnulls(every_interval, every_span) <= 1);

-- R: rows below it were removed from the lake for good, and none may come back. None set: there is no retention yet.
alter table frostline.seam
    add column retained_timestamptz timestamptz,
    add column retained_timestamp timestamp,
    add column retained_date date,
    add column retained_integer bigint,
    add constraint one_retention_line
        check (num_nonnulls(retained_timestamptz, retained_timestamp, retained_date, retained_integer) <= 1);

-- Every state that a seam has had, until it is expired. `replaced_xid` is the transaction that put another in its
-- place: whoever has an older snapshot still reads this one.
create table frostline.lake_state (
    table_id            integer not null references frostline.managed_table on delete cascade,
    metadata_location   text not null,
    snapshot_id         bigint,
    manifests           integer,
    published_at        timestamptz not null default now(),
    replaced_at         timestamptz,
    replaced_xid        xid8,
    primary key (table_id, metadata_location)
);
create unique index on frostline.lake_state (table_id) where replaced_at is null;
insert into frostline.lake_state (table_id, metadata_location, snapshot_id)
select table_id, metadata_location, snapshot_id from frostline.seam where metadata_location is not null;

-- A reader outside Postgres holds a state of a lake. The foreign key locks the state while the pin is made, and refuses
-- to let a pinned one go.
create table frostline.pin (
    pin_id              bigint generated always as identity primary key,
    table_id            integer not null,
    metadata_location   text not null,
    holder              text not null,
    made_at             timestamptz not null default now(),
    expires_at          timestamptz not null,
    foreign key (table_id, metadata_location) references frostline.lake_state
);
create index on frostline.pin (table_id, metadata_location);

-- Which of the workers decides and acts. One row.
create table frostline.leader (
    only_one        boolean primary key default true check (only_one),
    epoch           bigint not null default 1,
    holder          text,
    backend_pid     integer not null,
    backend_start   timestamptz not null,
    expires_at      timestamptz not null
);

-- Jobs without a range, what they did in words, and when they ended: an archive is cleaned long after that.
alter table frostline.job alter column from_line drop not null,
                          alter column to_line drop not null,
                          add column detail text,
                          add column ended_at timestamptz,
                          drop constraint job_kind_check,
                          add constraint job_kind_check check (kind in (
                              'archive', 'fold', 'undo', 'thaw', 'clean',
                              'premake', 'retain', 'compact', 'expire', 'sweep'));

update frostline.job j
   set ended_at = coalesce((select max(a.published_at) from frostline.archived_partition a where a.job_id = j.job_id),
                           j.changed_at)
 where j.state in ('published', 'cleaned', 'failed');

-- Histories (see frostline.this_server) whose files this database may delete. One that was restored or promoted is
-- a new history, and the old one may still be in use somewhere: `frostline sweep --take-over` says that it is not.
create table frostline.own_history (server text primary key);
insert into frostline.own_history values (frostline.this_server());

-- Partitions past their retention that are on their way out, in steps that no transaction holds together. `detached`: it
-- was this expiry that detached it, and not a person who wants to keep it. An oid means nothing on another server.
create table frostline.expiring_partition (
    table_id        integer not null references frostline.managed_table on delete cascade,
    partition_oid   oid not null,
    partition_name  text not null,
    upper           bigint not null,
    drops           boolean not null,
    detached        boolean not null default false,
    server          text not null default frostline.this_server(),
    primary key (table_id, partition_oid)
);
