-- The jobs of a table that is not managed any more stay: what was done to it is asked for afterwards too. They keep its name,
-- and have no number of a table, so nothing that works on a table finds them.
alter table frostline.job
    alter column table_id drop not null,
    drop constraint job_table_id_fkey,
    add constraint job_table_id_fkey foreign key (table_id) references frostline.managed_table on delete set null,
    add column schema_name text,
    add column table_name text,
    add constraint job_names_its_table check (table_id is not null or num_nonnulls(schema_name, table_name) = 2),
    -- Somebody stopped it, which is no failure. Its state is `failed` all the same: its files are garbage.
    add column interrupted boolean not null default false;
