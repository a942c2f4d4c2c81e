"""Partitions of a broker's transactions that become logs in a store, and what is left of them."""

from pathlib import Path
from typing import Final

import numpy as np

from sparklog.clock import ManualClock
from sparklog.format.producer_snapshot import parse_snapshot
from sparklog.format.scan import scan
from sparklog.log.topic_names import new_topic_id
from tests.diskless.compacted import Imported, imported, visible
from tests.diskless.logs import T0
from tests.logdir.partitions import batch, create, marker, transactional

COMPACT: Final = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}
ABORT, COMMIT = 0, 1


def data(key: str, value: str, producer: int, sequence: int) -> bytes:
    return transactional(batch(value, key=key.encode(), producer=(producer, 0, sequence)))


FIRST = (
    batch("1", key=b"a"),  # 0
    data("a", "2", 7, 0),  # 1: committed
    data("b", "1", 8, 0),  # 2: aborted
    data("a", "9", 9, 0),  # 3: aborted, the last of its producer
    marker(ABORT, producer_id=9),  # 4
)
SECOND = (
    marker(COMMIT, producer_id=7),  # 5
    marker(ABORT, producer_id=8),  # 6
    data("c", "1", 8, 1),  # 7: committed
    marker(COMMIT, producer_id=8),  # 8
    batch("1", key=b"d"),  # 9
)


def partition(path: Path, *segments: tuple[bytes, ...]) -> Path:
    """Write the directory of a partition with these closed segments; an append of each batch."""
    log = create(path / "t-0")
    for batches in segments:
        for each in batches:
            log.append(each, 0)
        log.roll()
    log.close()
    topic_id = new_topic_id()
    (path / "t-0/partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}\n")
    return path / "t-0"


def brought(path: Path, *segments: tuple[bytes, ...], **given: str) -> Imported:
    named = {key.replace("_", "."): value for key, value in given.items()}
    directory = partition(path, *(segments or (FIRST, SECOND)))
    return imported(directory, ManualClock(), COMPACT | named)


def apart(path: Path) -> Imported:
    """As `brought`, of which the cleaner puts no two segments together; offset 10 supersedes 9."""
    second = (*SECOND, batch("2", key=b"d"))
    size = max(sum(map(len, FIRST)), sum(map(len, second)))
    return brought(path, FIRST, second, **{"internal.segment.bytes": str(size)})


def batches(home: Imported) -> list[tuple[int, int]]:
    """(base offset, number of records) of each batch."""
    raw = b"".join(home.store.get(extent.object) for extent in home.state.extents[T0])
    table = scan(raw, path="log").table
    return list(zip(table["base_offset"].tolist(), table["count"].tolist(), strict=True))


def aborted(home: Imported) -> list[tuple[int, int]]:
    """(first offset, offset of the marker) in the indexes, as manifests have them."""
    indexes = [home.part(extent, ".txnindex") or b"" for extent in home.state.extents[T0]]
    rows = np.frombuffer(b"".join(indexes), ">i2,>i8,>i8,>i8,>i8")
    return [(int(row[2]), int(row[3])) for row in rows]


def open_ones(home: Imported, at: int) -> dict[int, int]:
    """{producer: first offset} of the transactions open where an extent ends, by its manifest."""
    raw = home.part(home.state.extents[T0][at], ".snapshot") or b""
    found = {e.producer_id: e.current_txn_first_offset for e in parse_snapshot(raw, "snapshot")}
    return {producer: first for producer, first in found.items() if first >= 0}


def offsets(home: Imported, isolation: str = "read_committed", end: int | None = None) -> list[int]:
    end = home.state.log.ends[T0] if end is None else end
    found = visible(home.reader(), isolation, end, home.state.log.starts.get(T0, 0))
    return [int(str(row["offset"])) for row in found]
