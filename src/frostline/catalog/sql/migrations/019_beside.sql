-- A relation may stand beside its table instead of in its place: then the table keeps its name and is the heap, and the relation
-- has a name of its own. docs/design/registration.md.
alter table frostline.managed_table
    add column relation_name text check (relation_name <> table_name),
    add column heap_name text not null generated always as (
        case when mode = 'tiered' and relation_name is null then '_' || table_name else table_name end) stored,
    add check (relation_name is null or mode = 'tiered'),
    add unique (schema_name, relation_name);

create or replace view frostline.seam_relation as
select t.table_id, t.schema_name, t.table_name, t.tier_kind,
       heap.oid as heap_oid, format('%I.%I', n.nspname, heap.relname) as heap, own.overlay
  from frostline.managed_table t
  join pg_namespace n on n.nspname = t.schema_name
  join pg_class heap on heap.relnamespace = n.oid and heap.relname = t.heap_name
 cross join lateral (select '_' || t.table_id as text) suffix
 -- The cast to `name` cuts between characters, as the name was cut when the overlay was made.
 cross join lateral (
    select substr((repeat('_', length(suffix.text)) || t.table_name)::name::text, length(suffix.text) + 1)
           || suffix.text as overlay) own
 where t.mode = 'tiered';

create or replace function frostline.heap_of(managed integer) returns oid
language sql stable set search_path = pg_catalog, pg_temp as $$
    select h.oid
      from frostline.managed_table t
      join pg_namespace n on n.nspname = t.schema_name
      join pg_class h on h.relnamespace = n.oid and h.relname = t.heap_name
     where t.table_id = managed and t.mode = 'tiered'
$$;

create or replace function frostline_write.is_removed_by_us(partition oid, place tid) returns boolean
language plpgsql stable security definer set search_path = pg_catalog, pg_temp set row_security = off as $$
declare
    is_ours boolean;
begin
    if not exists (select from pg_inherits i
                     join pg_class h on h.oid = i.inhparent
                     join pg_namespace n on n.oid = h.relnamespace
                     join frostline.managed_table t on t.schema_name = n.nspname and t.heap_name = h.relname and t.mode = 'tiered'
                    where i.inhrelid = partition) then
        return false;
    end if;
    execute format('select frostline.is_removed_by_us(h.xmax) from only %s as h where h.ctid = $1', partition::regclass)
       into is_ours using place;
    return coalesce(is_ours, false);
end
$$;

-- A batch may name the table or its relation; it is written through the relation either way.
create or replace function frostline_stage.begin_batch(
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
    select t.table_id, to_regclass(format('%I.%I', t.schema_name, coalesce(t.relation_name, t.table_name))) into its_id, relation
      from frostline.managed_table as t
     where t.schema_name = of_schema and of_table in (t.table_name, t.relation_name) and t.mode = 'tiered'
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
