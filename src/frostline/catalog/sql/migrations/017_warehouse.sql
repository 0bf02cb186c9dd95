-- The warehouse of this database. A marker with this identity lies in it: nothing is written to, deleted from or emptied
-- because of a warehouse that has none. A restored copy has the same identity: its rows are in the same files.
create table frostline.warehouse (
    only_one        boolean primary key default true check (only_one),
    identity        uuid not null default gen_random_uuid(),
    location        text not null,
    claimed_at      timestamptz not null default now()
);
