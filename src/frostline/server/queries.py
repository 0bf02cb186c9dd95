"""From a SELECT to an open portal: plan it, then let DuckDB or Postgres answer."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from frostline.lake.filecheck import Checks, FileCheck
from frostline.server import answers
from frostline.server.engine import Engine, Rows
from frostline.server.fallback import PostgresAnswer
from frostline.server.lake_tables import LakeTables
from frostline.server.meter import Meter
from frostline.server.portals import Interruptible, Portal
from frostline.server.reading import Question, answer, answer_of, copy_lines, in_order
from frostline.server.segments import InOrder, Segment
from frostline.server.translate.plan import DuckPlan, PostgresPlan, Scan, plan
from frostline.server.translate.scope import UnknownColumn
from frostline.server.translate.statements import Select

_log = logging.getLogger(__name__)

Params = tuple[str | None, ...]
Running = Callable[[Interruptible | None], None]
"""Is told what the session waits for, so that a cancel request can stop it."""


@dataclass(frozen=True)
class Backend:
    """What all sessions share."""

    tables: LakeTables
    engine: Engine
    postgres_dsn: str | None
    files: FileCheck = field(default_factory=lambda: FileCheck(Checks.FIRST_READ))
    meter: Meter = field(default_factory=Meter)

    def open(self, select: Select, params: Params, running: Running) -> Portal:
        """The result of the query, not yet computed where DuckDB computes it. Tells `running` what it waits for."""
        query = self.meter.query()
        with query.working():
            portal = self._open(select, params, running)
        portal.query = query
        return portal

    def _open(self, select: Select, params: Params, running: Running) -> Portal:
        try:
            return self._decided(select, params, running)
        except UnknownColumn:
            self.tables.forget()  # it may have been added since the table's columns were asked for
            return self._decided(select, params, running)

    def _decided(self, select: Select, params: Params, running: Running) -> Portal:
        fixed = answers.fixed(select.sql, self.tables)
        if fixed is not None:
            return fixed
        decided = plan(select, params, self.tables)
        if isinstance(decided, DuckPlan):
            return self._by_duckdb(decided)
        return self._by_postgres(decided, running)

    def _by_duckdb(self, decided: DuckPlan) -> Portal:
        source, wanted = decided.scan.source, decided.ordered
        _log.debug("query engine=duckdb table=%d snapshot=%s", source.table.id, source.snapshot)
        parts = in_order(decided, self.tables, self.meter)
        if parts is None or wanted is None:
            question = answer(decided, self.tables, self.meter)
            return Portal(decided.result, lambda: self.run(question))

        def run(part: Segment, most: int | None) -> Rows:
            return self.run(answer_of(decided, part, most, self.meter))

        return Portal(decided.result, lambda: InOrder(wanted, parts(), run))

    def run(self, question: Question) -> Rows:
        """The rows of a question to DuckDB; its files are compared before the first of them."""

        def compare(give_up: Callable[[], None]) -> None:
            self.meter.compared(self.files.compare(question.files, self.tables.checksums, give_up))

        return self.engine.run(question.sql, first=compare, files=[file.path for file in question.files])

    def _by_postgres(self, decided: PostgresPlan, running: Running) -> Portal:
        _log.debug("query engine=postgres tables=%d reason=%r", len(decided.scans), decided.reason)
        opened = self._answer(decided, running)
        return Portal(opened.columns, lambda: self._answer(decided, running), opened)

    def _load(self, scan: Scan) -> Rows:
        return self.run(copy_lines(scan, self.tables, self.meter))

    def _answer(self, decided: PostgresPlan, running: Running) -> PostgresAnswer:
        answered = PostgresAnswer(self._load, self.postgres_dsn)
        running(answered)
        try:
            answered.open(decided)
        finally:
            running(None)
        return answered
