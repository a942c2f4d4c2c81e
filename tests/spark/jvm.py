"""JVMs that start in half the time: Spark's classes come from an archive that is made once.

The archive (JEP 350, "dynamic CDS") holds the classes that a session with a streaming query loads,
parsed and verified. It lies in the tests' cache, for one JDK and one PySpark; a JVM that can't use
it goes on without.
"""

import contextlib
import hashlib
import os
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

import pyspark

from tests import jars
from tests.paths import ROOT

QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # a JVM that lives for a minute


@cache
def quick() -> str:
    """Flags of a JVM of Spark's. Makes the archive where there is none (half a minute)."""
    with contextlib.suppress(jars.Unavailable, subprocess.SubprocessError):
        if " " not in str(archive := _archive()):
            return f"{QUICK} -XX:SharedArchiveFile={archive} -Xlog:disable"
    return QUICK


def _archive() -> Path:
    java = os.path.realpath(jars.java())
    of = (java, os.path.getmtime(java), pyspark.__file__, pyspark.__version__, Path(__file__))
    stamp = hashlib.sha256(repr(of).encode()).hexdigest()[:12]
    directory = jars.cache() / f"spark-classes-{stamp}"
    jars.once(directory, _make)
    return directory / "classes.jsa"


def _make(directory: Path) -> None:
    command = [sys.executable, "-m", "tests.spark.jvm", str(directory / "classes.jsa")]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=900)


def main(archive: str) -> None:
    """Do what most tests do, in a JVM that writes the archive when it ends."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    provider = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.extraJavaOptions", f"{QUICK} -XX:ArchiveClassesAtExit={archive}")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.streaming.stateStore.providerClass", provider)
        .getOrCreate()
    )
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
    with tempfile.TemporaryDirectory() as checkpoint:
        query = (
            rows.groupBy("value")
            .count()
            .mapInArrow(lambda batches: batches, "value long, count long")
            .writeStream.foreachBatch(lambda df, _: df.toArrow())
            .outputMode("update")
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
    gateway = spark.sparkContext._gateway
    spark.stop()
    gateway.shutdown()  # type: ignore[union-attr]
    process = gateway.proc  # type: ignore[union-attr]
    process.stdin.close()
    process.wait()


if __name__ == "__main__":
    main(sys.argv[1])
