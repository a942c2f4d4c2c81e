"""Spark's offline repartition that fails leaves a batch with which no query starts: reset cures."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sparklog.checkpoint import reset, verify
from sparklog.cli.app import run as run_cli
from sparklog.clock import system_clock
from sparklog.service.verification.findings import Finding, Severity
from sparklog.session.setup import MANAGER
from tests.state.operators import Output, run, session

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(
    "manager",
    [pytest.param(None, id="files", marks=pytest.mark.deep), pytest.param(MANAGER, id="log")],
)
def test_a_provider_that_spark_does_not_repartition(
    spark: SparkSession, tmp_path: Path, manager: str | None
) -> None:
    own, path, output = session(spark, "hdfs", manager), tmp_path / "ckpt", Output()
    run(own, "aggregation", path, output, 2)
    last = verify(path).latest
    assert last is not None
    streams = own._jsparkSession.streamingCheckpointManager()  # type: ignore[attr-defined]
    with pytest.raises(Exception, match="UNSUPPORTED_PROVIDER"):
        streams.repartition(str(path), 3, False)
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
