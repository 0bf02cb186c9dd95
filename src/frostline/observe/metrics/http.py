"""The port for metrics: `GET /metrics`, closed unless it is asked for.

It stays out of the way of what it watches: few clients at a time, each with a few seconds and a few kilobytes.
The web framework is loaded when the port is opened.
"""

import logging
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager

from frostline.observe.metrics.exposition import Family

CLIENTS = 16
"""Further clients are hung up on while this many are being answered."""
CLIENT_S = 10.0
"""What one client has altogether, however slowly it speaks."""
REQUEST_BYTES = 8192
_STOP_S = 1

_log = logging.getLogger(__name__)

Collect = Callable[[], Iterable[Family]]


class Endpoint:
    """Serves what a function returns, in threads of its own, until `stop`."""

    def __init__(
        self, host: str, port: int, collect: Collect, *, names: Iterable[str] = (), client_s: float = CLIENT_S
    ) -> None:
        """Bind the address and begin to serve; UsageError when it cannot be had.

        `names` are names that clients may ask for, besides the address they have reached.
        """
        from frostline import webserver  # noqa: PLC0415  (a web framework that few need)
        from frostline.observe.metrics.app import Curt, app  # noqa: PLC0415  (the same)

        hint = "choose another port or address for the metrics in the settings"
        bound = webserver.bound(host, port, failure="cannot serve metrics on", hint=hint)
        known = frozenset(map(str.lower, (host, *names)))
        limits = webserver.Limits(CLIENTS, client_s, REQUEST_BYTES, _STOP_S)
        self._server = webserver.WebServer(app(collect, known), bound, limits, name="metrics", protocol=Curt)
        _log.info("metrics listening host=%s port=%d", host, self.port)

    @property
    def port(self) -> int:
        """The port that it listens on; the real one when 0 was asked for."""
        return self._server.port

    def stop(self) -> None:
        """Close the port. Answers that are on their way have a moment to arrive."""
        self._server.stop()


def host_names(text: str | None) -> list[str]:
    """What the setting `metrics_hosts` lists."""
    return [name.strip() for name in text.split(",")] if text else []


@contextmanager
def served(host: str, port: int | None, collect: Collect, *, names: Iterable[str] = ()) -> Generator[None]:
    """Serve it for the block; without a port, do not."""
    if port is None:
        yield
        return
    endpoint = Endpoint(host, port, collect, names=names)
    try:
        yield
    finally:
        endpoint.stop()
