"""What every token may ask for: the configuration, namespaces, tables, and how to get at their files."""

import hashlib
import json
import logging
import re
from typing import Any

from pydantic import BaseModel
from starlette.responses import Response

from frostline.catalog import namespaces
from frostline.catalog.namespaces import Entry
from frostline.server.rest import answers
from frostline.server.rest.answers import Call, answer, nothing
from frostline.server.rest.service import readable, with_refs_only

_log = logging.getLogger(__name__)
_DELEGATION = "x-iceberg-access-delegation"
_VENDED = "vended-credentials"
_TAG = re.compile('"[^"]*"')
"""An ETag in If-None-Match. What is before it does not matter: a proxy that compresses makes it a weak one."""
ENDPOINTS = (
    "GET /v1/{prefix}/namespaces",
    "POST /v1/{prefix}/namespaces",
    "GET /v1/{prefix}/namespaces/{namespace}",
    "HEAD /v1/{prefix}/namespaces/{namespace}",
    "DELETE /v1/{prefix}/namespaces/{namespace}",
    "POST /v1/{prefix}/namespaces/{namespace}/properties",
    "GET /v1/{prefix}/namespaces/{namespace}/tables",
    "POST /v1/{prefix}/namespaces/{namespace}/tables",
    "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "HEAD /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "DELETE /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}/credentials",
    "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}/metrics",
    "POST /v1/{prefix}/namespaces/{namespace}/register",
    "POST /v1/{prefix}/tables/rename",
    "POST /v1/{prefix}/transactions/commit",
)
"""What a client is told that it can do here. The protocol writes a prefix, which we have none of."""


def config(call: Call) -> Response:
    """What a client should know first. A warehouse that it names is ours, whatever it calls it: there is one."""
    return answer({"defaults": call.service.store_options(), "overrides": {}, "endpoints": list(ENDPOINTS)})


def list_namespaces(call: Call) -> Response:
    """The namespaces of the top level, or those right below one."""
    parent, page = _levels(call.query.get("parent", "")), call.page()
    if parent:
        require_namespace(call, answers.namespace_of(parent))
    names, rest = page.cut(namespaces.children(call.connection, parent, after=page.after, most=page.wanted))
    return answer({"namespaces": [[*parent, name] for name in names], **rest})


def _levels(text: str) -> tuple[str, ...]:
    return tuple(text.split("\x1f")) if text else ()


def require_namespace(call: Call, namespace: str) -> None:
    """Refuse to go on without it."""
    if not namespaces.exists(call.connection, namespace):
        raise answers.no_namespace(namespace)


def load_namespace(call: Call) -> Response:
    """A namespace's properties."""
    require_namespace(call, call.namespace)
    return answer({"namespace": call.levels, "properties": namespaces.properties(call.connection, call.namespace)})


def namespace_exists(call: Call) -> Response:
    """Whether it is there."""
    require_namespace(call, call.namespace)
    return nothing()


def list_tables(call: Call) -> Response:
    """The tables of a namespace that the caller may read."""
    require_namespace(call, call.namespace)
    page, role = call.page(), call.caller.role_name
    named = namespaces.tables(call.connection, call.namespace, role, after=page.after, most=page.wanted)
    names, rest = page.cut(named)
    return answer({"identifiers": [{"namespace": call.levels, "name": name} for name in names], **rest})


def load_table(call: Call) -> Response:
    """A table's metadata as of now; 304 when the client has it already."""
    shown = call.query.get("snapshots", "all")
    if shown not in ("all", "refs"):
        raise answers.bad_request(f"snapshots is {shown!r}, not 'all' or 'refs'")
    entry = readable(call.connection, call.caller, call.pointer)
    if entry is None:
        raise answers.no_table(call.pointer)
    if _tag(call, entry, shown) in _TAG.findall(call.headers.get("if-none-match", "")):
        return nothing(304, {"ETag": _tag(call, entry, shown)})
    current = call.service.current(call.connection, call.caller, call.pointer)
    if current is None:
        raise answers.no_table(call.pointer)
    entry, content = current
    metadata = with_refs_only(content) if shown == "refs" else content
    return shown_table(call, entry, metadata, shown)


def shown_table(call: Call, entry: Entry, metadata: bytes, shown: str = "all") -> Response:
    """A table as the protocol shows it, with what a client may ask by whether it has changed."""
    return answer(_loaded(call, entry, metadata), headers={"ETag": _tag(call, entry, shown)})


def _tag(call: Call, entry: Entry, shown: str) -> str:
    """The state of a table as this caller is shown it. A metadata location never has another content."""
    secrets = json.dumps(_keys(call, entry))
    parts = f"{entry.metadata_location}\n{shown}\n{call.caller.role_name}\n{secrets}"
    return f'"{hashlib.sha256(parts.encode()).hexdigest()[:32]}"'


def _loaded(call: Call, entry: Entry, metadata: bytes) -> bytes:
    """A table as the protocol shows it. Its metadata is sent as it stands in the file."""
    keys = _keys(call, entry)
    rest: dict[str, Any] = {"config": keys or call.service.store_options()}
    if keys:
        rest["storage-credentials"] = [{"prefix": _folder(entry), "config": keys}]
    location = json.dumps(entry.metadata_location).encode()
    return b'{"metadata-location": %b, "metadata": %b, %b' % (location, metadata, json.dumps(rest).encode()[1:])


def _folder(entry: Entry) -> str:
    return entry.metadata_location.rpartition("/metadata/")[0]


def _keys(call: Call, entry: Entry) -> dict[str, str]:
    asked = _VENDED in call.headers.get(_DELEGATION, "")
    return call.service.keys(call.caller, entry) if asked else {}


def credentials(call: Call) -> Response:
    """Keys for the files of a table; none where none are configured."""
    entry = readable(call.connection, call.caller, call.pointer)
    if entry is None:
        raise answers.no_table(call.pointer)
    keys = call.service.keys(call.caller, entry)
    return answer({"storage-credentials": [{"prefix": _folder(entry), "config": keys}] if keys else []})


def table_exists(call: Call) -> Response:
    """Whether it is there."""
    if readable(call.connection, call.caller, call.pointer) is None:
        raise answers.no_table(call.pointer)
    return nothing()


class _Report(BaseModel):
    """What a client tells of a scan or a commit. Nobody reads the rest of it."""


def report_metrics(call: Call) -> Response:
    """A client says how a scan or a commit went. That is heard, and not kept."""
    call.read(_Report)
    table_exists(call)
    _log.debug("catalog server: metrics of %s", ".".join(call.pointer))
    return nothing()


def views(call: Call) -> Response:
    """Refused, whatever it is."""
    raise answers.unsupported(f"Frostline's catalog has no views; make one in Postgres (role {call.caller.role_name})")
