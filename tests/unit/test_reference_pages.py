"""The pages in `docs/reference` say what the program says. UPDATE_DOCS=1 writes the page of the command line anew."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from frostline.cli.invocation import shared_options
from frostline.cli.main import COMMANDS, program
from frostline.model.types import Collation, PgType, encoding
from frostline.settings import Settings

DOCS = Path(__file__).parents[2] / "docs"
SHARED = {option.name for option in shared_options()}
PREFACE = """# Commands

Written by a test from the program's own help. Every command also takes these options, before or after its name:
"""
ENDING = """
The nearest one wins: an option after the command, then one before it, then the environment (`FROSTLINE_HOME`, `FROSTLINE_OUTPUT`, `FROSTLINE_DEBUG`),
then [frostline.toml](settings.md), then the default. The same holds for options that are settings, as `--warehouse` and `--master`.

Results go to stdout, everything else to stderr. With `--output json` each result is one JSON document on a line, and so is each error:

```
{"error": {"code": "22023", "class": "UsageError", "message": "public.ev is not managed by Frostline", "hint": "frostline table list", "exit_code": 2}}
```

`code` is a SQLSTATE, `class` is one of [these](errors.md#how-a-command-ends), `hint` may be null. A command that works on several tables prints one such
line for each that failed. Log lines are on stderr too; none begins with `{`.
"""
_ROW = re.compile(r"^\| (.*?) \| (.*?) \| (.*?) \|(?: (.*?) \|)?$", re.MULTILINE)
_ANCHOR = re.compile(r"\]\(([^)#:\s]*\.md)?#([^)]+)\)")
_HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
_LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")
_INTERNAL_NAMES = {
    "boolean": "bool", "smallint": "int2", "integer": "int4", "bigint": "int8", "real": "float4", "integer[]": "_int4",
    "double precision": "float8", "character varying(20)": "varchar", "character(20)": "bpchar",
    "timestamp without time zone": "timestamp", "timestamp with time zone": "timestamptz",
    "time without time zone": "time", "bit varying(8)": "varbit",
}  # fmt: skip


def cells(page: str) -> list[tuple[str, ...]]:
    """The rows of the page's tables, without heads and without code marks."""
    rows: list[tuple[str, ...]] = _ROW.findall((DOCS / "reference" / page).read_text())
    plain = [tuple(cell.replace("`", "") for cell in row) for row in rows]
    return [row for row in plain if not row[0].startswith(("--", "key", "Postgres type"))]


def commands() -> Iterator[tuple[str, click.Command]]:
    context = click.Context(program)
    for name in COMMANDS:
        command = program.get_command(context, name)
        assert command
        if isinstance(command, click.Group):
            yield from ((f"{name} {below}", subcommand) for below, subcommand in command.commands.items())
        else:
            yield name, command


def options(parameters: list[click.Parameter]) -> list[str]:
    context = click.Context(program)
    shown = [record for parameter in parameters if (record := parameter.get_help_record(context))]
    if not shown:
        return []
    rows = [f"| `{head.replace('|', chr(92) + '|')}` | {' '.join(text.split())} |" for head, text in shown]
    return ["", "| option | |", "|---|---|", *rows]


def section(name: str, command: click.Command) -> str:
    arguments = " ".join(
        parameter.make_metavar(click.Context(command))
        for parameter in command.params
        if parameter.param_type_name == "argument"
    )
    own = [
        parameter
        for parameter in command.params
        if parameter.name not in SHARED and isinstance(parameter, click.Option)
    ]
    head = f"## {name}\n\n```\n{f'frostline {name} [options] {arguments}'.strip()}\n```"
    text = "\n\n".join(" ".join(part.split()) for part in (command.help or "").split("\n\n"))
    return "\n".join([head, "", text, *options(list(own))])


def command_page() -> str:
    sections = [section(name, command) for name, command in commands()]
    head = "\n".join([PREFACE.strip(), *options(shared_options()), ENDING.rstrip()])
    return head + "\n\n" + "\n\n".join(sections) + "\n"


def test_every_command_is_described() -> None:
    page = DOCS / "reference" / "cli.md"
    if os.environ.get("UPDATE_DOCS"):
        page.write_text(command_page())
    assert page.read_text() == command_page()


def test_every_setting_is_described() -> None:
    described = {key: default for key, default, *_ in cells("settings.md")}
    assert list(described) == list(Settings.model_fields)
    for key, field in Settings.model_fields.items():
        default = field.get_default()
        expected = "required" if field.is_required() else {None: "none", False: "false"}.get(default, str(default))
        assert described[key] == ("number of cores" if field.default_factory else expected)


def described_types() -> list[tuple[str, ...]]:
    return [row for row in cells("types.md") if not row[0].startswith("an enum")]


@pytest.mark.parametrize(("formatted", "lake_type", "travels", "judged"), described_types())
def test_every_type_travels_as_described(formatted: str, lake_type: str, travels: str, judged: str) -> None:
    formatted, _, collation = formatted.partition(" with a ")
    modifiers = re.fullmatch(r"(numeric)\((\d+),(-?\d+)\)", formatted)
    name = modifiers[1] if modifiers else _INTERNAL_NAMES.get(formatted, formatted)
    precision, scale = (int(modifiers[2]), int(modifiers[3])) if modifiers else (None, None)
    pg_type = PgType(formatted, name, builtin=True, precision=precision, scale=scale)
    encoded = encoding(pg_type, Collation.NONDETERMINISTIC if collation else Collation.NONE)
    assert encoded.lake_type == lake_type
    assert ("text" if encoded.as_text else "itself") == travels
    assert ("the lake" if encoded.pushable else "Postgres") == judged


@pytest.mark.parametrize("page", [DOCS.parent / "README.md", *DOCS.rglob("*.md")], ids=lambda page: page.name)
def test_every_link_leads_somewhere(page: Path) -> None:
    broken = [link for link in _LINK.findall(page.read_text()) if not (page.parent / link).exists()]
    assert not broken


@pytest.mark.parametrize("page", [DOCS.parent / "README.md", *DOCS.rglob("*.md")], ids=lambda page: page.name)
def test_every_link_to_a_heading_finds_it(page: Path) -> None:
    links = [(page.parent / file if file else page, heading) for file, heading in _ANCHOR.findall(page.read_text())]
    assert not [heading for file, heading in links if heading not in headings(file)]


def headings(page: Path) -> set[str]:
    """As links name them: small letters and hyphens."""
    words = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text) for text in _HEADING.findall(page.read_text()))
    return {re.sub(r"[^\w\- ]", "", text.strip().lower()).replace(" ", "-") for text in words}
