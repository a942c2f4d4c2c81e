"""`make_report`: computes the `LogReport` of a log, an archive or a broker's log dirs.

The report takes no lock and changes nothing, so writers may append to the log at the same time.
Data that can't be read becomes a notice, and the rest of the report is still made.
"""

import logging
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyarrow as pa

from sparklog.clock import Clock, stopwatch, system_clock
from sparklog.common import TopicIdPartition, TopicPartition
from sparklog.config import LogOptions
from sparklog.errors import DataCorruptionError, SparklogError
from sparklog.fs import LOCAL, FileSystem
from sparklog.log.batch_figures import BatchFigures, small_batches
from sparklog.log.due_segments import Tier
from sparklog.log.group_lag import retention_floors
from sparklog.log.log import Log, home_of, view_of
from sparklog.logdir.home import open_log as open_local
from sparklog.logdir.partition.leader_epochs import read_epochs
from sparklog.logdir.paths import split_path
from sparklog.logdir.topics_file import read_topics
from sparklog.logdir.view import LogDirView
from sparklog.opening import open_log
from sparklog.pluralize import pluralize
from sparklog.progress import Progress, shows_progress
from sparklog.quantities import DAY_MS
from sparklog.service import Severity
from sparklog.service.health import Examiner
from sparklog.storage.groups import Readers
from sparklog.storage.log_state import LogState
from sparklog.storage.topic_state import TopicState
from sparklog.storage.view import TopicInfo
from sparklog.tiered.archive.opening import archive_url
from sparklog.tiered.copying.plan import copied_ranges, valid_copies
from sparklog.tiered.reading.options import RemoteOptions
from sparklog.tiered.remote_log_metadata.metadata_cache import RemoteLogMetadataCache
from sparklog.tiered.remote_log_metadata.topic import RemoteLogMetadataConsumer
from sparklog.tiered.remote_segment import RemoteSegment
from sparklog.tiered.settings import read_settings
from sparklog.ui.report.directories import (
    find_directories,
    missing_partitions,
    offline_notices,
    sized,
)
from sparklog.ui.report.growth import growth
from sparklog.ui.report.ledger import commits_report, readers_report
from sparklog.ui.report.model import (
    CommitsReport,
    ExpiringSegments,
    LogReport,
    Notice,
    PartitionReport,
    ReaderReport,
    TopicReport,
    Where,
)
from sparklog.ui.report.retention_preview import compaction, preview_retention
from sparklog.ui.report.segments import IN_STORE_MAX, ReportCache, list_partition, topic_batches

Path = str | os.PathLike[str]
_LOGGER = logging.getLogger(__name__)
_FAULTS_TOLD = 5  # notices per partition; `sparklog verify` reports all damage


@dataclass(slots=True, kw_only=True)
class _Look:
    """The state of a report that all partitions share.

    `known`: the topics of a log in log dirs, None for other kinds. `archive`: all data is in an
    object store, as in an archive or a log in a bucket.
    """

    fs: FileSystem
    log: Log
    cache: RemoteLogMetadataCache
    readers: Readers
    now_ms: int
    known: dict[str, TopicState] | None
    archive: bool
    memory: ReportCache
    offsets_retention_ms: int
    notices: list[Notice] = field(default_factory=list)
    spans: Mapping[TopicPartition, tuple[int, int]] = field(default_factory=dict)

    def note(self, severity: Severity, where: str, what: str) -> None:
        self.notices.append(Notice(severity=severity, where=where, what=what))


@shows_progress("looking")
def make_report(
    path: Path,
    *,
    storage_options: Mapping[str, Any] | None = None,
    options: Mapping[str, object] | None = None,
    fs: FileSystem = LOCAL,
    clock: Clock = system_clock,
    progress: Progress | None = None,
    memory: ReportCache | None = None,
) -> LogReport:
    """Compute the report of the log at `path`. Damage becomes part of `LogReport.notices`.

    Cost: about 0.4 ms per local segment, one read of the ledger, and 1 to 3 ms for the newest
    batches of each of up to four partitions per topic. From an archive, the report reads the
    listing and a manifest per topic. From a log in a bucket with at most 16 topics, it reads the
    newest batches.

    Args:
        path: Log dirs joined by ",", or the URL of a log or an archive.
        storage_options: The options of the object store.
        options: The options of `sparklog.open` for reading remote segments.
        fs: The file system.
        clock: The clock.
        progress: Called with (number of finished partitions, number of all partitions).
        memory: Results of earlier reports of this log. They save most reads.

    Raises:
        InvalidRequestError: There is no log at `path`.
        StorageUnavailableError: The archive can't be reached.
    """
    took = stopwatch()
    url = archive_url(path, fs)
    found = find_directories(fs, split_path(path), archive=url is not None)
    opened = ",".join(found.online)
    remote, rest = RemoteOptions.parse(options or {})
    look = _opened(opened, fs, clock, url, remote, rest, storage_options)
    look.memory = memory or look.memory
    examiner = look.memory.examiner or Examiner(
        path, storage_options=storage_options, options=options, fs=fs, clock=clock
    )
    look.memory.examiner = examiner
    look.notices += found.notices
    topics = _topics(look, progress)
    if look.known is not None and url is None:
        look.notices += missing_partitions(fs, found, look.known, split_path(path))
        look.notices += offline_notices(fs, found.online[0], look.notices)
    # After the last partition was listed: segments that no partition has any more are dropped.
    look.memory.turn()
    partitions = [p for topic in topics for p in topic.partitions]
    commits, readers = _ledger(look)
    _dates(look, partitions)
    settings = None if url is not None else read_settings(fs, found.online[0])
    return LogReport(
        path=os.fspath(path),
        kind=_kind(look),
        url=url if url is not None else None if settings is None else settings.url,
        time_ms=look.now_ms,
        took_ms=took(),
        version=_version(),
        directories=sized(found, partitions),
        topics=tuple(topics),
        growth=growth(topics, now_ms=look.now_ms),
        commits=commits,
        readers=readers,
        notices=tuple(sorted(look.notices, key=lambda n: list(Severity).index(n.severity))),
        health=examiner.examine(),
    )


def _kind(look: _Look) -> str:
    if look.archive:
        return "log" if home_of(look.log).ledger.exists else "archive"
    return "broker" if look.known is None else "log"


def _version() -> str:
    version: str = sys.modules[__package__.partition(".")[0]].__version__
    return version


def _opened(
    path: str,
    fs: FileSystem,
    clock: Clock,
    url: str | None,
    remote: RemoteOptions,
    rest: Mapping[str, object],
    storage_options: Mapping[str, Any] | None,
) -> _Look:
    """Open the log for reading.

    If the metadata of remote segments is damaged, only the local segments are opened.
    """
    cache, notices = RemoteLogMetadataCache(), []
    open_it: Callable[..., Log] = partial(open_log, storage_options=storage_options, remote=remote)
    directories = split_path(path)
    if url is None:
        try:
            cache = RemoteLogMetadataConsumer(LogDirView(fs, directories), clock).catch_up()
        except DataCorruptionError as error:
            open_it = open_local
            what = f"remote segments are not shown: {error.reason}"
            notices.append(Notice(severity=Severity.DAMAGE, where=error.path, what=what))
    log = open_it(path, fs=fs, options=rest, clock=clock)
    home = view_of(log).home
    has_readers = url is None or home_of(log).ledger.exists
    return _Look(
        fs=fs,
        log=log,
        cache=cache,
        readers=home_of(log).groups.readers() if has_readers else Readers([], {}),
        now_ms=clock(),
        known=None if url is not None else read_topics(fs, home),
        archive=url is not None,
        memory=ReportCache(),
        offsets_retention_ms=LogOptions.parse(rest).offsets_retention_ms,
        notices=notices,
    )


def _topics(look: _Look, progress: Progress | None) -> list[TopicReport]:
    infos = look.log.topics()
    keys = [TopicPartition(name, p) for name, info in infos.items() for p in info.dirs]
    try:
        look.spans = view_of(look.log).spans(keys)
    except (SparklogError, FileNotFoundError) as error:
        _LOGGER.debug("offsets are read partition by partition, because of: %s", error)
    total, done, topics = sum(len(info.dirs) for info in infos.values()), 0, []
    for name, info in sorted(infos.items()):
        partitions = []
        for number in sorted(info.dirs):
            partitions.append(_partition(look, info, number))
            done += 1
            if progress is not None:
                progress(done, total)
        # From the newest batches only: they show how the writers are configured today.
        batches = _batches(look, partitions, len(infos))
        hint = small_batches(batches, sum(p.bytes for p in partitions))
        if hint is not None:
            look.note(Severity.WARNING, name, hint)
        topics.append(
            TopicReport(
                name=name,
                id=info.id,
                config=None if look.known is None and not look.archive else info.config.to_dict(),
                cleanup_policy=info.config.cleanup_policy,
                remote_storage_enable=info.config.remote_storage_enable,
                partitions=tuple(partitions),
                batches=batches,
            )
        )
    return topics


def _batches(
    look: _Look, partitions: list[PartitionReport], topics: int
) -> tuple[BatchFigures, ...]:
    """Return statistics of a topic's newest batches.

    An archive has none, and neither has a log in a bucket with more than IN_STORE_MAX topics.
    """
    if look.archive and (topics > IN_STORE_MAX or not home_of(look.log).ledger.exists):
        return ()
    return topic_batches(view_of(look.log), partitions, topics, look.memory)


def _partition(look: _Look, info: TopicInfo, number: int) -> PartitionReport:
    key, path = TopicPartition(info.name, number), info.dirs[number]
    try:
        return _looked(look, info, number)
    except (SparklogError, FileNotFoundError) as error:
        if number in info.offline:
            what = str(info.offline[number])
        elif not look.archive and not look.fs.is_dir(path):
            # Without a lock, a topic can be deleted between its listing and this read.
            what = "the partition was deleted while the report was made"
            look.note(Severity.WARNING, f"{info.name}-{number}", what)
        else:
            look.note(Severity.DAMAGE, f"{info.name}-{number}", str(error))
            what = str(error)
        return PartitionReport(topic=key.topic, partition=number, directory=path, error=what)


def _looked(look: _Look, info: TopicInfo, number: int) -> PartitionReport:
    key, path = TopicPartition(info.name, number), info.dirs[number]
    view, config = view_of(look.log), info.config
    copies = _copies(look, info, number)
    listed = list_partition(
        look.fs, view, key, Tier(copied_ranges(copies)), look.spans.get(key), memory=look.memory
    )
    for fault in listed.faults[:_FAULTS_TOLD]:
        look.note(Severity.DAMAGE, f"{info.name}-{number}", fault)
    # A copy below the log start is about to be deleted, and does not count.
    copies = [copy for copy in copies if listed.start < copy.end <= listed.end]
    local = [s for s in listed.segments if s.where is not Where.REMOTE]
    going: tuple[ExpiringSegments, ...] = ()
    next_ms, held_back, dirt = None, 0, None
    if look.known is not None and not look.archive:
        floor = _floor(look, info, number, listed.start, listed.end)
        steps, next_ms, held_back = preview_retention(
            listed, config, copies, floor=floor, now_ms=look.now_ms
        )
        going = tuple(steps)
        if config.compact and local:
            dirt = compaction(look.fs, view, key, listed, config, now_ms=look.now_ms)
    remote_bytes = sum(s.bytes for s in listed.segments) if look.archive else (
        sum(copy.size for copy in copies)
    )  # fmt: skip
    return PartitionReport(
        topic=info.name,
        partition=number,
        directory=path,
        log_start=listed.start,
        end=listed.end,
        local_bytes=sum(s.bytes for s in local),
        remote_bytes=remote_bytes,
        segments=listed.segments,
        going=going,
        next_ms=next_ms,
        held_back_bytes=held_back,
        compaction=dirt,
    )


def _copies(look: _Look, info: TopicInfo, number: int) -> list[RemoteSegment]:
    """Return the valid remote segments of a partition.

    Copies beyond the log end are included, because the log end is not known yet.
    """
    readable = look.cache.readable(TopicIdPartition(info.id, number))
    if not readable:
        return []
    return valid_copies(readable, read_epochs(look.fs, info.dirs[number]), end=2**63)


def _floor(
    look: _Look, info: TopicInfo, number: int, start: int, end: int
) -> Callable[[int], int | None]:
    """Return a function that returns the offset from which registered readers retain records.

    Its argument is the time (ms) at which retention would run, because silent readers expire. It
    returns None if no reader holds records back.
    """
    if not info.config.retention_respect_readers or look.known is None:
        return lambda at_ms: None
    key = TopicPartition(info.name, number)
    state = LogState(topics=look.known, starts={key: start}, ends={key: end})
    kept_ms = look.offsets_retention_ms
    return lambda at_ms: retention_floors(
        state, look.readers, [key], now_ms=at_ms, retention_ms=kept_ms
    ).get(key)


def _ledger(look: _Look) -> tuple[CommitsReport, tuple[ReaderReport, ...]]:
    """Return the commits and the readers of the log; both are empty for an archive."""
    in_store = look.archive and home_of(look.log).ledger.exists
    if look.archive and not in_store:
        return CommitsReport(), ()
    commits = CommitsReport()
    readers: tuple[ReaderReport, ...] = ()
    if look.known is not None or in_store:
        try:
            commits = commits_report(look.log.commits())
        except (SparklogError, FileNotFoundError, pa.ArrowException) as error:
            look.note(Severity.DAMAGE, "commit ledger", str(error))
    try:
        readers = readers_report(look.log.readers())
    except (SparklogError, FileNotFoundError) as error:
        look.note(Severity.DAMAGE, "registered readers", str(error))
    for path in look.readers.damaged:
        look.note(Severity.DAMAGE, path, "the file of a registered reader can't be read")
    return commits, readers


def _dates(look: _Look, partitions: list[PartitionReport]) -> None:
    """Add notices about segments with timestamps in the future.

    The age of a segment is its largest timestamp, and retention deletes the oldest segments first,
    so a single such record delays the deletion of its segment and of all later segments.
    """
    for partition in partitions:
        latest = look.now_ms + DAY_MS
        ahead = [s for s in partition.segments if s.last_ms is not None and s.last_ms > latest]
        if ahead:
            offset = ahead[0].base
            look.note(
                Severity.WARNING,
                f"{partition.topic}-{partition.partition}",
                f"{pluralize(len(ahead), 'segment')} from offset {offset} with timestamps more "
                "than a day in the future: until then, retention.ms deletes neither these segments "
                "nor later segments",
            )
