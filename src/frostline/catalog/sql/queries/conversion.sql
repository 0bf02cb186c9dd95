-- name: exclusive
-- Advisory, held by the session: one conversion of a table at a time. A dead session holds it until Postgres notices.
select pg_advisory_lock(hashtextextended('frostline convert ' || %(name)s, 0))

-- name: unlock
select pg_advisory_unlock(hashtextextended('frostline convert ' || %(name)s, 0))

-- name: running
select conversion_id as id, original, tier_key, every as partition_interval, keep_old, shape, state, position, rows, filled_xid::text
  from frostline.conversion
 where schema_name = %(schema)s and table_name = %(table)s and state not in ('done', 'abandoned')

-- name: start
insert into frostline.conversion (schema_name, table_name, original, tier_key, every, keep_old, shape)
values (%(schema)s, %(table)s, %(original)s, %(tier_key)s, %(partition_interval)s, %(keep_old)s, %(shape)s)
returning conversion_id

-- name: move
-- In the transaction of the step itself where that has one. Row lock.
update frostline.conversion set state = %(state)s, changed_at = now() where conversion_id = %(id)s

-- name: copied
-- In the transaction that copied the rows.
update frostline.conversion set position = %(position)s::text[], rows = rows + %(rows)s, changed_at = now()
 where conversion_id = %(id)s

-- name: filled
-- Whoever has a snapshot from before this transaction does not see all rows of the copy.
update frostline.conversion set state = 'filled', filled_xid = pg_current_xact_id(), changed_at = now()
 where conversion_id = %(id)s

-- name: is_inherited
select exists (select from pg_inherits where inhparent = %(oid)s or inhrelid = %(oid)s)

-- name: plain_key
-- The primary key as a plain index: checked at once, without INCLUDE, no WITHOUT OVERLAPS. And its name.
select c.conname, c.oid, not c.condeferrable and not i.indisexclusion and i.indnatts = i.indnkeyatts
  from pg_constraint c join pg_index i on i.indexrelid = c.conindid
 where c.conrelid = %(oid)s and c.contype = 'p'

-- name: unique_elsewhere
-- Unique indexes that Postgres could not keep on a table partitioned by the tier key.
select i.indexrelid::regclass::text
  from pg_index i
 where i.indrelid = %(oid)s and i.indisunique and not i.indisprimary and not i.indisexclusion
   and not exists (select from pg_attribute a
                    where a.attrelid = i.indrelid and a.attname = %(tier_key)s
                      and a.attnum = any ((i.indkey::int2[])[0:i.indnkeyatts - 1]))
 order by 1

-- name: unfit_constraints
-- Exclusion constraints; what was never validated, of which the copy of a row could be refused; and what partitions
-- could not inherit. Not our own.
select conname, case when contype = 'x' then 'excludes' when not convalidated then 'unvalidated' else 'uninherited' end
  from pg_constraint
 where conrelid = %(oid)s and conname <> 'frostline_not_null'
   and (contype = 'x' or contype in ('c', 'f') and not convalidated or contype in ('c', 'n') and connoinherit)
 order by 1

-- name: unfit_triggers
-- Row triggers with transition tables; Postgres has none on partitioned tables.
select tgname from pg_trigger
 where tgrelid = %(oid)s and not tgisinternal and tgtype & 1 = 1 and num_nonnulls(tgoldtable, tgnewtable) > 0
 order by 1

-- name: replicated_by
select 'publication ' || quote_ident(p.pubname)
  from pg_publication p
 where p.puballtables or exists (select from pg_publication_rel r where r.prpubid = p.oid and r.prrelid = %(oid)s)
    or exists (select from pg_publication_namespace s join pg_class c on c.relnamespace = s.pnnspid
                where s.pnpubid = p.oid and c.oid = %(oid)s)
 union all
select 'a subscription' where exists (select from pg_subscription_rel where srrelid = %(oid)s)
 order by 1

-- name: identity_index
select relreplident = 'i' from pg_class where oid = %(oid)s

-- name: hidden_rows
-- Whether row security keeps rows from the connected role or from the table's owner.
select relforcerowsecurity and relrowsecurity or row_security_active(oid) from pg_class where oid = %(oid)s

-- name: owner_may
-- Whether the owner can do what the trigger and the copy do in the owner's name.
select has_schema_privilege(relowner, relnamespace, 'usage') and has_table_privilege(relowner, oid, 'select')
       and has_table_privilege(relowner, oid, 'update')
  from pg_class where oid = %(oid)s

-- name: holders
-- Whatever holds the table by its oid and could not be told that another takes its place: rules, and policies or
-- constraints of other tables. Views and functions are replaced; what is the table's own goes with it.
select distinct pg_describe_object(d.classid, d.objid, d.objsubid)
  from pg_depend d
  left join pg_rewrite w on d.classid = 'pg_rewrite'::regclass and w.oid = d.objid
  left join pg_policy p on d.classid = 'pg_policy'::regclass and p.oid = d.objid
  left join pg_trigger t on d.classid = 'pg_trigger'::regclass and t.oid = d.objid
 where d.refclassid = 'pg_class'::regclass and d.refobjid = %(oid)s
   and (w.rulename <> '_RETURN' or p.polrelid <> %(oid)s or t.tgrelid <> %(oid)s and not t.tgisinternal)
 order by 1

-- name: key_holders
-- Views and functions that group by the primary key alone: they would not be valid any more.
select distinct pg_describe_object(d.classid, d.objid, d.objsubid)
  from pg_depend d join pg_constraint c on c.oid = d.refobjid
 where d.refclassid = 'pg_constraint'::regclass and c.conrelid = %(oid)s and c.contype = 'p'
   and d.classid in ('pg_rewrite'::regclass, 'pg_proc'::regclass)
 order by 1

-- name: shape
-- Everything that the copy was made after, in one value. Our own constraint does not count.
select md5(concat_ws(E'\n', c.relreplident, c.reloptions::text, c.reltablespace, c.relowner,
           (select string_agg(concat_ws(' ', a.attnum, a.attname, format_type(a.atttypid, a.atttypmod), a.attcollation,
                              a.attnotnull, a.attidentity, a.attgenerated, pg_get_expr(d.adbin, d.adrelid)), E'\n'
                              order by a.attnum)
              from pg_attribute a left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
             where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped),
           (select string_agg(pg_get_indexdef(i.indexrelid), E'\n' order by i.indexrelid::regclass::text)
              from pg_index i where i.indrelid = c.oid),
           (select string_agg(o.conname || ' ' || pg_get_constraintdef(o.oid), E'\n' order by o.conname)
              from pg_constraint o where o.conrelid = c.oid and o.conname <> 'frostline_not_null')))
  from pg_class c
 where c.oid = %(oid)s
