"""Policies of many tables as one document: what `table export` writes and `table import` reads."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, cast

from frostline.model.heap_grid import spelled
from frostline.model.names import Name
from frostline.model.policy import ExpireBy, ForeignKeys, Mode, Policy
from frostline.model.tables import Table

VERSION = 1
_NAMES = {field.name: field.name for field in fields(Policy)} | {"partition_interval": "every"}
"""What the document calls each policy."""
_KEYS = ("mode", "lake_partition", "relation", "foreign_keys", *_NAMES.values())
_NUMBERS = ("premake", "fold_rows", "target_file_size")
_CHOICES: Mapping[str, type[Mode] | type[ExpireBy] | type[ForeignKeys]] = {
    "mode": Mode,
    "expire_by": ExpireBy,
    "foreign_keys": ForeignKeys,
}
_OPTIONAL = ("hot_period", "retention_period", "every")


class BadDocument(ValueError):
    """The document is not one of ours; the text says where and why."""


@dataclass(frozen=True)
class Entry:
    """What the document says of one table. None: nothing."""

    name: Name
    mode: Mode
    lake_partition: str | None
    policy: Policy
    relation_name: str | None = None
    """Of a relation beside its table."""
    foreign_keys: ForeignKeys | None = None


def document(tables: Sequence[Table]) -> dict[str, Any]:
    """The policies of these tables."""
    return {"version": VERSION, "tables": {str(table.name): _described(table) for table in tables}}


def _described(table: Table) -> dict[str, Any]:
    policy = {key: getattr(table.policy, name) for name, key in _NAMES.items()}
    policy["expire_by"] = table.policy.expire_by.value
    return {
        "mode": table.mode.value,
        **({} if table.lake_partition is None else {"lake_partition": table.lake_partition}),
        **({} if table.relation_name is None else {"relation": table.relation_name}),
        **({"foreign_keys": table.foreign_keys.value} if table.has_lake else {}),
        **{key: value for key, value in policy.items() if value is not None},
    }


def entries(parsed: object) -> list[Entry]:
    """Read a document; what an entry leaves out has its default. Raises BadDocument."""
    if not isinstance(parsed, Mapping):
        raise BadDocument("not a document with `version` and `tables`")
    given = cast(Mapping[Any, Any], parsed)
    unknown = set(given) - {"version", "tables"}
    if unknown:
        raise BadDocument(f"unknown key {min(map(str, unknown))!r}")
    if given.get("version") != VERSION:
        raise BadDocument(f"version {given.get('version')!r} is not {VERSION}")
    if not isinstance(given.get("tables"), Mapping):
        raise BadDocument("`tables` is not a mapping from names to policies")
    return list(_entries(given["tables"]))


def _entries(tables: Mapping[Any, Any]) -> Iterator[Entry]:
    for name, given in tables.items():
        try:
            yield _entry(Name.parse(str(name)), given)
        except ValueError as error:
            raise BadDocument(f"{name}: {error}") from None


def _entry(name: Name, given: object) -> Entry:
    if not isinstance(given, Mapping):
        raise BadDocument("not a mapping from policies to values")
    values = {str(key): value for key, value in cast(Mapping[Any, Any], given).items()}
    for key, value in values.items():
        _check(key, value)
    mode, lake_partition = Mode(values.pop("mode", Mode.TIERED)), values.pop("lake_partition", None)
    relation_name = values.pop("relation", None)
    foreign_keys = ForeignKeys(values.pop("foreign_keys")) if "foreign_keys" in values else None
    if "expire_by" in values:
        values["expire_by"] = ExpireBy(values["expire_by"])
    for key in _OPTIONAL:
        if values.get(key) is not None:
            values[key] = str(values[key])
    if values.get("every") is not None:
        values["every"] = spelled(values["every"])
    policy = {name: values[key] for name, key in _NAMES.items() if key in values}
    return Entry(name, mode, lake_partition, Policy(**policy), relation_name, foreign_keys)


def _check(key: str, value: object) -> None:
    if key not in _KEYS:
        raise BadDocument(f"unknown policy {key!r}")
    if key in _OPTIONAL and (value is None or type(value) is int):
        return
    if key in _CHOICES and value not in list(_CHOICES[key]):
        raise BadDocument(f"{key} {value!r} is not one of {', '.join(_CHOICES[key])}")
    wanted = int if key in _NUMBERS else str
    if type(value) is not wanted:
        raise BadDocument(f"{key} {value!r} is not {'a number' if wanted is int else 'a text'}")
