"""Snapshots of many tables: which tables a pattern means, and how work is shared out."""

import heapq
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from frostline.model.names import Name

_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")
_PART = re.compile(r'\s*(?:"((?:[^"]|"")+)"|([^\s",.]+))\s*')
_KINDS = {"v": "a view", "m": "a materialized view", "f": "a foreign table"}
_PIECE_BYTES = 4 << 20
"""What opening, describing and proving a file costs, in bytes that could be read meanwhile."""
_FEWEST_BINS = 8

_COPIES = (
    "select namespace, lake_table, metadata_location, lake_snapshot_id from frostline.snapshot_cut"
    " where name = '{name}'"
)
_COPIES_OF_VERSION = (
    "select namespace, lake_table, metadata_location, lake_snapshot_id from frostline.snapshot_table"
    " where snapshot_id = (select snapshot_id from frostline.snapshot"
    " where state = 'published' and name = '{name}' and version = {version})"
)

Item = TypeVar("Item")


class BadRequest(ValueError):
    """What was asked for cannot be meant. `hint` says what could be."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


@dataclass(frozen=True)
class Relation:
    """Something in Postgres that has the name of a table."""

    name: Name
    oid: int
    """Of a managed table with a lake: its heap's. 0 of a lake table that has no foreign table here."""
    kind: str
    """`pg_class.relkind`."""
    is_partition: bool = False
    is_managed: bool = False
    """It has a lake, and this is its relation's name."""
    lake_table_id: int | None = None
    """Of one that lives in the lake alone: its number."""

    @property
    def is_lake_table(self) -> bool:
        """Whether it lives in the lake alone."""
        return self.lake_table_id is not None

    @property
    def is_table(self) -> bool:
        """Whether a snapshot can take it."""
        return self.is_managed or self.is_lake_table or self.kind in ("r", "p")

    @property
    def number(self) -> int:
        """What it is known by in the next version. A lake table stays the same when its foreign table is made anew."""
        return self.oid if self.lake_table_id is None else self.lake_table_id


@dataclass(frozen=True)
class Pattern:
    """`schema.table` where `*` stands for anything; in quotes it is an ordinary character."""

    text: str
    schema: re.Pattern[str]
    table: re.Pattern[str]
    is_exact: bool

    def matches(self, name: Name) -> bool:
        """Whether the name is one of those it stands for."""
        return bool(self.schema.fullmatch(name.schema) and self.table.fullmatch(name.table))


def check_name(name: str) -> None:
    """Refuse what cannot be the name of a snapshot: it becomes a namespace in the lake and a folder."""
    if not _NAME.fullmatch(name):
        raise BadRequest(
            f"not a name of a snapshot: {name!r}", "use a-z, 0-9 and _, beginning with a letter, at most 63 of them"
        )


def parse_patterns(texts: Iterable[str]) -> list[Pattern]:
    """Read patterns, several of them in one text when commas are between."""
    return [pattern for text in texts for pattern in _patterns(text)]


def _patterns(text: str) -> list[Pattern]:
    patterns: list[Pattern] = []
    parts: list[tuple[str | None, str | None]] = []
    position = start = 0
    while True:
        part = _PART.match(text, position)
        if not part:
            raise BadRequest(f"not a pattern of tables: {text!r}", "for example 'public.*' or 'sales.orders'")
        parts.append((part[1], part[2]))
        position = part.end()
        if position == len(text) or text[position] == ",":
            patterns.append(_pattern(text[start:position].strip(), parts))
            parts, start = [], position + 1
        if position == len(text):
            return patterns
        position += 1


def _pattern(text: str, parts: Sequence[tuple[str | None, str | None]]) -> Pattern:
    if len(parts) > 2:
        raise BadRequest(f"not a pattern of tables: {text!r}", "for example 'public.*' or 'sales.orders'")
    schema, table = parts if len(parts) == 2 else (("public", None), parts[0])
    is_exact = not any(bare and "*" in bare for _, bare in (schema, table))
    return Pattern(text, _regex(*schema), _regex(*table), is_exact)


def _regex(inside: str | None, bare: str | None) -> re.Pattern[str]:
    if inside is not None:
        return re.compile(re.escape(inside.replace('""', '"')))
    return re.compile(re.escape((bare or "").lower()).replace(r"\*", ".*"), re.DOTALL)


def choose(wanted: Sequence[Pattern], excluded: Sequence[Pattern], there: Sequence[Relation]) -> list[Relation]:
    """The tables that are meant, by name. Each pattern must mean one at least.

    Views, other foreign tables than those of lake tables, and single partitions are passed over, unless one is named
    without a star: a partition is then taken, and the others are refused.
    """
    matched: dict[Name, Relation] = {}
    for pattern in wanted:
        meant = [relation for relation in there if pattern.matches(relation.name)]
        matched |= {relation.name: relation for relation in _usable(pattern, meant)}
    for pattern in excluded:
        if not any(pattern.matches(relation.name) for relation in there):
            raise BadRequest(f"--exclude {pattern.text!r} names no table", "take it out, or correct it")
    chosen = [
        relation for relation in matched.values() if not any(pattern.matches(relation.name) for pattern in excluded)
    ]
    if not chosen:
        raise BadRequest("no table is left to take", "say --tables 'public.*', and exclude less")
    return sorted(chosen, key=lambda relation: relation.name)


def _usable(pattern: Pattern, meant: Sequence[Relation]) -> list[Relation]:
    usable = [relation for relation in meant if relation.is_table and (pattern.is_exact or not relation.is_partition)]
    if usable:
        return usable
    if pattern.is_exact and meant:
        kind = _KINDS.get(meant[0].kind, "no table")
        raise BadRequest(f"{meant[0].name} is {kind}, and snapshots take tables only", "copy it into a table first")
    raise BadRequest(f"--tables {pattern.text!r} names no table", "psql: \\dt *.* shows the tables there are")


def bins(items: Mapping[Item, int] | Sequence[tuple[Item, int]], capacity_bytes: int) -> list[list[Item]]:
    """Share items of these sizes out to tasks that take about as long as each other; small ones share a task."""
    sized = [(size + _PIECE_BYTES, item) for item, size in (items.items() if isinstance(items, Mapping) else items)]
    total = sum(size for size, _ in sized)
    count = min(len(sized), max(_FEWEST_BINS, -(-total // capacity_bytes)))
    result: list[list[Item]] = [[] for _ in range(count)]
    loads = [(0, number) for number in range(count)]
    for size, item in sorted(sized, key=lambda pair: -pair[0]):
        load, number = heapq.heappop(loads)
        result[number].append(item)
        heapq.heappush(loads, (load + size, number))
    return result


def namespace(snapshot: str, name: Name) -> str:
    """The namespace of a copy in the built-in catalog, as SQL catalogs of Iceberg write two levels."""
    return f"{snapshot}.{name.schema}"


def copies_query(snapshot: str, version: int | None) -> str:
    """The one select that gives a reader all copies as of one moment. The name has passed `check_name`."""
    return (_COPIES if version is None else _COPIES_OF_VERSION).format(name=snapshot, version=version)
