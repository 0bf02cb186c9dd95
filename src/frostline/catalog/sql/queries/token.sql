-- name: create
-- Locks nothing. A second token of the same role is another one.
insert into frostline.token (token_hash, role_name, may_write, expires_at)
select %(token_hash)s, r.rolname, %(may_write)s, now() + make_interval(days => %(days)s)
  from pg_roles r
 where r.rolname = %(role)s
returning token_id, role_name as role, may_write, created_at, expires_at

-- name: list
-- Locks nothing.
select t.token_id, t.role_name as role, t.may_write, t.created_at, t.expires_at,
       (t.expires_at is null or t.expires_at > now()) and r.rolname is not null as is_valid
  from frostline.token t
  left join pg_roles r on r.rolname = t.role_name
 order by t.token_id

-- name: drop
-- Row lock; harmless to repeat.
delete from frostline.token where token_id = %(token_id)s

-- name: find
-- Whose token it is, as long as it is valid and the role is there. Locks nothing.
select t.role_name, t.may_write
  from frostline.token t
  join pg_roles r on r.rolname = t.role_name
 where t.token_hash = %(token_hash)s and (t.expires_at is null or t.expires_at > now())
