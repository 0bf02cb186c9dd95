"""Who has to go when there is no more room for those who have not logged in."""

from frostline.server.listen import Door


class Clock:
    """Says what it is told."""

    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_the_one_who_has_stood_longest_goes() -> None:
    door = Door(room=3, fair_s=0)
    assert [door.enter(number, "a") for number in range(6)] == [None, None, None, 0, 1, 2]
    assert len(door) == 3


def test_a_crowd_from_one_address_turns_out_nobody_of_another() -> None:
    door = Door(room=10, fair_s=0)
    door.enter(1000, "good")
    assert {door.enter(number, "bad") for number in range(500)} == {None, *range(490 + 1)}
    assert door.leave(1000)


def test_whoever_was_turned_out_cannot_log_in_any_more() -> None:
    door = Door(room=1, fair_s=0)
    door.enter(1, "a")
    assert door.enter(2, "a") == 1
    assert not door.leave(1)
    assert door.leave(2)
    assert len(door) == 0


def test_newcomers_wait_until_the_one_who_goes_has_had_its_time() -> None:
    clock = Clock()
    door = Door(room=2, fair_s=0.5, clock=clock)
    door.enter(1, "a")
    assert door.pause_s() == 0
    door.enter(2, "a")
    assert door.pause_s() == 0.5
    clock.now_s += 0.3
    assert 0.19 < door.pause_s() < 0.21
    clock.now_s += 0.3
    assert door.pause_s() == 0


def test_there_is_room_again_when_somebody_leaves() -> None:
    door = Door(room=1, fair_s=9)
    door.enter(1, "a")
    assert door.pause_s() > 0
    door.leave(1)
    assert door.pause_s() == 0
    assert door.evict() is None
