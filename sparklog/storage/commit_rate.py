"""How regularly a reader or writer commits: first commit, longest pause, progress over time.

A reader's file contains its commit rate, so a single read of the file shows whether the reader
keeps up, how fast it reads, and whether it has stopped, compared with its usual pauses. The data
stay small however long the reader runs: old points are farther apart.
Source: the sliding window of offset commits by which Burrow (LinkedIn) evaluates Kafka's consumers.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Self

BREAK_MS: Final = 30 * 60_000
"""A longer pause ends a run; the next commit starts a new run."""
_NEAR_MS: Final = 10_000  # closer points are merged
_LATE_MS: Final = 10 * 60_000  # the window in which speed is measured
_POINTS_MAX: Final = 32


class RatePoint(NamedTuple):
    """A commit in a commit rate.

    Attributes:
        time_ms: The time of the commit.
        partitions: The number of partitions with a position.
        total: The sum of these positions.
    """

    time_ms: int
    partitions: int
    total: int


@dataclass(frozen=True, slots=True)
class CommitRate:
    """How regularly a reader or writer has committed since `since_ms`.

    A long pause or a step back starts a new rate.

    Attributes:
        since_ms: The time of the first commit.
        longest_ms: The longest pause between two commits so far.
        points: Some of the commits, ascending by time. The last point is the last commit.
    """

    since_ms: int
    longest_ms: int = 0
    points: tuple[RatePoint, ...] = ()

    @property
    def last_ms(self) -> int:
        return self.points[-1].time_ms if self.points else self.since_ms

    def after_commit(self, point: RatePoint) -> "CommitRate":
        """Return the rate after a commit.

        A long pause before the commit, or lower positions than at the last commit, start a new
        rate.
        """
        last = self.points[-1] if self.points else None
        # A commit with an earlier time than the last one would count as a negative pause.
        if last is None or point.time_ms < last.time_ms:
            return CommitRate(point.time_ms, 0, (point,))
        pause = point.time_ms - last.time_ms
        # A step back is a reset of the positions. Speed and pauses of before would mislead.
        if pause > BREAK_MS or (point.partitions == last.partitions and point.total < last.total):
            return CommitRate(point.time_ms, 0, (point,))
        return CommitRate(
            self.since_ms, max(self.longest_ms, pause), _thinned((*self.points, point))
        )

    def speed(self) -> tuple[float, int] | None:
        """Return the recent rate as (offsets per ms, measured over ms), or None if it is unknown.

        The rate is unknown until the points span 10 seconds. Uses only points with as many
        partitions as the last point. If commits are rarer than the window, uses the last two
        points.
        """
        *earlier, last = self.points or (RatePoint(self.since_ms, 0, 0),)
        # A partition that the reader begins to read adds all of its position to the sum.
        earlier = [p for p in earlier if p.partitions == last.partitions]
        if not earlier:
            return None
        first = next((p for p in earlier if last.time_ms - p.time_ms <= _LATE_MS), earlier[-1])
        span = last.time_ms - first.time_ms
        return None if span < _NEAR_MS else ((last.total - first.total) / span, span)

    def to_json(self) -> dict[str, Any]:
        """Return the stored form."""
        points = [list(point) for point in self.points]
        return {"since": self.since_ms, "longest": self.longest_ms, "points": points}

    @classmethod
    def from_json(cls, content: Any) -> Self | None:
        """Rebuild a rate from the stored form.

        A malformed form gives None, because the rate is only a hint.
        """
        try:
            points = tuple(RatePoint(*map(int, point)) for point in content["points"])
            return cls(int(content["since"]), int(content["longest"]), points)
        except (KeyError, TypeError, ValueError):
            return None


def _thinned(points: Sequence[RatePoint]) -> tuple[RatePoint, ...]:
    """Return the points without some that are close together; more of the older ones are dropped.

    The remaining points are about as far apart as they are old.
    """
    kept, now_ms = list(points), points[-1].time_ms
    at = len(kept) - 2
    while at > 0:
        newer, older = kept[at + 1], kept[at - 1]
        if newer.time_ms - older.time_ms <= max(_NEAR_MS, now_ms - newer.time_ms):
            del kept[at]
        at -= 1
    return tuple(kept[-_POINTS_MAX:])
