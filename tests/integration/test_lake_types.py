"""Every type of Postgres on a lake table: written in every way, and read back as a plain table has it."""

from collections.abc import Callable, Iterator, Sequence

import psycopg
import pytest
from tests.fixtures.lake import Lake
from tests.fixtures.statements import rows, run, value
from tests.fixtures.type_zoo import CONDITIONS, EVERY_KIND, ODD_SESSION, Kind, prepared

from frostline.catalog import lake_tables as catalog
from frostline.catalog.pointers import Pointer
from frostline.lake.lake_table import Layout
from frostline.model.names import Name
from frostline.pipeline import lake_compact, lake_tables, lake_verify

BOTH = ("zoo", "plain")
LOOP = """
do $$ declare r {t}%rowtype; begin
    for r in select * from {t} where id < 1000 loop r.id := r.id + 1000; insert into {t} select (r).*; end loop;
end $$"""
WAYS = {
    "select": "select array_agg(id order by id) from {t} where {c}",
    "delete": "with x as (delete from {t} where {c} returning id) select array_agg(id order by id) from x",
    "update": "with x as (update {t} set id = -id - 1 where {c} returning id) select array_agg(id order by id) from x",
}


class Zoo:
    """`zoo`, a lake table, and `plain`, which is none; and the rows that they are to have."""

    def __init__(self, lake: Lake, psql: psycopg.Connection, kinds: Sequence[Kind]) -> None:
        self.lake, self.psql, self.kinds = lake, psql, kinds
        self.count = max(len(kind.values) for kind in kinds) + 1
        self.texts = ", ".join(f"{kind.column}::text" for kind in kinds)
        self.casts = [f"%s{kind.cast}" for kind in kinds]

    def given(self, number: int) -> list[str | None]:
        """The texts of one row; the last one is all NULL."""
        return [kind.values[number] if number < len(kind.values) else None for kind in self.kinds]

    def fill(self, *tables: str) -> None:
        """A statement for each row."""
        for number in range(self.count):
            for table in tables:
                run(self.psql, f"insert into {table} values ({number}, {', '.join(self.casts)})", self.given(number))

    def assigned(self, right: Callable[[Kind], str]) -> str:
        """What UPDATE sets."""
        return ", ".join(f"{kind.column} = {right(kind)}" for kind in self.kinds)

    def both(self, statement: str, values: Sequence[object] | None = None) -> None:
        """Do the same to both."""
        counts = [run(self.psql, statement.replace("{t}", table), values).rowcount for table in BOTH]
        assert counts[0] == counts[1] > 0, statement

    def compare(self, expected_rows: int) -> None:
        """Column by column, so that the kind is named; then as COPY prints them, all together."""
        query = f"select id, {self.texts} from {{t}} order by id"
        there, here = (list(zip(*rows(self.psql, query.replace("{t}", table)), strict=True)) for table in BOTH)
        assert len(here[0]) == expected_rows
        for name, ours, theirs in zip(["id", *(kind.name for kind in self.kinds)], there, here, strict=True):
            assert ours == theirs, name
        assert self.copied("zoo") == self.copied("plain")

    def copied(self, table: str) -> bytes:
        """The table as COPY TO prints it."""
        statement = f"copy (select * from {table} order by id) to stdout"
        with self.psql.cursor() as cursor, cursor.copy(statement.encode()) as copy:
            return b"".join(bytes(part) for part in copy)


@pytest.fixture
def zoo(lake: Lake) -> Iterator[Zoo]:
    """Both tables, empty."""
    kinds = prepared(lake.catalog)
    columns = ["id integer", *(f"{kind.column} {kind.type}" for kind in kinds)]
    lake_tables.create(lake.catalog, lake.settings, Name("public", "zoo"), columns, Layout())
    run(lake.catalog, f"create table public.plain ({', '.join(columns)})")
    with lake.connect() as psql:
        yield Zoo(lake, psql, kinds)


def test_inserted_values_are_those_of_a_plain_table(zoo: Zoo) -> None:
    zoo.fill(*BOTH)
    zoo.compare(zoo.count)
    run(zoo.psql, "create temp table source as table plain")
    zoo.both("insert into {t} select * from source")
    zoo.compare(2 * zoo.count)


def test_values_are_the_same_whatever_the_settings_of_the_session_that_writes(zoo: Zoo) -> None:
    zoo.fill("plain")
    with zoo.lake.connect() as odd:
        run(odd, ODD_SESSION)
        run(odd, "insert into zoo select * from plain")
    zoo.compare(zoo.count)


def test_copied_values_are_those_of_a_plain_table(zoo: Zoo) -> None:
    zoo.fill("plain")
    content = zoo.copied("plain")
    with zoo.psql.cursor() as cursor, cursor.copy("copy zoo from stdin") as copy:
        copy.write(content)
    zoo.compare(zoo.count)


def test_updated_values_are_those_of_a_plain_table(zoo: Zoo) -> None:
    """One row by a whole UPDATE, by its `ctid`, and joined; and rows of which only another column is set."""
    zoo.both("insert into {t} (id) select generate_series(0, %s)", [3 * zoo.count - 1])
    for number in range(zoo.count):
        for first, more in ((0, ""), (zoo.count, " and random() < 2")):
            values = iter(zoo.casts)
            statement = f"update {{t}} set {zoo.assigned(lambda _: next(values))} where id = {first + number}{more}"  # noqa: B023
            zoo.both(statement, zoo.given(number))
    run(zoo.psql, "create temp table source as table plain")
    joined = zoo.assigned(lambda kind: f"s.{kind.column}")
    zoo.both(f"update {{t}} set {joined} from source s where s.id = {{t}}.id - {2 * zoo.count}")
    zoo.compare(3 * zoo.count)
    zoo.both("update {t} set id = id + 1000 where id % 2 = 0")
    zoo.both("update {t} set id = id + 2000 where id % 2 = 1 and random() < 2")
    zoo.compare(3 * zoo.count)


def test_a_cursor_and_a_loop_give_every_value_as_it_was(zoo: Zoo) -> None:
    zoo.fill(*BOTH)
    query = f"select id, {zoo.texts} from {{t}} order by id"
    expected = rows(zoo.psql, query.replace("{t}", "plain"))
    with zoo.psql.transaction():
        run(zoo.psql, f"declare all_of_it cursor for {query.replace('{t}', 'zoo')}")
        read = rows(zoo.psql, "fetch 2 from all_of_it")
        run(zoo.psql, f"update zoo set {zoo.assigned(lambda _: 'null')}")
        read += rows(zoo.psql, "fetch all from all_of_it")
        assert read == expected
        zoo.both("delete from {t}")
        zoo.fill(*BOTH)
    for table in BOTH:
        run(zoo.psql, LOOP.replace("{t}", table))
    zoo.compare(2 * zoo.count)


def test_compaction_keeps_every_value(zoo: Zoo) -> None:
    zoo.fill(*BOTH)
    zoo.both("update {t} set id = id + 100 where id in (1, 3)")
    zoo.both("delete from {t} where id = 2")
    pointer = catalog.load(zoo.lake.catalog, Pointer("public", "zoo"))
    (done,) = lake_compact.run(zoo.lake.jobs(), [pointer])
    assert (done.error, done.changed) == (None, True)
    zoo.compare(zoo.count - 1)
    zoo.both("update {t} set id = id + 1000")
    zoo.compare(zoo.count - 1)
    assert lake_verify.run(zoo.lake.catalog, pointer, history=True).faults == ()


def test_every_value_is_found_by_equality(zoo: Zoo) -> None:
    zoo.fill(*BOTH)
    for kind in zoo.kinds:
        for text in kind.values if kind.has_equality else ():
            there, here = found(zoo, "select", f"{kind.column} = %s{kind.cast}", [text])
            assert there == here, (kind.name, text)
            assert there, (kind.name, text)


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_conditions_choose_the_rows_that_they_choose_in_a_plain_table(zoo: Zoo, way: str) -> None:
    zoo.fill(*BOTH)
    absent = [kind.column for kind in EVERY_KIND if kind not in zoo.kinds]
    different: list[object] = []
    for condition in CONDITIONS:
        if not any(column in condition for column in absent):
            there, here = found(zoo, way, condition)
            different += [] if there == here else [(condition, there, here)]
    assert different == []


def found(zoo: Zoo, way: str, condition: str, values: Sequence[object] | None = None) -> list[object]:
    """The numbers of the rows in either table, or the error that Postgres raises. Nothing stays changed."""
    return [attempted(zoo.psql, WAYS[way].replace("{t}", table).replace("{c}", condition), values) for table in BOTH]


def attempted(psql: psycopg.Connection, statement: str, values: Sequence[object] | None) -> object:
    try:
        with psql.transaction(force_rollback=True):
            return value(psql, statement, values)
    except psycopg.DataError as error:
        return error.sqlstate
