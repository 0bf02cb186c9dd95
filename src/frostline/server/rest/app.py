"""The routes of the catalog server, who may take them, and how a request becomes a call.

The routes are matched before anything in them is decoded: a name may have a slash.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import parse_qs, unquote

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from frostline.server.rest import answers, reading, writing
from frostline.server.rest.answers import Call, Refused
from frostline.server.rest.service import Service

BODY_BYTES = 16 << 20
BODY_S = 30.0
"""What a client has for a request, however slowly it speaks."""
_NAMESPACE = "/v1/namespaces/{namespace}"
_TABLE = _NAMESPACE + "/tables/{table}"
_ALL = ("GET", "HEAD", "POST", "DELETE", "PUT")
Handler = Callable[[Call], Response]


@dataclass(frozen=True)
class _Way:
    """Which request is answered by which handler."""

    method: str
    path: str
    handler: Handler
    writes: bool = False


WAYS = (
    _Way("GET", "/v1/config", reading.config),
    _Way("GET", "/v1/namespaces", reading.list_namespaces),
    _Way("POST", "/v1/namespaces", writing.create_namespace, writes=True),
    _Way("HEAD", _NAMESPACE, reading.namespace_exists),
    _Way("GET", _NAMESPACE, reading.load_namespace),
    _Way("DELETE", _NAMESPACE, writing.drop_namespace, writes=True),
    _Way("POST", _NAMESPACE + "/properties", writing.update_properties, writes=True),
    _Way("GET", _NAMESPACE + "/tables", reading.list_tables),
    _Way("POST", _NAMESPACE + "/tables", writing.create_table, writes=True),
    _Way("POST", _NAMESPACE + "/register", writing.register_table, writes=True),
    _Way("HEAD", _TABLE, reading.table_exists),
    _Way("GET", _TABLE, reading.load_table),
    _Way("POST", _TABLE, writing.commit_table, writes=True),
    _Way("DELETE", _TABLE, writing.drop_table, writes=True),
    _Way("GET", _TABLE + "/credentials", reading.credentials),
    _Way("POST", _TABLE + "/metrics", reading.report_metrics),
    _Way("POST", "/v1/tables/rename", writing.rename_table, writes=True),
    _Way("POST", "/v1/transactions/commit", writing.commit_transaction, writes=True),
    *(
        _Way(method, path, reading.views)
        for path in (
            _NAMESPACE + "/views",
            _NAMESPACE + "/views/{table}",
            _NAMESPACE + "/register-view",
            "/v1/views/rename",
        )
        for method in _ALL
    ),
)


def app(service: Service) -> ASGIApp:
    """The whole application."""
    paths = dict.fromkeys(way.path for way in WAYS)
    routes = [Route(path, _endpoint(service, path), methods=list(_methods(path))) for path in paths]
    routes.append(Route("/v1/oauth/tokens", _token_endpoint(service), methods=["POST"]))
    handlers = {HTTPException: _routing_error, Exception: _any_error}
    made = Starlette(routes=routes, exception_handlers=handlers)  # pyright: ignore[reportArgumentType]
    made.router.redirect_slashes = False
    return _Undecoded(made)


def _methods(path: str) -> dict[str, _Way]:
    return {way.method: way for way in WAYS if way.path == path}


class _Undecoded:
    """Lets the routes see the path as it was sent."""

    def __init__(self, inner: ASGIApp) -> None:
        self._inner = inner

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] == "http":
            scope = {**scope, "path": scope["raw_path"].decode("latin-1")}
        await self._inner(scope, receive, send)


def _endpoint(service: Service, path: str) -> Callable[[Request], object]:
    ways = _methods(path)

    async def respond(request: Request) -> Response:
        way = ways.get(request.method)
        if way is None:  # Starlette adds HEAD wherever there is GET
            raise HTTPException(405)
        try:
            body = await _body(request)
            return await run_in_threadpool(_respond, service, way, request, body)
        except Exception as error:  # noqa: BLE001  (the last place that can turn it into an answer)
            return answers.failure(error)

    return respond


def _respond(service: Service, way: _Way, request: Request, body: bytes) -> Response:
    token = _token(request)
    levels, name = _decoded(request.path_params.get("namespace")), _decoded(request.path_params.get("table"))
    with service.identified(token) as (connection, caller):
        if way.writes and not caller.may_write:
            raise answers.forbidden(f"the token of role {caller.role_name} may read and not write")
        query = {key: values[-1] for key, values in parse_qs(request.url.query, keep_blank_values=True).items()}
        parts = tuple(levels.split("\x1f")) if levels else ()
        return way.handler(Call(service, connection, caller, parts, name, query, request.headers, body))


def _decoded(part: str | None) -> str:
    try:
        return unquote(part or "", errors="strict")
    except UnicodeDecodeError:
        raise answers.bad_request("a name in the path is not UTF-8") from None


def _token(request: Request) -> str:
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise Refused(
            401, "NotAuthorizedException", "no token: send Authorization: Bearer", {"WWW-Authenticate": "Bearer"}
        )
    return token.strip()


async def _body(request: Request) -> bytes:
    """The body, if it is not too large and does not take too long."""
    length = request.headers.get("content-length", "0")
    if length.isdigit() and int(length[:18]) > BODY_BYTES:
        raise _too_large()
    content = bytearray()
    try:
        async with asyncio.timeout(BODY_S):
            async for part in request.stream():
                content += part
                if len(content) > BODY_BYTES:
                    raise _too_large()
    except TimeoutError:
        raise Refused(408, "RequestTimeout", f"the body did not come within {BODY_S:g} s") from None
    return bytes(content)


def _too_large() -> Refused:
    return Refused(413, "PayloadTooLarge", f"a request has {BODY_BYTES >> 20} MB at most", {"Connection": "close"})


def _token_endpoint(service: Service) -> Callable[[Request], object]:
    """For clients that know OAuth only: the secret of their credential is a token of ours, and is what they get."""

    def checked(body: bytes) -> Response:
        form = {key: values[-1] for key, values in parse_qs(body.decode("latin-1")).items()}
        if form.get("grant_type") != "client_credentials":
            return answers.answer({"error": "unsupported_grant_type"}, 400)
        token = form.get("client_secret", "")
        try:
            with service.identified(token):
                said = {"access_token": token, "token_type": "bearer"}
        except Refused:
            return answers.answer({"error": "invalid_client", "error_description": "the secret is no token"}, 401)
        return answers.answer({**said, "issued_token_type": "urn:ietf:params:oauth:token-type:access_token"})

    async def respond(request: Request) -> Response:
        try:
            return await run_in_threadpool(checked, await _body(request))
        except Exception as error:  # noqa: BLE001  (as above)
            return answers.failure(error)

    return respond


async def _routing_error(request: Request, error: Exception) -> Response:
    """No such path, or not with that method."""
    assert isinstance(error, HTTPException)
    if error.status_code == 405:
        refused = Refused(405, "MethodNotAllowed", f"{request.method} is not for this path", error.headers)
    else:
        refused = Refused(error.status_code, "NotFoundException", "the catalog has no such path")
    return answers.refusal(refused)


async def _any_error(request: Request, error: Exception) -> Response:  # noqa: ARG001
    return answers.failure(error)
