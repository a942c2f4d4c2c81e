"""Rows become chunks, wherever these go: a place may have them all closed at any time."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.clock import ManualClock
from sparklog.config import TopicConfig
from sparklog.errors import (
    InvalidRequestError,
    PartitionOfflineError,
    StorageUnavailableError,
)
from sparklog.format.batch import unpack_header
from sparklog.log import chunk_stager
from sparklog.log.chunk_stager import ChunksInMemory, ChunkStager
from sparklog.storage.commits import Chunk
from sparklog.storage.staging import Framing, GrowingChunk
from sparklog.storage.view import TopicInfo
from tests.log.chunks import records_of

SMALL = Framing(batch_size=1 << 10)
TOPIC = TopicInfo("t", "A" * 22, 3, TopicConfig(), {0: "/log/t-0", 1: "/log/t-1", 2: "/log/t-2"})


@dataclass
class Bounded:
    """A place that holds so many bytes of all chunks, in buffers that it is only lent."""

    most: int
    home: str = "memory"
    is_memory: bool = False
    held: int = 0
    peak: int = 0
    closed: list[GrowingChunk] = field(default_factory=list)
    let_go: list[int] = field(default_factory=list)

    def grow(self, chunk: GrowingChunk, data: memoryview) -> bool:
        chunk.parts.append(memoryview(bytes(data)))
        self.held += len(data)
        self.peak = max(self.peak, self.held)
        return self.held >= self.most

    def close(self, chunk: GrowingChunk) -> None:
        self.held -= chunk.size_bytes
        chunk.join()
        self.closed.append(chunk)

    def finish(self, chunks: Sequence[GrowingChunk]) -> Sequence[Chunk]:
        if self.most == 0:
            raise StorageUnavailableError("no room")
        return [chunk.chunk(data=chunk.parts[0], path="there") for chunk in chunks]

    def discard(self, chunks: Sequence[GrowingChunk]) -> None:
        self.let_go += [chunk.size_bytes for chunk in chunks]


def rows(first: int, count: int) -> pa.RecordBatch:
    values = [f"{number:09d}".encode() * 30 for number in range(first, first + count)]
    numbers = pa.array([number % 3 for number in range(first, first + count)], pa.int32())
    return pa.RecordBatch.from_pydict({"value": values, "partition": numbers})


def counted(chunks: Sequence[Chunk]) -> dict[int, list[int]]:
    """The records of each partition's chunks, in which batches count from 0."""
    found: dict[int, list[int]] = {}
    for chunk in chunks:
        at, data, records = 0, bytes(chunk.data or b""), 0
        assert len(data) == chunk.size_bytes
        while at < len(data):
            header = unpack_header(data, at)
            assert header.base_offset == records  # each chunk counts from 0
            records += header.last_offset_delta + 1
            at += header.size
        assert records == chunk.records
        found.setdefault(chunk.partition, []).append(records)
    return found


@pytest.mark.parametrize("most", [1, 20_000, 300_000])
def test_a_place_that_is_full_has_all_chunks_closed(most: int) -> None:
    clock = ManualClock(1000)
    place = Bounded(most)
    stager = ChunkStager(place, clock, SMALL)
    whole = ChunkStager(ChunksInMemory("memory"), clock, SMALL)
    for first in range(0, 30_000, 5000):
        for each in (stager, whole):
            each.add(TOPIC, rows(first, 5000))
    chunks = stager.finish()
    assert {chunk.path for chunk in chunks} == {"there"}
    counts = {p: sum(found) for p, found in counted(chunks).items()}
    assert counts == {p: sum(found) for p, found in counted(whole.finish()).items()}
    assert counts == {0: 10_000, 1: 10_000, 2: 10_000}
    assert place.held == 0
    assert len(chunks) > 3
    assert place.peak < most + (2 << 20)  # what is framed at once comes on top


def test_what_was_closed_is_let_go_of_after_a_failure() -> None:
    place = Bounded(0)
    stager = ChunkStager(place, ManualClock(1000), SMALL)
    stager.add(TOPIC, rows(0, 9000))
    with pytest.raises(StorageUnavailableError, match="no room"):
        stager.finish()
    stager.discard()
    assert sum(place.let_go) == sum(chunk.size_bytes for chunk in place.closed) > 0


@given(
    values=st.lists(st.tuples(st.none() | st.binary(max_size=9), st.booleans()), max_size=60),
    cuts=st.lists(st.integers(0, 60), max_size=4),
    batch_size=st.integers(1, 40),
)
def test_rows_adrift_are_spread_by_their_values_however_they_come_together(
    values: list[tuple[bytes | None, bool]], cuts: list[int], batch_size: int
) -> None:
    """A step to the next partition each batch.size bytes of values without key and partition."""
    framing, clock = Framing(batch_size=batch_size), ManualClock(1000)
    stager = ChunkStager(ChunksInMemory("memory"), clock, framing, spread="label-3")
    ends = sorted({0, len(values), *(cut for cut in cuts if cut < len(values))})
    for first, end in pairwise(ends):
        part = values[first:end]
        stager.add(
            TOPIC,
            pa.RecordBatch.from_pydict(
                {
                    "value": pa.array([value for value, _ in part], pa.binary()),
                    "partition": pa.array([1 if told else None for _, told in part], pa.int32()),
                }
            ),
        )
    at = int.from_bytes(hashlib.sha256(b"label-3").digest()[:4], "big") * batch_size
    want: dict[int, list[bytes | None]] = {0: [], 1: [], 2: []}
    for value, told in values:
        want[1 if told else at // batch_size % 3].append(value)
        at += 0 if told else len(value or b"")
    found = records_of(stager.finish())
    assert {key.partition: [r["value"] for r in rows] for key, rows in found.items()} == {
        partition: some for partition, some in want.items() if some
    }


def test_chunks_that_stay_in_memory_are_not_overwritten_by_the_next_batches() -> None:
    clock = ManualClock(1000)
    memory, bounded = ChunksInMemory("memory"), Bounded(1 << 40)
    made = []
    for place in (memory, bounded):
        stager = ChunkStager(place, clock, SMALL, spread="s")
        for first in range(0, 12_000, 3000):
            stager.add(TOPIC, rows(first, 3000))
        made.append([bytes(chunk.data or b"") for chunk in stager.finish()])
    assert made[0] == made[1]


def test_a_chunk_ends_before_it_outgrows_a_segment() -> None:
    topic = replace(TOPIC, config=TopicConfig(segment_bytes=2 << 20))
    stager = ChunkStager(ChunksInMemory("memory"), ManualClock(1000), SMALL)
    for first in range(0, 12_000, 4000):
        stager.add(topic, rows(first, 4000), partition=0)
    sizes = [chunk.size_bytes for chunk in stager.finish()]
    assert sum(sizes) > 3 << 20
    assert max(sizes) <= 2 << 20


def test_rows_of_rare_partitions_do_not_keep_their_arrow_batches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A row is a view of the whole Arrow batch in which it came."""
    monkeypatch.setattr(chunk_stager, "HELD_BYTES", 1 << 20)
    place = Bounded(1 << 40)
    stager = ChunkStager(place, ManualClock(1000), SMALL)
    stager.add(TOPIC, rows(0, 3))
    assert place.held == 0
    stager.add(TOPIC, rows(3, 6000))
    assert place.held > 6000 * 270


AWAY = replace(TOPIC, offline={1: PartitionOfflineError("its disk is away", path="/log/t-1")})
NUMBERS = pa.array([-1, 0], pa.int32())
COMPACT = replace(TOPIC, config=TopicConfig(cleanup_policy=("compact",)))


@pytest.mark.parametrize(
    ("topic", "columns", "error"),
    [
        (AWAY, {"value": ["v"], "partition": pa.array([1], pa.int32())}, PartitionOfflineError),
        (COMPACT, {"value": ["v"]}, InvalidRequestError),
        (COMPACT, {"value": ["v", "v"], "key": ["k", None]}, InvalidRequestError),
        (TOPIC, {"value": ["a", "b"], "partition": NUMBERS}, InvalidRequestError),
        (TOPIC, {"value": ["a", "b"], "partition": pa.array([0, 3])}, InvalidRequestError),
    ],
)
def test_rows_that_have_no_place(
    topic: TopicInfo, columns: dict[str, object], error: type[Exception]
) -> None:
    stager = ChunkStager(ChunksInMemory("memory"), ManualClock(1000), SMALL)
    with pytest.raises(error):
        stager.add(topic, pa.RecordBatch.from_pydict(columns))


def test_rows_adrift_go_round_offline_partitions() -> None:
    stager = ChunkStager(ChunksInMemory("memory"), ManualClock(1000), Framing(batch_size=1))
    stager.add(AWAY, pa.RecordBatch.from_pydict({"value": ["v"] * 12}))
    assert {chunk.partition: chunk.records for chunk in stager.finish()} == {0: 6, 2: 6}
