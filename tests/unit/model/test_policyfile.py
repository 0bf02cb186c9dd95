"""Policies of many tables as one document."""

from typing import Any

import pytest
from tests.fixtures.lake_tables import events as events_table

from frostline.model.names import Name
from frostline.model.policy import ExpireBy, ForeignKeys, Mode, Policy
from frostline.model.policyfile import BadDocument, Entry, document, entries


def test_what_was_written_is_read_back() -> None:
    policy = Policy("3 mons", "2 days", "10 years", "1 mon", 7, ExpireBy.DETACH, 9, "1 hour", "3 days", 1 << 20)
    first, other = (
        events_table(policy=policy),
        events_table(name=Name("My Schema", "b"), mode=Mode.PARTITION, policy=Policy()),
    )
    assert entries(document([first, other])) == [
        Entry(first.name, Mode.TIERED, "month", policy, foreign_keys=ForeignKeys.IGNORE),
        Entry(other.name, Mode.PARTITION, "month", Policy()),
    ]


def test_what_is_left_out_has_its_default_and_a_bare_number_is_a_period() -> None:
    read = entries({"version": 1, "tables": {"events": {"hot_period": 500, "retention_period": None}}})
    assert read == [Entry(Name("public", "events"), Mode.TIERED, None, Policy("500"))]


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        (None, "not a document"),
        ([], "not a document"),
        ({"tables": {}}, "version None is not 1"),
        ({"version": 2, "tables": {}}, "version 2 is not 1"),
        ({"version": 1}, "`tables` is not a mapping"),
        ({"version": 1, "tables": []}, "`tables` is not a mapping"),
        ({"version": 1, "tables": {}, "more": 1}, "unknown key 'more'"),
        ({"version": 1, "tables": {"a.b.c": {}}}, "a.b.c: not a table name: 'a.b.c'"),
        ({"version": 1, "tables": {"a": None}}, "a: not a mapping"),
        ({"version": 1, "tables": {"a": {"hot": "1 day"}}}, "a: unknown policy 'hot'"),
        ({"version": 1, "tables": {"a": {"premake": "4"}}}, "a: premake '4' is not a number"),
        ({"version": 1, "tables": {"a": {"premake": True}}}, "a: premake True is not a number"),
        ({"version": 1, "tables": {"a": {"grace_period": 5}}}, "a: grace_period 5 is not a text"),
        ({"version": 1, "tables": {"a": {"mode": "frozen"}}}, "a: mode 'frozen' is not one of tiered, partition"),
        ({"version": 1, "tables": {"a": {"expire_by": "fire"}}}, "a: expire_by 'fire' is not one of drop, detach"),
        ({"version": 1, "tables": {"a": {"foreign_keys": "yes"}}}, "a: foreign_keys 'yes' is not one of hold, ignore"),
    ],
)
def test_a_wrong_document_is_refused_and_says_where(wrong: Any, complaint: str) -> None:
    with pytest.raises(BadDocument) as refused:
        entries(wrong)
    assert complaint in str(refused.value)
