"""Many tables committed at once to a real REST catalog, and what is done when its answer does not arrive."""

import json
import threading
import traceback
import uuid
from collections.abc import Iterator
from dataclasses import replace

import pytest
from pydantic import SecretStr
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from tests.fixtures import proxy as proxies
from tests.fixtures.proxy import Answered, Asked, Forward, Proxy, answers, proxied
from tests.fixtures.quick import first
from tests.fixtures.rest_tables import ONE, PLAIN, SCHEMA, TWO, at, both, read, version, versions
from tests.fixtures.seaweed import Seaweed

from frostline.errors import ConflictError, FrostlineError, OutcomeUnknown, UnavailableError, UsageError
from frostline.lake import objectstore, paths, rest, transaction
from frostline.lake.objectstore import Access
from frostline.lake.recording import Recording
from frostline.lake.rest import Catalog
from frostline.settings import Settings

NO_PATH = b'{"error": {"message": "Path not found", "type": "NotFound", "code": 404}}'


@pytest.fixture
def access(seaweed: Seaweed) -> Iterator[None]:
    with objectstore.used(
        Access(
            seaweed.access_key, seaweed.secret_key, region=seaweed.region, endpoint=seaweed.s3_endpoint, path_style=True
        )
    ):
        yield


@pytest.fixture(scope="module")
def bucket(seaweed: Seaweed) -> str:
    """One for all: the store has room for few."""
    return seaweed.new_table_bucket()


@pytest.fixture
def settings(seaweed: Seaweed, access: None, bucket: str) -> Settings:
    return Settings(
        dsn="unused",
        warehouse="unused",
        catalog_uri=seaweed.iceberg_uri,
        catalog_warehouse=f"s3://{bucket}",
        catalog_credential=SecretStr(f"{seaweed.access_key}:{seaweed.secret_key}"),
    )


@pytest.fixture
def catalog(settings: Settings) -> Iterator[Catalog]:
    with rest.opened(settings) as catalog:
        rest.ensure_namespaces(catalog, [ONE, TWO])
        rest.drop(catalog, [ONE, TWO])
        yield catalog


@pytest.fixture
def proxy(settings: Settings) -> Iterator[Proxy]:
    with proxied(str(settings.catalog_uri)) as proxy:
        yield proxy


@pytest.fixture
def through(settings: Settings, catalog: Catalog, proxy: Proxy) -> Iterator[Catalog]:
    """The same catalog by way of the proxy. Both tables are there, in their first version."""
    transaction.commit_all(catalog, [version(catalog, ONE, 1), version(catalog, TWO, 1)])
    with rest.opened(settings.model_copy(update={"catalog_uri": proxy.uri})) as opened:
        assert rest.takes_transactions(opened)
        yield opened


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction, "LOOKS_S", (0, 0.3, 0.7))


def test_new_tables_and_their_second_version_are_committed_at_once(catalog: Catalog) -> None:
    outcome = transaction.commit_all(catalog, both(catalog, 2))
    assert outcome.atomic
    assert outcome.created_first == (ONE, TWO), "this server makes no table inside a transaction"
    assert versions(catalog) == at(2)
    again = transaction.commit_all(catalog, both(catalog, 3), require_atomic=True)
    assert (again.atomic, again.created_first) == (True, ())
    assert versions(catalog) == at(3)
    for identifier, location in again.locations.items():
        assert paths.size_bytes(location), f"{identifier} is readable by its metadata alone"


def test_new_tables_are_asked_for_in_the_transaction_first(settings: Settings, catalog: Catalog, proxy: Proxy) -> None:
    with rest.opened(settings.model_copy(update={"catalog_uri": proxy.uri})) as through:
        outcome = transaction.commit_all(through, [version(through, name, 2, PLAIN) for name in (ONE, TWO)])
    assert (outcome.atomic, outcome.created_first) == (True, (ONE, TWO))
    first = next(json.loads(asked.body) for asked in proxy.asked if "transactions/commit" in asked.path)
    assert [part["requirements"] for part in first["table-changes"]] == [[{"type": "assert-create"}]] * 2
    assert versions(catalog) == at(2)


def test_a_new_and_an_old_table_go_together(catalog: Catalog) -> None:
    transaction.commit_all(catalog, [version(catalog, ONE, 1)])
    outcome = transaction.commit_all(catalog, both(catalog, 2))
    assert (outcome.atomic, outcome.created_first) == (True, (TWO,))
    assert versions(catalog) == at(2)


def test_the_second_version_is_one_request(through: Catalog, proxy: Proxy) -> None:
    changes = both(through, 2)
    proxy.asked.clear()
    transaction.commit_all(through, changes)
    sent = [asked for asked in proxy.asked if asked.method == "POST"]
    assert len(sent) == 1
    parts = json.loads(sent[0].body)["table-changes"]
    for part, change in zip(parts, changes, strict=True):
        assert change.base
        assert part["requirements"] == [
            {"type": "assert-table-uuid", "uuid": str(change.base.table_uuid)},
            {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": change.base.current_snapshot_id},
        ]


def test_when_somebody_else_commits_in_between_nothing_changes(catalog: Catalog) -> None:
    transaction.commit_all(catalog, both(catalog, 1))
    changes = both(catalog, 2)
    transaction.commit_all(catalog, [version(catalog, TWO, 5)])
    with pytest.raises(ConflictError, match="somebody else"):
        transaction.commit_all(catalog, changes)
    assert versions(catalog) == (["version 1"], ["version 5"] * 5)
    transaction.commit_all(catalog, both(catalog, 3))
    assert versions(catalog) == at(3)


def test_when_somebody_else_makes_a_table_in_between_nothing_changes(catalog: Catalog) -> None:
    changes = both(catalog, 2)
    transaction.commit_all(catalog, [version(catalog, TWO, 5)])
    with pytest.raises(ConflictError):
        transaction.commit_all(catalog, changes)
    loaded = rest.load(catalog, ONE)
    assert loaded is None or loaded.current_snapshot() is None
    assert read(catalog, TWO) == ["version 5"] * 5


def test_a_table_that_was_dropped_in_between_is_a_conflict(catalog: Catalog) -> None:
    transaction.commit_all(catalog, both(catalog, 1))
    changes = both(catalog, 2)
    rest.drop(catalog, [TWO])
    rest.drop(catalog, [TWO])
    with pytest.raises(ConflictError):
        transaction.commit_all(catalog, changes)
    assert read(catalog, ONE) == ["version 1"]


def test_a_lost_answer_is_found_out_by_looking(through: Catalog, proxy: Proxy) -> None:
    proxy.fault = proxies.cut_after
    changes = both(through, 2)
    outcome = transaction.commit_all(through, changes)
    assert outcome.atomic
    assert set(outcome.locations) == {ONE, TWO}
    assert versions(through) == at(2)


@pytest.mark.slow
def test_an_answer_that_takes_too_long_is_found_out_by_looking(
    through: Catalog, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = both(through, 2)
    monkeypatch.setattr(rest, "ANSWER_S", 1)
    answered = threading.Event()

    def slow(asked: Asked, forward: Forward) -> None:
        forward(asked)
        answered.wait(60)

    proxy.fault = slow
    transaction.commit_all(through, changes)
    answered.set()
    assert versions(through) == at(2)


@pytest.mark.parametrize("status", first(1, [503, 500, 502, 504]))
def test_an_error_of_a_gateway_is_not_believed(through: Catalog, proxy: Proxy, status: int) -> None:
    proxy.fault = proxies.answers(status, forwards=True)
    transaction.commit_all(through, both(through, 2))
    assert versions(through) == at(2)


@pytest.mark.slow
def test_a_request_that_arrives_late_is_waited_for(through: Catalog, proxy: Proxy) -> None:
    changes = both(through, 2)
    proxy.fault = proxies.late
    transaction.commit_all(through, changes)
    assert versions(through) == at(2)


@pytest.mark.slow
def test_a_request_that_does_not_arrive_is_called_unknown(through: Catalog, proxy: Proxy) -> None:
    changes = both(through, 2)
    proxy.fault = proxies.cut_before
    with pytest.raises(OutcomeUnknown, match=r"may still arrive .* none of its 2 tables has it"):
        transaction.commit_all(through, changes)
    assert versions(through) == at(1)
    proxy.fault = None
    transaction.commit_all(through, both(through, 3))
    assert versions(through) == at(3)
    with pytest.raises(ConflictError):
        transaction.commit_all(through, changes)


@pytest.mark.slow
def test_a_catalog_that_does_half_of_it_is_told_on(through: Catalog, proxy: Proxy) -> None:
    def only_the_first(asked: Asked, forward: Forward) -> Answered:
        parts = json.loads(asked.body)
        parts["table-changes"] = parts["table-changes"][:1]
        forward(replace(asked, body=json.dumps(parts).encode()))
        return Answered(500)

    proxy.fault = only_the_first
    changes = both(through, 2)
    with pytest.raises(OutcomeUnknown, match=r"half done .*: cut\.public\.one have it, cut\.public\.two not"):
        transaction.commit_all(through, changes)
    proxy.fault = None
    transaction.commit_all(through, both(through, 3))
    assert versions(through) == at(3)


@pytest.mark.slow
def test_a_catalog_that_dies_and_cannot_be_asked_is_called_unknown(through: Catalog, proxy: Proxy) -> None:
    changes = both(through, 2)

    def die(_asked: Asked, _forward: Forward) -> None:
        proxy.fault = proxies.cut_before
        proxy.concerns = ""

    proxy.fault = die
    with pytest.raises(OutcomeUnknown, match="may still arrive"):
        transaction.commit_all(through, changes)


@pytest.mark.parametrize(
    "answer", first(1, [proxies.answers(404, NO_PATH), proxies.answers(405), proxies.answers(501)])
)
def test_a_catalog_without_transactions_gets_one_commit_a_table(
    through: Catalog, proxy: Proxy, answer: proxies.Fault
) -> None:
    proxy.fault = answer
    outcome = transaction.commit_all(through, both(through, 2))
    assert not outcome.atomic
    assert set(outcome.locations) == {ONE, TWO}
    assert versions(through) == at(2)


@pytest.mark.slow
@pytest.mark.parametrize("schema", [SCHEMA, PLAIN], ids=["gaps", "plain"])
def test_new_tables_of_a_catalog_without_transactions_are_made_too(
    settings: Settings, catalog: Catalog, proxy: Proxy, schema: Schema
) -> None:
    proxy.fault = proxies.answers(404, NO_PATH)
    with rest.opened(settings.model_copy(update={"catalog_uri": proxy.uri})) as through:
        changes = [version(through, name, 2, schema) for name in (ONE, TWO)]
        with pytest.raises(UsageError):
            transaction.commit_all(through, changes, require_atomic=True)
        assert [rest.load(catalog, name) for name in (ONE, TWO)] == [None, None]
        outcome = transaction.commit_all(through, changes)
    assert (outcome.atomic, outcome.created_first) == (False, (ONE, TWO))
    assert versions(catalog) == at(2)


def test_one_table_is_atomic_everywhere(through: Catalog, proxy: Proxy) -> None:
    proxy.fault = proxies.answers(404, NO_PATH)
    assert transaction.commit_all(through, [version(through, ONE, 2)], require_atomic=True).atomic
    assert transaction.commit_all(through, []).locations == {}
    assert versions(through) == (["version 2"] * 2, ["version 1"])


def test_who_requires_an_atomic_commit_is_refused_before_anything_changes(through: Catalog, proxy: Proxy) -> None:
    proxy.fault = proxies.answers(404, NO_PATH)
    with pytest.raises(UsageError, match="cannot commit many tables at once"):
        transaction.refuse_unless_atomic(through)
    with pytest.raises(UsageError, match="cannot commit many tables at once"):
        transaction.commit_all(through, both(through, 2), require_atomic=True)
    assert versions(through) == at(1)


def test_one_commit_a_table_that_ends_half_way_says_where(through: Catalog, proxy: Proxy) -> None:
    proxy.fault = proxies.answers(404, NO_PATH)
    changes = both(through, 2)
    transaction.commit_all(through, [version(through, TWO, 5)])
    with pytest.raises(
        OutcomeUnknown, match=r"half done .*somebody else.*: cut\.public\.one have it, cut\.public\.two not"
    ):
        transaction.commit_all(through, changes)
    with pytest.raises(ConflictError):
        transaction.commit_all(through, list(reversed(changes)))


@pytest.mark.slow
def test_a_change_without_a_snapshot_is_recognised_too(through: Catalog, proxy: Proxy) -> None:
    loaded = rest.load(through, ONE)
    assert loaded
    base, staging = loaded.metadata, Recording(uuid.uuid4())
    table = Table(ONE, base, loaded.metadata_location, loaded.io, staging)
    assert staging.change(table, base) is None
    with table.transaction() as change:
        change.set_properties(owner="me")
    mine = staging.change(table, base)
    assert mine
    proxy.fault = proxies.cut_before
    with pytest.raises(OutcomeUnknown):
        transaction.commit_all(through, [mine, version(through, TWO, 2)])
    proxy.fault = proxies.cut_after
    transaction.commit_all(through, [mine, version(through, TWO, 2)])
    loaded = rest.load(through, ONE)
    assert loaded
    assert loaded.properties["owner"] == "me"


def test_a_server_that_lists_what_it_can_do_is_believed(settings: Settings, proxy: Proxy) -> None:
    def lists(*endpoints: str) -> proxies.Fault:
        def fault(asked: Asked, forward: Forward) -> Answered:
            config = json.loads(forward(asked).body) | {"endpoints": list(endpoints)}
            return Answered(200, json.dumps(config).encode())

        return fault

    proxy.concerns = "/v1/config"
    tables = "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}"
    for endpoints, takes in (((tables,), False), ((tables, "POST /v1/{prefix}/transactions/commit"), True)):
        proxy.fault = lists(*endpoints)
        with rest.opened(settings.model_copy(update={"catalog_uri": proxy.uri})) as catalog:
            proxy.asked.clear()
            assert rest.takes_transactions(catalog) is takes
            assert not proxy.asked


def test_no_error_quotes_a_key_that_the_catalog_sends_back(settings: Settings, proxy: Proxy) -> None:
    through = settings.model_copy(update={"catalog_uri": proxy.uri})
    token = through.model_copy(update={"catalog_credential": None, "catalog_token": SecretStr("our-own-key")})
    credential = through.model_copy(update={"catalog_credential": SecretStr("me:our-own-key")})
    fresh = b'{"access_token": "their-new-key"}'
    for chosen, path, fault in (
        (token, "/v1/config", answers(500, b'{"you sent": "our-own-key and bearer another-key"}')),
        (credential, "/v1/oauth/tokens", answers(200, fresh)),
        (credential, "/v1/oauth/tokens", answers(400, b'{"error": "invalid_request", "is": "me:our-own-key"}')),
    ):
        proxy.concerns, proxy.fault = path, fault
        with pytest.raises(FrostlineError) as failed, rest.opened(chosen):
            pass
        printed = "".join(traceback.format_exception(failed.value))
        assert not [key for key in ("our-own-key", "their-new-key", "another-key") if key in printed]


def test_wrong_keys_are_one_line_without_the_keys(settings: Settings) -> None:
    wrong = settings.model_copy(update={"catalog_credential": SecretStr("frostline-tests:not-the-secret")})
    with pytest.raises(UsageError, match="does not accept") as refused, rest.opened(wrong):
        pass
    token = settings.model_copy(update={"catalog_credential": None, "catalog_token": SecretStr("not-a-token")})
    with rest.opened(token) as catalog:
        for attempt in (
            lambda: rest.load(catalog, ONE),
            lambda: rest.ensure_namespaces(catalog, [ONE]),
            lambda: rest.takes_transactions(catalog),
        ):
            with pytest.raises(UsageError, match="does not accept") as denied:
                attempt()
            assert "not-a-token" not in f"{denied.value} {denied.value.hint}"
    assert "\n" not in str(refused.value)
    assert "not-the-secret" not in f"{refused.value} {refused.value.hint}"
    both_set = settings.model_copy(update={"catalog_token": SecretStr("x")})
    with pytest.raises(UsageError, match="both set"), rest.opened(both_set):
        pass


def test_a_token_that_runs_out_is_renewed(through: Catalog, proxy: Proxy) -> None:
    changes = both(through, 2)
    refused: list[Asked] = []

    def once(asked: Asked, forward: Forward) -> Answered:
        if refused:
            return forward(asked)
        refused.append(asked)
        return Answered(401, b'{"error": {"message": "expired", "type": "NotAuthorizedException", "code": 401}}')

    proxy.fault = once
    transaction.commit_all(through, changes)
    assert refused
    assert versions(through) == at(2)


def test_what_is_no_catalog_and_what_is_down_is_said(settings: Settings, seaweed: Seaweed) -> None:
    for uri, error in (
        (seaweed.s3_endpoint, UsageError),
        ("http://127.0.0.1:1", UnavailableError),
        (None, UsageError),
    ):
        unreachable = settings.model_copy(update={"catalog_uri": uri, "catalog_credential": None})
        with pytest.raises(error) as said, rest.opened(unreachable):
            pass
        assert said.value.hint
        assert uri is None or uri in str(said.value)


def test_a_commit_to_a_catalog_that_is_down_is_not_unknown(settings: Settings) -> None:
    with (
        proxied(str(settings.catalog_uri)) as proxy,
        rest.opened(settings.model_copy(update={"catalog_uri": proxy.uri})) as catalog,
    ):
        rest.ensure_namespaces(catalog, [ONE])
        changes = [version(catalog, ONE, 1)]
        catalog.uri = "http://127.0.0.1:1"
        with pytest.raises(UnavailableError, match="does not answer"):
            transaction.commit_all(catalog, changes)


def test_a_name_that_the_catalog_does_not_take_is_said(catalog: Catalog) -> None:
    with pytest.raises(UsageError, match="refuses to make namespace No Name"):
        rest.ensure_namespaces(catalog, [("No Name", "t")])
