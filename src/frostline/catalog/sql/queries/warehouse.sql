-- name: find
select identity::text, location from frostline.warehouse

-- name: claim
insert into frostline.warehouse (location) values (%(location)s)
on conflict (only_one) do update set location = excluded.location
returning identity::text

-- name: forget
delete from frostline.warehouse

-- name: needed
-- The metadata of everything that this database has in the lake: of its tables, and of its snapshots of many tables. A
-- catalog outside Postgres has the latter in a warehouse of its own.
select s.metadata_location from frostline.seam s where s.metadata_location is not null
union all
select t.metadata_location from frostline.snapshot_table t join frostline.snapshot s using (snapshot_id)
 where s.state = 'published' and s.catalog_uri is null

-- name: snapshots
-- The names of snapshots of many tables whose files are in the warehouse.
select distinct s.name from frostline.snapshot s where s.state = 'published' and s.catalog_uri is null order by s.name
