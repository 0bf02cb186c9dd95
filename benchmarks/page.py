"""The page of the answers, and its plots: made from the records alone."""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import plot
from benchmarks.plot import Row
from benchmarks.question import Answer, figure, seconds
from benchmarks.records import Record
from benchmarks.sample import Sample

_HEAD = """# Benchmarks

Made by `make bench` from its own measurements, which are in [benchmarks.json](benchmarks.json) with every sample. Do not edit.

Machines differ, and one machine is not the same from minute to minute. So each figure is a ratio of two things that were measured in turn in
one run: the middle of all rounds, and in brackets the lowest and the highest. Speed is our rows a second over theirs, time our seconds over
theirs, size our bytes over theirs. Where something is compared with nothing, the page says so.

```bash
make bench              # everything, less than 40 minutes on two cores; needs Maven for the JDBC driver
make bench SCALE=4      # four times the rows
make bench-tpch         # TPC-H at scale factor 1, which is not part of everything
python -m benchmarks.run fold --scale 0.1
```

Where a target is missed, [design/performance.md](../design/performance.md) says what the time goes into.
"""


def write(path: Path, records: Mapping[str, Record]) -> None:
    """Write the page, and the plots into a folder beside it."""
    pictures = path.with_suffix("")
    pictures.mkdir(parents=True, exist_ok=True)
    answers = [one for record in records.values() for one in record.answers]
    (pictures / "answers.svg").write_text(_overview(answers))
    for name, record in records.items():
        (pictures / f"{name}.svg").write_text(_samples(record))
    path.write_text("\n".join(_page(records, answers, pictures.name)))


def _page(records: Mapping[str, Record], answers: Sequence[Answer], pictures: str) -> Iterator[str]:
    met = sum(one.is_met for one in answers)
    minutes = sum(record.minutes for record in records.values())
    yield _HEAD
    yield f"## Answers\n\n{met} of {len(answers)} targets are met. The cases took {minutes:.0f} minutes.\n"
    yield "| question | measure | compared with | wanted | measured | |\n|---|---|---|---|---|---|"
    yield from map(_line, answers)
    yield f"\n![All answers]({pictures}/answers.svg)\n"
    yield from _machine(list(records.values()))
    for name, record in records.items():
        yield f"\n## {name}\n\n{record.question}\n\n![Samples of {name}]({pictures}/{name}.svg)\n"
        yield "| measured | median | lowest | highest | rows a second | samples |\n|---|---|---|---|---|---|"
        yield from _table(record.samples)
        yield from (f"\n### {one.what}\n\n{one.note}" for one in record.samples if one.note)
    yield ""


def _line(one: Answer) -> str:
    asked, measure = one.question, one.question.measure
    spread = f"{figure(min(one.values), measure)} to {figure(max(one.values), measure)}"
    verdict = "met" if one.is_met else "**missed**"
    other = asked.other or "nothing"
    return f"| {asked.text} | {measure.value} | {other} | {asked.goal} | {figure(one.value, measure)} ({spread}) | {verdict} |"


def _machine(records: Sequence[Record]) -> Iterator[str]:
    """One paragraph for each set of circumstances; normally there is one."""
    yield "## Circumstances\n"
    grouped: dict[str, list[Record]] = {}
    for record in records:
        grouped.setdefault(_circumstances(record), []).append(record)
    for text, those in grouped.items():
        names = "" if len(grouped) == 1 else f" ({', '.join(one.case for one in those)})"
        yield f"* {text}{names}"


def _circumstances(record: Record) -> str:
    known: Mapping[str, Any] = record.circumstances
    machine, versions = known["machine"], ", ".join(f"{name} {one}" for name, one in known["versions"].items())
    memory = machine["memory_bytes"] / 2**30
    return (
        f"Commit {known['commit']}, scale {record.scale:g}, {str(known['at'])[:10]}: {machine['cores']} cores of {machine['processor']}, "
        f"{memory:.0f} GiB, {machine['system']}; {versions}."
    )


def _table(samples: Sequence[Sample]) -> Iterator[str]:
    for what, runs in _grouped(samples).items():
        times = [one.seconds for one in runs]
        rate = statistics.median(one.rows_a_second for one in runs)
        sizes = [one.size_bytes for one in runs]
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
            one.question.text,
            [_goodness(one, value) for value in one.values],
            _goodness(one, one.value),
            figure(one.value, one.question.measure),
            one.is_met,
        )
        for one in answers
    ]
    return plot.dots(
        "All answers against their targets", "times as good as wanted; right of the line is met", rows, 1.0
    )


def _goodness(one: Answer, value: float) -> float:
    target = one.question.target
    return value / target if one.question.measure.more_is_better else target / value


def _samples(record: Record) -> str:
    if any(one.size_bytes for one in record.samples):
        return plot.dots(
            f"{record.case}: samples", "megabytes", _rows(record.samples, "size_bytes", 1e-6, "{:,.3g} MB")
        )
    return plot.dots(f"{record.case}: samples", "milliseconds", _rows(record.samples, "seconds", 1e3, "{:,.3g} ms"))


def _rows(samples: Sequence[Sample], field: str, unit: float, shown: str) -> list[Row]:
    rows: list[Row] = []
    for what, runs in _grouped(samples).items():
        values = [getattr(one, field) * unit for one in runs if getattr(one, field)]
        if values:
            middle = statistics.median(values)
            rows.append(Row(what, values, middle, shown.format(middle)))
    return rows
