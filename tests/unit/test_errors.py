"""What an error says to Python, to the terminal, and across processes: the hint is there, and once."""

import pickle

import pytest

from frostline import errors
from frostline.catalog.connect import first_line
from frostline.cli.errors import explain, report
from frostline.cli.output import TextOutput
from frostline.errors import FrostlineError, message_of
from frostline.pipeline import tasks

KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, FrostlineError)]


@pytest.mark.parametrize("kind", KINDS)
def test_python_callers_see_the_hint_in_the_text_of_an_error(kind: type[FrostlineError]) -> None:
    error = kind("no such table 'x'", hint="frostline status\nfrostline table add x")
    assert str(error) == "no such table 'x'; hint: frostline status; frostline table add x"
    assert str(kind("no such table 'x'")) == "no such table 'x'"
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


@pytest.mark.parametrize("kind", KINDS)
def test_the_terminal_shows_the_hint_once(kind: type[FrostlineError], capsys: pytest.CaptureFixture[str]) -> None:
    error = kind("no such table 'x'", hint="frostline status")
    complaint = explain(error)
    assert (complaint.message, complaint.hint) == ("no such table 'x'", "frostline status")
    report(error, TextOutput(), debug=False)
    assert capsys.readouterr().err == "error: no such table 'x'\nhint: frostline status\n"


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_of_a_task_is_the_same_error_in_the_driver(kind: type[FrostlineError]) -> None:
    error = kind("no such table 'x'", hint="frostline status")

    def fail(_: int) -> None:
        raise error

    with pytest.raises(kind) as raised:
        tasks.unwrap(tasks.attempt(fail, 1))
    assert (str(raised.value), raised.value.hint) == (str(error), error.hint)


def test_one_line_texts_leave_the_hint_out() -> None:
    error = FrostlineError("no such table 'x'", hint="frostline status")
    assert message_of(error) == first_line(error) == "no such table 'x'"
    assert message_of(ValueError("wrong")) == "wrong"
