"""Compacted logs in a store, for tests of their cleaner."""

from collections.abc import Mapping
from pathlib import Path

from sparklog.clock import ManualClock
from sparklog.diskless.cleaning import DisklessCleaner
from sparklog.diskless.extents import Extent
from sparklog.diskless.home_object import create_home
from sparklog.diskless.import_objects import BucketTarget, LogImport
from sparklog.diskless.segment_healing import segment_of
from sparklog.diskless.tier_import import plan_tier_import
from sparklog.format.names import snapshot_name
from sparklog.log.partition_reader import PartitionReader
from sparklog.log.rounds import LogCleaner, QuarantinedPartitions
from sparklog.storage.round_report import CleanReport, Report
from sparklog.testing.faultstore import Bucket, FaultStore
from sparklog.tiered.reading.block_cache import BlockCache
from sparklog.tiered.reading.remote_objects import RemoteObjects
from tests.diskless.logs import LOG_ID, T0, Home
from tests.tiered.buckets import DictStore, copy_partition


class Compacted(Home):
    """A log with one compacted topic, and its service."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.quarantined = QuarantinedPartitions()
        steps = DisklessCleaner(
            self.log, self.lease, self.merger, self.garbage, self.quarantined, self.options
        )
        self.cleaner = LogCleaner(steps, self.quarantined, enabled=True, backoff_ms=0)

    def write(self, **values: str | None) -> None:
        for key, value in values.items():
            self.commit(value, key=key.encode())  # type: ignore[arg-type]

    def clean(self, *, every: bool = True, **given: bool) -> tuple[list[CleanReport], Report]:
        report = self.report(**given)
        self.cleaner.clean(report, every=every)
        return report.cleaned, report

    def offsets(self) -> list[int]:
        return [offset for offset, _ in self.read()]


def compacted(**given: object) -> Compacted:
    home = Compacted(**given)  # type: ignore[arg-type]
    config = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": "0"}
    home.topic(**config)
    home.lead()
    return home


def cleaned() -> Compacted:
    """A log with a home object: a cleaned segment of t-0, and a commit behind it."""
    home = compacted()
    create_home(home.store, LOG_ID, home.clock)
    for n in range(4):
        home.commit(str(n), key=f"k{n % 2}".encode())
    home.merge_all()
    home.commit("last", key=b"k0")
    home.clean()
    assert T0 in home.state.gaps
    return home


class Imported(Compacted):
    """A log that was a tier; `t` is its topic."""

    def clean_from(self, first_dirty: int) -> CleanReport:
        """Clean partition 0, dirty from an offset on; nothing goes wrong."""
        self.lease.notes.cleaned[f"{self.state.log.topics['t'].id}/0"] = first_dirty
        (cleaned,), report = self.clean()
        assert not report.errors
        assert not cleaned.interrupted
        return cleaned

    def reader(self) -> PartitionReader:
        return PartitionReader(self.merger.segments(T0, self.state))

    def write_partition(self, directory: Path) -> None:
        """Write the segments of partition 0 as a log dir has them, with an empty one behind."""
        directory.mkdir(parents=True)
        state = self.state
        topic_id = state.log.topics["t"].id
        (directory / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}\n")
        for extent in state.extents[T0]:
            name = f"{extent.base:020d}"
            (directory / f"{name}.log").write_bytes(self.store.get(extent.object))
            for suffix in (".index", ".timeindex", ".txnindex"):
                raw = self.part(extent, suffix)
                if raw or suffix != ".txnindex":
                    (directory / f"{name}{suffix}").write_bytes(raw or b"")
            snapshot = self.part(extent, ".snapshot") or b""
            (directory / snapshot_name(extent.end)).write_bytes(snapshot)
            epochs = self.part(extent, "leader-epoch-checkpoint") or b""
            (directory / "leader-epoch-checkpoint").write_bytes(epochs)
        for suffix in (".log", ".index", ".timeindex"):
            (directory / f"{state.log.ends[T0]:020d}{suffix}").touch()

    def part(self, extent: Extent, name: str) -> bytes | None:
        """A part of a segment's manifest, which is there."""
        objects = RemoteObjects(lambda: self.store, BlockCache(0), self.keyring)
        return objects.open(segment_of(self.state, T0, extent)).part(name)


def imported(directory: Path, clock: ManualClock, config: Mapping[str, str]) -> Imported:
    """Make a log of a partition directory `t-0`, but for its active segment, by way of a tier."""
    held, bucket = DictStore(), Bucket()
    copy_partition(directory, held, gaps=True, config=config)
    source, target = FaultStore(Bucket(), clock), FaultStore(bucket, clock)
    for name, data in held.objects.items():
        source.put(name, data)
    place = BucketTarget(store=target, threads=1, clock=clock)
    home = LogImport(place, "a tier")
    home.claim()
    tier = RemoteObjects(lambda: source, BlockCache(0))
    home.run(plan_tier_import(tier, place, LOG_ID))
    log = Imported(bucket, clock)
    log.lead()
    return log


def visible(
    reader: PartitionReader, isolation: str, end: int, start: int = 0
) -> list[dict[str, object]]:
    """The records below `end`, or the last stable offset there, as readers see them."""
    if isolation == "read_committed":
        end = reader.last_stable_offset(end)
    found = reader.read(start, end, isolation=isolation) if start < end else iter(())
    return [row for rows in found for row in rows.to_pylist()]

