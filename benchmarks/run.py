"""Asks the questions and writes the answers down: `python -m benchmarks.run archive fold --scale 1 --json answers.json`."""

import argparse
import importlib
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks import page, records, smoke
from benchmarks.question import Answer, answer, figure
from benchmarks.records import Record
from benchmarks.sample import Sample
from benchmarks.world import SPARK_MEMORY, Lab, opened

CASES = sorted(path.stem for path in (Path(__file__).parent / "cases").glob("[a-z]*.py"))


def main(arguments: Sequence[str]) -> int:
    """Run the cases, each in a database that is gone afterwards."""
    chosen = _parser().parse_args(arguments)
    records.circumstances()
    signal.signal(signal.SIGTERM, lambda _signal, _frame: sys.exit(143))  # so that all servers are stopped
    if chosen.smoke:
        return smoke.compare(lambda cases, scale: list(_asked(cases, scale)), chosen.smoke, store=chosen.store)
    for record in _asked(chosen.case or CASES, chosen.scale):
        if chosen.json:
            records.keep(chosen.json, record)
            if chosen.page:
                page.write(chosen.page, records.load(chosen.json))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.run", description=__doc__)
    parser.add_argument("case", nargs="*", choices=[*CASES, []], help="all when none is named")
    parser.add_argument("--scale", type=float, default=1.0, help="times the usual number of rows")
    parser.add_argument("--json", type=Path, help="where the answers are kept, with the raw samples")
    parser.add_argument("--page", type=Path, help="the page to make of all answers in the JSON")
    parser.add_argument("--smoke", type=Path, help="a few small cases: compare with the ratios stored in this file")
    parser.add_argument("--store", action="store_true", help="store the ratios of the smoke cases")
    return parser


def _module(name: str) -> Any:
    return importlib.import_module(f"benchmarks.cases.{name}")


def _asked(cases: Sequence[str], scale: float) -> Iterator[Record]:
    """All cases with the same memory for Spark share its session."""
    modules = {name: _module(name) for name in cases}
    for memory in sorted({getattr(module, "SPARK_MEMORY", SPARK_MEMORY) for module in modules.values()}):
        with ExitStack() as stack:
            room = tempfile.TemporaryDirectory(prefix="frostline-benchmark-", ignore_cleanup_errors=True)
            lab = stack.enter_context(opened(Path(stack.enter_context(room)), scale, memory))
            for name, module in modules.items():
                if getattr(module, "SPARK_MEMORY", SPARK_MEMORY) == memory:
                    yield _answered(lab, name, module, scale)


def _answered(lab: Lab, name: str, case: Any, scale: float) -> Record:
    print(f"\n{name}: {str(case.__doc__).strip()}\n", flush=True)
    samples: list[Sample] = []
    start = time.monotonic()
    for sample in case.measure(lab, scale):
        samples.append(sample)
        print(f"  {sample}", flush=True)
    answers = [answer(question, samples) for question in case.QUESTIONS]
    for answered in answers:
        print(f"{'met   ' if answered.is_met else 'MISSED'} {_line(answered)}", flush=True)
    minutes = (time.monotonic() - start) / 60
    return records.record(name, str(case.__doc__).strip(), scale, minutes, samples, answers)


def _line(answered: Answer) -> str:
    measure = answered.question.measure
    spread = f"{figure(min(answered.values), measure)} to {figure(max(answered.values), measure)}"
    return f"{answered.question.text}: {figure(answered.value, measure)} ({spread}), wanted {answered.question.goal}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
