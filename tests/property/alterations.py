"""Random ALTERs of a managed table, for a plain one too: what a life of `test_lifecycle` can do to its columns.

A change is drawn without a look at the table, and fitted to the columns that there are when its turn comes. To try one
more kind of ALTER, write its class and put it into `changes`.
"""

from dataclasses import dataclass, field
from typing import Protocol

from hypothesis import strategies as st
from tests.fixtures.months import ROLES, identifier

DEFAULTS = {
    "smallint": "-3",
    "int": "5",
    "text": "'it''s'",
    "numeric": "1.50",
    "numeric(12,2)": "-0.5",
    "numeric(14,2)": "-0.5",
    "boolean": "true",
    "uuid": "'7d444840-9dc0-11d1-b245-5ffdce74fad2'",
    "date": "'1960-02-29'",
    "real": "0.1",
    "float8": "'-0'",
    "bytea": "'\\x00ff5c27'",
    "timestamptz": "'1960-02-29 12:00+00'",
    "timestamptz[]": "array[timestamptz '1960-02-29 12:00+00', null]",
    "bigint": "9",
    "public.rank": "'so \"so\"'",
    "public.rank[]": "array['low', null]::public.rank[]",
    "public.spot": "row(1, 'a, b', '{high}')",
}
"""The kinds of columns that are added, and a default of each."""
ADDED = (
    "",
    "default {value}",
    "not null default {value}",
    "default {value}; alter column {name} drop default",
    "; alter column {name} set default {value}",
    "default {now}; alter column {name} set default null",
    "not null default {now}; alter column {name} drop not null; alter column {name} set default {value}",
)
"""How. Rows that come later do not get their own now(), which would differ from table to table."""
WIDER = {"smallint": "int", "int": "bigint", "real": "float8", "numeric(12,2)": "numeric(14,2)"}
"""Types that a column can have instead of its own."""
NAMES = (*ROLES, "state", "at", "select", "größe", 'a "b"', "c.d", "Id")
"""What columns are called. There are few, so that they exchange their names, and a new one has the name of an old one."""
MOST = 8
KEY = 2
"""So many columns, the first ones, are the primary key."""
CHECKS = {"short": "{id} < 1000", "not_105": "{id} <> 105"}
"""By the name of the constraint. Rows of every new month hold them, and what is inserted or moved may break them."""


@dataclass
class Shape:
    """The columns of both tables: what each is called, of what type it is, whether NULL is refused. By their numbers."""

    roles: list[str | None] = field(default_factory=lambda: list(ROLES))
    """What the first ones were called in the beginning."""
    names: list[str] = field(default_factory=lambda: list(ROLES))
    kinds: list[str] = field(default_factory=lambda: ["bigint", "timestamptz", "text", "numeric(12,2)"])
    required: set[int] = field(default_factory=lambda: {0, 1, 2})

    def copy(self) -> "Shape":
        """What a rollback goes back to."""
        return Shape(list(self.roles), list(self.names), list(self.kinds), set(self.required))

    def add(self, name: str, kind: str) -> None:
        """One column more, at the end."""
        self.roles.append(None)
        self.names.append(name)
        self.kinds.append(kind)

    def drop(self, column: int) -> str:
        """One column less; returns what it was called."""
        del self.roles[column], self.kinds[column]
        self.required = {number - (number > column) for number in self.required - {column}}
        return self.names.pop(column)

    def free_name(self, wanted: str) -> str:
        """The name, or if a column has it, one that none has."""
        return next(name for name in (wanted, *NAMES) if name not in self.names)


class Change(Protocol):
    """One change to the columns."""

    @property
    def on_relation(self) -> bool:
        """Whether it is sent to the relation instead of its heap, where the relation lets it pass."""
        ...

    def alter(self, shape: Shape, follows: bool) -> list[str]:
        """What to send behind ALTER TABLE and the name; the shape becomes what it is afterwards.

        `follows` says that the relation follows each statement by itself.
        """
        ...


@dataclass(frozen=True)
class Rename:
    """Another name for a column; if another column has it, the two exchange their names."""

    column: int
    name: str
    on_relation: bool = False

    def alter(self, shape: Shape, follows: bool) -> list[str]:
        """One rename, or three."""
        column = self.column % len(shape.names)
        old = shape.names[column]
        moves = [(old, self.name)]
        if self.name == old:
            return []
        if self.name in shape.names:
            shape.names[shape.names.index(self.name)] = old
            moves = [(old, "passing"), (self.name, old), ("passing", self.name)]
        shape.names[column] = self.name
        return [f"rename column {identifier(before)} to {identifier(after)}" for before, after in moves]


@dataclass(frozen=True)
class Add:
    """One column more."""

    kind: str
    how: str
    name: str
    on_relation: bool = False

    def alter(self, shape: Shape, follows: bool) -> list[str]:
        """The column, and what becomes of its default."""
        if len(shape.names) >= MOST:
            return []
        name, value = shape.free_name(self.name), DEFAULTS[self.kind]
        now = "now()" if self.kind in ("timestamptz", "text") else value
        first, *afterwards = self.how.format(name=identifier(name), value=value, now=now).split("; ")
        if not follows and self.how.startswith(";"):
            afterwards = []  # the sync would not know what came first
        shape.add(name, self.kind)
        if "not null" in first and not any("drop not null" in later for later in afterwards):
            shape.required.add(len(shape.names) - 1)
        return [f"add column {identifier(name)} {self.kind} {first}", *afterwards]


@dataclass(frozen=True)
class SetDefault:
    """Another default, which only rows get that come later."""

    column: int
    on_relation: bool = False

    def alter(self, shape: Shape, follows: bool) -> list[str]:
        """Of any column."""
        column = self.column % len(shape.names)
        return [f"alter column {identifier(shape.names[column])} set default {DEFAULTS[shape.kinds[column]]}"]


@dataclass(frozen=True)
class DropDefault:
    """No default, for rows that come later."""

    column: int
    on_relation: bool = False

    def alter(self, shape: Shape, follows: bool) -> list[str]:
        """Of a column that can do without."""
        column = self.column % len(shape.names)
        if shape.roles[column] is None and column in shape.required:
            return []
        return [f"alter column {identifier(shape.names[column])} drop default"]


@dataclass(frozen=True)
class Drop:
    """One column less, of those that are not in the key."""

    column: int
    on_relation: bool = False

    def alter(self, shape: Shape, follows: bool) -> list[str]:
        """Postgres refuses it where no event trigger lets the relation stand aside."""
        others = range(KEY, len(shape.names))
        if not follows or not others:
            return []
        return [f"drop column {identifier(shape.drop(others[self.column % len(others)]))}"]


@dataclass(frozen=True)
class Widen:
    """Another type. It rewrites both heaps, which no older snapshot sees."""

    column: int
    on_relation: bool = False

    def alter(self, shape: Shape, follows: bool) -> list[str]:
        """Of the next column that has a wider one."""
        order = sorted(range(len(shape.names)), key=lambda number: (number < self.column, number))
        column = next((number for number in order if shape.kinds[number] in WIDER), None)
        if not follows or column is None:
            return []
        shape.kinds[column] = WIDER[shape.kinds[column]]
        return [f"alter column {identifier(shape.names[column])} type {shape.kinds[column]}"]


columns = st.integers(0, MOST - 1)
changes: st.SearchStrategy[Change] = st.one_of(
    st.builds(Rename, columns, st.sampled_from(NAMES), st.booleans()),
    st.builds(Add, st.sampled_from(list(DEFAULTS)), st.sampled_from(ADDED), st.sampled_from(NAMES)),
    st.builds(SetDefault, columns, st.booleans()),
    st.builds(DropDefault, columns, st.booleans()),
    st.builds(Drop, columns),
    st.builds(Widen, columns),
)
