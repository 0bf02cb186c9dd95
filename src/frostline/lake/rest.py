"""An Iceberg REST catalog: PyIceberg's client, with a limit to every wait and with our errors."""

import json
import re
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import requests
from pydantic import ValidationError
from pyiceberg.catalog.rest import Endpoint
from pyiceberg.exceptions import (
    AuthorizationExpiredError,
    BadRequestError,
    ForbiddenError,
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchTableError,
    OAuthError,
    RESTError,
    ServerError,
    ServiceUnavailableError,
    TooManyRequestsError,
    UnauthorizedError,
)
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from requests.adapters import HTTPAdapter

from frostline.errors import UnavailableError, UsageError
from frostline.lake import paths
from frostline.lake.pyiceberg_compat import BareRestCatalog
from frostline.model.outcomes import Answer, answer
from frostline.settings import Settings, one_line

CONNECT_S = 10
ANSWER_S = 120
_TRANSACTION = "transactions/commit"
_COMMIT_TRANSACTION = Endpoint.from_string("POST /v1/{prefix}/" + _TRANSACTION)
_WORDS = 300
_TOO_OLD = (401, 419)
_DELEGATION = "X-Iceberg-Access-Delegation"
_BEARER = re.compile(r"(?i)\b(bearer|basic) +[\w.~+/=-]+")
_secrets: set[str] = set()
"""Keys of the catalogs that were opened."""

_KEYS = (UnauthorizedError, ForbiddenError, AuthorizationExpiredError, OAuthError)
_DOWN = (requests.ConnectionError, requests.Timeout, ServerError, ServiceUnavailableError, TooManyRequestsError)
_REFUSED = (RESTError, BadRequestError, NoSuchNamespaceError, NotImplementedError)
_NO_CATALOG = (ValidationError, json.JSONDecodeError, requests.RequestException)


class _Patient(HTTPAdapter):
    """HTTP that does not wait for ever, and sends nothing twice."""

    def send(self, request: requests.PreparedRequest, *args: Any, **options: Any) -> requests.Response:
        """Send with a limit, where none is given."""
        options["timeout"] = options.get("timeout") or (CONNECT_S, ANSWER_S)
        return super().send(request, *args, **options)


class Catalog(BareRestCatalog):
    """An open catalog."""

    def prepare(self, session: requests.Session) -> None:
        """No request waits for ever or is sent twice, and none asks for keys of the store: they are our own."""
        session.headers.pop(_DELEGATION, None)
        session.mount("http://", _Patient())
        session.mount("https://", _Patient())

    token_file: Path | None = None
    """Where the token is read again when the server calls it too old."""

    def post(self, path: str, body: str) -> requests.Response:
        """Send a request once, on a new connection; once more with a new token if the server calls it too old.

        A redirect is not followed: it may become a GET, whose answer says nothing of what was asked.
        """
        self.http.close()  # one that the server has closed while it was idle would look like a lost answer
        send = partial(self.http.post, self.url(path), data=body.encode(), allow_redirects=False)
        return self._with_new_token(send)

    def get(self, path: str, headers: Mapping[str, str]) -> requests.Response:
        """Ask for something as it is now; once more when the connection was lost, which the server may have closed."""
        fresh = {**headers, "Cache-Control": "no-cache"}
        send = partial(self._with_new_token, lambda: self.http.get(self.url(path), headers=fresh))
        try:
            return send()
        except requests.ConnectionError:
            return send()

    def _with_new_token(self, send: Callable[[], requests.Response]) -> requests.Response:
        response = send()
        if response.status_code in _TOO_OLD:
            with reaching(self.uri, "renew the token"):
                self.renew_token()
            response = send()
        return response

    def newer_token(self) -> str | None:
        """What is in the file, if there is one."""
        return None if self.token_file is None else read_token(self.token_file)

    @property
    def says_transactions(self) -> bool | None:
        """Whether the server lists the commit of many tables among what it can do; None when it lists nothing."""
        listed = self.listed_endpoints
        return None if listed is None else _COMMIT_TRANSACTION in listed


@contextmanager
def opened(settings: Settings) -> Generator[Catalog]:
    """The catalog of the settings. UsageError if it refuses us, UnavailableError if it is not there."""
    catalog = connected(settings)
    try:
        yield catalog
    finally:
        catalog.close()


def connected(settings: Settings) -> Catalog:
    """The same, for the caller to close."""
    if settings.catalog_uri is None:
        raise UsageError("catalog_uri is not set", hint="set catalog_uri in frostline.toml")
    keys = ("catalog_token", "catalog_token_file", "catalog_credential")
    given = [key for key in keys if getattr(settings, key)]
    if len(given) > 1:
        raise UsageError(f"{given[0]} and {given[1]} are both set", hint="take one of them away")
    _keep_quiet(settings)
    properties = _properties(settings, settings.catalog_uri)
    with reaching(settings.catalog_uri, "be opened"):
        catalog = Catalog("frostline", **properties)
    catalog.token_file = Path(settings.catalog_token_file) if settings.catalog_token_file else None
    return catalog


def read_token(file: Path) -> str:
    """The token in a file. From now on no message has it."""
    try:
        token = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read the token in {str(file)!r}: {one_line(error)}", hint="correct it") from None
    if not token or not token.isascii() or not token.isprintable():
        raise UsageError(f"{str(file)!r} has no token", hint="it holds the token and nothing else")
    _secrets.add(token)
    return token


def _properties(settings: Settings, uri: str) -> dict[str, str]:
    properties = {"uri": uri}
    if settings.catalog_warehouse:
        properties["warehouse"] = settings.catalog_warehouse
    if settings.catalog_token:
        properties["token"] = settings.catalog_token.get_secret_value()
    if settings.catalog_token_file:
        properties["token"] = read_token(Path(settings.catalog_token_file))
    if settings.catalog_credential:
        properties["credential"] = settings.catalog_credential.get_secret_value()
        properties["oauth2-server-uri"] = f"{uri}/v1/oauth/tokens"
    return properties


@contextmanager
def reaching(uri: str, doing: str) -> Generator[None]:
    """Turn what PyIceberg says about a catalog into what to do about it. Not for commits: they may have happened.

    What it said is not kept: it may quote an answer with a token in it, and `--debug` would print that.
    """
    try:
        yield
    except _KEYS:
        raise refused_keys(uri) from None
    except _DOWN as error:
        raise unavailable(uri, short(error)) from None
    except _REFUSED as error:
        hint = "correct catalog_uri, catalog_warehouse or the name"
        raise UsageError(f"catalog {uri!r} refuses to {doing}: {short(error)}", hint=hint) from None
    except _NO_CATALOG:
        raise UsageError(f"{uri!r} does not answer as an Iceberg REST catalog", hint="correct catalog_uri") from None


def short(error: BaseException) -> str:
    """An error's text on one line, without our keys. A server may answer with a whole page, or with what it got."""
    text = _BEARER.sub(r"\1 ***", one_line(error))
    for secret in _secrets:
        text = text.replace(secret, "***")
    return text[:_WORDS]


def _keep_quiet(settings: Settings) -> None:
    """Let no message have these keys, whoever quotes them. The part of a credential before the colon is a name."""
    token, credential = settings.catalog_token, settings.catalog_credential
    if token:
        _secrets.add(token.get_secret_value())
    if credential:
        _secrets.add(credential.get_secret_value().partition(":")[2] or credential.get_secret_value())


class KeysRefused(UsageError):
    """A REST catalog does not take the token or the credential for what was asked."""

    sqlstate = "28000"


def refused_keys(uri: str) -> KeysRefused:
    """The error for a token or a credential that is not taken."""
    hint = "correct catalog_token or catalog_credential, or the rights that the catalog gives it"
    return KeysRefused(f"catalog {uri!r} does not accept the token or the credential", hint=hint)


def unavailable(uri: str, words: str) -> UnavailableError:
    """The error for a catalog that does not do its part."""
    return UnavailableError(
        f"catalog {uri!r} does not answer: {words}",
        hint="check catalog_uri, and that the catalog runs; then run the command again",
    )


def takes_transactions(catalog: Catalog) -> bool:
    """Whether many tables can be committed at once. A server that does not say is asked to commit nothing."""
    if catalog.says_transactions is not None:
        return catalog.says_transactions
    with reaching(catalog.uri, "commit many tables at once"):
        response = post_transaction(catalog, '{"table-changes": []}')
    meant = answer(response.status_code, error_type(response))
    if meant is Answer.FORBIDDEN:
        raise refused_keys(catalog.uri)
    return meant is not Answer.NO_ENDPOINT


def post_transaction(catalog: Catalog, body: str) -> requests.Response:
    """Ask for a commit of many tables."""
    return catalog.post(_TRANSACTION, body)


def error_type(response: requests.Response) -> str | None:
    """The kind of error that an answer names; None when it names none."""
    with suppress(ValueError, AttributeError, TypeError, KeyError):
        return str(response.json()["error"]["type"])
    return None


def load(catalog: Catalog, identifier: tuple[str, ...]) -> Table | None:
    """The table as the catalog has it now, read with our own keys; None when it is not there."""
    with reaching(catalog.uri, f"load {'.'.join(identifier)}"):
        try:
            table = catalog.load_table(identifier)
        except NoSuchTableError:
            return None
    table.io = paths.file_io(table.metadata_location)
    return table


def ensure_namespaces(catalog: Catalog, identifiers: Iterable[tuple[str, ...]]) -> None:
    """Make the namespaces of the tables, outer ones first; those that are there stay as they are."""
    wanted = {identifier[:length] for identifier in identifiers for length in range(1, len(identifier))}
    for namespace in sorted(wanted, key=lambda name: (len(name), name)):
        with reaching(catalog.uri, f"make namespace {'.'.join(namespace)}"), suppress(NamespaceAlreadyExistsError):
            catalog.create_namespace(namespace)


def location_for(catalog: Catalog, identifier: tuple[str, ...], schema: Schema) -> str:
    """Where the table's files go: many catalogs take them nowhere else. A new table is not made by this."""
    table = load(catalog, identifier)
    if table:
        return table.location()
    with reaching(catalog.uri, f"give table {'.'.join(identifier)} a location"):
        return catalog.create_table_transaction(identifier, schema).table_metadata.location


def drop(catalog: Catalog, identifiers: Iterable[tuple[str, ...]]) -> None:
    """Take tables out of the catalog, which may delete their files too. It is no error when a table is gone already."""
    for identifier in identifiers:
        with reaching(catalog.uri, f"drop {'.'.join(identifier)}"), suppress(NoSuchTableError):
            catalog.drop_table(identifier)
