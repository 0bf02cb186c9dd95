-- name: extension
create extension if not exists postgres_fdw with schema public

-- name: server_options
select coalesce((select jsonb_object_agg(option_name, option_value) from pg_options_to_table(srvoptions)), '{{}}')
  from pg_foreign_server where srvname = 'frostline_lake'

-- name: create_server
create server frostline_lake foreign data wrapper postgres_fdw
    options (host {host}, port {port}, dbname 'lake', fetch_size '1000', keep_connections 'on', sslmode 'prefer'{passfile})

-- name: alter_server
alter server frostline_lake options ({changes})

-- name: mapping_options
-- How the connected role gets to the lake server: by its own mapping, else by that for everybody, as postgres_fdw chooses. The options
-- of the latter are hidden from all but the server's owner.
select coalesce((select jsonb_object_agg(option_name, option_value) from pg_options_to_table(umoptions)), '{{}}')
  from pg_user_mappings where srvname = 'frostline_lake' and (usename = current_user or umuser = 0)
 order by umuser = 0 limit 1

-- name: is_for_all
-- Whether every role has a way to the lake server: docs/design/lake-tables.md.
select exists (select from pg_user_mappings where srvname = 'frostline_lake' and umuser = 0)

-- name: other_mappings
select usename::text from pg_user_mappings where srvname = 'frostline_lake' and umuser <> 0 order by 1

-- name: create_mapping
create user mapping for {role} server frostline_lake options ({changes})

-- name: alter_mapping
alter user mapping for {role} server frostline_lake options ({changes})

-- name: drop_mapping
drop user mapping for {role} server frostline_lake

-- name: is_superuser
select rolsuper from pg_roles where rolname = current_user

-- name: strangers
-- Roles with a foreign table of the server, or with USAGE on it, that are not in the role of its owner. Locks nothing.
select format('role %I owns foreign table %I.%I', pg_get_userbyid(c.relowner), n.nspname, c.relname),
       format('alter foreign table %I.%I owner to %I', n.nspname, c.relname, pg_get_userbyid(s.srvowner))
  from pg_foreign_server s
  join pg_foreign_table f on f.ftserver = s.oid
  join pg_class c on c.oid = f.ftrelid
  join pg_namespace n on n.oid = c.relnamespace
 where s.srvname = 'frostline_lake' and c.relowner <> s.srvowner and not pg_has_role(c.relowner, s.srvowner, 'member')
union all
select format('%s may use the server frostline_lake', case when a.grantee = 0 then 'everybody' else format('role %I', pg_get_userbyid(a.grantee)) end),
       format('revoke usage on foreign server frostline_lake from %s',
              case when a.grantee = 0 then 'public' else quote_ident(pg_get_userbyid(a.grantee)) end)
  from pg_foreign_server s
 cross join aclexplode(s.srvacl) a
 where s.srvname = 'frostline_lake' and a.privilege_type = 'USAGE' and a.grantee <> s.srvowner
   and (a.grantee = 0 or not pg_has_role(a.grantee, s.srvowner, 'member'))
 order by 1
