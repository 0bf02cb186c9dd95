"""Every command that a message tells people to run exists, and its options and arguments fit."""

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import frostline
from frostline.cli.main import COMMANDS as MAIN
from frostline.cli.main import program
from frostline.model.work import Kind

SOURCE = Path(frostline.__file__).parent
HOLE = "x"
"""What stands for a value that is known only when the message is made."""
_COMMAND = re.compile(r"\bfrostline (?=[a-z-])")
_WORD = re.compile(r"""'[^']*'|"[^"]*"|[^\s;,`()]+[;,]?""")


NO_COMMANDS = ("export", "time zone", "lake server", "spark", "at least as new as")
"""What follows the name where it is no command: how our sessions in Postgres are called, and prose."""


def texts(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Every text of a module that is no docstring, with holes for what is put in."""
    nodes = list(ast.walk(tree))
    passed_over = {
        id(node.body[0].value)
        for node in nodes
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    passed_over |= {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in nodes:
        if isinstance(node, ast.JoinedStr):
            parts = [part.value if isinstance(part, ast.Constant) else HOLE for part in node.values]
            yield node.lineno, "".join(map(str, parts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in passed_over:
            yield node.lineno, node.value


def words_of(text: str) -> list[str]:
    """The words of a command at the beginning of a text. It ends where prose goes on."""
    hints: list[str] = []
    command: click.Command | None = program
    takes_value = False
    for match in _WORD.finditer(text):
        word = match[0].rstrip(";,.:") or "..."
        below = command.get_command(click.Context(command), word) if isinstance(command, click.Group) else None
        is_value = word in (HOLE, "...") or word.isupper() or word[0] in "'\"" or word[:1].isdigit()
        if below is None and not (takes_value or is_value or word.startswith("-")):
            break
        command = below or command
        takes_value = word.startswith("--") and "=" not in word and _takes_value(command, word)
        hints.append(word)
        if match[0] != word:
            break
    return hints


def _takes_value(command: click.Command, word: str) -> bool:
    options = [
        parameter for parameter in command.params if isinstance(parameter, click.Option) and word in parameter.opts
    ]
    return any(not option.is_flag for option in options)


def said() -> list[tuple[str, str, bool]]:
    """Where, the command, and whether the message consists of it alone."""
    named: list[tuple[str, str, bool]] = []
    for path in sorted(SOURCE.rglob("*.py")):
        source = path.read_text()
        for line, text in texts(ast.parse(source)) if _COMMAND.search(source) else ():
            for match in _COMMAND.finditer(text):
                if text[match.end() :].startswith((HOLE, *NO_COMMANDS)):
                    continue  # for a hole, see the other tests
                words = words_of(text[match.end() :])
                alone = match.start() == 0 and text[match.end() :].strip() == " ".join(words)
                named.append((f"{path.relative_to(SOURCE)}:{line}", " ".join(words) or text[match.end() :], alone))
    return named


HINTS = said()


def test_there_are_many() -> None:
    assert len(HINTS) > 60


def test_whatever_can_fail_is_a_command() -> None:
    """`frostline status` names the kind of job that failed as the command to run."""
    assert {kind.value for kind in Kind} <= set(MAIN)


def test_what_a_job_calls_itself_is_a_command() -> None:
    """A job whose Postgres went away names it in its hint, with the table."""
    names = re.findall(
        r'job\.(?:on_table|leased)\([^"]*"([^"]+)"', "".join(path.read_text() for path in SOURCE.rglob("*.py"))
    )
    assert len(names) > 8
    for name in names:
        test_it_can_be_run("job.py", f"{name} {HOLE}", alone=True)


@pytest.mark.parametrize(("where", "text", "alone"), HINTS, ids=[f"{where} {text}" for where, text, _ in HINTS])
def test_it_can_be_run(where: str, text: str, alone: bool) -> None:
    words = shlex.split(text)
    context, command = click.Context(program), program
    while isinstance(command, click.Group) and words:
        while words and words[0].startswith("--"):
            words = words[2:]
        if not words:
            return  # --help, or --version
        below = command.get_command(context, words.pop(0))
        assert below, f"{where}: there is no command: frostline {text}"
        context, command = click.Context(below, parent=context), below
    if isinstance(command, click.Group):
        assert not alone, f"{where}: frostline {text} does nothing"
        return
    given, rest, _ = command.make_parser(context).parse_args(list(words))
    assert not rest, f"{where}: too much: {rest}"
    if alone:
        for parameter in command.params:
            missing = parameter.required and given.get(parameter.name or "") in (None, ())
            assert not missing, f"{where}: frostline {text} needs {parameter.name}"
