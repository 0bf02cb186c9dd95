-- The objects of one managed table. Those of a relation are filled by `frostline.relation_objects`, the others
-- through psycopg.sql; golden files hold the result.
-- {body} is a dollar quote that no name of the table contains. A column may be called as a variable is (found, tg_op):
-- in a statement its name means the column. Nobody may put our functions on a table of their own.

-- name: rename_table
alter table {old} rename to {new};

-- name: rename_view
alter view {old} rename to {new};

-- name: default_partition
create table {default_partition} partition of {heap} default;
comment on table {default_partition} is {made_by};
alter table {default_partition} owner to {owner};

-- name: schema
-- It may have been dropped with all that was in it.
create schema if not exists {schema};

-- name: heap
-- In the place of one that is gone: empty, of the overlay's columns.
create table {heap} (
    {columns},
    primary key ({key})
) partition by range ({tier_key});

-- name: heap_rows
-- The newest version of a changed cold row is in the heap, too. Whatever partition had it, DEFAULT takes it now.
insert into {heap} ({written}) overriding system value
select {written} from {overlay} as o where o.frostline_live and o.{tier_key} < {line}
on conflict do nothing;

-- name: deleted_marks
-- Until it is cleaned, an archived partition is the whole truth of its range: what only the lake has of it was deleted.
insert into {overlay} ({marked}, frostline_live)
select {lake_marked}, false
  from {lake} as c
 where c.frostline_snapshot = (select s.snapshot_id from frostline.seam as s where s.table_id = {table_id})
   and {in_range} and not exists (select from only {partition} as h where {lake_is_heap})
on conflict do nothing;

-- name: overlay
create table {overlay} (
    {typed_columns},
    frostline_live boolean not null,
    frostline_version bigint not null default nextval('frostline.overlay_version'),
    frostline_marked_at timestamptz not null default now(),
    primary key ({key})
) with (vacuum_truncate = off);
-- Kept pages: a table without any looks free to read, so a statement planned after a fold would read it whole for each
-- cold row, the ones that the statement itself has marked included.
create index on {overlay} ({tier_key});

-- name: overlay_trigger
create or replace trigger "!frostline_truncate" before truncate on {overlay}
    for each statement execute function frostline.refuse_truncate_of_overlay();
alter table {overlay} enable always trigger "!frostline_truncate";

-- name: lake
create table {lake} (
    frostline_snapshot bigint,
    {lake_typed_columns}
) partition by range ({tier_key});

-- name: nothing
-- Always empty, before the first value. Postgres prunes at run time only among two partitions or more, and at the lower
-- end this one is out of the way of every statement that says how new its rows are.
create table {nothing} partition of {lake} for values from (minvalue) to ({lowest});

-- name: inner_view
create or replace view {inner} as
{arms};

-- name: inner_view_secured
-- The policy stands here, behind a barrier, and not in the outer view: an UPDATE would put the outer view's condition and
-- the user's on this view together, and a function of the user could see a row before the policy does.
create or replace view {inner} with (security_barrier) as
select {first}, frostline_tier, frostline_snapshot, frostline_secret, frostline_partition, frostline_place{later}
  from (
{arms}
) as {alias}
 where not pg_catalog.row_security_active({heap_name}::regclass) or {may_select}({columns});

-- name: arms
-- Postgres makes one Append of the three tables only if no arm has a condition of its own; so all stand above, and each
-- folds away where it does not apply. docs/design/relation.md says why each is written as it is.
select {first_of_union}, frostline_tier, frostline_snapshot, {secret} as frostline_secret, frostline_partition, frostline_place{later_of_union}
  from (
    select {heap_columns}, 'heap'::text as frostline_tier, null::bigint as frostline_snapshot,
           h.tableoid as frostline_partition, h.ctid as frostline_place,
           true as frostline_is_hot, null::boolean as frostline_is_cold, true as frostline_live
      from {heap} as h
    union all
    select {lake_columns}, 'lake'::text, c.frostline_snapshot, null::oid, null::tid, false, true, true
      from {lake} as c
    union all
    select {overlay_columns}, 'overlay'::text, null::bigint, null::oid, o.ctid, false, true, o.frostline_live
      from {overlay} as o
  ) as u
 where (u.{tier_key} >= {line} or u.frostline_is_cold)
   and (u.frostline_is_hot or nullif(u.{tier_key} < {line}, false) is not null)
   and u.frostline_live
   and (u.frostline_tier <> 'lake' or u.frostline_snapshot
        = (select frostline_write.checked_lake(s.snapshot_id, s.table_id, {heap_name}::regclass, {overlay_text}::regclass)
             from frostline.seam as s where s.table_id = {table_id}))
   and (u.frostline_tier <> 'lake' or nullif(({hashed_key}) in (select {marked_key} from {overlay} as m
            where nullif(m.frostline_version, m.frostline_version) is null), true) is not null)

-- name: line
(select s.{line_column}{line_cast} from frostline.seam as s where s.table_id = {table_id})

-- name: secret
(select s.write_secret from frostline.seam as s where s.table_id = {table_id})

-- name: outer_view
create view {relation} as select {columns} from {inner} as {alias};

-- name: keep_statements_out
-- ACCESS EXCLUSIVE on this view alone: LOCK TABLE would lock all that it reads, the seam of all tables included. Changes nothing.
alter view {view} reset (check_option);

-- name: widen_view
-- ACCESS EXCLUSIVE on the view. Whatever reads it goes on, and does not have the new columns.
create or replace view {relation} as select {columns} from {inner} as {alias};

-- name: view_default
alter view {relation} alter column {column} set default {default};

-- name: insert_rule
create or replace rule frostline_insert as on insert to {relation} do instead
    insert into {heap} ({written}){overriding} values ({new_written}) returning {returned};

-- name: insert_rule_checked
-- RETURNING is evaluated only where it is asked for, and then the caller must be allowed to see the row. Each value is
-- computed once: a volatile expression must not show one to the policy and another to the heap.
create or replace rule frostline_insert as on insert to {relation} do instead
    insert into {heap} as h ({written}){overriding}
    select {written_values} from (select {new_as_columns}) as r
     where {may_write}
    returning {returned};

-- name: may_insert
frostline.require(not pg_catalog.row_security_active({heap_name}::regclass) or {may_insert}({row_columns}), {relation_name})

-- name: no_generated
frostline.require_default({is_null}, {column}, {relation_name})

-- name: returned_checked
(case when frostline.require(not pg_catalog.row_security_active({heap_name}::regclass) or {may_select}({heap_columns}), {relation_name})
               then h.{column} end)::{type}

-- name: follow_policies
select frostline.follow_policies({table_id});

-- name: seam_is_current
-- A transaction with one snapshot for all its statements cannot see that the seam moved; asking for the row's lock
    -- tells (40001). The lock is given back at once with the block's savepoint, so that nobody has to wait for it.
    if current_setting('transaction_isolation') in ('repeatable read', 'serializable') then
        begin
            perform from frostline.seam as s where s.table_id = {table_id} for share;
            raise exception using errcode = 'FL000', message = 'the seam is current';
        exception when sqlstate 'FL000' then
            null;
        end;
    end if;

-- name: policy_function
create or replace function {function}() returns trigger
language plpgsql as {body}
#variable_conflict use_column
begin
    if not pg_catalog.row_security_active({heap_name}::pg_catalog.regclass) then
        return case when tg_op operator(pg_catalog.=) 'DELETE' then old else new end;
    end if;
    if tg_op operator(pg_catalog.=) 'DELETE' then
        return case when {may_delete}({old_columns}) then old end;
    end if;
    return case when {may_update}({old_columns}) then new end;
end
{body};
revoke execute on function {function}() from public;

-- name: policy_trigger
create or replace trigger frostline_a_policy instead of update or delete on {inner} for each row execute function {function}();

-- name: mark_function
create or replace function {function}() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp
-- A plan made while overlay and DEFAULT partition are empty is kept, and would read them whole for each row later.
set enable_seqscan = off set jit = off
-- An error, should a policy of the heap hide a row from us: it would be taken for one that is gone.
set row_security = off as {body}
#variable_conflict use_column
declare
    key_is_new boolean := true;
    must_look boolean := false;
    has_cold_rows boolean;
    has_one_snapshot boolean := current_setting('transaction_isolation') in ('repeatable read', 'serializable');
begin
    -- Silent for the statement of a fold itself, not for what a trigger of the user makes of it.
    if current_setting('frostline.folding', true) = 'on' and pg_trigger_depth() = 1
       and exists (select from frostline.folding as f where f.xid = pg_current_xact_id() and f.table_id = {table_id}) then
        return null;
    end if;
    if tg_op = 'TRUNCATE' then
        perform frostline_write.require_known_heap({table_id}, {heap_name}::regclass, {overlay_text}::regclass, 'marked');
        {truncate_rows}
        return null;
    end if;
    if tg_op = 'DELETE' or (tg_op = 'UPDATE' and row({old_key}) is distinct from row({new_key})) then
        -- 40001 if a job has taken away the mark that this transaction still sees: ours would stand beside it.
        if has_one_snapshot then
            perform from {overlay} as m where {mark_is_old} for update;
        end if;
        {mark_old}
    end if;
    if tg_op = 'DELETE' then
        return null;
    end if;
    if tg_op = 'UPDATE' then
        key_is_new := row({old_key}) is distinct from row({new_key});
    end if;
    -- Whoever was not told of the newest R writes a row that the next `frostline retain` removes.
    if key_is_new and new.{tier_key} < {retained} and not exists (select from {overlay} as m where {mark_is_new}) then
        raise check_violation using message = {below_retention},
            detail = format('Rows before %s were removed for good.', {retained}), hint = {retention},
            schema = {schema_name}, table = {table_name};
    end if;
    must_look := key_is_new and new.{tier_key} < {line}
        and coalesce(current_setting('frostline.check_cold_keys', true), '') <> 'off';
    if must_look or has_one_snapshot then
        -- A key that has a mark needs no look: what the lake has of it does not count. Locked, so that it stays until ours;
        -- and 40001, as above.
        perform from {overlay} as m where {mark_is_new} for update;
        must_look := must_look and not found;
    end if;
    {mark_new}
    -- The mark comes first. A job that brings rows into the lake holds marks of their keys until the lake has them: so either it
    -- finds ours, or we wait for it here and then look into the lake as it has left it.
    if must_look then
        perform frostline_write.require_known_heap({table_id}, {heap_name}::regclass, {overlay_text}::regclass, 'inserted');
        {seam_is_current}
        if exists (select from {lake} as c
                    where c.frostline_snapshot = (select s.snapshot_id from frostline.seam as s where s.table_id = {table_id})
                      and {lake_is_new}) then
            raise unique_violation using message = {duplicate}, detail = 'The key exists in the lake.',
                hint = {update_instead}, schema = {schema_name}, table = {table_name};
        end if;
    end if;
    {mark_new}
    return null;
end
{body};
revoke execute on function {function}() from public;

-- name: mark_row
-- What the heap holds under this key now. What the trigger is told may be old: a trigger of another row of the same
        -- statement may have come first. By their places: two columns may have exchanged their names, and the overlay not yet.
        -- A partition that was detached keeps its triggers, and has no say any more. Postgres is asked for that by a function:
        -- pg_class has it as of this transaction's snapshot, and the partition may have been attached since.
        insert into {overlay} ({columns}, frostline_live)
        select {heap_numbers}, true from {heap} as h ({numbers})
         where frostline_write.has_known_key({table_id}, {heap_name}::regclass, {overlay_text}::regclass) and {heap_key_is_row}
        on conflict ({key}) do update set {replace}
            frostline_live = true, frostline_version = nextval('frostline.overlay_version');
        if not found then
            insert into {overlay} ({marked}, frostline_live)
            select {row_marked}, false where pg_partition_root(tg_relid) is not null
            on conflict ({key}) do update set {clear}
                frostline_live = false, frostline_version = nextval('frostline.overlay_version');
        end if;

-- name: truncate
-- As if each row were deleted: an archive may have exported them. A detached partition has no say any more.
        if pg_partition_root(tg_relid) is null then
            return null;
        end if;
        -- Rows that this transaction does not see would go without a mark.
        if has_one_snapshot and pg_relation_size(tg_relid) > 0 then
            raise object_not_in_prerequisite_state using
                message = format('%s cannot be truncated at %s', tg_relid::regclass, upper(current_setting('transaction_isolation'))),
                detail = 'It may have rows that this transaction does not see.', hint = 'Do it at READ COMMITTED.';
        end if;
        execute format('select exists (select from only %s as h where h.%I < $1)', tg_relid::regclass, {tier_key_name})
           into has_cold_rows using {line};
        if has_cold_rows then
            raise object_not_in_prerequisite_state using
                message = format('%s has rows below the frost line of %s', tg_relid::regclass, {relation_shown}),
                hint = format('They are part of it. To have them gone: delete from %s ...', {relation_shown});
        end if;
        execute format('insert into %s (%s, frostline_live) select %2$s, false from only %3$s on conflict (%4$s) do update '
                       'set %5$s frostline_live = false, frostline_version = nextval(''frostline.overlay_version'')',
                       {overlay_text}, {marked_text}, tg_relid::regclass, {key_text}, {clear_text});

-- name: mark_trigger
-- Triggers fire in the order of their names. They fire also for what a replication worker writes.
create or replace trigger "!frostline_mark" after insert or update or delete on {partition}
    for each row execute function {function}();
create or replace trigger "!frostline_truncate" before truncate on {partition}
    for each statement execute function {function}();
alter table {partition} enable always trigger "!frostline_mark", enable always trigger "!frostline_truncate";

-- name: truncate_function
-- Of the heap as a whole, also by CASCADE through a foreign key: the lake's half would stay. One partition may be truncated.
create or replace function {function}() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as {body}
begin
    if exists (select from frostline.lake_file as f where f.table_id = {table_id}) then
        raise object_not_in_prerequisite_state using message = {not_truncated}, hint = {truncate_hint};
    end if;
    return null;
end
{body};
revoke execute on function {function}() from public;

-- name: truncate_trigger
create or replace trigger "!frostline_truncate_all" before truncate on {heap}
    for each statement execute function {function}();
alter table only {heap} enable always trigger "!frostline_truncate_all";

-- name: owner
alter view {relation} owner to {owner};

-- name: grant_inner
grant select, insert, update, delete on {inner} to {owner};

-- name: grant
grant {privilege}{columns} on {relation} to {grantee}{option};

-- name: revoke
revoke {privilege}{columns} on {relation} from {grantee} cascade;

-- name: grant_sequence
grant usage on sequence {sequence} to {grantee};

-- name: revoke_sequence
revoke usage on sequence {sequence} from {grantee};

-- name: comment
comment on view {relation} is {comment};

-- name: comment_column
comment on column {relation}.{column} is {comment};

-- name: domain
create domain frostline_lake.{domain} as {base};

-- name: drop_domain
drop domain frostline_lake.{domain};

-- name: foreign_table
create foreign table {foreign_table} (frostline_snapshot bigint, {columns})
    server frostline_lake options (schema_name {schema_name}, table_name {table_name}, fetch_size {fetch_size});

-- name: attach
alter table {lake} attach partition {foreign_table} for values from ({lower}) to ({upper});

-- name: replace_view
create or replace view {view}{options} as {definition}

-- name: drop_view
-- Of this and the next: somebody may have dropped it by hand; that must not keep the rest.
drop view if exists {view};

-- name: drop_view_cascade
drop view if exists {view} cascade;

-- name: drop_function
-- With the triggers that call it, also those of partitions that were detached.
drop function if exists {function} cascade;

-- name: drop_table
drop table if exists {table};

-- name: forget_policies
select frostline.forget_policies({table_id});
