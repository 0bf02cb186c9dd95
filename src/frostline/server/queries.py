"""From a SELECT to an open portal: plan it, then let DuckDB or Postgres answer."""

import logging
from dataclasses import dataclass

from frostline.server import answers
from frostline.server.engine import Engine
from frostline.server.fallback import PostgresAnswer
from frostline.server.lake_tables import LakeTables
from frostline.server.portals import Portal
from frostline.server.reading import answer
from frostline.server.translate.plan import DuckPlan, PostgresPlan, plan
from frostline.server.translate.statements import Select

_log = logging.getLogger(__name__)

Params = tuple[str | None, ...]


@dataclass(frozen=True)
class Backend:
    """What all sessions share."""

    tables: LakeTables
    engine: Engine
    postgres_dsn: str | None

    def open(self, select: Select, params: Params) -> Portal:
        """The result of the query, not yet computed where DuckDB computes it."""
        fixed = answers.fixed(select.sql, self.tables)
        if fixed is not None:
            return fixed
        decided = plan(select, params, self.tables)
        if isinstance(decided, DuckPlan):
            return self._by_duckdb(decided)
        return self._by_postgres(decided)

    def _by_duckdb(self, decided: DuckPlan) -> Portal:
        query = answer(decided, self.tables)
        _log.debug("query engine=duckdb table=%s sql=%r", decided.scan.source.table.id, decided.tail)
        return Portal(decided.result, lambda: self.engine.run(query))

    def _by_postgres(self, decided: PostgresPlan) -> Portal:
        _log.debug("query engine=postgres tables=%d reason=%r", len(decided.scans), decided.reason)
        opened = self._answer(decided)
        return Portal(opened.columns, lambda: self._answer(decided), opened)

    def _answer(self, decided: PostgresPlan) -> PostgresAnswer:
        return PostgresAnswer(decided, self.engine, self.tables, self.postgres_dsn)
