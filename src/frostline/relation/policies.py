"""Row security policies as one condition that the caller of the relation must meet, in both tiers."""

from collections.abc import Callable, Sequence

from psycopg import sql

from frostline.model.registration import Policy
from frostline.relation.names import trusted

FALSE = sql.SQL("false")
TRUE = sql.SQL("true")


def using(policies: Sequence[Policy], command: str) -> sql.Composable:
    """Which rows the caller may see (`r`), update (`w`) or delete (`d`)."""
    return _combine(policies, command, lambda policy: policy.using)


def check(policies: Sequence[Policy], command: str) -> sql.Composable:
    """Which rows the caller may insert (`a`) or update into (`w`)."""
    return _combine(policies, command, lambda policy: policy.check or policy.using)


def check_of_update(policies: Sequence[Policy]) -> sql.Composable:
    """What a row may become by UPDATE: one that the policies for UPDATE allow and that the caller may then see."""
    return sql.SQL("{} and {}").format(check(policies, "w"), using(policies, "r"))


def _combine(policies: Sequence[Policy], command: str, expression: Callable[[Policy], str | None]) -> sql.Composable:
    """As Postgres does: any permissive policy must allow, and no restrictive one may refuse; none at all refuses."""
    meant = [policy for policy in policies if policy.command in ("*", command)]
    allow = [_applies(policy, expression(policy)) for policy in meant if policy.permissive]
    refuse = [_refuses(policy, expression(policy)) for policy in meant if not policy.permissive]
    forbid = [sql.SQL("not {}").format(one) for one in refuse]
    allowed: sql.Composable = sql.SQL(" or ").join(allow) if allow else FALSE
    return sql.SQL(" and ").join([sql.SQL("({})").format(allowed), *forbid])


def _applies(policy: Policy, text: str | None) -> sql.Composable:
    condition = trusted(f"({text})") if text else TRUE
    return sql.SQL("({} and {})").format(_concerns(policy), condition) if policy.roles else condition


def _refuses(policy: Policy, text: str | None) -> sql.Composable:
    condition = trusted(f"({text})") if text else TRUE
    return sql.SQL("({} and {} is not true)").format(_concerns(policy), condition)


def _concerns(policy: Policy) -> sql.Composable:
    if not policy.roles:
        return TRUE
    member = sql.SQL("pg_catalog.pg_has_role(current_user, {}, 'usage')")
    return sql.SQL("({})").format(sql.SQL(" or ").join(member.format(sql.Literal(role)) for role in policy.roles))
