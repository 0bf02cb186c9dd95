"""Locks that are taken ahead are those that they are called, on the table alone or with its partitions."""

import psycopg
import pytest
from tests.fixtures.lake import Lake
from tests.fixtures.statements import rows, run

from frostline.catalog import locks
from frostline.catalog.locks import Lock
from frostline.model.names import Name

TABLE = """
create table public.parted (id int) partition by range (id);
create table public.parted_1 partition of public.parted for values from (0) to (10)
"""
HELD = """
select relation::regclass::text, mode from pg_locks
 where pid = pg_backend_pid() and relation in ('public.parted'::regclass, 'public.parted_1'::regclass) order by 1
"""


@pytest.mark.parametrize("lock", Lock)
def test_a_lock_is_the_one_that_it_is_called(lake: Lake, lock: Lock) -> None:
    run(lake.catalog, TABLE)
    mode = "".join(word.capitalize() for word in lock.name.split("_")) + "Lock"
    with lake.catalog.transaction():
        locks.take_only(lake.catalog, lock, Name("public", "parted"))
        assert rows(lake.catalog, HELD) == [("public.parted", mode)]
    with lake.catalog.transaction():
        locks.take(lake.catalog, lock, Name("public", "parted"))
        assert rows(lake.catalog, HELD) == [("public.parted", mode), ("public.parted_1", mode)]


def test_nowait_does_not_wait(lake: Lake) -> None:
    run(lake.catalog, TABLE)
    with lake.connect() as other, other.transaction(), lake.catalog.transaction():
        locks.take_only(other, Lock.ACCESS_SHARE, Name("public", "parted_1"))
        with pytest.raises(psycopg.errors.LockNotAvailable):
            locks.take(lake.catalog, Lock.ACCESS_EXCLUSIVE, Name("public", "parted"), nowait=True)
