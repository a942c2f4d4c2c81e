"""Rebuilds the state of a log with a damaged ledger, and reports the source of each fact.

Sources, in this order: the surviving records of the ledger, from the best snapshot on (the ledger's
or `sparklog.state`); `sparklog.topics` for topics; `sparklog.watermarks` for ends and log starts;
the partitions' directories and segments for all other facts. PROTOCOL, "Repair of the ledger".
"""

import bisect
import contextlib
import itertools
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from sparklog.common import TopicPartition
from sparklog.errors import DataCorruptionError, SparklogError
from sparklog.format.checkpoint_files import topic_id_text
from sparklog.format.names import parse_deleted_dir
from sparklog.fs import FileSystem
from sparklog.log.topic_names import INTERNAL, REMOTE_METADATA
from sparklog.logdir.high_watermarks import Published, published
from sparklog.logdir.ledger import LEDGER, ledger_path
from sparklog.logdir.offline_partitions import stored_topic_id
from sparklog.logdir.offset_checkpoints import LOG_START, read_offsets
from sparklog.logdir.partition.leader_epochs import read_epochs
from sparklog.logdir.recovery.partition_recovery import valid_end
from sparklog.logdir.segment_files import is_partition, joined, segment_bases
from sparklog.logdir.state_copy import StateCopy, read_state_copy
from sparklog.logdir.topics_file import deleted_path, read_topics
from sparklog.pluralize import pluralize
from sparklog.service.repair.ledger_salvage import SurvivingLedger
from sparklog.service.verification.log_dir_state import LogDirState, Offsets
from sparklog.storage.deleted_topic import DeletedTopic
from sparklog.storage.ledger_records import (
    AppendRecord,
    DropRecord,
    LostCommits,
    SnapshotRecord,
    TopicRecord,
    UndeleteRecord,
)
from sparklog.storage.log_state import LogState
from sparklog.storage.offset_ranges import OffsetRange, SpansByKey, merged
from sparklog.storage.topic_state import TopicState
from sparklog.tiered.settings import read_settings

_KEEP: Final = {"retention.ms": "-1"}  # a lost configuration must not expire records
_DELETED_DELAY_MS: Final = 7 * 86_400_000


@dataclass(slots=True)
class RebuiltState:
    """The state, the ledger offset for the snapshot, and sentences on sources and losses."""

    state: LogState
    end: int = 0
    sources: list[str] = field(default_factory=list)
    losses: list[str] = field(default_factory=list)


def published_floor(marks: Published | None) -> int:
    """Return the published ledger end: the ledger can't have ended below."""
    return 0 if marks is None else max(marks.durable, marks.ends.get(LEDGER, 0))


def rebuilt_state(
    fs: FileSystem,
    log_dir_state: LogDirState,
    ledger: SurvivingLedger,
    *,
    now_ms: int,
    was_crash: bool,
) -> RebuiltState:
    """Return the state as of the ledger's end. Cost: a listing per partition.

    `was_crash` means that the log was not closed, so that the small files may lack the last
    records.
    """
    return _Rebuild(fs, log_dir_state, ledger, now_ms, was_crash).run()


class _Rebuild:
    def __init__(
        self,
        fs: FileSystem,
        log_dir_state: LogDirState,
        ledger: SurvivingLedger,
        now_ms: int,
        was_crash: bool,
    ) -> None:
        self._fs, self._dirs, self._ledger = fs, log_dir_state, ledger
        self._now_ms, self._home = now_ms, log_dir_state.home
        self._marks, self._copy = published(fs, self._home), read_state_copy(fs, self._home)
        self._end = max(
            ledger.end,
            published_floor(self._marks),
            0 if self._copy is None else self._copy.offset,
            *(base + 1 for base in ledger.filled),
        )
        copied = self._copy is not None and self._copy.offset == self._end
        is_known = copied or self._end - 1 in ledger.records
        self._is_tail_lost = not is_known or (was_crash and ledger.is_torn)
        self._absent: list[int] | None = None
        self._state = LogState()
        self._unattributed: SpansByKey = {}
        self._decided: set[str] = set()
        """Topics with a record behind all missing ones: the ledger decides, not sparklog.topics."""
        self._unconfigured: set[str] = set()
        """Topics whose configuration is lost."""
        self._out = RebuiltState(self._state, self._end)

    def run(self) -> RebuiltState:
        """Return the rebuilt state."""
        missing = self._fold()
        if missing or self._is_tail_lost:
            self._out.losses += _missing_records(missing, self._is_tail_lost)
            ends = dict(self._state.ends)
            self._settle_topics()
            self._settle_deleted()
            self._settle_offsets(ends)
            self._note_writers()
        state = self._state
        state.unsynced = set()
        state.epoch = max([state.epoch, *self._epochs()])
        state.time_ms = max(state.time_ms + 1, self._now_ms)
        if self._unattributed:
            known = {} if state.lost is None else state.lost.offsets
            offsets = {
                key: merged([*known.get(key, ()), *self._unattributed.get(key, ())])
                for key in known.keys() | self._unattributed.keys()
            }
            state.lost = LostCommits(time_ms=state.time_ms, offsets=offsets).above(state.starts)
        return self._out

    # -- records

    def _fold(self) -> list[int]:
        """Apply the surviving records to the best snapshot; return the offsets without a record."""
        first, root = self._root()
        missing = self._missing(first)
        if root is None:  # an unknown number of records before the oldest is missing
            missing = [max(first - 1, 0), *missing]
        else:
            self._state.apply(root)
        last = missing[-1] if missing else -1
        for offset in range(first, self._end):
            record = self._ledger.records.get(offset)
            if record is None:
                continue
            if isinstance(record, AppendRecord):
                for key, (start, _) in record.ends.items():
                    self._note(key, self._state.ends.get(key, 0), start)
            try:
                self._state.apply(record)
            except KeyError as error:
                self._out.losses.append(
                    f"the {record.kind} record at ledger offset {offset}: nothing is known of "
                    f"{error}"
                )
            if isinstance(record, TopicRecord | DropRecord | UndeleteRecord) and offset > last:
                self._decided.add(record.topic)
        return missing

    @property
    def _oldest(self) -> int:
        return min([*self._ledger.bases, *self._ledger.records, self._end])

    def _root(self) -> tuple[int, SnapshotRecord | None]:
        """Return the snapshot with the fewest missing records after it, and the snapshot's end."""
        roots: list[tuple[int, SnapshotRecord | None]] = [
            (offset + 1, record)
            for offset, record in self._ledger.records.items()
            if isinstance(record, SnapshotRecord)
        ]
        copy: StateCopy | None = self._copy
        if copy is not None:
            roots.append((copy.offset, copy.record))
        if not roots:
            return self._oldest, None
        first, root = max(roots, key=lambda one: (-len(self._missing(one[0])), one[0]))
        if copy is not None and root is copy.record:
            self._out.sources.append(f"sparklog.state, as of ledger offset {first}")
        else:
            self._out.sources.append(f"the ledger's snapshot at offset {first - 1}")
        if first < self._ledger.end:
            held = sum(offset >= first for offset in self._ledger.records)
            self._out.sources.append(f"{pluralize(held, 'surviving record')} behind it")
        return first, root

    def _missing(self, first: int) -> list[int]:
        """Return the ledger offsets from `first` on whose record is missing.

        The first record of a ledger segment doesn't count: it is a snapshot without new facts.
        """
        if self._absent is None:
            known, bases = self._ledger.records, set(self._ledger.bases)
            offsets = range(self._oldest, self._end)
            self._absent = [o for o in offsets if o not in known and o not in bases]
        return self._absent[bisect.bisect_left(self._absent, first) :]

    def _note(self, key: TopicPartition, first: int, end: int) -> None:
        if first < end:
            self._unattributed.setdefault(key, []).append(OffsetRange(first, end))

    # -- topics

    def _settle_topics(self) -> None:
        state, out = self._state, self._out
        try:
            topics = read_topics(self._fs, self._home)
        except SparklogError:
            topics = None
        if topics is None:
            self._settle_by_directories()
            return
        for name, topic in topics.items():
            if name not in self._decided and state.topics.get(name) != topic:
                state.topics[name] = topic
                out.sources.append(
                    f"topic {name}: its id, configuration and placement are from sparklog.topics"
                )
        for name in sorted(state.topics.keys() - topics.keys() - self._decided):
            topic = state.topics[name]
            is_there = any(
                self._fs.is_dir(deleted_path(self._dirs.directories, name, topic, p))
                for p, number in topic.dirs.items()
                if number < len(self._dirs.directories)
            )
            for p in topic.dirs:
                state.ends.setdefault(TopicPartition(name, p), 0)
            delay_ms = _DELETED_DELAY_MS if is_there else 0
            state.apply(
                DropRecord(
                    topic=name, id=topic.id, delay_ms=delay_ms, epoch=state.epoch,
                    time_ms=self._now_ms,
                )
            )  # fmt: skip
            out.sources.append(f"topic {name}: it was deleted, for it is not in sparklog.topics")

    def _settle_by_directories(self) -> None:
        """Find the topics by the directories of their partitions, without a topics file."""
        state = self._state
        for key, number in sorted(self._dirs.found.items()):
            path = joined(self._dirs.directories[number], str(key))
            if key.topic in INTERNAL - {REMOTE_METADATA} or not is_partition(self._fs, path):
                continue
            topic_id = None
            with contextlib.suppress(DataCorruptionError):
                topic_id = stored_topic_id(self._fs, path)
            known = state.topics.get(key.topic)
            if known is None or topic_id not in (None, known.id):
                if topic_id is None:
                    continue  # of an unknown topic: the next open adopts the directory
                known = TopicState(topic_id, dict(_KEEP), {}, adopted=True)
                self._unconfigured.add(key.topic)
                self._out.losses.append(
                    f"the configuration of topic {key.topic}: it keeps everything "
                    "(retention.ms=-1) until it is altered"
                )
            dirs = {**known.dirs, key.partition: number}
            state.topics[key.topic] = TopicState(
                known.id, known.config, dirs, known.adopted, known.bases, known.left
            )

    def _settle_deleted(self) -> None:
        """Add deleted topics whose directories exist, but whose ledger records are missing.

        They can then be restored with `Log.undelete_topic`, and are purged after a default delay.
        """
        state, fs = self._state, self._fs
        known = {topic.id for topic in state.topics.values()} | state.deleted.keys()
        found: dict[str, tuple[str, dict[int, int], dict[int, str]]] = {}
        for number, directory in self._dirs.numbered:
            for name in fs.listdir(directory):
                parsed = parse_deleted_dir(name)
                if parsed is None:
                    continue
                partition, mark = parsed
                topic_id = topic_id_text(bytes.fromhex(mark))
                topic = name.removesuffix(f"-{partition}.{mark}-delete")
                if topic_id not in known and is_partition(fs, joined(directory, name)):
                    _, dirs, paths = found.setdefault(topic_id, (topic, {}, {}))
                    dirs[partition], paths[partition] = number, joined(directory, name)
        for topic_id, (topic, dirs, paths) in sorted(found.items()):
            ends = {p: self._held_end(path, 0) for p, path in paths.items()}
            starts = {p: bases[0] for p, path in paths.items() if (bases := self._bases(path))}
            state.deleted[topic_id] = DeletedTopic(
                name=topic, topic=TopicState(topic_id, dict(_KEEP), dirs, adopted=True),
                deleted_ms=self._now_ms, delay_ms=_DELETED_DELAY_MS, ends=ends,
                starts={p: start for p, start in starts.items() if start},
                idempotent=frozenset(dirs),
            )  # fmt: skip
            for p, end in ends.items():
                key = TopicPartition(topic, p)
                state.dropped[key] = max(state.dropped.get(key, 0), end)
            self._out.sources.append(
                f"deleted topic {topic} (id {topic_id}): from its directories; it can be given "
                "back for seven days"
            )
            self._out.losses.append(f"the configuration of deleted topic {topic} (id {topic_id})")

    # -- offsets

    def _settle_offsets(self, folded: Mapping[TopicPartition, int]) -> None:
        state, marks, out = self._state, self._marks, self._out
        keys = {
            TopicPartition(name, p): topic for name, topic in state.topics.items()
            for p in topic.dirs
        }  # fmt: skip
        checkpoint = {} if marks is None else dict(marks.starts)
        if marks is None or self._is_tail_lost:  # a power cut may have reverted the watermarks
            for key, start in self._log_starts().items():
                checkpoint[key] = max(start, checkpoint.get(key, 0))
        out.sources.append(
            "ends and log starts: sparklog.watermarks, log-start-offset-checkpoint and segments"
            if marks is not None
            else "ends: the segments, for sparklog.watermarks can't be read; log starts: "
            "log-start-offset-checkpoint and the first segments"
        )  # fmt: skip
        ends, starts = {}, {}
        for key, topic in sorted(keys.items()):
            base = topic.bases.get(key.partition, 0)
            end = max(folded.get(key, base), 0 if marks is None else marks.ends.get(key, 0))
            ends[key] = self._end_of(key, end)
            if ends[key] != folded.get(key):  # the known tail is not the last batch
                state.tails.pop(key, None)
            start = max(state.starts.get(key, 0), checkpoint.get(key, 0), base)
            bases = self._bases(self._path(key, topic))
            tiered = topic.parsed().remote_storage_enable
            if bases and bases[0] > start and not tiered:
                tiered = self._keep_tiered(key.topic)
            if bases and bases[0] > start and not tiered:
                out.losses.append(f"{key}: records below offset {bases[0]}, the first one held")
                start = bases[0]
            starts[key] = min(start, ends[key])
            if bases and bases[0] > start:
                state.local_starts[key] = bases[0]
            self._note(key, max(folded.get(key, base), starts[key]), ends[key])
        state.ends = ends
        state.starts = {key: start for key, start in starts.items() if start}
        state.local_starts = {k: at for k, at in state.local_starts.items() if k in ends}
        state.idempotent |= ends.keys()  # idempotent producers may have written there

    def _keep_tiered(self, name: str) -> bool:
        """Enable remote storage again for a topic that starts below its local segments.

        Without remote storage, the records below the local segments could not be read any more.

        Returns:
            True if remote storage is enabled; False if the topic's config is known, the watermarks
            are missing, or the log has no remote storage.
        """
        try:
            has_tier = read_settings(self._fs, self._home) is not None
        except DataCorruptionError:
            has_tier = True
        if name not in self._unconfigured or self._marks is None or not has_tier:
            return False
        topic = self._state.topics[name]
        if not topic.parsed().remote_storage_enable:
            config = {**topic.config, "remote.storage.enable": "true"}
            self._state.topics[name] = replace(topic, config=config)
            self._out.sources.append(
                f"topic {name}: remote.storage.enable=true, because its log starts below its local "
                "segments and the log has remote storage"
            )
        return True

    def _end_of(self, key: TopicPartition, known: int) -> int:
        if self._marks is not None and not self._is_tail_lost:
            return known
        held = self._held_end(self._path(key, self._state.topics[key.topic]), known)
        if held > known and self._marks is not None:
            self._out.sources.append(
                f"{key}: offsets [{known}, {held}) are kept, though no file tells that they were "
                "committed; they may be of a commit that never finished"
            )
        return max(held, known)

    def _held_end(self, path: str, known: int) -> int:
        """Return the end offset of a partition's valid batches, at least `known`.

        Only batches from `known` or from the last segment on, whichever is later, are read.
        """
        bases = self._bases(path)
        if not bases:
            return known
        return max(known, valid_end(self._fs, path, max(known, bases[-1])))

    def _bases(self, path: str) -> list[int]:
        try:
            return segment_bases(self._fs, path)
        except (FileNotFoundError, SparklogError):
            return []

    def _path(self, key: TopicPartition, topic: TopicState) -> str:
        number = topic.dirs[key.partition]
        return os.path.join(self._dirs.dirs.place(number), str(key))

    def _log_starts(self) -> Offsets:
        starts: Offsets = {}
        for _, directory in self._dirs.numbered:
            with contextlib.suppress(DataCorruptionError):
                starts |= read_offsets(self._fs, directory, LOG_START)
        return starts

    def _epochs(self) -> list[int]:
        paths = [joined(self._dirs.directories[n], str(key)) for key, n in self._dirs.found.items()]
        epochs: list[int] = []
        for path in [*paths, ledger_path(self._home)]:
            with contextlib.suppress(DataCorruptionError):
                epochs += [epoch for epoch, _ in read_epochs(self._fs, path)[-1:]]
        return epochs

    # -- writers

    def _note_writers(self) -> None:
        out, state = self._out, self._state
        if not self._unattributed:
            out.sources.append("every offset of the partitions has a record: no writer is lost")
            return
        spans = [
            f"{key} [{span.first}, {span.end})"
            for key, some in sorted(self._unattributed.items())
            for span in merged(some)
        ]
        names = ", ".join(sorted(state.writers)) or "none is known"
        out.losses.append(
            f"which writers committed {', '.join(spans)}. Until it is declared by Log.reset which "
            f"batch was its last one, each writer to these topics is refused (known: {names})"
        )


def _missing_records(missing: list[int], is_tail_lost: bool) -> list[str]:
    """Return sentences on missing ledger records, and on the facts that are lost with them.

    Resets, purges and the ends of purged topics are stored in the ledger only.

    Args:
        missing: The offsets of the missing ledger records.
        is_tail_lost: Whether records after the last readable record may be missing too.
    """
    ranges = []
    for _, run in itertools.groupby(enumerate(missing), lambda pair: pair[1] - pair[0]):
        offsets = [offset for _, offset in run]
        ranges.append(f"[{offsets[0]}, {offsets[-1] + 1})")
    where = f"at {', '.join(ranges)}" if ranges else "at its end"
    told = "resets of writers, purges of deleted topics and the ends of purged topics in them"
    behind = "; more may be missing at its end" if is_tail_lost and ranges else ""
    return [f"the ledger's records {where}{behind}: {told}"]
