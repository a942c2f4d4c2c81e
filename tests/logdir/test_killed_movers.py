"""Real processes that move and delete, killed with -9 beside a writer and a tailing reader."""

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
from sparklog.log.log import home_of
from sparklog.service import verify
from tests import depth

MOVER = """
import sys, sparklog
path, one, two = sys.argv[1:]
with sparklog.open(path, "rw") as log:
    if log.deleted_topics():  # the one before was killed in between
        log.undelete_topic("u")
    while True:
        here = log.topic("t").dirs[0].startswith(one)
        log.move_partition("t", 0, two if here else one)
        log.delete_topic("u")
        log.undelete_topic("u")
        print("turn", flush=True)
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
    stop, done, acked = threading.Event(), threading.Event(), [0]
    got: list[int] = []

    def write() -> None:
        with sparklog.open(path, "rw") as log:
            while not stop.is_set():
                log.append("t", pa.table({"value": [b"%d" % acked[0] * 50]}), 0)
                acked[0] += 1

    def read() -> None:
        rows = sparklog.open(path).read("t", [0], columns=["offset", "value"], follow=True)
        for batch in rows:
            for offset, value in zip(*batch.to_pydict().values(), strict=True):
                assert value == b"%d" % offset * 50
                got.append(offset)
            if done.is_set() and len(got) >= acked[0]:
                return

    threads = [threading.Thread(target=write), threading.Thread(target=read)]
    for thread in threads:
        thread.start()
    turns = 0
    try:
        for _ in range(depth.MOVER_KILLS):
            mover = subprocess.Popen(
                [sys.executable, "-c", MOVER, path, *dirs], stdout=subprocess.PIPE, text=True
            )
            assert mover.stdout is not None
            mover.stdout.readline()  # it is at work
            pause(rng.random() * 300)
            mover.kill()
            turns += 1 + len(mover.stdout.read().splitlines())
            mover.wait()
            mover.stdout.close()
    finally:
        stop.set()
        threads[0].join()
        with sparklog.open(path, "rw") as log:
            acked[0] += 1  # before the last one comes, with which the reader ends
            done.set()
            log.append("t", pa.table({"value": [b"%d" % (acked[0] - 1) * 50]}), 0)
        threads[1].join(240)
    assert got == list(range(acked[0]))
    with sparklog.open(path, "rw") as log:
        if log.deleted_topics():
            log.undelete_topic("u")
        assert log.read("u").read_all()["value"].to_pylist() == [b"kept"]
        log.delete_topic("u", now=True)
        home_of(log).moves.carry_out()  # the last one's move is wanted still
        assert log.moves() == []
    names = sorted(n for d in dirs for n in os.listdir(d) if n.startswith(("t-", "u-")))
    assert names == ["t-0"], json.dumps(names)
    assert verify(path).ok
    assert turns >= depth.MOVER_KILLS
