-- The demo's table, its rows and the questions asked of it. Runs in a database that the demo has just made.

-- name: create_table
create table public.events (
    id           bigint generated always as identity,
    ts           timestamptz not null,
    user_id      uuid not null,
    kind         text not null,
    country      text not null,
    page         text not null,
    duration_ms  integer not null,
    amount       numeric(12,2),
    succeeded    boolean not null,
    properties   jsonb not null,
    primary key (id, ts)
) partition by range (ts)

-- name: create_partitions
-- This month and the 24 before it.
do $$
declare
    first_day timestamptz := date_trunc('month', now()) - interval '24 months';
    month timestamptz;
begin
    for month in select generate_series(first_day, date_trunc('month', now()), interval '1 month') loop
        execute format('create table public.%I partition of public.events for values from (%L) to (%L)',
                       'events_' || to_char(month, 'YYYY_MM'), month, month + interval '1 month');
    end loop;
end
$$

-- name: load
-- In the order in which they happened, from the first partition's first day until now. Purchases have an amount.
insert into public.events (ts, user_id, kind, country, page, duration_ms, amount, succeeded, properties)
select e.ts,
       md5('user ' || floor(50000 * e.r1 * e.r1))::uuid,
       e.kind,
       (array['DE', 'US', 'US', 'GB', 'FR', 'IN', 'BR', 'JP'])[1 + floor(8 * e.r2)::int],
       (array['/', '/search', '/cart', '/help', '/item/'])[1 + e.place] || case when e.place = 4 then floor(2000 * e.r1)::text else '' end,
       floor(20 + 3000 * e.r1 * e.r2)::int,
       case when e.kind = 'purchase' then round((5 + 495 * e.r1 * e.r1)::numeric, 2) end,
       e.r2 < 0.97,
       jsonb_build_object('browser', (array['firefox', 'chrome', 'safari'])[1 + floor(3 * e.r1)::int],
                          'build', 4100 + e.n / 20000, 'tags', jsonb_build_array('web', e.kind))
  from (select n, r1, r2, d.first_day + (now() - d.first_day) * (n / %(rows)s::float8) as ts,
               (array['view', 'view', 'view', 'click', 'click', 'purchase'])[1 + floor(6 * r3)::int] as kind,
               floor(5 * r3)::int as place
          from (select date_trunc('month', now()) - interval '24 months' as first_day) d,
               (select n, random() as r1, random() as r2, random() as r3 from generate_series(0, %(rows)s - 1) n) r) e

-- name: create_index
create index on public.events (user_id, ts)

-- name: analyze
analyze public.events

-- name: by_month
select to_char(ts, 'YYYY-MM') as month, count(*) as events, count(amount) as purchases, sum(amount) as revenue
  from public.events group by 1 order by 1

-- name: whole
-- Every value of every row goes into these three.
select count(*) as events, sum(amount) as revenue, sum(hash_record_extended(e, 0)) as fingerprint from public.events e

-- name: hot_query
select count(*), sum(amount) from public.events where ts >= now() - interval '7 days'

-- name: cold_key
select id, ts::text from public.events where ts < now() - interval '1 year' order by ts desc limit 1

-- name: cold_query
select * from public.events where id = %(id)s and ts = %(ts)s::timestamptz

-- name: explain
-- Put before a query.
explain (analyze, verbose, costs off, timing off, summary off, buffers off)

-- name: by_tier
-- The inner view also says where each row came from.
select case frostline_tier when 'heap' then 'Postgres' else 'the lake' end as rows_from, count(*) as events
  from {inner} group by 1 order by 1

-- name: heap_bytes
-- Rows and indexes of all partitions.
select coalesce(sum(pg_total_relation_size(relid)), 0)::bigint from pg_partition_tree(%(heap)s::regclass)

-- name: database_bytes
select pg_database_size(current_database())
