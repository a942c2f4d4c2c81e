"""Hands over a log's topics to an existing single-node cluster, which may have other topics.

Partitions are copied into the stopped broker's log dirs, with their ids, offsets and leader epochs
unchanged, and are added to the cluster's metadata. The log stays with sparklog and is not changed.
Until a partition is copied completely, the name of its directory ends with -delete, so that a
broker deletes the directory. A crash between the last rename and the metadata leaves directories
that a broker would rename to -stray; a repeated call removes them first. Producer states are not
copied, because the same producer ids belong to other producers in another cluster.
"""

import uuid
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Final

from sparklog.clock import Clock, system_clock
from sparklog.common import TopicPartition
from sparklog.errors import InvalidRequestError, StorageUnavailableError, UnknownTopicError
from sparklog.format.names import (
    DELETED,
    EPOCH_CHECKPOINT,
    INDEX,
    LOG,
    PARTITION_METADATA,
    RESERVED,
    TIMEINDEX,
    TXNINDEX,
    partition_dir,
    snapshot_name,
)
from sparklog.format.producer_snapshot import format_snapshot
from sparklog.fs import LOCAL, FileSystem, read_bytes, write_durably
from sparklog.logdir.cluster_metadata import ClusterMetadata, metadata_dirs, read_cluster_metadata
from sparklog.logdir.home import open_log
from sparklog.logdir.ledger import has_ledger
from sparklog.logdir.meta_properties import (
    DIRECTORY_ID,
    NODE_ID,
    is_kept_from_brokers,
    read_properties,
)
from sparklog.logdir.offline_partitions import stored_topic_id
from sparklog.logdir.offset_checkpoints import (
    HIGH_WATERMARK,
    LOG_START,
    RECOVERY_POINT,
    raise_offsets,
)
from sparklog.logdir.partition.directories import remove_tree
from sparklog.logdir.paths import is_nested, split_path
from sparklog.logdir.segment_files import joined
from sparklog.opening import Path, check_log_dirs
from sparklog.tools.handover.bootstrap_checkpoint import append_to_metadata_log
from sparklog.tools.handover.inventory import HandedPartition, HandedTopic, take_inventory
from sparklog.tools.handover.log_handover import run_without_brokers
from sparklog.tools.handover.metadata_changes import check_one_node, metadata_changes, notes_of

_COPIED: Final = (LOG, INDEX, TIMEINDEX, TXNINDEX, EPOCH_CHECKPOINT, PARTITION_METADATA)
_SMALL: Final = (EPOCH_CHECKPOINT, PARTITION_METADATA)
_PIECE: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class HandedOverTopics:
    """The topics that were copied, or would be, by the broker's log dirs."""

    directories: Sequence[str]
    node_id: int
    topics: Sequence[HandedTopic]
    copied_bytes: int
    notes: Sequence[str]
    check: bool


def hand_over_into(
    path: Path,
    log_dirs: Path,
    *,
    topics: Collection[str] | None = None,
    check: bool = False,
    metadata_log_dir: str | None = None,
    fs: FileSystem = LOCAL,
    clock: Clock = system_clock,
) -> HandedOverTopics:
    """Copy a log's topics into the log dirs of a stopped broker, which is its cluster's only node.

    Args:
        path: The log, which no process has open.
        log_dirs: All log dirs of the broker, joined by ",".
        topics: The topics to copy. By default all topics except sparklog's internal topics.
        check: Make no changes, and return the result that the call would have.
        metadata_log_dir: The broker's metadata.log.dir, if it is not among its log dirs.
        fs: The file system.
        clock: The current time.

    Raises:
        InvalidRequestError: The log or the broker does not exist, or the cluster has several nodes
            or a topic with the same name.
        UnknownTopicError: A topic does not exist.
        LogLockedError: The broker runs, or the log is open.
        StorageUnavailableError: The disk has too little free space.
        DataCorruptionError: A partition is damaged.
    """
    check_log_dirs(path, "`sparklog export --all --to DIR` makes a log dir of it", fs)
    own, theirs = split_path(path), split_path(log_dirs)
    if any(is_nested(a, b) for a in own for b in theirs):
        raise InvalidRequestError(
            f"{log_dirs} and {path} contain each other: pass the log, and with --into the log "
            "dirs of a broker in another place"
        )
    join = _Join(fs, clock, own, theirs, metadata_log_dir, topics)
    told = join.plan(check=check)[0]
    if check:
        return told
    outside = list(dict.fromkeys([*theirs, *filter(None, [metadata_log_dir])]))
    return run_without_brokers(
        fs, clock, own, outside, lambda _: join.plan(check=False), join.run
    )


class _Join:
    """A call of `hand_over_into`."""

    def __init__(
        self,
        fs: FileSystem,
        clock: Clock,
        own: list[str],
        theirs: list[str],
        metadata: str | None,
        topics: Collection[str] | None,
    ) -> None:
        self._fs, self._clock, self._own, self._theirs = fs, clock, own, theirs
        self._metadata, self._topics = metadata, topics

    def plan(
        self, *, check: bool
    ) -> tuple[HandedOverTopics, dict[str, HandedTopic], ClusterMetadata]:
        """Return the planned result, the topics of the log, and the cluster's metadata."""
        fs = self._fs
        node_id = self._node_id()
        known = self._known(node_id)
        with open_log(",".join(self._own), fs=fs) as log:
            here = {topic.name: topic for topic in take_inventory(log, fs, self._own)}
        chosen = here.keys() - RESERVED if self._topics is None else set(self._topics)
        if unknown := sorted(chosen - (here.keys() - RESERVED)):
            raise UnknownTopicError(
                f"topic {', '.join(unknown)} can't be handed over: the log has no topic of this "
                "name"
            )
        if taken := sorted(chosen & known.topics.keys()):
            raise InvalidRequestError(
                f"the cluster has a topic {', '.join(taken)}: delete it there, or leave it out here"
            )
        mine = {name: here[name] for name in sorted(chosen)}
        placed = [self._placed(topic, mine) for topic in mine.values()]
        size = sum(self._size(topic) for topic in mine.values())
        if size > (free := sum(fs.free_bytes(each) for each in self._theirs)):
            raise StorageUnavailableError(
                f"{','.join(self._theirs)}: {size} bytes must be copied, but only {free} are free"
            )
        result = HandedOverTopics(
            directories=self._theirs, node_id=node_id, topics=placed, copied_bytes=size,
            notes=notes_of(placed, None, []), check=check,
        )  # fmt: skip
        return result, mine, known

    def run(self) -> HandedOverTopics:
        """Copy and rename the partitions, and append the topics to the cluster's metadata."""
        fs = self._fs
        result, mine, known = self.plan(check=False)
        renames: list[tuple[str, str]] = []
        for topic in result.topics:
            for number, held in topic.partitions.items():
                name = partition_dir(topic.name, number)
                source = joined(mine[topic.name].partitions[number].directory, name)
                target = joined(held.directory, name)
                self._sweep(held.directory, name, topic.id)
                # The form of a deleted partition's directory: if the copy is interrupted and the
                # broker starts, the broker deletes the incomplete copy and doesn't load it.
                staged = f"{target}.{uuid.uuid4().hex}-delete"
                self._copy(source, staged, held)
                renames.append((staged, target))
        # Before the renames: a broker that loads a partition without its log start offset would
        # show deleted records again.
        for directory in self._theirs:
            self._checkpoint(directory, result.topics)
        for staged, target in renames:
            fs.rename(staged, target)
        for directory in self._theirs:
            fs.sync_dir(directory)
        # The metadata is last: directories that no metadata refers to are removed by the next call,
        # but a broker would create an empty partition for metadata without a directory.
        ids = {path: read_properties(fs, path)[DIRECTORY_ID] for path in self._theirs}
        records = metadata_changes(
            result.topics, known, node_id=result.node_id, directory_ids=ids, dropped=(),
            next_producer_id=0,
        )  # fmt: skip
        append_to_metadata_log(fs, known, records, time_ms=self._clock())
        return result

    def _node_id(self) -> int:
        nodes = set()
        for path in self._theirs:
            if not self._fs.is_dir(path):
                raise InvalidRequestError(f"{path} does not exist: pass a broker's log dirs")
            said = read_properties(self._fs, path)
            if is_kept_from_brokers(self._fs, path) or has_ledger(self._fs, path):
                raise InvalidRequestError(f"{path} is a log of sparklog: pass a broker's log dir")
            if not {NODE_ID, DIRECTORY_ID} <= said.keys():
                raise InvalidRequestError(
                    f"{path} is not a log dir of a KRaft broker of 3.7 or later: its "
                    f"meta.properties is missing, or lacks {NODE_ID} or {DIRECTORY_ID}"
                )
            nodes.add(int(said[NODE_ID]))
        if len(nodes) > 1:
            raise InvalidRequestError(
                f"{','.join(self._theirs)} belong to several brokers: {nodes}"
            )
        return nodes.pop()

    def _known(self, node_id: int) -> ClusterMetadata:
        places = [self._metadata] if self._metadata else self._theirs
        held = metadata_dirs(self._fs, places)
        known = read_cluster_metadata(self._fs, held[0]) if held else None
        if known is None or not known.has_controller_records:
            raise InvalidRequestError(
                f"{','.join(places)}: there is no metadata log of a cluster that has run: pass "
                "all of the "
                "broker's log.dirs, and its metadata.log.dir; for a new cluster hand the log over "
                "without --into"
            )
        check_one_node(known, node_id, held[0])
        return known

    def _placed(self, topic: HandedTopic, mine: dict[str, HandedTopic]) -> HandedTopic:
        """Assign the partitions to the broker's log dirs in turn."""
        at = list(mine).index(topic.name)
        partitions: dict[int, HandedPartition] = {}
        for number, held in sorted(topic.partitions.items()):
            target = self._theirs[(at + number) % len(self._theirs)]
            path = joined(target, partition_dir(topic.name, number))
            is_left = self._fs.is_dir(path) and stored_topic_id(self._fs, path) == topic.id
            if self._fs.exists(path) and not is_left:
                raise InvalidRequestError(f"{path} exists: move it away", path=path)
            partitions[number] = replace(held, directory=target)
        return replace(topic, partitions=partitions)

    def _size(self, topic: HandedTopic) -> int:
        paths = [
            joined(held.directory, partition_dir(topic.name, number))
            for number, held in topic.partitions.items()
        ]
        files = [joined(path, name) for path in paths for name in self._files(path)]
        return sum(map(self._fs.size, files))

    def _files(self, path: str) -> list[str]:
        names = self._fs.listdir(path)
        return [name for name in names if name.endswith(_COPIED) and DELETED not in name]

    def _sweep(self, directory: str, name: str, topic_id: str) -> None:
        """Remove the files of a partition that an interrupted call has left."""
        path = joined(directory, name)
        if self._fs.is_dir(path) and stored_topic_id(self._fs, path) == topic_id:
            remove_tree(self._fs, path)
        for entry in self._fs.listdir(directory):
            if entry.startswith(f"{name}.") and entry.endswith("-delete"):
                remove_tree(self._fs, joined(directory, entry))

    def _copy(self, source: str, target: str, held: HandedPartition) -> None:
        """Copy a partition's files durably."""
        fs = self._fs
        fs.mkdir(target)
        for name in self._files(source):
            if name in _SMALL:  # written at once: a broker fails on an incomplete file
                raw = read_bytes(fs, joined(source, name))
                write_durably(fs, joined(target, name), raw, sync_dir=False)
                continue
            with fs.open(joined(source, name)) as read, fs.open(
                joined(target, name), create=True
            ) as written:
                at = 0
                while piece := read.pread(_PIECE, at):
                    written.pwrite(piece, at)
                    at += len(piece)
                written.sync()
        if held.end:
            # Empty: without a snapshot the broker would rebuild producer states from the batches,
            # whose producer ids belong to other producers in its cluster.
            write_durably(fs, joined(target, snapshot_name(held.end)), format_snapshot([]))
        fs.sync_dir(target)

    def _checkpoint(self, directory: str, topics: Sequence[HandedTopic]) -> None:
        mine = {
            TopicPartition(topic.name, number): held
            for topic in topics
            for number, held in topic.partitions.items()
            if held.directory == directory
        }
        ends = {key: held.end for key, held in mine.items()}
        starts = {key: held.start for key, held in mine.items() if held.start}
        raise_offsets(self._fs, directory, RECOVERY_POINT, ends)
        raise_offsets(self._fs, directory, HIGH_WATERMARK, ends)
        raise_offsets(self._fs, directory, LOG_START, starts)


