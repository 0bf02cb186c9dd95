"""What all sessions of a lake server share of lake tables."""

from frostline.errors import UsageError
from frostline.server.writes.catalog import Catalog
from frostline.server.writes.checks import Checker
from frostline.server.writes.committer import Committer


class Unguarded(UsageError):
    """Somebody has a foreign table, or the foreign server, who could ask for tables that are not for that role."""

    sqlstate = "42501"


class Lake:
    """What all sessions share of lake tables."""

    def __init__(self, dsn: str, place: str | None, own_dsn: str | None = None) -> None:
        """`dsn` is the catalog's database, `own_dsn` that of the Postgres whose statements come, if it is another."""
        self.catalog, self.committer = Catalog(dsn, "lake cuts", place), Committer(Catalog(dsn, "lake commits", place))
        self.dsn = dsn
        self.checker, self._place = Checker(own_dsn or dsn), place
        self._own = self.catalog if own_dsn in (None, dsn) else Catalog(str(own_dsn), "lake rights", None)

    @property
    def place(self) -> str:
        """The warehouse."""
        if self._place is None:
            raise UsageError("this lake server has no warehouse", hint="set FROSTLINE_WAREHOUSE of frostline serve")
        return self._place

    def require_rights(self) -> None:
        """Refuse to serve lake tables while Postgres cannot keep roles apart. For each table of a transaction anew."""
        strangers = self._own.strangers()
        if strangers:
            raise Unguarded(f"{strangers[0][0]}, and could have any lake table with it", hint=strangers[0][1])

    def close(self) -> None:
        """Give the connections back."""
        self.catalog.close()
        self._own.close()
        self.committer.close()
        self.checker.close()
