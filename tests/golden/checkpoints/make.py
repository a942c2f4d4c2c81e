"""Make the checkpoints beside this file by Spark itself: `python tests/golden/checkpoints/make.py`.

One .tar.xz each, unpacked by tests/checkpoint. Paths inside are those of a directory made for the
purpose; the host's name stays out of RocksDB's files by a UTS namespace of its own.
"""

import os
import shutil
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
STATE = "spark.sql.streaming.stateStore."
SHORT = {
    "spark.sql.streaming.minBatchesToRetain": "6",
    f"{STATE}minDeltasForSnapshot": "4",
    f"{STATE}maintenanceInterval": "100ms",
}
ROCKS = {
    f"{STATE}providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    f"{STATE}minDeltasForSnapshot": "4",
    f"{STATE}maintenanceInterval": "100ms",
}
CHANGELOG = {**ROCKS, f"{STATE}rocksdb.changelogCheckpointing.enabled": "true"}
IDS = {f"{STATE}checkpointFormatVersion": "2"}
LOGS = {"spark.sql.streaming.offsetLog.formatVersion": "2"}
SETTINGS = [key for conf in (SHORT, ROCKS, CHANGELOG, IDS, LOGS) for key in conf]
SETTINGS += ["spark.sql.streaming.checkpoint.fileChecksum.enabled", f"{STATE}compression.codec"]


def numbers(spark: Any, files: str) -> Any:
    return spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 40).load()


def sums(spark: Any, files: str) -> Any:
    return numbers(spark, files).selectExpr("value % 7 as k", "value").groupBy("k").sum("value")


def total(spark: Any, files: str) -> Any:
    return numbers(spark, files).groupBy().sum("value")


def first_rows(spark: Any, files: str) -> Any:
    return numbers(spark, files).limit(100)


def joined(spark: Any, files: str) -> Any:
    from pyspark.sql.functions import expr

    left = numbers(spark, files).selectExpr("value as k", "timestamp as t")
    right = numbers(spark, files).selectExpr("value as k2", "timestamp as t2")
    near = expr("k = k2 and t2 between t and t + interval 2 seconds")
    return left.withWatermark("t", "5 seconds").join(right.withWatermark("t2", "5 seconds"), near)


def text_files(spark: Any, files: str) -> Any:
    reader = spark.readStream.schema("v int").option("maxFilesPerTrigger", 1)
    return reader.csv(files).selectExpr("v % 3 as k", "v").groupBy("k").count()


def processed(spark: Any, files: str) -> Any:
    import pandas as pd
    from pyspark.sql.streaming import StatefulProcessor

    class Counter(StatefulProcessor):
        def init(self, handle: Any) -> None:
            self.count = handle.getValueState("count", "n int")
            self.seen = handle.getListState("seen", "v long")

        def handleInputRows(self, key: Any, rows: Any, timers: Any) -> Iterator[Any]:
            known = self.count.get()[0] if self.count.exists() else 0
            values = [int(v) for part in rows for v in part["value"]]
            self.count.update((known + len(values),))
            self.seen.appendValue((values[0],))
            yield pd.DataFrame({"k": [key[0]], "n": [known + len(values)]})

        def close(self) -> None:
            pass

    rows = numbers(spark, files).selectExpr("value % 5 as k", "value").groupBy("k")
    return rows.transformWithStateInPandas(Counter(), "k long, n int", "Update", "None")


Frame = Callable[[Any, str], Any]
PLAIN = {"spark.sql.streaming.checkpoint.fileChecksum.enabled": "false"}
QUERIES: dict[str, tuple[Frame, dict[str, str], int, str]] = {
    "stateless": (numbers, SHORT, 12, "append"),
    "hdfs": (sums, SHORT, 14, "update"),
    "hdfs-zstd": (sums, {f"{STATE}compression.codec": "zstd", **PLAIN}, 6, "update"),
    "join": (joined, {}, 6, "append"),
    "files": (text_files, {f"{STATE}compression.codec": "snappy"}, 12, "update"),
    "rocksdb": (sums, ROCKS, 6, "update"),
    "changelog": (sums, {**CHANGELOG, **SHORT}, 14, "update"),
    "ids": (sums, {**CHANGELOG, **IDS}, 10, "update"),
    "processed": (processed, {**CHANGELOG, **IDS}, 6, "update"),
    "sources-by-name": (numbers, LOGS, 4, "append"),
    "global": (total, {}, 6, "update"),
    "limit": (first_rows, PLAIN, 4, "append"),
    "repartitioned": (sums, CHANGELOG, 3, "update"),
    "repartitioned-ids": (sums, {**CHANGELOG, **IDS}, 3, "update"),
    "repartitioned-global": (total, CHANGELOG, 3, "update"),
    "async": (numbers, {}, 12, "append"),
    "ids-lzf": (sums, {**CHANGELOG, **IDS, f"{STATE}compression.codec": "lzf"}, 6, "update"),
}
REPARTITIONED = {  # by Spark, offline; the query goes on for some batches after each
    "repartitioned": (3, 1),
    "repartitioned-ids": (3, 1),
    "repartitioned-global": (3,),  # a second time Spark looks for state that isn't there
}
ASYNC = {
    "asyncProgressTrackingEnabled": "true",
    "asyncProgressTrackingCheckpointIntervalMs": "500",
}


def until(writer: Any, batch: int) -> None:
    """Run the query until this batch is done."""
    query = writer.start()
    while query.lastProgress is None or query.lastProgress["batchId"] < batch:
        time.sleep(0.05)
        if query.exception() is not None:
            raise query.exception()
    query.stop()


def run(spark: Any, name: str, work: Path) -> None:
    frame, conf, batches, mode = QUERIES[name]
    for key in SETTINGS:
        spark.conf.unset(key)
    for key, value in conf.items():
        spark.conf.set(key, value)
    files, checkpoint = work / "input", work / name
    files.mkdir(exist_ok=True)
    for number in range(batches):
        (files / f"{number:02}.csv").write_text(f"{number}\n{number + 1}\n")
        os.utime(files / f"{number:02}.csv", (number, number))
    writer = frame(spark, str(files)).writeStream.format("noop").outputMode(mode)
    writer = writer.option("checkpointLocation", str(checkpoint)).trigger(
        processingTime="150 milliseconds"
    )
    if name == "async":
        writer = writer.options(**ASYNC)
    until(writer, batches - 1)
    for parts in REPARTITIONED.get(name, ()):
        manager = spark._jsparkSession.streamingCheckpointManager()
        manager.repartition(str(checkpoint), parts, False)
        batches *= 2
        until(writer, batches - 1)
    for cut_off in checkpoint.rglob(".*.tmp"):  # by the stop
        cut_off.unlink()
    shutil.rmtree(files)
    packed = HERE / f"{name}.tar.xz"
    with tarfile.open(packed, "w:xz") as tar:
        tar.add(checkpoint, arcname=name)
    print(name, packed.stat().st_size, sum(p.is_file() for p in checkpoint.rglob("*")))


def main(names: list[str]) -> None:
    if os.environ.get("SPARKLOG_GOLDEN") != "1":
        line = ["unshare", "--uts", "sh", "-c", 'hostname localhost; exec "$@"', "sh"]
        os.environ["SPARKLOG_GOLDEN"] = "1"
        os.execvp(line[0], [*line, sys.executable, __file__, *names])
    sys.path.insert(0, str(HERE.parents[2]))
    from tests.spark.conftest import build_session

    spark = build_session()
    with tempfile.TemporaryDirectory(prefix="sparklog-golden-") as work:
        for name in names or QUERIES:
            run(spark, name, Path(work))
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1:])
