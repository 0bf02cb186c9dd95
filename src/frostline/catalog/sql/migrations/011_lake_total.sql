-- From here on no older worker adds a file that is not counted.
lock table frostline.lake_file in share row exclusive mode;

-- What the records of a table's files add up to, and which of them changed since nothing was worth merging. Otherwise
-- whoever wants to know has to read them all, and a lake has as many as you like.
create table frostline.lake_total (
    table_id        integer primary key references frostline.managed_table on delete cascade,
    files           bigint not null,
    rows            bigint not null,
    size_bytes      bigint not null,
    -- The smallest and the largest tier value of the files that came or went since. Null: none did.
    changed_from    bigint,
    changed_to      bigint,
    -- The target size of files for which nothing was worth merging. Null: nobody has looked yet.
    settled_for     bigint
);

-- In the transaction that changes the records: a row lock on what only the holder of the table's lease writes.
create function frostline.count_lake_files() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    if tg_op <> 'INSERT' then
        -- With the table itself its totals go, too; then there is nothing to count in.
        update frostline.lake_total t
           set files = t.files - c.files, rows = t.rows - c.rows, size_bytes = t.size_bytes - c.size_bytes,
               changed_from = least(t.changed_from, c.lowest), changed_to = greatest(t.changed_to, c.highest)
          from (select table_id, count(*) as files, sum(rows) as rows, sum(size_bytes) as size_bytes,
                       min(lower) as lowest, max(upper) as highest
                  from removed group by table_id) c
         where t.table_id = c.table_id;
    end if;
    if tg_op <> 'DELETE' then
        insert into frostline.lake_total as t (table_id, files, rows, size_bytes, changed_from, changed_to)
        select table_id, count(*), sum(rows), sum(size_bytes), min(lower), max(upper) from added group by table_id
        on conflict (table_id) do update
           set files = t.files + excluded.files, rows = t.rows + excluded.rows,
               size_bytes = t.size_bytes + excluded.size_bytes,
               changed_from = least(t.changed_from, excluded.changed_from),
               changed_to = greatest(t.changed_to, excluded.changed_to);
    end if;
    return null;
end
$$;
revoke all on function frostline.count_lake_files() from public;

insert into frostline.lake_total (table_id, files, rows, size_bytes)
select table_id, count(*), sum(rows), sum(size_bytes) from frostline.lake_file group by table_id;

create trigger count_added after insert on frostline.lake_file
    referencing new table as added for each statement execute function frostline.count_lake_files();
create trigger count_removed after delete on frostline.lake_file
    referencing old table as removed for each statement execute function frostline.count_lake_files();
create trigger count_changed after update on frostline.lake_file
    referencing old table as removed new table as added for each statement execute function frostline.count_lake_files();

-- The files of a range: an archive replaces those of its own, and clean compares those of its partition.
create index on frostline.lake_file (table_id, upper);
