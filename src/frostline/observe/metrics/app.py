"""What the port for metrics answers, and to whom.

It answers only to names that it is known by, so that no web page can have a browser read it under a name of its own
(DNS rebinding).
"""

import asyncio
import ipaddress
import logging
import sys
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from http import HTTPStatus

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from frostline.observe.metrics import exposition
from frostline.observe.metrics.exposition import Family
from frostline.webserver import Impatient

PATH = "/metrics"

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_PLAIN = "text/plain; charset=utf-8"
_SERVER = "frostline"
"""Who answers; not what it runs on."""
_UNKNOWN_NAME = "not known by this name here; the setting metrics_hosts adds names\n"
_log = logging.getLogger(__name__)


def app(collect: Callable[[], Iterable[Family]], names: frozenset[str]) -> ASGIApp:
    """The whole application. `names` are in lower case."""

    async def metrics(request: Request) -> Response:
        if request.method != "GET":  # Starlette adds HEAD
            raise HTTPException(405)
        try:
            page = await _beside(lambda: exposition.text(collect()))
        except Exception:  # noqa: BLE001  (whatever it is, a scrape must not show a traceback)
            _log.warning("metrics could not be collected", exc_info=True)
            return _answer(500, "the metrics could not be collected; the log says why\n")
        return _answer(200, page, exposition.CONTENT_TYPE)

    made = Starlette(
        routes=[Route(PATH, metrics)],
        exception_handlers={404: _no_such_path, 405: _no_such_method},
        middleware=[Middleware(_Known, names)],
    )
    made.router.redirect_slashes = False
    return made


class _Known:
    """Lets requests through that name us; one for another host ends here, whatever its method and path."""

    def __init__(self, inner: ASGIApp, names: frozenset[str]) -> None:
        self._inner, self._names = inner, names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        asked = Headers(scope=scope).getlist("host")
        reached = str(scope["server"][0]).partition("%")[0].removeprefix("::ffff:")
        is_known = len(asked) == 1 and self._is_called(_name(asked[0]), reached)
        answer = self._inner if is_known else _answer(421, _UNKNOWN_NAME)
        await answer(scope, receive, send)

    def _is_called(self, name: str, reached: str) -> bool:
        """Whether a client that has reached one of our addresses may call us so."""
        if name in self._names or name == reached:
            return True
        return name in _LOOPBACK and ipaddress.ip_address(reached).is_loopback


def _name(host: str) -> str:
    """The name or the address in a Host header, without the port."""
    text = host.strip().lower()
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.partition(":")[0].removesuffix(".")


async def _no_such_path(request: Request, error: Exception) -> Response:  # noqa: ARG001
    return _answer(404, f"there is only {PATH}\n")


async def _no_such_method(request: Request, error: Exception) -> Response:  # noqa: ARG001
    return _answer(405, "only GET is answered\n", allow="GET")


def _answer(code: int, body: str, content_type: str = _PLAIN, **headers: str) -> Response:
    response = Response(body, code, {**headers, "connection": "close"}, content_type)
    response.raw_headers.append((b"Server", _SERVER.encode()))
    return response


def _beside(collect: Callable[[], str]) -> asyncio.Future[str]:
    """What it returns, in a thread that nobody waits for when it hangs: neither other clients nor the process' end."""
    result = Future[str]()

    def run() -> None:
        if result.set_running_or_notify_cancel():
            try:
                result.set_result(collect())
            except BaseException as error:  # noqa: BLE001  (it is the waiting coroutine's)
                result.set_exception(error)

    threading.Thread(target=run, name="frostline-scrape", daemon=True).start()
    return asyncio.wrap_future(result)


class Curt(Impatient):
    """Gives each client one answer, hangs up on a crowd, and cuts off who takes too long or says too much."""

    _heard_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:
        """A client is there, if there is room for it."""
        super().connection_made(transport)
        assert self.limit_concurrency is not None
        if max(len(self.connections), len(self.tasks) + 1) >= self.limit_concurrency:
            transport.abort()

    def data_received(self, data: bytes) -> None:
        """No more than a request's worth is listened to."""
        assert self.config.h11_max_incomplete_event_size is not None
        self._heard_bytes += len(data)
        if self._heard_bytes <= self.config.h11_max_incomplete_event_size:
            super().data_received(data)
        elif self.cycle is None:  # pyright: ignore[reportUnnecessaryComparison]
            self._refuse(431, "the request is too long\n")
        else:
            self.transport.abort()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002
        """What h11 finds wrong with a request. It is h11 that looks whether there is one Host header."""
        if "Host: header" in str(sys.exception()):
            self._refuse(421, _UNKNOWN_NAME)
        else:
            self._refuse(400, "not a request that is answered here\n")

    def _wait(self) -> None:
        if self._patience is None:  # it has one time for everything
            super()._wait()

    def _hurry(self) -> None:
        self.transport.abort()

    def _refuse(self, code: int, body: str) -> None:
        head = (f"HTTP/1.1 {code} {HTTPStatus(code).phrase}", f"Server: {_SERVER}", f"Content-Type: {_PLAIN}")
        lines = (*head, f"Content-Length: {len(body)}", "Connection: close", "", body)
        self.transport.write("\r\n".join(lines).encode())
        self.transport.close()
