"""Log lines: one line each, key=value, and no password whatever is logged."""

import logging
from collections.abc import Iterator

import pytest

from frostline import logs


@pytest.fixture(autouse=True)
def untouched_logging() -> Iterator[None]:
    logger = logging.getLogger("frostline")
    before = (list(logger.handlers), logger.level, logger.propagate)
    yield
    logger.handlers[:], logger.propagate = before[0], before[2]
    logger.setLevel(before[1])


def test_fields_quote_only_what_needs_it() -> None:
    line = logs.fields(table="public.events", rows=3, note='a "b"', empty=None, done=True, share=0.5)
    assert line == 'table=public.events rows=3 note="a \\"b\\"" done=true share=0.5'


def test_a_stage_is_one_line_with_what_it_found(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("info")
    with logs.stage(logging.getLogger("frostline.pipeline.archive"), "export", table="public.events") as fields:
        fields["rows"] = 12
    line = capsys.readouterr().err
    assert line.count("\n") == 1
    assert " info pipeline.archive stage=export outcome=done seconds=" in line
    assert line.endswith(" table=public.events rows=12\n")


def test_a_failed_stage_is_one_line_too(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("info")
    with pytest.raises(ZeroDivisionError), logs.stage(logging.getLogger("frostline.x"), "verify"):
        _ = 1 // 0
    assert "stage=verify outcome=failed" in capsys.readouterr().err


def test_an_exception_with_line_breaks_stays_on_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("info")
    try:
        int("first\nsecond")
    except ValueError:
        logging.getLogger("frostline.x").exception("it\nbroke")
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize(
    "text",
    [
        "postgresql://me:s3cret@host:5432/db",
        "postgres://:s3cret@/db",
        "host=h password=s3cret user=u",
        "host=h password='s3cret' user=u",
        "password = s3cret",
        "Password: s3cret",
        'error: password="s3cret"',
    ],
)
def test_no_form_of_a_connection_string_shows_its_password(text: str) -> None:
    assert "s3cret" not in logs.without_passwords(text)


def test_the_log_keeps_quiet_below_its_level(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("warning")
    logging.getLogger("frostline.x").info("hello")
    assert capsys.readouterr().err == ""
