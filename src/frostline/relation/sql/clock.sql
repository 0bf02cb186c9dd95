-- name: now_timestamptz
select now()::text

-- name: now_time
select (now() at time zone 'UTC')::{kind}::text

-- name: before_timestamptz
select (now() - {period}::interval)::text

-- name: before_time
select ((now() at time zone 'UTC') - {period}::interval)::{kind}::text

-- name: highest
-- ACCESS SHARE. By an index where there is one.
select max({tier_key})::text from {relation}
