create table public.messages (
    tenant name not null,
    day date not null,
    number smallint not null,
    body text not null,
    primary key (tenant, day, number)
) partition by range (day);
create table public.messages_2024 partition of public.messages for values from ('2024-01-01') to ('2025-01-01');
alter table public.messages enable row level security;
create policy own on public.messages using (tenant = current_user);
create policy readers on public.messages for select to pg_read_all_data using (true);
create policy no_shouting on public.messages as restrictive for insert with check (body <> upper(body));
