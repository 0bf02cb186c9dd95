-- Which CHECK and NOT NULL constraints of a heap its rows in the lake are known to hold: docs/design/constraints.md. A constraint that the
-- heap holds and that is not here, or here as 'unseen', was not looked at for them. `number` is the constraint's oid, or the column's
-- number for NOT NULL, as long as the heap is the same; a restored dump has other ones, and is known by name and definition.
create table frostline.cold_constraint (
    table_id    integer not null references frostline.managed_table on delete cascade,
    kind        text not null check (kind in ('check', 'not null')),
    name        text not null,
    heap        oid not null,
    number      oid not null,
    definition  text not null,
    state       text not null check (state in ('not valid', 'unseen', 'held')),
    primary key (table_id, kind, name)
);
