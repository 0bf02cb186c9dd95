-- name: fingerprint
select count(*), coalesce(sum({row_hash}), 0)::text from only {table}
