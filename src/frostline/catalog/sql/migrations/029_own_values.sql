-- Rows of files that lack a column of type uuid may have a value of their own each: docs/design/added-columns.md. Then
-- managed_column.missing says how it is computed from the row's key, as key_v1 writes it; any other missing value is itself.
create function frostline.missing_v1(missing text, key text) returns text
language sql immutable set search_path = pg_catalog, pg_temp as $$
    select case when p.part is null then missing else
               concat(substr(d.digits, 1, 8), '-', substr(d.digits, 9, 4), '-', p.part[1], substr(d.digits, 14, 3), '-',
                      translate(substr(d.digits, 17, 1), '0123456789abcdef', '89ab89ab89ab89ab'), substr(d.digits, 18, 3), '-',
                      substr(d.digits, 21, 12)) end
      from (select regexp_match(missing, '^uuid([47])([0-9a-f]{12})?:([0-9a-f]{24}):(?:\d+[a-z]\d*,?)+$')) as p (part)
     cross join lateral (select concat(p.part[2], encode(sha256(convert_to(concat(p.part[3], key), 'UTF8')), 'hex'))) as d (digits)
$$;
revoke execute on function frostline.missing_v1(text, text) from public;
