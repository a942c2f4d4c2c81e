"""The point at which a log is forked: a position in its ledger, and the state there.

A point is the ledger offset after a record. The state is the fold of all earlier records.
"""

from collections.abc import Callable
from dataclasses import dataclass

from sparklog.log.fork_points import (
    ForkPointRequest,
    after_commit,
    check_writers,
    nothing_to_fork,
)
from sparklog.log.timeline import find_abandoned
from sparklog.logdir.commit_log import LogDirCommits
from sparklog.logdir.ledger import fold, ledger_bases, replay
from sparklog.storage.log_state import LogState


@dataclass(frozen=True, slots=True)
class ForkPoint:
    """A point in the ledger at which a log is forked.

    Attributes:
        offset: The ledger offset after the last record that the fork includes.
        time_ms: The time of that record.
        state: The log's state after that record.
    """

    offset: int
    time_ms: int
    state: LogState


def find_point(commits: LogDirCommits, wanted: ForkPointRequest) -> ForkPoint:
    """Return the point in the log's ledger that `wanted` describes by commit, time or offsets.

    Raises:
        InvalidRequestError: The ledger does not contain the point, or its records expired.
    """
    time_ms = wanted.time_ms
    if wanted.writer is not None:
        at = after_commit(commits, commits.ledger.end, commits.state.writers, wanted)
    elif time_ms is not None:
        at = _newest(
            commits, lambda state: state.time_ms <= time_ms, f"was written after {time_ms} ms"
        )
    else:
        at = _before_offsets(commits, wanted)
    state = LogState()
    fold(commits.fs, commits.home, at, state=state, first=None)
    if state.abandoned is None:
        state.abandoned = find_abandoned(commits, at)
    check_writers(state, wanted)
    return ForkPoint(at, state.time_ms, state)


def _before_offsets(commits: LogDirCommits, wanted: ForkPointRequest) -> int:
    ends = wanted.ends
    for topic, partition in ends:
        commits.partition_path(topic, partition)  # raises if the partition does not exist

    def is_within(state: LogState) -> bool:
        return all(state.ends.get(key, 0) <= end for key, end in ends.items())

    return _newest(commits, is_within, f"goes beyond {dict(wanted.offsets or {})}")


def _newest(commits: LogDirCommits, holds: Callable[[LogState], bool], why_not: str) -> int:
    """Return the newest point in the ledger at which the log's state satisfies `holds`.

    Args:
        commits: The log.
        holds: A condition that is true up to some record, and false after it.
        why_not: The reason in the error if no state satisfies the condition.

    Raises:
        InvalidRequestError: No available state satisfies the condition.
    """
    fs, home, end = commits.fs, commits.home, commits.ledger.end
    limit = end
    # Each segment starts with a snapshot, so the segments can be searched from the newest back
    # without reading the ledger from its beginning.
    for base in reversed([base for base in ledger_bases(fs, home) if base < end]):
        state, at = LogState(), None
        for offset, record in replay(fs, home, base, limit):
            state.apply(record)
            if not holds(state):
                break
            at = offset + 1
        if at is not None:
            return at
        limit = base
    raise nothing_to_fork(commits.home, why_not)
