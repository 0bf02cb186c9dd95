"""How the columns of a table differ from those that are known of it, in words. One text for all who look."""

from collections.abc import Collection, Iterator, Mapping, Sequence


def difference(known: Mapping[str, str], present: Mapping[str, str], anew: Collection[str] = ()) -> str | None:
    """What has changed of these columns, by name and type in their order; None when nothing has.

    `anew` are those whose name and type are as they were, and that are others all the same.
    """
    return ", ".join(_differences(known, present, anew)) or None


def _differences(known: Mapping[str, str], present: Mapping[str, str], anew: Collection[str]) -> Iterator[str]:
    yield from _listed("it has no column", [name for name in known if name not in present])
    yield from _listed("it has a new column", [name for name in present if name not in known])
    kept = [name for name in known if name in present]
    yield from (f"column {name} is {present[name]} now" for name in kept if present[name] != known[name])
    if kept != [name for name in present if name in known]:
        yield "columns have changed their places"
    yield from _listed("it has made anew the column", [name for name in kept if name in anew])


def _listed(what: str, columns: Sequence[str]) -> Iterator[str]:
    if columns:
        yield f"{what} {', '.join(columns)}"
