"""The only HTTP listener of Frostline: `GET /metrics`, on a port that is closed unless it is asked for.

It stays out of the way of what it watches: few clients at a time, each with a few seconds and a few kilobytes.
It answers only to names that it is known by, so that no web page can have a browser read it under a name of its own
(DNS rebinding).
"""

import ipaddress
import logging
import socket
import threading
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from http.client import LineTooLong
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, BinaryIO, cast

from frostline.errors import UsageError
from frostline.observe.metrics import exposition
from frostline.observe.metrics.exposition import Family

PATH = "/metrics"
CLIENTS = 16
"""Further requests are hung up on while this many are being answered."""
CLIENT_S = 10.0
"""What one client has altogether, however slowly it speaks."""
REQUEST_BYTES = 8192

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_PLAIN = "text/plain; charset=utf-8"
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
        try:
            self._server = _Server(host, port, collect, client_s, frozenset(map(str.lower, (host, *names))))
        except OSError as error:
            raise UsageError(
                f"cannot serve metrics on {host}:{port}: {error.strerror or error}",
                hint="choose another port or address for the metrics in the settings",
            ) from None
        # A short poll makes `stop` quick; the thread sleeps in between.
        run = threading.Thread(target=self._server.serve_forever, args=(0.1,), name="frostline-metrics", daemon=True)
        run.start()
        _log.info("metrics listening host=%s port=%d", host, self.port)

    @property
    def port(self) -> int:
        """The port that it listens on; the real one when 0 was asked for."""
        return int(self._server.server_address[1])

    def stop(self) -> None:
        """Close the port. Answers that are on their way may still arrive."""
        self._server.shutdown()
        self._server.server_close()


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


class _Server(ThreadingHTTPServer):
    """One thread a client, and not too many."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 4 * CLIENTS

    def __init__(self, host: str, port: int, collect: Collect, client_s: float, names: frozenset[str]) -> None:
        self.collect, self.client_s, self._names = collect, client_s, names
        self._room = threading.BoundedSemaphore(CLIENTS)
        if ":" in host:
            self.address_family = socket.AF_INET6
        super().__init__((host, port), _Handler)

    def server_bind(self) -> None:
        """Bind, without asking a name server what we are called, as the parent does."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def is_called(self, name: str, reached: str) -> bool:
        """Whether a client that has reached one of our addresses may call us so."""
        if name in self._names or name == reached:
            return True
        return name in _LOOPBACK and ipaddress.ip_address(reached).is_loopback

    def process_request(self, request: Any, client_address: Any) -> None:
        """Give the client a thread, if there is room."""
        if not self._room.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._room.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer the client, in its thread."""
        ends = threading.Timer(self.client_s, _cut, [request])
        ends.daemon = True
        ends.start()
        try:
            request.settimeout(self.client_s)
            super().process_request_thread(request, client_address)
        finally:
            ends.cancel()
            self._room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002
        """Say nothing on stderr: a client that hangs up is no fault of ours."""
        _log.debug("metrics client failed", exc_info=True)


def _cut(request: socket.socket) -> None:
    try:
        request.shutdown(socket.SHUT_RDWR)
    except OSError:
        return


class _Bounded:
    """The client's side of the connection, of which no more than a request's worth is read."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._left = file, REQUEST_BYTES
        self.close = file.close

    def readline(self, limit: int = -1) -> bytes:  # noqa: ARG002
        """One line; LineTooLong when the request is."""
        line = self._file.readline(self._left + 1)
        self._left -= len(line)
        if self._left < 0:
            raise LineTooLong("request")
        return line


def _name(host: str) -> str:
    """The name or the address in a Host header, without the port."""
    text = host.strip().lower()
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.partition(":")[0].removesuffix(".")


class _Handler(BaseHTTPRequestHandler):
    """One request, then the connection ends."""

    def setup(self) -> None:
        """Limit how much is listened to."""
        super().setup()
        self.rfile: Any = _Bounded(self.rfile)

    def handle(self) -> None:
        """Answer; a request without an end gets a short refusal."""
        try:
            super().handle()
        except LineTooLong:
            self.requestline = self.request_version = self.command = ""
            self._say(431, "the request is too long\n")

    def parse_request(self) -> bool:
        """Read the request; one for another host than us ends here, whatever its method."""
        if not super().parse_request():
            return False
        asked = self.headers.get_all("Host") or []
        reached = str(self.connection.getsockname()[0]).partition("%")[0].removeprefix("::ffff:")
        if len(asked) == 1 and cast(_Server, self.server).is_called(_name(asked[0]), reached):
            return True
        self._say(421, "not known by this name here; the setting metrics_hosts adds names\n")
        return False

    def do_GET(self) -> None:
        """The metrics, or 404."""
        if self.path.partition("?")[0] != PATH:
            self._say(404, f"there is only {PATH}\n")
            return
        try:
            page = exposition.text(cast(_Server, self.server).collect())
        except Exception:  # noqa: BLE001  (whatever it is, a scrape must not show a traceback)
            _log.warning("metrics could not be collected", exc_info=True)
            self._say(500, "the metrics could not be collected; the log says why\n")
            return
        self._say(200, page, exposition.CONTENT_TYPE)

    def __getattr__(self, name: str) -> Any:
        """`do_POST` and all its siblings."""
        if name.startswith("do_"):
            return self._refuse_method
        raise AttributeError(name)

    def _refuse_method(self) -> None:
        self._say(405, "only GET is answered\n", allow="GET")

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:  # noqa: ARG002
        """What the parent finds wrong with a request, without a page of HTML that repeats it."""
        self._say(code, "not a request that is answered here\n")

    def _say(self, code: int, body: str, content_type: str = _PLAIN, **headers: str) -> None:
        content = body.encode()
        self.send_response(code)
        for key, value in {"Content-Type": content_type, "Content-Length": str(len(content)), **headers}.items():
            self.send_header(key.title(), value)
        self.end_headers()
        if getattr(self, "command", "") != "HEAD":
            self.wfile.write(content)

    def version_string(self) -> str:
        """Who answers; not which Python it runs on."""
        return "frostline"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """A line a scrape is for debugging only."""
        _log.debug("metrics request %s", format % args)
