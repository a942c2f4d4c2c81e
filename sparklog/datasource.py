"""`format("sparklog")`: the Python data source that combines source and sink."""

import contextlib
import os
import re
import shutil
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from sparklog.errors import InvalidRequestError, SparklogError
from sparklog.extras import needed
from sparklog.spark_errors import in_worker
from sparklog.spark_support import check_spark

with needed():
    import pyspark

check_spark(pyspark.__version__, 'format("sparklog")')

with needed():
    from pyspark.sql.datasource import (
        DataSource,
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SOURCE: Final = "org.apache.spark.sql.execution.datasources.v2.python.UserDefinedPythonDataSource"
_OPTIONS: Final = "org.apache.spark.sql.util.CaseInsensitiveStringMap"
_EXISTS: Final = "DATA_SOURCE_ALREADY_EXISTS"
_REMEDY: Final = (
    "install sparklog for that Python, start the session with the environment variable "
    "PYSPARK_PYTHON set to a Python that has sparklog, or ship the package with --py-files or "
    "addPyFile. Then call sparklog.enable(spark) or sparklog.register(spark) again"
)
_NOT_HERE: Final = (
    'Spark starts it on the driver too, to plan reads and writes of format("sparklog"). If it is '
    "part of an archive (--archives), unpack the archive there, or set PYSPARK_PYTHON to a path "
    "that exists on the driver's host and on every executor's"
)

_NO_TABLES: Final = (
    "format(\"sparklog\") can't be a table of Spark's catalog, which does not pass a table's "
    "options to the data source"
)
_INSTEAD: Final = (
    "To write, give options path and topic and call save() on "
    'df.write.format("sparklog").mode("append"), or start() on df.writeStream.format("sparklog"). '
    "To read by a name, use CREATE TEMPORARY VIEW name USING sparklog OPTIONS (path '...', "
    "subscribe '...')"
)


@in_worker
class SparklogDataSource(DataSource):
    """Reads and writes with the options and columns of Spark's Kafka source and sink.

    With option stateOperator it reads the state of a query's checkpoint instead. Imports are inside
    the methods, because Spark loads every `pyspark_*` module to learn the format's name.
    """

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "sparklog"

    def schema(self) -> StructType:
        """Return the Kafka source's columns, or the columns of a checkpoint's state."""
        from sparklog.source import state_options

        if "provider" in self.options:
            self._given()
        if state_options.reads_state(self.options):
            from sparklog.source.state import state_schema

            return state_schema(state_options.parse(self._given()))
        from sparklog.source.options import OPTIONS
        from sparklog.source.schema import full_schema

        asked = OPTIONS["includeHeaders"].parse(self.options.get("includeHeaders", "false"))
        return full_schema(headers=asked is True)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of `spark.read`."""
        from sparklog.source import state_options

        if state_options.reads_state(self.options):
            from sparklog.source.state import StateBatchReader

            return StateBatchReader(state_options.parse(self._given(), streaming=False), schema)
        from sparklog.source.batch import BatchReader, FilteringBatchReader
        from sparklog.source.options import parse

        options = parse(self._given(), streaming=False)
        return (FilteringBatchReader if options.pushdown else BatchReader)(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the reader of `spark.readStream`.

        An error is raised when the reader is first used, because Spark reports an error that is
        raised here as an UnboundLocalError.
        """
        from sparklog.source.called_reader import callable_by_spark

        try:
            reader = self._stream_reader(schema)
        except SparklogError as error:
            from sparklog.source.stream import RefusedStreamReader

            reader = RefusedStreamReader(error)
        return callable_by_spark(reader)

    def _stream_reader(self, schema: StructType) -> DataSourceStreamReader:
        from sparklog.source import state_options
        from sparklog.source.called_reader import check_limits
        from sparklog.source.jvm_caller import JvmCaller

        check_limits(self.options, has_jar=bool(JvmCaller.parse(self.options)[0].plan_versions))
        if state_options.reads_state(self.options):
            from sparklog.source.state import StateStreamReader

            return StateStreamReader(state_options.parse(self._given(), streaming=True), schema)
        from sparklog.source.options import parse
        from sparklog.source.stream import StreamReader

        return StreamReader(parse(self._given(), streaming=True), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the writer of `df.write`."""
        from sparklog.sink.options import parse
        from sparklog.sink.writers import BatchWriter
        from sparklog.source.jvm_caller import JvmCaller

        caller, given = JvmCaller.parse(self._given())
        for_jvm = bool(caller.plan_versions)
        return BatchWriter(parse(given), schema, overwrite, for_jvm=for_jvm)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Return the writer of `df.writeStream`.

        `overwrite` is output mode complete: the complete result of each micro-batch is appended, as
        by the Kafka sink. Spark rejects mode update for every Python data source; SegmentSink under
        foreachBatch supports it.
        """
        from sparklog.sink.options import parse
        from sparklog.sink.writers import StreamWriter
        from sparklog.source.jvm_caller import JvmCaller

        caller, given = JvmCaller.parse(self._given())
        return StreamWriter(parse(given), schema, False, for_jvm=bool(caller.plan_versions))

    def _given(self) -> Mapping[str, Any]:
        """Return the options. Raises InvalidRequestError for a table of Spark's catalog.

        Spark 4 passes the properties of a table when it creates a table without columns. Spark
        passes no properties when it creates a table with columns, and when it reads or writes a
        table.
        """
        from sparklog.source.jvm_caller import JvmCaller

        if "provider" in self.options:
            raise InvalidRequestError(f"{_NO_TABLES}; no table was made. {_INSTEAD}")
        if not JvmCaller.parse(self.options)[1]:
            raise InvalidRequestError(
                "option path is missing: set it to the log's directory or URL. If this is a table "
                f"of Spark's catalog: {_NO_TABLES}, so this table can be neither read nor written. "
                f"Remove it by DROP TABLE, which deletes no log. {_INSTEAD}"
            )
        return dict(self.options)


class _WrappedDataSource(SparklogDataSource):
    """The data source that sparklog's jar wraps, under a name that is not the jar's own."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format, as in DefaultSource.scala."""
        return "sparklog_python"


def register(spark: "SparkSession") -> None:
    """Register the Python data source in a session, with or without sparklog's jar in the JVM.

    It is registered under two names: without the jar Spark uses the name "sparklog"; the jar's
    class `sparklog.DefaultSource` has that name too, and uses the other one.

    Cost: starts a Python worker on the driver's host, which is used again.

    Raises: InvalidRequestError if the Python workers of the driver's host can't import sparklog;
        in this case the session is unchanged.
    """
    classic = hasattr(spark, "_jsparkSession")
    put = _classic_registration(spark) if classic else spark.dataSource.register
    if classic:
        _share_with_stream_planners(spark)
    for source_class in (SparklogDataSource, _WrappedDataSource):
        try:
            put(source_class)
        except Exception as error:  # Spark Connect's classes of errors need packages of their own
            # The name belongs to the jar or an installed package, or was registered before.
            if _EXISTS not in str(error):
                raise
    if not classic:
        _check_server(spark)


def _check_server(spark: "SparkSession") -> None:
    """Check that the Python of a Spark Connect server can load the data source."""
    try:
        _ = spark.read.format(_WrappedDataSource.name()).load().schema
    except Exception as error:  # noqa: BLE001 - see `register`
        raise InvalidRequestError(
            f"the Python of the Spark Connect server can't load sparklog: {_reason(error)}. "
            "Install sparklog for the server's Python (PYSPARK_PYTHON) and start the server again"
        ) from None


def _share_with_stream_planners(spark: "SparkSession") -> None:
    """Let the Python process that plans streaming reads on the driver import the --py-files."""
    from pyspark import SparkFiles

    # That process looks for them in a directory below the others' (PythonStreamingSourceRunner and
    # PythonWorkerUtils.writeSparkFiles, Spark 4.0 to 4.3), into which Spark puts nothing.
    shared = SparkFiles.getRootDirectory()
    own = os.path.join(shared, "streaming_job")
    with contextlib.suppress(OSError):  # only streaming reads need the files
        os.makedirs(own, exist_ok=True)
        for name in spark.sparkContext._python_includes or ():
            with contextlib.suppress(FileExistsError):
                os.symlink(os.path.join(shared, name), os.path.join(own, name))


def _classic_registration(spark: "SparkSession") -> Callable[[type[DataSource]], None]:
    """Return a function that registers a data source, whether or not the JVM knows its name."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException
    from pyspark.sql.udf import _wrap_function

    context = spark.sparkContext
    jvm: Any = context._jvm

    def put(source_class: type[DataSource]) -> None:
        name = source_class.name()
        source = getattr(jvm, _SOURCE)(_wrap_function(context, source_class))
        try:
            source.createDataSourceInPython(
                name, getattr(jvm, _OPTIONS).empty(), jvm.scala.Option.empty()
            )
        except (Py4JError, PySparkException) as error:
            python = context.pythonExec
            if shutil.which(python) is None:
                raise InvalidRequestError(
                    f"Spark's Python workers run {python}, which is missing in the driver's "
                    f"directory {os.getcwd()}: {_NOT_HERE}"
                ) from None
            raise InvalidRequestError(
                f"Spark's Python workers run {python}, which can't load sparklog: "
                f'{_reason(error)}. To use format("sparklog"), {_REMEDY}'
            ) from None
        spark._jsparkSession.sessionState().dataSourceManager().registerDataSource(name, source)

    return put


def _reason(error: Exception) -> str:
    """Return the line of a worker's error that contains the reason."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    reasons = [line for line in lines if re.match(r"[\w.]*(Error|Exception): ", line)]
    return re.sub(r"\s*SQLSTATE: \w+$", "", (reasons or lines or [repr(error)])[-1]).rstrip(".")
