"""Requests and answers of the catalog server, without HTTP: what a handler is given, and what it may say.

Every error has the protocol's form: `{"error": {"message": ..., "type": ..., "code": ...}}`.
"""

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import psycopg
from pydantic import BaseModel, ValidationError
from pyiceberg import exceptions
from starlette.responses import Response

from frostline.catalog.connect import Connection, first_line
from frostline.catalog.pointers import Pointer
from frostline.catalog.tokens import Caller
from frostline.errors import ConflictError, FrostlineError, OutcomeUnknown, UnavailableError, UsageError

if TYPE_CHECKING:
    from frostline.server.rest.service import Service

_log = logging.getLogger(__name__)
_LEVEL_BYTES = 255
"""What the tables of the built-in catalog have room for."""
_JSON = "application/json"
_KINDS = (
    (UsageError, 400, "BadRequestException"),
    (ConflictError, 409, "CommitFailedException"),
    (UnavailableError, 503, "ServiceUnavailableException"),
    (OutcomeUnknown, 500, "CommitStateUnknownException"),
)
SENSELESS = (
    ValidationError,
    exceptions.ValidationError,
    exceptions.ResolveError,
    ValueError,
    KeyError,
    IndexError,
    TypeError,
    AttributeError,
    NotImplementedError,
    RecursionError,
)
"""What PyIceberg raises for what makes no sense: its own errors have no base of their own."""
Body = TypeVar("Body", bound=BaseModel)


class Refused(Exception):
    """A request that is not done, as the protocol says it. Nothing was changed."""

    def __init__(self, code: int, kind: str, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.code, self.kind, self.message, self.headers = code, kind, message, headers


def bad_request(message: str) -> Refused:
    """The request makes no sense, or asks for what cannot be."""
    return Refused(400, "BadRequestException", message)


def forbidden(message: str) -> Refused:
    """Whoever has this token may not do it, or nobody may."""
    return Refused(403, "ForbiddenException", message)


def unsupported(message: str) -> Refused:
    """The protocol has it, and we have not."""
    return Refused(406, "UnsupportedOperationException", message)


def no_namespace(namespace: str) -> Refused:
    """There is no such namespace."""
    return Refused(404, "NoSuchNamespaceException", f"namespace {namespace} does not exist")


def no_table(pointer: Pointer) -> Refused:
    """There is no such table."""
    return Refused(404, "NoSuchTableException", f"table {'.'.join(pointer)} does not exist")


def exists_already(what: str) -> Refused:
    """The name is taken."""
    return Refused(409, "AlreadyExistsException", f"{what} exists already")


@dataclass(frozen=True)
class Call:
    """A request of somebody whose token was found."""

    service: "Service"
    connection: Connection
    caller: Caller
    levels: tuple[str, ...] = ()
    """Of the namespace in the path."""
    name: str = ""
    """Of the table in the path."""
    query: Mapping[str, str] = field(default_factory=dict[str, str])
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    body: bytes = b""

    @property
    def namespace(self) -> str:
        """The namespace in the path, as the catalog writes it."""
        return namespace_of(self.levels)

    @property
    def pointer(self) -> Pointer:
        """The table in the path."""
        return pointer_of(self.levels, self.name)

    def read(self, model: type[Body]) -> Body:
        """The body, as what it should be."""
        try:
            return model.model_validate_json(self.body)
        except ValidationError as error:
            _complain(error)
        except SENSELESS as error:  # of PyIceberg's validators
            raise bad_request(f"the body is not what it should be: {first_line(error)}") from None

    def page(self) -> "Page":
        """Which part of a list is asked for."""
        size = self.query.get("pageSize")
        if size is not None and not (size.isascii() and size.isdigit() and 0 < int(size[:9]) <= _MOST):
            raise bad_request(f"pageSize is {size!r}, not a number from 1 to {_MOST}")
        token = self.query.get("pageToken")
        if token is None and size is None:
            return Page(None, None)
        return Page(token or None, int(size) if size else _PAGE)


_PAGE = 1000
_MOST = 100_000


@dataclass(frozen=True)
class Page:
    """A part of a list that is in order. The token of a page is the last name of the one before."""

    after: str | None
    most: int | None

    @property
    def wanted(self) -> int | None:
        """One more than the page has, to know whether there is another one."""
        return None if self.most is None else self.most + 1

    def cut(self, names: list[str]) -> tuple[list[str], dict[str, str]]:
        """The names of the page, and what tells the client about the next."""
        if self.most is None or len(names) <= self.most:
            return names, {}
        return names[: self.most], {"next-page-token": names[self.most - 1]}


def _complain(error: ValidationError) -> NoReturn:
    problem = error.errors(include_url=False, include_context=False, include_input=False)[0]
    place = ".".join(map(str, problem["loc"]))
    raise bad_request(f"the body is not what it should be: {f'{place}: ' if place else ''}{problem['msg']}") from None


def namespace_of(levels: tuple[str, ...] | list[str]) -> str:
    """A namespace as the catalog writes it: its levels with dots between."""
    if not levels or not all(levels):
        raise bad_request("a namespace has one level or more, and none of them is empty")
    namespace = ".".join(levels)
    if len(namespace) > _LEVEL_BYTES or "\0" in namespace:
        raise bad_request(f"a namespace has {_LEVEL_BYTES} characters at most, and no zero byte")
    return namespace


def pointer_of(levels: tuple[str, ...] | list[str], name: str) -> Pointer:
    """A table as the catalog writes it."""
    if not name or len(name) > _LEVEL_BYTES or "\0" in name:
        raise bad_request(f"a table's name has from 1 to {_LEVEL_BYTES} characters, and no zero byte")
    return Pointer(namespace_of(levels), name)


def new_levels(levels: list[str]) -> str:
    """A namespace that is to be made: another engine could not tell a dot in a level from one between levels.

    Nor could we with the byte that is between the levels in a path.
    """
    if any("." in level or "\x1f" in level for level in levels):
        raise bad_request("a level of a namespace may have neither a dot nor the byte 0x1F")
    return namespace_of(levels)


def answer(content: Any, code: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """An answer in JSON; bytes are JSON already."""
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    return Response(body, code, headers, _JSON)


def nothing(code: int = 204, headers: Mapping[str, str] | None = None) -> Response:
    """An answer that says all by its code."""
    return Response(None, code, headers)


def refusal(error: Refused) -> Response:
    """The protocol's form of an error."""
    body = {"error": {"message": error.message, "type": error.kind, "code": error.code}}
    return answer(body, error.code, error.headers)


def failure(error: Exception) -> Response:
    """Any error as an answer. What nobody expected is in the log, and not in the answer."""
    if isinstance(error, Refused):
        return refusal(error)
    if isinstance(error, FrostlineError):
        code, kind = next(
            ((code, name) for base, code, name in _KINDS if isinstance(error, base)), (500, "ServerError")
        )
        return refusal(Refused(code, kind, str(error)))
    if isinstance(error, psycopg.DataError):  # a zero byte, which no text of Postgres has
        return refusal(bad_request("a text of the request has a character that cannot be stored"))
    if isinstance(error, psycopg.errors.ObjectNotInPrerequisiteState):  # the guard of the pointers
        return refusal(forbidden(first_line(error)))
    if isinstance(error, psycopg.OperationalError):
        _log.warning("catalog server: Postgres failed: %s", first_line(error))
        return refusal(Refused(503, "ServiceUnavailableException", "the catalog's Postgres does not answer"))
    _log.error("catalog server: a request failed", exc_info=error)
    return refusal(Refused(500, "InternalServerError", "the catalog server failed; its log says why"))
