"""What a transaction is told that reads a cut whose files were expired: docs/design/lake-tables.md, "Upkeep"."""

from collections.abc import Callable, Collection, Mapping

from frostline.catalog.pointers import LakePointer
from frostline.errors import ConflictError, FrostlineError, UnavailableError
from frostline.lake import paths


class CutExpired(ConflictError):
    """A transaction is older than a lake table keeps its states."""

    sqlstate = "72000"


def explained(
    error: FrostlineError,
    cut: Mapping[int, LakePointer],
    touched: Collection[int],
    now: Callable[[], Mapping[int, LakePointer]],
) -> FrostlineError:
    """The error, or that a table's state of the cut has expired, if that is why a file is missing.

    The metadata file of a state is deleted before its other files. Where that of the present state is missing too, the
    warehouse is not there.
    """
    if not isinstance(error, UnavailableError) or not touched:
        return error
    try:
        present = now()
        for number in touched:
            then, current = cut[number], present.get(number)
            if current is None or current.metadata_location == then.metadata_location:
                continue
            if paths.stamp(then.metadata_location) is None and paths.stamp(current.metadata_location) is not None:
                return CutExpired(
                    f"the transaction is older than lake table {then.name} keeps its states",
                    hint="begin a new one; for longer ones: "
                    f"frostline lake set {then.name} --snapshot-retention '7 days'",
                )
    except (FrostlineError, OSError):
        return error
    return error
