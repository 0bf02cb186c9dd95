"""The lake tables that a query names, and what a column reference in it means."""

from collections.abc import Iterator
from dataclasses import dataclass

from postgast import pg_query_pb2 as pb

from frostline.errors import UsageError
from frostline.model import lake_tables
from frostline.model.lake_tables import LakeTable, Remote, ServedTable
from frostline.model.names import BadName
from frostline.model.tables import Column
from frostline.server.served_tables import ServedTables
from frostline.server.translate import duck, tree
from frostline.server.translate.operands import Untranslatable, Value

SNAPSHOT_COLUMN = "frostline_snapshot"


class UnknownName(UsageError):
    """A table or column that is not there."""

    sqlstate = "42P01"


class UnknownColumn(UnknownName):
    """A column that is not there."""

    sqlstate = "42703"


class ColumnsChanged(UsageError):
    """A foreign table whose columns are not those of its lake table any more."""

    sqlstate = "HV021"


@dataclass(frozen=True)
class Source:
    """One lake table in a FROM clause, at one snapshot. `snapshot` None has no rows."""

    alias: str
    table: ServedTable
    remote: Remote
    snapshot: int | None
    location: int
    aliased: bool = False
    """The alias is in the query, not only the table's own name."""

    def value(self, column: Column) -> Value:
        """The column as DuckDB has it; only for types whose comparisons are known to agree."""
        if not column.encoding.pushable:
            raise Untranslatable(f"conditions on {column.pg_type.name} are for Postgres")
        pg_type = column.pg_type
        return Value(
            duck.column(column),
            pg_type.name,
            pg_type.precision or 0,
            pg_type.scale or 0,
            column.collation,
            column.collation_name,
        )


def remote_table(node: tree.RangeVar, tables: ServedTables) -> tuple[ServedTable, Remote]:
    """What a name in FROM stands for."""
    try:
        remote = lake_tables.remote(str(node.relname))
    except BadName:
        raise UnknownName(f"not a lake table: {node.relname!r}", hint="query the relation in Postgres") from None
    table = tables.resolve(remote)
    if isinstance(table, LakeTable):
        require_columns(table, str(node.schemaname))
    return table, remote


def require_columns(table: LakeTable, schema: str) -> None:
    """Refuse a foreign table that was made when the lake table had other columns: names may mean others by now."""
    known = table.differences
    asked = schema if lake_tables.is_checked(schema) else lake_tables.UNCHECKED
    difference = known.get(asked, "it was made for columns that the lake table has forgotten") if known else None
    if difference is not None:
        raise ColumnsChanged(
            f"the foreign table does not fit lake table {table.name} any more: {difference}",
            hint=f"frostline lake sync {table.name}; on a node: frostline lake attach",
        )


@dataclass(frozen=True)
class Scope:
    """One lake table and the parameters: what a condition on it may speak of."""

    source: Source
    params: tuple[str | None, ...] = ()

    def column(self, node: object) -> Column | None:
        """The column that this node names, None for anything else (`frostline_snapshot` included)."""
        name = self.name(node)
        if name is None or name == SNAPSHOT_COLUMN:
            return None
        try:
            return self.source.table.column(name)
        except KeyError:
            if name == self.source.alias:
                raise Untranslatable("a whole row") from None
            raise UnknownColumn(f"column {name!r} does not exist") from None

    def name(self, node: object) -> str | None:
        """The name of the column that this node refers to, None when it is no column of this table."""
        if not isinstance(node, tree.ColumnRef):
            return None
        parts = [str(part.sval) for part in node.fields or () if isinstance(part, tree.String)]
        if len(parts) != len(node.fields or ()) or len(parts) > 2:
            return None
        if len(parts) == 2 and parts[0] != self.source.alias:
            return None
        return parts[-1]


def conjuncts(node: tree.Node | None) -> Iterator[tree.Node]:
    """The conditions that all have to hold, in order. No recursion: they may be deeper than Python's stack."""
    waiting = [node]
    while waiting:
        part = waiting.pop()
        if isinstance(part, tree.BoolExpr) and part.boolop == pb.AND_EXPR:
            waiting += reversed(part.args or ())
        elif part is not None:
            yield part
