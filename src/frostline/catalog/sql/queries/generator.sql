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
-- Nobody else calls them.
revoke execute on function
    frostline.identifier(text[]), frostline.cut_name(text, text), frostline.filled(text, jsonb), frostline.carried_columns(integer, oid),
    frostline.relation_columns(integer), frostline.relation_names(integer), frostline.relation_lists(integer),
    frostline.relation_parts(integer), frostline.relation_objects(integer), frostline.relation_state(integer),
    frostline.replace_objects(integer), frostline.follow_renames(integer), frostline.add_columns(integer, jsonb),
    frostline.widen_relation(integer), frostline.follow_defaults(integer), frostline.follow_owner(integer),
    frostline.follow_comments(integer), frostline.follow_heap(integer) from public

-- name: objects
-- For the heap as it is. Reads system catalogs and our own tables; locks nothing.
select o.object from frostline.relation_objects(%(table_id)s) as o order by o.place

-- name: state
-- ACCESS SHARE on what a view or rule of them reads, as every reader takes it.
select s.object, s.key, s.is_present, s.digest from frostline.relation_state(%(table_id)s) as s

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
