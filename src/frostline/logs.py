"""Logs: stderr, one line of `key=value` for each stage and commit. Never a row value, never a password."""

import json
import logging
import re
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime

Value = str | int | float | bool | None

_PLAIN = re.compile(r"[^\s\"=\\]+")
_SECRETS = (
    (re.compile(r"(\w+://[^:/@\s]*):[^@\s]*@"), r"\1:***@"),
    (re.compile(r"(password\s*[=:]\s*)('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|[^\s,;]+)", re.IGNORECASE), r"\1***"),
)


class LineFormatter(logging.Formatter):
    """One line a record, whatever the message: time, level, logger, then the message; passwords blanked."""

    def format(self, record: logging.LogRecord) -> str:
        """Write the record as one line."""
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        logger = record.name.removeprefix("frostline.")
        message = without_passwords(record.getMessage())
        if record.exc_info and record.exc_info[1]:
            message += " " + fields(error=without_passwords(repr(record.exc_info[1])))
        return f"{at} {record.levelname.lower()} {logger} {' '.join(message.split())}"


def configure(level: str) -> None:
    """Send Frostline's log to stderr. Calling it again replaces the earlier call."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter())
    logger = logging.getLogger("frostline")
    logger.handlers[:] = [handler]
    logger.setLevel(level.upper())
    logger.propagate = False


def fields(**values: Value) -> str:
    """`key=value key="with space"` in the order given; None is left out."""
    return " ".join(f"{key}={_shown(value)}" for key, value in values.items() if value is not None)


@contextmanager
def stage(logger: logging.Logger, name: str, **values: Value) -> Generator[dict[str, Value]]:
    """Log one line when the block ends: how it went, how long it took, and what it put into the yielded dict."""
    began = time.monotonic()
    result: dict[str, Value] = {}
    try:
        yield result
    except KeyboardInterrupt:
        logger.warning("%s", _stage_line(name, "interrupted", began, values))
        raise
    except BaseException as error:
        logger.error("%s", _stage_line(name, "failed", began, {**values, "error": type(error).__name__}))  # noqa: TRY400
        raise
    logger.info("%s", _stage_line(name, "done", began, {**values, **result}))


def without_passwords(text: str) -> str:
    """The text with every password of a connection string blanked."""
    for pattern, replacement in _SECRETS:
        text = pattern.sub(replacement, text)
    return text


def _stage_line(name: str, outcome: str, began: float, values: dict[str, Value]) -> str:
    return (
        f"{fields(stage=name, outcome=outcome, seconds=round(time.monotonic() - began, 3))} {fields(**values)}".strip()
    )


def _shown(value: Value) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    text = str(value)
    return text if _PLAIN.fullmatch(text) else json.dumps(text, ensure_ascii=False)
