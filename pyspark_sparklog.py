"""Makes format("sparklog") known: Spark looks for `DefaultSource` in modules `pyspark_*`."""

from sparklog.datasource import SparklogDataSource as DefaultSource

__all__ = ["DefaultSource"]
