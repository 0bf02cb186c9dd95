"""The table that most cases ask about: five million events of ten columns, in ten monthly partitions."""

from datetime import UTC, datetime

from benchmarks.world import World

ROWS = 5_000_000
MONTHS = 10
COLD = datetime(2024, 10, 1, tzinfo=UTC)
"""In an archived table the rows before this are cold: nine of the ten months."""
COLUMNS = "id, ts, device, status, amount, temperature, ok, note, payload, updated"
_TABLE = """
create table public.{name} (
    id bigint, ts timestamptz, device integer not null, status text not null, amount numeric(12,2), temperature double precision,
    ok boolean, note text, payload jsonb, updated timestamp, primary key (id, ts)
) partition by range (ts)"""
_PARTITION = "create table public.{name}_{0:02} partition of public.{name} for values from ('2024-{0:02}-01') to ('2024-{1:02}-01')"
_ROWS = """
insert into public.{name}
select i, timestamptz '2024-01-01 00:00+00' + make_interval(months => (i / ({rows} / 10 + 1))::int)
          + interval '1 day' * (28.0 * (i % ({rows} / 10 + 1)) / ({rows} / 10 + 1)),
       hashint8(i) & 1023, (array['ok', 'ok', 'ok', 'ok', 'ok', 'ok', 'failed', 'pending'])[1 + (hashint8(i + 1) & 7)],
       (hashint8(i + 2) & 999999) / 100.0, 15 + (hashint8(i + 3) & 255) / 10.0::float8, i % 7 <> 0,
       case when i % 10 = 0 then 'note ' || (hashint8(i + 4) & 65535) end,
       jsonb_build_object('sensor', 's' || (hashint8(i) & 1023), 'unit', 'C', 'seq', i, 'battery', hashint8(i + 5) & 127),
       timestamp '2024-01-01' + interval '1 s' * i
  from generate_series(0, {rows} - 1) i"""


def rows(scale: float) -> int:
    """So many rows has the table, at that scale."""
    return int(ROWS * scale)


def plain(world: World, scale: float) -> None:
    """`plain`: a partitioned table as Postgres has it, vacuumed; Frostline knows nothing of it."""
    create(world, "plain", scale)


def small(world: World, scale: float) -> None:
    """`plain` with a hundredth of its rows, to warm up with."""
    create(world, "plain", scale / 100)


def archived(world: World, scale: float) -> None:
    """`plain`, and `events` with the same rows, of which nine months are in the lake only."""
    create(world, "plain", scale)
    create(world, "events", scale)
    world.add("events", hot_period())
    assert not world.archive("events").cleaned.waiting
    world.run("vacuum analyze public._events")


def hot_period(cold: datetime = COLD) -> str:
    """The period that makes everything before that moment ripe, and nothing after it."""
    return f"{(datetime.now(UTC) - cold).days} days"


def create(world: World, name: str, scale: float) -> None:
    """A partitioned table with all rows, vacuumed."""
    world.run(_TABLE.format(name=name))
    for month in range(1, MONTHS + 1):
        world.run(_PARTITION.format(month, month + 1, name=name))
    world.run(_ROWS.format(name=name, rows=rows(scale)))
    world.run(f"vacuum analyze public.{name}")


def ts_of(row: int, scale: float) -> str:
    """The SQL of the time of the row with that id."""
    count = rows(scale)
    return (
        f"timestamptz '2024-01-01 00:00+00' + make_interval(months => ({row} / ({count} / 10 + 1))::int) "
        f"+ interval '1 day' * (28.0 * ({row} % ({count} / 10 + 1)) / ({count} / 10 + 1))"
    )
