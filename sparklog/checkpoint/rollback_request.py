"""A request to go back to an earlier batch, which is selected by number, time, or offsets."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from operator import index
from typing import Any

from sparklog.checkpoint.batches import Batches
from sparklog.checkpoint.files import Checkpoint, check_not_nested
from sparklog.checkpoint.history import writer_name
from sparklog.checkpoint.query_sink import Announce, QuerySink, choose_sink
from sparklog.checkpoint.spark_files.metadata_logs import TopicOffsets, topics_of
from sparklog.checkpoint.stored_copies import complete_in_runs
from sparklog.checkpoint.unfinished_reset import check_log, complete
from sparklog.clock import Clock
from sparklog.common import TopicPartition
from sparklog.errors import InvalidRequestError
from sparklog.fs import FileSystem
from sparklog.log.positions import to_ms
from sparklog.opening import open_log

Path = str | os.PathLike[str]
Target = int | datetime | Mapping[str, Any]
"""A batch; a time with zone (the last batch planned by then); or offsets.

Offsets {"offsets": {"topic": {"0": 123}}} mean the last batch that reads past none of them.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class RollbackRequest:
    """A request to continue a query after an earlier batch.

    The attributes have the meaning of the arguments of `sparklog.checkpoint.reset`.
    """

    to: Target
    log: Path | None
    writer: str | None
    sources: Mapping[str, str] | None
    output: Path | None
    sink: str | None
    announce: Announce | None
    storage_options: Mapping[str, Any] | None
    fs: FileSystem
    clock: Clock

    def complete_reset(self, checkpoint: Checkpoint) -> None:
        """Complete an earlier reset of the checkpoint that was interrupted."""
        if checkpoint.fs is self.fs:
            complete(
                checkpoint.path, storage_options=self.storage_options, fs=self.fs,
                clock=self.clock,
            )  # fmt: skip
        else:
            complete_in_runs(checkpoint, self.storage_options, fs=self.fs, clock=self.clock)

    def select_batch(self, checkpoint: Checkpoint) -> tuple[Batches, int]:
        """Return the batches, and the batch after which the query and its sources can continue.

        Raises:
            InvalidRequestError: There is no such batch, the query or a source can't continue after
                it, or `to` is malformed.
            DataCorruptionError: A plan or commit is damaged.
        """
        batches = Batches(checkpoint)
        batch = _selected(batches, self.to)
        batches.check_reachable(batch)
        offsets = batches.offsets(batch).sources
        for source, path in (self.sources or {}).items():
            if source not in offsets:
                raise InvalidRequestError(
                    f"batch {batch} has no source {source!r}; its sources are {', '.join(offsets)}"
                )
            wanted = topics_of(offsets[source])
            if wanted is None:
                raise InvalidRequestError(
                    f"source {source!r} does not read topics; its offset is {offsets[source]}"
                )
            self._check_retention(path, wanted, batch)
        return batches, batch

    def _check_retention(self, path: str, wanted: TopicOffsets, batch: int) -> None:
        """Check that the log at `path` still has the records after these offsets."""
        with open_log(path, storage_options=self.storage_options, fs=self.fs) as log:
            for topic in sorted({partition.topic for partition in wanted}):
                held = log.offsets(topic)
                for (name, partition), offset in wanted.items():
                    if name != topic or partition not in held:
                        continue
                    start = held[partition][0]
                    if offset < start:
                        raise InvalidRequestError(
                            f"after batch {batch} the query would read {topic}-{partition} from "
                            f"offset {offset} on, but the log start offset of {path} is {start}: "
                            "retention deleted the records; go back to a later batch, or restore "
                            "the log from its archive"
                        )

    def writer_in_log(self, checkpoint: Checkpoint) -> str | None:
        """Return the query's name in the log that it writes to, or None without a log.

        Raises:
            InvalidRequestError: The query has not written to the log, or the log is in the
                checkpoint.
        """
        if self.log is None:
            return None
        name = writer_name(checkpoint, self.writer)
        check_log(self.log, name, self.fs, self.storage_options)
        check_not_nested(checkpoint.path, self.log)
        return name

    def choose_sink(self, checkpoint: Checkpoint) -> QuerySink:
        """Return the query's sink.

        Raises the errors of `sparklog.checkpoint.query_sink.choose_sink`.
        """
        return choose_sink(checkpoint, log=self.log, output=self.output, sink=self.sink)


def _selected(batches: Batches, to: Target) -> int:
    """Return the committed batch that `to` selects.

    Raises:
        InvalidRequestError: There is no such batch, or `to` is malformed.
        DataCorruptionError: A plan or commit is damaged.
    """
    if isinstance(to, bool) or not isinstance(to, int | datetime | Mapping):
        raise InvalidRequestError(
            f"to must be a batch, a datetime or {{'offsets': ...}}; got {to!r}"
        )
    if isinstance(to, int):
        return to
    if isinstance(to, datetime):
        when_ms = to_ms(to)
        found = [b for b in _completed(batches) if batches.offsets(b).timestamp_ms <= when_ms]
        wanted = f"was planned by {to.isoformat()}"
    else:
        limits = _limits(to)
        found = [b for b in _completed(batches) if _is_within(batches, b, limits)]
        wanted = "ends at or before the given offsets"
    if not found:
        raise InvalidRequestError(
            f"{batches.checkpoint.path}: no committed batch {wanted}; to list the batches, run "
            f"`sparklog checkpoint history {batches.checkpoint.path}`",
            path=batches.checkpoint.path,
        )
    return found[-1]


def _completed(batches: Batches) -> list[int]:
    return sorted({*batches.planned} & {*batches.committed})


def _limits(to: Mapping[str, Any]) -> TopicOffsets:
    text = to.get("offsets") if to.keys() == {"offsets"} else None
    topics = text if isinstance(text, Mapping) else {}
    try:
        found = {
            TopicPartition(str(topic), int(partition)): index(offset)
            for topic, partitions in topics.items()
            for partition, offset in partitions.items()
        }
    except (AttributeError, TypeError, ValueError):
        found = {}
    if not found:
        raise InvalidRequestError(
            f"offsets must have the form {{'offsets': {{'topic': {{'0': 123}}}}}}; got {to!r}"
        )
    return found


def _is_within(batches: Batches, batch: int, limits: TopicOffsets) -> bool:
    """Return True if a batch reads all these partitions, but none past the given offset."""
    known: TopicOffsets = {}
    for text in batches.offsets(batch).sources.values():
        known.update(topics_of(text) or {})
    return all(known.get(partition, limit + 1) <= limit for partition, limit in limits.items())
