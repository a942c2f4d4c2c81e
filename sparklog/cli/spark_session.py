"""The Spark session of commands that need Spark: local, quiet, with sparklog's settings."""

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from sparklog.errors import InvalidRequestError
from sparklog.extras import needed
from sparklog.spark_support import SUPPORTED, spark_version

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextlib.contextmanager
def spark_session() -> "Iterator[SparkSession]":
    """Start Spark, and stop it at the end. A session of this process is used, and kept.

    Raises:
        InvalidRequestError: PySpark isn't installed.
        ClickException: Spark can't be started.
    """
    with needed(InvalidRequestError):
        import pyspark
        from pyspark.sql import SparkSession

    from sparklog.session.setup import spark_conf

    active = SparkSession.getActiveSession()
    if active is not None:
        yield active
        return
    builder = SparkSession.builder.appName("sparklog").config("spark.log.level", "OFF")
    quiet = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
    # With an older Spark there are no settings.
    is_old = spark_version(pyspark.__version__) < SUPPORTED[0]
    for key, value in (quiet | ({} if is_old else spark_conf())).items():
        builder = builder.config(key, value)
    try:
        spark = builder.getOrCreate()
    except Exception as error:
        raise click.ClickException(
            f"Spark can't be started ({str(error).splitlines()[0]}). Spark needs a Java runtime, "
            "17 or later: set JAVA_HOME to its directory"
        ) from error
    try:
        yield spark
    finally:
        spark.stop()
