"""Logs to compact on a CrashFS, and the model of what may be seen of them at any moment."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

import sparklog
from sparklog.clock import ManualClock
from sparklog.common import TopicPartition
from sparklog.format.compression import Codec
from sparklog.format.records import encode
from sparklog.logdir.cleaning.cleaner import clean_partition, plan_job, swap_of
from sparklog.logdir.cleaning.rewrite import rewrite
from sparklog.logdir.commit_log import LogDirCommits
from sparklog.logdir.home import commits_of
from sparklog.storage.ledger_records import AppendRecord
from sparklog.storage.offset_ranges import OffsetRange
from sparklog.storage.round_report import CleanReport
from sparklog.testing.crashfs import CrashFS
from tests.crash.harness import ROOT, open_log
from tests.format.control_batches import encode_control

TOPIC = "t"
CONFIG = {
    "cleanup.policy": "compact",
    "index.interval.bytes": "1",
    "min.cleanable.dirty.ratio": "0",
}
Row = tuple[int, bytes | None, bytes | None]
Rows = tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class Data:
    """A batch of (key, value); `aborted` ones carry a producer, whose marker comes later."""

    rows: tuple[tuple[bytes, bytes | None], ...]
    producer: int = -1
    aborted: bool = False


@dataclass(frozen=True, slots=True)
class Mark:
    """The end of a producer's transaction."""

    producer: int
    kind: int


Segment = tuple[Data | Mark, ...]


def keyed(*keys: str) -> Segment:
    """A segment with a record a key, one batch each."""
    return tuple(Data(((key.encode(), b"v"),)) for key in keys)


TAIL = keyed("z")


@dataclass(frozen=True, slots=True)
class Scenario:
    """`segments` are closed one by one, `tail` stays active; then `bytes_max` makes the groups."""

    name: str
    segments: tuple[Segment, ...]
    bytes_max: int
    tail: Segment = TAIL


SCENARIOS = (
    Scenario("four segments become one", (keyed("a", "b"), keyed("c", "a"), keyed("b", "d"),
             keyed("a", "e")), 10_000),
    Scenario("two groups", (keyed("a", "b"), keyed("c", "a"), keyed("b", "d"), keyed("a", "e")),
             400),
    Scenario("alone in its group", (keyed("a", "b", "a"),), 100),
    Scenario("nothing is left", (keyed("a"), keyed("a"), keyed("b", "a")), 100),
    Scenario("nothing is left of a group's end", (keyed("a", "b"), keyed("c"), keyed("c"),
             keyed("d"), keyed("c", "d")), 420),
    Scenario("transactions", (
        (Data(((b"a", b"1"), (b"b", b"1")), 7, aborted=True), *keyed("c"), Mark(7, 0)),
        (Data(((b"b", b"2"),), 7), Data(((b"c", b"2"),), 8, aborted=True), Mark(7, 1)),
        (*keyed("c"), Mark(8, 0), Data(((b"e", None),), 7), Mark(7, 1)),
    ), 10_000),
)  # fmt: skip


@dataclass(slots=True)
class World:
    """One log of a scenario, written and still open, and what may be seen while it is cleaned."""

    scenario: Scenario
    fs: CrashFS
    clock: ManualClock
    log: sparklog.Log
    rows: list[tuple[Row, bool]] = field(default_factory=list)  # and whether it was aborted
    end: int = 0
    sequences: dict[int, int] = field(default_factory=dict)

    @classmethod
    def of(cls, scenario: Scenario, **options: Any) -> World:
        clock = ManualClock()
        fs = CrashFS(clock=clock, page_bytes=512, **options)
        world = cls(scenario, fs, clock, open_log(fs, clock))
        world.log.create_topic(TOPIC, config={**CONFIG, "internal.segment.bytes": "100000"})
        for segment in scenario.segments:
            world.write(segment, roll=True)
        world.write(scenario.tail)
        config = {"internal.segment.bytes": str(scenario.bytes_max)}
        world.log.alter_topic(TOPIC, config=config)
        return world

    @property
    def commits(self) -> LogDirCommits:
        return commits_of(self.log)

    def write(self, segment: Segment, *, roll: bool = False) -> None:
        with self.commits.exclusive(), self.commits.step([TopicPartition(TOPIC, 0)]) as step:
            log = self.commits.partition_log(TOPIC, 0)
            first = log.end_offset
            for batch in segment:
                log.append(self._raw(batch), 0)
            if roll:
                log.roll()
            log.sync()
            ends = {TopicPartition(TOPIC, 0): OffsetRange(first, log.end_offset)}
            step.record = AppendRecord(ends=ends, idempotent=True)

    def _raw(self, batch: Data | Mark) -> bytes:
        self.clock.advance(1)
        if isinstance(batch, Mark):
            self.end += 1
            return encode_control(
                batch.kind, base_offset=0, timestamp=self.clock(), producer_id=batch.producer,
                producer_epoch=0, coordinator_epoch=0,
            )  # fmt: skip
        for key, value in batch.rows:
            self.rows.append(((self.end, key, value), batch.aborted))
            self.end += 1
        sequence = self.sequences.get(batch.producer, 0)
        self.sequences[batch.producer] = sequence + len(batch.rows)
        columns = zip(*batch.rows, strict=True)
        keys, values = (pa.array(column, pa.binary()) for column in columns)
        return bytes(
            encode(
                pa.table({"key": keys, "value": values}),
                codec=Codec.NONE,
                timestamp_ms_default=self.clock(),
                producer=(batch.producer, 0, sequence) if batch.producer >= 0 else None,
                transactional=batch.producer >= 0,
            ).data
        )

    def seen_at(self, bound: int) -> tuple[Rows, Rows]:
        """What is seen, uncommitted and committed, when all below `bound` is compacted."""
        closed = plan_job(self.commits, TOPIC, 0).bases[-1]
        newest = {r[1]: r[0] for r, aborted in self.rows if r[0] < closed and not aborted}
        left = [
            (row, aborted)
            for row, aborted in self.rows
            if row[0] >= bound or (not aborted and newest.get(row[1]) == row[0])
        ]
        return tuple(r for r, _ in left), tuple(r for r, aborted in left if not aborted)

    def allowed(self) -> list[tuple[Rows, Rows]]:
        """Every state from before to after: group by group, nothing in between."""
        job = plan_job(self.commits, TOPIC, 0)
        bounds = [0]
        following = dict(zip(job.bases, job.bases[1:], strict=False))
        for made in rewrite(self.fs.kill_clone(), job):
            swap = swap_of(made)
            bounds += [following[base] for base in ([swap.base, *swap.covered][-1:])]
            bounds += [following[base] for base in swap.trailing]
        return [self.seen_at(bound) for bound in bounds]


def clean(log: sparklog.Log) -> CleanReport:
    return clean_partition(commits_of(log), TOPIC, 0)


def seen(log: sparklog.Log) -> tuple[Rows, Rows]:
    """Read all, in both isolations."""
    found = []
    for isolation in ("read_uncommitted", "read_committed"):
        table = log.read(TOPIC, isolation=isolation, columns=["offset", "key", "value"]).read_all()
        columns = (table.column(name).to_pylist() for name in ("offset", "key", "value"))
        found.append(tuple(zip(*columns, strict=True)))
    return found[0], found[1]


def names(fs: CrashFS) -> list[str]:
    return fs.listdir(f"{ROOT}/{TOPIC}-0")
