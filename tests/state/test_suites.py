"""Spark's own suites on the checkpoint manager: what passes, and why the rest doesn't.

The suites are those of the newest Spark whose test jars are published (suites/pom.xml); the manager
is compiled against that Spark. They take most of an hour. `suites/failing.txt` names each test
that may fail, with its reason, and `suites/failing-runs.txt` those that fail for runs only.
"""

import os
import re
import subprocess
from pathlib import Path

import pytest

from sparklog.jvm import compiler
from tests import jars

pytestmark = [pytest.mark.slow, pytest.mark.spark]

HERE = Path(__file__).parent / "suites"
SPARK = "4.2.0"
STREAMING = "org.apache.spark.sql.execution.streaming"
SUITES = {
    "LogCheckpointFileManagerSuite": 1,
    "HDFSMetadataLogSuite": 9,
    "OffsetSeqLogSuite": 5,
    "state.StateStoreSuite": 150,
    "state.RocksDBSuite": 200,
    "state.RocksDBStateStoreSuite": 80,
    "state.RocksDBStateStoreIntegrationSuite": 10,
    "state.OperatorStateMetadataSuite": 5,
}
OPENED = (
    "java.lang", "java.lang.invoke", "java.lang.reflect", "java.io", "java.net", "java.nio",
    "java.util", "java.util.concurrent", "java.util.concurrent.atomic", "jdk.internal.ref",
    "sun.nio.ch", "sun.nio.cs", "sun.security.action", "sun.util.calendar",
)  # fmt: skip


@pytest.fixture(scope="module")
def class_path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The suites, their libraries, and the manager compiled against them, ours first."""
    try:
        libraries = jars.pom_jars(HERE / "pom.xml", "suites")
        java = jars.java()
    except jars.Unavailable as e:
        pytest.skip(str(e))
    directory = tmp_path_factory.mktemp("suites")
    classes, sources = directory / "classes", [str(HERE / "Suites.scala")]
    classes.mkdir()
    for name, text in compiler.sources(SPARK):
        file = directory / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text)
        sources.append(str(file))
    scalac = ["-cp", libraries, "scala.tools.nsc.Main", "-usejavacp", "-nowarn"]
    subprocess.run([java, *scalac, "-d", str(classes), *sources], check=True, timeout=300)
    return os.pathsep.join([str(HERE), str(classes), libraries])


def known_failures(kept: str) -> dict[str, str]:
    """Test -> reason, from failing*.txt: a reason in a line that ends with a colon, tests below."""
    found, reason = {}, ""
    names = ["failing.txt", *(["failing-runs.txt"] if kept == "runs" else [])]
    for line in "".join((HERE / name).read_text() for name in names).splitlines():
        if line.startswith("- "):
            found[line[2:]] = reason
        elif line.strip():
            reason = line.rstrip(":")
    return found


@pytest.mark.parametrize("kept", ["log", "runs"])
@pytest.mark.parametrize("suite", SUITES)
def test_suite(class_path: str, tmp_path: Path, suite: str, kept: str) -> None:
    opens = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in OPENED]
    # -ea as Spark runs them: RocksDB asserts that an iterator is open, and crashes without.
    command = [jars.java(), "-ea", *opens, "-Xmx3g", "-Dspark.testing=true",
               f"-Dsuites.kept={kept}", "-cp", class_path]
    runner = ["org.scalatest.tools.Runner", "-R", class_path.split(os.pathsep)[1], "-oW"]
    done = subprocess.run(
        [*command, *runner, "-s", f"{STREAMING}.{suite}"], cwd=tmp_path, text=True,
        capture_output=True, timeout=3600,
    )  # fmt: skip
    count = re.search(r"Tests: succeeded (\d+), failed (\d+)", done.stdout)
    assert count is not None, done.stdout[-3000:]
    failed = {
        line[2:].removesuffix(" *** FAILED ***")
        for line in done.stdout.splitlines()
        if line.startswith("- ") and line.endswith(" *** FAILED ***")
    }
    (tmp_path / "output").write_text(done.stdout)
    print(f"{suite}: {count[0]}")
    assert "*** ABORTED ***" not in done.stdout
    assert int(count[1]) >= SUITES[suite]
    assert failed <= set(known_failures(kept)), failed - set(known_failures(kept))
