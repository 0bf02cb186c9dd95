"""Messages to bytes."""

from frostline.server.protocol import backend
from frostline.server.protocol.backend import ResultColumn


def test_an_error_carries_state_message_and_hint_in_one_line() -> None:
    expected = b"SERROR\0VERROR\0C58030\0Mcannot read x\0Hfrostline verify\0\0"
    assert (
        backend.error("58030", "cannot\nread x", "frostline verify")
        == b"E" + (len(expected) + 4).to_bytes(4) + expected
    )


def test_a_null_byte_cannot_break_a_message() -> None:
    assert backend.command_complete("SEL\0ECT") == b"C\0\0\0\x0bSELECT\0"


def test_row_descriptions() -> None:
    described = backend.row_description([ResultColumn("é", 20)])
    assert described == b"T\0\0\0\x1b\0\x01\xc3\xa9\0" + b"\0" * 6 + b"\0\0\0\x14" + b"\xff" * 6 + b"\0\0"


def test_ready_says_the_state_of_the_transaction() -> None:
    assert backend.ready("T") == b"Z\0\0\0\x05T"


def test_authentication_offers_its_mechanisms() -> None:
    assert backend.sasl(["SCRAM-SHA-256"]) == b"R\0\0\0\x17\0\0\0\x0aSCRAM-SHA-256\0\0"
