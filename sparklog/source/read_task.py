"""A read task: the records [start, end) of a partition as Arrow batches, in bounded memory.

Spark reuses Python workers, so the opened log is cached between tasks, per path and process.
"""

import socket
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from sparklog.errors import (
    InvalidRequestError,
    OffsetOutOfRangeError,
    TopicReplacedError,
    UnknownTopicError,
)
from sparklog.log.arrow_reads import read_partition, schema_of
from sparklog.log.read_retry import PartitionRead
from sparklog.source.data_loss import DataLossPolicy
from sparklog.source.input_partitions import PlannedRange
from sparklog.source.open_homes import cached_home
from sparklog.source.options import SourceOptions
from sparklog.source.schema import fit
from sparklog.storage.view import View


@dataclass(frozen=True, slots=True)
class ReadTask:
    """Settings that all tasks of a query share; they are pickled."""

    options: SourceOptions
    schema: pa.Schema

    def read_all(self, pieces: Iterable[PlannedRange]) -> Iterator[pa.RecordBatch]:
        """Yield the records of a task's ranges, range by range; see `read`."""
        for piece in pieces:
            yield from self.read(piece)

    def read(self, piece: PlannedRange) -> Iterator[pa.RecordBatch]:
        """Yield the records of a range.

        Raises:
            OffsetOutOfRangeError: Records are missing, and failOnDataLoss is true.
            TopicReplacedError: The topic was re-created since the micro-batch was planned, and
                failOnDataLoss is true.
        """
        loss = DataLossPolicy(self.options.fail_on_data_loss)
        view = _view(self.options, is_planned=piece.plan is not None)
        if piece.plan is not None:
            view = piece.plan.open(view)
        wanted = schema_of(self.schema.names)
        key, at = piece.topic_partition, piece.start
        while at < piece.end:
            read = PartitionRead(
                view, *key, at, piece.end, self.options.isolation_level, piece.topic_id
            )
            try:
                for batch in read_partition(read, wanted, without=piece.without):
                    yield fit(batch, self.schema)
                return
            except OffsetOutOfRangeError as error:
                # Retention has deleted records of this range.
                last = min(error.start, piece.end)
                held = error.start, error.end
                loss.lost_offsets(
                    key, error.offset, last, f"the log starts at {error.start}", held=held
                )
                at = last
            except TopicReplacedError:
                loss.replaced_topic(key, at, None)
                return
            except UnknownTopicError as error:
                loss.lost_offsets(key, at, piece.end, str(error), held=(0, 0))
                return


def _view(options: SourceOptions, *, is_planned: bool) -> View:
    try:
        return cached_home(options, is_planned=is_planned).view
    except InvalidRequestError as error:
        raise InvalidRequestError(
            f"the executor on host {socket.gethostname()} can't see the log {options.path}: "
            f"{error}. "
            "Every executor must have the log's disk, or reach the archive"
        ) from error
