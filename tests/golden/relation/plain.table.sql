create table public.sources (source int primary key);
create table public.events (
    id bigint not null,
    ts timestamptz not null default now(),
    status text,
    source int references public.sources on delete cascade,
    primary key (id, ts)
) partition by range (ts);
create table public.events_2024 partition of public.events for values from ('2024-01-01') to ('2025-01-01');
comment on table public.events is 'what happened';
comment on column public.events.status is 'how it went';
