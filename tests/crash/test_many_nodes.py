"""Three Postgres servers, each with a lake server of its own, write and read the same lake tables while parts of them die.

docs/design/many-nodes.md has the reasons. Nothing here waits for a time but the minute in which a node is frozen: each step
goes on when so many transactions were committed since the last one.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import psycopg
import pytest
from psycopg import errors
from pydantic import SecretStr
from tests.fixtures.bank import OPENED, TABLES, Bank
from tests.fixtures.lake import Lake
from tests.fixtures.own_server import DATABASE, OwnServers
from tests.fixtures.statements import value

from frostline.catalog.connect import connect
from frostline.lake.lake_table import Layout
from frostline.model.names import Name
from frostline.pipeline import lake_tables
from frostline.runtime import lake_server, node
from frostline.runtime.install import install_with_home
from frostline.runtime.postgres import Postgres, free_port, running_pid
from frostline.runtime.programs import Programs
from frostline.settings import Settings, load

pytestmark = pytest.mark.slow

DEBIAN = Path("/usr/lib/postgresql/15/bin")
FROZEN_S = 60


@dataclass
class Node:
    """A Postgres and its lake server, each of which can be killed, stopped and started again."""

    postgres: Postgres
    home: Path
    process: "subprocess.Popen[str] | None" = None

    @property
    def dsn(self) -> str:
        """How applications connect."""
        return self.postgres.dsn(DATABASE)

    def serve(self) -> None:
        """Start the lake server; it can be used when this returns."""
        command = [str(Path(sys.executable).with_name("frostline")), "serve", "--home", str(self.home)]
        self.process = subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        assert self.process.stdout
        assert self.process.stdout.readline().startswith("ready "), "the lake server did not start"

    def kill_lake_server(self) -> None:
        """As the system does when it has no memory left."""
        if self.process is not None:
            with self.process:
                self.process.kill()
            self.process = None

    def kill_postgres(self) -> None:
        """Its first process; the others notice."""
        pid = running_pid(self.postgres.data_dir)
        assert pid
        os.kill(pid, signal.SIGKILL)
        psutil.wait_procs([psutil.Process(pid)] if psutil.pid_exists(pid) else [])

    @contextmanager
    def frozen(self) -> Generator[None]:
        """As a virtual machine that is paused, for the block."""
        self._signal_all(signal.SIGSTOP)
        try:
            yield
        finally:
            self._signal_all(signal.SIGCONT)

    def _signal_all(self, number: signal.Signals) -> None:
        """To the lake server with its watchdog, and to all processes of Postgres."""
        pid = running_pid(self.postgres.data_dir)
        assert pid
        assert self.process
        for root in (psutil.Process(self.process.pid), psutil.Process(pid)):
            for process in (root, *root.children(recursive=True)):
                with suppress(psutil.NoSuchProcess):
                    process.send_signal(number)


def made(settings: Settings) -> None:
    """The lake tables, without a row."""
    with connect(settings.dsn, purpose="tests") as connection:
        for name, columns in TABLES.items():
            lake_tables.create(connection, settings, Name("public", name), columns, Layout())


def settings_of(dsn: str, warehouse: object) -> Settings:
    return Settings(
        dsn=dsn, warehouse=str(warehouse), lake_port=free_port(), lake_password=SecretStr("a lake password")
    )


@pytest.fixture
def nodes(own_servers: OwnServers, tmp_path: Path) -> Iterator[list[Node]]:
    """The catalog's own Postgres, another like it, and one of Debian's; their lake servers run."""
    if not DEBIAN.is_dir():
        pytest.skip("needs the PostgreSQL 15 of Debian")
    debian = OwnServers(own_servers.folder, Programs(DEBIAN), own_servers.made)
    servers = [own_servers.new("catalog"), own_servers.new("second"), debian.new("third")]
    listed = [Node(server, tmp_path / f"home {number}") for number, server in enumerate(servers)]
    settings = settings_of(listed[0].dsn, tmp_path / "warehouse")
    install_with_home(settings, listed[0].home)
    made(settings)
    for each in listed[1:]:
        other = settings_of(each.dsn, "of the catalog").model_copy(update={"catalog_dsn": settings.dsn})
        assert {change.done for change in node.attach(other, each.home, (), None)} == {"attached"}
    try:
        for each in listed:
            each.serve()
        with psycopg.connect(listed[1].dsn, autocommit=True) as connection:
            connection.execute(OPENED.encode())
        yield listed
    finally:
        for each in listed:
            each.kill_lake_server()


def test_three_servers_of_two_versions_lose_nothing_while_parts_of_them_die(nodes: list[Node]) -> None:
    catalog, second, third = nodes
    bank = Bank([each.dsn for each in nodes])
    with bank.open():
        bank.go_on(3)
        assert not bank.disturbed, "up to here there was no error but 40001"

        bank.disturbed.add(1)
        for _ in range(2):  # at different moments of what it was doing
            second.kill_lake_server()
            bank.go_on(3, 0, 2)
            second.serve()
            bank.go_on(2, 1)

        bank.disturbed.add(2)
        with third.frozen():
            bank.go_on(5, 0, 1)  # nobody waits for it
        bank.go_on(3)

        third.kill_postgres()
        bank.go_on(3, 0, 1)
        third.postgres.start()
        bank.go_on(3)

        bank.disturbed.add(0)
        catalog.kill_lake_server()
        bank.go_on(3, 1, 2)
        catalog.serve()
        bank.go_on(3)

        catalog.kill_postgres()  # with it the catalog is away, in the middle of commits
        catalog.postgres.start()
        bank.go_on(3)
    bank.check()
    assert bank.told.refused, "the same rows were changed at the same time"


def test_a_node_that_was_frozen_for_a_minute_comes_back_and_does_no_harm(nodes: list[Node]) -> None:
    """Its lake server goes on as the process that it was: the watchdog is frozen, too, and does not count that time."""
    first, _, third = nodes
    assert third.process
    bank = Bank([each.dsn for each in nodes])
    with bank.open():
        bank.go_on(1)
        bank.disturbed.add(2)
        with psycopg.connect(third.dsn) as sleeper:
            before = value(sleeper, _MOVES)
            sleeper.execute("update accounts set balance = balance + 1000 where id = 1")
            with third.frozen():
                wakes = time.monotonic() + FROZEN_S
                while time.monotonic() < wakes or _moves(first) == before:
                    bank.go_on(5, 0, 1)
            with pytest.raises(errors.SerializationFailure):
                sleeper.commit()
        bank.go_on(3)
        assert third.process.poll() is None
    bank.check()


_MOVES = "select moves from accounts where id = 1"


def _moves(node: Node) -> object:
    """How often the account was changed that the sleeper wants."""
    with psycopg.connect(node.dsn) as connection:
        return value(connection, _MOVES)


@pytest.mark.quick
def test_nodes_with_a_lake_server_each_lose_nothing(
    lake: Lake, empty_database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two databases of one server, and nobody dies."""
    monkeypatch.delenv("FROSTLINE_DSN", raising=False)
    made(lake.settings)
    other = settings_of(empty_database, "of the catalog").model_copy(update={"catalog_dsn": lake.dsn})
    node.attach(other, tmp_path / "home", (), None)
    server = lake_server.start(load(tmp_path / "home"))
    try:
        with lake.connect() as connection:
            connection.execute(OPENED.encode())
        bank = Bank([lake.dsn, empty_database])
        with bank.open():
            bank.go_on(6)
        bank.check()
    finally:
        server.stop()
