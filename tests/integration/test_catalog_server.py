"""The Iceberg REST protocol as the catalog server speaks it: what is shown to whom, and what is refused in which words."""

import json
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import requests
from tests.fixtures.catalogserver import NUMBERS, Served, numbers, serving
from tests.fixtures.command import Command
from tests.fixtures.statements import run, value
from tests.fixtures.waiting import until_true

from frostline.catalog.connect import Connection
from frostline.errors import UsageError
from frostline.server.rest import app, listen
from frostline.server.rest.listen import CatalogServer
from frostline.settings import Settings


def error(response: requests.Response) -> tuple[int, str]:
    """The code and the kind of an error, which is in the protocol's form."""
    said = response.json()["error"]
    assert set(said) == {"message", "type", "code"}
    assert said["code"] == response.status_code
    assert said["message"]
    return response.status_code, said["type"]


def test_who_has_no_valid_token_is_told_nothing(
    rest: Served, make_role: Callable[[str], str], catalog: Connection
) -> None:
    token = rest.token(make_role("reader"))
    assert rest.ask("GET", "config", token).status_code == 200
    for wrong in (None, "nonsense", "frostline_" + "x" * 43, token + "x"):
        refused = rest.ask("GET", "config", wrong)
        assert error(refused) == (401, "NotAuthorizedException")
        assert refused.headers["WWW-Authenticate"] == "Bearer"
    assert error(rest.ask("GET", "config", headers={"Authorization": f"Basic {token}"}))[0] == 401
    old = rest.token("reader", days=1)
    run(catalog, "update frostline.token set expires_at = now() - interval '1 second' where expires_at is not null")
    assert error(rest.ask("GET", "config", old))[0] == 401
    assert (
        value(catalog, "select count(*) from frostline.token where token_hash = convert_to(%s, 'UTF8')", (token,)) == 0
    )
    run(catalog, "alter role reader rename to gone")
    try:
        assert error(rest.ask("GET", "config", token))[0] == 401
    finally:
        run(catalog, "alter role gone rename to reader")
    run(catalog, "delete from frostline.token")
    assert error(rest.ask("GET", "config", token))[0] == 401


def test_a_client_of_oauth_gets_its_token_for_its_secret(rest: Served) -> None:
    token = rest.token()
    form = {"grant_type": "client_credentials", "client_id": "me", "client_secret": token}
    assert rest.ask("POST", "oauth/tokens", data=form).json()["access_token"] == token
    wrong = rest.ask("POST", "oauth/tokens", data={**form, "client_secret": "other"})
    assert (wrong.status_code, wrong.json()["error"]) == (401, "invalid_client")
    exchange = rest.ask("POST", "oauth/tokens", data={**form, "grant_type": "password"})
    assert (exchange.status_code, exchange.json()["error"]) == (400, "unsupported_grant_type")


def test_a_token_that_may_read_writes_nothing(rest: Served) -> None:
    token = rest.token()
    for way in app.WAYS:
        if way.writes:
            path = way.path.removeprefix("/v1/").format(namespace="app", table="numbers")
            assert error(rest.ask(way.method, path, token, json={})) == (403, "ForbiddenException"), path


REQUESTS: dict[str, tuple[str, str, Any, int, str]] = {
    "no such path": ("GET", "nothing", None, 404, "NotFoundException"),
    "wrong method": ("PUT", "namespaces", None, 405, "MethodNotAllowed"),
    "head of a list": ("DELETE", "config", None, 405, "MethodNotAllowed"),
    "no such namespace": ("GET", "namespaces/none", None, 404, "NoSuchNamespaceException"),
    "tables of none": ("GET", "namespaces/none/tables", None, 404, "NoSuchNamespaceException"),
    "below none": ("GET", "namespaces?parent=none", None, 404, "NoSuchNamespaceException"),
    "drop of none": ("DELETE", "namespaces/none", None, 404, "NoSuchNamespaceException"),
    "no such table": ("GET", "namespaces/app/tables/none", None, 404, "NoSuchTableException"),
    "drop of no table": ("DELETE", "namespaces/app/tables/none", None, 404, "NoSuchTableException"),
    "commit to none": ("POST", "namespaces/app/tables/none", {"updates": []}, 404, "NoSuchTableException"),
    "metrics of none": ("POST", "namespaces/app/tables/none/metrics", {}, 404, "NoSuchTableException"),
    "table in none": ("POST", "namespaces/none/tables", {"name": "a", "schema": {"type": "struct", "fields": []}}, 404, "NoSuchNamespaceException"),
    "no JSON": ("POST", "namespaces", b"{", 400, "BadRequestException"),
    "no body": ("POST", "namespaces", None, 400, "BadRequestException"),
    "not an object": ("POST", "namespaces", b"[1]", 400, "BadRequestException"),
    "deep JSON": ("POST", "namespaces", b"[" * 100_000, 400, "BadRequestException"),
    "wrong type": ("POST", "namespaces", {"namespace": "app"}, 400, "BadRequestException"),
    "no level": ("POST", "namespaces", {"namespace": []}, 400, "BadRequestException"),
    "empty level": ("POST", "namespaces", {"namespace": ["a", ""]}, 400, "BadRequestException"),
    "dot in a level": ("POST", "namespaces", {"namespace": ["a.b"]}, 400, "BadRequestException"),
    "long level": ("POST", "namespaces", {"namespace": ["a" * 300]}, 400, "BadRequestException"),
    "zero byte": ("POST", "namespaces", {"namespace": ["a\0"]}, 400, "BadRequestException"),
    "zero byte in the path": ("GET", "namespaces/a%00b", None, 400, "BadRequestException"),
    "bytes that are no text": ("GET", "namespaces/%ff%fe", None, 400, "BadRequestException"),
    "long property": ("POST", "namespaces", {"namespace": ["b"], "properties": {"a": "x" * 2000}}, 400, "BadRequestException"),
    "namespace there": ("POST", "namespaces", {"namespace": ["app"]}, 409, "AlreadyExistsException"),
    "namespace in use": ("DELETE", "namespaces/app", None, 409, "NamespaceNotEmptyException"),
    "set and removed": ("POST", "namespaces/app/properties", {"removals": ["a"], "updates": {"a": "b"}}, 422, "UnprocessableEntityException"),
    "page size": ("GET", "namespaces?pageSize=x", None, 400, "BadRequestException"),
    "page size of 0": ("GET", "namespaces?pageSize=0", None, 400, "BadRequestException"),
    "zero byte in a page token": ("GET", "namespaces?pageToken=%00", None, 400, "BadRequestException"),
    "zero byte in a removal": ("POST", "namespaces/app/properties", {"removals": ["\0"]}, 400, "BadRequestException"),
    "byte between levels": ("POST", "namespaces", {"namespace": ["a\x1fb"]}, 400, "BadRequestException"),
    "slash at the end": ("GET", "namespaces/app/", None, 404, "NotFoundException"),
    "no such type": ("POST", "namespaces/app/tables", {"name": "a", "schema": {"type": "struct", "fields": [{"id": 1, "name": "a", "type": "decimal(99,2)", "required": False}]}}, 400, "BadRequestException"),
    "spec of no column": ("POST", "namespaces/app/tables/numbers", {"updates": [{"action": "add-spec", "spec": {"spec-id": 1, "fields": [{"source-id": 99, "transform": "identity", "name": "x", "field-id": 1000}]}}, {"action": "set-default-spec", "spec-id": -1}]}, 400, "BadRequestException"),
    "order of no column": ("POST", "namespaces/app/tables/numbers", {"updates": [{"action": "add-sort-order", "sort-order": {"order-id": 1, "fields": [{"source-id": 99, "transform": "identity", "direction": "asc", "null-order": "nulls-first"}]}}, {"action": "set-default-sort-order", "sort-order-id": -1}]}, 400, "BadRequestException"),
    "type that values do not fit": ("POST", "namespaces/app/tables/numbers", {"updates": [{"action": "add-schema", "schema": {"type": "struct", "fields": [{"id": 1, "name": "id", "type": "int", "required": False}]}}, {"action": "set-current-schema", "schema-id": -1}]}, 400, "BadRequestException"),
    "schema number taken": ("POST", "namespaces/app/tables/numbers", {"updates": [{"action": "add-schema", "schema": {"type": "struct", "schema-id": 0, "fields": []}}, {"action": "set-current-schema", "schema-id": 0}]}, 400, "BadRequestException"),
    "which snapshots": ("GET", "namespaces/app/tables/numbers?snapshots=some", None, 400, "BadRequestException"),
    "unknown update": ("POST", "namespaces/app/tables/numbers", {"updates": [{"action": "explode"}]}, 400, "BadRequestException"),
    "unknown requirement": ("POST", "namespaces/app/tables/numbers", {"requirements": [{"type": "assert-luck"}]}, 400, "BadRequestException"),
    "update without sense": ("POST", "namespaces/app/tables/numbers", {"updates": [{"action": "set-current-schema", "schema-id": 77}]}, 400, "BadRequestException"),
    "requirement fails": ("POST", "namespaces/app/tables/numbers", {"requirements": [{"type": "assert-create"}]}, 409, "CommitFailedException"),
    "other location": ("POST", "namespaces/app/tables/numbers", {"updates": [{"action": "set-location", "location": "file:///etc"}]}, 400, "BadRequestException"),
    "other uuid": ("POST", "namespaces/app/tables/numbers", {"updates": [{"action": "assign-uuid", "uuid": "00000000-0000-4000-8000-000000000000"}]}, 400, "BadRequestException"),
    "types for a table": ("POST", "namespaces/app/tables/numbers", {"updates": [{"action": "set-properties", "updates": {"frostline.pg-columns": "{}"}}]}, 400, "BadRequestException"),
    "checks for a table": ("POST", "namespaces/app/tables/numbers", {"updates": [{"action": "set-properties", "updates": {"frostline.pg-checks": "{}"}}]}, 400, "BadRequestException"),
    "a sweep for a table": ("POST", "namespaces/app/tables/numbers", {"updates": [{"action": "set-properties", "updates": {"frostline.swept-before": "1"}}]}, 400, "BadRequestException"),
    "a sweep of one's own": ("POST", "namespaces/app/tables", {"name": "a", "properties": {"frostline.swept-before": "1"}, "schema": {"type": "struct", "fields": []}}, 400, "BadRequestException"),
    "checks of one's own": ("POST", "namespaces/app/tables", {"name": "a", "properties": {"frostline.pg-checks": "{}"}, "schema": {"type": "struct", "fields": []}}, 400, "BadRequestException"),
    "types of one's own": ("POST", "namespaces/app/tables", {"name": "a", "properties": {"frostline.pg-columns": '{"1": {"type": "public.mine", "name": "mine", "builtin": false, "precision": null, "scale": null, "collation": "none", "collation_name": null}}'}, "schema": {"type": "struct", "fields": []}}, 400, "BadRequestException"),
    "types that are more": ("POST", "namespaces/app/tables", {"name": "a", "properties": {"frostline.pg-columns": '{"1": {"type": "int); drop role x; --", "name": "int4", "builtin": true, "precision": null, "scale": null, "collation": "none", "collation_name": null}}'}, "schema": {"type": "struct", "fields": []}}, 400, "BadRequestException"),
    "metadata elsewhere": ("POST", "namespaces/app/tables/numbers", {"updates": [{"action": "set-properties", "updates": {"write.metadata.path": "file:///etc"}}]}, 400, "BadRequestException"),
    "newer format": ("POST", "namespaces/app/tables/numbers", {"updates": [{"action": "upgrade-format-version", "format-version": 3}]}, 400, "BadRequestException"),
    "other table in the body": ("POST", "namespaces/app/tables/numbers", {"identifier": {"namespace": ["app"], "name": "b"}}, 400, "BadRequestException"),
    "table there": ("POST", "namespaces/app/tables", {"name": "numbers", "schema": {"type": "struct", "fields": []}}, 409, "AlreadyExistsException"),
    "table anywhere": ("POST", "namespaces/app/tables", {"name": "a", "location": "file:///tmp/a", "schema": {"type": "struct", "fields": []}}, 400, "BadRequestException"),
    "table of format 3": ("POST", "namespaces/app/tables", {"name": "a", "properties": {"format-version": "3"}, "schema": {"type": "struct", "fields": []}}, 400, "BadRequestException"),
    "purge": ("DELETE", "namespaces/app/tables/numbers?purgeRequested=true", None, 406, "UnsupportedOperationException"),
    "register anything": ("POST", "namespaces/app/register", {"name": "a", "metadata-location": "file:///etc/passwd"}, 400, "BadRequestException"),
    "register and overwrite": ("POST", "namespaces/app/register", {"name": "a", "metadata-location": "x", "overwrite": True}, 406, "UnsupportedOperationException"),
    "rename of none": ("POST", "tables/rename", {"source": {"namespace": ["app"], "name": "none"}, "destination": {"namespace": ["app"], "name": "b"}}, 404, "NoSuchTableException"),
    "rename into none": ("POST", "tables/rename", {"source": {"namespace": ["app"], "name": "numbers"}, "destination": {"namespace": ["none"], "name": "b"}}, 404, "NoSuchNamespaceException"),
    "rename onto itself": ("POST", "tables/rename", {"source": {"namespace": ["app"], "name": "numbers"}, "destination": {"namespace": ["app"], "name": "numbers"}}, 409, "AlreadyExistsException"),
    "empty transaction": ("POST", "transactions/commit", {"table-changes": []}, 400, "BadRequestException"),
    "a table twice": ("POST", "transactions/commit", {"table-changes": [{"identifier": {"namespace": ["app"], "name": "numbers"}}] * 2}, 400, "BadRequestException"),
    "a table without a name": ("POST", "transactions/commit", {"table-changes": [{"updates": []}]}, 400, "BadRequestException"),
    "views": ("GET", "namespaces/app/views", None, 406, "UnsupportedOperationException"),
    "a new view": ("POST", "namespaces/app/views", {}, 406, "UnsupportedOperationException"),
    "rename of a view": ("POST", "views/rename", {}, 406, "UnsupportedOperationException"),
}  # fmt: skip
"""What: method, path, body; then the answer."""


def test_bad_requests_of_every_kind_get_the_protocols_errors(rest: Served, catalog: Connection) -> None:
    client, token = rest.client(write=True), rest.token(write=True)
    client.create_namespace("app")
    client.create_table("app.numbers", NUMBERS).append(numbers(1))
    pointers = value(catalog, "select jsonb_agg(p) from frostline.iceberg_tables p")
    for what, (method, path, body, code, kind) in REQUESTS.items():
        more = {"data": body} if isinstance(body, bytes) else {"json": body} if body is not None else {}
        assert error(rest.ask(method, path, token, **more)) == (code, kind), what
    assert value(catalog, "select jsonb_agg(p) from frostline.iceberg_tables p") == pointers
    assert error(rest.ask("POST", "namespaces", token, data=b"x" * (app.BODY_BYTES + 1)))[0] == 413
    for path in ("namespaces/none", "namespaces/app/tables/none"):
        assert rest.ask("HEAD", path, token).status_code == 404
    for path in ("namespaces/app", "namespaces/app/tables/numbers"):
        assert rest.ask("HEAD", path, token).status_code == 204
    assert (
        rest.ask("POST", "namespaces/app/tables/numbers/metrics", token, json={"report-type": "scan"}).status_code
        == 204
    )
    assert "views" in rest.ask("GET", "namespaces/app/views/a", token).json()["error"]["message"]


def test_what_is_no_request_at_all_is_hung_up_on(rest: Served) -> None:
    with socket.create_connection(("127.0.0.1", rest.server.port), timeout=60) as client:
        client.sendall(b"\0\1\2 nonsense\r\n\r\n")
        assert client.recv(100).startswith(b"HTTP/1.1 400")
    with socket.create_connection(("127.0.0.1", rest.server.port), timeout=60) as client:
        client.sendall(b"GET /v1/config HTTP/1.1\r\nHost: x\r\nX: " + b"x" * (1 << 20))
        with suppress(ConnectionResetError):
            while client.recv(1 << 16):
                pass
    assert rest.ask("GET", "config", rest.token()).status_code == 200


def test_lists_come_in_pages(rest: Served) -> None:
    client, token = rest.client(write=True), rest.token()
    names = ["a", "A", "b/c", "b", "ä", "one two", "%2F"]
    for name in names:
        client.create_namespace(name)
        rest.ask("POST", "namespaces/a/tables", rest.token(write=True), json=_new_table(name)).raise_for_status()
    for path, key in (("namespaces", "namespaces"), ("namespaces/a/tables", "identifiers")):
        seen, page = [], {"pageSize": "2", "pageToken": ""}
        while page:
            said = rest.ask("GET", path, token, params=page).json()
            assert len(said[key]) <= 2
            seen += [entry[0] if key == "namespaces" else entry["name"] for entry in said[key]]
            page = {"pageSize": "2", "pageToken": said["next-page-token"]} if said.get("next-page-token") else {}
        assert seen == sorted(names)
        assert len(rest.ask("GET", path, token).json()[key]) == len(names)
    assert [name for _, name in client.list_tables("a")] == sorted(names)
    assert client.load_table(("a", "b/c")).name() == ("a", "b/c")
    assert client.namespace_exists("b/c")


def _new_table(name: str) -> dict[str, Any]:
    column = {"id": 1, "name": "id", "type": "long", "required": True}
    return {"name": name, "schema": {"type": "struct", "schema-id": 0, "fields": [column]}}


def test_namespaces_have_levels_and_properties(rest: Served) -> None:
    client, token = rest.client(write=True), rest.token(write=True)
    client.create_namespace(("a", "b", "c"), {"one": "1"})
    assert client.list_namespaces() == [("a",)]
    assert client.list_namespaces("a") == [("a", "b")]
    assert rest.ask("GET", "namespaces?parent=a%1Fb", token).json()["namespaces"] == [["a", "b", "c"]]
    assert rest.ask("GET", "namespaces/a%1Fb%1Fc", token).json()["namespace"] == ["a", "b", "c"]
    done = client.update_namespace_properties(("a", "b", "c"), removals={"one", "none"}, updates={"two": "2"})
    assert (done.removed, done.updated, done.missing) == (["one"], ["two"], ["none"])
    assert client.load_namespace_properties(("a", "b", "c")) == {"two": "2"}
    assert error(rest.ask("DELETE", "namespaces/a%1Fb", token)) == (409, "NamespaceNotEmptyException")
    client.drop_namespace(("a", "b", "c"))
    assert client.list_namespaces() == []


def test_a_table_that_a_client_has_already_is_not_sent_again(rest: Served) -> None:
    client, token, path = rest.client(write=True), rest.token(), "namespaces/app/tables/numbers"
    client.create_namespace("app")
    table = client.create_table("app.numbers", NUMBERS)
    table.append(numbers(1))
    table.append(numbers(2))
    whole, refs = rest.ask("GET", path, token), rest.ask("GET", f"{path}?snapshots=refs", token)
    assert len(whole.json()["metadata"]["snapshots"]) == 2
    assert [each["snapshot-id"] for each in refs.json()["metadata"]["snapshots"]] == [
        table.metadata.current_snapshot_id
    ]
    assert whole.headers["ETag"] != refs.headers["ETag"]
    again = rest.ask("GET", path, token, headers={"If-None-Match": whole.headers["ETag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert rest.ask("GET", path, token, headers={"If-None-Match": refs.headers["ETag"]}).status_code == 200
    for several in (f'"other",{whole.headers["ETag"]}', f'W/{whole.headers["ETag"]}, "other"'):
        assert rest.ask("GET", path, token, headers={"If-None-Match": several}).status_code == 304
    table.append(numbers(3))
    newer = rest.ask("GET", path, token, headers={"If-None-Match": whole.headers["ETag"]})
    assert len(newer.json()["metadata"]["snapshots"]) == 3
    assert newer.json()["metadata-location"] != whole.json()["metadata-location"]


def test_a_transaction_of_many_tables_is_done_or_not_at_all(rest: Served) -> None:
    client, token = rest.client(write=True), rest.token(write=True)
    client.create_namespace("app")
    tables = [client.create_table(f"app.t{number}", NUMBERS) for number in range(3)]
    folders = [table.location() for table in tables]

    def change(name: str, colour: str, *requirements: dict[str, Any]) -> dict[str, Any]:
        updates = [{"action": "set-properties", "updates": {"colour": colour}}]
        return {"identifier": {"namespace": ["app"], "name": name}, "requirements": requirements, "updates": updates}

    def commit(*changes: dict[str, Any]) -> requests.Response:
        return rest.ask("POST", "transactions/commit", token, json={"table-changes": changes})

    def colours() -> list[str | None]:
        return [client.load_table(f"app.t{number}").properties.get("colour") for number in range(3)]

    assert commit(*(change(f"t{number}", "red") for number in range(3))).status_code == 204
    assert colours() == ["red"] * 3
    fails = {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": 5}
    assert error(commit(change("t0", "blue"), change("t1", "blue"), change("t2", "blue", fails))) == (
        409,
        "CommitFailedException",
    )
    assert error(commit(change("t0", "blue"), change("none", "blue"))) == (404, "NoSuchTableException")
    assert colours() == ["red"] * 3
    files = [sorted(_metadata_files(folder)) for folder in folders]
    assert [len(names) for names in files] == [2, 2, 2], "what was staged for the others is deleted"
    kept = {"type": "assert-table-uuid", "uuid": str(tables[1].metadata.table_uuid)}
    only = {"identifier": {"namespace": ["app"], "name": "t1"}, "requirements": [kept]}
    assert commit(change("t0", "green"), only).status_code == 204
    assert colours() == ["green", "red", "red"]


def _metadata_files(folder: str) -> list[str]:
    from frostline.lake import paths

    return [name for name in paths.names_in(f"{folder}/metadata") if name.endswith(".json")]


def test_a_role_sees_a_lake_table_that_postgres_has_by_its_rights_there(
    rest: Served, make_role: Callable[[str], str], catalog: Connection
) -> None:
    role = make_role("reader")
    owner, client = rest.client(write=True), rest.client(role, write=True)
    owner.create_namespace("public")
    owner.create_table("public.numbers", NUMBERS)
    owner.load_table("public.numbers").append(numbers(1))
    run(catalog, "create foreign table public.numbers (id bigint) server frostline_lake options (table_name 'lake_1')")
    path, token = "namespaces/public/tables/numbers", rest.token(role, write=True)
    assert error(rest.ask("GET", path, token)) == (403, "ForbiddenException")
    assert client.list_tables("public") == []
    run(catalog, "grant select, insert on public.numbers to reader")
    assert client.list_tables("public") == [("public", "numbers")]
    assert error(rest.ask("POST", path, token, json={"updates": []})) == (403, "ForbiddenException")
    assert error(rest.ask("DELETE", path, token)) == (403, "ForbiddenException")
    run(catalog, "grant update, delete on public.numbers to reader")
    client.load_table("public.numbers").append(numbers(2))
    assert len(client.load_table("public.numbers").scan().to_arrow()) == 2


_COLUMN = {"id": 3, "name": "more", "type": "long", "required": False}
_SCHEMA = {"type": "struct", "fields": [_COLUMN]}
_FIELD = {"source-id": 1, "transform": "bucket[4]", "name": "id_bucket", "field-id": 1000}
_ORDER = {"source-id": 1, "transform": "identity", "direction": "asc", "null-order": "nulls-last"}
FOR_THE_OWNER: dict[str, tuple[str, str, dict[str, Any]]] = {
    "schema": ("POST", "{table}", {"updates": [{"action": "add-schema", "schema": _SCHEMA}, {"action": "set-current-schema", "schema-id": -1}]}),
    "spec": ("POST", "{table}", {"updates": [{"action": "add-spec", "spec": {"spec-id": 1, "fields": [_FIELD]}}]}),
    "order": ("POST", "{table}", {"updates": [{"action": "add-sort-order", "sort-order": {"order-id": 1, "fields": [_ORDER]}}]}),
    "properties": ("POST", "{table}", {"updates": [{"action": "set-properties", "updates": {"colour": "red"}}]}),
    "removal": ("POST", "{table}", {"updates": [{"action": "remove-properties", "removals": ["shade"]}]}),
    "history": ("POST", "{table}", {"updates": [{"action": "remove-snapshots", "snapshot-ids": [0]}]}),
    "many": ("POST", "transactions/commit", {"table-changes": [{"identifier": {"namespace": ["public"], "name": "numbers"}, "updates": [{"action": "set-properties", "updates": {"colour": "red"}}]}]}),
    "rename": ("POST", "tables/rename", {"source": {"namespace": ["public"], "name": "numbers"}, "destination": {"namespace": ["public"], "name": "mine"}}),
    "drop": ("DELETE", "{table}", {}),
}  # fmt: skip


def test_who_may_change_all_rows_is_not_the_owner_and_cannot_alter_rename_or_drop_the_table(
    rest: Served, make_role: Callable[[str], str], catalog: Connection
) -> None:
    writer, maker = make_role("writer"), make_role("maker")
    owner = rest.client(write=True)
    owner.create_namespace("public")
    table = owner.create_table("public.numbers", NUMBERS, properties={"shade": "blue"})
    table.append(numbers(1))
    table.append(numbers(2))
    (first, _) = table.metadata.snapshots
    run(catalog, "create foreign table public.numbers (id bigint) server frostline_lake options (table_name 'lake_1')")
    run(catalog, "grant select, insert, update, delete on public.numbers to writer")
    token, path = rest.token(writer, write=True), "namespaces/public/tables/numbers"
    before = owner.load_table("public.numbers").metadata_location
    for what, (method, place, body) in FOR_THE_OWNER.items():
        said = json.loads(json.dumps(body).replace("[0]", f"[{first.snapshot_id}]"))
        refused = rest.ask(method, place.format(table=path), token, json=said)
        assert (what, *error(refused)) == (what, 403, "ForbiddenException")
        assert "is not the owner of public.numbers" in refused.json()["error"]["message"]
    assert owner.load_table("public.numbers").metadata_location == before
    client = rest.client(writer, write=True)
    client.load_table("public.numbers").append(numbers(3))
    client.load_table("public.numbers").delete("id = 1")
    assert set(client.load_table("public.numbers").scan().to_arrow()["id"].to_pylist()) == {2, 3}
    run(catalog, f"alter foreign table public.numbers owner to {maker}; grant postgres to {maker}")
    assert (
        rest.ask(
            *_asked(FOR_THE_OWNER["properties"], path),
            rest.token(maker, write=True),
            json=FOR_THE_OWNER["properties"][2],
        ).status_code
        == 200
    )
    run(catalog, f"revoke postgres from {maker}; alter foreign table public.numbers owner to postgres")


def _asked(request: tuple[str, str, object], table: str) -> tuple[str, str]:
    return request[0], request[1].format(table=table)


def test_a_foreign_table_of_a_role_that_could_not_own_the_server_opens_no_lake_table(
    rest: Served, make_role: Callable[[str], str], catalog: Connection
) -> None:
    """Its owner may let it ask for any lake table, and it may be older than the one that counts."""
    thief = make_role("thief")
    owner = rest.client(write=True)
    owner.create_namespace("public")
    for name in ("numbers", "secrets"):
        owner.create_table(f"public.{name}", NUMBERS)
    run(catalog, "grant usage on foreign server frostline_lake to thief; create schema own authorization thief")
    run(catalog, "set role thief")
    run(catalog, "create foreign table own.older (id bigint) server frostline_lake options (table_name 'lake_1')")
    run(catalog, "create foreign table own.only (id bigint) server frostline_lake options (table_name 'lake_2')")
    run(catalog, "reset role")
    run(catalog, "create foreign table public.numbers (id bigint) server frostline_lake options (table_name 'lake_1')")
    token = rest.token(thief, write=True)
    for name in ("numbers", "secrets"):
        for method, body in (("GET", None), ("POST", {"updates": []}), ("DELETE", None)):
            refused = rest.ask(method, f"namespaces/public/tables/{name}", token, json=body)
            assert (name, method, *error(refused)) == (name, method, 403, "ForbiddenException")
    assert rest.client(thief).list_tables("public") == []
    run(catalog, "grant select on public.numbers to thief")
    assert rest.client(thief).list_tables("public") == [("public", "numbers")]


def test_a_lake_table_without_a_foreign_table_is_for_its_owner_whatever_else_has_its_name(
    rest: Served, make_role: Callable[[str], str], catalog: Connection
) -> None:
    reader, maker = make_role("reader"), make_role("maker")
    owner = rest.client(maker, write=True)
    owner.create_namespace("public")
    owner.create_table("public.numbers", NUMBERS).append(numbers(1))
    run(catalog, "create foreign table public.numbers (id bigint) server frostline_lake options (table_name 'lake_1')")
    run(catalog, "grant select on public.numbers to reader")
    path, token = "namespaces/public/tables/numbers", rest.token(reader, write=True)
    assert rest.ask("GET", path, token).status_code == 200
    run(catalog, "drop foreign table public.numbers")
    run(catalog, "create foreign data wrapper nothing; create server nowhere foreign data wrapper nothing")
    run(catalog, "create foreign table public.numbers (id bigint) server nowhere")
    run(catalog, "grant all on public.numbers to reader")
    assert error(rest.ask("GET", path, token)) == (403, "ForbiddenException")
    assert error(rest.ask("POST", path, token, json={"updates": []})) == (403, "ForbiddenException")
    assert rest.client(reader).list_tables("public") == []
    owner.load_table("public.numbers").append(numbers(2))
    run(catalog, "grant maker to reader")
    assert rest.ask("GET", path, token).status_code == 200
    run(catalog, "revoke maker from reader; update frostline.lake_table set owner = 'nobody any more'")
    assert error(rest.ask("GET", path, token)) == (403, "ForbiddenException")
    assert len(rest.client().load_table("public.numbers").scan().to_arrow()) == 2, "the catalog's owner has it then"


def test_a_lake_table_keeps_its_rights_under_another_name_and_is_for_its_owner_when_it_was_dropped(
    rest: Served, make_role: Callable[[str], str], catalog: Connection
) -> None:
    role = make_role("reader")
    owner, token = rest.client(write=True), rest.token(role, write=True)
    owner.create_namespace("public")
    location = owner.create_table("public.numbers", NUMBERS).metadata_location
    run(catalog, "create foreign table public.other (id bigint) server frostline_lake options (table_name 'lake_1')")
    assert error(rest.ask("GET", "namespaces/public/tables/numbers", token)) == (403, "ForbiddenException")
    owner.rename_table("public.numbers", "public.renamed")
    assert error(rest.ask("GET", "namespaces/public/tables/renamed", token)) == (403, "ForbiddenException")
    assert rest.client(role).list_tables("public") == []
    owner.drop_table("public.renamed")
    body = {"name": "mine", "metadata-location": location}
    assert error(rest.ask("POST", "namespaces/public/register", token, json=body)) == (403, "ForbiddenException")
    assert owner.register_table("public.back", location).metadata_location == location


def test_keys_of_the_store_are_given_only_where_they_are_configured(database: str, seaweed: Any) -> None:
    from frostline.lake import objectstore

    warehouse = f"s3://{seaweed.new_bucket()}/lake"
    store = {
        "s3_endpoint": seaweed.s3_endpoint,
        "s3_region": seaweed.region,
        "s3_access_key": seaweed.access_key,
        "s3_secret_key": seaweed.secret_key,
    }
    access = objectstore.Access.of(Settings(dsn=database, warehouse=warehouse, **store))
    asking = {"X-Iceberg-Access-Delegation": "vended-credentials"}
    path = "namespaces/app/tables/numbers"
    with objectstore.used(access), serving(database, warehouse, **store) as rest:
        writer = rest.token(write=True)
        rest.ask("POST", "namespaces", writer, json={"namespace": ["app"]}).raise_for_status()
        rest.ask("POST", "namespaces/app/tables", writer, json=_new_table("numbers")).raise_for_status()
        said = rest.ask("GET", path, writer, headers=asking)
        assert said.json()["config"]["s3.endpoint"] == seaweed.s3_endpoint
        assert seaweed.secret_key not in said.text
        assert rest.ask("GET", f"{path}/credentials", writer).json() == {"storage-credentials": []}
    keys = {
        "rest_read_access_key": "reading",
        "rest_read_secret_key": "a secret",
        "rest_write_access_key": seaweed.access_key,
        "rest_write_secret_key": seaweed.secret_key,
    }
    with objectstore.used(access), serving(database, warehouse, **store, **keys) as rest:
        reader, writer = rest.token(), rest.token(write=True)
        assert "s3.secret-access-key" not in rest.ask("GET", path, reader).json()["config"], "it was not asked for"
        given = rest.ask("GET", path, reader, headers=asking).json()
        assert given["config"]["s3.access-key-id"] == "reading"
        assert seaweed.secret_key not in json.dumps(given)
        (credential,) = rest.ask("GET", f"{path}/credentials", writer).json()["storage-credentials"]
        assert credential["config"]["s3.secret-access-key"] == seaweed.secret_key
        assert given["metadata-location"].startswith(credential["prefix"] + "/")
        client = rest.client(write=True)
        client.create_table("app.words", NUMBERS).append(numbers(1, 2))
        assert len(client.load_table("app.words").scan().to_arrow()) == 2


def test_tokens_are_not_taken_in_clear_text_from_elsewhere(database: str, tmp_path: Any) -> None:
    for host in ("0.0.0.0", "::", "10.1.2.3", "db.internal"):
        settings = Settings(dsn=database, warehouse=str(tmp_path), rest_port=1, rest_listen=host)
        with pytest.raises(UsageError, match="in clear text"):
            CatalogServer(settings, None)


def test_postgres_may_go_away_and_come_back(rest: Served, catalog: Connection) -> None:
    token = rest.token()
    assert rest.ask("GET", "namespaces", token).status_code == 200
    others = "select count(pg_terminate_backend(pid)) from pg_stat_activity where application_name = 'frostline catalog server'"
    assert value(catalog, others) >= 1
    assert rest.ask("GET", "namespaces", token).status_code == 200


def test_a_commit_in_which_postgres_is_lost_may_have_happened(rest: Served, catalog: Connection) -> None:
    client, token = rest.client(write=True), rest.token(write=True)
    client.create_namespace("app")
    table = client.create_table("app.numbers", NUMBERS)
    body = {"updates": [{"action": "set-properties", "updates": {"colour": "red"}}]}
    server = "from pg_stat_activity where application_name = 'frostline catalog server' and wait_event_type = 'Lock'"
    with ThreadPoolExecutor(1) as other:
        with catalog.transaction():
            run(catalog, "select from frostline.iceberg_tables for update")
            asked = other.submit(rest.ask, "POST", "namespaces/app/tables/numbers", token, json=body)
            until_true(catalog, f"select count(*) {server}")
            assert value(catalog, f"select count(pg_terminate_backend(pid)) {server}") == 1
        assert error(asked.result()) == (500, "CommitStateUnknownException")
    assert len(_metadata_files(table.location())) == 2, "what may have been committed is not deleted"
    assert "colour" not in client.load_table("app.numbers").properties
    assert rest.ask("POST", "namespaces/app/tables/numbers", token, json=body).status_code == 200


def test_a_new_table_is_not_loaded_again_by_who_has_made_it(rest: Served) -> None:
    token = rest.token(write=True)
    rest.client(write=True).create_namespace("app")
    made = rest.ask("POST", "namespaces/app/tables", token, json=_new_table("numbers"))
    tag = {"If-None-Match": made.headers["ETag"]}
    assert rest.ask("GET", "namespaces/app/tables/numbers", token, headers=tag).status_code == 304


def test_a_table_has_a_folder_of_its_own_however_it_is_spelled(rest: Served) -> None:
    """By another spelling one table could have had another's folder, and its files with it when it was purged."""
    client, token = rest.client(write=True), rest.token(write=True)
    client.create_namespace("app")
    taken = client.create_table("app.numbers", NUMBERS).location()
    places = (
        taken,
        f"{taken}/inner",
        taken.rpartition("/")[0],
        taken.replace("file:///", "file:/"),
        taken.removeprefix("file://"),
        taken.replace("/app/", "/app//"),
        f"{taken}/../other",
        f"{taken}?",
        f"{taken}*",
    )
    for place in places:
        said = rest.ask("POST", "namespaces/app/tables", token, json={**_new_table("other"), "location": place})
        assert error(said) == (400, "BadRequestException"), place
    assert client.list_tables("app") == [("app", "numbers")]
    beside = {**_new_table("other"), "location": f"{taken}x"}
    assert rest.ask("POST", "namespaces/app/tables", token, json=beside).status_code == 200


def test_a_new_schema_gets_a_number_that_no_other_has(rest: Served) -> None:
    client, token = rest.client(write=True), rest.token(write=True)
    client.create_namespace("app")
    client.create_table("app.numbers", NUMBERS)
    columns = [{"id": 1, "name": "number", "type": "long", "required": False}]
    schema = {"type": "struct", "schema-id": 0, "fields": columns}
    updates = [{"action": "add-schema", "schema": schema}, {"action": "set-current-schema", "schema-id": -1}]
    rest.ask("POST", "namespaces/app/tables/numbers", token, json={"updates": updates}).raise_for_status()
    table = client.load_table("app.numbers")
    assert {number: schema.column_names for number, schema in table.schemas().items()} == {
        0: ["id", "word"],
        1: ["number"],
    }
    assert table.metadata.current_schema_id == 1


def test_names_may_be_as_long_as_the_catalog_takes_them(rest: Served) -> None:
    """In a folder's name each character of theirs may be twelve."""
    client, name = rest.client(write=True), "\N{SNOWMAN}" * 255
    client.create_namespace((name,))
    client.create_table((name, name), NUMBERS).append(numbers(1))
    assert len(client.load_table((name, name)).scan().to_arrow()) == 1


def test_of_two_that_create_a_table_one_does(rest: Served) -> None:
    token = rest.token(write=True)
    rest.client(write=True).create_namespace("app")
    with ThreadPoolExecutor(6) as clients:
        asked = [
            clients.submit(rest.ask, "POST", "namespaces/app/tables", token, json=_new_table("numbers"))
            for _ in range(6)
        ]
        codes = sorted(each.result().status_code for each in asked)
    assert codes == [200, 409, 409, 409, 409, 409]


def test_without_its_warehouse_nothing_is_committed(rest: Served) -> None:
    client, token = rest.client(write=True), rest.token(write=True)
    client.create_namespace("app")
    client.create_table("app.numbers", NUMBERS)
    lake = Path(rest.settings.warehouse)
    lake.rename(lake.with_name("away"))
    lake.mkdir()
    said = rest.ask("POST", "namespaces/app/tables", token, json=_new_table("other"))
    assert error(said) == (503, "ServiceUnavailableException")
    assert list(lake.iterdir()) == []


def test_who_asks_for_nothing_is_hung_up_on(database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listen, "REQUEST_S", 0.1)
    with serving(database, str(tmp_path)) as rest:
        for words in (b"", b"GET /v1/con"):
            with socket.create_connection(("127.0.0.1", rest.server.port), timeout=60) as client:
                client.sendall(words)
                assert client.recv(100) == b""


def test_the_command_line_makes_lists_and_drops_tokens(
    rest: Served, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FROSTLINE_DSN", rest.settings.dsn)
    monkeypatch.setenv("FROSTLINE_WAREHOUSE", rest.settings.warehouse)
    made = json.loads(command("token", "create", "postgres", "--write", "--days", "2", "--output", "json").stdout)
    assert (made["role"], made["write"]) == ("postgres", True)
    assert rest.ask("GET", "config", made["token"]).status_code == 200
    listed = command("token", "list", "--output", "json").stdout
    assert made["token"] not in listed
    assert (json.loads(listed)[0]["id"], json.loads(listed)[0]["valid"]) == (made["id"], True)
    assert command("token", "drop", made["id"]).exit_code == 0
    assert command("token", "drop", made["id"]).exit_code == 2
    assert rest.ask("GET", "config", made["token"]).status_code == 401


def test_a_metadata_file_that_is_gone_is_named(rest: Served) -> None:
    client = rest.client(write=True)
    client.create_namespace("app")
    table = client.create_table("app.numbers", NUMBERS)
    from frostline.lake import paths

    with serving(rest.settings.dsn, rest.settings.warehouse) as fresh:  # has read nothing yet
        paths.delete(table.metadata_location)
        said = fresh.ask("GET", "namespaces/app/tables/numbers", fresh.token())
    assert error(said) == (503, "ServiceUnavailableException")
    assert "app.numbers" in said.json()["error"]["message"]
