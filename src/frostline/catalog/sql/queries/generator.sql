-- name: digest
-- Row lock: two programs that start at once install it one after the other.
select digest from frostline.generator for update

-- name: forget_templates
delete from frostline.relation_template

-- name: insert_template
insert into frostline.relation_template (name, text) values (%(name)s, %(text)s)

-- name: set_digest
update frostline.generator set digest = %(digest)s

-- name: objects
-- For the heap as it is. Reads system catalogs and our own tables; locks nothing.
select o.object from frostline.relation_objects(%(table_id)s) as o order by o.place

-- name: state
-- ACCESS SHARE on what a view or rule of them reads, as every reader takes it.
select s.object, s.key, s.is_present, s.digest from frostline.relation_state(%(table_id)s) as s
