"""The home of checkpoints in runs: one in an object store, with two runs and a pack.

The columns of its table are those of `checkpoint`. The checkpoint has a run that a fork wrote and
a reset sealed, and the run of the reset, in which a driver has committed more micro-batches.
"""

import itertools
import os
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Final

import pytest

from sparklog.checkpoint import archive, fork, reset, restore, run_writer
from sparklog.checkpoint.files import Checkpoint
from sparklog.checkpoint.stored_runs import HOME
from sparklog.tiered import open_store
from tests.checkpoint.simulated_driver import Changes, add_entries, add_pack, listed_runs
from tests.damage.actions import ACTIONS
from tests.damage.bucket import MemoryPlace
from tests.damage.checkpoint import (
    SINK,
    check_made,
    newest_batch,
    open_r,
    read,
    rehearsed,
    repaired,
    verified,
    write,
)
from tests.damage.model import Actions, Files, Kind, Reading, Verdict
from tests.paths import GOLDEN

GOLDEN_NAME: Final = "hdfs"
FORKED, RESET, LAST = 11, 10, 13  # batches of the golden checkpoint, which has the batches 7 to 13
_URL: Final = f"memory://damage-runs-{os.getpid()}"  # an archive is locked on this host by its URL
_URLS = itertools.count()
LAST_ENTRY: Final = {
    "missing": "no object was created after it, and no driver is running that knows it"
}
NEWEST_RUN: Final = {"missing": "a start that was interrupted leaves its index as well"}
STATE: Final = dict.fromkeys(
    ("missing", "empty", "flipped", "truncated"),
    "a rehearsal reads no state; `checkpoint verify` does",
)


@contextmanager
def _beside() -> Iterator[str]:
    """Yield a URL that was never used."""
    place = MemoryPlace(f"{_URL}-beside-{next(_URLS)}")
    try:
        yield place.path
    finally:
        place.remove()


def open_rw(path: str) -> None:
    """Run `checkpoint fork` to the newest batch, and compare the fork with the undamaged one."""
    with _beside() as target:
        fork(path, target, to=newest_batch(path), sink=SINK)
        check_made(target, _truth())


def archived(path: str) -> Verdict:
    """Run `checkpoint archive` and `checkpoint restore`, and compare what was restored."""
    with _beside() as repository, _beside() as target:
        archive(path, repository)
        restore(repository, target, sink=SINK)
        check_made(target, _truth())
    return Verdict("ok")


@dataclass(slots=True)
class StoredCheckpointHome:
    """See `model.Home`."""

    files: Files
    kinds: list[Kind]
    actions: Actions
    name: str = "stored_checkpoint"
    foreign_words: tuple[str, ...] = (
        "recover", "log dir", "copy the segment again", "Errno", "JSONDecodeError"
    )  # fmt: skip
    place: MemoryPlace = field(default_factory=lambda: MemoryPlace(_URL))

    @contextmanager
    def lay_out(self, files: Files) -> Iterator[MemoryPlace]:
        """Lay out a copy at the URL of the checkpoint."""
        self.place.remove()
        self.place.put(files)
        try:
            yield self.place
        finally:
            self.place.remove()


def _made(url: str) -> None:
    """Write the checkpoint."""
    store = open_store(url)
    with tempfile.TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        with tarfile.open(GOLDEN / "checkpoints" / f"{GOLDEN_NAME}.tar.xz") as tar:
            tar.extractall(directory, filter="data")
        path = f"{directory}/{GOLDEN_NAME}"
        patch.setattr(run_writer, "INDEX_BYTES", 4_000)  # the other files are in a pack
        fork(path, url, to=FORKED)
        reset(url, to=RESET, sink=SINK)
        golden = Checkpoint.open(path)
        contents = {name: golden.read(name) for name in golden.paths()}
    runs = listed_runs(store)
    for batch in range(RESET + 1, LAST + 1):
        state = {f"state/0/{n}/{batch + 1}.delta": b"" for n in (0, 1)}
        state = {name: contents[name] for name in state}
        changes: Changes = state
        if batch == RESET + 1:
            changes = add_pack(store, f"sparklog/{runs.id}/pack-0000000001-executor", state)
        add_entries(
            store,
            {f"offsets/{batch}": contents[f"offsets/{batch}"]},
            {**changes, f"commits/{batch}": contents[f"commits/{batch}"]},
        )


def kinds_of(files: Files) -> list[Kind]:
    """Every kind of object that a checkpoint in runs has."""
    names = sorted(files)
    first_index, index = (n for n in names if "/index-" in n)
    packs = [n for n in names if "/pack-" in n]
    (pack,) = (n for n in packs if n.endswith("executor"))
    (first_pack,) = (n for n in packs if n != pack)
    directory = index.partition("/index-")[0]
    runs = [[n for n in names if n.startswith(f"{directory}/run-{r:010}/")] for r in (0, 1)]
    (begun, seal), (first, *entries) = runs

    def entry(name: str, at: int, **named: Any) -> Kind:
        at %= len(entries)
        following = f"{directory}/run-{1:010}/{len(entries) + 1:010}"
        before = files[entries[at - 1]] if at else files[first]
        return Kind(name, entries[at], entries[at - 2], before, following, **named)

    return [
        Kind("checkpoint", f"{directory}/"),
        Kind("home", HOME, "metadata"),
        Kind("marker", "metadata", HOME),
        Kind("older run", f"{directory}/run-0000000000/", f"{directory}/run-0000000001/"),
        Kind("older first entry", begun, first, None, f"{directory}/run-{2:010}/{0:010}"),
        Kind("seal", seal, begun, None, f"{directory}/run-{1:010}/{len(entries) + 1:010}"),
        Kind("older index", first_index, index, None, f"{directory}/index-0000000002-copy"),
        Kind("older pack", first_pack, pack, None, f"{directory}/pack-0000000002-copy",
             unread=STATE),
        Kind(
            "newest run", f"{directory}/run-0000000001/", f"{directory}/run-0000000000/",
            None, f"{directory}/run-0000000002/", undetectable=NEWEST_RUN,
        ),
        Kind("first entry", first, entries[0], files[begun], f"{directory}/run-{2:010}/{0:010}"),
        Kind("index", index, first_index, files[first_index], None),
        Kind("pack", pack, first_pack, unread=STATE),
        entry("entry of a plan", 0),
        entry("entry with references", 1),
        entry("entry of a commit", 3),
        replace(entry("last entry", -1), undetectable=LAST_ENTRY),
    ]  # fmt: skip


@cache
def _truth() -> Reading:
    made = home()
    with _beside() as url:
        MemoryPlace(url).put(made.files)
        return read(url)


@cache
def home() -> StoredCheckpointHome:
    """The checkpoint."""
    place = MemoryPlace(_URL)
    _made(place.path)
    files = place.files()
    actions = replace(
        ACTIONS, open_r=open_r, open_rw=open_rw, read=read, append=write, verify=verified,
        repair=repaired, status=rehearsed, round=archived,
    )  # fmt: skip
    return StoredCheckpointHome(files, kinds_of(files), actions)
