"""Tables and jobs as metrics: everything from the catalog, so a worker that starts again goes on counting."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager

from frostline.catalog import jobs, pins
from frostline.catalog.connect import Connection, connect
from frostline.catalog.lake_upkeep import Look
from frostline.observe import status
from frostline.observe.metrics import http
from frostline.observe.metrics.exposition import Family, Sample, counter, gauge
from frostline.observe.status import Status, TableStatus
from frostline.settings import Settings

Number = Callable[[TableStatus], float | None]

_GAUGES: tuple[tuple[str, str, Number], ...] = (
    ("archive_lag_seconds", "How long rows that should be cold have been waiting.", lambda table: table.lag_s),
    ("archive_lag_units", "The same for an integer tier key, in its units.",
     lambda table: None if table.table.tier_kind.is_time else table.lake.lag),
    ("hot_bytes", "Size of the hot partitions with their indexes.", lambda table: table.hot_bytes),
    ("hot_rows", "Rows in the hot partitions, as Postgres estimates.", lambda table: table.hot_rows_estimate),
    ("cold_rows", "Rows in the lake.", lambda table: table.lake.rows),
    ("cold_bytes", "Size of the lake's current files.", lambda table: table.lake.size_bytes),
    ("files", "Current files of the lake.", lambda table: table.lake.files),
    ("snapshots", "Lake snapshots that can still be read.", lambda table: table.lake.snapshots),
    ("manifests", "Manifests of the current lake snapshot.", lambda table: table.state.manifests),
    ("overlay_rows", "Changed cold rows that wait to be folded.", lambda table: table.lake.overlay_rows),
    ("overlay_age_seconds", "How long the oldest of them has waited.", lambda table: table.lake.overlay_age_s or 0),
    ("uncleaned_partitions", "Archived partitions that are still in the heap.",
     lambda table: table.lake.uncleaned_partitions),
    ("missing_partitions", "Partitions that premake should have made.", lambda table: table.state.missing_partitions),
    ("problems", "Problems that frostline status shows.", lambda table: len(table.problems)),
)  # fmt: skip


LakeNumber = Callable[[Look], float]

_LAKE_GAUGES: tuple[tuple[str, str, LakeNumber], ...] = (
    ("rows", "Rows of the lake table when somebody looked last.", lambda look: look.rows),
    ("bytes", "Size of its files then.", lambda look: look.size_bytes),
    ("files", "Its data files then.", lambda look: look.files),
    ("delete_files", "Its delete files then.", lambda look: look.delete_files),
    ("snapshots", "Its snapshots then.", lambda look: look.snapshots),
)


def served(settings: Settings) -> AbstractContextManager[None]:
    """Serve the metrics for the block, if a port is set for them."""
    return http.served(
        settings.metrics_listen,
        settings.metrics_port,
        lambda: collected(settings.dsn),
        names=http.host_names(settings.metrics_hosts),
    )


def collected(dsn: str) -> list[Family]:
    """All families, read now."""
    with connect(dsn, purpose="metrics") as connection:
        return list(families(connection))


def families(connection: Connection) -> Iterator[Family]:
    """What the catalog tells."""
    current = status.read(connection)
    yield gauge("frostline_worker_leads", "1 while some worker leads.", Sample(current.leader is not None))
    yield from _of_tables(current)
    yield from _of_lake_tables(current)
    yield from _of_jobs(connection)
    alive = sum(pin.is_alive for pin in pins.list_all(connection))
    yield gauge("frostline_pins", "Pins of readers that are alive.", Sample(alive))


def _of_tables(current: Status) -> Iterator[Family]:
    for name, text, number in _GAUGES:
        numbers = ((table, number(table)) for table in current.tables)
        samples = [Sample(value, {"table": str(table.table.name)}) for table, value in numbers if value is not None]
        yield gauge(f"frostline_table_{name}", text, *samples)


def _of_lake_tables(current: Status) -> Iterator[Family]:
    seen = [(str(table.state.name), table.standing.look) for table in current.lake_tables]
    for name, text, number in _LAKE_GAUGES:
        samples = [Sample(number(look), {"table": table}) for table, look in seen if look is not None]
        yield gauge(f"frostline_lake_table_{name}", text, *samples)
    named = [({"table": str(table.state.name)}, table) for table in current.lake_tables]
    commits = (Sample(table.state.commits, label) for label, table in named)
    yield gauge("frostline_lake_table_commits", "Commits to it since then.", *commits)
    wrong = (Sample(len(table.problems), label) for label, table in named)
    yield gauge("frostline_lake_table_problems", "Problems that frostline status shows.", *wrong)


def _of_jobs(connection: Connection) -> Iterator[Family]:
    totals = jobs.totals(connection)
    labelled = [({"table": str(total.table), "kind": total.kind}, total) for total in totals]

    def family(name: str, text: str, number: Callable[[jobs.JobTotals], float]) -> Family:
        samples: Iterable[Sample] = (Sample(number(job), labels) for labels, job in labelled)
        return counter(f"frostline_{name}", text, *samples)

    yield family("jobs_total", "Jobs that did their work.", lambda job: job.done)
    yield family("job_failures_total", "Jobs that failed.", lambda job: job.failed)
    yield family("job_seconds_total", "How long the jobs took that did their work.", lambda job: job.seconds)
    yield family("job_rows_total", "Rows that they moved or rewrote.", lambda job: job.rows)
    yield family("job_bytes_total", "Bytes that they wrote to the lake.", lambda job: job.size_bytes)
