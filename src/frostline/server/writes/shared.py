"""What all sessions of a lake server share of lake tables."""

from frostline.errors import UsageError
from frostline.server.writes.catalog import Catalog
from frostline.server.writes.catalogs import LakeCatalog
from frostline.server.writes.checks import Checker
from frostline.server.writes.committer import Committer
from frostline.server.writes.rest_catalog import RestCatalog
from frostline.settings import Settings


class Unguarded(UsageError):
    """Somebody has a foreign table, or the foreign server, who could ask for tables that are not for that role."""

    sqlstate = "42501"


class Lake:
    """What all sessions share of lake tables."""

    def __init__(
        self, dsn: str, place: str | None, own_dsn: str | None = None, rest_catalog: Settings | None = None
    ) -> None:
        """`dsn` is the catalog's database, `own_dsn` that of the Postgres whose statements come, if it is another.

        With a REST catalog, which these settings lead to, there is the second only, and `dsn` is that.
        """
        own = Catalog(dsn, "lake cuts", place)
        self._own = own if own_dsn in (None, dsn) else Catalog(own_dsn, "lake rights", None)
        self.catalog: LakeCatalog = own
        commits: LakeCatalog = Catalog(dsn, "lake commits", place)
        if rest_catalog is not None:
            self.catalog, commits = (RestCatalog(rest_catalog, self._own.attached) for _ in range(2))
        self.committer, self.dsn = Committer(commits), dsn
        self.checker, self._place = Checker(own_dsn or dsn), place

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
