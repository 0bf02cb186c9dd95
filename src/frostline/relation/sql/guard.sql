-- name: function
-- Below the frost line the heap is not read, and a new partition there has no marking trigger: rows in it would be
-- written and never seen. Runs with its owner's rights, whoever made the partition: what the bound says is only quoted.
create or replace function frostline.refuse_partition_below_frost_line() returns event_trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $body$
declare
    made record;
    is_below boolean;
begin
    for made in
        select c.oid::regclass::text as partition, t.table_id, t.schema_name, t.table_name, t.tier_kind,
               coalesce(t.relation_name, t.table_name) as relation,
               (regexp_match(pg_get_expr(c.relpartbound, c.oid), 'FROM \(''?([^'']*?)''?\) TO \('))[1] as lower,
               coalesce(s.line_timestamptz::text, s.line_timestamp::text, s.line_date::text, s.line_integer::text) as line,
               coalesce(s.line_timestamptz = '-infinity', s.line_timestamp = '-infinity', s.line_date = '-infinity',
                        s.line_integer = case t.tier_kind when 'bigint' then -9223372036854775808
                            when 'integer' then -2147483648 else -32768 end) as all_is_hot
          from pg_event_trigger_ddl_commands() d
          join pg_inherits i on d.classid = 'pg_class'::regclass and (i.inhrelid = d.objid or i.inhparent = d.objid)
          join pg_class c on c.oid = i.inhrelid and c.relispartition
          join pg_class h on h.oid = i.inhparent
          join pg_namespace n on n.oid = h.relnamespace
          join frostline.managed_table t on t.schema_name = n.nspname and t.heap_name = h.relname and t.mode = 'tiered'
          join frostline.seam s on s.table_id = t.table_id
         where not exists (select from pg_trigger g where g.tgrelid = c.oid
                             and g.tgfoid = to_regproc('frostline_relation.mark_' || t.table_id))
    loop
        -- A transaction with one snapshot cannot see that the line rose; asking for the row's lock tells (40001). It is given back with
        -- the block's savepoint, so that no publish has to wait for it.
        if current_setting('transaction_isolation') in ('repeatable read', 'serializable') then
            begin
                perform from frostline.seam as s where s.table_id = made.table_id for share;
                raise exception using errcode = 'FL000', message = 'the seam is current';
            exception when sqlstate 'FL000' then
                null;
            end;
        end if;
        continue when made.lower is null or made.all_is_hot;
        if made.lower = 'MINVALUE' then
            is_below := true;
        else
            execute format('select %L::%s < %L::%2$s', made.lower, made.tier_kind, made.line) into is_below;
        end if;
        if is_below then
            raise object_not_in_prerequisite_state using
                message = format('partition %s would lie below the frost line of %I.%I', made.partition, made.schema_name, made.table_name),
                hint = format('insert such rows into %I.%I itself; they need no partition', made.schema_name, made.relation);
        end if;
    end loop;
end
$body$;
revoke execute on function frostline.refuse_partition_below_frost_line() from public

-- name: code_function
-- What has fewer rights than we must not put code on a managed table that would run with ours: docs/design/deputies.md. Jobs look
-- before they begin, and this keeps it so while they run. What a table has already does not keep others from altering it:
-- only what this transaction has brought is refused. Runs with its owner's rights, and calls nothing of the table's.
create or replace function frostline.refuse_untrusted_code() returns event_trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $body$
declare
    heap record;
    found record;
begin
    for heap in
        select h.oid, t.schema_name, t.table_name
          from frostline.managed_table t
          join pg_namespace n on n.nspname = t.schema_name
          join pg_class h on h.relnamespace = n.oid and h.relname = t.heap_name
         where exists (
            select from pg_event_trigger_ddl_commands() d
              left join pg_index i on d.classid = 'pg_class'::regclass and i.indexrelid = d.objid
              left join pg_trigger g on d.classid = 'pg_trigger'::regclass and g.oid = d.objid
              left join pg_statistic_ext s on d.classid = 'pg_statistic_ext'::regclass and s.oid = d.objid
             where d.classid not in ('pg_class'::regclass, 'pg_trigger'::regclass, 'pg_statistic_ext'::regclass)
                or h.oid = coalesce(pg_partition_root(coalesce(i.indrelid, g.tgrelid, s.stxrelid, d.objid)),
                                    i.indrelid, g.tgrelid, s.stxrelid, d.objid))
    loop
        for found in
            select c.object, c.code from frostline.untrusted_code(heap.oid) c where c.age <= age(pg_current_xact_id()::xid)
        loop
            raise insufficient_privilege using
                message = format('%s would run %s with the rights of Frostline on %I.%I',
                                 found.object, found.code, heap.schema_name, heap.table_name),
                hint = format('the function must be stable or immutable, and belong to a superuser or to %s', current_user);
        end loop;
    end loop;
end
$body$;
revoke execute on function frostline.refuse_untrusted_code() from public

-- name: follow_function
-- What is said of row security on the heap holds for the relation from then on. Switching it changes the relation's own objects,
-- which a command does, so it is refused by hand. Runs with its owner's rights: it reads policies, and makes functions of them.
create or replace function frostline.follow_row_security() returns event_trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $body$
declare
    strayed record;
begin
    if frostline.is_following() or current_setting('frostline.renewing', true) = 'on' and pg_has_role(session_user, current_user, 'member') then
        return;
    end if;
    if tg_event = 'sql_drop' and not exists (select from pg_event_trigger_dropped_objects() d where d.object_type = 'policy') then
        return;
    end if;
    for strayed in
        select s.table_id, t.schema_name, t.table_name, t.heap_name, h.relrowsecurity,
               exists (select from frostline.followed_policy f where f.table_id = s.table_id) as is_followed
          from frostline.strayed_row_security() s
          join frostline.managed_table t on t.table_id = s.table_id
          join pg_class h on h.oid = frostline.heap_of(s.table_id)
         where case when tg_event = 'sql_drop' then (t.schema_name, t.heap_name) in (
                             select d.address_names[1], d.address_names[2] from pg_event_trigger_dropped_objects() d where d.object_type = 'policy')
                    else h.oid in (select coalesce(p.polrelid, d.objid) from pg_event_trigger_ddl_commands() as d
                                     left join pg_policy as p on d.classid = 'pg_policy'::regclass and p.oid = d.objid) end
    loop
        if strayed.relrowsecurity <> strayed.is_followed then
            raise object_not_in_prerequisite_state using
                message = format('row security of %I.%I cannot be switched by hand', strayed.schema_name, strayed.heap_name),
                hint = format('frostline table row-security %I.%I %s', strayed.schema_name, strayed.table_name,
                              case when strayed.relrowsecurity then 'on' else 'off' end);
        end if;
        perform frostline.follow_policies(strayed.table_id);
    end loop;
end
$body$;
revoke execute on function frostline.follow_row_security() from public

-- name: relation_function
-- What Postgres lets a view pass and is said of the relation is done to the heap, which the relation follows: a column's name, its
-- default, a comment. Only where both have one owner, so whoever altered the one may alter the other. ACCESS EXCLUSIVE on the heap.
create or replace function frostline.follow_relation() returns event_trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $body$
declare
    now_age integer := age(pg_current_xact_id()::xid);
    altered record;
    changed record;
begin
    if frostline.is_following() or current_setting('frostline.guard', true) = 'off' and pg_has_role(session_user, current_user, 'member') then
        return;
    end if;
    for altered in
        select distinct t.table_id, d.command_tag, d.objsubid, r.oid as relation, r.relowner, h.oid as heap, h.relowner <> r.relowner as is_another
          from pg_event_trigger_ddl_commands() d
          join pg_class r on r.oid = d.objid and r.relkind = 'v'
          join frostline.managed_table t on r.oid = to_regclass(format('%I.%I', t.schema_name, coalesce(t.relation_name, t.table_name)))
          join pg_class h on h.oid = frostline.heap_of(t.table_id)
         where d.classid = 'pg_class'::regclass and t.mode = 'tiered'
    loop
        if altered.is_another and exists (select from pg_shdepend s where s.classid = 'pg_class'::regclass and s.objid = altered.relation
                                             and s.dbid = (select b.oid from pg_database b where b.datname = current_database())
                                             and s.deptype = 'o' and age(s.xmin) <= now_age) then
            raise object_not_in_prerequisite_state using
                message = format('%s cannot have another owner than %s, its heap', altered.relation::regclass, altered.heap::regclass),
                hint = format('alter table %s owner to %I; the relation follows', altered.heap::regclass, pg_get_userbyid(altered.relowner));
        end if;
        for changed in
            select 1 as step, format('rename column %I to %I', m.name, a.attname) as change, format('rename column %I to %I', a.attname, m.name) as back,
                   a.attname::text as column_name
              from pg_attribute a
              join frostline.managed_column m on m.table_id = altered.table_id
             where altered.command_tag <> 'COMMENT' and a.attrelid = altered.relation and age(a.xmin) <= now_age
               and not exists (select from frostline.managed_column n where n.table_id = altered.table_id and n.name = a.attname)
               and not exists (select from pg_attribute b where b.attrelid = altered.relation and b.attname = m.name)
            union all
            select 2, format('alter column %I %s', a.attname, coalesce('set default ' || pg_get_expr(d.adbin, d.adrelid), 'drop default')), null,
                   a.attname
              from frostline.relation_columns(altered.table_id) c
              join pg_attribute a on a.attrelid = altered.relation and a.attname = c.column_name and age(a.xmin) <= now_age
              left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
             where altered.command_tag <> 'COMMENT'
               and c.default_value is distinct from
                   case when c.identity <> '' then regexp_replace(pg_get_expr(d.adbin, d.adrelid), '^nextval\((.*)::regclass\)$', 'nextval(\1)')
                        else pg_get_expr(d.adbin, d.adrelid) end
             order by 1
        loop
            if altered.is_another then
                raise insufficient_privilege using message = format('%s has another owner than %s, its heap', altered.relation::regclass, altered.heap::regclass),
                    hint = format('alter table %s %s', altered.heap::regclass, changed.change);
            end if;
            if changed.back is not null then
                insert into frostline.following values (pg_current_xact_id(), altered.table_id);
                execute format('alter view %s %s', altered.relation::regclass, changed.back);
                delete from frostline.following f where f.xid = pg_current_xact_id() and f.table_id = altered.table_id;
            else
                perform frostline.refuse_untrusted_default(altered.relation, changed.column_name);
            end if;
            execute format('alter table %s %s', altered.heap::regclass, changed.change);
        end loop;
        if altered.command_tag = 'COMMENT' and not altered.is_another then
            perform frostline.comment_heap(altered.heap, altered.relation, altered.objsubid);
        end if;
    end loop;
end
$body$;
revoke execute on function frostline.follow_relation() from public

-- name: comment_function
-- What was said of the relation or a column of it, unless the heap's says the same already.
create or replace function frostline.comment_heap(heap oid, relation oid, number integer) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    name text := (select a.attname from pg_attribute a where a.attrelid = relation and a.attnum = number);
    heap_number integer := (select a.attnum from pg_attribute a where a.attrelid = heap and a.attname = name);
    said text := case number when 0 then obj_description(relation, 'pg_class') else col_description(relation, number) end;
begin
    if said is distinct from (case number when 0 then obj_description(heap, 'pg_class') else col_description(heap, heap_number) end) then
        execute format('comment on %s is %L',
                       case number when 0 then format('table %s', heap::regclass) else format('column %s.%I', heap::regclass, name) end, said);
    end if;
end
$$;
revoke execute on function frostline.comment_heap(oid, oid, integer) from public

-- name: drop_function
-- What a policy calls may be dropped with CASCADE, and takes the policy along. The relation depends on it too, and must not go.
create or replace function frostline.refuse_drop_of_policies_code() returns event_trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $body$
declare
    taken text := (select min(d.object_identity) from pg_event_trigger_dropped_objects() d
                    where not d.original and d.address_names[1] = 'frostline_write' and d.address_names[2] ~ '^may_(select|insert|update|become|delete)_\d+$');
begin
    if taken is not null and not frostline.is_following() and not exists (select from pg_event_trigger_dropped_objects() d
                                          where d.original and coalesce(d.schema_name, d.object_name) = any ({own_schemas})) then
        raise dependent_objects_still_exist using
            message = format('%s is used by a policy of %s', (select string_agg(d.object_identity, ', ') from pg_event_trigger_dropped_objects() d
                                                              where d.original),
                             (select format('%I.%I', t.schema_name, t.table_name) from frostline.managed_table t
                               where t.table_id = (regexp_match(taken, '^frostline_write\.may_[a-z]+_(\d+)\('))[1]::integer)),
            hint = 'Drop or change the policy first.';
    end if;
end
$body$;
revoke execute on function frostline.refuse_drop_of_policies_code() from public

-- name: exists
select array(select evtname::text from pg_event_trigger where evtname like 'frostline\_%%')

-- name: trigger
create event trigger frostline_partitions on ddl_command_end when tag in ('CREATE TABLE', 'ALTER TABLE')
    execute function frostline.refuse_partition_below_frost_line()

-- name: follow_trigger
create event trigger frostline_row_security on ddl_command_end
    when tag in ('CREATE POLICY', 'ALTER POLICY', 'ALTER TABLE')
    execute function frostline.follow_row_security()

-- name: dropped_trigger
create event trigger frostline_dropped_policies on sql_drop execute function frostline.follow_row_security()

-- name: drop_trigger
create event trigger frostline_drops on sql_drop execute function frostline.refuse_drop_of_policies_code()

-- name: code_trigger
create event trigger frostline_code on ddl_command_end
    when tag in ('CREATE TABLE', 'ALTER TABLE', 'CREATE INDEX', 'ALTER INDEX', 'CREATE STATISTICS', 'ALTER STATISTICS',
                 'ALTER DOMAIN', 'ALTER TYPE', 'CREATE CAST')
    execute function frostline.refuse_untrusted_code()

-- name: relation_trigger
create event trigger frostline_relation on ddl_command_end when tag in ('ALTER TABLE', 'ALTER VIEW', 'COMMENT')
    execute function frostline.follow_relation()

-- name: changes_trigger
create event trigger frostline_follow on ddl_command_end when tag in ('ALTER TABLE', 'COMMENT')
    execute function frostline.follow_ddl()

-- name: held_trigger
-- After frostline_follow, so that the relation has a new column: they fire in the order of their names.
create event trigger frostline_held on ddl_command_end when tag in ('ALTER TABLE', 'ALTER DOMAIN')
    execute function frostline.follow_constraints()

-- name: dropped_constraints_trigger
create event trigger frostline_dropped_constraints on sql_drop execute function frostline.follow_dropped_constraints()

-- name: names_trigger
-- They fire in the order of their names, and this one is the first.
create event trigger frostline_called on ddl_command_end when tag in ('ALTER TABLE', 'ALTER VIEW', 'ALTER SCHEMA')
    execute function frostline.follow_names()

-- name: parents_trigger
-- After frostline_follow, which does the same where the managed table itself is altered.
create event trigger frostline_parents on ddl_command_end when tag in ('ALTER TABLE', 'CREATE TABLE')
    execute function frostline.follow_parents()

-- name: rights_trigger
create event trigger frostline_rights on ddl_command_end when tag in ('GRANT', 'REVOKE', 'DROP OWNED')
    execute function frostline.follow_granted()

-- name: types_trigger
create event trigger frostline_types on ddl_command_end when tag in ('ALTER TYPE') execute function frostline.follow_types()

-- name: children_trigger
create event trigger frostline_children on ddl_command_end when tag in ('ALTER TABLE') execute function frostline.hold_cold_children()

-- name: heap_named_trigger
create event trigger frostline_heap_named on ddl_command_start
    when tag in ('ALTER TABLE', 'CREATE INDEX', 'CREATE TRIGGER', 'CREATE STATISTICS', 'CREATE POLICY', 'COMMENT')
    execute function frostline_write.name_the_heap()

-- name: order_trigger
create event trigger frostline_order on ddl_command_start when tag in ('ALTER TABLE')
    execute function frostline_write.take_relations_first()

-- name: aside_trigger
-- By its name it comes after the one before.
create event trigger frostline_stand_aside on ddl_command_start when tag in ('ALTER TABLE')
    execute function frostline.stand_aside_first()
