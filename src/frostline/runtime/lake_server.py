"""Runs the lake server as the settings say."""

import resource
import ssl
from collections.abc import Callable, Generator
from contextlib import contextmanager
from threading import Event
from typing import TYPE_CHECKING

from frostline.catalog import migrations
from frostline.catalog.connect import connect
from frostline.errors import UsageError
from frostline.observe.metrics import http
from frostline.relation import node_tables
from frostline.runtime import watchdog
from frostline.runtime.install import lake_password
from frostline.runtime.node_catalogs import claimed, rest_identity
from frostline.settings import Settings

_FILES = 8_192

if TYPE_CHECKING:
    from frostline.server.listen import LakeServer


def start(settings: Settings, *, without_lake: bool = False) -> "LakeServer":
    """Start the lake server for a database that has the catalog, or for a node.

    It is refused when the warehouse is not the database's, unless somebody knows that. A store that does not answer may
    be back in a moment, and is waited for by nobody.
    """
    from frostline.lake import filecheck  # noqa: PLC0415  (Iceberg is slow to load)
    from frostline.server.listen import LakeServer  # noqa: PLC0415  (a refusal needs no engine)
    from frostline.server.provider import CatalogTables, NoManagedTables  # noqa: PLC0415

    _allow_files()
    encryption = tls_context(settings.lake_tls_certificate, settings.lake_tls_key)
    identity, is_node = _identity(settings, without_lake=without_lake), settings.catalog_dsn is not None
    rest_catalog = settings.of_rest_catalog()
    with connect(settings.dsn, purpose="serve") as connection:
        if identity is not None:
            node_tables.require_catalog(connection, identity)
        password = lake_password(settings, connection)
    server = LakeServer(
        host=settings.lake_listen,
        port=settings.lake_port,
        tables=NoManagedTables() if is_node else CatalogTables(settings.dsn, settings.warehouse),
        user=settings.lake_user,
        password=password,
        postgres_dsn=settings.dsn,
        catalog_dsn=None if rest_catalog else settings.catalog_dsn,
        rest_catalog=rest_catalog,
        memory_limit=settings.lake_memory,
        threads=settings.lake_threads,
        warehouse=settings.warehouse,
        checks=filecheck.chosen(settings),
        tls=encryption,
    )
    try:
        server.start()
    except OSError as error:
        server.stop()
        reason = (error.strerror or str(error)).partition(" (")[0]  # Python adds the address
        raise UsageError(
            f"the lake server cannot listen on {settings.lake_listen}:{settings.lake_port}: {reason}",
            hint="set another lake_port or lake_listen, then frostline init tells Postgres",
        ) from None
    return server


def _identity(settings: Settings, *, without_lake: bool) -> str | None:
    """The catalog of a node, which is there; None for a database that has its own."""
    from frostline.lake import rest, rest_publish, warehouse  # noqa: PLC0415  (as in `start`)

    rest_catalog = settings.of_rest_catalog()
    if rest_catalog is not None:
        with rest.opened(rest_catalog) as catalog:
            rest_publish.require_transactions(catalog)
        return rest_identity(rest_catalog)
    with connect(settings.catalog_dsn or settings.dsn, purpose="serve") as connection:
        migrations.require(connection)
        if not without_lake:
            warehouse.expect(connection, settings.warehouse)
        return claimed(connection).identity if settings.catalog_dsn is not None else None


def tls_context(certificate: str | None, key: str | None, protocol: str = "postgresql") -> ssl.SSLContext | None:
    """TLS with these PEM files, None when neither is given; raises UsageError for anything else."""
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        missing, given = ("lake_tls_certificate", "lake_tls_key") if key else ("lake_tls_key", "lake_tls_certificate")
        raise UsageError(f"{given} is set but {missing} is not", hint="set both, or neither")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.set_alpn_protocols([protocol])
    try:
        # Without a password at hand OpenSSL would ask for one at the terminal.
        tls.load_cert_chain(certificate, key, password=lambda: b"")
    except (OSError, ValueError) as error:
        raise UsageError(
            f"cannot use the certificate {certificate!r} with the key {key!r}: {error.args[-1]}",
            hint="lake_tls_certificate and lake_tls_key name a pair of PEM files, the key without a password",
        ) from None
    return tls


def _allow_files() -> None:
    """As many open files as the system lets us have: sessions, strangers and data files share them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES if hard == resource.RLIM_INFINITY else min(_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def serve_until(settings: Settings, *, announce: Callable[[str], None], stop: Event) -> None:
    """Run the lake server until `stop` is set."""
    with running(settings) as server, watchdog.guarded(server.answers, settings.lake_watchdog_s):
        catalog = f" catalog={settings.rest_listen}:{settings.rest_port}" if settings.rest_port else ""
        announce(f"ready lake={settings.lake_listen}:{settings.lake_port}{catalog}")
        stop.wait()


@contextmanager
def _catalog(settings: Settings) -> Generator[None]:
    """The catalog server for the block, if a port is set for it."""
    if settings.rest_port is None:
        yield
        return
    settings.refuse_node()  # its tokens are those of the catalog's roles
    from frostline.server.rest.listen import CatalogServer  # noqa: PLC0415  (a web framework that few need)

    tls = tls_context(settings.lake_tls_certificate, settings.lake_tls_key, "http/1.1")
    server = CatalogServer(settings, tls)
    try:
        yield
    finally:
        server.stop()


@contextmanager
def running(settings: Settings, *, without_lake: bool = False) -> Generator["LakeServer"]:
    """The lake server for the block, and its metrics and the catalog server if ports are set for them."""
    from frostline.observe.metrics import lake_server  # noqa: PLC0415  (as in `start`)

    server = start(settings, without_lake=without_lake)
    try:
        with (
            http.served(
                settings.metrics_listen,
                settings.lake_metrics_port,
                lambda: lake_server.families(server),
                names=http.host_names(settings.metrics_hosts),
            ),
            _catalog(settings),
        ):
            yield server
    finally:
        server.stop()
