"""Spark's offline repartition that fails leaves a batch with which no query starts: reset cures."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import IllegalArgumentException
from pyspark.sql import SparkSession

from sparklog.checkpoint import reset, verify
from sparklog.cli.app import run as run_cli
from sparklog.clock import system_clock
from sparklog.service.verification.findings import Finding, Severity
from sparklog.session.setup import MANAGER
from tests.spark.versions import since
from tests.state.manager import Manager
from tests.state.operators import Output, run, session

Managers = Callable[..., Manager]

pytestmark = [pytest.mark.spark, since((4, 2), "offline repartition")]


@pytest.mark.parametrize("exactly_once", [True, pytest.param(False, marks=pytest.mark.deep)])
@pytest.mark.parametrize("checksums", [True, pytest.param(False, marks=pytest.mark.deep)])
def test_a_provider_that_spark_does_not_repartition_is_refused_at_once(
    spark: SparkSession, tmp_path: Path, managers: Managers, exactly_once: bool, checksums: bool
) -> None:
    """Also where the repartition would first skip a batch that the query did not commit."""
    own, path, output = session(spark, "hdfs", MANAGER), tmp_path / "ckpt", Output()
    own.conf.set("spark.sql.streaming.checkpoint.fileChecksum.enabled", str(checksums).lower())
    run(own, "aggregation", path, output, 2)
    manager, last = managers("ckpt"), verify(path).latest
    assert last is not None
    if not exactly_once:
        for batch in filter(last.__lt__, map(int, manager.list("offsets"))):
            manager.delete(f"offsets/{batch}")  # the query was stopped within this batch
        manager.delete(f"commits/{last}")
    names = {name: manager.list(name) for name in ("offsets", "commits")}
    streams = own._jsparkSession.streamingCheckpointManager()  # type: ignore[attr-defined]
    message = (
        f"{path}: Spark can repartition only state in RocksDB; .*HDFSBackedStateStoreProvider. "
        "Nothing was written. To change the number of state partitions, start the query with a new"
    )
    with pytest.raises(IllegalArgumentException, match=message):
        streams.repartition(str(path), 3, exactly_once)
    assert {name: manager.list(name) for name in names} == names
    run(own, "aggregation", path, output, max(output) + 1)
    assert but_leftovers(verify(path).findings) == []


def abandon(own: SparkSession, path: Path, managers: Managers) -> None:
    """Leave the checkpoint as Spark's repartition leaves it if it does not support the provider.

    In a log-backed checkpoint the manager refuses the repartition, so a test writes what it plans.
    """
    if (path / "sparklog").is_dir():
        manager = managers(path.name)
        plans, commits = (map(int, manager.list(name)) for name in ("offsets", "commits"))
        newest, committed = max(plans), max(commits)
        for batch in range(committed + 1, newest + 1):
            manager.write(f"commits/{batch}", b"v1\n{}")
        plan = manager.read(f"offsets/{committed}")
        key = b'"spark.sql.shuffle.partitions":'
        assert key + b'"2"' in plan
        manager.write(f"offsets/{newest + 1}", plan.replace(key + b'"2"', key + b'"3"'))
        return
    streams = own._jsparkSession.streamingCheckpointManager()  # type: ignore[attr-defined]
    with pytest.raises(Exception, match="UNSUPPORTED_PROVIDER"):
        streams.repartition(str(path), 3, False)


@pytest.mark.parametrize(
    "manager",
    [pytest.param(None, id="files"), pytest.param(MANAGER, id="log", marks=pytest.mark.deep)],
)
def test_a_repartition_that_did_not_finish(
    spark: SparkSession, tmp_path: Path, managers: Managers, manager: str | None
) -> None:
    own, path, output = session(spark, "hdfs", manager), tmp_path / "ckpt", Output()
    run(own, "aggregation", path, output, 2)
    last = verify(path).latest
    assert last is not None
    abandon(own, path, managers)
    with pytest.raises(Exception, match="UNFINISHED_REPARTITION"):
        run(own, "aggregation", path, output, last + 1)
    output.pop(last + 1, None)  # of a batch that wasn't committed
    report = verify(path)
    assert not report.ok
    found = but_leftovers(report.findings)
    (finding,) = [each for each in found if "UNFINISHED_REPARTITION" in each.what]
    others = [each.what for each in found if each is not finding]
    assert all("repartition skipped this batch" in other for other in others), others
    # The query may have been stopped when the next batch had its state and no commit yet. Then the
    # repartition committed that batch.
    assert report.latest is not None
    assert report.latest >= last
    last = report.latest
    command = f"sparklog checkpoint reset {path} --to {last}"
    assert finding.what.endswith(f"`{command}`")
    assert "can't be started" in report.outlook
    reset(path, to=last, clock=lambda: system_clock() + 10_000)
    assert run_cli([*command.split()[1:], "--dry-run"]) == 0
    assert but_leftovers(verify(path).findings) == []
    run(own, "aggregation", path, output, last + 1)


def but_leftovers(findings: list[Finding]) -> list[Finding]:
    """Leave out the files that Spark was writing when the query was stopped."""
    return [each for each in findings if each.severity is not Severity.LEFTOVER]
