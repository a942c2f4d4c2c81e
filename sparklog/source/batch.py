"""The batch reader of `spark.read.format("sparklog")`, with and without filter pushdown."""

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from sparklog.source import jvm_plan
from sparklog.source.data_loss import DataLossPolicy, readable_ranges
from sparklog.source.filters import Filters
from sparklog.source.input_partitions import coalesce, exclude_abandoned, plan_ranges, split
from sparklog.source.metadata_snapshot import LogMetadata
from sparklog.source.offset_bounds import resolve_end, resolve_start
from sparklog.source.options import SourceOptions
from sparklog.source.read_task import ReadTask
from sparklog.source.schema import arrow_schema, check_schema
from sparklog.spark_errors import in_worker
from sparklog.spark_versions import Filter


@in_worker
class BatchReader(DataSourceReader):
    """Reads a log once, from the start to the end that the options define."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        check_schema(schema)
        self._options = options
        self._reader = ReadTask(options, arrow_schema(schema))
        self._filters = Filters()

    def partitions(self) -> Sequence[InputPartition]:
        """Plan the read up to the present end offsets."""
        log, options = LogMetadata(self._options), self._options
        snapshot = log.snapshot()
        held = snapshot.ranges
        bound, strategy = options.start(streaming=False), options.strategy
        fail = options.fail_on_data_loss
        start = resolve_start(
            bound, held, lambda t: log.offsets_at_times(t, held), strategy=strategy, fail=fail
        )
        end = resolve_end(options.end(), held, lambda t: log.offsets_at_times(t, held), fail=fail)
        loss = DataLossPolicy(fail)
        ranges = readable_ranges(start, end, held, {}, loss, bases=snapshot.bases)
        ranges = self._filters.narrow(ranges, lambda t: log.offsets_at_times(t, held))
        planned = split(plan_ranges(ranges, snapshot.ids), options, log.sizes)
        planned = log.with_plans(exclude_abandoned(planned, log.abandoned()))
        tasks = coalesce(planned, options, log.sizes)
        return [InputPartition(value) for value in jvm_plan.values(log.view, tasks, options)]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """Read a task's records. Runs in an executor."""
        # Without records, Spark 4.0 and 4.1 pass None, and later versions a partition with None.
        task = jvm_plan.task_of(None if partition is None else partition.value)
        return self._reader.read_all(jvm_plan.pieces_of(task))


@in_worker
class FilteringBatchReader(BatchReader):
    """A BatchReader with filter pushdown. Spark rejects it unless its conf allows pushdown."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Use filters that narrow the plan; return the filters that Spark must evaluate."""
        return self._filters.take(filters)
