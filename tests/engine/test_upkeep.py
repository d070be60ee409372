"""The thread for what must be done now and then."""

import threading

from chat_core.errors import StoreUnavailable
from chat_core.upkeep import Duty, Upkeep


def test_a_duty_that_fails_is_tried_again_and_keeps_no_other_from_its_turn() -> None:
    failures, others = [], threading.Event()
    again = threading.Event()

    def fails(_closing: threading.Event) -> None:
        failures.append(1)
        if len(failures) == 1:
            raise StoreUnavailable("full")
        if len(failures) == 2:
            raise ValueError("a mistake")
        again.set()

    upkeep = Upkeep([Duty("fails", 0.01, 0.0, fails), Duty("other", 60, 0.0, lambda _: others.set())])
    upkeep.start()
    try:
        assert others.wait(5)
        assert again.wait(5)
    finally:
        upkeep.close()


def test_closing_tells_the_duty_at_work_and_waits_for_it() -> None:
    inside, left = threading.Event(), threading.Event()

    def long(closing: threading.Event) -> None:
        inside.set()
        assert closing.wait(5)
        left.set()

    upkeep = Upkeep([Duty("long", 60, 0.0, long)])
    upkeep.start()
    assert inside.wait(5)
    upkeep.close()
    assert left.is_set()


def test_nothing_is_done_before_its_time() -> None:
    done = threading.Event()
    upkeep = Upkeep([Duty("later", 60, 60, lambda _: done.set())])
    upkeep.start()
    upkeep.close()
    assert not done.is_set()
