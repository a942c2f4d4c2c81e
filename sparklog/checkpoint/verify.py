"""Verifies a checkpoint: each retained batch has plan, commit and state, and files are intact.

Records are checked by their CRCs; HDFS deltas, snapshots and RocksDB changelogs are decompressed
and read to the end mark; RocksDB's zips are checked by their CRCs, and the SST and log files that
they reference must exist, with the right size, and end like an SST. Contents of SSTs are checked
only by checksums that Hadoop or Spark stored beside them.
"""

import contextlib
import os
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Any, Final

import pyarrow as pa

from sparklog.checkpoint.batches import Batches
from sparklog.checkpoint.checkpoint_kind import CheckpointKind
from sparklog.checkpoint.files import Checkpoint, second_history
from sparklog.checkpoint.history import query_id
from sparklog.checkpoint.log_backed.layout import RESET
from sparklog.checkpoint.log_backed.partition import (
    CheckpointPartition,
    CheckpointSegment,
    epochs_of,
)
from sparklog.checkpoint.repair import DAMAGED
from sparklog.checkpoint.repair import repair as repair_records
from sparklog.checkpoint.running_query import report_concurrent_cleanup
from sparklog.checkpoint.spark_files.checksums import (
    check_hadoop,
    check_spark,
    hadoop_name,
    spark_name,
)
from sparklog.checkpoint.spark_files.state_changelog import read_changes
from sparklog.checkpoint.spark_files.state_files import plain, read_zip
from sparklog.checkpoint.spark_files.state_stores import (
    StateStore,
    metadata_path,
    unreferenced_files,
)
from sparklog.clock import monotonic_ms
from sparklog.errors import DataCorruptionError, StorageUnavailableError
from sparklog.format.names import CLEANED
from sparklog.fs import LOCAL, FileSystem
from sparklog.pluralize import pluralize
from sparklog.service.verification.findings import (
    BAD,
    FINDINGS_SCHEMA,
    Finding,
    Findings,
    Severity,
    findings_html,
    ordered,
)

_LOOKS: Final = 5
_SST_MAGICS: Final = (0x88E241B785F4CFF7, 0xDB4775248B80FB57)  # block-based, and its old form


@dataclass(slots=True, kw_only=True)
class CheckpointReport:
    """The result of `verify`.

    Attributes:
        path: The checkpoint.
        kind: "files", "log-backed" or "in runs": how the checkpoint is stored.
        batches: The retained batches.
        latest: The newest batch after which the query, a fork or a reset can continue, or None.
        outlook: What all of it means for the query's next start.
        stores: The number of state stores.
        files: The number of files read.
        bytes: The size of the files read.
        took_ms: The duration, in milliseconds.
        findings: The findings, worst first.

    Examples:
        >>> from sparklog.checkpoint import verify
        >>> report = verify("checkpoint")
        >>> report.ok, report.latest
        (True, 2)
    """

    path: str
    kind: CheckpointKind
    batches: list[int] = field(default_factory=list)
    latest: int | None = None
    outlook: str = ""
    stores: int = 0
    files: int = 0
    bytes: int = 0
    took_ms: float = 0.0
    findings: list[Finding] = field(default_factory=list)

    @property
    def is_log_backed(self) -> bool:
        """Whether the checkpoint is stored as a log dir."""
        return self.kind is CheckpointKind.LOG_BACKED

    @property
    def ok(self) -> bool:
        """Whether there is no damage and no difference, except for findings just repaired."""
        return not any(f.severity in BAD and not f.repaired for f in self.findings)

    def counts(self) -> dict[str, int]:
        """Return {severity: number of findings}."""
        found = Counter(str(f.severity) for f in self.findings)
        return {str(severity): found[str(severity)] for severity in Severity}

    def table(self) -> pa.Table:
        """Return the findings as a table."""
        return pa.Table.from_pylist([f.to_dict() for f in self.findings], schema=FINDINGS_SCHEMA)

    def to_dict(self) -> dict[str, Any]:
        """Return the report for JSON."""
        return {
            "ok": self.ok,
            "path": self.path,
            "kind": str(self.kind),
            "log_backed": self.is_log_backed,
            "batches": self.batches,
            "latest": self.latest,
            "outlook": self.outlook,
            "stores": self.stores,
            "files": self.files,
            "bytes": self.bytes,
            "took_ms": round(self.took_ms, 1),
            "counts": self.counts(),
            "findings": [f.to_dict() for f in self.findings],
        }

    def _repr_html_(self) -> str:
        head = str(self).partition("\n")[0]
        return findings_html(head, self.findings, [] if self.ok else [self.outlook])

    def __str__(self) -> str:
        counts = ", ".join(f"{n} {severity}" for severity, n in self.counts().items() if n)
        span = f"{self.batches[0]}..{self.batches[-1]}" if self.batches else "none"
        head = (
            f"{self.path}: batches {span}, {self.stores} state stores, {self.files} files, "
            f"{self.bytes} bytes: {counts or 'nothing found'}"
        )
        outlook = [] if self.ok else [self.outlook]
        return "\n".join([head, *map(str, self.findings), *outlook])


def verify(
    path: str | os.PathLike[str],
    *,
    repair: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    fs: FileSystem = LOCAL,
) -> CheckpointReport:
    """Verify a checkpoint. Takes no lock and works while the query is running.

    A running query writes and removes files during the check. So the check is repeated if it finds
    damage, and only findings of both checks are reported.

    Args:
        path: The checkpoint: a local path, or the URL of a checkpoint in a bucket.
        repair: Remove damaged records from the log dir, with the query stopped. Intact records, and
            those that can be corrected, stay; the original segment remains as `.damaged`. In runs,
            remove the files that can't be read. Then verify the result. Files of Spark's own
            manager are never changed.
        storage_options: Options of fsspec for a checkpoint in a bucket.
        fs: The file system of the checkpoint; for tests.

    Returns:
        Findings, worst first, each with file and byte position. `ok` is False for damage:
        something is lost or wrong that can't be derived. Old batches without their state, which
        Spark has removed, are a warning.

    Raises:
        InvalidRequestError: There is no checkpoint.
        LogLockedError: The query repeatedly cleans up, or (repair) is running.
        StorageUnavailableError: The disk fails, or the store does not answer.

    Cost:
        Reads all files once, with damage twice; entries of state files take about a second per
        million.

    Examples:
        >>> from sparklog.checkpoint import verify
        >>> verify("checkpoint").counts()["damage"]
        0
    """
    began = monotonic_ms()
    inspect = partial(Checkpoint.inspect, path, fs, storage_options or {})
    done = repair_records(inspect()) if repair else []
    report = _verify_once(path, inspect)
    if not report.ok:
        before = {_same(finding) for finding in report.findings}
        report = _verify_once(path, inspect)
        report.findings = [
            f for f in report.findings if f.severity not in BAD or _same(f) in before
        ]
    report.findings = ordered([*done, *report.findings])
    report.took_ms = monotonic_ms() - began
    return report


def _verify_once(
    path: str | os.PathLike[str], inspect: Callable[[], Checkpoint]
) -> CheckpointReport:
    for _ in range(_LOOKS - 1):
        with contextlib.suppress(FileNotFoundError):  # removed by Spark since the listing
            return _Verifier(inspect()).run()
    with report_concurrent_cleanup(path):
        return _Verifier(inspect()).run()


def _same(finding: Finding) -> tuple[object, ...]:
    """Return the identity of a finding in both checks; a cleaning in between moves records."""
    return finding.severity, finding.file, finding.what


class _Verifier:
    def __init__(self, checkpoint: Checkpoint) -> None:
        self._checkpoint, self._fs = checkpoint, checkpoint.fs
        self._batches = Batches(checkpoint)
        self._out = Findings()
        self._report = CheckpointReport(path=checkpoint.path, kind=checkpoint.kind)

    def run(self) -> CheckpointReport:
        checkpoint, report = self._checkpoint, self._report
        for damage in checkpoint.damage.values():
            self._damage(damage)
        for partition in checkpoint.partitions.values():
            self._check_partition(partition)
        self._check_leftovers()
        for beside in second_history(self._checkpoint):
            self._damage(beside)
        self._try("metadata", lambda: query_id(checkpoint))
        unnamed = self._unreferenced()
        for path in checkpoint.paths():
            if path not in unnamed:
                self._check_file(path)
        for store in self._batches.stores:
            for name in [*store.snapshots.values(), *store.changes.values()]:
                self._check_state(store, name)
        self._check_batches()
        report.stores = len(self._batches.stores)
        report.findings = ordered(self._out.found)
        report.outlook = self._outlook()
        return report

    # -- the log dir ---------------------------------------------------------------------------

    def _check_partition(self, partition: CheckpointPartition) -> None:
        try:
            epochs_of(self._fs, partition.directory)
        except DataCorruptionError as error:
            self._damage(error)
        for name in self._fs.listdir(partition.directory):
            if name.endswith(CLEANED):
                where = os.path.join(partition.directory, name)
                self._out.add(Severity.LEFTOVER, where, "an interrupted cleaning left this file")
            elif DAMAGED in name:
                where = os.path.join(partition.directory, name)
                what = (
                    "a repair moved the original here; remove the file when it is no longer needed"
                )
                self._out.add(Severity.LEFTOVER, where, what)
        for segment in partition.segments:
            for lost in segment.damaged:
                self._out.add(
                    Severity.WARNING,
                    partition.path(segment),
                    f"a damaged record of {lost.key} is no longer needed; with the query stopped, "
                    "--repair removes it, as does the next cleaning",
                    position=lost.position,
                    first=lost.first,
                    end=lost.end,
                )
            if segment.is_torn:
                self._note_torn(partition, segment)

    def _note_torn(self, partition: CheckpointPartition, segment: CheckpointSegment) -> None:
        """Report a torn write, a write in progress, or damage of the last record."""
        damage = self._checkpoint.damaged_end(partition)
        if damage is not None:
            self._damage(damage)
            return
        self._out.add(
            Severity.LEFTOVER,
            partition.path(segment),
            "a write was interrupted, or is in progress",
            position=segment.end,
            first=segment.next_offset,
        )

    def _check_leftovers(self) -> None:
        checkpoint = self._checkpoint
        if RESET in checkpoint.files():
            self._out.add(
                Severity.LEFTOVER,
                checkpoint.real(RESET),
                "a reset is unfinished: the log must be reset too, which the query's sink or "
                "another reset does",
            )
        for path in sorted(checkpoint.files()):
            if path.endswith(".tmp"):
                self._out.add(
                    Severity.LEFTOVER,
                    checkpoint.real(path),
                    "the file is being written, or a crash left it",
                )

    def _unreferenced(self) -> set[str]:
        """Return RocksDB files that no snapshot references.

        Their snapshot is not written yet, or was removed.
        """
        try:
            return unreferenced_files(self._checkpoint, self._batches.stores)
        except (DataCorruptionError, FileNotFoundError):  # reported where the snapshot is checked
            return set()

    # -- files ---------------------------------------------------------------------------------

    def _check_file(self, path: str) -> None:
        """Check that a file can be read, and matches the checksums beside it."""
        checkpoint = self._checkpoint
        hadoop, spark = hadoop_name(path), spark_name(path)
        names = checkpoint.files()

        def check() -> None:
            stat, data = checkpoint.stat(path), checkpoint.read(path)
            self._report.files += 1
            self._report.bytes += len(data)
            where = checkpoint.locate(path)[0]
            if not stat.is_record and hadoop in names:
                check_hadoop(data, checkpoint.read(hadoop), where, checkpoint.real(hadoop))
            if checkpoint.exists(spark):
                check_spark(data, checkpoint.read(spark), where, checkpoint.locate(spark)[0])
            magic = int.from_bytes(data[-8:], "little")
            if path.endswith(".sst") and magic not in _SST_MAGICS:
                raise DataCorruptionError(
                    "the file does not end like an SST file",
                    path=where,
                    position=max(0, len(data) - 8),
                )

        self._try(path, check)

    def _check_state(self, store: StateStore, name: str) -> None:
        path = store.path(name)
        where = self._checkpoint.locate(path)[0]

        def check() -> None:
            data = self._checkpoint.read(path)
            if name.endswith(".zip"):
                read_zip(data, where, check=True)
                return
            read_changes(plain(data, where), where)

        self._try(path, check)

    # -- batches -------------------------------------------------------------------------------

    def _check_batches(self) -> None:
        batches, report = self._batches, self._report
        known = sorted({*batches.planned, *batches.committed})
        report.batches = known
        for batch in batches.planned:
            self._try(f"offsets/{batch}", partial(batches.offsets, batch))
        for batch in batches.committed:
            self._try(f"commits/{batch}", partial(batches.commit, batch))
        expected = known or (self._checkpoint.has_marker and self._checkpoint.partitions)
        if expected and not self._checkpoint.exists("metadata"):  # sinks know batches by the id
            self._report_missing("metadata")
        if not known:
            return
        self._try(f"offsets/{batches.last}", self._check_repartition)
        skipped = [b for b in range(known[0], known[-1]) if batches.was_skipped(b)]
        if skipped:
            self._out.add(
                Severity.WARNING,
                self._checkpoint.real("offsets"),
                f"{pluralize(len(skipped), 'batch', 'batches')} from {skipped[0]} to {skipped[-1]} "
                "have neither plan nor commit. This is normal with asynchronous progress "
                "tracking; without it, plans and commits were lost",
            )
        for batch in sorted({*range(known[0], known[-1] + 1)}.difference(skipped)):
            # Spark removes the oldest plans and commits at different times.
            if batch not in batches.planned and batch > min(batches.planned, default=-1):
                self._report_missing(f"offsets/{batch}")
            # The first batch is committed before the second is planned.
            first = min(batches.committed, default=known[0] - 1)
            if batch not in batches.committed and first < batch < known[-1]:
                self._report_missing(f"commits/{batch}")
        self._check_states()

    def _check_repartition(self) -> None:
        if self._batches.unfinished_repartition():
            batch = self._batches.planned[-1]
            # The repartition commits a batch that the query left without a commit, without state.
            latest = max(self._batches.reachable(), default=None)
            back = (
                ""
                if latest is None
                else (
                    "; or go back to the last batch before it: `sparklog checkpoint reset "
                    f"{self._checkpoint.path} --to {latest}`"
                )
            )
            raise DataCorruptionError(
                f"Spark's offline repartition planned batch {batch} and did not finish: the "
                "query does not start (STREAMING_UNFINISHED_REPARTITION_DETECTED). Run the "
                f"repartition again, if the state store provider supports it (RocksDB){back}",
                path=self._checkpoint.locate(f"offsets/{batch}")[0],
            )

    def _is_before_repartition(self, batch: int) -> bool:
        is_last = batch == self._batches.committed[-1]
        return is_last and self._batches.unfinished_repartition()

    def _check_states(self) -> None:
        """Check that the last commit, and all since the first complete commit, have their state."""
        batches = self._batches
        for operator in sorted({store.operator for store in batches.stores}):
            if metadata_path(self._checkpoint, operator, batches.last) is None:
                self._out.add(
                    Severity.WARNING,
                    self._checkpoint.real(f"state/{operator}/_metadata"),
                    f"operator {operator} has state and no metadata. This is normal only if "
                    "Spark 3.5 or older began the checkpoint",
                )
        seen = False
        for batch in batches.committed:
            obstacle = batches.obstacle(batch)
            if obstacle is None:
                seen, self._report.latest = True, batch
                continue
            lost = seen or batch == batches.committed[-1]
            if not lost and batch and batch - 1 not in batches.planned:
                continue  # normal for the oldest batch
            if lost and (batches.is_dropped(batch) or self._is_before_repartition(batch)):
                lost, obstacle = False, "Spark's offline repartition skipped this batch"
            self._out.add(
                Severity.DAMAGE if lost else Severity.WARNING,
                self._checkpoint.locate(f"commits/{batch}")[0],
                f"no fork or reset can go back to batch {batch}: {obstacle}",
            )

    def _outlook(self) -> str:
        """Describe the next start of the query: where it continues, or why it fails."""
        path, batches = self._checkpoint.path, self._batches
        ends = filter(None, map(self._checkpoint.damaged_end, self._checkpoint.partitions.values()))
        damage = next(chain(self._checkpoint.damage.values(), ends), self._checkpoint.lost_id())
        if damage is not None:
            return f"the query can't be started: {damage}"
        if not batches.planned:
            return "no batch was planned: the query begins with its first batch"
        newest = batches.planned[-1]
        if any("UNFINISHED_REPARTITION" in finding.what for finding in self._out.found):
            return f"the query can't be started: batch {newest} is an unfinished repartition"
        behind = newest if newest in batches.committed else batches.previous_plan(newest) or 0
        if batches.committed and batches.committed[-1] > newest:
            obstacle: str | None = (
                f"batch {batches.committed[-1]} is committed, but its plan is missing"
            )
        elif newest == 0 and not batches.committed:
            return "the query runs its first batch again"
        else:
            obstacle = batches.obstacle(behind)
        if obstacle is None:
            again = "" if behind == newest else f"; batch {newest}, planned already, runs again"
            return f"the query continues after batch {behind}{again}"
        latest = max(batches.reachable(), default=None)
        cure = (
            "no batch is complete: restore the checkpoint from an archive, or use a new checkpoint"
            if latest is None
            else f"go back: `sparklog checkpoint reset {path} --to {latest}`, with --log LOG if "
            "the query writes to a log, which then appends the later batches again"
        )
        return f"the query can't continue after batch {behind}: {obstacle}; {cure}"

    # -- findings ------------------------------------------------------------------------------

    def _report_missing(self, path: str) -> None:
        self._out.add(Severity.DAMAGE, self._checkpoint.real(path), "the file is missing")

    def _damage(self, error: DataCorruptionError, shift: int = 0) -> None:
        position = None if error.position is None else error.position + shift
        if not any(f.file == error.path and f.what == error.reason for f in self._out.found):
            self._out.add(
                Severity.DAMAGE,
                error.path,
                error.reason,
                position=position,
                first=error.first,
                end=error.end,
            )

    def _try(self, path: str, check: Callable[[], object]) -> None:
        """Run a check of a file.

        A position within a record is converted to a position in its segment.
        """
        try:
            check()
        except DataCorruptionError as error:
            where, begin = self._checkpoint.value_at(path)
            inside = error.path == where and error.first is None
            self._damage(error, begin if inside else 0)
        except FileNotFoundError:
            pass  # removed by Spark; _check_batches reports files that a batch needs
        except StorageUnavailableError as error:
            self._out.add(Severity.DAMAGE, self._checkpoint.real(path), str(error))
