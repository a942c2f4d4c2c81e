"""Long runs: a driver with a service that is killed again and again, two readers, and a check.

SOAK_SECONDS=600 python -m pytest -m slow tests/service/test_soak.py
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

import sparklog
from sparklog.service import Service, verify
from tests import depth
from tests.paths import ROOT
from tests.service.soak_driver import OPTIONS, PARTITIONS, ROWS, WRITER, newest
from tests.waiting import until


def start(module: str, path: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", f"tests.service.{module}", path],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT,
    )  # fmt: skip


def wait_for_commit(path: str, driver: subprocess.Popen[str]) -> None:
    """Wait until the driver has committed something: a busy machine takes long to start it."""
    with sparklog.open(path) as log:
        before = log.offsets("events")

        def committed() -> bool:
            assert driver.poll() is None, driver.communicate()[1]
            return log.offsets("events") != before

        until(committed, "a commit of the driver's", pause_s=0.05)


def soak(path: str, seconds: float, seed: int) -> Counter[str]:
    rng, tally = random.Random(seed), Counter[str]()
    driver, readers = start("soak_driver", path), []
    try:
        ends = time.monotonic() + seconds

        def is_made() -> bool:
            with contextlib.suppress(Exception), sparklog.open(path) as log:
                return "state" in log.topics()
            return False

        until(is_made, pause_s=0.1)
        readers = [start("soak_reader", path) for _ in range(2)]
        while time.monotonic() < ends or tally["kills"] < 3:
            wait_for_commit(path, driver)
            time.sleep(rng.uniform(0, 4))
            assert driver.poll() is None, driver.communicate()[1]
            driver.send_signal(signal.SIGKILL)
            driver.communicate()
            tally["kills"] += 1
            driver = start("soak_driver", path)
        time.sleep(2)
    finally:
        driver.kill()
        driver.communicate()
        said = []
        for reader in readers:
            reader.terminate()
            said.append(reader.communicate(timeout=240))
    for out, error in said:
        assert out, error
        tally.update(json.loads(out.splitlines()[-1]))
    return tally


def check(path: str, tally: Counter[str]) -> None:
    """What the log holds follows from the number of its last batch."""
    with sparklog.open(path, "rw") as log:
        report = Service(path, options=OPTIONS).run_once()
        assert not report.errors
        last = max(log.commits(WRITER)["batch"].to_pylist())
        tally["batches"] = last + 1
        ends = log.offsets("events")
        assert {p: end for p, (_, end) in ends.items()} == dict.fromkeys(
            range(PARTITIONS), (last + 1) * ROWS // PARTITIONS
        )
        assert all(start > 0 for start, _ in ends.values()), "retention never worked"
        state: dict[str, int] = {}
        for batch in log.read("state"):
            keys = [k.decode() for k in batch["key"].to_pylist()]
            tally["state records"] += len(keys)
            state |= dict(zip(keys, map(int, batch["value"].to_pylist()), strict=True))
        assert state == newest(last)
        assert tally["state records"] < 5 * (last + 1) / 2, "compaction never worked"
        for p, (begin, end) in ends.items():
            found = [v for b in log.read("events", [p]) for v in b["value"].to_pylist()]
            per = ROWS // PARTITIONS
            assert found == [
                b"%d:%d" % (o // per, o % per * PARTITIONS + p) for o in range(begin, end)
            ]
    found = verify(path)
    assert found.ok, str(found)


@pytest.mark.deep
@pytest.mark.parametrize("seconds", [
    depth.SOAK_SECONDS,
    pytest.param(int(os.environ.get("SOAK_SECONDS", "600")), marks=pytest.mark.slow),
])  # fmt: skip
def test_soak(tmp_path: Path, seconds: int) -> None:
    path, seed = str(tmp_path / "log"), random.randrange(1 << 30)
    print(f"seed {seed}")
    tally = soak(path, seconds, seed)
    check(path, tally)
    print(dict(tally))
    assert tally["kills"] >= 3
    assert tally["records"]
