-- Lake tables in named snapshots: docs/design/snapshots.md. `read_from` is the metadata file of the lake table that was copied: it never
-- changes, so a table that is still there has the same rows. `source_oid` is the number of such a table, as it has no oid of its own.
alter table frostline.snapshot_table add column read_from text;
