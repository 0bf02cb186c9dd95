"""The reader of docs/reference/seam-protocol.md sees what the relation shows, whatever is done to the table meanwhile."""

import importlib.util
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql
from tests.fixtures.cold_twins import release
from tests.fixtures.lake import Lake
from tests.fixtures.roles import role
from tests.fixtures.seam_table import archive, change, fold, freeze, make, next_month, partition, shown
from tests.fixtures.statements import rows, run, value
from tests.fixtures.states import expired, location

from frostline.model import keys
from frostline.relation import following, policy

pytestmark = pytest.mark.spark

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture
def reader() -> Any:
    """The page's example, as a module of its own for each test."""
    spec = importlib.util.spec_from_file_location("seam_reader", DOCS / "examples" / "seam_reader.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def events(lake: Lake) -> Lake:
    """That table, in a lake of the test's own."""
    return make(lake)


@pytest.fixture(scope="module")
def frozen(shared_lake: Lake) -> Lake:
    """One for the whole module: a test changes it as it likes, but leaves a table that the reader can read."""
    freeze(make(shared_lake))
    return shared_lake


@pytest.fixture
def cold(frozen: Lake) -> Lake:
    """Months in the lake only, some of it changed since."""
    change(frozen)
    return frozen


def agree(lake: Lake, reader: Any) -> None:
    expected = shown(lake)
    assert expected.total() > 100
    assert Counter(reader.read(lake.dsn, "public", "events")) == expected
    assert value(lake.catalog, "select count(*) from frostline.pin") == 0


def count(lake: Lake, what: str) -> Any:
    """How many rows a part of the table has."""
    parts = {"heap": "public._events", "overlay": f"frostline_overlay.{lake.table().internal}"}
    seam = "(select line_timestamptz from frostline.seam)"
    table, _, condition = what.partition(" ")
    return value(lake.catalog, f"select count(*) from {parts[table]} where {condition.replace('T', seam) or 'true'}")


def test_the_reader_agrees_all_through_the_life_of_a_table(events: Lake, reader: Any) -> None:
    agree(events, reader)
    assert location_or_none(events) is None
    archive(events)
    assert count(events, "heap ts < T") == 86
    agree(events, reader)
    change(events)
    assert count(events, "overlay frostline_live") > 0 < count(events, "overlay not frostline_live")
    agree(events, reader)
    set_line(events, "2024-02-01 00:00+00")
    agree(events, reader)
    set_line(events, "2024-03-01 00:00+00")
    events.undo(to="2024-02-01 00:00:00+00")
    assert value(events.catalog, "select frost_line from frostline.seam_v1") == "2024-02-01 00:00:00+00"
    agree(events, reader)
    run(events.catalog, "delete from public._events where code = '😀' and ts between '2024-02-01' and '2024-02-02'")
    assert count(events, "overlay ts >= T") > 0
    agree(events, reader)
    release(events)
    archive(events)
    agree(events, reader)
    fold(events)
    policy.change(events.catalog, events.table(), grace_period="0")
    assert events.clean().waiting == ()
    assert (count(events, "heap ts < T"), count(events, "overlay")) == (0, 0)
    agree(events, reader)


def test_the_reader_agrees_when_a_column_was_added(events: Lake, reader: Any) -> None:
    archive(events)
    change(events)
    run(events.catalog, "alter table public._events add column extra text")
    following.follow(events.catalog, events.table())
    run(events.catalog, "update public.events set extra = 'here' where code = 'a'")
    for job in (lambda _: None, fold):
        job(events)
        assert Counter(reader.read(events.dsn, "public", "events")) == shown(events, "extra")


def test_the_reader_agrees_when_columns_were_added_with_defaults(events: Lake, reader: Any) -> None:
    defaults = {
        "boolean": "true",
        "bigint": "5",
        "real": "0.1",
        "double precision": "'-Infinity'",
        "numeric(12, 2)": "1.5",
        "date": "'2024-02-29'",
        "timestamp": "'2024-02-29 12:00:00.000001'",
        "timestamptz": "now()",
        "text": "'it''s'",
        "bytea": "'\\x00ff'",
        "jsonb": """'{"a": 1}'""",
        "public.mood": "'wild'",
    }
    archive(events)
    change(events)
    added = [f"add column c{n} {kind} not null default {text}" for n, (kind, text) in enumerate(defaults.items())]
    run(events.catalog, f"alter table public._events {', '.join(added)}, add column extra int default 7")
    following.follow(events.catalog, events.table())
    run(events.catalog, "update public.events set extra = null where code = 'a'")
    more = [f"c{n}::text" if kind in ("jsonb", "public.mood") else f"c{n}" for n, kind in enumerate(defaults)]
    for job in (lambda _: None, fold):
        job(events)
        assert Counter(reader.read(events.dsn, "public", "events")) == shown(events, *more, "extra")


def set_line(lake: Lake, line: str) -> None:
    """T alone, while the heap has everything: then the lake has rows above it, which nobody shows."""
    run(lake.catalog, f"update frostline.seam set line_timestamptz = '{line}'")


def location_or_none(lake: Lake) -> Any:
    return value(lake.catalog, "select metadata_location from frostline.seam_v1")


def test_the_reader_agrees_after_rows_are_gone_for_good(events: Lake, reader: Any) -> None:
    freeze(events)
    change(events)
    period = value(events.catalog, "select (now() - timestamptz '2024-01-01 12:00+00')::text")
    policy.change(events.catalog, events.table(), retention_period=period)
    with events.connect() as writer, writer.transaction():
        # It began before R rose, so its row stays below R until the next run, and the relation shows it.
        run(writer, "insert into public.events (ts, code, piece) values ('2018-01-01', 'below R', '')")
        (result,) = events.retain()
        assert result.error is None, result.error
    assert value(events.catalog, "select retained from frostline.seam_v1") == "2024-01-01 00:00:00+00"
    assert [code for code, ts, *_ in shown(events) if ts.year < 2024] == ["below R"]
    agree(events, reader)


KINDS = [
    ("date", "'2024-01-01'", "'2024-02-01'", "'2090-01-01'", "'2090-02-01'", "1 month"),
    ("timestamp", "'2024-01-01'", "'2024-02-01'", "'2090-01-01'", "'2090-02-01'", "1 month"),
    ("smallint", "-100", "0", "0", "32000", "100"),
    ("integer", "-100", "0", "0", "2000000000", "100"),
    ("bigint", "-5000000000", "0", "0", "5000000000", "100"),
]


@pytest.mark.slow
def test_the_reader_agrees_for_every_kind_of_tier_key(lake: Lake, reader: Any) -> None:
    for kind, *bounds, hot in KINDS:
        name = f'"of {kind}"'
        run(
            lake.catalog,
            f'create table public.{name} ("tier Key" {kind} primary key, note text) partition by range ("tier Key")',
        )
        for number, (lower, upper) in enumerate((bounds[:2], bounds[2:])):
            part = f'public."{kind} {number}"'
            run(lake.catalog, f"create table {part} partition of public.{name} for values from ({lower}) to ({upper})")
            run(
                lake.catalog,
                f"insert into public.{name} values ({lower}, 'first'), ({upper}::{kind} - {step(kind)}, 'last')",
            )
        lake.add(name, hot=hot)
    assert [result.error for result in lake.archive()] == [None] * len(KINDS)
    for kind, lower, *_ in KINDS:
        with lake.connect() as connection:
            run(connection, f"""update public."of {kind}" set note = 'changed' where "tier Key" = {lower}""")
            expected = rows(connection, f"""select * from public."of {kind}" order by 1""")
        assert sorted(reader.read(lake.dsn, "public", f"of {kind}")) == expected
        assert [note for _, note in expected] == ["changed", "last", "first", "last"]
    below = "select count(*) from frostline.seam_v1 where snapshot_id is not null and frost_line_axis >= 0"
    assert value(lake.catalog, below) == len(KINDS)


def step(kind: str) -> str:
    return "interval '1 us'" if kind == "timestamp" else "1::smallint" if kind == "smallint" else "1"


# Each of these puts a step of somebody else between two steps of the reader.

GAPS = ["from_postgres", "pinned", "from_lake"]
"""After T and S were read; after heap and overlay were read; after the pin was made and their transaction has ended."""


def before(monkeypatch: pytest.MonkeyPatch, reader: Any, name: str, act: Callable[[], object]) -> None:
    real = getattr(reader, name)

    def late(*arguments: Any) -> Any:
        act()
        return real(*arguments)

    monkeypatch.setattr(reader, name, late)


@pytest.mark.parametrize("gap", GAPS)
def test_an_archive_in_between_changes_nothing(
    cold: Lake, reader: Any, monkeypatch: pytest.MonkeyPatch, gap: str
) -> None:
    """It raises T over rows of the heap, which are cleaned at once if nobody can need them."""
    month = next_month(cold)
    add = "insert into public.events (ts, code, piece) select %s, 'month', i from generate_series(1, 9) i"
    run(cold.catalog, add, (month,))
    expected = shown(cold)

    def act() -> None:
        archive(cold)
        change(cold)
        run(cold.catalog, "delete from public.events where code = 'month' and ts = %s and piece < '4'", (month,))
        waiting = {kept.partition for kept in cold.clean().waiting}
        assert (partition(month) in waiting) == (gap != "from_lake")

    before(monkeypatch, reader, gap, act)
    assert Counter(reader.read(cold.dsn, "public", "events")) == expected
    monkeypatch.undo()
    agree(cold, reader)
    assert shown(cold) != expected


@pytest.mark.parametrize("gap", GAPS)
def test_folds_and_an_expiry_in_between_change_nothing(
    cold: Lake, reader: Any, monkeypatch: pytest.MonkeyPatch, gap: str
) -> None:
    expected, state = shown(cold), Path(location(cold).removeprefix("file://"))

    def act() -> None:
        fold(cold)
        change(cold)
        expired(cold)
        assert state.exists()

    before(monkeypatch, reader, gap, act)
    assert Counter(reader.read(cold.dsn, "public", "events")) == expected
    monkeypatch.undo()
    assert expired(cold).snapshots > 0
    assert not state.exists(), "nothing but the reader held it"
    agree(cold, reader)


@pytest.mark.parametrize("expires", [False, True])
def test_what_is_read_after_the_pin_ran_out_does_not_count(
    cold: Lake, reader: Any, monkeypatch: pytest.MonkeyPatch, expires: bool
) -> None:
    def act() -> None:
        run(cold.catalog, "update frostline.pin set expires_at = clock_timestamp() - interval '1 s'")
        if expires:
            fold(cold)
            assert expired(cold).snapshots > 0

    before(monkeypatch, reader, "from_lake", act)
    with pytest.raises(TimeoutError, match="read again"):
        reader.read(cold.dsn, "public", "events")
    assert value(cold.catalog, "select count(*) from frostline.pin") == 0


def test_the_heap_may_be_read_for_longer_than_a_pin_lasts(
    cold: Lake, reader: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = reader.from_postgres

    def long(*arguments: Any) -> Any:
        read_rows = list(real(*arguments))
        run(cold.catalog, "update frostline.pin set expires_at = clock_timestamp() - interval '1 s'")
        return read_rows

    monkeypatch.setattr(reader, "from_postgres", long)
    agree(cold, reader)


def test_the_pin_is_renewed_while_the_lake_is_read(cold: Lake, reader: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    real, seen = reader.from_lake, []

    def watched(*arguments: Any) -> Any:
        run(cold.catalog, "update frostline.pin set expires_at = clock_timestamp() + interval '30 s'")
        for row in real(*arguments):
            seen.append(
                value(cold.catalog, "select expires_at > clock_timestamp() + interval '60 s' from frostline.pin")
            )
            yield row

    monkeypatch.setattr(reader, "from_lake", watched)
    reader.read(cold.dsn, "public", "events", seconds=600)
    assert set(seen) == {True}


@pytest.fixture
def guest(cold: Lake) -> Iterator[str]:
    """A role with the grants of the page and no others; gives its connection string."""
    page = (DOCS / "reference" / "seam-protocol.md").read_text(encoding="utf-8")
    grants = "grant usage" + page.partition("```sql\ngrant usage")[2].partition("```")[0]
    with role(cold.dsn, "frostline_reader") as dsn:
        run(cold.catalog, grants.replace("lake_reader", "frostline_reader").replace("events_1", cold.table().internal))
        yield dsn


def test_a_reader_with_the_grants_of_the_page_is_enough(cold: Lake, reader: Any, guest: str) -> None:
    assert Counter(reader.read(guest, "public", "events")) == shown(cold)


def test_a_session_in_another_time_zone_finds_the_keys_of_the_hour_that_comes_twice(
    cold: Lake, reader: Any, guest: str
) -> None:
    """Python calls no time of that hour in Berlin equal to one in UTC, so marks would hide nothing there."""
    run(cold.catalog, "alter role frostline_reader set timezone = 'Europe/Berlin'")
    assert count(cold, "overlay code = 'autumn'") == 2
    read_rows = Counter(reader.read(guest, "public", "events"))
    assert sorted(f"{ts:%H:%M%z}" for code, ts, *_ in read_rows if code == "autumn") == ["00:30+0000", "01:30+0000"]
    assert read_rows == shown(cold)


RENAMES = [("code", "kind"), ("ts", "code"), ("amount", "old"), ("flag", "amount")]


def test_a_column_that_was_renamed_in_the_heap_is_still_the_same_one(cold: Lake, reader: Any) -> None:
    """The relation and the overlay keep the names. One here has a name that another column has in the overlay."""
    rename = "alter table public._events rename column {} to {}"
    expected = shown(cold)
    try:
        for old, new in RENAMES:
            run(cold.catalog, rename.format(old, new))
        assert value(cold.catalog, "select tier_key from frostline.seam_v1") == "code"
        assert Counter(reader.read(cold.dsn, "public", "events")) == expected
    finally:
        for old, new in reversed(RENAMES):
            run(cold.catalog, rename.format(new, old))
    agree(cold, reader)


def test_a_value_that_python_cannot_hold_is_an_error(cold: Lake, reader: Any) -> None:
    changed = "update public.events set day = 'infinity' where code = '' and ts = '2024-01-01 01:00+00'"
    run(cold.catalog, changed)
    with pytest.raises(psycopg.DataError):
        reader.read(cold.dsn, "public", "events")
    fold(cold)
    with pytest.raises(OverflowError):
        reader.read(cold.dsn, "public", "events")
    assert value(cold.catalog, "select count(*) from frostline.pin") == 0
    run(cold.catalog, changed.replace("'infinity'", "null"))
    fold(cold)
    agree(cold, reader)


def test_a_key_is_the_same_text_in_postgres_and_in_the_lake(cold: Lake, reader: Any) -> None:
    """The parts of the key that the reader gets are texts already, but for the time."""
    made = "select frostline.key_v1(frostline.text_v1(ts), frostline.text_v1(code), frostline.text_v1(piece)) from public.events"
    read = [
        keys.encode([f"{ts:%Y-%m-%d %H:%M:%S}+00", code, piece])
        for code, ts, piece, *_ in reader.read(cold.dsn, "public", "events")
    ]
    assert sorted(read) == sorted(key for (key,) in rows(cold.catalog, made))
    assert len(set(read)) == len(read)


MOVE = """
with taken as (update public.events set amount = amount - 1 where code = 'from' and piece = %(one)s returning 1)
update public.events set amount = amount + 1, ts = %(ts)s where code = 'from' and piece = %(other)s"""


def test_while_writers_archive_and_fold_run_every_read_is_one_point_in_time(cold: Lake, reader: Any) -> None:
    """Each write takes from one row what it gives another, and moves that over the frost line: sum and count stay."""
    tiers = ["2024-01-05 00:00+00", "2024-02-05 00:00+00", "2090-01-05 00:00+00"]
    for number in range(12):
        add = "insert into public.events (ts, code, piece, amount) values (%s, 'from', %s, 100)"
        run(cold.catalog, add, (tiers[number % 3], str(number)))
    reader.HOT = sql.SQL("select {} from {}, pg_sleep(0.1) where {} >= {}")  # it takes its time
    over, written, reads = threading.Event(), [0], [0]

    def write() -> None:
        with cold.connect() as connection:
            while not over.is_set():
                number = written[0]
                first, other = str(number % 12), str((number * 5 + 1) % 12)
                try:
                    run(connection, MOVE, {"one": first, "other": other, "ts": tiers[number // 7 % 3]})
                except psycopg.errors.SerializationFailure:
                    continue
                written[0] += 1

    def read() -> None:
        while not over.is_set():
            read_rows = [row for row in reader.read(cold.dsn, "public", "events") if row[0] == "from"]
            assert (len(read_rows), sum(row[4] for row in read_rows)) == (12, 1200)
            assert len({row[2] for row in read_rows}) == 12
            reads[0] += 1

    with ThreadPoolExecutor(2) as pool:
        work = [pool.submit(write), pool.submit(read)]
        try:
            add = "insert into public.events (ts, code, piece) values (%s, 'm', '')"
            run(cold.catalog, add, (next_month(cold),))
            archive(cold)
            fold(cold)
            expired(cold)
        finally:
            over.set()
        assert [worker.result() for worker in work] == [None, None]
    assert written[0] > 0 < reads[0]
    agree(cold, reader)


def test_a_table_that_is_rewritten_meanwhile_does_not_count(
    events: Lake, reader: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its older snapshot would be shown neither the hot rows nor the marks."""
    archive(events)
    change(events)
    run(events.catalog, "alter table public._events add column n int default 1")
    following.follow(events.catalog, events.table())
    real: Callable[..., Any] = reader.from_postgres

    def rewritten(*arguments: Any) -> Any:
        run(events.catalog, f"vacuum full frostline_overlay.{events.table().internal}")
        return real(*arguments)

    monkeypatch.setattr(reader, "from_postgres", rewritten)
    with pytest.raises(LookupError, match="read it again"):
        reader.read(events.dsn, "public", "events")
    monkeypatch.setattr(reader, "from_postgres", real)
    assert Counter(reader.read(events.dsn, "public", "events")) == shown(events, "n")
