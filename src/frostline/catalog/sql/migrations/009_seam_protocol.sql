-- What readers outside Postgres may rely on: docs/reference/seam-protocol.md. The tables behind these views may change
-- with any version; what ends in _v1 keeps its columns and their meaning.

create function frostline.seam_protocol() returns integer
language sql immutable set search_path = pg_catalog, pg_temp as 'select 1';

-- The one text of a value, whatever the session's settings are.
create function frostline.text_v1(value anyelement) returns text
language sql stable strict set search_path = pg_catalog, pg_temp
set timezone = 'UTC' set datestyle = 'ISO' set intervalstyle = 'postgres' set extra_float_digits = 1
set bytea_output = 'hex' as 'select value::text';

-- A tier value as a number that any engine can compare: microseconds or days since 1970, or the integer itself.
create function frostline.axis_v1(tier_value text, tier_kind text) returns bigint
language sql stable strict set search_path = pg_catalog, pg_temp set timezone = 'UTC' set datestyle = 'ISO' as $$
    select case
        when tier_kind in ('smallint', 'integer', 'bigint') then tier_value::bigint
        when tier_value in ('infinity', '-infinity') then
            case tier_kind when 'date' then 2147483647 else 9223372036854775807 end
            * case tier_value when 'infinity' then 1 else -1 end
        when tier_kind = 'date' then tier_value::date - date '1970-01-01'
        when tier_kind = 'timestamp without time zone' then (extract(epoch from tier_value::timestamp) * 1000000)::bigint
        when tier_kind = 'timestamp with time zone' then (extract(epoch from tier_value::timestamptz) * 1000000)::bigint
    end
$$;

-- One value for a key of several columns. Between two parts stands chr(31), and nowhere else. Null without parts, or
-- when one of them is null: then it is no key.
create function frostline.key_v1(variadic parts text[]) returns text
language sql immutable strict set search_path = pg_catalog, pg_temp as $$
    select case when array_position(parts, null) is null
                then string_agg(replace(replace(p.part, '\', '\\'), chr(31), '\u'), chr(31) order by p.position) end
      from unnest(parts) with ordinality as p (part, position)
$$;

-- The heap and the overlay of each table, for the views and pin_v1; readers have no rights on it. It asks for no right:
-- the function below runs as its owner, so each of them asks for the caller's.
create view frostline.seam_relation as
select t.table_id, t.schema_name, t.table_name, t.tier_kind,
       heap.oid as heap_oid, format('%I.%I', n.nspname, heap.relname) as heap, own.overlay
  from frostline.managed_table t
  join pg_namespace n on n.nspname = t.schema_name
  join pg_class heap on heap.relnamespace = n.oid and heap.relname = '_' || t.table_name
 cross join lateral (select '_' || t.table_id as text) suffix
 -- The cast to `name` cuts between characters, as the name was cut when the overlay was made.
 cross join lateral (
    select substr((repeat('_', length(suffix.text)) || t.table_name)::name::text, length(suffix.text) + 1)
           || suffix.text as overlay) own
 where t.mode = 'tiered';

-- Where the tiers of each table meet. A role sees the tables whose heap it may read. Names of columns are the heap's.
create view frostline.seam_v1 with (security_barrier) as
select t.table_id, t.schema_name, t.table_name, t.heap, format('frostline_overlay.%I', t.overlay) as overlay,
       array(select a.attname::text
               from pg_index i
              cross join unnest(i.indkey::smallint[]) with ordinality as k (attnum, position)
               join pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.attnum
              where i.indrelid = t.heap_oid and i.indisprimary
              order by k.position) as key_columns,
       a.attname::text as tier_key, t.tier_kind,
       line.frost_line, frostline.axis_v1(line.frost_line, t.tier_kind) as frost_line_axis,
       s.snapshot_id, s.metadata_location,
       line.retained, frostline.axis_v1(line.retained, t.tier_kind) as retained_axis
  from frostline.seam_relation t
  join frostline.seam s on s.table_id = t.table_id
  join pg_partitioned_table p on p.partrelid = t.heap_oid
  join pg_attribute a on a.attrelid = t.heap_oid and a.attnum = p.partattrs[0]
 cross join lateral (
    select coalesce(frostline.text_v1(s.line_timestamptz), frostline.text_v1(s.line_timestamp),
                    frostline.text_v1(s.line_date), s.line_integer::text) as frost_line,
           coalesce(frostline.text_v1(s.retained_timestamptz), frostline.text_v1(s.retained_timestamp),
                    frostline.text_v1(s.retained_date), s.retained_integer::text) as retained) line
 where has_table_privilege(t.heap_oid, 'select');

-- How each column travels. A restored dump numbers columns anew, in the same order, without the gaps that dropped ones
-- left; so a gap in our numbers that is no dropped column tells of a restore, and the order decides. The overlay has the
-- columns in that order too, under the names that they had when it was made.
create view frostline.seam_column_v1 with (security_barrier) as
with heap as (
    select t.table_id, t.heap_oid as oid, overlay.oid as overlay_oid
      from frostline.seam_relation t
      left join pg_class overlay on overlay.relname = t.overlay
                                and overlay.relnamespace = (select n.oid from pg_namespace n
                                                             where n.nspname = 'frostline_overlay')
     where has_table_privilege(t.heap_oid, 'select')
), managed as (
    select m.*, row_number() over (partition by m.table_id order by m.attnum) as place, h.oid
      from frostline.managed_column m join heap h on h.table_id = m.table_id
), present as (
    select h.table_id, a.attnum, a.attname, a.atttypid, a.atttypmod,
           row_number() over (partition by h.table_id order by a.attnum) as place
      from heap h join pg_attribute a on a.attrelid = h.oid and a.attnum > 0 and not a.attisdropped
), marked as (
    select h.table_id, a.attname, row_number() over (partition by h.table_id order by a.attnum) as place
      from heap h join pg_attribute a on a.attrelid = h.overlay_oid and a.attnum > 0 and not a.attisdropped
), restored as (
    select h.table_id, exists (
        select from generate_series(1, (select max(m.attnum) from managed m where m.table_id = h.table_id)) as gap (number)
         where not exists (select from managed m where m.table_id = h.table_id and m.attnum = gap.number)
           and not exists (select from pg_attribute a
                            where a.attrelid = h.oid and a.attnum = gap.number and a.attisdropped)) as is_true
      from heap h
)
select m.table_id, (row_number() over (partition by m.table_id order by p.attnum))::integer as position,
       p.attname::text as name, o.attname::text as overlay_name, format_type(p.atttypid, p.atttypmod) as type,
       m.field_id, m.lake_type, m.as_text
  from managed m
  join restored r on r.table_id = m.table_id
  join present p on p.table_id = m.table_id
                and case when r.is_true then p.place = m.place else p.attnum = m.attnum end
  left join marked o on o.table_id = m.table_id and o.place = m.place;

-- Who made a pin through pin_v1 may renew and release it through these, and nobody else's.
alter table frostline.pin add column made_by name not null default session_user;

-- Who pins is the role of the session, as SET ROLE has it: inside, current_user is the owner. A table that is not there
-- is left to the foreign key. That locks the state (FOR KEY SHARE): it waits for an expiry that is just committing, and
-- then fails.
create function frostline.pin_v1(table_id integer, metadata_location text, holder text, seconds double precision)
returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp set lock_timeout = '5s' as $$
declare
    made bigint;
    caller name := coalesce(nullif(current_setting('role'), 'none'), session_user);
begin
    perform frostline.check_pin_seconds(pin_v1.seconds);
    if exists (select from frostline.seam_relation t
                where t.table_id = pin_v1.table_id and not has_table_privilege(caller, t.heap_oid, 'select')) then
        raise insufficient_privilege using
            message = format('role %I may not read table %s', caller, pin_v1.table_id),
            hint = 'Grant it select on the heap, as the page of the seam protocol says.';
    end if;
    insert into frostline.pin (table_id, metadata_location, holder, expires_at)
    values (pin_v1.table_id, pin_v1.metadata_location, pin_v1.holder,
            clock_timestamp() + make_interval(secs => pin_v1.seconds))
    returning pin_id into made;
    return made;
exception when foreign_key_violation then
    raise foreign_key_violation using
        message = format('table %s has no state %s any more', pin_v1.table_id, pin_v1.metadata_location),
        hint = 'Read the seam again, and pin the state that it names.';
end
$$;

-- False when the pin has run out, or is not the caller's: it stays so, and what was read under it does not count.
create function frostline.renew_pin_v1(pin_id bigint, seconds double precision) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform frostline.check_pin_seconds(renew_pin_v1.seconds);
    update frostline.pin p set expires_at = clock_timestamp() + make_interval(secs => renew_pin_v1.seconds)
     where p.pin_id = renew_pin_v1.pin_id and p.made_by = session_user and p.expires_at > clock_timestamp();
    return found;
end
$$;

-- True when the pin held until now.
create function frostline.release_pin_v1(pin_id bigint) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    held boolean;
begin
    delete from frostline.pin p where p.pin_id = release_pin_v1.pin_id and p.made_by = session_user
    returning p.expires_at > clock_timestamp() into held;
    return coalesce(held, false);
end
$$;

-- A pin that lasts for days would keep files for a reader that died long ago.
create function frostline.check_pin_seconds(seconds double precision) returns void
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
begin
    if seconds > 0 and seconds <= 3600 then
        return;
    end if;
    raise invalid_parameter_value using
        message = format('a pin cannot last %s seconds', coalesce(seconds::text, 'null')),
        hint = 'Give 3600 seconds or less, and renew it.';
end
$$;

-- Nobody but the role that installed Frostline, until it grants them to a reader.
revoke execute on function
    frostline.seam_protocol(), frostline.text_v1(anyelement), frostline.axis_v1(text, text), frostline.key_v1(text[]),
    frostline.pin_v1(integer, text, text, double precision), frostline.renew_pin_v1(bigint, double precision),
    frostline.release_pin_v1(bigint), frostline.check_pin_seconds(double precision)
from public;
