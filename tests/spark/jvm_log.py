"""What the JVM's logger `sparklog` says, for a test to look at."""

import contextlib
from collections.abc import Iterator

from pyspark.sql import SparkSession


class JvmLog:
    """Lines `LEVEL text`, as they come."""

    def __init__(self, spark: SparkSession) -> None:
        jvm = spark.sparkContext._jvm
        core = jvm.org.apache.logging.log4j.core  # type: ignore[union-attr]
        self._levels = jvm.org.apache.logging.log4j.Level  # type: ignore[union-attr]
        self._writer = jvm.java.io.StringWriter()  # type: ignore[union-attr]
        layout = core.layout.PatternLayout.newBuilder().withPattern("%p %m%n").build()
        self._appender = core.appender.WriterAppender.createAppender(
            layout, None, self._writer, "test", False, True
        )
        manager = jvm.org.apache.logging.log4j.LogManager  # type: ignore[union-attr]
        self._logger = manager.getLogger("sparklog")
        self._level = self._logger.getLevel()

    def lines(self) -> list[str]:
        """Return what has been said since the last call."""
        found = str(self._writer.toString()).splitlines()
        self._writer.getBuffer().setLength(0)
        return found

    @contextlib.contextmanager
    def listening(self) -> Iterator["JvmLog"]:
        """Hear what is said, from INFO on."""
        self._appender.start()
        self._logger.addAppender(self._appender)
        self._logger.setLevel(self._levels.INFO)
        try:
            yield self
        finally:
            self._logger.setLevel(self._level)
            self._logger.removeAppender(self._appender)
            self._appender.stop()
