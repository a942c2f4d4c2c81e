"""A snapshot: which files a checkpoint had, and its log, and which blocks hold them.

    points/<time, 15 digits>.<batch or none>.<parts>.<id>

The name tells time (ms), batch and parts ("checkpoint" or "checkpoint+log"), so that one listing
shows all snapshots. The object is a line of JSON {version, key, sha256}, then the files: JSON,
compressed, sealed if the repository has a key; `sha256` is of these bytes.
"""

import base64
import hashlib
import json
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Self

from sparklog.checkpoint.backup.repository import BLOCK_BYTES, Repository
from sparklog.diskless.names import HOME
from sparklog.errors import DataCorruptionError, InvalidRequestError
from sparklog.storage.format_version import check_version
from sparklog.tiered.keyring import Keyring
from sparklog.tiered.object_store.store import Store

SNAPSHOTS: Final = "points/"
VERSION: Final = 3
"""Of a snapshot of a log in a store; 2: a file has block sizes of its own; others are of 1."""
SNAPSHOT_BYTES_MAX: Final = 1 << 30
"""The largest snapshot, as it is stored and when it is inflated."""
CHECKPOINT: Final = "checkpoint"
LOG: Final = "log"
_NAME: Final = re.compile(r"([0-9]{15})\.([0-9]+|none)\.(checkpoint(?:\+log)?)\.([0-9a-f]{8,})")
_DIGEST_BYTES: Final = 32
_CURE: Final = "restore the object from a copy of the bucket, or use another point"
_WRONG: Final = (ValueError, KeyError, TypeError, AttributeError, zlib.error)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A snapshot, by its name. `batch` is None for a directory that is no query's checkpoint."""

    name: str
    time_ms: int
    batch: int | None
    has_log: bool

    @classmethod
    def make(cls, time_ms: int, batch: int | None, snapshot_id: str, *, has_log: bool) -> Self:
        """Name a new one."""
        parts = f"{CHECKPOINT}+{LOG}" if has_log else CHECKPOINT
        number = "none" if batch is None else batch
        return cls(f"{time_ms:015d}.{number}.{parts}.{snapshot_id}", time_ms, batch, has_log)

    @classmethod
    def parse(cls, name: str) -> Self | None:
        """Return what a name tells; None if it is no snapshot's."""
        found = _NAME.fullmatch(name)
        if found is None:
            return None
        batch = None if found[2] == "none" else int(found[2])
        return cls(name, int(found[1]), batch, found[3].endswith(LOG))

    def to_dict(self) -> dict[str, Any]:
        """The fields as JSON takes them."""
        return {"name": self.name, "time": self.time_ms, "batch": self.batch, "log": self.has_log}


@dataclass(frozen=True, slots=True)
class SnapshotFile:
    """A file: its path in the tree, and its bytes, as blocks or right here.

    `seen`: (device, inode, time of the last change in ms) where it was archived, None if it may
    have changed since without any of these. `block_sizes`: of each block in bytes, where it isn't
    BLOCK_BYTES for all but the last one.
    """

    path: str
    size: int
    blocks: tuple[bytes, ...] = ()
    data: bytes | None = None
    seen: tuple[int, int, int] | None = None
    block_sizes: tuple[int, ...] = ()

    def blocks_and_sizes(self) -> Iterator[tuple[bytes, int]]:
        """Yield (SHA-256, bytes) of each block."""
        if self.block_sizes:
            yield from zip(self.blocks, self.block_sizes, strict=True)
            return
        for number, digest in enumerate(self.blocks):
            yield digest, min(BLOCK_BYTES, self.size - number * BLOCK_BYTES)


@dataclass(frozen=True, slots=True)
class SnapshotTree:
    """A directory: where it was, the directories below it (parents first), the files.

    `query`: the id of the query whose checkpoint it is, None if it has none.
    """

    origin: str
    directories: list[str] = field(default_factory=list)
    files: list[SnapshotFile] = field(default_factory=list)
    query: str | None = None

    @property
    def is_home(self) -> bool:
        """Whether it is a log in a store, whose objects the files are."""
        return any(entry.path == HOME for entry in self.files)

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(entry.size for entry in self.files)


SnapshotTrees = dict[str, SnapshotTree]
"""{CHECKPOINT: ..., LOG: ...}"""


def list_snapshots(store: Store) -> list[Snapshot]:
    """Return all snapshots, oldest first. One request for each 1,000."""
    found = (Snapshot.parse(one.name.removeprefix(SNAPSHOTS)) for one in store.list(SNAPSHOTS))
    return sorted((p for p in found if p is not None), key=lambda p: (p.time_ms, p.name))


def no_snapshots(url: str) -> InvalidRequestError:
    """The error for a URL below which nothing was archived."""
    return InvalidRequestError(
        f"{url} has no archived point: give the URL that `sparklog checkpoint archive` was given",
        path=url,
    )


def choose(store: Store, batch: int | None, name: str | None) -> Snapshot:
    """Return the newest snapshot, of that batch, or of that name. Raises InvalidRequestError."""
    held = list_snapshots(store)
    if not held:
        raise no_snapshots(store.url)
    fits = [
        snapshot
        for snapshot in held
        if name in (None, snapshot.name) and (batch is None or snapshot.batch == batch)
    ]
    if not fits:
        what = f"point {name}" if name is not None else f"point of batch {batch}"
        batches = ", ".join(str(b) for b in sorted({p.batch for p in held if p.batch is not None}))
        raise InvalidRequestError(
            f"{store.url} has no {what}; its batches: {batches or 'none'}", path=store.url
        )
    return fits[-1]


def write(repository: Repository, snapshot: Snapshot, trees: SnapshotTrees) -> None:
    """Write a snapshot; all its blocks must be there. One request: the commit point."""
    body = zlib.compress(json.dumps({k: _to_json(t) for k, t in trees.items()}).encode())
    stored = repository.seal_text(snapshot.name, body)
    digest = hashlib.sha256(stored).hexdigest()
    has_block_sizes = any(entry.block_sizes for tree in trees.values() for entry in tree.files)
    version = VERSION if LOG in trees and trees[LOG].is_home else 2 if has_block_sizes else 1
    head = json.dumps({"version": version, "key": repository.key_id, "sha256": digest})
    repository.store.put(SNAPSHOTS + snapshot.name, head.encode() + b"\n" + stored)


def read(
    store: Store, snapshot: Snapshot, ring: Keyring | None
) -> tuple[Repository, SnapshotTrees]:
    """Return what a snapshot holds, and the repository that has its blocks.

    Raises: DataCorruptionError; InvalidRequestError: it is gone, or the key ring can't open it;
    UnsupportedVersionError.
    """
    path = f"{store.url}/{SNAPSHOTS}{snapshot.name}"
    try:
        raw = store.get(SNAPSHOTS + snapshot.name, limit=SNAPSHOT_BYTES_MAX)
    except FileNotFoundError:
        raise InvalidRequestError(
            f"{path} is gone; see which points there are", path=path
        ) from None
    head, _, stored = raw.partition(b"\n")
    try:
        about = json.loads(head)
        check_version(about["version"], path, newest=VERSION)
        if hashlib.sha256(stored).hexdigest() != about["sha256"]:
            raise DataCorruptionError(f"its sha256 doesn't fit; {_CURE}", path=path)
        repository = Repository.reading(store, ring, about["key"])
        inflating = zlib.decompressobj()
        body = inflating.decompress(
            repository.open_text(snapshot.name, stored, path=path), SNAPSHOT_BYTES_MAX
        )
        if not inflating.eof:
            raise ValueError(f"cut off, or more than {SNAPSHOT_BYTES_MAX} bytes when inflated")
        return repository, {k: _from_json(t) for k, t in json.loads(body).items()}
    except InvalidRequestError:
        raise
    except _WRONG as error:
        raise DataCorruptionError(f"no archived point ({error!r}); {_CURE}", path=path) from error


def _to_json(tree: SnapshotTree) -> dict[str, Any]:
    return {
        "origin": tree.origin,
        "query": tree.query,
        "directories": tree.directories,
        "files": [*map(_row, tree.files)],
    }


def _row(entry: SnapshotFile) -> list[Any]:
    data = None if entry.data is None else base64.b64encode(entry.data).decode()
    row = [entry.path, entry.size, b"".join(entry.blocks).hex(), data, entry.seen]
    return [*row, entry.block_sizes] if entry.block_sizes else row


def _from_json(fields: dict[str, Any]) -> SnapshotTree:
    files = [_entry(*row) for row in fields["files"]]
    return SnapshotTree(fields["origin"], fields["directories"], files, fields.get("query"))


def _entry(
    path: str,
    size: int,
    blocks: str,
    data: str | None,
    seen: list[int] | None,
    block_sizes: Sequence[int] = (),
) -> SnapshotFile:
    raw = bytes.fromhex(blocks)
    digests = tuple(raw[at : at + _DIGEST_BYTES] for at in range(0, len(raw), _DIGEST_BYTES))
    if path.startswith("/") or ".." in path.split("/"):
        raise ValueError(f"{path} leads out of the directory")
    count = len(block_sizes) if block_sizes else -(-size // BLOCK_BYTES)
    if data is None and (len(digests) != count or (block_sizes and sum(block_sizes) != size)):
        raise ValueError(f"{path} has {len(digests)} blocks")
    return SnapshotFile(
        path, size, digests, None if data is None else base64.b64decode(data),
        None if seen is None else (seen[0], seen[1], seen[2]), tuple(block_sizes),
    )  # fmt: skip
