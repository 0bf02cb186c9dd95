"""Nodes: another database that reads and writes the lake tables of a catalog through a lake server of its own."""

import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import conninfo, sql
from pyiceberg.types import DecimalType, IntegerType, LongType
from tests.fixtures.command import Command
from tests.fixtures.lake import Lake
from tests.fixtures.relay import relayed

from frostline.catalog import lake_tables as catalog
from frostline.catalog.pointers import LakeMove, Pointer
from frostline.errors import FrostlineError, UsageError
from frostline.lake import lake_commit, lake_publish, lake_table, pg_types, warehouse
from frostline.lake.lake_table import Layout
from frostline.model.names import Name
from frostline.pipeline import lake_tables
from frostline.runtime import lake_server
from frostline.runtime.postgres import Postgres, free_port
from frostline.server.writes import transaction
from frostline.settings import load

READINGS = ("id bigint not null", "ts timestamptz", "device text", "value numeric(6,2)", "data jsonb")


class Node:
    """A database that was attached, with its home and its lake server."""

    def __init__(self, lake: Lake, dsn: str, home: Path, command: Command) -> None:
        self.lake, self.dsn, self.home, self._command = lake, dsn, home, command
        self.port = free_port()

    def attach(self, *words: object) -> list[dict[str, Any]]:
        """What it says."""
        place = ("--home", self.home, "--dsn", self.dsn, "--catalog", self.lake.dsn, "--lake-port", self.port)
        said = self._command("lake", "attach", *place, "--output", "json", *words)
        assert said.exit_code == 0, said.stderr
        return json.loads(said.stdout)

    def refused(self, *words: object) -> str:
        """The error of an attach that is refused."""
        said = self._command("lake", "attach", "--dsn", self.dsn, "--catalog", self.lake.dsn, *words)
        assert said.exit_code == 2, said.stderr
        return said.stderr

    def changes(self, *words: object) -> dict[str, tuple[str, str | None]]:
        """The same by the foreign table's name."""
        return {each["table"]: (each["change"], each["columns"]) for each in self.attach(*words)}


@pytest.fixture
def node(lake: Lake, empty_database: str, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch) -> Node:
    """A database that is not attached yet."""
    for name in ("FROSTLINE_DSN", "FROSTLINE_WAREHOUSE"):
        monkeypatch.delenv(name, raising=False)
    return Node(lake, empty_database, tmp_path / "node", command)


@pytest.fixture
def session(node: Node) -> Iterator[Callable[[], psycopg.Connection]]:
    """Starts the node's lake server once, and opens sessions in its Postgres."""
    opened, servers = list[psycopg.Connection](), list[Any]()

    def open_one() -> psycopg.Connection:
        if not servers:
            servers.append(lake_server.start(load(node.home)))
        opened.append(psycopg.connect(node.dsn, autocommit=True))
        return opened[-1]

    yield open_one
    for connection in opened:
        connection.close()
    for server in servers:
        server.stop()


def made(lake: Lake, name: str = "readings", *columns: str, layout: Layout = Layout()) -> None:  # noqa: B008
    lake_tables.create(lake.catalog, lake.settings, Name("public", name), columns or READINGS, layout)


def all_of(session: psycopg.Connection, query: str) -> list[tuple[Any, ...]]:
    return session.execute(query.encode()).fetchall()


def evolved(lake: Lake, name: str, change: Callable[[Any], Any]) -> None:
    """Commit another schema, as another engine does."""
    table = catalog.load(lake.catalog, Pointer("public", name))
    metadata = lake_table.state(table.metadata_location).metadata
    location = lake_commit.write_metadata(change(metadata), metadata.table_uuid)
    catalog.commit(lake.catalog, [LakeMove(table.id, table.metadata_location, location)])


def test_a_node_reads_and_writes_the_lake_tables_and_leaves_nothing_when_it_is_detached(
    lake: Lake, node: Node, session: Callable[[], psycopg.Connection], command: Command
) -> None:
    made(lake, layout=Layout(["day(ts)"]))
    lake.catalog.execute("create schema app")
    lake_tables.create(lake.catalog, lake.settings, Name("app", "totals"), ["n bigint"], Layout())
    assert node.changes() == {"public.readings": ("attached", None), "app.totals": ("attached", None)}
    assert {change for change, _ in node.changes().values()} == {"unchanged"}
    psql, there = session(), lake.connect()
    psql.execute("insert into readings values (1, '2024-01-01', 'a', 1.005, '{\"k\": 1}'), (2, null, 'b', 2, null)")
    assert all_of(there, "select id, value::text, data from readings order by id") == [
        (1, "1.01", {"k": 1}),
        (2, "2.00", None),
    ]
    there.execute("update readings set device = 'c' where id = 2")
    with psql.transaction():
        psql.execute("update readings set value = value + 1 where device = 'c' returning id")
        psql.execute("delete from readings where upper(device) = 'A'")
        psql.execute("insert into app.totals select count(*) from readings")
    assert all_of(there, "select id, device, value::text, n from readings, app.totals") == [(2, "c", "3.00", 1)]
    with pytest.raises(psycopg.errors.NotNullViolation):
        psql.execute("insert into readings (ts) values (now())")
    there.close()
    schemas = "select nspname from pg_namespace where nspname !~ '^(pg_|information_schema)' order by 1"
    assert all_of(psql, schemas) == [("app",), ("public",)], "a node has no schema of Frostline's"
    said = json.loads(command("lake", "detach", "--home", node.home, "--output", "json").stdout)
    assert {each["table"]: each["change"] for each in said} == {"public.readings": "detached", "app.totals": "detached"}
    assert all_of(psql, schemas) == [("public",)]
    assert all_of(psql, "select srvname from pg_foreign_server") == []
    assert all_of(psql, "select relname from pg_class where relkind = 'f'") == []
    assert command("lake", "detach", "--home", node.home).exit_code == 0, "again, in vain"


def test_checks_hold_on_a_node(lake: Lake, node: Node, session: Callable[[], psycopg.Connection]) -> None:
    made(lake, "checked", "id bigint check (id > 0)", "word varchar(3)")
    node.attach()
    psql = session()
    psql.execute("insert into checked values (1, 'a')")
    for statement in ("insert into checked values (0, 'b')", "update checked set id = id - 1 where random() < 2"):
        with pytest.raises(psycopg.errors.CheckViolation):
            psql.execute(statement.encode())
    with pytest.raises(psycopg.errors.StringDataRightTruncation):
        psql.execute("update checked set word = word || 'too long'")
    assert all_of(psql, "select * from checked") == [(1, "a")]


def test_transactions_of_two_nodes_conflict_on_the_same_row_only(
    lake: Lake, node: Node, session: Callable[[], psycopg.Connection]
) -> None:
    made(lake, "accounts", "id bigint", "n bigint")
    node.attach()
    here, there = session(), lake.connect()
    there.execute("insert into accounts select id, 0 from generate_series(1, 3) id")
    for each in (here, there):
        each.execute("begin isolation level repeatable read")
        each.execute("select sum(n) from accounts")
    here.execute("update accounts set n = n + 1 where id = 1")
    there.execute("update accounts set n = n + 1 where id = 2")
    here.execute("commit")
    there.execute("commit")
    for each in (here, there):
        each.execute("begin")
        each.execute("update accounts set n = n + 1 where id = 3")
    there.execute("commit")
    with pytest.raises(psycopg.errors.SerializationFailure):
        here.execute("commit")
    assert all_of(here, "select id, n from accounts order by id") == [(1, 1), (2, 1), (3, 1)]
    there.close()


def test_attaching_again_brings_new_tables_and_other_columns_and_takes_dropped_ones_away(
    lake: Lake, node: Node, session: Callable[[], psycopg.Connection]
) -> None:
    made(lake, "readings", "id integer not null", "gone text", "kept text")
    made(lake, "others", "id bigint")
    node.attach("--tables", "readings", "--schema", "lakes")
    psql = session()
    psql.execute("insert into lakes.readings values (1, 'x', 'y')")
    evolved(lake, "readings", _with_other_columns)
    made(lake, "new", "id bigint")
    assert node.changes("--tables", "readings") == {"lakes.readings": ("altered", "-gone, ~id, +added")}
    assert all_of(psql, "select * from lakes.readings") == [(1, "y", None)]
    psql.execute("insert into lakes.readings values (5000000000, 'z', 2.5)")
    assert node.changes() == {
        "lakes.readings": ("unchanged", None),
        "public.others": ("attached", None),
        "public.new": ("attached", None),
    }
    psql.execute("create view used as select id from others")
    lake_tables.drop(lake.catalog, lake.settings, Name("public", "others"), purge=True)
    assert "cannot drop public.others" in node.refused()
    psql.execute("drop view used")
    catalog.rename(lake.catalog, Pointer("public", "new"), Pointer("public", "newer"))
    assert node.changes() == {
        "lakes.readings": ("unchanged", None),
        "public.new": ("unchanged", None),  # it keeps its name here, as its views do
        "public.others": ("dropped", None),
    }


def test_columns_that_have_exchanged_names_are_refused_on_a_node_until_it_attaches_again(
    lake: Lake, node: Node, session: Callable[[], psycopg.Connection]
) -> None:
    """Its foreign table has the old names, and would show the values of one column under the name of the other."""
    made(lake, "readings", "id integer", "a text", "b text")
    node.attach()
    psql = session()
    psql.execute("insert into readings values (1, 'of a', 'of b')")
    psql.execute("create view shown as select b from readings")
    evolved(lake, "readings", _with_exchanged_names)
    with pytest.raises(psycopg.Error, match="column a is called b") as refused:
        psql.execute("select * from readings")
    assert "frostline lake attach" in str(refused.value)
    with pytest.raises(psycopg.Error, match="column a is called b"):
        psql.execute("insert into readings values (2, 'x', 'y')")
    assert node.changes() == {"public.readings": ("altered", "~b, ~a")}
    assert psql.execute("select id, a, b from readings").fetchall() == [(1, "of b", "of a")]
    assert all_of(psql, "select * from shown") == [("of b",)]
    psql.execute("insert into readings (id, a, b) values (2, 'x', 'y')")
    assert all_of(psql, "select a, b from readings where id = 2") == [("x", "y")]


def _with_exchanged_names(metadata: Any) -> Any:
    old = metadata.schema()
    id_field, a, b = old.fields
    renamed = (a.model_copy(update={"name": "b"}), b.model_copy(update={"name": "a"}))
    schema = old.model_copy(update={"fields": (id_field, *renamed), "schema_id": 1})
    return metadata.model_copy(update={"schemas": [*metadata.schemas, schema], "current_schema_id": 1})


def _with_other_columns(metadata: Any) -> Any:
    """`gone` is gone, `id` is wider, `added` is new; as any engine may do it."""
    old = metadata.schema()
    id_field, _, kept = old.fields
    assert id_field.field_type == IntegerType()
    wider = id_field.model_copy(update={"field_type": LongType()})
    added = kept.model_copy(update={"field_id": 4, "name": "added", "field_type": DecimalType(4, 1)})
    known = json.loads(metadata.properties[pg_types.PG_COLUMNS])
    known["1"] |= {"type": "bigint", "name": "int8"}
    schema = old.model_copy(update={"fields": (wider, kept, added), "schema_id": 1})
    return metadata.model_copy(
        update={
            "schemas": [*metadata.schemas, schema],
            "current_schema_id": 1,
            "last_column_id": 4,
            "properties": {**metadata.properties, pg_types.PG_COLUMNS: json.dumps(known)},
        }
    )


def test_a_type_of_ones_own_has_to_be_the_same_on_both_sides(
    lake: Lake, node: Node, session: Callable[[], psycopg.Connection]
) -> None:
    lake.catalog.execute("create type public.kind as enum ('small', 'large')")
    lake.catalog.execute("create domain public.size as numeric(4,1) check (value > 0)")
    lake.catalog.execute("create type public.pair as (kind public.kind, size public.size)")
    made(lake, "things", "id bigint", "kind public.kind", "sizes public.size[]", "pair public.pair")
    made(lake, "plain", "id bigint")
    assert "type public.kind, which public.things needs, is not in this database" in node.refused()
    with psycopg.connect(node.dsn, autocommit=True) as psql:
        psql.execute("create type public.kind as enum ('large', 'small')")
        psql.execute("create domain public.size as numeric(4,1) check (value > 0)")
        psql.execute("create type public.pair as (kind public.kind, size public.size)")
    assert "is public.kind enum 'large' 'small' here and public.kind enum 'small' 'large' in the" in node.refused()
    assert node.changes("--tables", "plain") == {"public.plain": ("attached", None)}
    with psycopg.connect(node.dsn, autocommit=True) as psql:
        psql.execute("drop type public.pair; drop type public.kind")
        psql.execute("create type public.kind as enum ('small', 'large')")
        psql.execute("create type public.pair as (kind public.kind, size public.size)")
    node.attach()
    psql, there = session(), lake.connect()
    psql.execute("insert into things values (1, 'large', '{1.5,2}', '(small,3)'), (2, 'small', '{}', null)")
    assert all_of(there, "select id, pair::text from things where kind = 'large'") == [(1, "(small,3.0)")]
    there.close()
    assert all_of(psql, "update things set kind = 'large' where kind < 'large' returning id") == [(2,)]
    with pytest.raises(psycopg.errors.CheckViolation):
        psql.execute("insert into things values (3, 'small', '{-1}', null)")


def test_text_is_compared_as_in_the_catalogs_database(
    lake: Lake, node: Node, session: Callable[[], psycopg.Connection], postgres_server: Postgres
) -> None:
    """There by its bytes; here the default may be another order, and the lake server is let compare."""
    made(lake, "words", "word text", 'other text collate "C.utf8"')
    name = str(conninfo.conninfo_to_dict(node.dsn)["dbname"]) + "_libc"
    make = sql.SQL("create database {} template template0 locale_provider libc locale 'C.UTF-8'")
    with psycopg.connect(postgres_server.dsn(), autocommit=True) as superuser:
        superuser.execute(make.format(sql.Identifier(name)))
    node.dsn = postgres_server.dsn(name)
    try:
        node.attach()
        assert {change for change, _ in node.changes().values()} == {"unchanged"}
        psql = session()
        psql.execute("insert into words values ('a', 'a'), ('B', 'B'), ('c', 'c')")
        assert all_of(psql, "select word from words where word < 'a'") == [("B",)]
        assert all_of(psql, "select min(word), max(other) from words") == [("B", "c")]
        query = "select attname, attcollation::regcollation::text from pg_attribute where attrelid = 'words'::regclass"
        assert all_of(psql, f"{query} and attnum > 0 order by attnum") == [("word", '"C"'), ("other", '"C.utf8"')]
        psql.close()
    finally:
        with psycopg.connect(postgres_server.dsn(), autocommit=True) as superuser:
            superuser.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))


def test_what_is_no_node_is_refused(lake: Lake, node: Node, command: Command, tmp_path: Path) -> None:
    made(lake)
    assert "has a catalog of its own, so it is no node" in node.refused("--dsn", lake.dsn)
    assert "no catalog is named" in command("lake", "attach", "--dsn", node.dsn).stderr
    assert "Frostline is not installed" in node.refused("--catalog", node.dsn)
    assert "there is no lake table public.nosuch" in node.refused("--tables", "nosuch")
    assert "has a catalog of its own" in command("lake", "detach", "--dsn", lake.dsn).stderr
    with psycopg.connect(node.dsn, autocommit=True) as psql:
        psql.execute("create table readings (id int)")
    assert "there is another public.readings here" in node.refused()
    with psycopg.connect(node.dsn, autocommit=True) as psql:
        assert all_of(psql, "select srvname from pg_foreign_server") == [], "what is refused leaves nothing"
        psql.execute("drop table readings")
    node.attach()
    for words in ("init", "status", "lake list", "compact", "serve --rest-port 1"):
        said = command(*words.split(), "--home", node.home)
        assert (said.exit_code, "this is a node" in said.stderr) == (2, True), words
    away = lake.warehouse.rename(lake.warehouse.with_name("away"))
    said = command("lake", "attach", "--home", node.home)
    assert (said.exit_code, "warehouse" in said.stderr) == (4, True), "a node that cannot see the files is none"
    away.rename(lake.warehouse)


def test_a_node_of_another_catalog_is_refused(
    lake: Lake, node: Node, session: Callable[[], psycopg.Connection], command: Command
) -> None:
    """There the numbers of its foreign tables are those of other tables."""
    made(lake)
    node.attach()
    lake.catalog.execute("update frostline.warehouse set identity = gen_random_uuid()")
    warehouse.put(warehouse.of(lake.catalog, str(lake.warehouse)))
    assert "is a node of another catalog" in node.refused()
    with pytest.raises(UsageError, match="is a node of another catalog"):
        session()
    assert command("lake", "detach", "--dsn", node.dsn).exit_code == 0
    assert node.changes() == {"public.readings": ("attached", None)}


def test_a_node_serves_nothing_but_lake_tables(
    lake: Lake, node: Node, session: Callable[[], psycopg.Connection]
) -> None:
    made(lake)
    node.attach()
    psql = session()
    psql.execute("create foreign table managed (id bigint) server frostline_lake options (table_name '1[,5)')")
    with pytest.raises(psycopg.Error, match="there is no managed table 1 on a node"):
        psql.execute("select * from managed")


def _stopped_after(lake: Lake, answers: int) -> bool:
    """Let a lake server be stopped after so many answers of the catalog in a transaction; False: it ended before.

    Whoever else commits to the table must not have to wait then.
    """
    number = catalog.load(lake.catalog, Pointer("public", "log")).id
    with relayed(lake.dsn) as relay:
        node = transaction.Lake(relay.dsn, str(lake.warehouse))

        def append() -> None:
            with suppress(FrostlineError):
                each = transaction.LakeTransaction(node, lambda _table, _wanted: {})
                each.changes(number).insert([["1"]])
                each.commit()
            relay.held.set()

        append()  # its connections are there
        relay.held.clear()
        relay.hold_after(answers)
        thread = threading.Thread(target=append)
        thread.start()
        relay.held.wait()
        was_stopped = thread.is_alive()
        with lake.catalog.transaction():
            lake.catalog.execute("select from frostline.iceberg_tables for update nowait")
        relay.close()
        thread.join()
        node.close()
        return was_stopped


def test_nobody_waits_for_a_lake_server_that_is_stopped(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever in its transaction it is: between any two messages of the catalog's Postgres."""
    monkeypatch.setattr(lake_publish, "_PATIENCE_S", 0)
    made(lake, "log", "id bigint")
    stops = 0
    while _stopped_after(lake, stops):
        stops += 1
    assert stops > 2


DESIGN = Path(__file__).parents[2] / "docs" / "design" / "many-nodes.md"


def test_the_catalogs_role_of_a_node_needs_no_more_than_the_page_says(
    lake: Lake, node: Node, session: Callable[[], psycopg.Connection]
) -> None:
    made(lake)
    (grants,) = re.findall(r"```sql\n(grant usage on schema frostline to node;.*?)```", DESIGN.read_text(), re.DOTALL)
    lake.catalog.execute("create role node login password 'of a node'")
    lake.catalog.execute(grants.encode())
    try:
        node.attach("--catalog", conninfo.make_conninfo(lake.dsn, user="node", password="of a node"))
        psql = session()
        psql.execute("insert into readings (id) values (1)")
        psql.execute("update readings set device = 'a' where upper(coalesce(device, 'x')) = 'X'")
        assert all_of(psql, "select id, device from readings") == [(1, "a")]
    finally:
        lake.catalog.execute("select pg_terminate_backend(pid) from pg_stat_activity where usename = 'node'")
        lake.catalog.execute("drop owned by node; drop role node")


@pytest.mark.parametrize("where", ["catalog", "node"])
def test_lake_tables_are_served_only_while_postgres_keeps_roles_apart(
    lake: Lake, node: Node, session: Callable[[], psycopg.Connection], where: str
) -> None:
    """Who owns a foreign table may let it ask for any other, within a transaction that nobody else sees."""
    made(lake, "given", "id bigint")
    made(lake, "secret", "id bigint")
    node.attach()
    psql = session() if where == "node" else lake.connect()
    secret = catalog.load(lake.catalog, Pointer("public", "secret")).id
    psql.execute("insert into secret values (1)")
    psql.execute("create role lake_thief; grant create on schema public to lake_thief")
    try:
        psql.execute("alter foreign table given owner to lake_thief")
        with psql.transaction(force_rollback=True):
            psql.execute("set local role lake_thief")
            psql.execute(f"alter foreign table given options (set table_name 'lake_{secret}')".encode())
            with pytest.raises(psycopg.Error, match=r"role lake_thief owns foreign table public\.given") as refused:
                psql.execute("select * from given")
        with pytest.raises(psycopg.Error):
            psql.execute("select * from secret")
        assert refused.value.diag.message_hint
        psql.execute(refused.value.diag.message_hint.encode())
        assert all_of(psql, "select * from secret") == [(1,)]
        psql.execute("grant usage on foreign server frostline_lake to lake_thief")
        with pytest.raises(psycopg.Error, match="role lake_thief may use the server frostline_lake") as refused:
            psql.execute("select * from secret")
        assert refused.value.diag.message_hint
        psql.execute(refused.value.diag.message_hint.encode())
        psql.execute("grant postgres to lake_thief")
        psql.execute("alter foreign table given owner to lake_thief")
        assert all_of(psql, "select * from secret") == [(1,)], "who is in the owner's role could do all that anyway"
    finally:
        psql.execute("alter foreign table given owner to postgres; drop owned by lake_thief; drop role lake_thief")
        psql.close()
