"""How many cold rows a second come through the relation, compared with postgres_fdw on a Postgres heap?

One cold month of the table, half a million rows of ten columns (times the scale). In turn with the relation, Postgres reads the same rows of a
heap copy through a foreign table of postgres_fdw, on the same machine, with as many rows a fetch. Either way all ten columns become a row
in the backend that asked, which counts them. Both were read once before.
"""

import time
from collections.abc import Iterator

from psycopg.conninfo import conninfo_to_dict

from benchmarks.question import Measure, Question
from benchmarks.rig import cold, data
from benchmarks.sample import Sample
from benchmarks.world import Lab, World

ROUNDS = 5
QUESTIONS = (Question("cold rows through the relation", "relation", Measure.SPEED, 0.8, "postgres_fdw to a heap copy"),)
_COPY = """
create server copy foreign data wrapper postgres_fdw options (host '{host}', port '{port}', dbname '{dbname}', fetch_size '{fetch_size}');
create user mapping for current_user server copy options (user '{user}', password '{password}');
create schema copy;
import foreign schema public limit to (plain) from server copy into copy"""


def measure(lab: Lab, scale: float) -> Iterator[Sample]:
    """Both in turn, after one reading of each."""
    with lab.world(data.archived) as world:
        address = conninfo_to_dict(world.settings.dsn)
        world.run(_COPY.format(**address, fetch_size=cold.fetch_size(world)))
        month = data.rows(scale) // data.MONTHS + 1
        condition = cold.between(world, 3 * month, 4 * month, scale)
        for number in range(ROUNDS + 1):
            for sample in (
                _read(world, "postgres_fdw to a heap copy", "copy.plain", condition),
                _read(world, "relation", "public.events", condition),
            ):
                if number > 0:
                    yield sample


def _read(world: World, what: str, source: str, condition: str) -> Sample:
    start = time.perf_counter()
    ((rows,),) = world.ask(cold.moved(source, condition))
    seconds = time.perf_counter() - start
    ((expected,),) = world.ask(f"select count(*) from public.plain where {condition}")
    assert rows == expected
    return Sample(what, seconds, int(str(rows)))
