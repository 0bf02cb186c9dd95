-- A fold is silent for its own table only. Between transactions the table is empty.
alter table frostline.folding add column table_id integer not null;
alter table frostline.folding drop constraint folding_pkey;
alter table frostline.folding add primary key (xid, table_id);
