-- Foreign keys that rows in the lake are known to hold, beside CHECK and NOT NULL: docs/design/constraints.md.
alter table frostline.cold_constraint
    drop constraint cold_constraint_kind_check,
    add constraint cold_constraint_kind_check check (kind in ('check', 'not null', 'foreign key'));
