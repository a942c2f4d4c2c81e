"""State objects: `state-<log id>/<n>` is the state after entries 0..n. Only a cache.

    sparklog-state {"v", "fold", "number", "id", "json": [size, crc32c], "extents": [size, crc32c]}
    the state without extents as JSON, in zstd: {"snapshot": ..., "epochs": ..., ...}
    the extents as an Arrow stream, with zstd columns: a row per extent, grouped by partition, in
        the order and with the counts of the JSON; extents of deleted topics come last

`id` is the id of entry n: if the entry has another id, the state belongs to another history. A
state that is damaged, or of a newer sparklog or another fold, is skipped; an older state is read,
or the entire ledger. A state is a single object: with 10,000 partitions of ten extents each it has
2 MB.
"""

import json
import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import crc32c
import pyarrow as pa
import pyarrow.compute as pc
import zstandard

from sparklog.common import TopicPartition
from sparklog.diskless.entries import checked_record, key_to_json, keys_from_json
from sparklog.diskless.entries import decode as decode_entry
from sparklog.diskless.extents import Extent, Extents
from sparklog.diskless.ledger import Head, missing_entry
from sparklog.diskless.names import (
    checked_object,
    entry_name,
    parse_state,
    state_name,
    state_prefix,
)
from sparklog.diskless.state import FOLD_VERSION, DeletedParts, DisklessState
from sparklog.errors import DataCorruptionError, SparklogError, UnsupportedVersionError
from sparklog.log.producer_state import ProducerState
from sparklog.storage import ledger_records
from sparklog.storage.stored_json import FORMAT_VERSION, check_version, parse_json
from sparklog.tiered.object_store.store import Store

EVERY: Final = 100
"""A state is written after this many entries, if their bytes are a tenth of the last state's."""
SHARE: Final = 10
_MAGIC: Final = b"sparklog-state "
_LINE_MAX: Final = 4096
STATE_BYTES_MAX: Final = 256 << 20
INFLATED_MAX: Final = 256 << 20
"""Maximum size of a state's JSON, or of its columns; those of a million extents have 200 MB."""
_ZSTD: Final = (0xFD2FB528).to_bytes(4, "little")  # magic number of a zstd frame
_CLOSING_S: Final = 10.0
_SCHEMA: Final = pa.schema(
    [
        ("base", pa.int64()), ("end", pa.int64()),
        ("object", pa.string()), ("start", pa.int64()), ("size", pa.int64()),
        ("max_timestamp", pa.int64()), ("epoch", pa.int32()), ("born", pa.int64()),
        ("segment", pa.string()), ("stamp_ms", pa.int64()), ("pieces", pa.int64()),
        ("crc", pa.int64()),
    ]
)  # fmt: skip
_MALFORMED: Final = (
    KeyError, TypeError, ValueError, AttributeError, IndexError, pa.ArrowException,
    zstandard.ZstdError, RecursionError, MemoryError,
)  # fmt: skip
_LOGGER: Final = logging.getLogger(__name__)


# -- bytes


def encode_state(state: DisklessState) -> bytes:
    """Return a state's object. Cost: a microsecond per extent."""
    keys = sorted(state.extents)
    content = {
        "log_id": state.log_id,
        "snapshot": json.loads(ledger_records.encode(state.log.snapshot())),
        "partitions": [[*key, len(state.extents[key])] for key in keys],
        "epochs": [[*key, [list(each) for each in found]] for key, found in state.epochs.items()],
        "gaps": sorted(state.gaps),
        "deleted": [[topic_id, *_parts_to_json(one)] for topic_id, one in state.deleted.items()],
        "former": [[topic_id, *known] for topic_id, known in state.former.items()],
        "commits": state.commits,
        "resets": state.resets,
        "producers": [[*key, one.to_json()] for key, one in state.producers.items()],
        "keys": {name: key_to_json(key) for name, key in state.keys.items()},
        "term": state.term,
        "holder": dict(state.holder),
        "floor": state.floor,
    }
    plain = zstandard.compress(json.dumps(content, separators=(",", ":")).encode())
    held = [one for parts in state.deleted.values() for one in parts.extents.values()]
    extents = _extents_to_bytes([*(state.extents[key] for key in keys), *held])
    head = {
        "v": FORMAT_VERSION, "fold": FOLD_VERSION, "number": state.number, "id": state.entry_id,
        "json": [len(plain), crc32c.crc32c(plain)],
        "extents": [len(extents), crc32c.crc32c(extents)],
    }  # fmt: skip
    return _MAGIC + json.dumps(head).encode() + b"\n" + plain + extents


def decode_state(raw: bytes, *, path: str) -> DisklessState:
    """Decode a state's object.

    Raises:
        DataCorruptionError: An object is damaged.
        UnsupportedVersionError: A newer sparklog or another fold wrote the state.
    """
    try:
        line = raw[: raw.index(b"\n", 0, _LINE_MAX)]
        head = parse_json(line.removeprefix(_MAGIC))
        check_version(head["v"], path)
        if head["fold"] != FOLD_VERSION:
            raise UnsupportedVersionError(
                f"{path} has fold version {head['fold']}, expected {FOLD_VERSION}"
            )
        plain, extents = _checked(raw[len(line) + 1 :], head["json"], head["extents"])
        content = parse_json(_inflated(plain))
        return _state_of(head, content, _extents_from_bytes(extents), path)
    except _MALFORMED as error:
        if isinstance(error, UnsupportedVersionError):
            raise
        is_json = not isinstance(error, json.JSONDecodeError)
        fault = repr(error) if is_json else "its first line is not JSON"
        reason = f"the object is not a valid state of the log ({fault}); readers skip it"
        raise DataCorruptionError(reason, path=path) from error


def proves_entry(raw: bytes, *, log_id: str, number: int) -> bool:
    """Return True if an object is the state after entry `number`, so that the entry was created.

    Only the first line is examined, because the rest may be damaged or of a newer fold.
    """
    try:
        line = raw[: raw.index(b"\n", 0, _LINE_MAX)]
        if not line.startswith(_MAGIC) or json.loads(line[len(_MAGIC) :])["number"] != number:
            return False
    except (*_MALFORMED, RecursionError):
        return False
    try:
        return decode_state(raw, path="").log_id == log_id
    except SparklogError:
        return True


def _checked(body: bytes, *parts: Sequence[int]) -> list[bytes]:
    bodies, at = [], 0
    for size, crc in parts:
        part, at = body[at : at + size], at + size
        if len(part) != size or crc32c.crc32c(part) != crc:
            raise ValueError("a checksum does not match")
        bodies.append(part)
    return bodies


def _state_of(
    head: dict[str, Any], content: dict[str, Any], rows: list[Extent], path: str
) -> DisklessState:
    state = DisklessState(content["log_id"], head["number"], head["id"])
    record = ledger_records.decode(content["snapshot"], path=path, offset=head["number"])
    state.log.apply(checked_record(record))
    at = 0
    for topic, partition, count in content["partitions"]:
        state.extents[TopicPartition(topic, partition)] = tuple(rows[at : at + count])
        at += count
    for topic_id, *fields in content["deleted"]:
        state.deleted[topic_id], at = _parts_from_json(fields, rows, at)
    if at != len(rows):
        raise ValueError(f"there are {len(rows)} extents, expected {at}")
    for topic, partition, found in content["epochs"]:
        state.epochs[TopicPartition(topic, partition)] = tuple((e, start) for e, start in found)
    state.gaps = {TopicPartition(topic, partition) for topic, partition in content["gaps"]}
    state.former = {topic_id: (name, count) for topic_id, name, count in content["former"]}
    state.commits, state.resets = content["commits"], content["resets"]
    for topic, partition, known in content["producers"]:
        state.producers[TopicPartition(topic, partition)] = ProducerState.from_json(known)
    state.keys = keys_from_json(content["keys"])
    state.term, state.holder, state.floor = content["term"], content["holder"], content["floor"]
    return state


def _parts_to_json(parts: DeletedParts) -> list[Any]:
    return [
        parts.number,
        [[p, len(extents)] for p, extents in parts.extents.items()],
        [[p, [list(each) for each in found]] for p, found in parts.epochs.items()],
        [[p, known.to_json()] for p, known in parts.producers.items()],
        sorted(parts.gaps),
    ]


def _parts_from_json(
    fields: Sequence[Any], rows: Sequence[Extent], at: int
) -> tuple[DeletedParts, int]:
    """Return the contents of a deleted topic from JSON, and the index of the row after its extents.

    Args:
        fields: The result of `_parts_to_json`.
        rows: The extents of the state object.
        at: The index of the topic's first extent in `rows`.
    """
    number, counts, epochs, producers, gaps = fields
    extents: dict[int, Extents] = {}
    for p, count in counts:
        extents[p] = tuple(rows[at : at + count])
        at += count
    return DeletedParts(
        number=number,
        extents=extents,
        epochs={p: tuple((e, start) for e, start in found) for p, found in epochs},
        producers={p: ProducerState.from_json(known) for p, known in producers},
        gaps=frozenset(gaps),
    ), at


def _extents_to_bytes(extents: Iterable[Extents]) -> bytes:
    flat = [extent for some in extents for extent in some]
    columns = zip(*flat, strict=True) if flat else ((),) * len(_SCHEMA)
    arrays = [pa.array(values, kind.type) for values, kind in zip(columns, _SCHEMA, strict=True)]
    batch = pa.record_batch(arrays, schema=_SCHEMA)
    out = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(out, _SCHEMA, options=options) as writer:
        writer.write_batch(batch)
    return bytes(out.getvalue())


def _extents_from_bytes(raw: bytes) -> list[Extent]:
    _check_inflated(raw)
    table = pa.ipc.open_stream(pa.BufferReader(raw)).read_all()
    for name in pc.unique(table.column("object")).to_pylist():
        checked_object(name)
    names = _SCHEMA.names
    if "crc" not in table.column_names:  # written by an older version, without checksums
        names = names[:-1]
    return list(map(Extent, *(table.column(name).to_pylist() for name in names)))


def _inflated(raw: bytes) -> bytes:
    """Decompress zstd data.

    Raises:
        ValueError: The data are larger than any state.
    """
    if zstandard.frame_content_size(raw) > INFLATED_MAX:
        raise ValueError(f"the JSON has more than {INFLATED_MAX} bytes when inflated")
    return zstandard.decompress(raw, max_output_size=INFLATED_MAX)


def _check_inflated(raw: bytes) -> None:
    """Reject columns that would take too much memory.

    In an Arrow stream each zstd frame is preceded by the size of the decompressed data.

    Raises:
        ValueError: The columns are larger than INFLATED_MAX.
    """
    total, at = 0, raw.find(_ZSTD)
    while at >= 0:
        total += max(0, int.from_bytes(raw[max(0, at - 8) : at], "little", signed=True))
        at = raw.find(_ZSTD, at + 1)
    if total > INFLATED_MAX:
        raise ValueError(f"the columns have more than {INFLATED_MAX} bytes when inflated")


# -- objects


class StateObjects:
    """The state objects of a log. Thread-safe."""

    def __init__(self, store: Store, log_id: Callable[[], str]) -> None:
        self._store, self._log_id = store, log_id
        self.known = Known()

    def newest(self, least: int = 0, *, is_strict: bool = True) -> DisklessState | None:
        """Return the newest valid state after entry `least` or later, or None.

        A state that can't be used is skipped with a warning; without `is_strict` also a state if
        its entry is missing.
        Cost: a listing, and two concurrent GETs.

        Raises:
            StorageUnavailableError: The store does not answer, or refuses the request.
            DataCorruptionError: The entry of a newer state is missing. An entry is created before
                its state, so the state proves that the entry existed.
        """
        log_id = self._log_id()
        listed = self._store.list(state_prefix(log_id))
        candidates = [
            parse_state(log_id, stored.name) for stored in listed if stored.size <= STATE_BYTES_MAX
        ]
        numbers = sorted(number for number in candidates if number is not None and number >= least)
        for number in reversed(numbers):
            state = self._read(log_id, number, is_strict=is_strict)
            if state is not None:
                return state
        return None

    def _read(self, log_id: str, number: int, *, is_strict: bool) -> DisklessState | None:
        names = [state_name(log_id, number), entry_name(log_id, number)]
        raw, entry = self._store.get_many(names, limit=STATE_BYTES_MAX)
        path = f"{self._store.url}/{names[0]}"
        for got in (raw, entry):
            if isinstance(got, DataCorruptionError):  # larger than any state object
                _LOGGER.warning("%s; an older state or the ledger is read instead", got)
                return None
            if isinstance(got, Exception) and not isinstance(got, FileNotFoundError):
                raise got
        if isinstance(raw, Exception):
            return None  # deleted since the listing
        entry_path = f"{self._store.url}/{names[1]}"
        is_lost = isinstance(entry, Exception) and proves_entry(raw, log_id=log_id, number=number)
        if is_lost and is_strict:
            raise missing_entry(entry_path, f"{path} is the state after it")
        try:
            state = decode_state(raw, path=path)
            if isinstance(entry, Exception):
                raise DataCorruptionError(f"it is not the state after entry {number}", path=path)
            entry_before = decode_entry(entry, number=number, path=entry_path)
            if (state.log_id, state.number, state.entry_id) != (log_id, number, entry_before.id):
                raise DataCorruptionError(
                    "the state belongs to another history of the log: its log id or entry id does "
                    "not match the ledger",
                    path=path,
                )
        except SparklogError as error:
            _LOGGER.warning("%s; an older state or the ledger is read instead", error)
            return None
        self.known.note(number, len(raw))
        return state

    def write(self, state: DisklessState) -> None:
        """Create a state object if there is none.

        Raises:
            StorageUnavailableError: The store does not answer, or refuses the request.
        """
        self.known.note(state.number, write_state(self._store, state))


def write_state(store: Store, state: DisklessState) -> int:
    """Create a state object if there is none; return the size in bytes.

    Raises:
        StorageUnavailableError: It is unknown whether the object was created.
    """
    raw = encode_state(state)
    store.create(state_name(state.log_id, state.number), raw)
    return len(raw)


@dataclass(slots=True)
class Known:
    """The newest state object that this process has read or written: its entry number and size."""

    number: int = -1
    size: int = 0

    def note(self, number: int, size: int) -> None:
        """Record a state object after entry `number`."""
        if number >= self.number:
            self.number, self.size = number, size


class StateWriter:
    """Writes state objects in a background thread, in sequence.

    The process that creates an entry with a multiple of EVERY as its number writes the state, so
    only one of several writers does. A failed write is not repeated before the next multiple of
    EVERY, because states are only a cache.
    """

    def __init__(self, objects: StateObjects, *, in_thread: bool = True) -> None:
        self._objects, self._in_thread = objects, in_thread
        self._thread: threading.Thread | None = None
        self._since = -1, 0  # entry of the newest known state, bytes folded until then

    def created(self, head: Head) -> None:
        """Write a due state. Called after this process has created the newest entry."""
        state, known = head.state, self._objects.known
        if known.number != self._since[0]:
            self._since = known.number, head.folded_bytes if self._since[0] >= 0 else 0
        if state.next_number % EVERY or state.number - known.number < EVERY:
            return
        if SHARE * (head.folded_bytes - self._since[1]) < known.size:
            return
        if not self._in_thread:
            self._write(state)
        elif self._thread is None or not self._thread.is_alive():
            # A daemon, because a process must not wait for a cache when it exits.
            self._thread = threading.Thread(
                target=self._write, args=(state,), name="sparklog-state", daemon=True
            )
            self._thread.start()

    def _write(self, state: DisklessState) -> None:
        try:
            self._objects.write(state)
        except SparklogError as error:
            _LOGGER.warning("the state after entry %d was not written: %s", state.number, error)

    def close(self) -> None:
        """Wait for a write in progress, for ten seconds at most."""
        if self._thread is not None:
            self._thread.join(_CLOSING_S)
