-- name: digest
-- Row lock: two programs that start at once install it one after the other.
select digest from frostline.generator for update

-- name: forget_templates
delete from frostline.relation_template

-- name: insert_template
insert into frostline.relation_template (name, text) values (%(name)s, %(text)s)

-- name: set_digest
update frostline.generator set digest = %(digest)s

-- name: keep_for_us
-- Nobody else calls them, but for what describes a table's columns to whoever may read the catalog.
do $$
declare
    ours regprocedure;
begin
    for ours in
        select p.oid from pg_catalog.pg_proc p
         where p.pronamespace = 'frostline'::pg_catalog.regnamespace
           and p.proname = any (array['identifier', 'cut_name', 'filled', 'is_changed', 'lake_encoding', 'address_text', 'object_definition',
                                      'missing_value', 'made_of_types', 'has_one_text', 'constant_default', 'takes_null', 'says_added', 'filled_by', 'own_missing_value', 'fill_waiting_rows', 'name_remote_columns', 'add_columns', 'columns_left_to_sync', 'refuse_columns',
                                      'replace_objects', 'needs_aside', 'says_cascade', 'says_only_casts', 'says_using', 'widens', 'changed_columns',
                                      'renumber_columns', 'refuse_changes', 'drop_readers', 'forget_columns', 'change_types',
                                      'put_aside_readers', 'bring_back_readers', 'make_relation', 'untrusted_defaults',
                                      'refuse_untrusted_default', 'refuse_readers_of_inner',
                                      'sequence_options', 'unfilled_columns', 'refuse_unfilled_columns', 'refuse_other_key',
                                      'changed_generations', 'note_generations', 'refuse_other_generation'])
            or p.pronamespace = 'frostline'::pg_catalog.regnamespace and p.proname ~ '^(relation|follow|widen|stand|cold|names)_'
    loop
        execute pg_catalog.format('revoke execute on function %s from public', ours);
    end loop;
end
$$

-- name: objects
-- For the heap as it is. Reads system catalogs and our own tables; locks nothing.
select o.object from frostline.relation_objects(%(table_id)s) as o order by o.place

-- name: state
-- ACCESS SHARE on what a view or rule of them reads, as every reader takes it.
select s.object, s.key, s.is_present, s.digest
  from frostline.relation_state(%(table_id)s) with ordinality as s (object, key, is_present, digest, place)
 order by s.place

-- name: follow_renames
-- ACCESS EXCLUSIVE on the views, the overlay and the lake's tables.
select frostline.follow_renames(%(table_id)s)

-- name: add_columns
-- ACCESS EXCLUSIVE on the overlay and the lake's tables.
select frostline.add_columns(%(table_id)s, %(older)s::jsonb)

-- name: widen_relation
-- ACCESS EXCLUSIVE on the views.
select frostline.widen_relation(%(table_id)s)

-- name: follow_descriptions
-- ACCESS EXCLUSIVE on the relation where a default, a comment or the owner differs.
select frostline.follow_descriptions(%(table_id)s)

-- name: follow_keys
-- SHARE ROW EXCLUSIVE on a referenced table that gets a trigger, ACCESS EXCLUSIVE on one that loses it.
select frostline.follow_keys(%(table_id)s)

-- name: stand_aside
-- ACCESS EXCLUSIVE on the views.
select frostline.stand_aside(%(table_id)s, %(statement)s)

-- name: follow_heap
-- Unless an event trigger has done it. ACCESS EXCLUSIVE on the views, the overlay and the lake's tables.
select frostline.follow_heap(a.table_id) from frostline.aside a where a.xid = pg_current_xact_id() and a.table_id = %(table_id)s

-- name: record_constraints
-- Row locks on what is known of them, where something has changed.
select frostline.cold_record(t.table_id) from frostline.managed_table t
 where t.mode = 'tiered' and frostline.heap_of(t.table_id) is not null and t.table_id = coalesce(%(table_id)s, t.table_id)

-- name: unseen_constraints
-- Takes no lock.
select c.kind, c.name from frostline.cold_constraints(%(table_id)s) c
 where c.is_valid and c.state is distinct from 'held' and exists (select from frostline.lake_file f where f.table_id = %(table_id)s)
 order by c.kind, c.number

-- name: look_at_cold_rows
-- Asks the lake; locks nothing but the record.
select frostline.cold_look(%(table_id)s, %(kind)s, %(name)s)

-- name: stale_defaults
-- Reads catalogs only.
select d.column_name from frostline.relation_stale_defaults(%(table_id)s) as d

-- name: note_generations
-- Row locks on the columns that are computed otherwise than before.
select frostline.note_generations(%(table_id)s)

-- name: changed_generations
-- Reads catalogs only.
select g.column_name, g.is_plain from frostline.changed_generations(%(table_id)s) g order by g.attnum

-- name: note_rights
select frostline.relation_note_rights(%(table_id)s)

-- name: is_stale
-- Reads catalogs only.
select exists (select from frostline.relation_stale_rights(%(table_id)s))
       or exists (select from frostline.relation_stale_numbers(%(table_id)s))
       or not frostline.relation_is_owners(%(table_id)s)

-- name: object_digests
-- A JSON object, one digest for each; older versions kept one for all.
select objects_digest from frostline.managed_table where table_id = %(table_id)s

-- name: lock_objects
-- Two that renew one table would change the same functions. Row lock as the update below takes it: no key is locked.
select from frostline.managed_table where table_id = %(table_id)s for no key update

-- name: set_object_digests
update frostline.managed_table set objects_digest = %(digests)s where table_id = %(table_id)s

-- name: begin_following
-- Until the end of the transaction, or of what follows.
insert into frostline.following values (pg_current_xact_id(), %(table_id)s)

-- name: end_following
delete from frostline.following where xid = pg_current_xact_id() and table_id = %(table_id)s
