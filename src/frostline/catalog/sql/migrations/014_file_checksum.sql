-- What each file of a lake must be, byte by byte: data, manifests, manifest lists and metadata. A file keeps its row for as
-- long as it is there, which is longer than the current lake snapshot has it: older snapshots are still read. Files that were
-- written before this table came have no row, until `frostline verify` adds it or `frostline compact` writes the rows anew.
create table frostline.file_checksum (
    path        text primary key,
    table_id    integer not null references frostline.managed_table on delete cascade,
    size_bytes  bigint not null,
    sha256      bytea not null check (length(sha256) = 32)
);

-- A table has few files of metadata and may have many of data; the former are asked for together.
create index file_checksum_metadata on frostline.file_checksum (table_id) where path not like '%.parquet';
