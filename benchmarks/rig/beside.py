"""A client beside a job, and the same client beside nothing but an equal load on the processors."""

import json
import math
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psutil

from benchmarks.world import World


@dataclass(frozen=True)
class Statement:
    """What the client does, with each of the parameters in turn."""

    text: str
    parameters: Sequence[Sequence[Any]]


@dataclass(frozen=True)
class Seen:
    """How long each statement of the client took, and what else went on."""

    spent: Sequence[float]
    wall_s: float
    load: float
    """Cores that others than the client and its backend used, on average."""

    @property
    def p50(self) -> float:
        """The median."""
        return statistics.median(self.spent)

    @property
    def p99(self) -> float:
        """What one of a hundred statements exceeded."""
        return sorted(self.spent)[math.ceil(len(self.spent) * 0.99) - 1]

    @property
    def longest(self) -> float:
        """The slowest."""
        return max(self.spent)


def job(world: World, statement: Statement, work: Callable[[], object]) -> Seen:
    """The client, from the beginning of the work to its end."""
    return _watched(world, statement, work)


def equal_load(world: World, statement: Statement, beside: Seen) -> Seen:
    """The client for as long, beside processes that use as many cores."""
    with _burning(beside.load):
        return _watched(world, statement, lambda: time.sleep(beside.wall_s))


def _watched(world: World, statement: Statement, work: Callable[[], object]) -> Seen:
    wanted = {"dsn": world.settings.dsn, "statement": statement.text, "parameters": statement.parameters}
    command = [sys.executable, "-m", "benchmarks.rig.client"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdin
        assert child.stdout
        child.stdin.write(json.dumps(wanted) + "\n")
        child.stdin.flush()
        own = [psutil.Process(pid) for pid in json.loads(child.stdout.readline())]
        child.stdin.write("begin\n")
        child.stdin.flush()
        busy, mine, start = _busy_s(), _used_s(own), time.perf_counter()
        work()
        wall, others = time.perf_counter() - start, (_busy_s() - busy) - (_used_s(own) - mine)
        child.stdin.write("end\n")
        child.stdin.flush()
        return Seen(json.loads(child.stdout.readline()), wall, max(0.0, others / wall))


def _busy_s() -> float:
    """Processor time of the whole machine."""
    now = psutil.cpu_times()._asdict()
    return sum(now.get(kind, 0.0) for kind in ("user", "nice", "system", "irq", "softirq"))


def _used_s(processes: Sequence[psutil.Process]) -> float:
    return sum(sum(process.cpu_times()[:2]) for process in processes)


@contextmanager
def _burning(load: float) -> Generator[None]:
    """Whole cores first, as a job's tasks are; one process has the rest."""
    shares = [1.0] * int(load) + [load % 1]
    burners = [subprocess.Popen([sys.executable, "-m", "benchmarks.rig.burner", f"{share:.3f}"]) for share in shares]
    try:
        yield
    finally:
        for burner in burners:
            burner.kill()
            burner.wait()
