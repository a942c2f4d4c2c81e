"""Pauses grow, are drawn, and end."""

import pytest

from sparklog.errors import InvalidRequestError
from sparklog.tiered.object_store.backoff import Retry


class Flaky:
    """Fails so often, then returns the number of its call."""

    def __init__(self, failures: int, error: Exception | None = None) -> None:
        self.failures, self.calls, self.error = failures, 0, error or TimeoutError("later")

    def __call__(self) -> int:
        self.calls += 1
        if self.calls <= self.failures:
            raise self.error
        return self.calls


def test_pauses_double_up_to_the_longest():
    pauses: list[float] = []
    again: list[int] = []
    retry = Retry(attempts=7, first_ms=100, longest_ms=1000, sleep=pauses.append, draw=lambda: 1.0)
    assert retry.call(Flaky(6), lambda _: True, lambda: again.append(1)) == 7
    assert pauses == [100, 200, 400, 800, 1000, 1000]
    assert len(again) == 6


def test_pauses_are_drawn_from_nought():
    pauses: list[float] = []
    draws = iter([0.0, 0.5])
    retry = Retry(attempts=3, sleep=pauses.append, draw=lambda: next(draws))
    assert retry.call(Flaky(2), lambda _: True) == 3
    assert pauses == [0, 100]


def test_the_last_error_comes_as_it_is():
    flaky = Flaky(99)
    with pytest.raises(TimeoutError, match="later"):
        Retry(attempts=3, sleep=lambda _: None).call(flaky, lambda _: True)
    assert flaky.calls == 3


def test_what_does_not_pass_is_not_tried_again():
    flaky = Flaky(1, PermissionError("no"))
    with pytest.raises(PermissionError):
        Retry().call(flaky, lambda error: not isinstance(error, PermissionError))
    assert flaky.calls == 1


def test_at_least_one_attempt():
    with pytest.raises(InvalidRequestError, match="attempts=0"):
        Retry(attempts=0)
