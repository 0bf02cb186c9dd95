-- Batches that were appended to lake tables from Spark under a label: docs/design/spark-writes.md. The label is committed with the
-- pointer, by whoever may move it, so no other role has to be able to write here.
create table frostline.applied_lake_batch (
    lake_table_id   integer not null references frostline.lake_table on delete cascade,
    label           text not null,
    rows            bigint not null,
    applied_at      timestamptz not null default now(),
    written_by      name not null default session_user,
    primary key (lake_table_id, written_by, label)
);
