"""Tiered logs for the tests: a topic of small segments, its copies, everything that can be read."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

import sparklog
from sparklog.clock import Clock, ManualClock
from sparklog.format.checkpoint_files import topic_id_text
from sparklog.fs import LOCAL, FileSystem
from sparklog.log.due_segments import largest_timestamps
from sparklog.logdir.home import commits_of
from sparklog.logdir.partition.log_segment_data import LogDirSegmentData
from sparklog.logdir.partition.partition_segments import LogDirSegments
from sparklog.logdir.retention.partition_retention import segments_of
from sparklog.logdir.segment_files import joined
from sparklog.storage.segment_store import SegmentPut
from sparklog.tiered.layout.manifest import parse
from sparklog.tiered.object_store.store import Store
from sparklog.tiered.remote_segment import RemoteSegment, SegmentState
from tests.service.logs import told

Put = SegmentPut[RemoteSegment]

TIERED = {
    "remote.storage.enable": "true",
    "internal.segment.bytes": "400",
    "index.interval.bytes": "1",
    "retention.ms": "-1",
    "file.delete.delay.ms": "0",
}


def value(number: int) -> bytes:
    return f"{number:04d}".ljust(100, ".").encode()


def rows(numbers: Sequence[int], at_ms: int) -> pa.Table:
    stamps = pa.array([at_ms] * len(numbers), pa.timestamp("ms", tz="UTC"))
    return pa.table({"value": [value(n) for n in numbers], "timestamp": stamps})


def filled(
    path: str | Path,
    clock: ManualClock,
    count: int = 12,
    *,
    partitions: int = 1,
    fs: FileSystem = LOCAL,
    **config: str,
) -> sparklog.Log:
    """A log with topic t: `count` appends of one record, a second apart, round the partitions."""
    log = sparklog.open(path, "rw", clock=clock, fs=fs)
    given = TIERED | {k.replace("_", "."): v for k, v in config.items()}
    log.create_topic("t", partitions, config=given)
    told(log)
    grow(log, clock, count)
    return log


def grow(log: sparklog.Log, clock: ManualClock, count: int, topic: str = "t") -> None:
    partitions = len(log.offsets(topic))
    first = sum(end for _, end in log.offsets(topic).values())
    for n in range(first, first + count):
        log.append(topic, rows([n], clock()), partition=n % partitions)
        clock.advance(1000)


def data_of(segment: RemoteSegment, directory: str, log_start: int = 0) -> LogDirSegmentData:
    """The files of a segment."""
    return LogDirSegmentData(
        fs=LOCAL, directory=directory, base=segment.base, end=segment.end, size=segment.size,
        log_start=log_start,
    )  # fmt: skip


def puts_of(log: sparklog.Log, clock: Clock, topic: str = "t", p: int = 0) -> list[Put]:
    """A put of each closed segment of a partition."""
    commits = commits_of(log)
    directory = commits.partition_path(topic, p)
    state = commits.state
    held = segments_of(commits.fs, directory)
    largest = largest_timestamps(LogDirSegments(commits.fs, directory), state.ends[topic, p])
    puts = []
    for n, (one, following) in enumerate(itertools.pairwise(held)):
        segment = RemoteSegment(
            topic=topic,
            topic_id=state.topics[topic].id,
            partition=p,
            id=topic_id_text((p * 1000 + n + 1).to_bytes(16, "big")),
            base=one.base,
            end=following.base,
            max_timestamp=largest(one.base),
            size=one.size,
            epochs=((0, one.base),),
            state=SegmentState.COPY_STARTED,
            time_ms=clock(),
            has_txn_index=commits.fs.exists(joined(directory, f"{one.base:020d}.txnindex")),
        )
        puts.append(
            SegmentPut(
                segment=segment,
                data=data_of(segment, directory, state.starts.get((topic, p), 0)),
                config=state.topics[topic].config,
                interval_bytes=state.topics[topic].parsed().index_interval_bytes,
            )
        )
    return puts


def manifests(store: Store) -> list[Any]:
    """All (manifest, body) in a store."""
    names = [o.name for o in store.list() if o.name.endswith(".manifest")]
    found = zip(names, store.get_many(names), strict=True)
    return [parse(raw, path=name) for name, raw in found if isinstance(raw, bytes)]
