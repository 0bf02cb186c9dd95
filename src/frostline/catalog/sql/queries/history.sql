-- name: own_jobs
-- The ended jobs of a table whose files may be deleted: those of this very history, and of the others that it owns. In
-- a restored or promoted database `own_history` is a copy of somebody else's, which does not name this server; then it
-- says nothing. Locks nothing.
select j.job_id from frostline.job j
 where j.table_id = %(table_id)s and j.state in ('published', 'cleaned', 'failed')
   and (j.server = frostline.this_server()
        or %(every)s
        or j.server in (select o.server from frostline.own_history o)
           and exists (select from frostline.own_history o where o.server = frostline.this_server()))

-- name: take_over
-- Harmless to repeat.
insert into frostline.own_history (server)
select j.server from frostline.job j where j.server is not null
union select s.server from frostline.snapshot s
union select frostline.this_server()
on conflict (server) do nothing

-- name: is_copy
-- Whether this database was restored or promoted since a job of its history. Locks nothing.
select exists (select from frostline.job j
                where j.state in ('published', 'cleaned') and j.server <> frostline.this_server())
