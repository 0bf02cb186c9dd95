-- name: join
-- First in the transaction of every task. Row security hides nothing: it is an error. ACCESS SHARE, as a reader has it: from here on nobody rewrites or empties the table.
set transaction snapshot {snapshot}; {settings}; set local row_security = off;
lock table only {target} in access share mode

-- name: check
-- After the lock, so the file is the one that will be read.
select pg_current_snapshot()::text as horizon, pg_relation_filenode({name}::regclass)::bigint as filenode,
       {is_as_it_was} as is_as_it_was

-- name: is_called
-- The name that the column with this number has now. A query of pg_attribute would show the name at the point.
(pg_identify_object('pg_class'::regclass, {name}::regclass, {number})).identity
  is not distinct from format('%I.%I.%I', {schema}, {relation}, {column})

-- name: types
-- When all columns are there. A change of a type's modifier either rewrites the table or leaves every value as it is.
select {is_as_it_was} as is_as_it_was

-- name: is_of_type
pg_typeof((null::{target}).{column})::oid = {type_id}

-- name: rows
-- Under the point's snapshot.
select {columns} from only {target} where {condition}
