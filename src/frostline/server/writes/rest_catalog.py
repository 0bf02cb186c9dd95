"""An Iceberg REST catalog as the lake server of a node asks it: docs/design/rest-nodes.md."""

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NoReturn

from frostline.catalog.pointers import LakePointer
from frostline.errors import UsageError
from frostline.lake import lake_publish, lake_table, paths, rest, rest_publish
from frostline.lake.lake_publish import Change, Outcome
from frostline.lake.lake_table import State
from frostline.lake.rest_tables import Tables
from frostline.server.writes.catalogs import Stage
from frostline.settings import Settings


class MadeElsewhere(UsageError):
    """Tables of a REST catalog are made and dropped with its own tools."""

    sqlstate = "0A000"


class RestCatalog:
    """Implements `LakeCatalog`. Only the tables that are attached are looked at."""

    is_ours = False

    def __init__(self, settings: Settings, attached: Callable[[], Collection[int]]) -> None:
        """Connects with the first question."""
        self._settings, self._attached = settings, attached
        self._opened: tuple[rest.Catalog, Tables] | None = None
        self._lock = threading.Lock()

    def _open(self) -> tuple[rest.Catalog, Tables]:
        if self._opened is None:  # nobody waits for somebody else's attempt, which may hang
            catalog = rest.connected(self._settings)
            with self._lock:
                if self._opened is None:
                    self._opened = catalog, Tables(catalog, paths.warehouse_location(self._settings.warehouse))
                else:
                    catalog.close()
        return self._opened

    def cut(self) -> Mapping[int, LakePointer]:
        """Where all attached tables are, as of one moment after the call."""
        return self._open()[1].cut(self._attached())

    def places(self, wanted: Collection[int]) -> Mapping[int, LakePointer]:
        """Where these are, each at a moment of its own."""
        return self._open()[1].places(wanted)

    def require_warehouse(self, wanted: Collection[int] = ()) -> None:
        """UnavailableError when the files of these tables are not where the catalog has them."""
        if wanted:
            self._open()[1].require_store(wanted)

    def commit(self, stage: Stage) -> tuple[Outcome, Sequence[State] | None]:
        """Send all tables in one request, again upon what they are then if somebody else was faster."""
        return lake_publish.repeated(stage, self._publish)

    def _publish(self, commit: Change, states: Sequence[State]) -> Outcome:
        catalog, tables = self._open()
        changes = [
            rest_publish.change(tables.identifier(move.id), lake_table.state(move.previous).metadata, state.metadata)
            for move, state in zip(commit.moves, states, strict=True)
        ]
        return rest_publish.publish(catalog, changes, commit.written)

    def connection(self) -> NoReturn:
        """There is none."""
        raise MadeElsewhere(
            f"the lake tables of this node are those of catalog {self._settings.catalog_uri!r}",
            hint="make and drop them there; then frostline lake attach",
        )

    def close(self) -> None:
        """Give the connections back."""
        with self._lock:
            if self._opened is not None:
                self._opened[1].close()
