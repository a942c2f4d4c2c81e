"""A snapshot: the manifest of a checkpoint's files, and of its log's files.

    points/<time, 15 digits>.<batch or none>.<parts>.<id>

The name has time (ms), batch and parts ("checkpoint" or "checkpoint+log"), so that a listing shows
all snapshots. The object is a line of JSON {version, key, sha256}, then the files: JSON,
compressed, and encrypted if the repository has a key. `sha256` is the checksum of these bytes.
"""

import base64
import hashlib
import json
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Self

from sparklog.checkpoint.backup.repository import BLOCKS, PIECE_BYTES, Piece, Repository
from sparklog.diskless.names import HOME
from sparklog.errors import DataCorruptionError, InvalidRequestError
from sparklog.storage.stored_json import check_version
from sparklog.tiered.keyring import Keyring
from sparklog.tiered.object_store.store import Store

SNAPSHOTS: Final = "points/"
VERSION: Final = 4
"""The version that is written.

In versions 1 to 3, which sparklog up to 02014a42 wrote, a file is stored as blocks: objects with
a piece each.
"""
_BLOCKS_VERSION: Final = 3
SNAPSHOT_BYTES_MAX: Final = 1 << 30
"""The maximum size of a snapshot, stored and inflated."""
CHECKPOINT: Final = "checkpoint"
LOG: Final = "log"
_NAME: Final = re.compile(r"([0-9]{15})\.([0-9]+|none)\.(checkpoint(?:\+log)?)\.([0-9a-f]{8,})")
_DIGEST_BYTES: Final = 32
_CURE: Final = "restore the object from a copy of the bucket, or use another snapshot"
_WRONG: Final = (ValueError, KeyError, TypeError, AttributeError, zlib.error)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A snapshot of a repository, as far as the snapshot's name describes it.

    Attributes:
        name: The name.
        time_ms: When the snapshot was made, in milliseconds since the epoch.
        batch: The batch; None for a directory that is not a query's checkpoint.
        has_log: Whether the snapshot contains the query's log.

    Examples:
        >>> from sparklog.checkpoint import archive, list_points
        >>> archived = archive("checkpoint", bucket, log="log")
        >>> [(snapshot.batch, snapshot.has_log) for snapshot in list_points(bucket)]
        [(2, True)]
    """

    name: str
    time_ms: int
    batch: int | None
    has_log: bool

    @classmethod
    def make(cls, time_ms: int, batch: int | None, snapshot_id: str, *, has_log: bool) -> Self:
        """Return the description of a new snapshot.

        Args:
            time_ms: The current time, in milliseconds since the epoch.
            batch: The batch, or None.
            snapshot_id: A random text that makes the name unique.
            has_log: Whether the snapshot contains the query's log.
        """
        parts = f"{CHECKPOINT}+{LOG}" if has_log else CHECKPOINT
        number = "none" if batch is None else batch
        return cls(f"{time_ms:015d}.{number}.{parts}.{snapshot_id}", time_ms, batch, has_log)

    @classmethod
    def parse(cls, name: str) -> Self | None:
        """Parse the name of a snapshot; return None for other names.

        Args:
            name: The last part of an object's key.
        """
        found = _NAME.fullmatch(name)
        if found is None:
            return None
        batch = None if found[2] == "none" else int(found[2])
        return cls(name, int(found[1]), batch, found[3].endswith(LOG))

    def to_dict(self) -> dict[str, Any]:
        """Return the fields for JSON."""
        return {"name": self.name, "time": self.time_ms, "batch": self.batch, "log": self.has_log}


@dataclass(frozen=True, slots=True)
class SnapshotFile:
    """A file: its path in the tree, and its SHA-256 or, if small, its bytes (`data`).

    Attributes:
        path: The path in the tree.
        size: The size in bytes.
        content: The SHA-256 of the file; None in a snapshot of an earlier version.
        digests: The SHA-256 of each piece.
        data: The bytes of a small file.
        seen: (device, inode, mtime in ms) when the file was archived. None for a file that may
            have changed although these are the same.
        piece_sizes: The sizes of the pieces in a snapshot of an earlier version.
    """

    path: str
    size: int
    content: bytes | None = None
    digests: tuple[bytes, ...] = ()
    data: bytes | None = None
    seen: tuple[int, int, int] | None = None
    piece_sizes: tuple[int, ...] = ()

    def pieces(self) -> Iterator[Piece]:
        """Yield the pieces in order."""
        at = 0
        for number, digest in enumerate(self.digests):
            sizes = self.piece_sizes
            size = sizes[number] if sizes else min(PIECE_BYTES, self.size - at)
            if self.content is None:
                yield Piece(digest, digest, size, 0, size, BLOCKS)
            else:
                yield Piece(digest, self.content, self.size, at, at + size)
            at += size


@dataclass(frozen=True, slots=True)
class SnapshotTree:
    """A backed-up tree of a snapshot: the checkpoint, a log dir, or an entire log in a bucket.

    The tree has the original location (`origin`), the directories, parents first, and the files.
    `query` is the id of the checkpoint's query, or None.
    """

    origin: str
    directories: list[str] = field(default_factory=list)
    files: list[SnapshotFile] = field(default_factory=list)
    query: str | None = None

    @property
    def is_home(self) -> bool:
        """Whether the tree is an entire log in a bucket, whose objects are the tree's files."""
        return any(entry.path == HOME for entry in self.files)

    @property
    def size(self) -> int:
        """The size of all files in bytes."""
        return sum(entry.size for entry in self.files)


SnapshotTrees = dict[str, SnapshotTree]
"""{CHECKPOINT: ..., LOG: ...}"""


def list_snapshots(store: Store) -> list[Snapshot]:
    """Return all snapshots, oldest first. Cost: a request per 1,000 snapshots."""
    found = (Snapshot.parse(one.name.removeprefix(SNAPSHOTS)) for one in store.list(SNAPSHOTS))
    return sorted((p for p in found if p is not None), key=lambda p: (p.time_ms, p.name))


def no_snapshots(url: str) -> InvalidRequestError:
    """Return the error for a URL without snapshots."""
    return InvalidRequestError(
        f"{url} has no snapshot of a checkpoint: use the URL that was passed to `sparklog "
        "checkpoint archive`",
        path=url,
    )


def choose(store: Store, batch: int | None, name: str | None) -> Snapshot:
    """Return the newest snapshot, the newest snapshot of a batch, or the snapshot with a name.

    Raises:
        InvalidRequestError: There is no such snapshot.
    """
    held = list_snapshots(store)
    if not held:
        raise no_snapshots(store.url)
    fits = [
        snapshot
        for snapshot in held
        if name in (None, snapshot.name) and (batch is None or snapshot.batch == batch)
    ]
    if not fits:
        what = f"snapshot {name}" if name is not None else f"snapshot of batch {batch}"
        batches = ", ".join(str(b) for b in sorted({p.batch for p in held if p.batch is not None}))
        raise InvalidRequestError(
            f"{store.url} has no {what}; it has snapshots of batches: {batches or 'none'}",
            path=store.url,
        )
    return fits[-1]


def write(repository: Repository, snapshot: Snapshot, trees: SnapshotTrees) -> None:
    """Write the manifest of a snapshot, after all files of the snapshot.

    The manifest makes the snapshot visible. Cost: a request.
    """
    body = zlib.compress(json.dumps({k: _to_json(t) for k, t in trees.items()}).encode())
    stored = repository.seal_text(snapshot.name, body)
    digest = hashlib.sha256(stored).hexdigest()
    head = json.dumps({"version": VERSION, "key": repository.key_id, "sha256": digest})
    repository.store.put(SNAPSHOTS + snapshot.name, head.encode() + b"\n" + stored)


def read(
    store: Store, snapshot: Snapshot, ring: Keyring | None
) -> tuple[Repository, SnapshotTrees]:
    """Return the trees of a snapshot, and the repository that contains the files.

    Raises:
        DataCorruptionError: The manifest is damaged.
        InvalidRequestError: The snapshot is missing, or the keyring can't open it.
        UnsupportedVersionError: A newer sparklog wrote the snapshot.
    """
    path = f"{store.url}/{SNAPSHOTS}{snapshot.name}"
    try:
        raw = store.get(SNAPSHOTS + snapshot.name, limit=SNAPSHOT_BYTES_MAX)
    except FileNotFoundError:
        raise InvalidRequestError(
            f"the snapshot {path} was deleted; list the snapshots again", path=path
        ) from None
    head, _, stored = raw.partition(b"\n")
    try:
        about = json.loads(head)
        check_version(about["version"], path, newest=VERSION)
        if hashlib.sha256(stored).hexdigest() != about["sha256"]:
            raise DataCorruptionError(
                f"the SHA-256 of the snapshot does not match; {_CURE}", path=path
            )
        repository = Repository.reading(store, ring, about["key"])
        inflating = zlib.decompressobj()
        body = inflating.decompress(
            repository.open_text(snapshot.name, stored, path=path), SNAPSHOT_BYTES_MAX
        )
        if not inflating.eof:
            raise ValueError(f"the body is truncated or has more than {SNAPSHOT_BYTES_MAX} bytes")
        entry = _entry if about["version"] > _BLOCKS_VERSION else _entry_of_blocks
        return repository, {k: _from_json(t, entry) for k, t in json.loads(body).items()}
    except InvalidRequestError:
        raise
    except _WRONG as error:
        raise DataCorruptionError(
            f"the snapshot can't be read ({error!r}); {_CURE}", path=path
        ) from error


def _to_json(tree: SnapshotTree) -> dict[str, Any]:
    return {
        "origin": tree.origin,
        "query": tree.query,
        "directories": tree.directories,
        "files": [*map(_row, tree.files)],
    }


def _row(entry: SnapshotFile) -> list[Any]:
    content = None if entry.content is None else entry.content.hex()
    data = None if entry.data is None else base64.b64encode(entry.data).decode()
    digests = "" if len(entry.digests) < 2 else b"".join(entry.digests).hex()
    return [entry.path, entry.size, content, data, entry.seen, digests]


def _from_json(fields: dict[str, Any], entry: Callable[..., SnapshotFile]) -> SnapshotTree:
    files = [entry(*row) for row in fields["files"]]
    for file in files:
        if file.path.startswith("/") or ".." in file.path.split("/"):
            raise ValueError(f"the path {file.path} leads out of the directory")
        sizes = [piece.end - piece.start for piece in file.pieces()]
        if min(sizes, default=1) < 1 or (file.data is None and sum(sizes) != file.size):
            raise ValueError(f"the {len(sizes)} pieces of {file.path} do not have its size")
    return SnapshotTree(fields["origin"], fields["directories"], files, fields.get("query"))


def _entry(
    path: str,
    size: int,
    content: str | None,
    data: str | None,
    seen: list[int] | None,
    digests: str,
) -> SnapshotFile:
    whole = None if content is None else bytes.fromhex(content)
    pieces = (whole,) if whole is not None and not digests else _digests(digests)
    return SnapshotFile(path, size, whole, pieces, _data(data), _seen(seen))


def _entry_of_blocks(
    path: str,
    size: int,
    blocks: str,
    data: str | None,
    seen: list[int] | None,
    block_sizes: Sequence[int] = (),
) -> SnapshotFile:
    """Return a file of a snapshot of an earlier version."""
    digests = _digests(blocks)
    if block_sizes and len(digests) != len(block_sizes):
        raise ValueError(f"{path} has {len(digests)} blocks, but {len(block_sizes)} block sizes")
    return SnapshotFile(path, size, None, digests, _data(data), _seen(seen), tuple(block_sizes))


def _digests(text: str) -> tuple[bytes, ...]:
    raw = bytes.fromhex(text)
    return tuple(raw[at : at + _DIGEST_BYTES] for at in range(0, len(raw), _DIGEST_BYTES))


def _data(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def _seen(numbers: list[int] | None) -> tuple[int, int, int] | None:
    return None if numbers is None else (numbers[0], numbers[1], numbers[2])
