"""Clean a partition, from the plan to the checkpoint, and choose the dirtiest partitions.

The cleaner takes the write lock three times, briefly: to choose closed segments, to swap a group,
and to write the checkpoint. Several threads may clean several partitions of a log, but each
partition is cleaned by only one thread at a time (a second thread notices that files are missing,
and stops without harm).
"""

import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from sparklog.clock import monotonic_ms
from sparklog.common import TopicPartition
from sparklog.config import TopicConfig
from sparklog.errors import InvalidRequestError
from sparklog.log.cleaner_options import CleanerOptions, Throttle
from sparklog.log.dirty_ratio import CompactedLog
from sparklog.logdir.cleaning.plan import CleanJob, Segment, find_dirt, list_segments
from sparklog.logdir.cleaning.rewrite import Rewritten, discard, is_possible, rewrite, swap_of
from sparklog.logdir.commit_log import LogDirCommits
from sparklog.logdir.offset_checkpoints import (
    CLEANED,
    CLEANER,
    Offsets,
    raise_offsets,
    read_offsets,
    write_offsets,
)
from sparklog.logdir.partition.producer_snapshots import load_producers
from sparklog.logdir.partition.segment_swap import perform, retired_paths
from sparklog.storage.round_report import Cleanable, CleanReport, Dirt

_LOGGER: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Partition:
    """The data of a partition that are read under the lock, before a cleaning without the lock.

    All other data of the cleaning are in closed segments, which do not change.
    """

    topic: str
    number: int
    topic_id: str
    directory: str
    config: TopicConfig
    segments: list[Segment]
    log_start: int
    end: int
    plain: bool


def compacted_partitions(commits: LogDirCommits, *, now_ms: int) -> Iterator[Cleanable]:
    """Yield the partitions of compacted topics that are not offline, with their dirty ratios.

    Cost: a stat per segment of the compacted topics, under the lock per partition.
    """
    with commits.exclusive():
        keys = [
            (name, p)
            for name, topic in commits.state.topics.items()
            if topic.parsed().compact
            for p in topic.dirs
            if (name, p) not in commits.offline
        ]
    checkpoints = {d: _checkpoints(commits, d) for d in commits.present}
    for name, number in sorted(keys):
        with commits.exclusive():
            known = commits.state.topics.get(name)
            if known is None or number not in known.dirs or (name, number) in commits.offline:
                continue
            part = _partition_of(commits, name, number)
        dirt, _ = _dirt(commits, part, checkpoints[os.path.dirname(part.directory)], now_ms)
        wanted = dirt.wants_cleaning(part.config)
        yield Cleanable(
            topic=name, partition=number, topic_id=known.id, dirt=dirt, wanted=wanted
        )


def plan_job(
    commits: LogDirCommits,
    topic: str,
    partition: int,
    *,
    options: CleanerOptions | None = None,
    now_ms: int | None = None,
) -> CleanJob:
    """Return the plan of a cleaning, with which `rewrite` can run in another process on this host.

    Raises:
        UnknownTopicError: The log has no such partition.
        DataCorruptionError: The partition is offline.
        InvalidRequestError: The topic isn't compacted.
    """
    now = commits.clock() if now_ms is None else now_ms
    with commits.exclusive():
        part = _partition_of(commits, topic, partition)
    if not part.config.compact:
        raise InvalidRequestError(
            f"topic {topic} has cleanup.policy={','.join(part.config.cleanup_policy)}; only "
            "compacted topics are cleaned"
        )
    checkpoints = _checkpoints(commits, os.path.dirname(part.directory))
    dirt, producers = _dirt(commits, part, checkpoints, now)
    return CleanJob(
        topic=topic,
        partition=partition,
        topic_id=part.topic_id,
        directory=part.directory,
        config=part.config,
        options=options or CleanerOptions(),
        segments=tuple(part.segments[:-1]),
        bases=tuple(s.base for s in part.segments),
        log_start=part.log_start,
        end=part.end,
        dirt=dirt,
        now_ms=now,
        producers=producers,
    )


def clean_partition(
    commits: LogDirCommits,
    topic: str,
    partition: int,
    *,
    options: CleanerOptions | None = None,
    throttle: Throttle | None = None,
    now_ms: int | None = None,
) -> CleanReport:
    """Clean a partition, regardless of the dirty ratio (see `compacted_partitions`).

    The threads of a service share `throttle`; by default the throttle of `options` is used. The
    errors of `plan_job` and `rewrite` are raised; the log is then unchanged, or cleaned in part.
    """
    job = plan_job(commits, topic, partition, options=options, now_ms=now_ms)
    report = CleanReport(topic=topic, partition=partition, dirt=job.dirt)
    if not job.dirt.cleanable_bytes:
        return report
    made = rewrite(commits.fs, job, throttle or job.options.throttle())
    try:
        return finish(commits, job, made, report)
    except FileNotFoundError as error:  # a concurrent erasure removed our files
        report.interrupted, report.next_dirty = True, None
        _LOGGER.warning("%s: the partition changed while it was cleaned (%s)", job.directory, error)
        return report


def finish(
    commits: LogDirCommits,
    job: CleanJob,
    rewritten: Iterable[Rewritten],
    report: CleanReport | None = None,
) -> CleanReport:
    """Swap in the new segments of `rewrite`, group by group, and write the cleaner's checkpoint.

    Args:
        commits: The log.
        job: The plan of the cleaning.
        rewritten: The new segments. An iterator is advanced after each swap.
        report: The report to complete; a new one by default.

    Returns:
        The report. If a source has changed meanwhile, the report is marked as interrupted, and the
        remaining new segments are not swapped in.
    """
    began = monotonic_ms()
    report = report or CleanReport(topic=job.topic, partition=job.partition, dirt=job.dirt)
    for made in rewritten:
        _swap(commits, job, made, report)
        report.next_dirty = made.next_dirty
        if report.interrupted:
            report.next_dirty = None
            break
    if report.interrupted and isinstance(rewritten, Sequence):
        for made in rewritten:
            discard(commits.fs, job.directory, made)
    if report.next_dirty is not None:
        _note(commits, job, report)
    report.took_ms = monotonic_ms() - began
    _LOGGER.info(
        "%s: cleaned up to %s in %d ms: %d segments of %d bytes became %d of %d, %d keys",
        job.directory, report.next_dirty, report.took_ms, report.segments, report.bytes_before,
        report.groups, report.bytes_after, report.keys,
    )  # fmt: skip
    return report


def _partition_of(commits: LogDirCommits, topic: str, partition: int) -> _Partition:
    """Return the data of a partition that a cleaning needs. Called under the lock.

    Raises:
        UnknownTopicError: The log has no such partition.
        DataCorruptionError: The partition is offline.
    """
    key = TopicPartition(topic, partition)
    directory = commits.partition_path(topic, partition)
    if key in commits.offline:
        raise commits.offline[key]
    state = commits.state
    known = state.topics[topic]
    return _Partition(
        topic=topic,
        number=partition,
        topic_id=known.id,
        directory=directory,
        config=known.parsed(),
        segments=list_segments(commits.fs, directory),
        log_start=state.starts.get(key, 0),
        end=state.ends[key],
        plain=not (known.adopted or key in state.idempotent),
    )


def _dirt(
    commits: LogDirCommits, part: _Partition, checkpoints: Offsets, now: int
) -> tuple[Dirt, dict[int, tuple[int, int]]]:
    stable, producers = part.end, {}
    start = max(part.log_start, part.segments[0].base)
    if not part.plain:
        state = load_producers(
            commits.fs,
            part.directory,
            part.end,
            log_start=start,
            now=now,
            expiration_ms=commits.options.producer_id_expiration_ms,
        )
        stable = state.last_stable_offset()
        producers = {
            entry.producer_id: (entry.last_offset, entry.producer_epoch)
            for entry in state.entries()
        }
    log = CompactedLog(
        config=part.config,
        segments=part.segments,
        checkpoint=checkpoints.get(TopicPartition(part.topic, part.number)),
        log_start=part.log_start,
        end=part.end,
        stable=stable,
    )
    return find_dirt(commits.fs, part.directory, log, now_ms=now), producers


def _checkpoints(commits: LogDirCommits, directory: str) -> Offsets:
    return read_offsets(commits.fs, directory, CLEANER)


def _swap(commits: LogDirCommits, job: CleanJob, made: Rewritten, report: CleanReport) -> None:
    swap = swap_of(made)
    records = made.records_read, made.records_kept
    report.add_group([segment.size for segment in made.sources], made.size, records)
    report.keys, report.utilization = made.keys, made.utilization
    if made.is_same:
        discard(commits.fs, job.directory, made)
        return
    with commits.exclusive():
        began = monotonic_ms()
        topic = commits.state.topics.get(job.topic)
        if (
            topic is None
            or topic.id != job.topic_id
            or job.partition not in topic.dirs
            or commits.partition_path(job.topic, job.partition) != job.directory
            or not is_possible(commits.fs, job.directory, made)
        ):
            report.interrupted = True
            _LOGGER.warning(
                "%s: the segments changed during the cleaning; none was replaced", job.directory
            )
        else:
            key = TopicPartition(job.topic, job.partition)
            looked = {key: made.next_dirty}
            # Before the swap: a later fork to an earlier offset must know that records may be
            # missing there, even if a crash follows.
            raise_offsets(commits.fs, os.path.dirname(job.directory), CLEANED, looked)
            with commits.changing_files(swap=(key, swap)):
                perform(commits.fs, job.directory, swap)
            report.retired += retired_paths(commits.fs, job.directory, swap)
        report.locked_ms_max = max(report.locked_ms_max, monotonic_ms() - began)
    if report.interrupted:
        discard(commits.fs, job.directory, made)


def _note(commits: LogDirCommits, job: CleanJob, report: CleanReport) -> None:
    """Write a partition's first dirty offset to the cleaner's checkpoint file in the log dir.

    Nothing is written if the topic was deleted. Source: LogCleanerManager.updateCheckpoints.
    """
    directory = os.path.dirname(job.directory)
    with commits.exclusive():
        began = monotonic_ms()
        topic = commits.state.topics.get(job.topic)
        if topic is None or topic.id != job.topic_id or report.next_dirty is None:
            return
        known = _checkpoints(commits, directory)
        # The file would otherwise keep the entries of deleted topics, and a topic that is created
        # again under the name would count as cleaned.
        live = {key: offset for key, offset in known.items() if key in commits.state.ends}
        offsets = {**live, TopicPartition(job.topic, job.partition): report.next_dirty}
        write_offsets(commits.fs, directory, CLEANER, offsets)
        report.locked_ms_max = max(report.locked_ms_max, monotonic_ms() - began)
