"""How a table that cannot be taken is refused: all reasons at once, each with what to do about it."""

from collections.abc import Sequence

from frostline.errors import UsageError
from frostline.model.names import Name
from frostline.model.registration import Refusal


def refuse(doing: str, name: Name, reasons: Sequence[Refusal]) -> None:
    """Raise UsageError if there is any reason."""
    if reasons:
        reason = "; ".join(refusal.reason for refusal in reasons)
        raise UsageError(f"cannot {doing} {name}: {reason}", hint="\n".join(refusal.hint for refusal in reasons))
