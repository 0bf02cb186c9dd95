"""The page of the answers, and its plots: made from the records alone."""

import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import plot
from benchmarks.plot import Row
from benchmarks.question import Answer, figure, seconds
from benchmarks.records import Record
from benchmarks.sample import Sample

_SENTENCE_END = re.compile(r"(?<=[^.][.?!]) |(?<=[^.][.?!]\)) ")
"""Not the dots of `INSERT ... SELECT`."""
_HEAD = """# Benchmarks

Made by `make bench` from its own measurements, which are in [benchmarks.json](benchmarks.json) with every sample.
Do not edit it.

Machines differ, and one machine is not the same from minute to minute.
So each figure is a ratio of two things that were measured in turn in one run: the median of all rounds, and in brackets the lowest and the highest.
Speed is our rows a second over theirs, time our seconds over theirs, size our bytes over theirs.
An estimate is seconds as Postgres expects them over seconds as they were, and may be wrong in either direction.
Where something is compared with nothing, the page says so.

```bash
make bench              # everything, some 100 minutes on two cores; needs Maven for the JDBC driver
make bench SCALE=4      # four times the rows
python -m benchmarks.run fold --scale 0.1
```

Where a target is missed, [design/performance.md](../design/performance.md) says what the time goes into.
"""


def write(path: Path, records: Mapping[str, Record]) -> None:
    """Write the page, and the plots into a folder beside it."""
    pictures = path.with_suffix("")
    pictures.mkdir(parents=True, exist_ok=True)
    answers = [answer for record in records.values() for answer in record.answers]
    (pictures / "answers.svg").write_text(_overview(answers))
    for name, record in records.items():
        (pictures / f"{name}.svg").write_text(_samples(record))
    path.write_text("\n".join(_page(records, answers, pictures.name)))


def _page(records: Mapping[str, Record], answers: Sequence[Answer], pictures: str) -> Iterator[str]:
    met = sum(answer.is_met for answer in answers)
    minutes = sum(record.minutes for record in records.values())
    yield _HEAD
    yield f"## Answers\n\n{met} of {len(answers)} targets are met. The cases took {minutes:.0f} minutes.\n"
    yield "| question | measure | compared with | wanted | measured | |\n|---|---|---|---|---|---|"
    yield from map(_line, answers)
    yield f"\n![All answers]({pictures}/answers.svg)\n"
    yield from _machine(list(records.values()))
    for name, record in records.items():
        yield f"\n## {name}\n\n{sentences(record.question)}\n\n![Samples of {name}]({pictures}/{name}.svg)\n"
        yield "| measured | median | lowest | highest | rows a second | samples |\n|---|---|---|---|---|---|"
        yield from _table(record.samples)
        yield from (f"\n### {sample.what}\n\n{sample.note}" for sample in record.samples if sample.note)
    yield ""


def sentences(prose: str) -> str:
    """The paragraphs of a case's docstring as Markdown has them here: one sentence a line, however long."""
    paragraphs = (" ".join(paragraph.split()) for paragraph in prose.split("\n\n"))
    return "\n\n".join(_SENTENCE_END.sub("\n", paragraph) for paragraph in paragraphs)


def _line(answer: Answer) -> str:
    asked, measure = answer.question, answer.question.measure
    spread = f"{figure(min(answer.values), measure)} to {figure(max(answer.values), measure)}"
    verdict = "met" if answer.is_met else "**missed**"
    other = asked.other or "nothing"
    return f"| {asked.text} | {measure.value} | {other} | {asked.goal} | {figure(answer.value, measure)} ({spread}) | {verdict} |"


def _machine(records: Sequence[Record]) -> Iterator[str]:
    """One paragraph for each set of circumstances; normally there is one."""
    yield "## Circumstances\n"
    grouped: dict[str, list[Record]] = {}
    for record in records:
        grouped.setdefault(_circumstances(record), []).append(record)
    for text, those in grouped.items():
        names = "" if len(grouped) == 1 else f" ({', '.join(record.case for record in those)})"
        yield f"* {text}{names}"


def _circumstances(record: Record) -> str:
    known: Mapping[str, Any] = record.circumstances
    machine, versions = known["machine"], ", ".join(f"{name} {version}" for name, version in known["versions"].items())
    memory = machine["memory_bytes"] / 2**30
    load = (
        f", beside other work (a load of {machine['load']:.0f} before it)"
        if machine.get("load", 0) > machine["cores"]
        else ""
    )
    return (
        f"Commit {known['commit']}, scale {record.scale:g}, {str(known['at'])[:10]}: {machine['cores']} cores of {machine['processor']}, "
        f"{memory:.0f} GiB, {machine['system']}{load}; {versions}."
    )


def _table(samples: Sequence[Sample]) -> Iterator[str]:
    for what, runs in _grouped(samples).items():
        times = [run.seconds for run in runs]
        rate = statistics.median(run.rows_a_second for run in runs)
        sizes = [run.size_bytes for run in runs]
        if any(sizes):
            shown = [f"{size(sizes) / 1e6:,.1f} MB" for size in (statistics.median, min, max)]
        else:
            shown = [seconds(size(times)) for size in (statistics.median, min, max)]
        rows = f"{rate:,.0f}" if runs[0].rows > 1 else ""
        yield f"| {what} | {' | '.join(shown)} | {rows} | {len(runs)} |"


def _grouped(samples: Sequence[Sample]) -> dict[str, list[Sample]]:
    grouped: dict[str, list[Sample]] = {}
    for sample in samples:
        grouped.setdefault(sample.what, []).append(sample)
    return grouped


def _overview(answers: Sequence[Answer]) -> str:
    rows = [
        Row(
            answer.question.text,
            [_goodness(answer, value) for value in answer.values],
            _goodness(answer, answer.value),
            figure(answer.value, answer.question.measure),
            answer.is_met,
        )
        for answer in answers
    ]
    return plot.dots(
        "All answers against their targets", "times as good as wanted; right of the line is met", rows, 1.0
    )


def _goodness(answer: Answer, value: float) -> float:
    loss = answer.question.measure.loss
    return loss(answer.question.target) / loss(value)


def _samples(record: Record) -> str:
    if any(sample.size_bytes for sample in record.samples):
        return plot.dots(
            f"{record.case}: samples", "megabytes", _rows(record.samples, "size_bytes", 1e-6, "{:,.3g} MB")
        )
    return plot.dots(f"{record.case}: samples", "milliseconds", _rows(record.samples, "seconds", 1e3, "{:,.3g} ms"))


def _rows(samples: Sequence[Sample], field: str, unit: float, shown: str) -> list[Row]:
    rows: list[Row] = []
    for what, runs in _grouped(samples).items():
        values = [getattr(run, field) * unit for run in runs if getattr(run, field)]
        if values:
            middle = statistics.median(values)
            rows.append(Row(what, values, middle, shown.format(middle)))
    return rows
