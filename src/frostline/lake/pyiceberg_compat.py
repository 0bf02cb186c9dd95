"""PyIceberg's private parts, all in one place: whatever of it starts with an underscore is used here and nowhere else.

Each has its reason, and the public API that would take its place. A new release of PyIceberg is read against this
file; the bounds of the dependency in pyproject.toml are those of the releases that it was read against.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

import requests
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.rest import DEFAULT_ENDPOINTS, Endpoint, RestCatalog
from pyiceberg.catalog.rest.auth import LegacyOAuth2AuthManager
from pyiceberg.expressions import BooleanExpression
from pyiceberg.expressions.visitors import _InclusiveMetricsEvaluator  # pyright: ignore[reportPrivateUsage]
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, ManifestContent, ManifestFile, ManifestWriterV2
from pyiceberg.schema import Schema
from pyiceberg.table import CreateTableTransaction, StagedTable, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import TableRequirement, TableUpdate
from pyiceberg.table.update.snapshot import (
    _OverwriteFiles,  # pyright: ignore[reportPrivateUsage]
    _SnapshotProducer,  # pyright: ignore[reportPrivateUsage]
)

# `Transaction.update_snapshot().overwrite()` and `.fast_append()` give one, and its type has no public name.
# Instead: a public name for the type.
SnapshotProducer: TypeAlias = _SnapshotProducer[Any]


class ReplaceFiles(_OverwriteFiles):
    """A snapshot of the same rows in other files: `replace`, which readers of changes pass over.

    PyIceberg has no such snapshot. Ours is made as an overwrite, the only kind whose summary it can add up with files
    that go, and called by its name at the end. Instead: `update_snapshot().replace()`, or RewriteFiles as Java has it.
    """

    def __init__(self, transaction: Transaction, properties: dict[str, str], io: FileIO) -> None:
        super().__init__(operation=Operation.OVERWRITE, transaction=transaction, io=io, snapshot_properties=properties)
        self.io = io

    def _summary(self, snapshot_properties: dict[str, str] | None = None) -> Summary:
        summary = super()._summary(snapshot_properties or {})
        return Summary(Operation.REPLACE, **summary.additional_properties)

    # A private method alone decides which manifests hold the entries that stay, and the parent and the removed files
    # are private too. Instead: RewriteManifests as Java has it.
    def _existing_manifests(self) -> list[ManifestFile]:
        return self.kept_manifests()

    def kept_manifests(self) -> list[ManifestFile]:
        """The manifests of what stays; a subclass may write others with the same entries."""
        return super()._existing_manifests()

    @property
    def parent(self) -> Snapshot | None:
        """The snapshot that this one replaces files of."""
        return self._transaction.table_metadata.snapshot_by_name(self._target_branch)

    def removes(self, data_file: DataFile) -> bool:
        """Whether the file is one of those that go."""
        return data_file in self._deleted_data_files


class CachingTransaction(Transaction):
    """Works the new metadata out once for each change.

    PyIceberg does so whenever it is asked, a dozen times a commit, each time with a copy of the table's whole history.
    What says that it is another one is private: the table and the updates so far. Instead: nothing, if PyIceberg
    itself kept what it has worked out.
    """

    _known: tuple[TableMetadata, tuple[TableUpdate, ...], TableMetadata] | None = None

    @property
    def table_metadata(self) -> TableMetadata:
        """As the changes so far make it."""
        known = self._known
        if known is None or known[0] is not self._table.metadata or known[1] is not self._updates:
            known = self._known = (self._table.metadata, self._updates, super().table_metadata)
        return known[2]


def judge_each_manifest_by_itself(producer: Any) -> None:
    """PyIceberg asks one evaluator from many threads, and it remembers the manifest that it was asked about last.

    So a manifest could be judged by another's partitions, and a file that is to go be passed over. `overwrite()` makes
    the producer, so it cannot be a subclass of ours. Instead: nothing, if the evaluator kept no state.
    """
    build = producer._build_manifest_evaluator  # noqa: SLF001

    def evaluator(spec_id: int) -> Callable[[ManifestFile], bool]:
        def judge(manifest: ManifestFile) -> bool:
            return build(spec_id)(manifest)

        return judge

    producer._build_manifest_evaluator = evaluator  # noqa: SLF001


def apply(
    transaction: Transaction, updates: tuple[TableUpdate, ...], requirements: tuple[TableRequirement, ...]
) -> None:
    """Add updates to a transaction.

    `update_schema` numbers new fields itself, and our files have the numbers already. Instead: a public `apply`.
    """
    transaction._apply(updates, requirements)  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]


def creation(
    identifier: tuple[str, ...], metadata: TableMetadata, io: FileIO, catalog: Catalog
) -> tuple[TableUpdate, ...]:
    """What makes an empty table of this metadata. The ids of its fields stay, as they would not by a plain create.

    The transaction that creates a table keeps them for itself. Instead: public `updates` of a transaction.
    """
    empty = StagedTable(identifier, metadata, "", io, catalog)
    return CreateTableTransaction(empty)._updates  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]


class BareRestCatalog(RestCatalog):
    """A REST catalog that can also be sent requests of our own.

    PyIceberg knows no commit of many tables, and sends some requests twice, so we send them ourselves: with its
    session, token and paths, which are private. Instead: `commit_transaction`, and a way to bring a session along.
    """

    def _config_headers(self, session: requests.Session) -> None:
        super()._config_headers(session)
        self.prepare(session)

    def prepare(self, session: requests.Session) -> None:
        """Change a session before its first use; it has its headers."""

    @property
    def http(self) -> requests.Session:
        """The session that all requests of the catalog use."""
        return self._session

    def renew_token(self) -> None:
        """Get a new token, as PyIceberg does when one is too old."""
        self._refresh_token()

    def newer_token(self) -> str | None:
        """The token to go on with when one is too old; None to get one by the credential."""
        return None

    def _refresh_token(self) -> None:
        token, auth = self.newer_token(), self._auth_manager
        if token is not None and isinstance(auth, LegacyOAuth2AuthManager):
            auth._token = token  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
        else:
            super()._refresh_token()

    def path_of(self, identifier: tuple[str, ...]) -> str:
        """Where a table is, below the catalog's prefix."""
        parts = self._split_identifier_for_path(identifier)
        return f"namespaces/{parts['namespace']}/tables/{parts['table']}"

    @property
    def listed_endpoints(self) -> frozenset[Endpoint] | None:
        """What the server says that it can do; None when it says nothing, and PyIceberg takes some for granted."""
        listed = frozenset(self._supported_endpoints)
        return None if listed == frozenset(DEFAULT_ENDPOINTS) else listed


class DeleteManifestWriter(ManifestWriterV2):
    """A manifest of delete files. PyIceberg writes none. Instead: `write_manifest` with a content."""

    def content(self) -> ManifestContent:
        """Deletes."""
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


def by_bounds(schema: Schema, condition: BooleanExpression) -> Callable[[DataFile], bool]:
    """Tells whether a file can have a row for which the condition holds, by its bounds and counts.

    PyIceberg does so for the current snapshot of a table of a catalog only. Instead: a public evaluator of data files,
    as there is one of manifests' partitions (`expression_evaluator`).
    """
    return _InclusiveMetricsEvaluator(schema, condition).eval
