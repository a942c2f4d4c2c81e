"""Retries of a read while segments move: for as long as they do, and a second more."""

from types import SimpleNamespace
from typing import Any

import pytest

from sparklog.log import read_retry
from sparklog.log.read_retry import PartitionRead, StaleReadRetries
from sparklog.storage.segments import SegmentMetadata


class Moving:
    """A view of one partition whose segments are those that a test says."""

    def __init__(self, *wheres: str) -> None:
        self.wheres = list(wheres)

    def of_partition(self, *_: object) -> Any:
        found = [
            SegmentMetadata(10 * n, 10 * (n + 1), 1, None, False, where)
            for n, where in enumerate(self.wheres)
        ]
        return SimpleNamespace(segments=SimpleNamespace(metadata=lambda: found))


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three tries in place of a second's."""
    monkeypatch.setattr(read_retry, "stale_read_attempts", lambda: iter(range(3)))


def tried(view: Any, tries: StaleReadRetries, at: int = 0, end: int = 10) -> int:
    """How often in a row it may go on; 9 at most."""
    read = PartitionRead(view, "t", 0, at, end)
    return next((n for n in range(9) if not tries.should_retry(read)), 9)


def test_a_read_is_given_up_where_nothing_moves() -> None:
    assert tried(Moving("a"), StaleReadRetries()) == 3


def test_a_slow_reader_goes_on_as_long_as_each_look_finds_other_segments() -> None:
    view, tries = Moving("a"), StaleReadRetries()
    for merge in range(50):
        view.wheres[0] = f"merged {merge}"
        assert tries.should_retry(PartitionRead(view, "t", 0, 0, 10))
    assert tried(view, tries) == 2


def test_what_moves_elsewhere_does_not_count() -> None:
    """Segments roll behind what is read, for ever: damage is told all the same."""
    view, tries = Moving("damaged", "b"), StaleReadRetries()
    for roll in range(3):
        assert tries.should_retry(PartitionRead(view, "t", 0, 0, 10))
        view.wheres.append(f"rolled {roll}")
    assert not tries.should_retry(PartitionRead(view, "t", 0, 0, 10))
