"""Values as Spark hands them to Python, as numbers: days or microseconds since 1970, or integers as they are."""

from datetime import UTC, date, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def of_python(value: object) -> int | None:
    """The number; None for a value that has none."""
    match value:
        case bool():
            return None
        case int():
            return value
        case datetime():
            aware = value if value.tzinfo else value.replace(tzinfo=UTC)
            return (aware - _EPOCH) // timedelta(microseconds=1)
        case date():
            return (value - _EPOCH.date()).days
        case _:
            return None
