"""Uploads the files that a repository lacks.

A `TreeSource` is a directory (here), or a log in a bucket (forked_log.py). A file of 1 MiB or more
with the inode, size and mtime of a file in the newest snapshot is not read: it is a closed segment
or a RocksDB file, which are written once. A changed file is uploaded completely. A file larger than
a piece is read twice: for its SHA-256, which is its name, and to upload it.
"""

import hashlib
import os
import threading
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Final, Protocol

from sparklog.checkpoint.backup.repository import FILES, PIECE_BYTES, Repository
from sparklog.checkpoint.backup.snapshots import SnapshotFile, SnapshotTree, SnapshotTrees
from sparklog.clock import Clock
from sparklog.errors import InvalidRequestError, StorageUnavailableError
from sparklog.fs import SETTLED_MS, Buffer, FileSystem
from sparklog.progress import Progress

INLINE_BYTES: Final = 256  # smaller files are in the snapshot itself
TRUSTED_BYTES: Final = 1 << 20  # inode, size and mtime identify files from this size on
DAY_MS: Final = 86_400_000
Stamp = tuple[int, int, int]


def check_threads(threads: int) -> None:
    """Raise InvalidRequestError unless `threads` is positive."""
    if threads < 1:
        raise InvalidRequestError(f"threads must be at least 1; got {threads}")


class TreeSource(Protocol):
    """The files of a tree of a snapshot. Thread-safe."""

    origin: str
    """The path or URL of the original."""

    def paths(self) -> Iterator[tuple[str, bool]]:
        """Yield (path, whether it is a directory) of all files and directories, parents first."""

    def where(self, path: str) -> str:
        """Return the file's path, for messages."""

    def size(self, path: str) -> int:
        """Return a file's size in bytes."""

    def stamp(self, path: str) -> Stamp | None:
        """Return the data that, with the size, identify a file of an earlier snapshot, if any."""

    def is_settled(self, stamp: Stamp, size: int, now_ms: int) -> bool:
        """Return True if a later file with this stamp and size surely has the same content."""

    def pieces(self, path: str, size: int) -> Iterator[bytes]:
        """Yield the first `size` bytes of a file, PIECE_BYTES at a time.

        Yields fewer bytes if the file became shorter.
        """


class DirectoryFiles:
    """The files below the directory `root`."""

    def __init__(self, fs: FileSystem, root: str, origin: str) -> None:
        self.origin, self._fs, self._root = origin, fs, root

    def paths(self) -> Iterator[tuple[str, bool]]:
        """Yield (path, whether it is a directory) of everything below the root, parents first."""
        return walk(self._fs, self._root)

    def where(self, path: str) -> str:
        """Return the absolute path of a file, for messages."""
        return os.path.join(self._root, path)

    def size(self, path: str) -> int:
        """Return a file's size in bytes."""
        return self._fs.size(self.where(path))

    def stamp(self, path: str) -> Stamp:
        """Return device, inode and mtime of a file, which identify an unchanged file."""
        file = self.where(path)
        return (*self._fs.identity(file), self._fs.mtime_ms(file))

    def is_settled(self, stamp: Stamp, size: int, now_ms: int) -> bool:
        """Return True if the file is too old to have been changed within its mtime's resolution."""
        return stamp[2] + SETTLED_MS < now_ms and size >= TRUSTED_BYTES

    def pieces(self, path: str, size: int) -> Iterator[bytes]:
        """Yield the first `size` bytes of a file, PIECE_BYTES at a time."""
        with self._fs.open(self.where(path)) as source:
            for at in range(0, size, PIECE_BYTES):
                yield source.pread(min(PIECE_BYTES, size - at), at)


@dataclass(slots=True)
class UploadStats:
    """The numbers of files and bytes in the snapshot, of bytes read, and of uploads."""

    files: int = 0
    bytes: int = 0
    read_bytes: int = 0
    new_files: int = 0
    new_bytes: int = 0


class Uploader:
    """Uploads the files of trees, several at the same time.

    Args:
        before: The newest snapshot's trees.
        rewrite_ms: An object of this age is uploaded again, to outlive the snapshot under a
            lifecycle rule that deletes objects by age.
    """

    def __init__(
        self,
        repository: Repository,
        before: SnapshotTrees,
        *,
        clock: Clock,
        rewrite_ms: int,
        threads: int,
        progress: Progress | None = None,
    ) -> None:
        self.stats = UploadStats()
        self._repository, self._threads, self._clock = repository, threads, clock
        self._now_ms, self._rewrite_ms = clock(), rewrite_ms
        self._progress, self._total = progress, 0
        self._mutex = threading.Lock()
        self._stored = self._list(rewrite_ms)
        self._uploaded: set[bytes] = set()
        self._known = {
            (*entry.seen, entry.size): entry
            for tree in before.values()
            for entry in tree.files
            if entry.seen is not None and self._is_stored(entry)
        }

    def _list(self, age_ms: int) -> dict[str, int]:
        """List the stored files below this age as {object: bytes}."""
        held = self._repository.store.list(FILES)
        # The store's clock sets the objects' times, and this host's clock may be behind.
        now_ms = max(self._clock(), *(one.time_ms for one in held), 0)
        return {one.name: one.size for one in held if now_ms - one.time_ms < age_ms}

    def _is_stored(self, entry: SnapshotFile) -> bool:
        """Return True if the file's object was listed, with the correct size."""
        if entry.content is None:
            return entry.data is not None
        size = self._repository.stored_size(entry.content, entry.size)
        return self._stored.get(self._repository.name(entry.content)) == size

    def _check(self, trees: SnapshotTrees) -> None:
        """Check that the files which were found in the repository still exist.

        The snapshot is written next. Another process or a lifecycle rule may have deleted files
        during the upload. The age may have grown by a day, for which the rules in docs/replay.md
        leave room.

        Raises:
            StorageUnavailableError: A file was deleted during the upload.
        """
        # A day more than at the start: an object may have passed the age during the upload. The
        # lifecycle rules in docs/replay.md leave room for it.
        self._stored = self._list(self._rewrite_ms + DAY_MS)
        for tree in trees.values():
            for entry in tree.files:
                if entry.content not in self._uploaded and not self._is_stored(entry):
                    name = self._repository.name(entry.content or b"")
                    raise StorageUnavailableError(
                        f"during the backup the object of {entry.path} was deleted, or became "
                        f"older than {self._rewrite_ms // DAY_MS} days; no snapshot was written. "
                        "Archive again",
                        path=f"{self._repository.store.url}/{name}",
                    )

    def upload(self, parts: Mapping[str, TreeSource]) -> SnapshotTrees:
        """Upload {name of a tree: files}, and return the trees of a snapshot.

        Raises:
            StorageUnavailableError: The store failed, a file changed while it was read, or an
                object was deleted during the upload.
        """
        trees = {part: SnapshotTree(files.origin) for part, files in parts.items()}
        jobs = []
        for part, files in parts.items():
            for path, is_dir in files.paths():
                if is_dir:
                    trees[part].directories.append(path)
                else:
                    jobs.append((part, files, path))
        self._total = sum(files.size(path) for _, files, path in jobs)
        with ThreadPoolExecutor(self._threads, "sparklog-archive") as pool:
            futures = [(part, pool.submit(self._upload, files, path)) for part, files, path in jobs]
            try:
                for part, future in futures:
                    trees[part].files.append(future.result())
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
        self._check(trees)
        return trees

    def _upload(self, files: TreeSource, path: str) -> SnapshotFile:
        size, stamp = files.size(path), files.stamp(path)
        known = None if stamp is None else self._known.get((*stamp, size))
        if known is not None:
            entry = replace(known, path=path)
        else:
            entry = self._read(files, path, size, stamp)
            # A file that changed during the read could be half old and half new.
            if (files.size(path), files.stamp(path)) != (size, stamp):
                raise _changed(files.where(path))
        with self._mutex:
            self.stats.files += 1
            self.stats.bytes += size
            if self._progress is not None:
                self._progress(self.stats.bytes, self._total)
        return entry

    def _read(self, files: TreeSource, path: str, size: int, stamp: Stamp | None) -> SnapshotFile:
        settled = stamp is not None and files.is_settled(stamp, size, self._now_ms)
        seen = stamp if settled else None
        if size <= INLINE_BYTES:
            return SnapshotFile(path, size, data=b"".join(files.pieces(path, size)), seen=seen)
        if size <= PIECE_BYTES:  # its only piece has the SHA-256 of the file
            data = b"".join(files.pieces(path, size))
            content = hashlib.sha256(data).digest()
            entry = SnapshotFile(path, size, content, (content,), None, seen)
            self._put(entry, [data])
            return entry
        whole, digests = hashlib.sha256(), list[bytes]()
        for data in files.pieces(path, size):
            whole.update(data)
            digests.append(hashlib.sha256(data).digest())
        entry = SnapshotFile(path, size, whole.digest(), tuple(digests), None, seen)
        self._put(entry, _VerifiedPieces(files, entry))
        return entry

    def _put(self, entry: SnapshotFile, pieces: Iterable[Buffer]) -> None:
        assert entry.content is not None
        with self._mutex:
            self.stats.read_bytes += entry.size
            if entry.content in self._uploaded or self._is_stored(entry):
                return
        self._repository.put(entry.content, pieces, entry.size)
        with self._mutex:
            self._uploaded.add(entry.content)
            self.stats.new_files += 1
            self.stats.new_bytes += entry.size


@dataclass(frozen=True, slots=True)
class _VerifiedPieces:
    """The pieces of a file, which are read again for the upload and compared with their SHA-256.

    The name of an object is the SHA-256 of its content, so a file that changes must not be stored.
    In an encrypted repository, other bytes would also be sealed with the same key and nonce.
    """

    files: TreeSource
    entry: SnapshotFile

    def __iter__(self) -> Iterator[Buffer]:
        path, size = self.entry.path, self.entry.size
        for data, digest in zip(self.files.pieces(path, size), self.entry.digests, strict=True):
            if hashlib.sha256(data).digest() != digest:
                raise _changed(self.files.where(path))
            yield data


def _changed(path: str) -> StorageUnavailableError:
    return StorageUnavailableError(
        f"{path} changed while it was archived; no snapshot was written. Stop the process that "
        "writes the file, and archive again",
        path=path,
    )


def walk(fs: FileSystem, root: str, directory: str = "") -> Iterator[tuple[str, bool]]:
    """Yield (path below `root`, whether it is a directory), parents first."""
    for name in fs.listdir(os.path.join(root, directory) if directory else root):
        path = f"{directory}/{name}" if directory else name
        is_dir = fs.is_dir(os.path.join(root, path))
        yield path, is_dir
        if is_dir:
            yield from walk(fs, root, path)
