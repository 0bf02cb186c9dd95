"""Where the tables of a REST catalog are: by their uuids, each for itself, and as of one moment.

docs/design/rest-nodes.md, "A cut". The catalog knows tables by their names, and a name may be given to another table.
"""

import threading
import time
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import requests
from pyiceberg.exceptions import ForbiddenError, NoSuchNamespaceError

from frostline.catalog.pointers import LakePointer
from frostline.errors import ConflictError, FrostlineError, UnavailableError
from frostline.lake import paths, rest, store
from frostline.lake.rest import Catalog, KeysRefused
from frostline.model import cuts

_ROUNDS = 50
"""Then the tables move too fast."""
_LOADERS = 8
_SEARCH_S = 10.0
"""How long a table that was looked for in vain is not looked for again."""
Identifier = tuple[str, ...]


@dataclass(frozen=True)
class Place:
    """A table as the catalog has it."""

    identifier: Identifier
    uuid: uuid.UUID
    folder: str
    metadata_location: str
    tag: str | None
    """With which the catalog can say that nothing has changed."""

    @property
    def id(self) -> int:
        """As foreign tables ask for it."""
        return self.uuid.int

    def is_inside(self, warehouse: str) -> bool:
        """Whether its files are in the warehouse, and so is the metadata that names them."""
        return all(paths.is_inside(each, warehouse) for each in (self.folder, self.metadata_location))

    def pointer(self) -> LakePointer:
        """The same as of a table of our own catalog. Nobody says who owns it, or where it was before."""
        namespace, table = ".".join(self.identifier[:-1]), self.identifier[-1]
        return LakePointer(
            self.id, namespace, table, str(self.uuid), "", self.folder, self.metadata_location, previous_location=None
        )


def _loaded(catalog: Catalog, identifier: Identifier, known: Place | None = None) -> Place | FrostlineError | None:
    """The table of that name; None when there is none. What is known already is asked for by its tag.

    An error that may concern this table only is given, and not raised.
    """
    name = ".".join(identifier)
    headers = {"If-None-Match": known.tag} if known is not None and known.tag else {}
    with rest.reaching(catalog.uri, f"load {name}"):
        response = catalog.get(f"{catalog.path_of(identifier)}?snapshots=refs", headers)
    match response.status_code:
        case 200:
            return _place(catalog, identifier, response)
        case 304 if known is not None:
            return known
        case 404:
            return None
        case 401 | 419:
            raise rest.refused_keys(catalog.uri)
        case 403:
            return rest.refused_keys(catalog.uri)
        case status:
            return rest.unavailable(catalog.uri, f"HTTP {status} for {name}")


def _place(catalog: Catalog, identifier: Identifier, response: requests.Response) -> Place:
    try:
        said = response.json()
        metadata, location = said["metadata"], str(said["metadata-location"])
        known = uuid.UUID(metadata["table-uuid"])
        return Place(identifier, known, str(metadata["location"]).rstrip("/"), location, response.headers.get("ETag"))
    except (ValueError, KeyError, TypeError, AttributeError):
        raise rest.unavailable(catalog.uri, f"what it says of {'.'.join(identifier)} cannot be understood") from None


def names(catalog: Catalog) -> list[Identifier]:
    """All tables of all namespaces. One that is dropped meanwhile has none, and one that we may not look into, too."""
    waiting: list[Identifier] = [()]
    seen, found = set[Identifier](), list[Identifier]()
    while waiting:
        namespace = waiting.pop()
        passed_over = (NoSuchNamespaceError, ForbiddenError) if namespace else (NoSuchNamespaceError,)
        with rest.reaching(catalog.uri, "list its tables"), suppress(*passed_over):
            inner = {tuple(name) for name in catalog.list_namespaces(namespace)} - seen
            waiting += inner
            seen |= inner
            if namespace:
                found += [tuple(name) for name in catalog.list_tables(namespace)]
    return found


@dataclass(frozen=True)
class Loaded:
    """Tables of a catalog."""

    places: Sequence[Place]
    """Of those that are there, each at a moment of its own."""
    refused: Mapping[Identifier, FrostlineError]
    """Those that the catalog lists and does not give, as others may have broken ones, or such as are not for us."""


def load_all(catalog: Catalog, identifiers: Sequence[Identifier]) -> Loaded:
    """The tables of these names. One that cannot be loaded keeps nobody from the others."""
    with ThreadPoolExecutor(_LOADERS) as pool:
        found = list(pool.map(partial(_loaded, catalog), identifiers))
    refused = {name: what for name, what in zip(identifiers, found, strict=True) if isinstance(what, FrostlineError)}
    return Loaded([place for place in found if isinstance(place, Place)], refused)


def _require_told(loaded: Loaded, *, is_complete: bool) -> None:
    """Raise why tables are missing that the catalog may have, or why it gives nothing at all."""
    for why in loaded.refused.values():
        if not loaded.places or (isinstance(why, UnavailableError) and not is_complete):
            raise why


def by_id(places: Iterable[Place]) -> dict[int, Place]:
    """The tables by their uuids, without those that have two names: a commit by the one is not seen by the other."""
    found, twice = dict[int, Place](), set[int]()
    for place in places:
        if found.setdefault(place.id, place).identifier != place.identifier:
            twice.add(place.id)
    return {number: place for number, place in found.items() if number not in twice}


class Tables:
    """The tables of one catalog that somebody wants to know of. For many threads."""

    def __init__(self, catalog: Catalog, warehouse: str) -> None:
        """A table whose files are not inside of the warehouse is not there."""
        self._catalog, self._warehouse = catalog, warehouse
        self._known = dict[int, Place]()
        self._missed = dict[int, float]()
        """When a table was looked for in vain."""
        self._lock, self._searching = threading.Lock(), threading.Lock()
        self._looks = self._looked = 0
        """At the whole catalog: how many have begun, and which one it is that gave this."""
        self._there, self._failure = Loaded((), {}), None
        self._pool = ThreadPoolExecutor(_LOADERS, thread_name_prefix="frostline-rest")

    def cut(self, wanted: Collection[int]) -> Mapping[int, LakePointer]:
        """Where these tables are, as of one moment after the call. Those that are not there are left out."""
        seen = list[Mapping[int, LakePointer]]()
        for _ in range(_ROUNDS):
            seen = [*seen, self.places(wanted)][-cuts.ROUNDS :]
            if len(wanted) < 2:  # whatever it was loaded as is one moment
                return seen[0]
            chosen = cuts.settled([_locations(each) for each in seen])
            if chosen is not None:
                return seen[chosen]
        raise ConflictError(
            f"could not serialize access: {len(wanted)} tables of catalog {self._catalog.uri!r} are committed to so "
            "fast that no moment of all of them could be seen",
            hint="run the transaction again; or let this node have fewer of them",
        )

    def places(self, wanted: Collection[int]) -> Mapping[int, LakePointer]:
        """Where each of them is, at a moment of its own after the call. One that we may not see is not there."""
        loaded = dict(zip(wanted, self._pool.map(self._load, wanted), strict=True))
        refused = [place for place in loaded.values() if isinstance(place, FrostlineError)]
        if refused and len(refused) == len(loaded):  # it may be the token
            raise refused[0]
        lost = [number for number, place in loaded.items() if place is None]
        seen = {number: place for number, place in loaded.items() if isinstance(place, Place)}
        if lost:
            seen.update(self._found_again(lost))
        return {number: place.pointer() for number, place in seen.items() if place.is_inside(self._warehouse)}

    def identifier(self, number: int) -> Identifier:
        """What the catalog has called it last."""
        with self._lock:
            return self._known[number].identifier

    def _load(self, number: int) -> Place | KeysRefused | None:
        """By the name that it had last; None when that is another table's by now, or nobody's."""
        with self._lock:
            known = self._known.get(number)
        if known is None:
            return None
        place = _loaded(self._catalog, known.identifier, known)
        if isinstance(place, KeysRefused):
            return place
        if isinstance(place, FrostlineError):
            raise place
        if place is None or place.id != number:
            return None
        with self._lock:
            self._known[number] = place
        return place

    def _found_again(self, lost: Sequence[int]) -> Mapping[int, Place]:
        """Tables whose names are not known, or not theirs any more. The whole catalog is looked through for them.

        Whoever waits while others look shares the next look with all who wait, its failure too.
        """
        with self._lock:
            wanted = self._looks + 1
        with self._searching:
            now = time.monotonic()
            if all(now - self._missed.get(number, -_SEARCH_S) < _SEARCH_S for number in lost):
                return {}
            if self._looked < wanted:
                self._look()
            if self._failure is not None:
                raise self._failure
            there = by_id(self._there.places)
            found = {number: there[number] for number in lost if number in there}
            _require_told(self._there, is_complete=len(found) == len(lost))
            self._missed = {number: now for number in lost if number not in found}
        with self._lock:
            self._known.update(found)
        return found

    def _look(self) -> None:
        with self._lock:
            self._looks += 1
        try:
            self._there, self._failure = load_all(self._catalog, names(self._catalog)), None
        except FrostlineError as error:
            self._failure = error
        self._looked = self._looks

    def require_store(self, wanted: Collection[int]) -> None:
        """Refuse to write while the files of these tables are not where the catalog says, as when it is not mounted."""
        missing = self._missing(wanted) and self._missing(wanted)  # a state may be deleted after it was replaced
        if missing:
            raise UnavailableError(
                f"{missing[0]} is not there, so nothing is written", hint="mount the warehouse, or correct where it is"
            )

    def _missing(self, wanted: Collection[int]) -> Sequence[str]:
        locations = _locations(self.places(wanted)).values()
        with store.reachable("look whether the tables' files are there"):
            return [location for location in locations if paths.stamp(location) is None]

    def close(self) -> None:
        """Give the connections back."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._catalog.close()


def _locations(pointers: Mapping[int, LakePointer]) -> cuts.Look:
    return {number: pointer.metadata_location for number, pointer in pointers.items()}
