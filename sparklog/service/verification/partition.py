"""Checks a partition in a pass over its segments."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from sparklog.common import TopicPartition
from sparklog.errors import DataCorruptionError
from sparklog.format.checkpoint_files import parse_partition_metadata
from sparklog.format.index import RELATIVE_MAX
from sparklog.format.names import PARTITION_METADATA, log_name, snapshot_name
from sparklog.fs import FileSystem, read_bytes
from sparklog.log.batch_figures import BatchTally
from sparklog.logdir.offline_partitions import why_foreign
from sparklog.logdir.partition.producer_snapshots import snapshot_offsets
from sparklog.logdir.segment_files import bases_of, first_offset, joined
from sparklog.service.verification.appends import AppendCheck
from sparklog.service.verification.batches import BatchCheck
from sparklog.service.verification.findings import Finding, Findings, FixKind, Severity
from sparklog.service.verification.indexes import index_checks
from sparklog.service.verification.leader_epochs import EpochCheck
from sparklog.service.verification.leftover_files import check_partition_files
from sparklog.service.verification.log_dir_state import ExpectedPartition, Situation
from sparklog.service.verification.producers import ProducerReplay
from sparklog.service.verification.segment import SegmentWalk, Walked
from sparklog.storage.committed_appends import Appends

SMALL_SHARE: Final = 10  # warn of a median below 1/10 of segment.bytes
CLOSED_LEAST: Final = 5  # minimum number of closed segments of the topic


@dataclass(slots=True)
class Checked:
    """The result for a partition.

    Attributes:
        end: Where the log actually ends.
        closed_bytes: The sizes of closed segments.
    """

    part: ExpectedPartition
    start: int = 0
    end: int = 0
    segments: int = 0
    bytes: int = 0
    closed_bytes: list[int] = field(default_factory=list)
    batches: BatchTally = field(default_factory=BatchTally)
    out: Findings = field(default_factory=Findings)


class PartitionCheck:
    """Checks a partition.

    Args:
        topic_id: The topic id in the ledger, if known.
        appends: The recorded appends to all partitions.
    """

    def __init__(
        self,
        fs: FileSystem,
        part: ExpectedPartition,
        *,
        topic_id: str | None,
        expiration_ms: int,
        appends: Mapping[TopicPartition, Appends],
    ) -> None:
        self._fs, self._part = fs, part
        self._topic_id, self._expiration_ms = topic_id, expiration_ms
        self.result = Checked(part, out=Findings(part.topic, part.partition))
        self._out = self.result.out
        self._epochs = EpochCheck(part)
        self._appends = AppendCheck(part.key, appends, self._out, gaps_below=part.gaps_below)
        self._batches = BatchCheck()
        self.result.batches = self._batches.tally
        self._is_foreign = False  # the files belong to another partition

    def run(self) -> Checked:
        """Check everything.

        Raises:
            FileNotFoundError: Files were moved during the check. The caller must check again.
        """
        part, result = self._part, self.result
        names = self._fs.listdir(part.path)
        misnamed = self._check_metadata()
        bases = self._live(bases_of(names))
        result.start = max(part.start, bases[0]) if bases else part.start
        result.end = result.start
        if bases:
            self._check_segments(bases, names)
        if misnamed is not None:
            self._check_name(*misnamed)
        result.end = max(result.end, result.start)
        check_partition_files(self._fs, part, names, result.end, self._out)
        if self._is_foreign:  # a repair would make foreign files look like this partition's
            self._out.found = [replace(finding, fix=None) for finding in self._out.found]
        return result

    def _check_metadata(self) -> tuple[str, str] | None:
        """Check partition.metadata. Return (path, reason) if the file names another partition.

        The batches are checked afterwards: they show whether the file or the directory is wrong.
        """
        path = joined(self._part.path, PARTITION_METADATA)
        fix = None if self._topic_id is None else FixKind.METADATA
        try:
            found = parse_partition_metadata(read_bytes(self._fs, path), path=path)
        except FileNotFoundError:
            self._out.add(Severity.DIFFERENCE, path, "it is missing", fix=fix)
            return None
        except DataCorruptionError as error:
            self._out.add(Severity.DIFFERENCE, path, error.reason, fix=fix)
            return None
        why = why_foreign(found, self._part.key, None)
        if why is not None:
            return path, f"it names partition {found.partition}"
        if self._topic_id is not None and _differs_in_one_bit(found.topic_id, self._topic_id):
            what = f"a flipped bit makes the topic id {found.topic_id}, not {self._topic_id}"
            self._out.add(Severity.DIFFERENCE, path, what, fix=fix)
        elif self._topic_id not in (None, found.topic_id):
            self._out.add(
                Severity.DIFFERENCE,
                path,
                f"topic id {found.topic_id} is not the ledger's {self._topic_id}: the directory is "
                "of another topic, or this file is; put the right one here",
            )
        return None

    def _check_name(self, path: str, what: str) -> None:
        """Report a partition.metadata that names another partition."""
        part = self._part
        if self._appends.confirmed and not self._is_foreign:
            self._out.add(
                Severity.DIFFERENCE,
                path,
                f"{what}, but the batches are {part.key}'s by the ledger's checksums",
                fix=None if self._topic_id is None else FixKind.METADATA,
            )
            return
        self._is_foreign = True
        self._out.add(
            Severity.DAMAGE,
            path,
            f"{what}: the directory is that partition's. If the two were swapped, stop what uses "
            "the log and rename them back; else restore this one from a copy",
            first=part.start,
            end=part.end,
        )

    def _live(self, bases: list[int]) -> list[int]:
        """Return the segments that belong to the log; report missing and surplus segments."""
        part, ours = self._part, self._part.situation.is_ours
        unreferenced_segments = [base for base in bases if ours and base > part.end]
        live = [base for base in bases if not (ours and base > part.end)]
        for base in unreferenced_segments:
            self._note_surplus(base)
        copies = _copied_segments(self._fs, part, live) if ours else {}
        for base, holds in copies.items():
            self._out.add(
                Severity.DIFFERENCE,
                joined(part.path, log_name(base)),
                f"the file begins with offset {holds} and is a copy of another segment: the "
                "segment before it holds all offsets up to the next one",
                first=base,
                fix=FixKind.ASIDE,
            )
        live = [base for base in live if base not in copies]
        error = part.missing_segments(part.path, live)
        if ours and error is not None:
            self._out.add(
                Severity.DAMAGE, error.path, error.reason, first=error.first, end=error.end
            )
        return live

    def _note_surplus(self, base: int) -> None:
        path, situation = joined(self._part.path, log_name(base)), self._part.situation
        what = f"the segment begins past the end {self._part.end}"
        if situation is Situation.CRASHED:
            self._out.add(Severity.LEFTOVER, path, what, first=base, fix=FixKind.OPEN)
        elif situation is Situation.CLOSED:
            self._out.add(Severity.DIFFERENCE, path, what, first=base, fix=FixKind.ASIDE)

    # -- segments

    def _check_segments(self, bases: list[int], names: list[str]) -> None:
        part, result = self._part, self.result
        replay = ProducerReplay(
            self._fs, part, self._out, bases[0], expiration_ms=self._expiration_ms
        )
        known = set(snapshot_offsets(names))
        expected = bases[0]
        for at, base in enumerate(bases):
            following = bases[at + 1] if at + 1 < len(bases) else None
            if at:
                self._join(base, expected)
                self._check_snapshot(replay, base, known, newest=False)
            walked = self._check_segment(base, following, expected, replay)
            expected = walked.end if following is None else max(walked.end, following)
            result.bytes += walked.disk_bytes
            if following is not None and walked.disk_bytes:
                result.closed_bytes.append(walked.disk_bytes)
        result.segments, result.end = len(bases), expected
        replay.state.end = expected
        if part.situation.is_clean and expected > max(part.start, bases[-1]):
            self._check_snapshot(replay, expected, known, newest=True)
        self._epochs.finish(self._fs, self._out, expected)

    def _join(self, base: int, expected: int) -> None:
        if expected > base:
            self._out.add(
                Severity.DAMAGE,
                joined(self._part.path, log_name(base)),
                f"the segment before goes on to {expected}",
                first=base,
                end=expected,
            )

    def _check_snapshot(
        self, replay: ProducerReplay, offset: int, known: set[int], *, newest: bool
    ) -> None:
        part = self._part
        if offset in known:
            replay.check_snapshot(offset, newest=newest)
        elif part.exact and offset > max(part.start, self.result.start) and not part.gaps_below:
            self._out.add(
                Severity.DIFFERENCE,
                joined(part.path, snapshot_name(offset)),
                "it is missing",
                fix=FixKind.SNAPSHOT,
                offset=offset,
            )

    def _check_segment(
        self, base: int, following: int | None, expected: int, replay: ProducerReplay
    ) -> Walked:
        part, last = self._part, following is None
        path = joined(part.path, log_name(base))
        indexes = index_checks(self._fs, part, base, last=last)
        replay.begin(path)
        self._epochs.begin(path)
        self._appends.begin(path, base)
        self._batches.begin()
        known = self._appends.is_known_before(following or part.end)
        walk = SegmentWalk(
            self._fs, part, base, self._out,
            following=following, expected=expected, is_known=known,
        )  # fmt: skip
        walked = walk.run([*indexes, self._epochs, replay, self._appends, self._batches])
        if not self._appends.finish(walked.end, damaged=walked.damaged):
            self._is_foreign = True
        if walked.damaged:
            replay.break_off()
            if not last:
                self._keep_tail(path)
            return walked  # derived files can't be checked without the batches
        is_rebuilt = last or base >= part.recovery_point  # by opening, after a crash
        is_leftover = part.situation is Situation.CRASHED and is_rebuilt
        severity = Severity.LEFTOVER if is_leftover else Severity.DIFFERENCE
        for check in indexes:
            check.finish(walked)
            check.file.report(self._out, severity, FixKind.INDEXES)
        replay.check_aborted(base, severity=severity, fix=FixKind.INDEXES)
        if walked.end - base > RELATIVE_MAX + 1:
            self._out.add(
                Severity.DIFFERENCE, path, f"its offsets overflow the index: {walked.end - base}",
                first=base, end=walked.end,
            )  # fmt: skip
        return walked

    def _keep_tail(self, path: str) -> None:
        """Let a repair keep the bytes past a damaged segment's end.

        Reads fail at these bytes. Without them, a read would skip the lost records without an
        error.
        """
        self._out.found = [
            replace(f, fix=None)
            if f.file == path and f.fix is not None and f.fix.kind is FixKind.TAIL
            else f
            for f in self._out.found
        ]


def _copied_segments(
    fs: FileSystem, part: ExpectedPartition, bases: Sequence[int]
) -> dict[int, int]:
    """Return {base offset in the name: first offset in the file} of copied segments.

    Readers stop at a copy under a wrong base offset, because the segment before it overlaps it.
    The segment before the copy also proves that the copy is not needed: it contains all offsets up
    to the next segment.

    A segment is not a copy if its first batch has a flipped base offset: the segment before it ends
    at the base offset in the name. Cost: 8 bytes per segment; for a possible copy, a pass over the
    segment before it.
    """
    found: dict[int, int] = {}
    before = bases[0] if bases else 0
    for at, base in enumerate(bases[1:], 1):
        first = first_offset(fs, joined(part.path, log_name(base)))
        following = bases[at + 1] if at + 1 < len(bases) else None
        if first is not None and first < base and _reaches(fs, part, before, following):
            found[base] = first
        else:
            before = base
    return found


def _reaches(fs: FileSystem, part: ExpectedPartition, base: int, following: int | None) -> bool:
    """Return True if a segment contains all offsets up to the next segment, or to the log end."""
    walk = SegmentWalk(fs, part, base, Findings(), following=following, expected=base)
    walked = walk.run([])
    return not walked.damaged and walked.end >= (part.end if following is None else following)


def _differs_in_one_bit(one: str, other: str) -> bool:
    """Return whether two texts of equal length differ in a single bit."""
    bits = sum((a ^ b).bit_count() for a, b in zip(one.encode(), other.encode(), strict=False))
    return len(one) == len(other) and bits == 1


def small_segments(partitions: Iterable[Checked]) -> list[Finding]:
    """Warn once per topic if its median closed segment is below a tenth of segment.bytes.

    Compacted topics are exempt: the cleaner shrinks and joins their segments.
    """
    topics: dict[str, list[Checked]] = {}
    for checked in partitions:
        config = checked.part.config
        if config is not None and not config.compact:
            topics.setdefault(checked.part.topic, []).append(checked)
    found: list[Finding] = []
    for topic, group in topics.items():
        part = group[0].part
        closed = [size for checked in group for size in checked.closed_bytes]
        if len(closed) < CLOSED_LEAST or part.config is None:
            continue
        median, wanted = statistics.median_low(closed), part.config.roll_bytes
        if median * SMALL_SHARE < wanted:
            out = Findings(topic)
            out.add(
                Severity.WARNING,
                part.path,
                f"half of the topic's {len(closed)} closed segments have at most {median} bytes, "
                f"segment.bytes is {wanted}: many small files are slow to list and to tier; raise "
                "segment.ms, or commit larger batches",
            )
            found += out.found
    return found
