-- Who may run a job on a table. The epoch grows with every holder, so the next one can be told from the last.
create table frostline.lease (
    table_id        integer primary key references frostline.managed_table on delete cascade,
    epoch           bigint not null default 1,
    holder          text,
    backend_pid     integer not null,
    backend_start   timestamptz not null,
    expires_at      timestamptz not null
);

-- In the name of the table's folder in the lake: two databases may share a warehouse, and not know of each other.
alter table frostline.managed_table add column token text not null default left(replace(gen_random_uuid()::text, '-', ''), 8);

-- This server, this history of it, this database, and this catalog in it. A restored copy is another one, and so is a
-- standby that was promoted.
create function frostline.this_server() returns text
language sql stable set search_path = pg_catalog, pg_temp as $$
    select concat_ws('/', (select system_identifier from pg_control_system()),
                          left(pg_walfile_name(pg_current_wal_insert_lsn()), 8),
                          (select oid from pg_database where datname = current_database()),
                          'frostline.job'::regclass::oid)
$$;

-- The files of a failed job are deleted before the next one begins, but only by the server whose job it was: in the
-- history of another, the same job may have been published.
alter table frostline.job add column server text default frostline.this_server(),
                          add column tidied boolean not null default true;

-- One row: the server that ran jobs last. When it is another one, this database was restored or promoted since.
create table frostline.history (server text not null);
insert into frostline.history values (frostline.this_server());
