-- What a statement on a relation calls runs as the role that sent it. What that needs of ours is in a schema that everybody
-- may use, and does nothing for whoever does not know the table's secret. docs/design/writing-as-the-caller.md says why.
create schema frostline_write;
comment on schema frostline_write is 'Frostline: where the writes of a relation go through; of no use by hand';
grant usage on schema frostline_write to public;

-- The inner view hands it to the triggers of the relation. No statement of a user can read it.
alter table frostline.seam add column write_secret uuid not null default gen_random_uuid();

-- Of which version the table's objects in Postgres are: a digest of the SQL that made them.
alter table frostline.managed_table add column objects_digest text;

-- Whether this transaction made the row version. For the xmin of a row that the calling query sees: one that is still in
-- progress can only be its own. Numbers below our own first one are not looked up.
create function frostline.is_own(version xid) returns boolean
language sql stable set search_path = pg_catalog, pg_temp as $$
    with own as (
        select pg_current_xact_id_if_assigned()::text::bigint as first
    ), guess as (
        select first, (first >> 32 << 32) + version::text::bigint as number from own
    ), judged as (
        select first, number + case when number > first + 2147483648 then -4294967296
                                    when number < first - 2147483648 then 4294967296 else 0 end as number
          from guess
    )
    select coalesce(version::text::bigint > 2 and number >= first
                    and case when number >= first then pg_xact_status(number::text::xid8) = 'in progress' end, false)
      from judged
$$;
revoke execute on function frostline.is_own(xid) from public;

-- Whether this transaction removed the row whose xmax this is. For a row that the calling query still sees. Where several
-- transactions had locked it, xmax is the number of a MultiXact, which only its value can show: no plain transaction can have
-- removed what this snapshot sees, if it is visible to it, failed, or yet to come.
create function frostline.is_removed_by_us(remover xid) returns boolean
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    own bigint := pg_current_xact_id_if_assigned()::text::bigint;
    number bigint := (own >> 32 << 32) + remover::text::bigint;
begin
    if frostline.is_own(remover) then
        return true;
    end if;
    if number > own + 2147483648 then
        number := number - 4294967296;
    end if;
    if number < own and pg_xact_status(number::text::xid8) = 'committed'
       and not pg_visible_in_snapshot(number::text::xid8, pg_current_snapshot()) then
        return false;
    end if;
    return exists (select from pg_get_multixact_members(remover) as m where m.mode in ('upd', 'nokeyupd') and frostline.is_own(m.xid));
exception when invalid_parameter_value or object_not_in_prerequisite_state or internal_error then
    return false;
end
$$;
revoke execute on function frostline.is_removed_by_us(xid) from public;

-- Whether this transaction removed the heap row that lay there when the running statement began. STABLE: it sees with the
-- statement's own snapshot, in which the row is still there, and its xmax as it is now. Only a transaction that is still
-- running can have removed what is gone for us: ours.
create function frostline_write.is_removed_by_us(partition oid, place tid) returns boolean
language plpgsql stable security definer set search_path = pg_catalog, pg_temp set row_security = off as $$
declare
    is_ours boolean;
begin
    if not exists (select from pg_inherits i
                     join pg_class h on h.oid = i.inhparent
                     join pg_namespace n on n.oid = h.relnamespace
                     join frostline.managed_table t on t.schema_name = n.nspname and '_' || t.table_name = h.relname
                    where i.inhrelid = partition) then
        return false;
    end if;
    execute format('select frostline.is_removed_by_us(h.xmax) from only %s as h where h.ctid = $1', partition::regclass)
       into is_ours using place;
    return coalesce(is_ours, false);
end
$$;

-- The last INSTEAD OF triggers of a relation: a row that was gone from the heap when its turn came is left out, as on a
-- plain table, if this very statement has taken it before. Otherwise somebody else has.
create function frostline_write.settle_update() returns trigger
language plpgsql stable as $$
begin
    if new.frostline_tier operator(pg_catalog.<>) 'missed' then
        return new;
    end if;
    if not frostline_write.is_removed_by_us(old.frostline_partition, old.frostline_place) then
        raise serialization_failure using message = 'could not serialize access due to concurrent update',
            hint = 'Run the transaction again.';
    end if;
    return null;
end
$$;

create function frostline_write.settle_delete() returns trigger
language plpgsql stable as $$
begin
    if pg_catalog.current_setting('frostline.missed', true) operator(pg_catalog.=) 'yes' then
        perform pg_catalog.set_config('frostline.missed', '', true);
        if not frostline_write.is_removed_by_us(old.frostline_partition, old.frostline_place) then
            raise serialization_failure using message = 'could not serialize access due to concurrent delete',
                hint = 'Run the transaction again.';
        end if;
        return null;
    end if;
    return old;
end
$$;
revoke execute on function frostline_write.settle_update(), frostline_write.settle_delete() from public;

-- Called by the insert rule of a table with generated columns: a plain table refuses a value for them.
create function frostline.require_default(is_default boolean, column_name text, relation text) returns boolean
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
begin
    if not is_default then
        raise generated_always using
            message = format('cannot insert a non-DEFAULT value into column %I of %I', column_name, relation),
            detail = format('Column %I is a generated column.', column_name);
    end if;
    return true;
end
$$;

-- Row security of the heap as functions that the relation asks, each evaluated as the caller and with what he may read. What
-- the conditions were when they were made is kept, so that a difference is seen.
create table frostline.followed_policy (
    table_id    integer not null references frostline.managed_table on delete cascade,
    function    text not null,
    condition   text not null,
    primary key (table_id, function)
);

-- The condition of all policies for one command, as Postgres combines them: a permissive one must allow, and no restrictive one
-- may refuse; none at all refuses.
create function frostline.policy_condition(heap oid, command "char", of_new_row boolean) returns text
language sql stable set search_path = pg_catalog, pg_temp as $$
    with meant as (
        select p.polpermissive,
               case when 0 = any(p.polroles) then 'true'
                    else (select string_agg(format('pg_catalog.pg_has_role(current_user, %s::pg_catalog.oid, ''usage'')', r), ' or ')
                            from unnest(p.polroles) as r) end as concerns,
               coalesce(pg_get_expr(case when of_new_row then coalesce(p.polwithcheck, p.polqual) else p.polqual end,
                                    p.polrelid), 'true') as allows
          from pg_policy p
         where p.polrelid = heap and p.polcmd in ('*', command)
         order by p.polname
    )
    select '(' || coalesce(string_agg(format('(%s) and (%s)', concerns, allows), ' or ') filter (where polpermissive), 'false')
        || ')' || coalesce(string_agg(format(' and not ((%s) and (%s) is not true)', concerns, allows), '')
                           filter (where not polpermissive), '')
      from meant
$$;

create function frostline.policy_conditions(heap oid) returns table (function text, condition text)
language sql stable set search_path = pg_catalog, pg_temp as $$
    values ('may_select', frostline.policy_condition(heap, 'r', false)),
           ('may_insert', frostline.policy_condition(heap, 'a', true)),
           ('may_update', frostline.policy_condition(heap, 'w', false)),
           ('may_become', frostline.policy_condition(heap, 'w', true) || ' and ' || frostline.policy_condition(heap, 'r', false)),
           ('may_delete', frostline.policy_condition(heap, 'd', false))
$$;

create function frostline.heap_of(managed integer) returns oid
language sql stable set search_path = pg_catalog, pg_temp as $$
    select h.oid
      from frostline.managed_table t
      join pg_namespace n on n.nspname = t.schema_name
      join pg_class h on h.relnamespace = n.oid and h.relname = '_' || t.table_name
     where t.table_id = managed
$$;

-- Makes the functions of one table say what its policies say now. A condition without a sub-select is a function of one expression,
-- which Postgres puts in its place; one with a sub-select is called, and reads as the caller. Names are resolved here and now:
-- no search_path of a caller matters. The arguments are the columns that the relation has, whatever the heap has got since; a
-- policy that names another one is an error. What a sub-select reads may be dropped with CASCADE, which takes the policy along: so
-- its function is a second one, which the relation's does not depend on. Harmless to repeat.
create function frostline.follow_policies(managed integer) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    heap oid := frostline.heap_of(managed);
    heap_name text := (select relname from pg_class where oid = heap);
    has_query boolean := exists (select from pg_policy where polrelid = heap
                                    and concat(polqual::text, polwithcheck::text) like '%{SUBLINK%');
    needs_row boolean := has_query or exists (select from pg_policy where polrelid = heap
                                    and concat(polqual::text, polwithcheck::text) like '%:varattno 0 %');
    named text[];
    typed text[];
    given text[];
    arguments text;
    made record;
begin
    if heap is null then
        raise undefined_table using message = format('table %s has no heap', managed);
    end if;
    select array_agg(a.attname::text order by a.attnum), array_agg(format_type(a.atttypid, a.atttypmod) order by a.attnum)
      into named, typed
      from (select * from pg_attribute where attrelid = heap and attnum > 0 and not attisdropped order by attnum
             limit (select count(*) from frostline.managed_column c where c.table_id = managed)) as a;
    given := coalesce((select p.proargnames from pg_proc p where p.pronamespace = 'frostline_write'::regnamespace
                          and p.proname = format('may_select_%s', managed)), named);
    arguments := (select string_agg(format('%I %s', given[n], typed[n]), ', ' order by n) from generate_subscripts(given, 1) as n);
    for made in
        select c.function, c.condition, format('%s_%s', c.function, managed) as name, format('policy_%s_%s', c.function, managed) as inner_name
          from frostline.policy_conditions(heap) as c
    loop
        begin
            execute format('create or replace function frostline_write.%I(%s) returns boolean language sql stable begin atomic select %s%s; end',
                case when has_query then made.inner_name else made.name end, arguments, made.condition,
                case when needs_row or given <> named then
                    (select format(' from (select %s) as %I', string_agg(format('%I.%I as %I',
                                case when has_query then made.inner_name else made.name end, given[n], named[n]), ', ' order by n), heap_name)
                       from generate_subscripts(named, 1) as n) end);
        exception when syntax_error_or_access_rule_violation then
            raise feature_not_supported using message = format('a policy of %s cannot be asked about a row of the lake: %s', heap::regclass, sqlerrm),
                hint = 'A policy may use the columns of the table, and no system column.';
        end;
        if has_query then
            execute format('create or replace function frostline_write.%I(%s) returns boolean language plpgsql stable as %L', made.name, arguments,
                format('begin return frostline_write.%I(%s); end', made.inner_name,
                       (select string_agg('$' || n, ', ' order by n) from generate_subscripts(given, 1) as n)));
            execute format('grant execute on function frostline_write.%I to public', made.inner_name);
        else
            execute format('drop function if exists frostline_write.%I', made.inner_name);
        end if;
        execute format('grant execute on function frostline_write.%I to public', made.name);
        insert into frostline.followed_policy (table_id, function, condition) values (managed, made.function, made.condition)
        on conflict on constraint followed_policy_pkey do update set condition = excluded.condition;
    end loop;
end
$$;

create function frostline.forget_policies(managed integer) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    ours record;
begin
    for ours in
        select p.oid::regprocedure as signature from pg_proc p
         where p.pronamespace = 'frostline_write'::regnamespace
           and p.proname in (select format(name, f.function, managed) from frostline.followed_policy f, unnest(array['%s_%s', 'policy_%s_%s']) as name
                              where f.table_id = managed)
    loop
        execute format('drop function %s', ours.signature);
    end loop;
    delete from frostline.followed_policy where table_id = managed;
end
$$;

-- The tables whose row security is not what the relation applies: what was switched, or which policies were changed. Of all, or of one.
create function frostline.strayed_row_security(only_of integer default null) returns table (table_id integer, problem text)
language sql stable set search_path = pg_catalog, pg_temp as $$
    with managed as (
        select t.table_id, h.oid as heap, h.relrowsecurity,
               exists (select from frostline.followed_policy f where f.table_id = t.table_id) as is_followed
          from frostline.managed_table t join pg_class h on h.oid = frostline.heap_of(t.table_id)
         where exists (select from frostline.seam s where s.table_id = t.table_id)
           and t.table_id = coalesce(only_of, t.table_id)
    )
    select m.table_id,
           case when m.relrowsecurity and not m.is_followed then 'row security was switched on, and the relation does not apply it'
                when m.is_followed and not m.relrowsecurity then 'row security was switched off, and the relation still has it'
                else 'its policies were changed, and the relation still applies the old ones' end
      from managed m
     where m.relrowsecurity <> m.is_followed
        or m.is_followed and exists (select from frostline.policy_conditions(m.heap) as c
                                      where not exists (select from frostline.followed_policy f
                                                         where f.table_id = m.table_id and f.function = c.function
                                                           and f.condition = c.condition))
$$;

revoke execute on function frostline.policy_condition(oid, "char", boolean), frostline.policy_conditions(oid), frostline.heap_of(integer),
    frostline.follow_policies(integer), frostline.forget_policies(integer), frostline.strayed_row_security(integer) from public;
-- Whatever the default privileges are: the relation calls these as the caller.
grant execute on function frostline.require(boolean, text), frostline.require_default(boolean, text, text),
    frostline_write.is_removed_by_us(oid, tid) to public;
