"""Processes that run queries whose checkpoints are in a bucket or in HDFS, and their output."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final

import pytest

from sparklog.session.setup import MANAGER
from tests.paths import ROOT
from tests.spark.conftest import environment

RUNS: Final = {"spark.sql.streaming.checkpointFileManagerClass": MANAGER}
"""Checkpoints in a bucket are kept in runs."""
STATE: Final = "spark.sql.streaming.stateStore"
QUICK = {
    f"{STATE}.maintenanceInterval": "1s",
    f"{STATE}.minDeltasForSnapshot": "2",
    "spark.sparklog.checkpoint.internal.run.entries": "6",
}
"""Snapshots and runs that end every few batches."""
RIDE: Final = {"spark.sparklog.checkpoint.commit": "ride"}
V2 = {f"{STATE}.checkpointFormatVersion": "2"}
SMALL_ENTRIES = "spark.sparklog.checkpoint.internal.entry.bytes"
"""So that executors write some files as objects of their own."""
NO_CONF = dict[str, str]()


def rows(output: Path) -> dict[str, Any]:
    return {path.name: json.loads(path.read_text()) for path in output.glob("*.json")}


def assert_same(ours: Path, expected: Path, last: int) -> None:
    """The output up to batch `last` is that of an undisturbed query."""
    found, wanted = rows(ours), rows(expected)
    names = [f"{batch}.json" for batch in range(last + 1)]
    assert [found[name] for name in names] == [wanted[name] for name in names]


@pytest.fixture(autouse=True)
def no_driver_is_left() -> Iterator[None]:
    yield
    Driver.kill_all()


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
