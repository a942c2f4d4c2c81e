"""Adopts a log dir that a broker wrote to, or that was not closed.

A broker's own rules define where its logs end; the ledger records that in an `adopt` record. Topic
configs that its clients set are in its metadata log (`cluster_metadata`), if that is in a log dir.
Records of a topic without a known config do not expire (retention.ms=-1).
"""

import logging
import os
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from sparklog.common import TopicPartition
from sparklog.config import OWN_KEYS, TIERED_KEYS, TopicConfig
from sparklog.errors import DataCorruptionError, InvalidRequestError, PartitionOfflineError
from sparklog.format.checkpoint_files import format_partition_metadata
from sparklog.format.names import PARTITION_METADATA, RESERVED, partition_dir
from sparklog.fs import write_durably
from sparklog.log.topic_names import new_topic_id
from sparklog.logdir.cluster_metadata import KnownTopic, metadata_dirs, read_cluster_metadata
from sparklog.logdir.commit_log import LogDirCommits
from sparklog.logdir.ledger import ledger_path
from sparklog.logdir.log_dirs import RENAME_BACK, offline_error
from sparklog.logdir.meta_properties import is_kept_from_brokers
from sparklog.logdir.offline_partitions import stored_metadata, stored_topic_id, why_foreign
from sparklog.logdir.offset_checkpoints import (
    CLEANED,
    HIGH_WATERMARK,
    LOG_START,
    RECOVERY_POINT,
    Offsets,
    raise_offsets,
    read_offsets,
)
from sparklog.logdir.partition.leader_epochs import read_epochs
from sparklog.logdir.partition.partition_log import PartitionLog
from sparklog.logdir.recovery.log_loader import LoadReport, load
from sparklog.logdir.segment_files import segment_bases
from sparklog.storage.ledger_records import AdoptRecord
from sparklog.storage.log_state import LogState
from sparklog.storage.topic_state import TopicState

_LOGGER: Final = logging.getLogger(__name__)
_KEEP: Final = {"retention.ms": "-1"}  # adoption must not make records expire


def is_unchanged(commits: LogDirCommits, found: dict[TopicPartition, int]) -> bool:
    """Return True if partitions, watermarks and ledger agree, as after sparklog's clean close.

    `found` is {partition: number of the log dir where its directory is}. Offline partitions are not
    compared.
    """
    fs, state = commits.fs, commits.state
    known = {
        TopicPartition(t, p): d for t, topic in state.topics.items() for p, d in topic.dirs.items()
    }
    if _without(known, commits.offline) != _without(found, commits.offline):
        return False
    for topic, partition in _without(known, commits.offline):
        path = commits.partition_path(topic, partition)
        if stored_topic_id(fs, path) != state.topics[topic].id:
            return False
        # Segments above the log start are missing, or a broker's retention deleted them: the ledger
        # must learn that.
        first = segment_bases(fs, path)[:1]
        if not first or first[0] > state.local_start(topic, partition):
            return False
        # A power cut may restore Kafka's clean mark: the log must end there too.
        try:
            log = commits.partition_log(topic, partition)
            if log.size_on_disk() != log.state.size:
                return False
        except DataCorruptionError:
            return False
    marks: Offsets = {}
    for directory in commits.present:
        marks |= read_offsets(commits.fs, directory, HIGH_WATERMARK)
    ends = _without(commits.state.ends, commits.offline)
    return all(marks.get(key) == end for key, end in ends.items())


def _without(
    places: Mapping[TopicPartition, int], offline: Collection[TopicPartition]
) -> dict[TopicPartition, int]:
    return {key: value for key, value in places.items() if key not in offline}


def leave_missing(commits: LogDirCommits, found: dict[TopicPartition, int], *, ours: bool) -> None:
    """Take missing partitions offline, unless a broker may have deleted them.

    Args:
        commits: The log that is being opened.
        found: {partition: number of the log dir where its directory is}.
        ours: Whether sparklog's own clean marks exist, so no broker wrote since the close.
            Otherwise partitions that are missing in an available log dir were deleted by the
            broker, together with the topic.
    """
    state = commits.state
    for key in state.ends:
        number = state.topics[key.topic].dirs[key.partition]
        is_there = commits.offline.dirs.why_absent(number) is None
        error = None
        if ours and key in found:  # it may have been moved to another log dir
            error = commits.offline.missing(commits.state, key, number=found[key])
        elif key in found:
            error = _swapped(commits, key, found[key])
        elif ours or not is_there:
            error = commits.offline.missing(commits.state, key)
        if error is not None:
            commits.offline.add(key, error)


def _swapped(
    commits: LogDirCommits, key: TopicPartition, number: int
) -> PartitionOfflineError | None:
    """Return the error if the directory of partition `key` belongs to another partition.

    `number` is the number of the log dir. Returns None if the directory is the partition's, or if
    its metadata can't be read (`_topic_ids` then raises the error).
    """
    path = os.path.join(commits.directories[number], partition_dir(*key))
    try:
        why = why_foreign(stored_metadata(commits.fs, path), key, None)
    except DataCorruptionError:
        return None  # raised by `_topic_ids`
    if why is None:
        return None
    start, end = commits.state.starts.get(key, 0), commits.state.ends[key]
    return offline_error(path, why, start, end, remedy=RENAME_BACK)


def adopt(
    commits: LogDirCommits, found: dict[TopicPartition, int], *, clean: bool, news: bool
) -> None:
    """Load every partition as Kafka does, and write the result to the ledger.

    No record is written if topics and offsets are as in the ledger.

    Args:
        commits: The log that is being opened.
        found: {partition: number of the log dir where its directory is}.
        clean: Whether the broker stopped cleanly, so that no batch needs a check.
        news: Log a warning, not only a debug message.
    """
    fs, state = commits.fs, commits.state
    points: Offsets = {}
    starts: Offsets = {}
    for directory in commits.present:
        points |= read_offsets(fs, directory, RECOVERY_POINT)
        starts |= read_offsets(fs, directory, LOG_START)
    topics: dict[str, TopicState] = {}
    loaded: dict[TopicPartition, LoadReport] = {}
    ids = _topic_ids(commits, found)
    brokers = _brokers_topics(commits)
    for key in commits.offline:
        before = state.topics[key.topic]
        adopted_topic = topics.setdefault(key.topic, _adopted_topic(before, before.id))
        adopted_topic.dirs[key.partition] = before.dirs[key.partition]
    for (topic, partition), number in sorted(found.items()):
        key = TopicPartition(topic, partition)
        if key in commits.offline:
            continue
        path = os.path.join(commits.directories[number], f"{topic}-{partition}")
        topic_id = ids[topic]
        known = state.topics.get(topic)
        same = known if known is not None and known.id == topic_id else None
        fresh = _adopted_topic(same, topic_id, brokers.get(topic))
        topics.setdefault(topic, fresh).dirs[partition] = number
        # A broker's loading rules would accept the shorter log, and committed records would be lost
        # without an error.
        if same is not None and _is_short(commits, key, path):
            continue
        loaded[key] = load(
            fs,
            path,
            fresh.parsed(),
            commits.clock,
            clean=clean,
            recovery_point=points.get(key, 0),
            log_start=starts.get(key, 0) if same is None else _start(state, key, starts),
            local_start=0 if same is None else state.local_start(*key),
        )
        _refuse_open_transactions(key, loaded[key])
        if not clean and fresh.parsed().compact:  # the cleaner may have died before its checkpoint
            raise_offsets(fs, os.path.dirname(path), CLEANED, {key: loaded[key].end})
    adopted = LogState(
        topics=topics,
        ends={key: report.end for key, report in loaded.items()},
        starts={key: report.start for key, report in loaded.items() if report.start},
        local_starts={
            key: report.local_start
            for key, report in loaded.items()
            if report.local_start > report.start
        },
    )
    for key in commits.offline:
        adopted.ends[key] = state.ends[key]
        if key in state.starts:
            adopted.starts[key] = state.starts[key]
        if key in state.local_starts:
            adopted.local_starts[key] = state.local_starts[key]
    if _is_same(adopted, state):
        return  # a broker ran, or our mark was lost, but the contents are the same
    epochs = [report.epoch for report in loaded.values()]
    epochs += [entry[0] for entry in read_epochs(fs, ledger_path(commits.home))[-1:]]
    _record(commits, adopted, epochs, news=news)


def _is_same(adopted: LogState, state: LogState) -> bool:
    """Return True if the adopted topics and offsets equal those in the ledger's state."""
    places = [
        {name: (topic.id, topic.dirs, topic.config) for name, topic in log.topics.items()}
        for log in (adopted, state)
    ]
    offsets = [(log.ends, log.starts, log.local_starts) for log in (adopted, state)]
    return offsets[0] == offsets[1] and places[0] == places[1]


def _record(
    commits: LogDirCommits, adopted: LogState, epochs: Sequence[int], *, news: bool
) -> None:
    """Write the `adopt` record to the ledger, with a higher leader epoch, and apply the record.

    Args:
        commits: The log that is being opened.
        adopted: The state of the partitions as loaded.
        epochs: Leader epochs that the new epoch must exceed.
        news: Log a warning, not only a debug message.
    """
    state = commits.state
    epoch = max([state.epoch, *epochs]) + 1
    snapshot = adopted.snapshot()
    record = AdoptRecord(
        topics=adopted.topics,
        ends=snapshot.ends,
        starts=snapshot.starts,
        local_starts=snapshot.local_starts,
    )
    time_ms = max(commits.clock(), state.time_ms)
    state.apply(commits.ledger.append(record, epoch=epoch, time_ms=time_ms, sync=True))
    _LOGGER.log(
        logging.WARNING if news else logging.DEBUG,
        "%s: adopted %d partitions as a broker left them, leader epoch %d",
        commits.home, len(adopted.ends), epoch,
    )  # fmt: skip


def _start(state: LogState, key: TopicPartition, starts: Offsets) -> int:
    """Return the log start of a partition that was adopted.

    The broker's log start counts only if it is above the ledger's local log start. A lower value
    may come from a lost or damaged file, or from a broker without remote storage. Such a broker's
    log starts at the first local segment, although earlier remote segments still exist. The
    ledger's log start is then retained.

    Args:
        state: The ledger's state.
        key: The partition.
        starts: The log starts in the broker's checkpoint files.
    """
    known, brokers = state.starts.get(key, 0), starts.get(key, 0)
    return known if brokers <= state.local_start(*key) else brokers


def _brokers_topics(commits: LogDirCommits) -> dict[str, KnownTopic]:
    """Return {name: topic} of the broker's metadata log, if that is in a log dir.

    Empty while sparklog's own `meta.properties` exists: no broker has run since it was written, so
    the broker's metadata are older than the ledger.
    """
    fs = commits.fs
    if is_kept_from_brokers(fs, commits.home):
        return {}
    found: dict[str, KnownTopic] = {}
    for directory in metadata_dirs(fs, commits.present):
        try:
            known = read_cluster_metadata(fs, directory)
        except DataCorruptionError as error:
            _LOGGER.warning("%s; the configs that clients set in the broker aren't known", error)
            continue
        found |= known.topics if known is not None else {}
    return {name: topic for name, topic in found.items() if name not in RESERVED}


def _adopted_topic(
    same: TopicState | None, topic_id: str, known: KnownTopic | None = None
) -> TopicState:
    """Return the state of an adopted topic, without partitions.

    Args:
        same: The topic with this id in the ledger, if any.
        topic_id: The topic id.
        known: The topic of this name in the broker's metadata, if any. Its id may be another.
    """
    config, bases = (_KEEP, {}) if same is None else (same.config, same.bases)
    if known is not None and known.id == topic_id:
        config = _adopted_config(known.config, {} if same is None else same.config)
        if same is None:
            config = {**_KEEP, **config}
    return TopicState(topic_id, dict(config), {}, adopted=True, bases=dict(bases))


def _adopted_config(brokers: Mapping[str, str], own: Mapping[str, str]) -> dict[str, str]:
    """Return a broker's config of a topic, with the options that only sparklog's config has.

    `own` is the config in the ledger, of which only sparklog's own options and those of remote
    storage are used. A broker's invalid options are left out, with a warning.
    """
    config = {key: value for key, value in own.items() if key in OWN_KEYS | TIERED_KEYS}
    for key, value in sorted(brokers.items()):
        try:
            config = TopicConfig.parse({**config, key: value}).to_dict()
        except InvalidRequestError as error:
            _LOGGER.warning("a broker's config was not adopted: %s", error)
    return config


def _is_short(commits: LogDirCommits, key: TopicPartition, path: str) -> bool:
    """Take a partition offline, and return True, if its log ends before the committed end.

    No broker truncates a log below its high watermark, so committed records are missing. Also
    returns True if the log is damaged.
    """
    end = commits.state.ends.get(key, 0)
    config = commits.state.topics[key.topic].parsed()
    log = PartitionLog(commits.fs, path, config, commits.clock, end_offset=end)
    try:
        end_on_disk = log.state.end
    except DataCorruptionError as error:
        commits.offline[key] = error
        return True
    if end_on_disk < end:
        commits.offline[key] = DataCorruptionError(
            "committed records are missing at the end; restore this partition from a copy",
            path=path,
            first=end_on_disk,
            end=end,
        )
        _LOGGER.critical("%s-%d is offline: %s", *key, commits.offline[key])
    return end_on_disk < end


def _topic_ids(commits: LogDirCommits, found: Mapping[TopicPartition, int]) -> dict[str, str]:
    """Return {topic: topic id} of the partitions in `found`.

    The id is taken from the first partition with an id, else from the ledger, else it is new. A
    broker before 2.8 left no partition.metadata. As in Kafka, the id is then written immediately,
    because the topic would otherwise get another id at each open. Source: UnifiedLog.assignTopicId,
    PartitionMetadataFile.
    """
    fs, without = commits.fs, []
    ids: dict[str, str] = {}
    for key, number in sorted(found.items()):
        path = os.path.join(commits.directories[number], partition_dir(*key))
        topic_id = None if key in commits.offline else stored_topic_id(fs, path)
        if topic_id is not None:
            ids.setdefault(key.topic, topic_id)
        elif key not in commits.offline:
            without.append((key, path))
    for topic in {topic for topic, _ in found} - ids.keys():
        known = commits.state.topics.get(topic)
        ids[topic] = new_topic_id() if known is None else known.id
    for key, path in without:
        raw = format_partition_metadata(ids[key.topic], key.partition)
        write_durably(fs, os.path.join(path, PARTITION_METADATA), raw)
    return ids


def _refuse_open_transactions(key: TopicPartition, report: LoadReport) -> None:
    if report.open_transactions:
        raise InvalidRequestError(
            f"{key} has open transactions of producers "
            f"{sorted(report.open_transactions)}: only a broker can end them, and read_committed "
            "readers would never pass them. The log can only be opened read-only now. "
            "Let a broker end them, then open the log again"
        )
