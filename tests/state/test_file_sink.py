"""Queries of Spark's file sink go back: the sink's log follows, or the call is refused."""

import json
import os
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sparklog.checkpoint import archive, fork, reset, restore
from sparklog.checkpoint.files import Checkpoint
from sparklog.checkpoint.query_sink import SinkKind, recorded_sink
from sparklog.clock import system_clock
from sparklog.errors import InvalidRequestError
from sparklog.session.setup import MANAGER
from tests.state.operators import session

pytestmark = [pytest.mark.spark, pytest.mark.deep]

MANAGERS = [
    pytest.param(None, id="files", marks=pytest.mark.deep),
    pytest.param(MANAGER, id="log"),
]
PER_BATCH = 10


class Numbers:
    """Numbers as CSV files, one file a batch, by a query to Parquet."""

    def __init__(self, spark: SparkSession, root: Path) -> None:
        self.spark, self.root = spark, root
        (root / "input").mkdir()

    def add(self, *batches: int) -> None:
        for batch in batches:
            rows = "".join(f"{PER_BATCH * batch + n}\n" for n in range(PER_BATCH))
            path = self.root / "input" / f"{batch:03}.csv"
            path.write_text(rows)
            os.utime(path, (batch, batch))  # Spark reads them in the order of their age

    def run(self, checkpoint: str, output: str, factor: int = 1, **options: str) -> None:
        frame = (
            self.spark.readStream.schema("n int").option("maxFilesPerTrigger", 1)
            .csv(str(self.root / "input")).selectExpr(f"n * {factor} AS n")
        )  # fmt: skip
        query = (
            frame.writeStream.format("parquet").queryName("to_parquet").options(**options)
            .option("checkpointLocation", str(self.root / checkpoint))
            .trigger(availableNow=True).start(str(self.root / output))
        )  # fmt: skip
        query.awaitTermination()

    def sum(self, output: str) -> int:
        frame = self.spark.read.parquet(str(self.root / output))
        return int(frame.agg({"n": "sum"}).head()[0])  # type: ignore[index]


def total(batches: range, factor: int = 1) -> int:
    return factor * sum(range(PER_BATCH * batches.start, PER_BATCH * batches.stop))


@pytest.fixture(params=MANAGERS)
def numbers(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Numbers:
    found = Numbers(session(spark, "hdfs", request.param), tmp_path)
    found.spark.conf.set("spark.sql.shuffle.partitions", "1")
    found.add(*range(13))
    found.run("ckpt", "out")
    assert found.sum("out") == total(range(13))
    return found


def later() -> int:
    """The machine's clock, past the time in which an uncommitted batch may be under way."""
    return system_clock() + 10_000


@pytest.mark.parametrize(
    ("at", "expired"),
    [(5, True), (9, False), (5, False), (9, True), (12, False), (12, True)],
)
def test_reset(numbers: Numbers, at: int, expired: bool) -> None:
    """The batches behind it are written once more, by a query that was mended meanwhile.

    `expired`: Spark removed the files of the sink's log that a compaction made superfluous.
    """
    root = numbers.root
    if expired:
        for batch in range(9):
            (root / "out/_spark_metadata" / str(batch)).unlink()
    said: list[str] = []
    done = reset(root / "ckpt", to=at, output=root / "out", announce=said.append, clock=later)
    assert said == [done.sink]
    assert done.sink.startswith("Sink: ")
    assert numbers.sum("out") == total(range(at + 1))
    assert not list((root / "out").glob("_spark_metadata.*"))
    numbers.add(*range(13, 24))  # past the next compaction
    numbers.run("ckpt", "out", factor=2)
    assert numbers.sum("out") == total(range(at + 1)) + total(range(at + 1, 24), factor=2)


def test_fork_into_a_new_directory(numbers: Numbers) -> None:
    """It continues past the sink's next compaction, and the original stays as it is."""
    root = numbers.root
    fork(root / "ckpt", root / "forked", to=5, output=root / "out", new_output=root / "out 2")
    assert numbers.sum("out 2") == total(range(6))
    numbers.run("forked", "out 2", factor=2)
    assert numbers.sum("out 2") == total(range(6)) + total(range(6, 13), factor=2)
    assert numbers.sum("out") == total(range(13))


def test_restore(numbers: Numbers) -> None:
    root = numbers.root
    archive(root / "ckpt", f"file://{root}/points", batch=11)
    restore(f"file://{root}/points", root / "again", output=root / "out")
    assert numbers.sum("out") == total(range(12))
    numbers.run("again", "out", factor=2)
    assert numbers.sum("out") == total(range(12)) + total(range(12, 13), factor=2)


def test_what_is_known_and_refused(numbers: Numbers) -> None:
    """A log-backed checkpoint names its sink; of another one a sentence says what isn't known."""
    root = numbers.root
    known = recorded_sink(Checkpoint.open(root / "ckpt"))
    said: list[str] = []
    for wrong in (root, root / "input"):
        with pytest.raises(InvalidRequestError, match=r"no _spark_metadata|writes to .*/out, not"):
            reset(root / "ckpt", to=5, output=wrong, clock=later)
    advice = "Give the query a new checkpoint and a new output directory"
    with pytest.raises(InvalidRequestError, match=advice):
        reset(root / "ckpt", to=5, output="s3a://bucket/out", clock=later)
    numbers.run("new", "new-out")
    assert numbers.sum("new-out") == numbers.sum("out")
    if known.kind is SinkKind.UNKNOWN:
        reset(root / "ckpt", to=5, dry_run=True, announce=said.append, clock=later)
        assert "doesn't say what the query writes to" in said[0]
        return
    assert (known.kind, known.query_name) == (SinkKind.FILES, "to_parquet")
    assert known.output == f"file:{root}/out"
    archive(root / "ckpt", f"file://{root}/points")
    for call in (
        lambda: reset(root / "ckpt", to=5, clock=later),
        lambda: fork(root / "ckpt", root / "forked", to=5),
        lambda: restore(f"file://{root}/points", root / "again"),
    ):
        with pytest.raises(InvalidRequestError, match=r"skips the batches.*--output"):
            call()  # type: ignore[no-untyped-call]
    reset(root / "ckpt", to=5, sink="other", dry_run=True, clock=later)


@pytest.mark.parametrize("numbers", [MANAGER], indirect=True, ids=["log"])
def test_a_reset_that_was_cut_off_before_the_sink_followed(numbers: Numbers) -> None:
    """The query doesn't start until the same reset is run again."""
    root = numbers.root
    reset(root / "ckpt", to=5, output=root / "out", clock=later)
    (root / "out/_spark_metadata").rename(root / "out/_spark_metadata.next")
    note = {"output": str(root / "out"), "batch": 5, "time": 1}
    (root / "ckpt/sparklog.reset").write_text(json.dumps(note))
    with pytest.raises(Exception, match="_spark_metadata is not finished"):
        numbers.run("ckpt", "out")
    reset(root / "ckpt", to=5, output=root / "out", clock=later)
    numbers.run("ckpt", "out", factor=2)
    assert numbers.sum("out") == total(range(6)) + total(range(6, 13), factor=2)
