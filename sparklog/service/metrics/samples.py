"""Metrics and this process's counts as samples, for endpoints and tables."""

from collections.abc import Iterable, Iterator

from sparklog.logdir.paths import split_path
from sparklog.metrics import QUERIES, Distribution, Metric, Sample, meters
from sparklog.service.metrics import names
from sparklog.service.metrics.observed import LogMetrics
from sparklog.service.metrics.offline_directories import offline_reason


def samples(found: LogMetrics, *, process: bool = True) -> Iterator[Sample]:
    """Yield the samples of a log; with `process` also this process's own counts for the log."""
    yield Sample(names.INFO, (found.path,), 1)
    yield from _directories(found)
    yield from _partitions(found)
    yield from _commits(found)
    yield from _batches(found)
    yield from _readers(found)
    for tier in found.tiers:
        yield Sample(names.REMOTE_SIZE, (tier.topic,), tier.remote_bytes)
        yield Sample(names.COPY_LAG_BYTES, (tier.topic,), tier.copy_lag_bytes)
        yield Sample(names.COPY_LAG_SEGMENTS, (tier.topic,), tier.copy_lag_segments)
        yield Sample(names.COPY_LAG_SECONDS, (tier.topic,), tier.copy_lag_ms / 1000)
        yield Sample(names.DELETE_LAG_BYTES, (tier.topic,), tier.delete_lag_bytes)
        yield Sample(names.DELETE_LAG_SEGMENTS, (tier.topic,), tier.delete_lag_segments)
    for one in found.awaiting_deletion:
        labels = one.topic, one.kind, one.storage
        yield Sample(names.AWAITING_DELETION, labels, one.size_bytes)
    for merge in found.merges:
        yield Sample(names.MERGE_LAG_BYTES, (merge.topic,), merge.size_bytes)
        yield Sample(names.MERGE_LAG_SECONDS, (merge.topic,), merge.age_ms / 1000)
    if found.term is not None:
        yield Sample(names.TERM, (), found.term)
    if found.holder:
        who = tuple(str(found.holder.get(name, "")) for name in names.HOLDER.labels)
        since_ms = found.holder.get("since_ms")
        yield Sample(names.HOLDER, who, since_ms / 1000 if isinstance(since_ms, int) else 0)
    yield Sample(names.SCRAPE_SECONDS, (), found.took_ms / 1000)
    yield Sample(names.SCRAPE_ERRORS, (), len(found.errors))
    if process:
        yield from meters(_home(found)).samples()
        if found.remote_url is not None:
            yield from meters(found.remote_url).samples()


def _home(found: LogMetrics) -> str:
    return found.home or split_path(found.path)[0]


def _directories(found: LogMetrics) -> Iterator[Sample]:
    home = _home(found)
    count = 0
    for directory in found.directories:
        name = (directory.directory,)
        is_offline = bool(offline_reason(home, directory))
        count += is_offline
        yield Sample(names.DIRECTORY_OFFLINE, name, int(is_offline))
        if directory.free_bytes is not None:
            yield Sample(names.DISK_FREE, name, directory.free_bytes)
    yield Sample(names.DIRECTORIES_OFFLINE, (), count)
    yield Sample(names.PARTITIONS_OFFLINE, (), len(found.offline))
    for topic, partition in sorted(found.offline):
        yield Sample(names.PARTITION_OFFLINE, (topic, str(partition)), 1)


def _partitions(found: LogMetrics) -> Iterator[Sample]:
    due: dict[str, int] = {}
    for one in found.partitions:
        labels = one.topic, str(one.partition)
        yield Sample(names.SIZE, labels, one.size_bytes)
        yield Sample(names.SEGMENTS, labels, one.segments)
        yield Sample(names.LOG_START, labels, one.log_start_offset)
        yield Sample(names.LOG_END, labels, one.log_end_offset)
        if one.pieces is not None:
            yield Sample(names.MERGE_LAG_PIECES, labels, one.pieces)
        due[one.topic] = due.get(one.topic, 0) + one.due_bytes
    for topic, late in due.items():
        yield Sample(names.RETENTION_DUE, (topic,), late)


def _commits(found: LogMetrics) -> Iterator[Sample]:
    if found.last_commit_ms is not None:
        yield Sample(names.LAST_COMMIT, (), found.last_commit_ms / 1000)
    for writer in found.writers:
        yield Sample(names.WRITER_BATCH, (writer.writer,), writer.batch)
        yield Sample(names.WRITER_TIME, (writer.writer,), writer.time_ms / 1000)
    if found.commits is None:
        return
    for kind, count in found.commits.commits.items():
        yield Sample(names.COMMITS, (kind,), count)
    for topic, count in found.commits.records.items():
        yield Sample(names.COMMIT_RECORDS, (topic,), count)
    yield Sample(names.COMMIT_BYTES, (), found.commits.size_bytes)
    yield Sample(names.COMMIT_SECONDS, (), found.commits.duration_seconds)


def _batches(found: LogMetrics) -> Iterator[Sample]:
    for topic, figures in found.batches.items():
        for each in figures:
            labels = topic, each.codec
            yield Sample(names.BATCH_RECORDS_AVG, labels, each.records_avg)
            yield Sample(names.BATCH_RECORDS, (*labels, "0.5"), each.records_p50)
            yield Sample(names.BATCH_RECORDS, (*labels, "0.99"), each.records_p99)
            yield Sample(names.BATCH_BYTES_AVG, labels, each.bytes_avg)
            yield Sample(names.BATCH_BYTES, (*labels, "0.5"), each.bytes_p50)
            yield Sample(names.BATCH_BYTES, (*labels, "0.99"), each.bytes_p99)
            if each.compression_rate is not None:
                yield Sample(names.BATCH_RATE, labels, each.compression_rate)


def _readers(found: LogMetrics) -> Iterator[Sample]:
    times: dict[tuple[str, str], int] = {}
    for one in found.readers:
        if one.expired:
            continue
        who = one.group, one.kind
        times[who] = max(one.time_ms, times.get(who, 0))
        labels = (*who, one.topic, str(one.partition))
        yield Sample(names.READER_OFFSET, labels, one.offset)
        if one.lag is not None:
            yield Sample(names.READER_LAG, labels, one.lag)
    for who, time_ms in times.items():
        yield Sample(names.READER_TIME, who, time_ms / 1000)
    yield Sample(names.READERS_DAMAGED, (), found.damaged_readers)


def process_samples() -> Iterator[Sample]:
    """Yield the samples of this process's streaming queries."""
    yield from meters(QUERIES).samples()


def by_metric(given: Iterable[Sample]) -> dict[Metric, list[Sample]]:
    """Group samples by metric, in the order of each metric's first sample."""
    found: dict[Metric, list[Sample]] = {}
    for sample in given:
        found.setdefault(sample.metric, []).append(sample)
    return found


def to_json(given: Iterable[Sample]) -> list[dict[str, object]]:
    """Return samples as plain objects: name, labels, value (a distribution: count, sum, at)."""
    return [
        {
            "name": metric.name,
            "type": str(metric.kind),
            "labels": dict(zip(metric.labels, labels, strict=True)),
            "value": _plain(value),
        }
        for metric, labels, value in given
    ]


def _plain(value: float | Distribution) -> object:
    if isinstance(value, Distribution):
        at = {str(bound): number for bound, number in value.at.items()}
        return {"count": value.count, "sum": value.sum, "at": at}
    return value
