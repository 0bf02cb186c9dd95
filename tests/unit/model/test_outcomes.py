"""What a catalog's answers mean."""

import pytest

from frostline.model import outcomes
from frostline.model.outcomes import Answer, Fate, Sighting, Trace, Verdict, answer


@pytest.mark.parametrize(
    ("status", "error_type", "means"),
    [
        (200, None, Answer.COMMITTED),
        (204, None, Answer.COMMITTED),
        (400, "BadRequestException", Answer.REFUSED),
        (401, None, Answer.FORBIDDEN),
        (403, None, Answer.FORBIDDEN),
        (404, "NoSuchTableException", Answer.NO_TABLE),
        (404, "NoSuchNamespaceException", Answer.NO_TABLE),
        (404, "NotFound", Answer.NO_ENDPOINT),
        (404, None, Answer.NO_ENDPOINT),
        (405, None, Answer.NO_ENDPOINT),
        (409, "CommitFailedException", Answer.CONFLICT),
        (419, None, Answer.FORBIDDEN),
        (422, None, Answer.REFUSED),
        (429, None, Answer.BUSY),
        (500, "CommitStateUnknownException", Answer.UNKNOWN),
        (501, None, Answer.NO_ENDPOINT),
        (502, None, Answer.UNKNOWN),
        (503, None, Answer.UNKNOWN),
        (504, None, Answer.UNKNOWN),
        (599, None, Answer.UNKNOWN),
        (202, None, Answer.UNKNOWN),
        (302, None, Answer.NO_ENDPOINT),
        (303, None, Answer.UNKNOWN),
        (308, None, Answer.NO_ENDPOINT),
        (304, None, Answer.REFUSED),
    ],
)
def test_a_status_means_what_may_have_happened(status: int, error_type: str | None, means: Answer) -> None:
    assert answer(status, error_type) is means


@pytest.mark.parametrize(
    ("held", "verdict"),
    [
        ({"a": True, "b": True}, Verdict.ALL),
        ({"a": False, "b": False}, Verdict.NONE),
        ({"a": True, "b": False}, Verdict.SOME),
        ({}, Verdict.ALL),
    ],
)
def test_what_the_tables_show_is_all_none_or_some(held: dict[str, bool], verdict: Verdict) -> None:
    assert Sighting.of(held).verdict is verdict


def test_the_words_name_the_tables_on_each_side() -> None:
    half = outcomes.unknown(Sighting(("a", "b"), ("c",)), "http://h", "HTTP 500")
    assert half == "a commit to catalog 'http://h' is half done (HTTP 500): a, b have it, c not"
    assert "none of its 2 tables has it so far" in outcomes.unknown(Sighting((), ("a", "b")), "http://h", "lost")
    assert "its table lacks it so far" in outcomes.unknown(Sighting((), ("a",)), "http://h", "lost")
    assert outcomes.named(tuple("abcd"), most=2) == "a, b and 2 more"


@pytest.mark.parametrize(
    ("traces", "means"),
    [
        ([Trace.HAS, Trace.HAS], Fate.HAPPENED),
        ([Trace.STANDS, Trace.STANDS], Fate.OPEN),
        ([Trace.HAS, Trace.STANDS], Fate.OPEN),
        ([Trace.HAS, Trace.UNCLEAR], Fate.OPEN),
        ([Trace.UNCLEAR], Fate.OPEN),
        ([Trace.PASSED, Trace.STANDS], Fate.NEVER),
        ([Trace.PASSED, Trace.UNCLEAR], Fate.NEVER),
        ([Trace.PASSED, Trace.HAS], Fate.TORN),
    ],
)
def test_what_the_tables_show_of_a_lost_commit_says_whether_it_may_be_done_again(
    traces: list[Trace], means: Fate
) -> None:
    assert outcomes.fate(traces) is means
