"""The select list of a plain scan: columns, NULL, the snapshot, and `*`, as text that Postgres reads back."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from frostline.lake import ducksql
from frostline.lake.ducktext import printed_value
from frostline.model.tables import Column
from frostline.server.protocol.backend import TEXT_OID, ResultColumn
from frostline.server.translate import duck, tree
from frostline.server.translate.operands import Untranslatable, constant
from frostline.server.translate.scope import SNAPSHOT_COLUMN, Scope

TYPE_OIDS = {
    "bool": 16,
    "bytea": 17,
    "int8": 20,
    "int2": 21,
    "int4": 23,
    "text": 25,
    "float4": 700,
    "float8": 701,
    "varchar": 1043,
    "date": 1082,
    "timestamp": 1114,
    "timestamptz": 1184,
    "numeric": 1700,
    "uuid": 2950,
}


@dataclass(frozen=True)
class Projection:
    """What the client gets: column descriptions, the text expressions, and the lake columns behind them."""

    result: tuple[ResultColumn, ...]
    outputs: tuple[str, ...]
    columns: tuple[Column, ...]


def projection(targets: Sequence[tree.ResTarget], scope: Scope) -> Projection:
    """The select list; raises Untranslatable for expressions."""
    items = [item for target in targets for item in _target(target, scope)]
    columns = tuple(column for _, _, column in items if column is not None)
    return Projection(tuple(result for result, _, _ in items), tuple(output for _, output, _ in items), columns)


_Item = tuple[ResultColumn, str, Column | None]


def _target(target: tree.ResTarget, scope: Scope) -> Iterator[_Item]:
    node = target.val
    if isinstance(node, tree.ColumnRef) and any(isinstance(part, tree.A_Star) for part in node.fields or ()):
        yield from (_column(column, column.name) for column in scope.source.table.columns)
        yield _snapshot(scope, SNAPSHOT_COLUMN)
        return
    column, const = scope.column(node), constant(node, scope.params)
    if column is not None:
        yield _column(column, target.name or column.name)
    elif scope.name(node) == SNAPSHOT_COLUMN:
        yield _snapshot(scope, target.name or SNAPSHOT_COLUMN)
    elif const is not None and const.text is None:
        yield ResultColumn(target.name or "?column?"), duck.cast("null", "varchar"), None
    else:
        raise Untranslatable("an expression in the select list")


def _snapshot(scope: Scope, name: str) -> _Item:
    return ResultColumn(name, TYPE_OIDS["int8"]), ducksql.literal(str(scope.source.snapshot)), None


def _column(column: Column, name: str) -> _Item:
    oid = TYPE_OIDS.get(column.pg_type.name, TEXT_OID) if column.pg_type.builtin else TEXT_OID
    return ResultColumn(name, oid), printed(column), column


def printed(column: Column) -> str:
    """The column as text, in DuckDB SQL."""
    return printed_value(duck.column(column), column.encoding.lake_type)
