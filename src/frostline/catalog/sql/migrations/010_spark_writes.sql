-- Batches that were written under a label, so that a second try of the same one does nothing. Each role has labels of
-- its own: nobody can take one before another role's batch comes.
create table frostline.applied_batch (
    table_id    integer not null references frostline.managed_table on delete cascade,
    label       text not null,
    mode        text not null check (mode in ('append', 'upsert', 'delete')),
    rows        bigint not null,
    applied_at  timestamptz not null default now(),
    written_by  name not null default session_user,
    primary key (table_id, written_by, label)
);

-- Where the tasks of a write from Spark put their rows. A table here belongs to the role that writes.
create schema frostline_stage;
comment on schema frostline_stage is 'Frostline: rows on their way from Spark into a managed table';

-- In the transaction that writes the batch: the table stays managed until its end (KEY SHARE on its row), and the label is
-- taken. Waits for a transaction that has the same label. No row: there is no such table. `is_new` is false for a batch
-- that the same role applied before. It runs with our rights: whoever could write labels himself could have others' skipped.
create function frostline_stage.begin_batch(
    of_schema text, of_table text, of_label text, of_mode text, of_rows bigint,
    out is_new boolean, out was_mode text, out was_rows bigint)
returns setof record
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    its_id integer;
    caller text := case current_setting('role') when 'none' then session_user else current_setting('role') end;
    needed text[] := case of_mode when 'append' then '{insert}' when 'upsert' then '{insert,update,select}'
                                  when 'delete' then '{delete,select}' end;
    privilege text;
    relation regclass;
begin
    select t.table_id, to_regclass(format('%I.%I', t.schema_name, t.table_name)) into its_id, relation
      from frostline.managed_table as t
     where t.schema_name = of_schema and t.table_name = of_table and t.mode = 'tiered'
       for key share;
    if relation is null then
        return;
    end if;
    foreach privilege in array needed loop
        if not (case privilege when 'delete' then has_table_privilege(caller::name, relation, privilege)
                               else has_any_column_privilege(caller::name, relation, privilege) end) then
            raise insufficient_privilege using message = format('permission denied for view %s', relation);
        end if;
    end loop;
    is_new := true; was_mode := of_mode; was_rows := of_rows;
    if of_label is not null then
        insert into frostline.applied_batch (table_id, label, mode, rows, written_by)
        values (its_id, of_label, of_mode, of_rows, caller) on conflict do nothing;
        is_new := found;
        select b.mode, b.rows into was_mode, was_rows
          from frostline.applied_batch as b
         where b.table_id = its_id and b.written_by = caller and b.label = of_label;
    end if;
    return next;
end
$$;
revoke execute on function frostline_stage.begin_batch(text, text, text, text, bigint) from public;

-- Batches whose cold rows go into the lake as files.
alter table frostline.job drop constraint job_kind_check,
                          add constraint job_kind_check check (kind in (
                              'archive', 'fold', 'undo', 'thaw', 'clean',
                              'premake', 'retain', 'compact', 'expire', 'sweep', 'load'));
