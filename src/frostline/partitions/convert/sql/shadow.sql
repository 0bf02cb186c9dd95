-- The shadow of a table that is being converted. It lies in a schema of its own, so that its indexes and constraints have
-- their last names from the beginning; its partitions lie beside the table, where they are to stay. All of it is made in
-- one transaction, so there is nothing half made to repeat.

-- name: hold_still
-- As a reader has it: it keeps nobody out but those who alter the table.
lock table only {original} in access share mode

-- name: schema
create schema {schema};
grant usage, create on schema {schema} to {owner};

-- name: table
-- ACCESS SHARE on the original.
create table {shadow} (
    like {original} including all excluding indexes excluding identity excluding statistics
) partition by range ({tier_key}){tablespace};
alter table {shadow} owner to {owner};

-- name: partition
create table {partition} partition of {shadow} for values from ({lower}) to ({upper}){options};
alter table {partition} owner to {owner};

-- name: default_partition
create table {partition} partition of {shadow} default{options};
alter table {partition} owner to {owner};

-- name: key
alter table {shadow} add constraint {name} primary key ({key});

-- name: constraint
-- Foreign keys lock the table they point at: SHARE ROW EXCLUSIVE. The shadow is empty, so that is for a moment.
alter table {shadow} add constraint {name} {definition};

-- name: index
create {unique}index {name} on {shadow} {definition};

-- name: options
-- Storage parameters of the table and of its TOAST table.
select array(select unnest(c.reloptions)) || array(select 'toast.' || unnest(t.reloptions))
  from pg_class c left join pg_class t on t.oid = c.reltoastrelid
 where c.oid = %(oid)s

-- name: tablespace
select s.spcname from pg_class c join pg_tablespace s on s.oid = c.reltablespace where c.oid = %(oid)s

-- name: constraints
-- LIKE has brought the check constraints.
select conname, pg_get_constraintdef(oid) from pg_constraint
 where conrelid = %(oid)s and contype = %(kind)s
 order by conname

-- name: indexes
-- What comes after the table's name. Postgres prints that in full, whatever the search path is.
select c.relname, i.indisunique,
       substr(pg_get_indexdef(c.oid), length(format('CREATE %%sINDEX %%I ON %%I.%%I ', case when i.indisunique then 'UNIQUE ' end,
                                                    c.relname, n.nspname, t.relname)) + 1)
  from pg_index i
  join pg_class c on c.oid = i.indexrelid
  join pg_class t on t.oid = i.indrelid
  join pg_namespace n on n.oid = t.relnamespace
 where i.indrelid = %(oid)s and i.indisvalid
   and not exists (select from pg_constraint o where o.conindid = i.indexrelid and o.conrelid = i.indrelid)
 order by c.relname

-- name: settings
-- What LIKE leaves out: settings of columns, and the replica identity, which each partition has for itself.
select format('alter table %%s alter column %%I set statistics %%s', %(shadow)s::regclass, attname, attstattarget)
  from pg_attribute where attrelid = %(oid)s and attnum > 0 and not attisdropped and attstattarget >= 0
 union all
select format('alter table %%s alter column %%I set (%%s)', %(shadow)s::regclass, attname, array_to_string(attoptions, ', '))
  from pg_attribute where attrelid = %(oid)s and attnum > 0 and not attisdropped and attoptions is not null
 union all
select format('alter table %%s replica identity %%s', t.relid, case c.relreplident when 'f' then 'full' else 'nothing' end)
  from pg_class c, pg_partition_tree(%(shadow)s::regclass) t
 where c.oid = %(oid)s and c.relreplident in ('f', 'n')

-- name: surplus_grants
-- What the default privileges of the connected role gave away.
select format('revoke all on table %%s from %%s', t.relid, case when a.grantee = 0 then 'public' else quote_ident(g.rolname) end)
  from pg_partition_tree(%(shadow)s::regclass) t
  join pg_class c on c.oid = t.relid
  cross join lateral aclexplode(c.relacl) a
  left join pg_roles g on g.oid = a.grantee
 where a.grantee <> c.relowner
 group by 1

-- name: extent
select min({tier_key})::text, max({tier_key})::text, exists (select from only {original} where {tier_key} is null)
  from only {original}

-- name: sync_function
-- For a key, the shadow's row becomes the original's. Called once for each row, maybe late: a trigger of the user may have
-- changed the row again before. So it looks at the original and not at NEW, and leaves a row alone that is right already.
create function {function}() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp
-- A plan made while the shadow is empty is kept, and would read it whole for each row later.
set enable_seqscan = off set jit = off as {body}
#variable_conflict use_column
begin
    if tg_op = 'TRUNCATE' then
        truncate {shadow};
        return null;
    end if;
    if tg_op <> 'INSERT' then
        if tg_op = 'DELETE' or ({old_key}) is distinct from ({new_key}) then
            delete from {shadow} as s
             where {shadow_is_old}
               and not exists (select from only {original} as o where {original_is_old} and (o.*)::text = (s.*)::text);
            if not found and current_setting('transaction_isolation') in ('repeatable read', 'serializable') then
                -- It may have been copied after the snapshot of this transaction. Inserting it tells (40001). Another
                -- key that refuses it is looked at after the primary one, which has told by then.
                begin
                    insert into {shadow} ({columns}) values ({old_columns}) on conflict ({key}) do nothing;
                    if found then
                        delete from {shadow} as s where {shadow_is_old};
                    end if;
                exception when foreign_key_violation or unique_violation then
                    null;
                end;
            end if;
        end if;
    end if;
    if tg_op <> 'DELETE' then
        insert into {shadow} as s ({columns})
        select {original_columns} from only {original} as o where {original_is_new}
            on conflict ({key}) do update set {assignments};
    end if;
    return null;
end
{body};
revoke execute on function {function}() from public;
-- With the rights of the table's owner, and no more: the table's constraints and indexes call the owner's functions.
alter function {function}() owner to {owner};

-- name: sync_triggers
-- SHARE ROW EXCLUSIVE on the original: waits for writers, never for readers. `!` makes it the first.
create trigger "!frostline_convert" after insert or update or delete on {original}
    for each row execute function {function}();
create trigger "!frostline_convert_truncate" after truncate on {original}
    for each statement execute function {function}();
alter table {original} enable always trigger "!frostline_convert", enable always trigger "!frostline_convert_truncate";

-- name: unsync
-- ACCESS EXCLUSIVE on the original.
drop trigger if exists "!frostline_convert" on {original};
drop trigger if exists "!frostline_convert_truncate" on {original};
drop function if exists {function}();

-- name: forbid_null
-- ACCESS EXCLUSIVE on the original for a moment: nothing is checked yet.
alter table {original} add constraint {name} check ({tier_key} is not null) not valid;

-- name: validate
-- SHARE UPDATE EXCLUSIVE: readers and writers go on.
alter table {original} validate constraint {name};

-- name: allow_null
-- ACCESS EXCLUSIVE on the original.
alter table {original} drop constraint if exists {name};

-- name: is_forbidden
-- Whether the constraint is there, and whether it was validated.
select convalidated from pg_constraint where conrelid = %(oid)s and conname = %(constraint)s

-- name: drop
drop table if exists {shadow};
drop function if exists {function}() cascade;
drop schema if exists {schema};
