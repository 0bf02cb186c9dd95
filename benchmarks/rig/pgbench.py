"""Runs the pgbench of the installed Postgres: one client or more, one script or several in turn, so many seconds."""

import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal
from urllib.parse import quote

from benchmarks.sample import Sample
from benchmarks.world import World

_LOG = "pgbench-times"
Mode = Literal["prepared", "simple"]
_FAILED = re.compile(r"number of failed transactions: [1-9]")
_PROCESSED = re.compile(r"number of transactions actually processed: (\d+)")
_RATE = re.compile(r"tps = ([\d.]+) \(without initial connection time\)")
_OF_A_SCRIPT = re.compile(r"- (\d+) transactions \(.*?- latency average = ([\d.]+) ms", re.DOTALL)


@dataclass(frozen=True)
class How:
    """How scripts are run. pgbench takes whole seconds, and knows only numbers as variables. `transactions` are an end instead of the time, for each of the `clients`."""

    mode: Mode
    seconds: float
    settings: Mapping[str, str] = field(default_factory=dict[str, str])
    variables: Mapping[str, int] = field(default_factory=dict[str, int])
    transactions: int = 0
    clients: int = 1
    keep_times: bool = False
    """Of each transaction, for `percentile_s`."""


def run(world: World, what: str, script: str, how: How) -> Sample:
    """As many transactions of one script as there is time for. The time to connect does not count."""
    output = _output(world, [script], how)
    processed, rate = _PROCESSED.search(output), _RATE.search(output)
    assert processed is not None, output
    assert rate is not None, output
    return Sample(what, int(processed[1]) / float(rate[1]), int(processed[1]))


def mixed(world: World, scripts: Mapping[str, str], how: How) -> list[Sample]:
    """Transactions of all scripts in turn, by chance. For what waits for the disk, which may be ten times slower a second later.

    Not for what does not wait: there each finds the processor's caches as the other has left them.
    pgbench tells the mean time of each script in whole microseconds.
    """
    output = _output(world, list(scripts.values()), how)
    scripts_run = _OF_A_SCRIPT.findall(output)
    assert len(scripts_run) == len(scripts), output
    return [
        Sample(what, int(count) * float(mean_ms) / 1000, int(count))
        for what, (count, mean_ms) in zip(scripts, scripts_run, strict=True)
    ]


def _output(world: World, scripts: Sequence[str], how: How) -> str:
    given = [f"--define={name}={value}" for name, value in how.variables.items()]
    for number, script in enumerate(scripts):
        path = world.folder / f"{number}.pgbench"
        path.write_text(script)
        given.append(f"--file={path}")
    for log in _logs(world):
        log.unlink()
    program = [world.postgres.programs.bin_dir / "pgbench", "--no-vacuum", f"--protocol={how.mode}"]
    program += [f"--client={how.clients}"]
    program += ["--log", f"--log-prefix={world.folder / _LOG}"] if how.keep_times else []
    time = f"--time={max(1, round(how.seconds))}"
    length = f"--transactions={how.transactions}" if how.transactions else time
    done = subprocess.run(
        [*program, length, *given, _dsn(world, how.settings)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert not _FAILED.search(done.stdout), done.stdout
    return done.stdout


def percentile_s(world: World, share: float) -> float:
    """What that share of the transactions of the last run took at most, if their times were kept."""
    times = sorted(int(line.split()[2]) for log in _logs(world) for line in log.read_text().splitlines())
    return times[min(len(times) - 1, int(len(times) * share))] / 1e6


def _logs(world: World) -> list[Path]:
    return list(world.folder.glob(f"{_LOG}.*"))


def _dsn(world: World, settings: Mapping[str, str]) -> str:
    options = " ".join(f"-c {name}={value}" for name, value in {"timezone": "UTC", **settings}.items())
    return f"{world.settings.dsn}?options={quote(options)}"
