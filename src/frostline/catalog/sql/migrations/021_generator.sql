-- What a relation's objects are made from, in the database itself: docs/design/schema-changes.md. Every version of the program
-- brings its own templates and functions, and says by the digest which they are.
create table frostline.relation_template (
    name    text primary key,
    text    text not null
);

create table frostline.generator (
    digest  text not null
);
insert into frostline.generator values ('');

-- What the relation calls a column, to see that the heap calls it otherwise by now. And what the lake server is asked for: that never
-- changes, so nobody who remembers a table's columns is wrong after a RENAME. Null: as the heap has it.
alter table frostline.managed_column add column name text, add column remote_name text;
update frostline.managed_column m set name = a.attname, remote_name = a.attname
  from pg_attribute a
 where a.attrelid = frostline.heap_of(m.table_id) and a.attnum = m.attnum and not a.attisdropped;

-- Columns up to this number that the relation does not have are for `frostline table sync`: it looks at what older rows have in them.
alter table frostline.managed_table add column left_to_sync smallint;

-- Between transactions it is empty: whose objects are being changed by us in this one, on behalf of somebody's ALTER TABLE.
create table frostline.following (
    xid         xid8 not null,
    table_id    integer not null,
    primary key (xid, table_id)
);

create function frostline.is_following() returns boolean
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
    select exists (select from frostline.following f where f.xid = pg_current_xact_id_if_assigned())
$$;
revoke execute on function frostline.is_following() from public;
