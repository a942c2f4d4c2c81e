"""Register format("sparklog"): Spark looks for `DefaultSource` in modules named `pyspark_*`."""

from sparklog.datasource import SparklogDataSource as DefaultSource

__all__ = ["DefaultSource"]
