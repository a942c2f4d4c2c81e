"""The home of log-backed checkpoints: one that Spark wrote, imported into a log dir.

A checkpoint has other commands than a log. The columns of its table are:

    r       `checkpoint history`
    rw      `checkpoint fork` to the newest batch; the fork must hold what the query needs
    read    what a query that starts at each of the batches loads: plan, commit, state
    write   `checkpoint reset` to the newest batch, in place
    verify  `checkpoint verify`; repair: with `--repair`
    status  a rehearsal, `checkpoint reset --dry-run` to the newest batch: green or red
    round   `checkpoint archive`, then `checkpoint restore`; the result as for a fork

No JVM runs: `sparklog.checkpoint` reads the same records as the checkpoint manager in the JVM.
"""

import shutil
import tarfile
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Final

from sparklog.checkpoint import archive, fork, history, reset, restore, verify
from sparklog.checkpoint.batches import Batches
from sparklog.checkpoint.convert import import_
from sparklog.checkpoint.files import Checkpoint
from sparklog.checkpoint.history import query_id
from sparklog.checkpoint.log_backed.layout import LOGS
from sparklog.checkpoint.log_backed.lock import LOCK_NAME
from sparklog.checkpoint.log_backed.partition import CheckpointPartition, partition_dirs
from sparklog.checkpoint.log_backed.partition_writer import Record, append, create
from sparklog.format.names import LOG
from sparklog.fs import LOCAL
from tests.damage.actions import ACTIONS, failed, quoted
from tests.damage.log_dir import DirectoryPlace, LogDirHome, new_place
from tests.damage.model import Failed, Files, Kind, Reading, Rows, Verdict
from tests.paths import GOLDEN

GOLDEN_NAME: Final = "hdfs"
SINK: Final = "other"
SEGMENT_BYTES: Final = 900  # so that each partition has two segments or more
OLDEST: Final = dict.fromkeys(
    ("missing", "empty", "older"),
    "Spark deletes the oldest plans and states, and no file says how many it kept",
)
BEGINS_ANEW: Final = dict.fromkeys(
    ("missing", "empty", "truncated", "older"),
    "a query that starts reads the newest plan and commit alone; `checkpoint verify` misses more",
)
UNREAD: Final = {"offsets-0": BEGINS_ANEW, "commits-0": BEGINS_ANEW}
NEIGHBOURS: Final = {
    "offsets-0": "commits-0",
    "commits-0": "offsets-0",
    "metadata-0": "offsets-0",
    "state.0.default-0": "state.0.default-1",
    "state.0.default-1": "metadata-0",
}


def opened(path: str, **named: Any) -> Checkpoint:
    """Open the checkpoint at a path or URL."""
    return Checkpoint.open(path, storage_options={}, **named)


def read(path: str) -> Reading:
    """Return what a query needs that starts behind each batch, and behind which it would start."""
    try:
        checkpoint = opened(path, needs_id=True)
        found: Reading = {"query": (query_id(checkpoint),)}
        batches = Batches(checkpoint)
        newest = max(batches.planned, default=-1)
        found["next"] = (newest, newest in batches.committed)
        found |= {f"batch {batch}": batch_files(batches, batch) for batch in batches.committed}
    except Exception as error:  # the judge tells sparklog's own from others
        return {"log": failed(error)}
    oldest = f"batch {min(batches.committed, default=-1)}"
    if isinstance(found.get(oldest), Failed):  # Spark keeps less of the oldest one than it needs
        del found[oldest]
    return found


def batch_files(batches: Batches, batch: int) -> Rows | Failed:
    """Return the plan and commit of a batch, and the files that its state is loaded from."""
    try:
        batches.check_reachable(batch)
        stores = batches.version_files(batch)
        state = [name for needed in stores.values() for name in needed.files]
        names = [f"offsets/{batch}", f"commits/{batch}", *sorted(state)]
        return tuple((name, batches.checkpoint.read(name)) for name in names)
    except Exception as error:
        return failed(error)


def open_r(path: str) -> None:
    """Run `checkpoint history`."""
    history(path)


def newest_batch(path: str) -> int:
    """Return the batch that the query's start goes on behind."""
    return max(Batches(opened(path)).committed, default=0)


def check_made(made: str, truth: Reading) -> None:
    """Raise AssertionError unless a new checkpoint holds what its query needs."""
    found = read(made)
    newest = f"batch {newest_batch(made)}"
    for part in ("query", newest):
        assert found.get(part) == truth.get(part), f"{part}: {found.get(part)}"


def open_rw(path: str) -> None:
    """Run `checkpoint fork` to the newest batch, and compare the fork with the undamaged one."""
    target = f"{path}.fork"
    shutil.rmtree(target, ignore_errors=True)
    try:
        fork(path, target, to=newest_batch(path), sink=SINK)
        check_made(target, _truth())
    finally:
        shutil.rmtree(target, ignore_errors=True)


def write(path: str) -> Reading:
    """Run `checkpoint reset` to the newest batch, which takes nothing away."""
    reset(path, to=newest_batch(path), sink=SINK)
    return {}


def verified(path: str) -> Verdict:
    """Run `checkpoint verify`."""
    return _verdict(path, repair=False)


def repaired(path: str) -> Verdict:
    """Run `checkpoint verify --repair`."""
    return _verdict(path, repair=True)


def _verdict(path: str, *, repair: bool) -> Verdict:
    report = verify(path, repair=repair)
    text = str(report)
    return Verdict("ok" if report.ok else "damage", text, quoted(text))


def rehearsed(path: str) -> Verdict:
    """Run `checkpoint reset --dry-run`."""
    try:
        done = reset(path, to=newest_batch(path), sink=SINK, dry_run=True)
    except Exception as error:
        found = failed(error)
        if found.is_bare:
            raise
        return Verdict("red", found.message, quoted(found.message))
    return Verdict("green", str(done))


def archived(path: str) -> Verdict:
    """Run `checkpoint archive` and `checkpoint restore`, and compare what was restored."""
    store, target = f"{path}.archive", f"{path}.restored"
    for directory in (store, target):
        shutil.rmtree(directory, ignore_errors=True)
    try:
        archive(path, f"file://{store}")
        restore(f"file://{store}", target, sink=SINK)
        check_made(target, _truth())
    finally:
        for directory in (store, target):
            shutil.rmtree(directory, ignore_errors=True)
    return Verdict("ok")


@cache
def _made() -> tuple[DirectoryPlace, Files]:
    """Import the checkpoint, and give each partition several segments."""
    place = new_place(GOLDEN_NAME)
    with tarfile.open(GOLDEN / "checkpoints" / f"{GOLDEN_NAME}.tar.xz") as tar:
        tar.extractall(Path(place.path).parent, filter="data")
    import_(place.path)
    logs = Path(place.path, LOGS)
    for name in partition_dirs(LOCAL, str(logs)):
        directory = str(logs / name)
        partition = CheckpointPartition(LOCAL, directory)
        live = sorted(partition.live(), key=lambda one: one[1].offset)
        records = [Record(key, partition.read(key), entry.timestamp) for key, entry in live]
        shutil.rmtree(directory)
        create(LOCAL, directory)
        append(CheckpointPartition(LOCAL, directory), records, segment_bytes=SEGMENT_BYTES)
    (logs / LOCK_NAME).write_text(f"{LOCAL.boot_id()}\n")  # a query ran since the machine started
    return place, place.files()


@cache
def _truth() -> Reading:
    place, files = _made()
    place.put(files)
    return read(place.path)


def kinds_of(files: Files) -> list[Kind]:
    """Every kind of file that a log-backed checkpoint has."""
    kinds = [Kind("log dir", f"{LOGS}/"), Kind("marker", "metadata"),
             Kind("lock", f"{LOGS}/{LOCK_NAME}")]  # fmt: skip
    for name, other in NEIGHBOURS.items():
        directory, beside = f"{LOGS}/{name}/", f"{LOGS}/{other}/"
        following = f"{LOGS}/{name.rpartition('-')[0]}-2/"
        kinds.append(
            Kind(name, directory, beside, None, following, unread=UNREAD.get(name, {}))
        )
        logs = sorted(n for n in files if n.startswith(directory) and n.endswith(LOG))
        theirs = sorted(n for n in files if n.startswith(beside) and n.endswith(LOG))
        ends = (("first", 0), ("last", -1)) if len(logs) > 1 else (("only", 0),)
        for what, at in ends:
            following = f"{directory}{10_000:020d}{LOG}"
            kinds.append(
                Kind(
                    f"{name} {what} .log", logs[at], theirs[at], _older(files[logs[at]]), following,
                    undetectable=OLDEST if what == "first" else {}, unread=UNREAD.get(name, {}),
                )
            )  # fmt: skip
        epochs = f"{directory}leader-epoch-checkpoint"
        kinds.append(Kind(f"{name} leader epochs", epochs))
    return kinds


def _older(data: bytes) -> bytes:
    """Return the content before the last two records; nothing where there are no more."""
    ends, at = [0], 0
    while at < len(data):
        at += 12 + int.from_bytes(data[at + 8 : at + 12], "big")
        ends.append(at)
    return data[: ends[max(0, len(ends) - 3)]]


@cache
def home() -> LogDirHome:
    """The checkpoint."""
    place, files = _made()
    actions = replace(
        ACTIONS, open_r=open_r, open_rw=open_rw, read=read, append=write, verify=verified,
        repair=repaired, status=rehearsed, round=archived,
    )  # fmt: skip
    return LogDirHome("checkpoint", place, files, kinds_of(files), actions)
