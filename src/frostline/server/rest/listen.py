"""The socket of the catalog server: uvicorn in a thread of its own, next to the lake server."""

import asyncio
import ipaddress
import logging
import socket
import ssl
import threading

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from frostline.errors import UsageError
from frostline.server.rest.app import app
from frostline.server.rest.service import Service
from frostline.settings import Settings

CLIENTS = 256
"""Further requests get 503 while so many connections are open."""
REQUEST_S = 10.0
"""What a client has to say what it wants, however slowly it speaks."""
_HEAD_BYTES = 64 << 10
_STOP_S = 10
_log = logging.getLogger(__name__)


class _Impatient(H11Protocol):
    """Hangs up on whoever connects and asks for nothing. uvicorn waits for it, and lets it take a client's place."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """A client is there."""
        super().connection_made(transport)
        self.loop.call_later(REQUEST_S, self._hurry)

    def on_response_complete(self) -> None:
        """It may ask for more, on the same terms."""
        super().on_response_complete()
        self.loop.call_later(REQUEST_S, self._hurry)

    def _hurry(self) -> None:
        if self.cycle is None or self.cycle.response_complete:  # pyright: ignore[reportUnnecessaryComparison]
            self.transport.close()


class CatalogServer:
    """Serves the catalog until `stop`."""

    def __init__(self, settings: Settings, tls: ssl.SSLContext | None) -> None:
        """Bind the address; UsageError when it cannot be had, or when tokens would be sent over it in clear text."""
        assert settings.rest_port is not None
        self._address = settings.rest_listen, settings.rest_port
        _refuse_clear_text(settings.rest_listen, tls)
        self._service = Service(settings)
        self._socket = _bound(*self._address)
        config = uvicorn.Config(
            app(self._service),
            http=_Impatient,
            ws="none",
            loop="asyncio",
            lifespan="off",
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            limit_concurrency=CLIENTS,
            h11_max_incomplete_event_size=_HEAD_BYTES,
            timeout_keep_alive=int(REQUEST_S),
            timeout_graceful_shutdown=_STOP_S,
        )
        config.load()
        config.ssl = tls
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._run, name="frostline-catalog", daemon=True)
        self._thread.start()
        _log.info("catalog server listening host=%s port=%d", self._address[0], self.port)

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self._socket.getsockname()[1])

    def _run(self) -> None:
        self._server.run(sockets=[self._socket])

    def stop(self) -> None:
        """Let requests that are being answered end, for a while, and close the port."""
        self._server.should_exit = True
        self._thread.join(timeout=2 * _STOP_S)
        self._socket.close()
        self._service.close()


def _refuse_clear_text(host: str, tls: ssl.SSLContext | None) -> None:
    try:
        is_loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_loopback = host == "localhost"
    if tls is None and not is_loopback:
        raise UsageError(
            f"the catalog server would take tokens in clear text on {host}",
            hint="set lake_tls_certificate and lake_tls_key; or rest_listen to 127.0.0.1, behind a proxy with TLS",
        )


def _bound(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=512)
    except OSError as error:
        reason = (error.strerror or str(error)).partition(" (")[0]
        hint = "set another rest_port or rest_listen"
        raise UsageError(f"the catalog server cannot listen on {host}:{port}: {reason}", hint=hint) from None
