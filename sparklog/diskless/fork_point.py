"""Where a log in a store is forked: behind one of its entries, and the state as of there."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from sparklog.common import TopicPartition
from sparklog.diskless.entries import Entry, EntryRecord, ImportRecord
from sparklog.diskless.ledger import WINDOW, EntryReader, StoreLedger
from sparklog.diskless.state import DisklessState
from sparklog.errors import InvalidRequestError, UnknownTopicError
from sparklog.log.fork_points import (
    ForkPointRequest,
    check_writers,
    no_commit,
    no_writer,
    nothing_to_fork,
)
from sparklog.storage.ledger_records import (
    AppendRecord,
    CommitRecord,
    ResetRecord,
    SnapshotRecord,
    TopicRecord,
)
from sparklog.storage.log_state import is_writer_of


@dataclass(frozen=True, slots=True)
class ForkPoint:
    """`count`: so many entries count; `state`: as of the last of them."""

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
    """Return the point that is wanted, in the ledger up to `now`.

    Args: older: the states that lie in the store, the newest first.
    Raises: InvalidRequestError: the ledger doesn't hold it; UnknownTopicError;
        DataCorruptionError; StorageUnavailableError.
    Cost: a GET for each entry from a state in the store, or the ledger's begin, to the point. By
    batch one for each commit of the writer behind it as well, by time a few.
    """
    first = _begin(entries, now.next_number)
    if wanted.offsets is not None:
        point = _within(entries, now, wanted, first, older)
    else:
        if wanted.writer is not None and wanted.batch is not None:
            count = _after_batch(entries, ledger, now, wanted.writer, wanted.batch, first)
        else:
            assert wanted.time_ms is not None
            count = _of_time(entries, now.next_number, wanted.time_ms)
            if count < max(first, 1):
                raise nothing_to_fork(entries.store.url, f"was written after {wanted.time_ms} ms")
        point = ForkPoint(count, _state_at(entries, count, older))
    if wanted.writer is not None and wanted.batch is not None:
        check_writers(point.state.log, wanted.writer, wanted.batch)
    return point


def _begin(entries: EntryReader, end: int) -> int:
    """How many entries say what the log was made of; 0 for one that began empty."""
    for number, entry in entries_between(entries, 0, end, window=2):
        if not isinstance(entry.record, SnapshotRecord | ResetRecord | ImportRecord):
            return number
        if number == 0 and not isinstance(entry.record, SnapshotRecord):
            return 0
    return end


def entries_between(
    entries: EntryReader, first: int, end: int, *, window: int = WINDOW
) -> Iterator[tuple[int, Entry]]:
    """Yield (number, entry) for first <= number < end, some at a time."""
    while first < end:
        numbers = range(first, min(first + window, end))
        yield from zip(numbers, entries.known(numbers), strict=True)
        first, window = numbers.stop, min(2 * window, WINDOW)


def _after_batch(
    entries: EntryReader,
    ledger: StoreLedger,
    now: DisklessState,
    writer: str,
    batch: int,
    first: int,
) -> int:
    known = now.log.writers
    names = sorted(name for name in known if is_writer_of(name, writer))
    if not names:
        raise no_writer(entries.store.url, writer, known)
    oldest, below = None, set()
    for number, record in ledger.commits_of(now.next_number, names):
        assert isinstance(record, CommitRecord)
        if record.batch == batch:
            return number + 1
        oldest = record.batch
        if record.batch < batch:
            below.add(record.writer)
            if len(below) == len(names):
                break
    last = max(known[name].batch for name in names)
    if first and batch <= last and _begins_at(entries, names, batch):
        return first
    raise no_commit(entries.store.url, writer, batch, last=last, first=oldest)


def _begins_at(entries: EntryReader, names: list[str], batch: int) -> bool:
    """Tell whether the log was made of another one as it stood at that batch."""
    (entry,) = entries.known([0])
    record = entry.record
    if not isinstance(record, SnapshotRecord) or record.fork is None:
        return False
    lasts = [record.writers[name].batch for name in names if name in record.writers]
    return max(lasts, default=-1) == batch


def _of_time(entries: EntryReader, end: int, time_ms: int) -> int:
    """How many entries were written by then; their times never go back."""
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
    """The newest point that goes past none of the ends; of states that only ever grow."""
    ends = wanted.ends
    for key in ends:
        if key not in now.log.ends:
            raise UnknownTopicError(f"{key} is not in {entries.store.url}")
    if not ends:
        raise InvalidRequestError("offsets: name at least one partition")
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
