import threading
from collections.abc import Callable

import pytest

from chat_core.event_bus import EventBus


def test_every_reader_of_the_run_is_woken_and_no_other() -> None:
    bus = EventBus()
    woken: list[str] = []
    bus.subscribe("a", lambda: woken.append("a1"))
    bus.subscribe("a", lambda: woken.append("a2"))
    bus.subscribe("b", lambda: woken.append("b"))
    bus.publish("a")
    assert woken == ["a1", "a2"]


def test_the_same_wake_subscribed_twice_is_two_readers() -> None:
    bus = EventBus()
    woken: list[int] = []

    def wake() -> None:
        woken.append(1)

    first = bus.subscribe("a", wake)
    bus.subscribe("a", wake)
    first()
    bus.publish("a")
    assert woken == [1]


def test_a_reader_that_fails_does_not_hurt_the_others_or_the_publisher(caplog: pytest.LogCaptureFixture) -> None:
    bus = EventBus()
    woken: list[str] = []

    def broken() -> None:
        raise RuntimeError("reader is gone")

    bus.subscribe("a", broken)
    bus.subscribe("a", lambda: woken.append("second"))
    bus.publish("a")
    assert woken == ["second"]
    assert "could not be woken" in caplog.text


def test_nothing_is_left_when_the_readers_have_gone() -> None:
    bus = EventBus()
    leave = [bus.subscribe(f"run{number % 3}", lambda: None) for number in range(9)]
    with bus.watch("run0"):
        assert bus.reader_count("run0") == 4
    for unsubscribe in leave:
        unsubscribe()
        unsubscribe()
    assert bus.reader_count() == 0
    assert bus._wakes == {}


def test_a_reader_may_leave_from_within_its_own_wake() -> None:
    bus = EventBus()
    woken: list[str] = []
    leave: list[Callable[[], None]] = []

    def once() -> None:
        woken.append("once")
        leave[0]()

    leave.append(bus.subscribe("a", once))
    bus.subscribe("a", lambda: woken.append("other"))
    bus.publish("a")
    bus.publish("a")
    assert woken == ["once", "other", "other"]


def test_a_publication_between_reading_and_waiting_is_not_lost() -> None:
    bus = EventBus()
    with bus.watch("a") as watch:
        bus.publish("a")
        assert watch.wait(0)
        assert not watch.wait(0)


def test_waiting_without_a_publication_ends_with_the_time() -> None:
    bus = EventBus()
    assert not bus.wait("a", 0.01)
    assert bus.reader_count() == 0


def test_a_waiting_thread_reads_everything_that_many_writers_publish() -> None:
    bus = EventBus()
    stored: list[int] = []
    lock = threading.Lock()
    seen: list[int] = []
    total = 4 * 250

    def write(start: int) -> None:
        for number in range(start, start + 250):
            with lock:
                stored.append(number)
            bus.publish("a")

    def read() -> None:
        with bus.watch("a") as watch:
            while len(seen) < total:
                with lock:
                    seen.extend(stored[len(seen) :])
                if len(seen) < total and not watch.wait(5):
                    return

    reader = threading.Thread(target=read)
    reader.start()
    writers = [threading.Thread(target=write, args=(start,)) for start in range(0, total, 250)]
    for writer in writers:
        writer.start()
    for thread in (*writers, reader):
        thread.join(10)
    assert sorted(seen) == list(range(total))
    assert bus.reader_count() == 0
