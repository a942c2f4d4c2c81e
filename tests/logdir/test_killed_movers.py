"""Real processes that write, move and delete, killed with -9 beside a tailing reader."""

import json
import os
import random
import subprocess
import sys
import threading
from pathlib import Path

import pyarrow as pa
import pytest

import sparklog
from sparklog.clock import pause
from sparklog.service import verify
from tests import depth

MOVER = """
import sys, pyarrow as pa, sparklog
path, one, two = sys.argv[1:]
with sparklog.open(path, "rw") as log:
    if log.deleted_topics():  # the one before was killed in between
        log.undelete_topic("u")
    while True:
        for _ in range(20):
            end = log.offsets("t")[0][1]
            log.append("t", pa.table({"value": [b"%d" % end * 50]}), 0)
            print(end, flush=True)
        here = log.topic("t").dirs[0].startswith(one)
        log.move_partition("t", 0, two if here else one)
        log.delete_topic("u")
        log.undelete_topic("u")
"""


@pytest.fixture
def dirs(tmp_path: Path) -> list[str]:
    return [str(tmp_path / name) for name in ("one", "two")]


@pytest.mark.deep
def test_killed_movers(dirs: list[str]) -> None:
    """What was acknowledged is there, once, in one place; a reader that follows has all of it."""
    rng, path = random.Random(7), ",".join(dirs)
    with sparklog.open(path, "rw") as log:
        log.create_topic("t", 1, {"internal.segment.bytes": 20_000})
        log.create_topic("u", config={"file.delete.delay.ms": 3_600_000})
        log.append("u", pa.table({"value": ["kept"]}))
    end: list[int] = []  # once it is known
    got: list[int] = []

    def read() -> None:
        rows = sparklog.open(path).read("t", [0], columns=["offset", "value"], follow=True)
        for batch in rows:
            for offset, value in zip(*batch.to_pydict().values(), strict=True):
                assert value == b"%d" % offset * 50
                got.append(offset)
            if end and len(got) >= end[0]:
                return

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    acknowledged = -1
    try:
        for _ in range(depth.MOVER_KILLS):
            mover = subprocess.Popen(
                [sys.executable, "-c", MOVER, path, *dirs], stdout=subprocess.PIPE, text=True
            )
            assert mover.stdout is not None
            assert mover.stdout.readline()  # it is at work
            pause(rng.random() * 300)
            mover.kill()
            acknowledged = max([acknowledged, *map(int, mover.stdout.read().split())])
            mover.wait()
            mover.stdout.close()
    finally:
        with sparklog.open(path, "rw") as log:
            last = log.offsets("t")[0][1]
            end.append(last + 1)
            log.append("t", pa.table({"value": [b"%d" % last * 50]}), 0)
        reader.join(240)
    assert last > acknowledged >= 0
    assert got == list(range(last + 1))
    with sparklog.open(path, "rw") as log:
        if log.deleted_topics():
            log.undelete_topic("u")
        assert log.read("u").read_all()["value"].to_pylist() == [b"kept"]
        log.delete_topic("u", now=True)
    names = sorted(n for d in dirs for n in os.listdir(d) if n.startswith(("t-", "u-")))
    assert names == ["t-0"], json.dumps(names)
    assert verify(path).ok
