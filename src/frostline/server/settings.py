"""Which settings a client may set: those that change nothing here, to the values that everything is in anyway."""

from frostline.server.translate.statements import NotServed

_ACCEPTED: dict[str, tuple[str, ...]] = {
    "timezone": ("utc", "gmt", "etc/utc"),
    "datestyle": ("iso", "iso,mdy", "iso, mdy", "iso,dmy", "iso, dmy", "iso,ymd", "iso, ymd"),
    "intervalstyle": ("postgres",),
    "client_encoding": ("utf8", "utf-8", "unicode"),
    "standard_conforming_strings": ("on", "true", "1"),
    "bytea_output": ("hex",),
}
_FREE = {
    "search_path",
    "extra_float_digits",
    "application_name",
    "client_min_messages",
    "statement_timeout",
    "lock_timeout",
    "idle_in_transaction_session_timeout",
    "session characteristics",
}


def check_setting(name: str, value: str | None) -> None:
    """Raise NotServed unless setting this changes no answer."""
    if name in _FREE or value is None:
        return
    if value.lower() not in _ACCEPTED.get(name, ()):
        raise NotServed(f"the lake server cannot set {name} to {value!r}", hint="it answers in UTC, ISO and UTF8")
