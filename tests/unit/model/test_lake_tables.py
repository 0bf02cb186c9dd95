"""What a foreign table calls the lake table that it asks for."""

import uuid

import pytest

from frostline.model.lake_tables import REMOTE, RemoteLakeTable


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (7, "lake_7"),
        ((1 << 63) - 1, "lake_9223372036854775807"),
        (uuid.UUID("0123abcd-4567-4890-8bcd-0123456789ef").int, "lake_0123abcd456748908bcd0123456789ef"),
        (uuid.UUID("12345678-1234-4678-9234-567812345678").int, "lake_12345678123446789234567812345678"),
    ],
    ids=["number", "largest number", "uuid", "uuid of decimal digits"],
)
def test_a_lake_table_is_asked_for_by_its_number_or_its_uuid(number: int, text: str) -> None:
    assert str(RemoteLakeTable(number)) == text
    assert RemoteLakeTable.find(text) == RemoteLakeTable(number)
    assert REMOTE.search(f'select * from schema_0.{text} where "n" = 1')


@pytest.mark.parametrize("text", ["lake_", "lake_0123abcd", "lake_12345678901234567890", "lake_7x", "1[,5)", "Lake_7"])
def test_any_other_text_is_no_lake_table(text: str) -> None:
    assert RemoteLakeTable.find(text) is None
