"""Changes the policy of a managed table, and refuses one that cannot be."""

from dataclasses import replace
from typing import Any

from frostline.catalog import periods, tables
from frostline.catalog.connect import Connection
from frostline.errors import UsageError
from frostline.model.policy import MIN_FILE_SIZE, Mode, Policy
from frostline.model.tables import Table
from frostline.model.tiers import TierKind

MAX_PREMAKE = 1000


def change(connection: Connection, table: Table, *, release: bool = False, **requested: Any) -> Table:
    """Set what is given (the names are the policy's), all or nothing, and return the table as it is then."""
    if not requested and not release:
        raise UsageError("nothing to set", hint="see: frostline table set --help")
    return put(connection, table, replace(table.policy, **requested), release=release)


def put(connection: Connection, table: Table, policy: Policy, *, release: bool = False) -> Table:
    """Make this the table's policy, if it can be one."""
    check(connection, table.tier_kind, table.mode, policy)
    with connection.transaction():
        tables.set_policy(connection, table, policy)
        if release:
            tables.release(connection, table)
        return tables.get(connection, table.name)


def check(connection: Connection, kind: TierKind, mode: Mode, policy: Policy) -> None:
    """Raise UsageError for the first thing in it that cannot be."""
    _check_periods(connection, kind, mode, policy)
    periods.check_interval(connection, "grace", policy.grace_period)
    periods.check_interval(connection, "fold-age", policy.fold_age, positive=True)
    periods.check_interval(connection, "snapshot-retention", policy.snapshot_retention)
    if not 0 <= policy.premake <= MAX_PREMAKE:
        raise UsageError(f"--premake {policy.premake} is not between 0 and {MAX_PREMAKE}", hint="for example 4")
    if policy.fold_rows < 1:
        raise UsageError(f"--fold-rows {policy.fold_rows} is not positive", hint="for example 100000")
    if policy.target_file_size < MIN_FILE_SIZE:
        raise UsageError(f"--target-file-size {policy.target_file_size} is less than 1 MB", hint="for example 256MB")


def _check_periods(connection: Connection, kind: TierKind, mode: Mode, policy: Policy) -> None:
    hot, retention = policy.hot_period, policy.retention_period
    if mode.has_line and hot is None:
        raise UsageError("no hot period is given", hint="say how long rows stay hot, for example --hot '90 days'")
    if not mode.has_line and hot is not None:
        raise UsageError("a table in partition mode has no hot period", hint="leave --hot out, or --mode partition")
    for option, period in (("hot", hot), ("retention", retention), ("every", policy.partition_interval)):
        if period is not None:
            periods.check(connection, kind, option, period)
    _check_width(connection, kind, policy.partition_interval)
    if hot is not None and retention is not None and not periods.is_longer(connection, kind, retention, hot):
        raise UsageError(
            f"--retention {retention!r} is not longer than the hot period {hot!r}",
            hint="rows are removed from the lake only, so they must have time to get there",
        )


def _check_width(connection: Connection, kind: TierKind, interval: str | None) -> None:
    if interval is not None and periods.step(connection, kind, interval) is None:
        hint = "whole days, months or years" if kind is TierKind.DATE else "for example '1 month' or '6 hours'"
        raise UsageError(f"--every {interval!r} is no width for a {kind.value}", hint=hint)
