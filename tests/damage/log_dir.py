"""The homes in log dirs: a log that was closed, and one whose writer was killed."""

import atexit
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pyarrow as pa
import pytest

import sparklog
from sparklog.logdir.ledger import LedgerWriter
from sparklog.service import Service
from tests.damage.actions import ACTIONS
from tests.damage.model import Actions, Files, Kind

LOCK = "sparklog.lock"
LEDGER = "__sparklog_commits-0"
T = {"internal.segment.bytes": 400, "index.interval.bytes": 1, "retention.ms": -1}
U = {
    "cleanup.policy": "compact", "internal.segment.bytes": 300, "min.cleanable.dirty.ratio": "0.01",
    "retention.ms": -1,
}  # fmt: skip
GUARD = "sparklog_open"
LEDGER_SEGMENT_BYTES = 3000
NO_DATA = "status lists names and reads no data; verify does"
SAME_SHAPE = "both segments have the same offsets, and no batch names its partition"
UNREAD = dict.fromkeys(
    ("empty", "flipped", "flipped-head", "truncated", "older", "doubled"), NO_DATA
) | {"swapped": SAME_SHAPE}


@dataclass(frozen=True, slots=True)
class DirectoryPlace:
    """A log in a directory that all copies take turns in.

    A log dir notices by the lock file's inode that it was copied, and then recovers in full. Most
    damage happens in place, so the lock file keeps its inode: a second name outside keeps it.
    """

    path: str

    @property
    def url(self) -> str:
        """No store is asked: the log dir."""
        return self.path

    @property
    def root(self) -> Path:
        """The directory below which all files are."""
        return Path(self.path)

    def files(self) -> Files:
        """The files as they are now; an empty directory is a name that ends with a slash."""
        found: Files = {}
        for directory, below, names in os.walk(self.root):
            where = os.path.relpath(directory, self.root)
            prefix = "" if where == "." else f"{where}/"
            if prefix and not (below or names):
                found[prefix] = b""
            for name in names:
                found[prefix + name] = (Path(directory) / name).read_bytes()
        return dict(sorted(found.items()))

    def put(self, files: Files) -> None:
        """Make these the files."""
        root = self.root
        shutil.rmtree(root, ignore_errors=True)
        for name, data in files.items():
            target = root / name
            if name.endswith("/"):
                target.mkdir(parents=True, exist_ok=True)
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            if os.path.basename(name) == LOCK and self._kept_lock.exists():
                os.link(self._kept_lock, target)
            target.write_bytes(data)

    @property
    def _kept_lock(self) -> Path:
        return Path(f"{self.root}.{LOCK}")

    def keep_lock(self, name: str = LOCK) -> None:
        """Remember the inode of the lock file."""
        os.link(Path(self.path) / name, self._kept_lock)


@dataclass(slots=True)
class LogDirHome:
    """See `model.Home`."""

    name: str
    place: DirectoryPlace
    files: Files = field(default_factory=dict)
    kinds: list[Kind] = field(default_factory=list)
    actions: Actions = ACTIONS
    foreign_words: tuple[str, ...] = ()

    @contextmanager
    def lay_out(self, files: Files) -> Iterator[DirectoryPlace]:
        """Lay out a copy at the place of them all."""
        self.place.put(files)
        yield self.place


def new_place(name: str) -> DirectoryPlace:
    """A directory that is removed with the process."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    above = tempfile.mkdtemp(prefix="damage-", dir=memory)
    atexit.register(shutil.rmtree, above, ignore_errors=True)
    return DirectoryPlace(os.path.join(above, name))


def fill(log: sparklog.Log, **config: object) -> None:
    """Write topics t (two partitions with offsets that agree) and u, and a group."""
    log.create_topic("t", 2, {**T, **config})
    log.create_topic("u", 1, U)
    for n in range(9):
        for partition in (0, 1):
            row = {"key": [b"k"], "value": [b"%d-%d" % (partition, n) + b"x" * 60]}
            log.append("t", pa.table(row), partition, producer=(7 + partition, 0, n))
        log.append("u", pa.table({"key": [b"k%d" % (n % 3)], "value": [b"u%d" % n + b"y" * 40]}))


@cache
def made() -> tuple[DirectoryPlace, Files, Files, Files]:
    """Build the log: (its place, its files in the midst, after a kill, and after a clean close)."""
    place = new_place("log")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LedgerWriter, "segment_bytes", LEDGER_SEGMENT_BYTES)
        with sparklog.open(place.path, "rw") as log:
            fill(log)
            log.commit_offsets("g", {"t": {0: 2, 1: 3}})
            log.commit_offsets("h", {"t": {0: 1}})
            with Service(place.path) as service:
                service.run_once()
            before = place.files()
            log.commit_offsets("g", {"t": {0: 3, 1: 3}})
            log.append("u", pa.table({"key": [b"k9"], "value": [b"last"]}))
            killed = place.files()
        closed = place.files()
    place.keep_lock()
    return place, before, killed, closed


def kinds_of(files: Files, before: Files) -> list[Kind]:
    """Every kind of file that a log dir has; `before`: older contents."""
    kinds = [
        Kind("partition directory", "t-0/", "t-1/", None, "t-2/"), Kind("ledger", f"{LEDGER}/"),
    ]  # fmt: skip
    for what, base in (("first", 0), ("middle", 3), ("active", 6)):
        name = f"{base:020d}"
        for suffix in (".log", ".index", ".timeindex", ".snapshot"):
            file = f"t-0/{name}{suffix}"
            if file in files:
                older = files[file][: len(files[file]) // 3]
                following = f"t-0/{base + 1:020d}{suffix}"
                kinds.append(
                    Kind(
                        f"{what} {suffix}", file, f"t-1/{name}{suffix}", older, following,
                        unread=UNREAD if suffix == ".log" else {},
                    )
                )
    ends = [name for name in files if name.startswith("t-0/") and name.endswith(".snapshot")]
    kinds.append(Kind("last .snapshot", ends[-1], ends[-1].replace("t-0", "t-1"), files[ends[0]]))
    kinds.append(Kind("leader epochs", "t-0/leader-epoch-checkpoint", None, None))
    kinds.append(Kind("partition.metadata", "t-0/partition.metadata", "u-0/partition.metadata"))
    segments = [name for name in files if name.startswith(LEDGER) and name.endswith(".log")]
    assert len(segments) >= 2, segments
    for what, at in (("older", -2), ("newest", -1)):
        log = segments[at]
        kinds.append(Kind(f"{what} ledger .log", log, segments[-3 - at], before.get(log)))
        for suffix in (".index", ".timeindex"):
            file = log.replace(".log", suffix)
            kinds.append(Kind(f"{what} ledger {suffix}", file, None, before.get(file)))
    groups = [name for name in files if name.startswith("sparklog.readers-")]
    kinds.append(
        Kind(
            "group", groups[0], groups[1], before[groups[0]], f"sparklog.readers-{0:032x}",
            undetectable={
                "missing": "the file is all that is known of a group",
                "empty": "a reader's first commit makes an empty file, to lock it",
                "older": "a power cut may bring an older commit back: PROTOCOL, Registered readers",
            },
        )
    )
    in_log_dir = [n for n in files if "/" not in n and not n.startswith("sparklog.readers-")]
    kinds += [Kind(name, name, None, before.get(name)) for name in in_log_dir]
    return kinds + ([Kind("guard", f"{GUARD}/")] if f"{GUARD}/" in files else [])


@cache
def home() -> LogDirHome:
    """A log that was closed."""
    place, before, _, closed = made()
    return LogDirHome("log_dir", place, closed, kinds_of(closed, before))


@cache
def killed() -> LogDirHome:
    """A log whose writer was killed, in this boot."""
    place, before, left, _ = made()
    return LogDirHome("killed_log_dir", place, left, kinds_of(left, before))
