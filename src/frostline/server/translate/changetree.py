"""The nodes of INSERT, UPDATE and DELETE, which only lake tables know: the rest of the tree is in `tree`."""

from collections.abc import Sequence
from dataclasses import dataclass

from frostline.server.translate.tree import Node, Nodes, RangeVar, ResTarget


@dataclass(slots=True, eq=False)
class SetToDefault(Node):
    """DEFAULT in the place of a value."""


@dataclass(slots=True, eq=False)
class ReturningClause(Node):
    """RETURNING."""

    exprs: Sequence[ResTarget] = ()


@dataclass(slots=True, eq=False)
class InsertStmt(Node):
    """INSERT."""

    relation: RangeVar | None = None
    cols: Sequence[ResTarget] = ()
    select_stmt: Node | None = None
    returning_clause: ReturningClause | None = None


@dataclass(slots=True, eq=False)
class UpdateStmt(Node):
    """UPDATE."""

    relation: RangeVar | None = None
    target_list: Sequence[ResTarget] = ()
    where_clause: Node | None = None
    from_clause: Nodes = ()
    returning_clause: ReturningClause | None = None
    with_clause: Node | None = None


@dataclass(slots=True, eq=False)
class DeleteStmt(Node):
    """DELETE."""

    relation: RangeVar | None = None
    using_clause: Nodes = ()
    where_clause: Node | None = None
    returning_clause: ReturningClause | None = None
    with_clause: Node | None = None


KINDS: dict[str, type[Node]] = {
    kind.__name__: kind for kind in (SetToDefault, ReturningClause, InsertStmt, UpdateStmt, DeleteStmt)
}
"""The classes above by name, which is the parser's."""
