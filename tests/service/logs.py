"""Log dirs for the tests of the service: a good one with a bit of everything, and faults for it."""

import json
import os
from pathlib import Path

import pyarrow as pa

import sparklog
from sparklog.clock import ManualClock
from sparklog.fs import LOCAL, read_bytes, write_durably
from sparklog.logdir.home import commits_of
from sparklog.service.announcement_file import NAME

SMALL = {
    "internal.segment.bytes": 600,
    "index.interval.bytes": 100,
    "retention.ms": -1,
}
T0 = 1_700_000_000_000


def table(*values: str, at: int = T0) -> pa.Table:
    return pa.table(
        {
            "key": pa.array([v.split("-")[1][-1:].encode() for v in values]),
            "value": pa.array([v.encode() for v in values]),
            "timestamp": pa.array([at] * len(values), pa.timestamp("ms")),
        }
    )


def fill(log: sparklog.Log, topic: str, partition: int, count: int, *, first: int = 0) -> None:
    """Append `count` batches of two records, their times rising."""
    for n in range(first, first + count):
        rows = table(f"{topic}-{n}-a", f"{topic}-{n}-b", at=T0 + 1000 * n)
        log.append(topic, rows, partition=partition)


def make(path: Path, *, close: bool = True) -> sparklog.Log:
    """t-0: five segments, the first below its start; t-1: producers; u-0: one segment."""
    log = sparklog.open(path, "rw", clock=ManualClock(T0))
    log.create_topic("t", partitions=2, config=SMALL)
    log.create_topic("u", config={"retention.ms": -1})
    fill(log, "t", 0, 30)
    for sequence in range(0, 16, 2):
        rows = table(f"p-{sequence}", f"p-{sequence + 1}", at=T0 + sequence)
        log.append("t", rows, partition=1, producer=(7, 0, sequence))
        log.append("t", table(f"q-{sequence}"), partition=1, producer=(9, 0, sequence // 2))
    fill(log, "u", 0, 5)
    log.delete_records("t", {0: 14})
    if close:
        log.close()
    return log


def told(log: sparklog.Log) -> None:
    """Note that each topic's first deletion was announced, so that the next round deletes."""
    ids = {topic.id: True for topic in log.topics().values()}
    noted = json.dumps({"segment": ids, "copy": ids}).encode()
    write_durably(commits_of(log).fs, f"{commits_of(log).home}/{NAME}", noted)


def records(path: Path | str) -> dict[tuple[str, int], list[tuple[int, bytes]]]:
    """Everything that a reader sees."""
    found: dict[tuple[str, int], list[tuple[int, bytes]]] = {}
    with sparklog.open(path) as log:
        for name in log.topics():
            for p in log.offsets(name):
                rows = log.read(name, [p], columns=["offset", "value"]).read_all()
                pairs = zip(
                    rows.column("offset").to_pylist(), rows.column("value").to_pylist(), strict=True
                )
                found[name, p] = list(pairs)
    return found


def logs(directory: Path) -> list[Path]:
    """A partition's segments, ascending."""
    return sorted(directory.glob("*.log"))


def patch(path: Path, position: int, data: bytes) -> None:
    """Overwrite some bytes; a negative position counts from the end."""
    with LOCAL.open(str(path), write=True) as file:
        at = position if position >= 0 else file.size() + position
        file.pwrite(data, at)


def flip(path: Path, position: int, mask: int = 1) -> None:
    """Turn bits of one byte."""
    raw = read_bytes(LOCAL, str(path))
    at = position % len(raw)
    patch(path, at, bytes([raw[at] ^ mask]))


def cut(path: Path, size: int) -> None:
    """Cut a file; a negative size takes so many bytes away."""
    os.truncate(path, size if size >= 0 else path.stat().st_size + size)


def kept(path: Path) -> dict[str, bytes]:
    """All files below a directory."""
    return {str(p.relative_to(path)): p.read_bytes() for p in path.rglob("*") if p.is_file()}
