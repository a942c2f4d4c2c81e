"""Producer state of a partition, for idempotence and transactions. In memory only.

Per producer id: epoch, the last five batches (to recognise a repeated batch) and the open
transaction. Replaying the log accepts everything; only `check` rejects, before an append. Source:
ProducerStateManager, ProducerAppendInfo, ProducerStateEntry (Kafka 4.1).
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple, Self

from numpy.typing import NDArray

from sparklog.errors import FencedError, InvalidRequestError, OutOfOrderSequenceError
from sparklog.format.batch import CONTROL, SEQUENCE_MAX, TRANSACTIONAL
from sparklog.format.control import ControlType, Marker
from sparklog.format.index import txn_entry
from sparklog.format.producer_snapshot import ProducerEntry
from sparklog.storage.commits import DuplicateAppend

BATCHES_KEPT: Final = 5  # as Kafka: a client has at most five batches in flight
EXPIRATION_MS: Final = 86_400_000  # producer.id.expiration.ms
NEVER_MS: Final = 2**63
_INT32: Final = 0xFFFF_FFFF

Table = NDArray[Any]
ReadMarker = Callable[[Any], Marker | None]
"""Returns the marker in a table row's control batch, or None for a batch without a marker."""


class ProducedBatch(NamedTuple):
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_sequence(self) -> int:
        """The sequence of the first record. Sequences wrap after 2^31-1."""
        return (self.last_sequence - self.offset_delta) & SEQUENCE_MAX


@dataclass(slots=True)
class Producer:
    """The state of a producer id in a partition.

    Attributes:
        id: The producer id.
        epoch: The newest epoch.
        coordinator_epoch: The epoch of the transaction coordinator in the newest marker.
        timestamp: The timestamp (ms) of the newest batch or marker; -1: none.
        txn_first_offset: The first offset of the open transaction; -1: none.
        batches: The last batches, oldest first.
        appended_ms: When the newest batch was appended, if the log records the time. Record
            timestamps may be older.
    """

    id: int
    epoch: int = -1
    coordinator_epoch: int = -1
    timestamp: int = -1
    txn_first_offset: int = -1
    batches: deque[ProducedBatch] = field(default_factory=lambda: deque(maxlen=BATCHES_KEPT))
    appended_ms: int = -1

    @property
    def seen_ms(self) -> int:
        """When the producer last appended, as far as known (ms)."""
        return max(self.timestamp, self.appended_ms)

    def copy(self) -> "Producer":
        return replace(self, batches=deque(self.batches, BATCHES_KEPT))

    def move_to(self, epoch: int) -> None:
        """Set the producer's epoch. If it is new, the known batches are forgotten."""
        if epoch != self.epoch:
            self.batches.clear()
            self.epoch = epoch

    def wrote(self, row: Any, shift: int = 0) -> None:
        """Add the batch `row` of the producer. `shift` is added to its offsets."""
        base, last = int(row["base_offset"]), int(row["last_offset"])
        self.move_to(int(row["producer_epoch"]))
        self.timestamp = int(row["max_timestamp"])
        if last < base:
            return  # an imported producer that has only markers in this epoch
        sequence = last_sequence(int(row["base_sequence"]), last - base)
        self.batches.append(ProducedBatch(sequence, last + shift, last - base, self.timestamp))


class ProducerState:
    """All producers of a partition, as of the records before offset `end`.

    Attributes:
        end: The offset up to which batches were applied.
        checked_ms: When expired producers were last removed (ms).
        open_txns: {first offset: producer id} of the open transactions.
    """

    def __init__(
        self,
        end: int,
        entries: Iterable[ProducerEntry] = (),
        *,
        now: int = 0,
        expiration_ms: int = EXPIRATION_MS,
    ) -> None:
        self.end = end
        self.checked_ms = now
        """When expired producers were last removed (ms)."""
        self._expiration_ms = expiration_ms
        self._producers: dict[int, Producer] = {}
        self._quiet_until_ms = NEVER_MS  # no producer can expire before this time
        self.open_txns: dict[int, int] = {}  # first offset -> producer id
        for entry in entries:
            self._restore(entry, now)

    def _restore(self, entry: ProducerEntry, now: int) -> None:
        txn = entry.current_txn_first_offset
        # The last stable offset depends on a producer with an open transaction, however old.
        if txn < 0 and now - entry.timestamp >= self._expiration_ms:
            return
        producer = Producer(
            entry.producer_id, entry.producer_epoch, entry.coordinator_epoch, entry.timestamp, txn
        )
        if entry.last_offset >= 0:
            producer.batches.append(
                ProducedBatch(
                    entry.last_sequence, entry.last_offset, entry.offset_delta, entry.timestamp
                )
            )
        self._producers[producer.id] = producer
        self._heard(producer)
        if txn >= 0:
            self.open_txns[txn] = producer.id

    def copy(self) -> "ProducerState":
        """Return an independent copy with all batches.

        A snapshot, by contrast, has only one batch per producer.
        """
        other = ProducerState(self.end, expiration_ms=self._expiration_ms)
        other._producers = {p.id: p.copy() for p in self._producers.values()}
        other._quiet_until_ms = self._quiet_until_ms
        other.open_txns = dict(self.open_txns)
        return other

    def with_batches(self, table: Table, appended_ms: int) -> "ProducerState":
        """Return a new state after these batches, which were appended at `appended_ms`.

        The batches must not contain transaction markers. Cost: copies the dict of producers, and
        the producers that wrote.
        """
        other = ProducerState(self.end, expiration_ms=self._expiration_ms)
        other._producers, other.open_txns = dict(self._producers), dict(self.open_txns)
        other._quiet_until_ms = self._quiet_until_ms
        other.expire(appended_ms)
        for producer_id in set(table["producer_id"].tolist()) & other._producers.keys():
            other._producers[producer_id] = other._producers[producer_id].copy()
        other.apply(table, no_markers, appended_ms)
        return other

    def __len__(self) -> int:
        return len(self._producers)

    def to_json(self) -> list[Any]:
        """Return the state as a JSON list.

        Unlike a snapshot, it contains all known batches of each producer.
        """
        producers = [
            [p.id, p.epoch, p.coordinator_epoch, p.timestamp, p.txn_first_offset,
             [list(batch) for batch in p.batches], p.appended_ms]
            for p in self._producers.values()
        ]  # fmt: skip
        return [self.end, producers]

    @classmethod
    def from_json(cls, values: list[Any]) -> Self:
        """Rebuild the state from the result of `to_json`.

        Raises:
            TypeError: The data have another form.
            ValueError: The data have another form.
        """
        end, producers = values
        state = cls(int(end))
        for producer_id, epoch, coordinator_epoch, timestamp, txn, batches, at_ms in producers:
            producer = Producer(producer_id, epoch, coordinator_epoch, timestamp, txn)
            producer.batches.extend(ProducedBatch(*(int(n) for n in batch)) for batch in batches)
            producer.appended_ms = at_ms
            state._producers[producer.id] = producer
            state._heard(producer)
            if producer.txn_first_offset >= 0:
                state.open_txns[producer.txn_first_offset] = producer.id
        return state

    def get(self, producer_id: int) -> Producer | None:
        """Return the state of a producer id, or None for an unknown id."""
        return self._producers.get(producer_id)

    def expire(self, now: int) -> int:
        """Remove producers without an append for `expiration_ms` and without an open transaction.

        Returns the number of removed producers. The call is cheap while no producer can have
        expired. Source: ProducerStateManager.removeExpiredProducers.
        """
        self.checked_ms = now
        if not self.expires(now):
            return 0
        idle = [p for p in self._producers.values() if p.txn_first_offset < 0]
        expired = [p.id for p in idle if now - p.seen_ms >= self._expiration_ms]
        for producer_id in expired:
            del self._producers[producer_id]
        self._quiet_until_ms = NEVER_MS
        for producer in self._producers.values():
            self._heard(producer)
        return len(expired)

    def expires(self, now: int) -> bool:
        """Return True if a producer may have expired; False if none can have."""
        return now >= self._quiet_until_ms

    def _heard(self, producer: Producer) -> None:
        due_ms = producer.seen_ms + self._expiration_ms
        self._quiet_until_ms = min(self._quiet_until_ms, due_ms)

    def last_stable_offset(self) -> int:
        """Return the first offset of the oldest open transaction, or `end`."""
        return min(self.open_txns, default=self.end)

    def entries(self) -> list[ProducerEntry]:
        """Return the producers as entries of a snapshot, in the order of Kafka's hash map."""
        return [_entry(p) for p in _java_order(self._producers)]

    def apply(self, table: Table, read_marker: ReadMarker, appended_ms: int = -1) -> bytes:
        """Apply the next batches of the log.

        Args:
            table: The batches.
            read_marker: Reads the marker of a control batch.
            appended_ms: When the batches were appended (ms); -1 if unknown.

        Returns:
            The entries of the aborted transactions, for the transaction index of the batches'
            segment.
        """
        aborted = bytearray()
        if len(table):
            self.end = int(table["last_offset"][-1]) + 1
        for row in table[table["producer_id"] >= 0]:
            if row["attributes"] & CONTROL:
                marker = read_marker(row)
                if marker is not None:
                    aborted += self._end_txn(marker)
            else:
                self._data(row, appended_ms)
        return bytes(aborted)

    def _data(self, row: Any, appended_ms: int) -> None:
        producer = self._producers.setdefault(
            int(row["producer_id"]), Producer(int(row["producer_id"]))
        )
        producer.wrote(row)
        producer.appended_ms = appended_ms
        self._heard(producer)
        base = int(row["base_offset"])
        if row["attributes"] & TRANSACTIONAL and producer.txn_first_offset < 0:
            producer.txn_first_offset = base
            self.open_txns[base] = producer.id

    def _end_txn(self, marker: Marker) -> bytes:
        """End the transaction of a marker. Return its index entry if it was aborted, else b""."""
        producer = self._producers.setdefault(marker.producer_id, Producer(marker.producer_id))
        first = producer.txn_first_offset
        producer.move_to(marker.producer_epoch)
        producer.coordinator_epoch = marker.coordinator_epoch
        producer.timestamp = marker.timestamp
        self._heard(producer)
        producer.txn_first_offset = -1
        if first < 0:
            return b""  # an empty transaction
        # The entry stores the last stable offset behind this marker: a search stops by it.
        others = [offset for offset, owner in self.open_txns.items() if owner != producer.id]
        self.open_txns.pop(first, None)
        if marker.type is not ControlType.ABORT:
            return b""
        return txn_entry(
            producer.id, first, marker.offset, min(others, default=marker.offset + 1)
        )

    def check(self, table: Table, *, where: str) -> tuple[int, int] | None:
        """Check an append before it is written; see `ProducerAppends.judge`.

        Returns None if the append may be written, or the (first, end) offsets of a duplicate.
        """
        duplicate = ProducerAppends(lambda: self, self.end, where).judge(table)
        return None if duplicate is None else duplicate[:2]


class ProducerAppends:
    """Checks, in order, the appends that are written to a partition together.

    Each append is checked as if the earlier accepted appends had been written. A rejected append
    has no effect on the checks of the next appends.

    Args:
        load: Returns the current state of the partition. The state is not changed. Called only if
            an append has a producer id.
        end: The log end offset.
        where: The partition, for messages.

    Source: ProducerAppendInfo, UnifiedLog.analyzeAndValidateProducerState (Kafka 4.1).
    """

    def __init__(self, load: Callable[[], ProducerState | None], end: int, where: str) -> None:
        self._load, self._end, self._where = load, end, where
        self._pending: dict[int, Producer] = {}

    def skip(self, records: int) -> None:
        """Count the records of the next append, which has no producer id and needs no check."""
        self._end += records

    def judge(self, table: Table) -> DuplicateAppend | None:
        """Check the batches of an append. The offsets may count from any base.

        Returns:
            None if the append may be written, or the existing offsets of a duplicate.

        Raises:
            FencedError: A newer epoch of the producer is known.
            OutOfOrderSequenceError: A sequence number leaves a gap.
            InvalidRequestError: A batch without a transaction comes inside an open transaction.
        """
        count = int(table["last_offset"][-1]) + 1 - int(table["base_offset"][0])
        own = table[table["producer_id"] >= 0]
        if len(own):
            # An append is atomic: if its last batch was appended before, all of them were.
            before = self._find(own[-1])
            if before is not None:
                end = before.last_offset + 1
                return DuplicateAppend(end - count, end, before.timestamp)
            self._pending |= self._followed(own, self._end - int(table["base_offset"][0]))
        self._end += count
        return None

    def _followed(self, own: Table, shift: int) -> dict[int, Producer]:
        """Check batches, and return {producer id: the producer's state after them}.

        `own` are the batches with a producer id, and `shift` is added to their offsets. The present
        state does not change.
        """
        moved: dict[int, Producer] = {}
        for row in own:
            producer_id = int(row["producer_id"])
            producer = moved.get(producer_id) or self._copy(producer_id)
            _check_next(row, producer, self._where)
            if producer.txn_first_offset >= 0 and not row["attributes"] & TRANSACTIONAL:
                raise InvalidRequestError(
                    f"{self._where}: producer {producer_id} has an open transaction; end it first"
                )
            producer.wrote(row, shift)
            moved[producer_id] = producer
        return moved

    def _get(self, producer_id: int) -> Producer | None:
        pending = self._pending.get(producer_id)
        if pending is not None:
            return pending
        known = self._load()
        return None if known is None else known.get(producer_id)

    def _copy(self, producer_id: int) -> Producer:
        known = self._get(producer_id)
        if known is None:
            return Producer(producer_id)
        return known.copy()

    def _find(self, row: Any) -> ProducedBatch | None:
        producer = self._get(int(row["producer_id"]))
        # Each epoch starts again at sequence 0, so equal sequences of two epochs are no duplicate.
        if producer is None or producer.epoch != int(row["producer_epoch"]):
            return None
        first = int(row["base_sequence"])
        last = last_sequence(first, int(row["last_offset"]) - int(row["base_offset"]))
        for batch in producer.batches:
            if (batch.first_sequence, batch.last_sequence) == (first, last):
                return batch
        return None


def last_sequence(first: int, delta: int) -> int:
    """Return the sequence `delta` records after `first` (wraps after 2^31-1), or -1 for none."""
    return -1 if first < 0 else (first + delta) & SEQUENCE_MAX


def _check_next(row: Any, known: Producer, where: str) -> None:
    """Raise an error unless the batch `row` continues the batches of the producer `known`.

    Source: ProducerAppendInfo.checkProducerEpoch, checkSequence.

    Raises:
        FencedError: The batch has an older epoch than the producer.
        OutOfOrderSequenceError: The batch has another sequence than the next.
    """
    producer_id, epoch = known.id, int(row["producer_epoch"])
    first = int(row["base_sequence"])
    known_epoch = known.epoch
    if known_epoch < 0:
        return  # an unknown producer takes any sequence: its batches may have expired
    last = known.batches[-1].last_sequence if known.batches else -1
    if epoch < known_epoch:
        raise FencedError(
            f"{where}: producer {producer_id} with epoch {epoch} was replaced by epoch "
            f"{known_epoch}; stop this producer"
        )
    if epoch > known_epoch:
        if first != 0:
            raise OutOfOrderSequenceError(
                f"{where}: producer {producer_id} starts epoch {epoch} with sequence {first}, but "
                "the first sequence of an epoch must be 0; restart it under a new id"
            )
        return
    if first != last + 1 and not (first == 0 and last == SEQUENCE_MAX):
        raise OutOfOrderSequenceError(
            f"{where}: producer {producer_id} sent sequence {first} after {last}; batches are "
            "missing, or too old to be recognised as repetitions; restart it under a new id"
        )


def _entry(producer: Producer) -> ProducerEntry:
    newest = producer.batches[-1] if producer.batches else ProducedBatch(-1, -1, 0, -1)
    return ProducerEntry(
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        last_sequence=newest.last_sequence,
        last_offset=newest.last_offset,
        offset_delta=newest.offset_delta,
        timestamp=producer.timestamp,
        coordinator_epoch=producer.coordinator_epoch,
        current_txn_first_offset=producer.txn_first_offset,
    )


def _java_order(producers: dict[int, Producer]) -> Iterator[Producer]:
    """Return producers in the order of a java.util.HashMap<Long, ...>, as in Kafka's snapshots."""
    # The same order makes snapshots of sparklog and of a broker equal byte by byte.
    buckets = 16
    while buckets * 3 // 4 < len(producers):
        buckets *= 2

    def bucket(producer_id: int) -> int:
        mixed = (producer_id ^ (producer_id >> 32)) & _INT32
        return (mixed ^ (mixed >> 16)) & (buckets - 1)

    return (producers[p] for p in sorted(producers, key=bucket))


def no_markers(row: Any) -> Marker | None:
    """Raise an AssertionError. Used as a `ReadMarker` for batches without transaction markers."""
    raise AssertionError(f"control batch at offset {row['base_offset']}")


def has_producers(table: Table) -> bool:
    """Return whether any batch of the table has a producer id."""
    return bool((table["producer_id"] >= 0).any())
