"""Spark tasks for the service: cleaning a partition runs as a task."""

from collections.abc import Callable, Iterable
from typing import Any

from pyspark.sql import SparkSession

from sparklog.errors import InvalidRequestError
from sparklog.spark_errors import in_worker


def spark_map(spark: SparkSession) -> Callable[[Callable[[Any], Any], list[Any]], Iterable[Any]]:
    """Return the `map` for `sparklog.service.Service` that runs each job as a Spark task.

    Every executor must have access to the log dir.

    Args:
        spark: The session.

    Raises:
        InvalidRequestError: The session is a Spark Connect session, which has no such tasks.

    Cost:
        Memory of a task: an offset map (log.cleaner.dedupe.buffer.size divided by
        log.cleaner.threads) and a few windows of 4 MiB.

    Examples:
        >>> from sparklog.service import Service
        >>> from sparklog.sink import spark_map
        >>> with Service(log.path, map=spark_map(spark)) as service:
        ...     report = service.run_once()
    """
    if not hasattr(spark, "_jsparkSession"):
        raise InvalidRequestError(
            "spark_map needs a classic Spark session; with Spark Connect, omit map=, so that the "
            "service cleans in its own process"
        )

    def spread(function: Callable[[Any], Any], jobs: list[Any]) -> Iterable[Any]:
        tasks = spark.sparkContext.parallelize(jobs, len(jobs)).map(_Job(function))
        results: list[Any] = tasks.collect()
        return results

    return spread


@in_worker
class _Job:
    def __init__(self, function: Callable[[Any], Any]) -> None:
        self._function = function

    def __call__(self, job: Any) -> Any:
        return self._function(job)
