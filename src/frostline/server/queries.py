"""From a SELECT to an open portal: plan it, then let DuckDB or Postgres answer."""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from frostline.lake.filecheck import Checks, FileCheck
from frostline.server import answers
from frostline.server.announced import Announced, announced_columns
from frostline.server.engine import Engine, Rows
from frostline.server.extracts import Shortcut
from frostline.server.fallback import PostgresAnswer
from frostline.server.meter import Meter
from frostline.server.portals import Batch, Batches, Interruptible, Portal
from frostline.server.protocol.rows import Printed
from frostline.server.reading import Question, answer, answer_of, choose, copy_lines, in_order
from frostline.server.segments import InOrder, Segment
from frostline.server.served_tables import ServedTables
from frostline.server.shapes import Part, Shapes
from frostline.server.translate.plan import DuckPlan, PostgresPlan, Scan, plan
from frostline.server.translate.scope import UnknownColumn
from frostline.server.translate.statements import Select
from frostline.server.writes.shared import Lake

_log = logging.getLogger(__name__)

Params = tuple[str | None, ...]
Running = Callable[[Interruptible | None], None]
"""Is told what the session waits for, so that a cancel request can stop it."""


@dataclass(frozen=True)
class Backend:
    """What all sessions share."""

    tables: ServedTables
    engine: Engine
    postgres_dsn: str | None
    files: FileCheck = field(default_factory=lambda: FileCheck(Checks.FIRST_READ))
    meter: Meter = field(default_factory=Meter)
    shapes: Shapes = field(default_factory=Shapes)
    lake: Lake | None = None
    """What sessions share of lake tables; None where there are none."""
    prints: bool = True
    """Whether rows may come as messages for a client. Who reads them here wants batches."""

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
            announced = replace(self, tables=Announced(self.tables, announced_columns(select.sql)))
            return announced._decided(select, params, running)  # noqa: SLF001  (its own, with other tables)

    def _decided(self, select: Select, params: Params, running: Running) -> Portal:
        shape = self.shapes.of(select, params, self.tables)
        numbers = None if shape is None else shape.numbers(params)
        if shape is not None and numbers is not None:
            part = shape.part(numbers)
            return Portal(shape.plan.result, lambda: LookedUp(self, part, numbers, params))
        fixed = answers.fixed(select.sql, self.tables)
        if fixed is not None:
            return fixed
        decided = plan(select, params, self.tables)
        if isinstance(decided, DuckPlan):
            return self._by_duckdb(decided)
        known = {column.name for scan in decided.scans for column in scan.source.table.columns}
        unknown = [column.name for column in announced_columns(select.sql) if column.name not in known]
        if unknown:  # of all other names Postgres says itself that they are not there
            raise UnknownColumn(f"column {unknown[0]!r} does not exist")
        return self._by_postgres(decided, running)

    def _by_duckdb(self, decided: DuckPlan) -> Portal:
        source, wanted = decided.scan.source, decided.ordered
        _log.debug("query engine=duckdb table=%s snapshot=%s", source.table.name, source.snapshot)
        chosen = choose(decided.scan, self.tables)
        parts = in_order(decided, chosen, self.meter)

        def rows(question: Question) -> Batches:
            return _Printed(self.run(question), has_columns=self.prints and bool(decided.outputs))

        if parts is None or wanted is None:
            question = answer(decided, chosen, self.meter)
            return Portal(decided.result, lambda: rows(question))

        def run(part: Segment, most: int | None) -> Batches:
            return rows(answer_of(decided, part, most))

        return Portal(decided.result, lambda: InOrder(wanted, parts(), run))

    def run(self, question: Question) -> Rows:
        """The rows of a question to DuckDB; its files are compared before the first of them."""

        def compare(give_up: Callable[[], None]) -> None:
            self.meter.compared(self.files.compare(question.files, self.tables.checksums, give_up))

        return self.engine.run(
            question.sql, first=compare, files=[file.path for file in question.files], shortcut=self._shortcut(question)
        )

    def _shortcut(self, question: Question) -> Shortcut:
        """How the rows may come without the files. They are compared all the same: an extract is of what is there."""

        def told(from_extract: bool) -> None:  # noqa: FBT001
            self.meter.read(question.new_files, from_extract=from_extract)

        return Shortcut(self.engine.extracts, question.lookup, lambda: self.files.stamps(question.files), told)

    def printed(self, part: Part, numbers: Sequence[int]) -> Printed | None:
        """The rows of a look-up, if they are printed. The files are compared all the same."""
        ledger, files = part.ledger, part.chosen.files
        stamps = None if ledger is None else self.files.unchanged(files)
        kept = None if ledger is None or stamps is None else self.engine.extracts.ledgers.find((ledger.sql, stamps))
        if kept is None:
            return None
        self.meter.pruned(part.chosen.passed_over)
        self.meter.read(len(files), from_extract=True)
        return kept.find(numbers)

    def took(self, part: Part, seconds: float) -> None:
        """Look-ups of this part are not printed, and one took so long."""
        ledger, files = part.ledger, part.chosen.files
        stamps = None if ledger is None else self.files.unchanged(files)
        if ledger is not None and stamps is not None:
            self.engine.extracts.ledgers.spent(
                (ledger.sql, stamps), ledger, seconds, lambda: self.files.unchanged(files)
            )

    def _by_postgres(self, decided: PostgresPlan, running: Running) -> Portal:
        _log.debug("query engine=postgres tables=%d reason=%r", len(decided.scans), decided.reason)
        opened = self._answer(decided, running)
        return Portal(opened.columns, lambda: self._answer(decided, running), opened)

    def load(self, scan: Scan) -> Rows:
        """The candidate rows of a scan, as lines of COPY."""
        return self.run(copy_lines(scan, self.tables, self.meter))

    def _answer(self, decided: PostgresPlan, running: Running) -> PostgresAnswer:
        answered = PostgresAnswer(self.load, self.postgres_dsn)
        running(answered)
        try:
            answered.open(decided)
        finally:
            running(None)
        return answered


class _Printed:
    """The rows of a query as a portal reads them: printed where nobody waits for it."""

    def __init__(self, rows: Rows, *, has_columns: bool) -> None:
        self._rows, self._has_columns = rows, has_columns
        self.interrupt, self.close = rows.interrupt, rows.close

    def __iter__(self) -> Iterator[Batch]:
        return self._rows.printed() if self._has_columns else iter(self._rows)


class LookedUp:
    """The rows of a look-up that comes again and again: as they are printed, or else as those of any query."""

    def __init__(self, backend: Backend, part: Part, numbers: Sequence[int], params: Params) -> None:
        self._backend, self._part, self._numbers, self._params = backend, part, numbers, params
        self._rows: _Printed | None = None
        self._stopped = False

    def __iter__(self) -> Iterator[Batch]:
        printed = self._backend.printed(self._part, self._numbers) if self._backend.prints else None
        if printed is not None:
            yield printed
            return
        began = time.monotonic()
        rows = self._backend.run(self._part.question(self._params, self._backend.meter))
        self._rows = _Printed(rows, has_columns=self._backend.prints and bool(self._part.shape.plan.outputs))
        if self._stopped:
            self._rows.interrupt()
        batches = iter(self._rows)
        first = next(batches, None)
        self._backend.took(self._part, time.monotonic() - began)
        if first is not None:
            yield first
            yield from batches

    def interrupt(self) -> None:
        """Make the running read fail; may be called from another thread."""
        self._stopped = True
        if self._rows is not None:
            self._rows.interrupt()

    def close(self) -> None:
        """Stop, and give everything back."""
        if self._rows is not None:
            self._rows.close()
