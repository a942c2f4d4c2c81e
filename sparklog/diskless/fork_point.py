"""Finds the ledger entry after which a log in a bucket is forked, and the state there."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from sparklog.common import TopicPartition
from sparklog.diskless.entries import Entry, EntryRecord, ImportRecord
from sparklog.diskless.ledger import WINDOW, EntryReader, StoreLedger
from sparklog.diskless.state import DisklessState
from sparklog.errors import InvalidRequestError, UnknownTopicError
from sparklog.log.fork_points import (
    ForkPointRequest,
    after_commit,
    check_writers,
    nothing_to_fork,
)
from sparklog.storage.ledger_records import (
    AppendRecord,
    ResetRecord,
    SnapshotRecord,
    TopicRecord,
)


@dataclass(frozen=True, slots=True)
class ForkPoint:
    """The point of a fork: the number of included entries, and the state after the last of them."""

    count: int
    state: DisklessState


def find_point(
    entries: EntryReader,
    ledger: StoreLedger,
    now: DisklessState,
    wanted: ForkPointRequest,
    *,
    older: Callable[[], Iterable[DisklessState]] = lambda: (),
) -> ForkPoint:
    """Return the requested point of the ledger up to `now`.

    Cost: a GET per entry from a state in the store, or the beginning of the ledger, to the point.
        For a batch also a GET per later commit of the writer, for a time a few more.

    Args:
        older: Returns the states in the store, newest first.

    Raises:
        InvalidRequestError: The ledger does not contain the point.
        UnknownTopicError: A topic or partition does not exist.
        DataCorruptionError: An object is damaged.
        StorageUnavailableError: The store does not answer, or refuses the request.
    """
    first = _begin(entries, now.next_number)
    if wanted.offsets is not None:
        point = _within(entries, now, wanted, first, older)
    else:
        if wanted.writer is not None:
            count = after_commit(ledger, now.next_number, now.log.writers, wanted)
            count = max(count, first)  # a fork's first entries belong together
        else:
            assert wanted.time_ms is not None
            count = _of_time(entries, now.next_number, wanted.time_ms)
            if count < max(first, 1):
                raise nothing_to_fork(entries.store.url, f"was written after {wanted.time_ms} ms")
        point = ForkPoint(count, _state_at(entries, count, older))
    check_writers(point.state.log, wanted)
    return point


def _begin(entries: EntryReader, end: int) -> int:
    """Return how many entries imported the log's initial contents; 0 for a log that began empty."""
    for number, entry in entries_between(entries, 0, end, window=2):
        if not isinstance(entry.record, SnapshotRecord | ResetRecord | ImportRecord):
            return number
        if number == 0 and not isinstance(entry.record, SnapshotRecord):
            return 0
    return end


def entries_between(
    entries: EntryReader, first: int, end: int, *, window: int = WINDOW
) -> Iterator[tuple[int, Entry]]:
    """Yield (number, entry) for first <= number < end.

    Requests `window` entries at first, then twice as many each time, up to WINDOW.
    """
    while first < end:
        numbers = range(first, min(first + window, end))
        yield from zip(numbers, entries.known(numbers), strict=True)
        first, window = numbers.stop, min(2 * window, WINDOW)


def _of_time(entries: EntryReader, end: int, time_ms: int) -> int:
    """Return the number of entries with a time up to `time_ms`."""
    # Bisection works, because the times of entries never decrease.
    low, high = 0, end
    while low < high:
        middle = (low + high) // 2
        (entry,) = entries.known([middle])
        if entry.record.time_ms <= time_ms:
            low = middle + 1
        else:
            high = middle
    return low


def _state_at(
    entries: EntryReader, count: int, older: Callable[[], Iterable[DisklessState]]
) -> DisklessState:
    start = next((state for state in older() if state.next_number <= count), None)
    state = DisklessState(entries.log_id) if start is None else start.copy()
    for number, entry in entries_between(entries, state.next_number, count):
        state.apply(entry, path=entries.path(number))
    return state


def _within(
    entries: EntryReader,
    now: DisklessState,
    wanted: ForkPointRequest,
    first: int,
    older: Callable[[], Iterable[DisklessState]],
) -> ForkPoint:
    """Return the newest point of the ledger at which no partition exceeds its wanted end offset."""
    ends = wanted.ends
    for key in ends:
        if key not in now.log.ends:
            raise UnknownTopicError(f"{key} does not exist in the log {entries.store.url}")
    if not ends:
        raise InvalidRequestError("offsets is empty: name at least one partition")
    fitting = (
        state for state in older()
        if all(state.log.ends.get(key, 0) <= end for key, end in ends.items())
    )  # fmt: skip
    start = next(fitting, None)
    state = DisklessState(entries.log_id) if start is None else start.copy()
    for number, entry in entries_between(entries, state.next_number, now.next_number):
        if _goes_beyond(entry.record, ends):
            break
        state.apply(entry, path=entries.path(number))
    if state.next_number < max(first, 1):
        raise nothing_to_fork(entries.store.url, f"goes beyond {dict(wanted.offsets or {})}")
    return ForkPoint(state.next_number, state)


def _goes_beyond(record: EntryRecord, ends: Mapping[TopicPartition, int]) -> bool:
    match record:
        case AppendRecord():
            after = {key: span.end for key, span in record.ends.items()}
        case TopicRecord():
            after = {TopicPartition(record.topic, p): base for p, base in record.bases.items()}
        case SnapshotRecord():
            after = dict(record.ends)
        case _:
            return False
    return any(key in ends and end > ends[key] for key, end in after.items())
