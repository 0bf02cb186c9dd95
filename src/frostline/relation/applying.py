"""Takes the staged rows of a batch into the relation, inside the caller's transaction: docs/design/spark-writes.md."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import LiteralString

from psycopg import sql

from frostline.catalog.connect import Connection
from frostline.errors import ConflictError, UsageError
from frostline.model.names import quoted
from frostline.relation import names
from frostline.relation.staging import Stage, statement, won

_MOST_RANGES = 8
"""Each costs planning time in every part of the relation."""
_TIMES = ("timestamptz", "timestamp", "date")


@dataclass(frozen=True)
class Applied:
    """How many rows of the relation were written, and how."""

    inserted: int = 0
    updated: int = 0
    deleted: int = 0


class UpsertRace(ConflictError):
    """Rows of an upsert could be neither updated nor inserted, because somebody else wrote them in between."""


class Applying:
    """The attempts that count of one stage, on their way into the relation."""

    def __init__(self, connection: Connection, stage: Stage, attempts: Sequence[int]) -> None:
        self._connection = connection
        self._stage = stage
        self._relation = names.identifier(stage.relation.name)
        self._won = won(stage, attempts)
        self._columns = [column.name for column in stage.columns]

    def append(self) -> Applied:
        """Insert all rows."""
        return Applied(inserted=self._run("append", columns=names.columns(None, self._columns), staged=self._staged()))

    def delete(self) -> Applied:
        """Delete the rows with these keys."""
        return Applied(deleted=self._run("delete", key=self._key(None), **self._matching()))

    def upsert(self, rows: int) -> Applied:
        """Update the rows whose keys exist and insert the others; `rows` is how many there are in all."""
        self._refuse_duplicates()
        matching = self._matching()
        changed = [name for name in self._columns if name not in self._stage.relation.key]
        updated = 0
        if changed:
            pairs = (self._assignment(name) for name in changed)
            updated = self._run("update", assignments=sql.SQL(", ").join(pairs), **matching)
        columns = names.columns(None, self._columns)
        inserted = self._run("insert_missing", columns=columns, staged=self._staged(), **matching)
        if changed and updated + inserted != rows:
            raise self._upsert_race(rows - updated - inserted)
        return Applied(inserted=inserted, updated=updated)

    def _upsert_race(self, rows: int) -> UpsertRace:
        return UpsertRace(
            f"{rows} rows of the batch could be neither updated in {self._stage.relation.name} nor inserted",
            hint="others write the same keys, or row security hides them: write again",
        )

    def _run(self, name: str, **parts: sql.Composable) -> int:
        text = statement(name).format(relation=self._relation, won=self._won, **parts)
        return self._connection.execute(text).rowcount

    def _staged(self) -> sql.Composed:
        return sql.SQL(", ").join(names.column("s", self._stage.staged(name)) for name in self._columns)

    def _assignment(self, name: str) -> sql.Composed:
        return sql.SQL("{} = {}").format(sql.Identifier(name), names.column("s", self._stage.staged(name)))

    def _key(self, alias: LiteralString | None) -> sql.Composed:
        return names.columns(alias, [self._stage.staged(name) for name in self._stage.relation.key])

    def _matching(self) -> dict[str, sql.Composable]:
        """The condition that a row of the relation, `r`, is the staged one, `s`; and where such rows can be at all."""
        pairs = (
            sql.SQL("{} = {}").format(names.column("r", name), names.column("s", self._stage.staged(name)))
            for name in self._stage.relation.key
        )
        return {"key_is_same": sql.SQL(" and ").join(pairs), "within": self._within()}

    def _within(self) -> sql.Composable:
        """Constants, from which Postgres can tell which partitions and which part of the lake it concerns."""
        key = names.column("r", self._stage.relation.tier_key.name)
        condition = sql.SQL("{} between {} and {}")
        parts = [condition.format(key, sql.Literal(first), sql.Literal(last)) for first, last in self._ranges()]
        return sql.SQL(" or ").join(parts) if parts else sql.SQL("false")

    def _ranges(self) -> list[tuple[str, str]]:
        tier_key = self._stage.relation.tier_key
        axis = sql.SQL("extract(epoch from v)") if tier_key.type_name in _TIMES else sql.SQL("v::numeric")
        staged = sql.Identifier(self._stage.staged(tier_key.name))
        text = statement("ranges").format(tier_key=staged, won=self._won, axis=axis, most=_MOST_RANGES)
        return self._connection.execute(text).fetchall()  # pyright: ignore[reportReturnType]

    def _refuse_duplicates(self) -> None:
        key = self._stage.relation.key
        texts = (sql.SQL("{}::text").format(names.column("s", self._stage.staged(name))) for name in key)
        text = statement("duplicate").format(key_texts=sql.SQL(", ").join(texts), key=self._key("s"), won=self._won)
        row = self._connection.execute(text).fetchone()
        if row is not None:
            raise UsageError(
                f"the batch has the key ({', '.join(map(quoted, key))}) = ({', '.join(map(str, row))}) more than once",
                hint=f"leave one row of each: df.dropDuplicates({list(key)})",
            )
