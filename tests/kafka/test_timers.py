"""Deadlines by a manual clock."""

from sparklog.clock import ManualClock
from sparklog.kafka.timers import Timers


def test_actions_come_in_the_order_of_their_deadlines_and_once() -> None:
    clock, told = ManualClock(0), []
    timers = Timers(clock, lambda: None)
    for name, delay_ms in (("b", 20), ("a", 10), ("c", 30)):
        timers.schedule(name, delay_ms, lambda name=name: told.append(name))
    assert timers.next_ms == 10
    clock.advance(20)
    timers.expire()
    timers.expire()
    assert told == ["a", "b"]
    assert timers.next_ms == 30


def test_what_is_scheduled_again_comes_at_its_new_time_alone() -> None:
    clock, told = ManualClock(0), []
    timers = Timers(clock, lambda: None)
    timers.schedule("later", 10, lambda: told.append("old"))
    timers.schedule("later", 30, lambda: told.append("later"))
    timers.schedule("sooner", 30, lambda: told.append("old"))
    timers.schedule("sooner", 5, lambda: told.append("sooner"))
    timers.schedule("never", 1, lambda: told.append("old"))
    timers.cancel("never")
    timers.cancel("never")
    for _ in range(40):
        clock.advance(1)
        timers.expire()
    assert told == ["sooner", "later"]
    assert timers.next_ms is None


def test_who_waits_for_the_first_is_told_of_an_earlier_one() -> None:
    clock, armed = ManualClock(0), []
    timers = Timers(clock, lambda: armed.append(timers.next_ms))
    timers.schedule("a", 20, print)
    timers.schedule("b", 30, print)
    timers.schedule("c", 10, print)
    assert armed == [20, 10]


def test_deadlines_that_come_and_go_take_no_memory() -> None:
    clock = ManualClock(0)
    timers = Timers(clock, lambda: None)
    for n in range(20_000):
        timers.schedule(n, 10_000, print)
        timers.cancel(n)
    assert len(timers._heap) < 3_000
