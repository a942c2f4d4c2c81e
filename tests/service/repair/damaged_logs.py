"""A log with every kind of fact that its ledger holds, as tests of damage want it."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

import sparklog
from sparklog.clock import ManualClock
from sparklog.log.commit import CommitResult
from tests.micro_batches import commit_batch
from tests.service.logs import T0, cut, fill, flip, make, patch

LEDGER = "__sparklog_commits-0"
LEDGER_LOG = f"{LEDGER}/00000000000000000000.log"
RETENTION_MS = 12_345_678_901
Damage = Callable[[Path], object]


def commit(
    log: sparklog.Log, writer: str, batch: int, topic: str = "u", run: str = ""
) -> CommitResult:
    """Commit one record as a micro-batch."""
    rows, fingerprint = pa.table({"value": [f"{writer} {batch}"]}), f"{writer}{batch}{run}"
    return commit_batch(log, writer, batch, rows, topic=topic, fingerprint=fingerprint)


def at(ms: int) -> ManualClock:
    """A clock for a session, later than those before it."""
    return ManualClock(T0 + ms)


def build(root: Path) -> None:
    """Make `root`/older, /crashed and /closed: one log as it was a session ago, open, and closed.

    Topics t and u, of which u has a config; d, deleted, to be given back; writers q and p; a
    group; log starts.
    """
    path = root / "closed"
    with make(path, close=False) as log:
        for batch in range(3):
            commit(log, "q", batch)
        log.create_topic("d", config={"file.delete.delay.ms": 10**12})
        fill(log, "d", 0, 2)
        log.delete_topic("d")
        log.commit_offsets("g", {"u": {0: 1}})
    shutil.copytree(path, root / "older")
    with sparklog.open(path, "rw", clock=at(1000)) as log:
        for batch in (3, 4):
            commit(log, "q", batch)
        log.alter_topic("u", config={"retention.ms": RETENTION_MS})
        log.delete_records("t", {0: 20})
        log.commit_offsets("g", {"u": {0: 2}})
        fill(log, "t", 0, 8, first=30)
        commit(log, "p", 0)
        shutil.copytree(path, root / "crashed")


def missing(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


def emptied(path: Path) -> None:
    if path.is_dir():
        for name in path.iterdir():
            name.unlink()
    else:
        cut(path, 0)


def truncated(path: Path) -> None:
    cut(path, path.stat().st_size // 2)


def flipped(path: Path) -> None:
    flip(path, path.stat().st_size // 2, 4)


def zeroed(path: Path) -> None:
    size = path.stat().st_size
    patch(path, size * 2 // 3, bytes(size - size * 2 // 3))


def older(path: Path) -> None:
    log = path
    while not (log / "t-0").is_dir():
        log = log.parent
    shutil.copy(log.parent / "older" / path.relative_to(log), path)


DAMAGES: dict[str, Damage] = {
    "missing": missing, "empty": emptied, "truncated": truncated, "flipped": flipped,
    "zeroed": zeroed, "older": older,
}  # fmt: skip
