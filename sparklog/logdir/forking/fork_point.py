"""Where a log is forked: a place in its ledger, and the log's state as of there.

A point is the ledger offset behind a record; the state is the fold of all before it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from sparklog.common import TopicPartition
from sparklog.errors import InvalidRequestError
from sparklog.fs import FileSystem
from sparklog.log.committed_batches import find_commit
from sparklog.log.timeline import find_abandoned
from sparklog.log.topic_names import INTERNAL
from sparklog.logdir.commit_log import LogDirCommits
from sparklog.logdir.ledger import fold, ledger_bases, replay
from sparklog.storage.ledger_records import CommitRecord, SnapshotRecord
from sparklog.storage.log_state import LogState, is_writer_of

Wanted = Mapping[str, Mapping[int, int]]
_ONE: Final = "say where to fork: by writer and batch, by time_ms, or by offsets"


@dataclass(frozen=True, slots=True)
class ForkPoint:
    """`offset`: of the ledger, behind the last record that counts; `state`, `time_ms`: as of it."""

    offset: int
    time_ms: int
    state: LogState


def find_point(
    session: LogDirCommits,
    *,
    writer: str | None,
    batch: int | None,
    time_ms: int | None,
    offsets: Wanted | None,
) -> ForkPoint:
    """Return the point that one of these names, in the ledger as the session knows it.

    Raises: InvalidRequestError: the ledger doesn't hold it, or not any more.
    """
    if [writer is None, time_ms is None, offsets is None].count(False) != 1:
        raise InvalidRequestError(_ONE)
    if (writer is None) != (batch is None):
        raise InvalidRequestError("writer and batch belong together: give both")
    if writer is not None and batch is not None:
        at = _of_batch(session, writer, batch)
    elif time_ms is not None:
        at = _newest(
            session, lambda state: state.time_ms <= time_ms, f"was written after {time_ms} ms"
        )
    else:
        at = _of_offsets(session, offsets or {})
    state = LogState()
    fold(session.fs, session.home, at, state=state, first=None)
    if state.abandoned is None:
        state.abandoned = find_abandoned(session, at)
    state.topics = {n: topic for n, topic in state.topics.items() if n not in INTERNAL}
    state.ends = {key: end for key, end in state.ends.items() if key.topic in state.topics}
    if writer is not None and batch is not None:
        _check_writers(state, writer, batch)
    return ForkPoint(at, state.time_ms, state)


def _of_batch(session: LogDirCommits, writer: str, batch: int) -> int:
    known = session.state.writers
    names = sorted(name for name in known if is_writer_of(name, writer))
    if not names:
        held = ", ".join(sorted(known)) or "none"
        raise InvalidRequestError(
            f"{writer} has committed nothing to {session.home}; its writers: {held}"
        )
    end = session.ledger.end
    found = find_commit(session, end, names, batch)
    if found is None and _begins_there(session, names, batch):
        return 1
    if found is None:
        last = max(known[name].batch for name in names)
        first = _first_batch(session.fs, session.home, end, names)
        raise InvalidRequestError(
            f"{writer} has no commit of batch {batch} in the ledger of {session.home} (it never "
            f"was, was taken back by a reset, or has expired); it is at batch {last}, the oldest "
            f"that the ledger holds is {'none' if first is None else first}"
        )
    return found[0] + 1


def _begins_there(session: LogDirCommits, names: list[str], batch: int) -> bool:
    """Tell whether this log is itself a fork to that batch, which was not taken back since."""
    if ledger_bases(session.fs, session.home)[0] or batch > max(
        session.state.writers[name].batch for name in names
    ):
        return False
    ((_, first),) = replay(session.fs, session.home, 0, 1)
    if not isinstance(first, SnapshotRecord) or first.fork is None:
        return False
    lasts = [first.writers[name].batch for name in names if name in first.writers]
    return max(lasts, default=-1) == batch


def _first_batch(fs: FileSystem, home: str, end: int, names: list[str]) -> int | None:
    for _, record in replay(fs, home, ledger_bases(fs, home)[0], end):
        if isinstance(record, CommitRecord) and record.writer in names:
            return record.batch
    return None


def _check_writers(state: LogState, writer: str, batch: int) -> None:
    """All sinks of one query must stand at the batch: another one may be ahead of the last."""
    ahead = {w: last.batch for w, last in state.writers.items() if is_writer_of(w, writer)}
    beyond = [name for name, reached in sorted(ahead.items()) if reached > batch]
    if beyond:
        raise InvalidRequestError(
            f"{beyond[0]} had committed batch {ahead[beyond[0]]} before another sink of {writer} "
            f"committed batch {batch}: there is no point at which both stood there; fork by the "
            "name of one writer, or by time_ms"
        )


def _of_offsets(session: LogDirCommits, offsets: Wanted) -> int:
    wanted = {
        TopicPartition(topic, p): end for topic, ends in offsets.items() for p, end in ends.items()
    }
    for topic, partition in wanted:
        session.partition_path(topic, partition)  # raises for one that isn't there

    def is_within(state: LogState) -> bool:
        return all(state.ends.get(key, 0) <= end for key, end in wanted.items())

    return _newest(session, is_within, f"goes beyond {dict(offsets)}")


def _newest(session: LogDirCommits, holds: Callable[[LogState], bool], why_not: str) -> int:
    """Return the newest point whose state `holds`; of states that only ever grow."""
    fs, home, end = session.fs, session.home, session.ledger.end
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
    raise InvalidRequestError(
        f"all that the ledger of {home} still holds {why_not}: there is nothing to fork"
    )
