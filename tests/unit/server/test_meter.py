"""The lake server's counters."""

import threading

import pytest

from frostline.errors import FrostlineError
from frostline.server.engine import Cancelled
from frostline.server.meter import LATENCY_BOUNDS_S, Meter, Outcome


def test_a_query_counts_once_however_often_it_ends() -> None:
    meter = Meter()
    query = meter.query()
    with pytest.raises(Cancelled), query.working():
        raise Cancelled("stop")
    query.end(Outcome.OK)
    assert meter.reading().queries == {Outcome.OK: 0, Outcome.ERROR: 0, Outcome.CANCELLED: 1}
    assert sum(meter.reading().latency_counts) == 1


def test_a_query_that_is_not_over_does_not_count() -> None:
    meter = Meter()
    with meter.query().working():
        pass
    assert meter.reading() == Meter().reading()


def test_what_is_refused_counts_as_an_error() -> None:
    meter = Meter()
    with meter.refusals():
        pass
    with pytest.raises(FrostlineError), meter.refusals():
        raise FrostlineError("no")
    assert meter.reading().queries[Outcome.ERROR] == 1


def test_a_bound_belongs_to_its_bucket() -> None:
    meter = Meter()
    for seconds in (0.0, LATENCY_BOUNDS_S[0], LATENCY_BOUNDS_S[0] + 0.001, 1e9):
        meter.ended(Outcome.OK, seconds)
    counts = meter.reading().latency_counts
    assert (counts[:2], counts[-1], sum(counts)) == ((2, 1), 1, 4)


def test_many_threads_lose_nothing() -> None:
    meter = Meter()

    def work() -> None:
        for _ in range(500):
            meter.ended(Outcome.OK, 0.01)
            meter.sent(2, 30)
            meter.read(1, from_extract=False)
            meter.read(2, from_extract=True)
            meter.pruned(3)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    now = meter.reading()
    assert (now.queries[Outcome.OK], sum(now.latency_counts)) == (2000, 2000)
    assert (now.rows, now.size_bytes) == (4000, 60_000)
    assert (now.files_opened, now.files_extracted, now.files_pruned) == (2000, 4000, 6000)
