"""A web server in a thread of its own: uvicorn, for the applications of the catalog server and of the metrics."""

import asyncio
import socket
import ssl
import threading
from dataclasses import dataclass

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from frostline.errors import UsageError


@dataclass(frozen=True)
class Limits:
    """What clients may take."""

    clients: int
    """Further requests get 503 while so many connections are open."""
    request_s: float
    """What a client has to say what it wants, however slowly it speaks."""
    head_bytes: int
    stop_s: int
    """What answers that are on their way have when the server is stopped."""


class Impatient(H11Protocol):
    """Hangs up on whoever connects and asks for nothing. uvicorn waits for it, and lets it take a client's place."""

    _patience: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """A client is there."""
        super().connection_made(transport)
        self._wait()

    def on_response_complete(self) -> None:
        """It may ask for more, on the same terms."""
        super().on_response_complete()
        self._wait()

    def _wait(self) -> None:
        """From now on. Who has asked for something meanwhile is not hurried for what came before that."""
        if self._patience is not None:
            self._patience.cancel()
        self._patience = self.loop.call_later(self.timeout_keep_alive, self._hurry)

    def _hurry(self) -> None:
        if self.cycle is None or self.cycle.response_complete:  # pyright: ignore[reportUnnecessaryComparison]
            self.transport.close()


class WebServer:
    """Serves an application on a socket until `stop`, which closes the socket."""

    def __init__(
        self,
        app: ASGIApp,
        bound: socket.socket,
        limits: Limits,
        *,
        name: str,
        protocol: type[Impatient] = Impatient,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._socket, self._stop_s = bound, limits.stop_s
        self.port = int(bound.getsockname()[1])
        """The port that it listens on; the real one when 0 was asked for."""
        config = uvicorn.Config(
            app,
            http=protocol,
            ws="none",
            loop="asyncio",
            lifespan="off",
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            limit_concurrency=limits.clients + 1,  # it counts who asks, too
            h11_max_incomplete_event_size=limits.head_bytes,
            timeout_keep_alive=limits.request_s,  # pyright: ignore[reportArgumentType]  (part of a second is one, too)
            timeout_graceful_shutdown=limits.stop_s,
        )
        config.load()
        config.ssl = tls
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._run, name=f"frostline-{name}", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self._server.run(sockets=[self._socket])

    def stop(self) -> None:
        """Let requests that are being answered end, for a while, and close the port."""
        self._server.should_exit = True
        self._thread.join(timeout=2 * self._stop_s)
        self._socket.close()


def bound(host: str, port: int, *, failure: str, hint: str) -> socket.socket:
    """A socket that listens there; UsageError, which begins with `failure`, when the address cannot be had."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    both = family == socket.AF_INET6 and socket.has_dualstack_ipv6()
    try:
        return socket.create_server((host, port), family=family, backlog=512, dualstack_ipv6=both)
    except OSError as error:
        reason = (error.strerror or str(error)).partition(" (")[0]  # Python adds the address
        raise UsageError(f"{failure} {host}:{port}: {reason}", hint=hint) from None
