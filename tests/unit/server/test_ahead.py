"""What is made before it is asked for comes once, in order, and no further than is allowed."""

import threading
from collections.abc import Iterator

import pytest

from frostline.server.ahead import Ahead


def idle() -> None:
    """Wait until no thread makes anything."""
    for thread in threading.enumerate():
        if thread.name == "frostline-lake-ahead":
            thread.join(timeout=60)
            assert not thread.is_alive()


def numbers(last: int, made: list[int]) -> Iterator[int]:
    for number in range(1, last + 1):
        made.append(number)
        yield number


@pytest.mark.parametrize("most", [1, 2, 5, 1000])
def test_all_come_once_and_in_order(most: int) -> None:
    made: list[int] = []
    coming = numbers(300, made)
    assert list(Ahead(lambda: next(coming, None), most)) == list(range(1, 301))


def test_so_many_are_there_before_they_are_asked_for() -> None:
    made: list[int] = []
    coming = numbers(100, made)
    ahead = iter(Ahead(lambda: next(coming, None), 2))
    assert next(ahead) == 1
    idle()
    assert made == [1, 2, 3]
    assert [next(ahead), next(ahead)] == [2, 3]
    idle()
    assert made == [1, 2, 3, 4, 5]


def test_an_error_comes_after_what_was_made_before_it() -> None:
    coming = iter([1, 2, 3])

    def produce() -> int:
        try:
            return next(coming)
        except StopIteration:
            raise ValueError("no more") from None

    ahead = iter(Ahead(produce, 5))
    assert [next(ahead) for _ in range(3)] == [1, 2, 3]
    with pytest.raises(ValueError, match="no more"):
        next(ahead)


def test_nothing_is_made_after_the_end() -> None:
    asked = list[None]()
    ahead: Ahead[int] = Ahead(lambda: asked.append(None), 3)
    assert list(ahead) == list(ahead) == []
    assert len(asked) == 1


def test_closing_waits_for_what_is_being_made_and_makes_no_more() -> None:
    began, may_end, made = threading.Event(), threading.Event(), list[int]()

    def produce() -> int:
        if made:
            began.set()
            assert may_end.wait(60)
        made.append(0)
        return 0

    ahead = Ahead(produce, 5)
    assert next(iter(ahead)) == 0
    assert began.wait(60)
    closing = threading.Thread(target=ahead.close)
    closing.start()
    closing.join(0.05)
    assert closing.is_alive()
    may_end.set()
    closing.join(60)
    assert not closing.is_alive()
    assert made == [0, 0]
