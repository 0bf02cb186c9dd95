"""The catalog server: its application on a port of its own, next to the lake server."""

import ipaddress
import logging
import ssl

from frostline import webserver
from frostline.errors import UsageError
from frostline.server.rest.app import app
from frostline.server.rest.service import Service
from frostline.settings import Settings

CLIENTS = 256
REQUEST_S = 10.0
_HEAD_BYTES = 64 << 10
_STOP_S = 10
_log = logging.getLogger(__name__)


class CatalogServer:
    """Serves the catalog until `stop`."""

    def __init__(self, settings: Settings, tls: ssl.SSLContext | None) -> None:
        """Bind the address; UsageError when it cannot be had, or when tokens would be sent over it in clear text."""
        host, port = settings.rest_listen, settings.rest_port
        assert port is not None
        _refuse_clear_text(host, tls)
        hint = "set another rest_port or rest_listen"
        bound = webserver.bound(host, port, failure="the catalog server cannot listen on", hint=hint)
        self._service = Service(settings)
        limits = webserver.Limits(CLIENTS, REQUEST_S, _HEAD_BYTES, _STOP_S)
        self._server = webserver.WebServer(app(self._service), bound, limits, name="catalog", tls=tls)
        _log.info("catalog server listening host=%s port=%d", host, self.port)

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return self._server.port

    def stop(self) -> None:
        """Let requests that are being answered end, for a while, and close the port."""
        self._server.stop()
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
