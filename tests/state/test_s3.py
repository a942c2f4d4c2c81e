"""Checkpoints in S3, kept by Spark or in runs, and the tools that read them there."""

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import sparklog
from sparklog.checkpoint import (
    CheckpointKind,
    archive,
    changes,
    export,
    fork,
    history,
    import_,
    reset,
    restore,
    rewrite,
    stored_copies,
    verify,
)
from sparklog.errors import InvalidRequestError
from sparklog.tiered import open_store
from tests.depth import DEPTH
from tests.paths import ROOT
from tests.spark.conftest import environment
from tests.spark.versions import since
from tests.state.s3a import s3a_conf
from tests.state.stored_driver import RUNS, STATE
from tests.tiered.s3 import S3Server

pytestmark = [
    pytest.mark.spark, pytest.mark.deep, pytest.mark.s3, since((4, 2), "Hadoop 3.5")
]  # fmt: skip
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
Query = Callable[..., None]


@pytest.fixture
def query(tmp_path: Path, s3: S3Server, provider: dict[str, str], kept: dict[str, str]) -> Query:
    """Run the query with a source, a sink and a checkpoint until the source's end."""
    conf = {**s3a_conf(s3), "spark.sql.shuffle.partitions": "2", **provider}
    settings = tmp_path / "settings.json"

    def run(source: Path, sink: Path, checkpoint: str, own: dict[str, str] = kept) -> None:
        settings.write_text(json.dumps({**conf, **own}))
        words = ["-m", "tests.state.s3_query", settings, source, sink, checkpoint]
        done = subprocess.run(
            [sys.executable, *words], cwd=ROOT, env=environment(), capture_output=True, text=True,
            timeout=300,
        )  # fmt: skip
        assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]

    return run


# Each way of keeping is used by one test at depth ci.
BY_SPARK = ["by Spark", "in runs"] if DEPTH == "all" else ["by Spark"]


@pytest.fixture(params=["by Spark", "in runs"] if DEPTH == "all" else ["in runs"])
def kept(request: pytest.FixtureRequest) -> dict[str, str]:
    return RUNS if request.param == "in runs" else {}


@pytest.fixture(params=["rocksdb", "hdfs"] if DEPTH == "all" else ["rocksdb"])
def provider(request: pytest.FixtureRequest) -> dict[str, str]:
    if request.param == "hdfs":
        return {}
    return {
        f"{STATE}.providerClass": ROCKSDB, f"{STATE}.checkpointFormatVersion": "2",
        f"{STATE}.rocksdb.changelogCheckpointing.enabled": "true",
        f"{STATE}.minDeltasForSnapshot": "2", f"{STATE}.maintenanceInterval": "1s",
    }  # fmt: skip


def totals(path: Path) -> list[tuple[str, str]]:
    with sparklog.open(path) as log:
        rows = log.read("totals", columns=["key", "value"]).read_all().to_pylist()
    return sorted((bytes(row["key"]).decode(), bytes(row["value"]).decode()) for row in rows)


@pytest.mark.parametrize("kept", BY_SPARK, indirect=True)
def test_a_query_goes_on_with_a_copy(query: Query, tmp_path: Path, s3: S3Server) -> None:
    """The second batch of three is chosen, and the copy repeats the last, with the same result."""
    source, sink, url = tmp_path / "source", tmp_path / "sink", f"{s3.bucket()}/query"
    named, options = url.replace("s3://", "s3a://"), s3.options()
    with sparklog.open(source, "rw") as log:
        log.create_topic("in")
        keys = [f"k{n % 7}" for n in range(300)]
        log.append("in", pa.table({"key": keys, "value": keys}))
    query(source, sink, named)
    before = totals(sink)
    found = history(named, storage_options=options)
    assert [row.batch for row in found.batches if row.obstacle is None] == [0, 1, 2]
    assert not found.is_log_backed
    report = verify(named, storage_options=options)
    assert report.ok, report
    assert changes(named, start=2, storage_options=options).read_all().num_rows == 7
    copy, log_copy = tmp_path / "copy", tmp_path / "sink-copy"
    fork(named, copy, to=1, log=sink, new_log=log_copy, storage_options=options)
    query(source, log_copy, str(copy))
    assert totals(log_copy) == before
    made = archive(named, f"{s3.bucket()}/archive", storage_options=options)
    assert (made.batch, made.files) == (2, report.files)


def test_a_query_goes_on_with_other_state(
    query: Query, tmp_path: Path, s3: S3Server, spark: SparkSession
) -> None:
    """State in a bucket is moved to three partitions, in runs, then in place; no row is lost."""
    source, sink, url = tmp_path / "source", tmp_path / "sink", f"{s3.bucket()}/query"
    with sparklog.open(source, "rw") as log:
        log.create_topic("in")
        keys = [f"k{n % 7}" for n in range(300)]
        log.append("in", pa.table({"key": keys, "value": keys}))
    query(source, sink, url.replace("s3://", "s3a://"))
    before = last_totals(sink)
    moved = f"{s3.bucket()}/moved"
    report = rewrite(url, moved, partitions=3, spark=spark, storage_options=s3.options())
    assert len(report.operators[0].rows_after) == 3
    with pytest.raises(InvalidRequestError, match="exists already: choose a new location"):
        rewrite(url, moved, partitions=3, spark=spark, storage_options=s3.options())
    with sparklog.open(source, "rw") as log:
        log.append("in", pa.table({"key": keys, "value": keys}))
    query(source, sink, moved.replace("s3://", "s3a://"), RUNS)
    assert last_totals(sink) == {key: str(2 * int(count)) for key, count in before.items()}
    done = rewrite(moved, in_place=True, partitions=4, spark=spark, storage_options=s3.options())
    assert len(done.operators[0].rows_after) == 4
    with sparklog.open(source, "rw") as log:
        log.append("in", pa.table({"key": keys, "value": keys}))
    query(source, sink, moved.replace("s3://", "s3a://"), RUNS)
    assert last_totals(sink) == {key: str(3 * int(count)) for key, count in before.items()}
    assert done.restore_point is not None
    assert verify(done.restore_point, storage_options=s3.options()).ok


def test_a_query_begins_with_the_state_of_a_history(
    query: Query, tmp_path: Path, s3: S3Server, provider: dict[str, str], kept: dict[str, str]
) -> None:
    """The checkpoint is in runs. Objects of the history's own checkpoint are removed."""
    bucket, closed, options = s3.bucket(), s3.bucket(), s3.options()
    conf = {
        **s3a_conf(s3), "spark.sql.shuffle.partitions": "2", **provider, **kept,
        f"spark.hadoop.fs.s3a.bucket.{closed.removeprefix('s3://')}.secret.key": "wrong",
    }  # fmt: skip
    calls: list[dict[str, Any]] = [
        {"target": f"{bucket}/failing", "options": options, "fails": True},
        {"target": f"{bucket}/other", "options": s3.options(secret="wrong")},
        {"target": f"{closed}/new", "options": options},
        {"target": f"{bucket}/new", "options": options},
        {"target": f"{bucket}/new", "options": options, "fails": True},
        {
            "moved": f"{bucket}/new", "target": f"{bucket}/moved", "options": options,
            "scratch": f"{bucket}/tmp".replace("s3://", "s3a://"),
        },
    ]  # fmt: skip
    failing, unauthorized, denied, made, again, equal = bootstrapped(tmp_path, conf, calls)
    assert "InvalidRequestError: the query can't read the history" in failing
    assert "row 69" in failing
    assert unauthorized.startswith("StorageUnavailableError: ")
    assert "InvalidRequestError: the query can't read the history" in denied
    assert made == (
        f"{bucket}/new has the state of the history (7 rows); its query continues with batch 1"
    )
    assert "exists already: choose a new location" in again
    names = [listed.name for listed in open_store(bucket, options).list()]
    assert {name.partition("/")[0] for name in names} == {"new", "moved"}
    assert equal == "the state after batch 0 is equal: 7 rows"
    assert open_store(closed, options).list() == []
    assert history(f"{bucket}/new", storage_options=options).kind is CheckpointKind.IN_RUNS
    source, sink = tmp_path / "source", tmp_path / "sink"
    with sparklog.open(source, "rw") as log:
        log.create_topic("in")
        keys = [f"k{n % 7}" for n in range(210)]
        log.append("in", pa.table({"key": keys, "value": keys}))
    query(source, sink, f"{bucket}/new".replace("s3://", "s3a://"), RUNS)
    assert last_totals(sink) == {f"k{k}": "40" for k in range(7)}


def bootstrapped(
    directory: Path, conf: dict[str, str], calls: Sequence[dict[str, Any]]
) -> list[str]:
    """Call `bootstrap` in a process of its own. Return the results."""
    (directory / "conf.json").write_text(json.dumps(conf))
    (directory / "calls.json").write_text(json.dumps(calls))
    done = subprocess.run(
        [sys.executable, "-m", "tests.state.s3_bootstrap", "conf.json", "calls.json"],
        cwd=directory, env=environment(), capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]
    results: list[str] = json.loads(done.stdout.splitlines()[-1])
    return results


def last_totals(path: Path) -> dict[str, str]:
    with sparklog.open(path) as log:
        rows = log.read("totals", columns=["key", "value"]).read_all().to_pylist()
    return {bytes(row["key"]).decode(): bytes(row["value"]).decode() for row in rows}


@pytest.mark.parametrize("kept", ["in runs"], indirect=True)
def test_what_the_tools_write_continues(
    query: Query, tmp_path: Path, s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a reset, a fork, an export to Spark's manager and an import, no record is lost."""
    source, sink = tmp_path / "source", tmp_path / "sink"
    bucket, options = s3.bucket(), s3.options()
    url, named = f"{bucket}/query", f"{bucket}/query".replace("s3://", "s3a://")

    def killed(*given: Any, **named: Any) -> None:
        raise InvalidRequestError("killed")

    def append(first: int, last: int) -> None:
        with sparklog.open(source, "rw") as log:
            keys = [f"k{n % 7}" for n in range(first, last)]
            log.append("in", pa.table({"key": keys, "value": keys}))

    def expected(records: int) -> dict[str, str]:
        return {f"k{k}": str(len(range(k, records, 7))) for k in range(7)}

    with sparklog.open(source, "rw") as log:
        log.create_topic("in")
    append(0, 300)
    query(source, sink, named)

    # The process dies after the checkpoint was reset: the sink's next batch resets the log.
    with monkeypatch.context() as patch, pytest.raises(InvalidRequestError, match="killed"):
        patch.setattr(stored_copies, "reset_sink", killed)
        reset(url, to=0, log=sink, storage_options=options)
    before = len(totals(sink))
    query(source, sink, named)
    assert len(totals(sink)) == before + 14  # two batches came again
    assert last_totals(sink) == expected(300)

    copy, log_copy = f"{bucket}/copy", tmp_path / "sink-copy"
    fork(url, copy, to=1, log=sink, new_log=log_copy, storage_options=options)
    export(copy, storage_options=options)
    append(300, 400)
    query(source, log_copy, copy.replace("s3://", "s3a://"), {})
    assert last_totals(log_copy) == expected(400)
    import_(copy, storage_options=options)
    archive(copy, f"{bucket}/archive", log=log_copy, storage_options=options)
    restored, restored_log = f"{bucket}/restored", tmp_path / "restored-log"
    restore(f"{bucket}/archive", restored, log=restored_log, storage_options=options)
    append(400, 500)
    query(source, restored_log, restored.replace("s3://", "s3a://"))
    assert last_totals(restored_log) == expected(500)
    assert [row.batch for row in history(restored, storage_options=options).batches][-1] == 4
