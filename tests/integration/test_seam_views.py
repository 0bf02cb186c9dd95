"""What the catalog promises to readers outside Postgres: views, functions and rights that stay as the page says."""

import ast
import json
import re
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
from psycopg import sql
from tests.fixtures.golden import GOLDEN
from tests.fixtures.roles import role
from tests.fixtures.statements import rows, run, value
from tests.fixtures.tables import make_events

from frostline.catalog import seams, tables
from frostline.catalog.connect import Connection
from frostline.model.names import Name
from frostline.model.policy import Policy
from frostline.model.tables import Seam, Table
from frostline.model.tiers import TierKind, from_text, to_text
from frostline.partitions import partition_mode
from frostline.relation import names
from frostline.relation.registration import Request

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "reference" / "seam-protocol.md"
EXAMPLE = DOCS / "examples" / "seam_reader.py"
READER = "frostline_reader"
SESSIONS = [
    "set timezone = 'UTC'",
    "set timezone = 'Asia/Kolkata'; set datestyle = 'German'",
    "set timezone = 'America/St_Johns'; set datestyle = 'SQL, DMY'; set intervalstyle = 'sql_standard'",
    "set timezone = '-13:45'; set datestyle = 'Postgres, MDY'; set bytea_output = 'escape'; set extra_float_digits = -3",
    "set search_path = ''",
]
VECTORS = json.loads((GOLDEN / "keys.json").read_text(encoding="utf-8"))


@pytest.fixture(params=SESSIONS)
def session(request: pytest.FixtureRequest, shared_database: str, connect: Callable[..., psycopg.Connection]):
    """A session with settings of its own."""
    connection = connect(shared_database)
    run(connection, request.param)
    return connection


def test_postgres_writes_the_keys_as_the_vectors_say(session: psycopg.Connection) -> None:
    for vector in VECTORS:
        typed = [sql.SQL("frostline.text_v1({}::{})").format(text, sql.SQL(kind)) for kind, text in vector["values"]]
        query = sql.SQL("select array[{0}], frostline.key_v1({0})").format(sql.SQL(", ").join(typed))
        assert session.execute(query).fetchone() == (vector["parts"], vector["key"]), vector["of"]


@pytest.mark.parametrize("parts", ["null", "'a', null", "null, null"])
def test_a_key_with_a_null_is_none(catalog: Connection, parts: str) -> None:
    assert value(catalog, f"select frostline.key_v1({parts})") is None


def test_a_key_without_parts_is_none(catalog: Connection) -> None:
    assert value(catalog, "select frostline.key_v1(variadic array[]::text[])") is None


LINES = [
    (TierKind.TIMESTAMPTZ, ["-infinity", "0044-03-15 12:00:00+00 BC", "1969-12-31 23:59:59.999999+00", "infinity"]),
    (TierKind.TIMESTAMP, ["-infinity", "4714-11-24 00:00:00 BC", "2024-03-31 02:30:00", "294246-12-31 00:00:00.5"]),
    (TierKind.DATE, ["-infinity", "0001-12-31 BC", "2024-02-29", "5874897-12-31", "infinity"]),
    (TierKind.SMALLINT, ["-32768", "7"]),
    (TierKind.INTEGER, ["-2147483648", "0"]),
    (TierKind.BIGINT, ["-9223372036854775808", "9223372036854775807"]),
]


@pytest.mark.parametrize(("kind", "texts"), LINES)
def test_a_line_is_the_same_in_every_session(session: psycopg.Connection, kind: TierKind, texts: list[str]) -> None:
    for text in texts:
        said = f"select frostline.text_v1('{text}'::{kind}), frostline.axis_v1('{text}', '{kind}')"
        assert rows(session, said) == [(to_text(kind, from_text(kind, text)), from_text(kind, text))]


def test_the_seam_is_the_same_in_every_session(
    catalog: Connection, database: str, add: Callable[..., Table], connect: Callable[..., psycopg.Connection]
) -> None:
    make_events(catalog, "public.events")
    table = add("events")
    line, retained = (from_text(table.tier_kind, f"2024-0{month}-01 00:00:00+00") for month in (3, 2))
    seams.move(catalog, table, seams.get(catalog, table), Seam(table.id, line, 5, "file:///lake/metadata.json"))
    seams.retain(catalog, table, retained)
    expected = (
        table.id, "public", "events", "public._events", f"frostline_overlay.events_{table.id}", ["id", "ts"], "ts",
        "timestamp with time zone", "2024-03-01 00:00:00+00", line, 5, "file:///lake/metadata.json",
        "2024-02-01 00:00:00+00", retained,
    )  # fmt: skip
    for settings in SESSIONS:
        connection = connect(database)
        run(connection, settings)
        assert rows(connection, "select * from frostline.seam_v1") == [expected]


NAMES = ["events", "Two Words", 'a"b', "ä" * 31, "😀" * 15, "x" * 62, "select", "a.b", "{a}%s"]


def test_a_table_may_have_any_name(catalog: Connection, add: Callable[..., Table]) -> None:
    for name in NAMES:
        quoted = sql.Identifier("public", name).as_string(catalog)
        key = 'primary key ("b a", ts)'
        run(catalog, f'create table {quoted} (ts date, "b a" text, {key}) partition by range (ts)')
        table = add(quoted)
        described = (
            "select heap::regclass::oid, overlay::regclass::oid, key_columns from frostline.seam_v1 where table_id = %s"
        )
        overlay = value(catalog, "select %s::regclass::oid", (names.overlay(table).as_string(catalog),))
        assert rows(catalog, described, (table.id,)) == [(tables.heap_oid(catalog, table), overlay, ["b a", "ts"])]


COLUMNS = """
select position, name, type, field_id, lake_type, as_text, missing from frostline.seam_column_v1 where table_id = %s order by 1"""


def expected_columns(table: Table) -> list[tuple[object, ...]]:
    return [
        (
            number,
            column.name,
            column.pg_type.formatted,
            column.field_id,
            column.encoding.lake_type,
            column.encoding.as_text,
            None,
        )
        for number, column in enumerate(table.columns, 1)
    ]


@pytest.mark.parametrize("gap", [False, True])
@pytest.mark.parametrize("restored", [False, True])
def test_the_columns_are_those_of_the_relation(
    catalog: Connection, events: str, add: Callable[..., Table], gap: bool, restored: bool
) -> None:
    """A dropped column leaves a gap in the heap's numbers; the dump that is restored has none."""
    if gap:
        run(catalog, "alter table public.events drop column status")
    before = expected_columns(add(events))
    make_events(catalog, "public.others")
    add("others")
    assert len(before) == (4 if gap else 5)
    if restored:
        moved = "update frostline.managed_column set attnum = attnum + {} where table_id = 1"
        run(catalog, moved.format(100))
        run(catalog, moved.format(-99))
    table = tables.by_id(catalog, 1)
    assert rows(catalog, COLUMNS, (1,)) == expected_columns(table) == before
    assert rows(catalog, "select table_id, count(*) from frostline.seam_column_v1 group by 1 order by 1") == [
        (1, len(before)),
        (2, 5),
    ]


RENAMED = """
select c.name, c.overlay_name, c.field_id from frostline.seam_column_v1 c order by position"""


@pytest.mark.parametrize("gap", [False, True])
def test_a_column_renamed_in_the_heap_has_two_names(
    catalog: Connection, events: str, add: Callable[..., Table], gap: bool
) -> None:
    if gap:
        run(catalog, "alter table public.events drop column status")
    before = [(column.name, column.field_id) for column in add(events).columns]
    changed = {"id": "ts", "ts": "at"}
    run(catalog, "alter table public._events rename column ts to at")
    run(catalog, "alter table public._events rename column id to ts")
    run(catalog, "alter table public._events add column id text")
    assert rows(catalog, RENAMED) == [(changed.get(name, name), name, field_id) for name, field_id in before]
    assert rows(catalog, "select key_columns, tier_key from frostline.seam_v1") == [(["ts", "at"], "at")]


def test_a_table_without_a_lake_has_no_seam(catalog: Connection, events: str) -> None:
    partition_mode.add(catalog, Request(Name.parse(events), Policy()))
    assert value(catalog, "select count(*) from frostline.managed_table") == 1
    assert rows(catalog, "select * from frostline.seam_v1") == []
    assert rows(catalog, "select * from frostline.seam_column_v1") == []


STATE = "file:///lake/first.json"
PIN = "select frostline.pin_v1({}, '{}', 'tests', {})"


@pytest.fixture
def pinnable(catalog: Connection, events: str, add: Callable[..., Table]) -> Table:
    """A table whose lake has a state."""
    table = add(events)
    line = from_text(table.tier_kind, "2024-03-01 00:00:00+00")
    seams.move(catalog, table, seams.get(catalog, table), Seam(table.id, line, 5, STATE))
    return table


def test_a_pin_is_made_renewed_and_released(catalog: Connection, pinnable: Table) -> None:
    pin = value(catalog, PIN.format(pinnable.id, STATE, 60))
    ((pin_id, state, holder, until),) = rows(
        catalog, "select pin_id, metadata_location, holder, expires_at from frostline.pin"
    )
    assert (pin_id, state, holder) == (pin, STATE, "tests")
    assert value(catalog, f"select frostline.renew_pin_v1({pin}, 120)") is True
    assert value(catalog, "select expires_at > %s::timestamptz from frostline.pin", (until,))
    assert value(catalog, f"select frostline.release_pin_v1({pin})") is True
    assert rows(catalog, "select * from frostline.pin") == []
    assert value(catalog, f"select frostline.release_pin_v1({pin})") is False
    assert value(catalog, f"select frostline.renew_pin_v1({pin}, 60)") is False


def test_what_ran_out_is_neither_renewed_nor_called_held(catalog: Connection, pinnable: Table) -> None:
    pin = value(catalog, PIN.format(pinnable.id, STATE, 60))
    run(catalog, "update frostline.pin set expires_at = clock_timestamp() - interval '1 s'")
    assert value(catalog, f"select frostline.renew_pin_v1({pin}, 60)") is False
    assert value(catalog, f"select frostline.release_pin_v1({pin})") is False


def test_a_state_that_is_gone_is_refused_with_what_to_do(catalog: Connection, pinnable: Table) -> None:
    with pytest.raises(psycopg.errors.ForeignKeyViolation) as refused:
        run(catalog, PIN.format(pinnable.id, "file:///lake/gone.json", 60))
    said = refused.value.diag
    assert said.message_primary == f"table {pinnable.id} has no state file:///lake/gone.json any more"
    assert said.message_hint == "Read the seam again, and pin the state that it names."


@pytest.mark.parametrize("seconds", ["0", "-1", "3600.1", "'infinity'", "'nan'", "null"])
def test_a_pin_that_would_stay_for_ever_is_refused(catalog: Connection, pinnable: Table, seconds: str) -> None:
    pin = value(catalog, PIN.format(pinnable.id, STATE, 3600))
    for statement in (PIN.format(pinnable.id, STATE, seconds), f"select frostline.renew_pin_v1({pin}, {seconds})"):
        with pytest.raises(psycopg.errors.InvalidParameterValue, match="a pin cannot last"):
            run(catalog, statement)


@pytest.mark.slow
def test_a_pin_waits_for_an_expiry_but_not_for_ever(
    catalog: Connection, pinnable: Table, connect: Callable[..., psycopg.Connection], database: str
) -> None:
    with connect(database) as expiry, expiry.transaction():
        run(expiry, "select from frostline.lake_state for update")
        run(catalog, "set statement_timeout = '30s'")  # rather an error than a test without an end
        with pytest.raises(psycopg.errors.LockNotAvailable):
            run(catalog, PIN.format(pinnable.id, STATE, 60))


def page_grants(table: Table) -> str:
    """The statements that the page tells an operator to run, for this table and the tests' role."""
    (block,) = re.findall(r"```sql\n(grant .*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert "lake_reader" in block
    return block.replace("lake_reader", READER).replace("events_1", table.internal)


def acting(dsn: str, statement: str) -> list[tuple[object, ...]]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        return rows(connection, statement)


def test_a_reader_needs_every_grant_of_the_page_and_no_other(
    catalog: Connection, pinnable: Table, add: Callable[..., Table], database: str
) -> None:
    make_events(catalog, "public.others")
    add("others")
    with role(database, READER) as dsn:
        needs = [
            "select frostline.seam_protocol()",
            "select * from frostline.seam_v1",
            "select * from frostline.seam_column_v1",
            PIN.format(pinnable.id, STATE, 60),
            "select frostline.renew_pin_v1(1, 60)",
            "select frostline.release_pin_v1(1)",
            "select frostline.key_v1('a'), frostline.text_v1(1), frostline.axis_v1('1', 'bigint')",
            "select * from public._events",
            f"select * from frostline_overlay.{pinnable.internal}",
        ]
        for statement in needs:
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                acting(dsn, statement)
        run(catalog, page_grants(pinnable))
        for statement in needs:
            acting(dsn, statement)
        assert acting(dsn, "select table_name from frostline.seam_v1") == [("events",)]
        assert acting(dsn, "select distinct table_id from frostline.seam_column_v1") == [(pinnable.id,)]
        for table in ("frostline.seam", "frostline.pin", "frostline.lake_state", "public._others", "public.others"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                acting(dsn, f"select * from {table}")


def test_a_reader_cannot_touch_the_pin_of_another(catalog: Connection, pinnable: Table, database: str) -> None:
    pin = value(catalog, PIN.format(pinnable.id, STATE, 60))
    with role(database, READER) as dsn:
        run(catalog, page_grants(pinnable))
        assert acting(dsn, f"select frostline.renew_pin_v1({pin}, 60)") == [(False,)]
        assert acting(dsn, f"select frostline.release_pin_v1({pin})") == [(False,)]
        ((own,),) = acting(dsn, PIN.format(pinnable.id, STATE, 60))
        assert acting(dsn, f"select frostline.release_pin_v1({own})") == [(True,)]
    assert rows(catalog, "select pin_id from frostline.pin") == [(pin,)]


def test_a_reader_pins_only_tables_that_it_may_read(
    catalog: Connection, pinnable: Table, add: Callable[..., Table], database: str
) -> None:
    make_events(catalog, "public.others")
    other = add("others")
    with role(database, READER) as dsn:
        run(catalog, page_grants(pinnable))
        for table_id in (other.id, pinnable.id):
            with pytest.raises(psycopg.errors.InsufficientPrivilege) as refused:
                acting(dsn, PIN.format(table_id, STATE, 60))
            assert refused.value.diag.message_primary == f"role {READER} may not read table {table_id}"
            run(catalog, f"revoke select on public._events from {READER}")
    assert rows(catalog, "select * from frostline.pin") == []


def pin_as_reader(dsn: str, table: Table) -> None:
    """Who connects becomes the reader first, as behind a pool."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        run(connection, f"set role {READER}")
        run(connection, PIN.format(table.id, STATE, 60))


def test_a_pin_asks_for_the_rights_of_the_role_that_was_set(
    catalog: Connection, pinnable: Table, database: str
) -> None:
    """Neither for those of the function's owner nor, after SET ROLE, of who connected."""
    with role(database, READER), role(database, "frostline_pool") as pool:
        run(catalog, page_grants(pinnable))
        run(catalog, f"alter role frostline_pool noinherit; grant {READER} to frostline_pool")
        pin_as_reader(pool, pinnable)
        run(catalog, f"revoke select on public._events from {READER}")
        run(catalog, "grant select on public._events to frostline_pool")
        for who in (pool, database):
            with pytest.raises(psycopg.errors.InsufficientPrivilege, match=f"role {READER} may not"):
                pin_as_reader(who, pinnable)


@pytest.mark.parametrize("view", ["seam_v1", "seam_column_v1"])
def test_the_page_describes_every_column_of_the_views(catalog: Connection, view: str) -> None:
    _, _, section = PAGE.read_text(encoding="utf-8").partition(f"`frostline.{view}`")
    described = re.findall(r"^\| `(\w+)` \| (.*?) \|", section.partition("\n#")[0], re.MULTILINE)
    columns = """select attname::text, format_type(atttypid, atttypmod) from pg_attribute
                  where attrelid = %s::regclass and attnum > 0 order by attnum"""
    assert described == rows(catalog, columns, (f"frostline.{view}",))


def test_the_page_shows_every_vector() -> None:
    text = PAGE.read_text(encoding="utf-8")
    shown = "\n".join(f"{json.dumps(vector['parts'])}\n    {json.dumps(vector['key'])}" for vector in VECTORS)
    assert f"```\n{shown}\n```" in text


def test_the_page_has_the_reader_and_it_is_short() -> None:
    example = EXAMPLE.read_text(encoding="utf-8")
    assert f"```python\n{example}```" in PAGE.read_text(encoding="utf-8")
    assert len(example.splitlines()) <= 95
    imported = {
        name.name if isinstance(node, ast.Import) else node.module or ""
        for node in ast.walk(ast.parse(example))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in node.names
    }
    assert {name.partition(".")[0] for name in imported} == {"contextlib", "psycopg", "pyiceberg"}
