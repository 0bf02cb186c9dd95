"""The lake server's counters as metrics."""

from frostline.observe.metrics.exposition import Distribution, Family, Sample, counter, gauge, histogram
from frostline.server.listen import LakeServer
from frostline.server.meter import LATENCY_BOUNDS_S


def families(server: LakeServer) -> list[Family]:
    """What the lake server has done since it started, and what it holds now."""
    now = server.backend.meter.reading()
    outcomes = [Sample(count, {"outcome": outcome.value}) for outcome, count in now.queries.items()]
    latency = Distribution(LATENCY_BOUNDS_S, now.latency_counts, now.latency_s)
    fates = {"opened": now.files_opened, "pruned": now.files_pruned, "extracted": now.files_extracted}
    files = [Sample(count, {"fate": fate}) for fate, count in fates.items()]
    return [
        counter("frostline_lake_queries_total", "Queries that ended, by how they did.", *outcomes),
        histogram(
            "frostline_lake_query_seconds", "How long the server worked for a query, reader's time left out.", latency
        ),
        counter("frostline_lake_rows_sent_total", "Rows sent to clients.", Sample(now.rows)),
        counter("frostline_lake_sent_bytes_total", "Bytes of rows sent to clients.", Sample(now.size_bytes)),
        counter(
            "frostline_lake_files_total", "Files of the snapshots that queries read, by what became of them.", *files
        ),
        counter(
            "frostline_lake_compared_bytes_total",
            "Bytes of files that were compared with their checksums.",
            Sample(now.compared_bytes),
        ),
        gauge("frostline_lake_sessions", "Clients that are logged in now.", Sample(server.session_count)),
        gauge(
            "frostline_lake_strangers", "Clients that are connected and not logged in.", Sample(server.stranger_count)
        ),
        counter(
            "frostline_lake_turned_out_total",
            "Clients hung up on because they had not logged in and others came.",
            Sample(server.turned_out_count),
        ),
        gauge(
            "frostline_lake_memory_bytes",
            "What the engine holds in memory, caches included.",
            Sample(server.memory_bytes),
        ),
    ]
