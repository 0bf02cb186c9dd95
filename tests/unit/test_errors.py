"""What an error says to Python, to the terminal, and across processes: the hint is there, and once."""

import pickle
import pkgutil
import re
from collections.abc import Iterator
from importlib import import_module

import pytest

import frostline
from frostline import errors
from frostline.catalog.connect import first_line
from frostline.cli.errors import explain, report
from frostline.cli.output import TextOutput
from frostline.errors import FrostlineError, message_of
from frostline.pipeline import tasks


def _imported() -> None:
    """All modules of the package: an error class that nobody has imported is not yet known."""
    for module in pkgutil.walk_packages(frostline.__path__, "frostline."):
        import_module(module.name)


def _below(kind: type[FrostlineError]) -> Iterator[type[FrostlineError]]:
    yield kind
    for subclass in kind.__subclasses__():
        yield from _below(subclass)


_imported()
KINDS = [kind for kind in _below(FrostlineError) if kind.__module__.startswith("frostline")]


def _drawn() -> dict[str, str]:
    """Each error of the drawing at the top of `errors.py`, and the one above it."""
    above: dict[str, str] = {}
    path: list[str] = ["FrostlineError"]
    for indent, name in re.findall(r"^((?:[|+ -]{4})+)(\w+)", errors.__doc__ or "", re.MULTILINE):
        depth = len(indent) // 4
        path[depth:] = [name]
        above[name] = path[depth - 1]
    return above


def test_the_tree_is_as_it_is_drawn() -> None:
    bases = {kind.__name__: [base.__name__ for base in kind.__bases__] for kind in KINDS if kind is not FrostlineError}
    assert bases == {name: [base] for name, base in _drawn().items()}


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
        tasks.unwrap(pickle.loads(pickle.dumps(tasks.attempt(fail, 1))))
    assert type(raised.value) is kind
    assert (str(raised.value), raised.value.hint) == (str(error), error.hint)
    assert (raised.value.sqlstate, raised.value.exit_code) == (error.sqlstate, error.exit_code)


def test_one_line_texts_leave_the_hint_out() -> None:
    error = FrostlineError("no such table 'x'", hint="frostline status")
    assert message_of(error) == first_line(error) == "no such table 'x'"
    assert message_of(ValueError("wrong")) == "wrong"
