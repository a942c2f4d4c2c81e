"""The point at which a log is forked: a position in its ledger, and the state there.

A point is the ledger offset after a record. The state is the fold of all earlier records.
"""

from collections.abc import Callable
from dataclasses import dataclass

from sparklog.fs import FileSystem
from sparklog.log.fork_points import (
    ForkPointRequest,
    check_writers,
    no_commit,
    no_writer,
    nothing_to_fork,
)
from sparklog.log.timeline import find_abandoned, find_commit
from sparklog.logdir.commit_log import LogDirCommits
from sparklog.logdir.ledger import fold, ledger_bases, replay
from sparklog.storage.ledger_records import CommitRecord, SnapshotRecord
from sparklog.storage.log_state import LogState, is_writer_of


@dataclass(frozen=True, slots=True)
class ForkPoint:
    """A point in the ledger, after the last included record, and the state and time there."""

    offset: int
    time_ms: int
    state: LogState


def find_point(commits: LogDirCommits, wanted: ForkPointRequest) -> ForkPoint:
    """Return the fork point for a commit, a time, or offsets, in the log's ledger.

    Raises: InvalidRequestError: the ledger does not contain it, or its records expired.
    """
    writer, batch, time_ms = wanted.writer, wanted.batch, wanted.time_ms
    if writer is not None and batch is not None:
        at = _after_batch(commits, writer, batch)
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
    if writer is not None and batch is not None:
        check_writers(state, writer, batch)
    return ForkPoint(at, state.time_ms, state)


def _after_batch(commits: LogDirCommits, writer: str, batch: int) -> int:
    known = commits.state.writers
    names = sorted(name for name in known if is_writer_of(name, writer))
    if not names:
        raise no_writer(commits.home, writer, known)
    end = commits.ledger.end
    found = find_commit(commits, end, names, batch)
    if found is None and _was_forked_at(commits, names, batch):
        return 1
    if found is None:
        last = max(known[name].batch for name in names)
        first = _first_batch(commits.fs, commits.home, end, names)
        raise no_commit(commits.home, writer, batch, last=last, first=first)
    return found[0] + 1


def _was_forked_at(commits: LogDirCommits, names: list[str], batch: int) -> bool:
    """Return True if this log was created by a fork at `batch`, and not reset below `batch`."""
    if ledger_bases(commits.fs, commits.home)[0] or batch > max(
        commits.state.writers[name].batch for name in names
    ):
        return False
    ((_, first),) = replay(commits.fs, commits.home, 0, 1)
    if not isinstance(first, SnapshotRecord) or first.fork is None:
        return False
    lasts = [first.writers[name].batch for name in names if name in first.writers]
    return max(lasts, default=-1) == batch


def _first_batch(fs: FileSystem, home: str, end: int, names: list[str]) -> int | None:
    for _, record in replay(fs, home, ledger_bases(fs, home)[0], end):
        if isinstance(record, CommitRecord) and record.writer in names:
            return record.batch
    return None


def _before_offsets(commits: LogDirCommits, wanted: ForkPointRequest) -> int:
    ends = wanted.ends
    for topic, partition in ends:
        commits.partition_path(topic, partition)  # raises if the partition does not exist

    def is_within(state: LogState) -> bool:
        return all(state.ends.get(key, 0) <= end for key, end in ends.items())

    return _newest(commits, is_within, f"goes beyond {dict(wanted.offsets or {})}")


def _newest(commits: LogDirCommits, holds: Callable[[LogState], bool], why_not: str) -> int:
    """Return the newest point with a state that satisfies `holds`, which must be monotonic."""
    fs, home, end = commits.fs, commits.home, commits.ledger.end
    limit = end
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
