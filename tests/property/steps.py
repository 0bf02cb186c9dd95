"""What is written in a life of `test_lifecycle`, and where a job can die in it."""

from hypothesis import strategies as st

from frostline.failpoints import Failpoint

INSERT = """insert into public.{t} ({listed}) select {present} from (
    select i as id, '{at}'::timestamptz + interval '1 h' * i as ts, 'late' as status, 0 as amount from generate_series(100, 106) i) r
 where r.id % {every} = 0"""
UPDATE = "update public.{t} set {changed} where {ts} >= '{at}' and {id} % {every} = 0"
DELETE = "delete from public.{t} where {ts} >= '{at}' and {ts} < '{next}' and {id} % {every} = 0"
FILL = "update public.{t} set {column} = {value} where {ts} >= '{at}' and {id} % {every} = 0"
MOVE = """update public.{t} set {id} = {id} + 1000, {ts} = {ts} + interval '{days} days'
 where {ts} >= '{at}' and {ts} < '{next}' and {id} % {every} = 0 and {id} < 1000"""
FILLED = {
    "text": "{id}", "smallint": "{id}", "int": "{id}", "bigint": "{id}", "numeric": "{id}", "numeric(12,2)": "{id}",
    "numeric(14,2)": "{id}", "real": "{id} / 10.0", "float8": "{id} / 10.0",
    "boolean": "{id} % 2 = 0", "uuid": "md5({id}::text)::uuid", "date": "{ts}", "bytea": "int8send({id})",
    "timestamptz": "{ts}", "timestamptz[]": "array[{ts}]", "public.rank": "(enum_range(null::public.rank))[1 + {id} % 3]",
    "public.rank[]": "array['high'::public.rank]", "public.spot": "row({id}, {ts}::text, null)",
}  # fmt: skip
"""By type, what a column is filled with."""

deaths = st.sampled_from(
    [
        ("archive", failpoint)
        for failpoint in (Failpoint.ARCHIVE_CAPTURED, Failpoint.ARCHIVE_STAGED, Failpoint.ARCHIVE_RAISED_BOUND)
    ]
    + [("archive", failpoint) for failpoint in (Failpoint.ARCHIVE_BEFORE_COMMIT, Failpoint.ARCHIVE_PUBLISHED)]
    + [
        ("archive", failpoint)
        for failpoint in (Failpoint.CLEAN_VERIFIED, Failpoint.CLEAN_BEFORE_COMMIT, Failpoint.CLEAN_EMPTIED)
    ]
    + [
        ("fold", failpoint)
        for failpoint in (Failpoint.FOLD_STARTED, Failpoint.FOLD_STAGED, Failpoint.FOLD_BEFORE_COMMIT)
    ]
    + [("fold", Failpoint.FOLD_PUBLISHED)]
    + [
        ("undo", failpoint)
        for failpoint in (Failpoint.UNDO_STAGED, Failpoint.UNDO_BEFORE_COMMIT, Failpoint.UNDO_PUBLISHED)
    ]
    + [
        ("thaw", failpoint)
        for failpoint in (Failpoint.THAW_FILLED, Failpoint.THAW_CAUGHT_UP, Failpoint.THAW_BEFORE_ATTACH)
    ]
    + [("thaw", failpoint) for failpoint in (Failpoint.THAW_ATTACHED, Failpoint.THAW_WAITED)]
    + [
        ("expire", failpoint)
        for failpoint in (Failpoint.EXPIRE_STAGED, Failpoint.EXPIRE_BEFORE_COMMIT, Failpoint.EXPIRE_PUBLISHED)
    ]
    + [("compact", failpoint) for failpoint in (Failpoint.COMPACT_STAGED, Failpoint.COMPACT_BEFORE_COMMIT)]
    + [("compact", Failpoint.COMPACT_PUBLISHED), ("retain", Failpoint.RETAIN_STAGED)]
    + [("retain", failpoint) for failpoint in (Failpoint.RETAIN_BEFORE_COMMIT, Failpoint.RETAIN_PUBLISHED)]
    + [("expire", Failpoint.EXPIRE_DELETED_ONE), ("sweep", Failpoint.SWEEP_DELETED_ONE)]
)
"""Jobs, and where they are killed."""
