"""Spark with Hadoop's connector for S3, in a process of its own."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final

import pyspark

from sparklog.session.setup import MANAGER
from tests import jars
from tests.paths import ROOT
from tests.spark.conftest import environment, jar
from tests.tiered.s3 import KEY, SECRET, S3Server

POM: Final = Path(__file__).with_name("s3a.xml")
SDKS: Final = {"3.4.1": "2.24.5", "3.4.2": "2.29.52", "3.5.0": "2.57.8"}
"""Versions of Amazon's SDK, by version of Hadoop. Hadoop 3.4.1 names 2.24.6, and 3.4.2 names
2.29.52; Maven does not find the transfer manager of 2.24.6."""
RUNS: Final = {
    "spark.sql.streaming.checkpointFileManagerClass": MANAGER,
    "spark.sparklog.checkpoint.store": "runs",
}
"""Checkpoints in a bucket are kept in runs."""
STATE: Final = "spark.sql.streaming.stateStore"


def s3a_conf(s3: S3Server, port: int = 0) -> dict[str, str]:
    """Return Spark's settings for the server; `port`: by way of a proxy. Skips without the jars.

    S3A is that of the installed PySpark's Hadoop.
    """
    (client,) = (Path(pyspark.__file__).parent / "jars").glob("hadoop-client-api-*.jar")
    hadoop = client.stem.removeprefix("hadoop-client-api-")
    versions = (f"-Dhadoop.version={hadoop}", f"-Dsdk.version={SDKS[hadoop]}")
    with jars.or_skip("S3A"):
        found = Path(jars.pom_jars(POM, "s3a", *versions)).parent
    s3a = {
        "endpoint": s3.options(port=port)["endpoint_url"], "endpoint.region": "us-east-1",
        "path.style.access": "true", "access.key": KEY, "secret.key": SECRET,
    }  # fmt: skip
    return {
        "spark.jars": ",".join([*map(str, sorted(found.glob("*.jar"))), jar()]),
        **{f"spark.hadoop.fs.s3a.{name}": value for name, value in s3a.items()},
    }


class Driver:
    """A process that runs queries one after the other (stored_queries.py)."""

    started: ClassVar[list["Driver"]] = []
    """All of them, which `kill_all` ends."""

    def __init__(
        self, directory: Path, conf: Mapping[str, str], runs: Sequence[Sequence[Any]],
        master: str = "local[2]", states: Sequence[str] = (),
    ) -> None:  # fmt: skip
        directory.mkdir(exist_ok=True)
        settings = directory / f"settings-{len(list(directory.iterdir()))}.json"
        asked = {"master": master, "conf": dict(conf), "runs": runs, "states": states}
        settings.write_text(json.dumps(asked))
        self._settings = settings
        self._said = settings.with_suffix(".txt")
        with self._said.open("wb") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.state.stored_queries", settings],
                cwd=ROOT, env=environment(), stdout=out, stderr=out, start_new_session=True,
            )  # fmt: skip
        self.started.append(self)

    @classmethod
    def kill_all(cls) -> None:
        """End the processes that a test has left, with their executors."""
        for driver in cls.started:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(driver.process.pid, signal.SIGKILL)
            driver.process.wait()
        cls.started.clear()

    def said(self) -> str:
        """Return what the process printed."""
        return self._said.read_text(errors="replace")

    def states(self) -> dict[str, int]:
        """Return the number of rows in each of the states."""
        counts: dict[str, int] = json.loads(Path(f"{self._settings}.states").read_text())
        return counts

    def finish(self, *, fails: bool = False) -> str:
        """Wait for the end; return what the process printed."""
        code = self.process.wait(300)
        assert (code != 0) == fails, self.said()[-6000:]
        return self.said()
