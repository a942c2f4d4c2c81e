"""From files to blocks: what is new is read and uploaded, what was archived before is not.

Whose files they are `Files` hides: a directory's (here), or a log's in a store (store_log.py).

A file of 1 MiB or more that has the inode, size and time of change that the newest snapshot knows
is not even read: it is a closed segment or a file of RocksDB, which are written once. Of one that
has grown, the whole blocks are there already. Segments of a checkpoint's log dir, which grow and
are cleaned from one snapshot to the next, are split at their records (segment_blocks.py).
"""

import hashlib
import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, Protocol

from sparklog.checkpoint.backup.repository import BLOCK_BYTES, Repository
from sparklog.checkpoint.backup.segment_blocks import block_sizes
from sparklog.checkpoint.backup.snapshots import SnapshotFile, SnapshotTree, SnapshotTrees
from sparklog.checkpoint.log_backed.layout import LOGS
from sparklog.errors import InvalidRequestError, StorageUnavailableError
from sparklog.fs import FileSystem
from sparklog.progress import Progress

INLINE_BYTES: Final = 256  # smaller files are in the snapshot itself
TRUSTED_BYTES: Final = 1 << 20  # from here on inode, size and time of change tell a file
SETTLED_MS: Final = 2_000  # since its last change: a second one would show in its time
_RECORDS: Final = re.compile(rf"{LOGS}/[^/]+/[0-9]{{20}}\.log")
Stamp = tuple[int, int, int]


def check_threads(threads: int) -> None:
    """Raise InvalidRequestError for a number of threads that nothing can be done with."""
    if threads < 1:
        raise InvalidRequestError(f"threads={threads}: want at least 1")


class Files(Protocol):
    """What becomes a tree of a snapshot. Threads share it."""

    origin: str
    """The path or URL that it is a copy of."""

    def paths(self) -> Iterator[tuple[str, bool]]:
        """Yield (path, whether it is a directory) of all there is, parents first."""

    def where(self, path: str) -> str:
        """The file, for messages."""

    def size(self, path: str) -> int:
        """Its bytes."""

    def stamp(self, path: str) -> Stamp | None:
        """What tells, with the size, that a file is the one of an earlier snapshot, if so much
        does."""

    def is_settled(self, stamp: Stamp, size: int, now_ms: int) -> bool:
        """Tell whether a later file of this stamp and size is sure to be what was read now."""

    def blocks(self, path: str, size: int) -> Iterator[bytes]:
        """Yield its bytes, at most BLOCK_BYTES each; fewer in all if it became shorter."""


class DirectoryFiles:
    """The files below a directory, `root`."""

    def __init__(self, fs: FileSystem, root: str, origin: str) -> None:
        self.origin, self._fs, self._root = origin, fs, root

    def paths(self) -> Iterator[tuple[str, bool]]:
        """See `Files`."""
        return walk(self._fs, self._root)

    def where(self, path: str) -> str:
        """See `Files`."""
        return os.path.join(self._root, path)

    def size(self, path: str) -> int:
        """See `Files`."""
        return self._fs.size(self.where(path))

    def stamp(self, path: str) -> Stamp:
        """See `Files`: device, inode, time of the last change."""
        file = self.where(path)
        return (*self._fs.identity(file), self._fs.mtime_ms(file))

    def is_settled(self, stamp: Stamp, size: int, now_ms: int) -> bool:
        """See `Files`."""
        return stamp[2] + SETTLED_MS < now_ms and size >= TRUSTED_BYTES

    def blocks(self, path: str, size: int) -> Iterator[bytes]:
        """See `Files`."""
        with self._fs.open(self.where(path)) as source:
            if size > INLINE_BYTES and _RECORDS.fullmatch(path):
                sizes = block_sizes(source, size)
            else:
                sizes = [min(BLOCK_BYTES, size - at) for at in range(0, size, BLOCK_BYTES)]
            at = 0
            for length in sizes:
                data = source.pread(length, at)
                if len(data) < length:
                    return
                at += length
                yield data


@dataclass(slots=True)
class UploadStats:
    """What was done: files and bytes in the snapshot, bytes read, blocks and bytes uploaded."""

    files: int = 0
    bytes: int = 0
    read_bytes: int = 0
    new_blocks: int = 0
    new_bytes: int = 0


class Uploader:
    """Uploads the files of trees, several at once.

    Args: stored: {object: bytes} of the blocks that are there. before: the newest snapshot's trees.
        keep_alive: is called before each block is written.
    """

    def __init__(
        self,
        repository: Repository,
        stored: Mapping[str, int],
        before: SnapshotTrees,
        *,
        now_ms: int,
        threads: int,
        keep_alive: Callable[[], None],
        progress: Progress | None = None,
    ) -> None:
        self.stats = UploadStats()
        self._repository, self._stored = repository, dict(stored)
        self._threads, self._now_ms, self._keep_alive = threads, now_ms, keep_alive
        self._progress, self._total = progress, 0
        self._mutex = threading.Lock()
        self._known = {
            (*entry.seen, entry.size): entry
            for tree in before.values()
            for entry in tree.files
            if entry.seen is not None and all(self._is_there(*b) for b in entry.blocks_and_sizes())
        }

    def upload(self, parts: Mapping[str, Files]) -> SnapshotTrees:
        """Upload {part: its files}; returns what a snapshot needs.

        Raises: StorageUnavailableError: the store; or a file changed while it was read.
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
        return trees

    def _upload(self, files: Files, path: str) -> SnapshotFile:
        size, stamp = files.size(path), files.stamp(path)
        known = None if stamp is None else self._known.get((*stamp, size))
        if known is not None:
            entry = SnapshotFile(path, size, known.blocks, known.data, stamp, known.block_sizes)
        else:
            entry = self._read(files, path, size, stamp)
            if (files.size(path), files.stamp(path)) != (size, stamp):
                raise StorageUnavailableError(
                    f"{files.where(path)} changed while it was archived: stop what writes it, and "
                    "archive it again; no point was made",
                    path=files.where(path),
                )
        with self._mutex:
            self.stats.files += 1
            self.stats.bytes += size
            if self._progress is not None:
                self._progress(self.stats.bytes, self._total)
        return entry

    def _read(self, files: Files, path: str, size: int, stamp: Stamp | None) -> SnapshotFile:
        settled = stamp is not None and files.is_settled(stamp, size, self._now_ms)
        seen = stamp if settled else None
        if size <= INLINE_BYTES:
            return SnapshotFile(path, size, (), b"".join(files.blocks(path, size)), seen)
        blocks, sizes = list[bytes](), list[int]()
        for data in files.blocks(path, size):
            digest = hashlib.sha256(data).digest()
            blocks.append(digest)
            sizes.append(len(data))
            self._put(digest, data)
        is_even = all(each == BLOCK_BYTES for each in sizes[:-1])
        return SnapshotFile(path, size, tuple(blocks), None, seen, () if is_even else tuple(sizes))

    def _put(self, digest: bytes, data: bytes) -> None:
        with self._mutex:
            self.stats.read_bytes += len(data)
            if self._is_there(digest, len(data)):
                return
        self._keep_alive()
        self._repository.put(digest, data)
        with self._mutex:
            self._stored[self._repository.name(digest)] = self._repository.stored_size(
                digest, len(data)
            )
            self.stats.new_blocks += 1
            self.stats.new_bytes += len(data)

    def _is_there(self, digest: bytes, size: int) -> bool:
        """Tell whether a block was listed with the size that it must have."""
        return self._stored.get(self._repository.name(digest)) == self._repository.stored_size(
            digest, size
        )


def walk(fs: FileSystem, root: str, directory: str = "") -> Iterator[tuple[str, bool]]:
    """Yield (path below `root`, whether it is a directory) of all there is, parents first."""
    for name in fs.listdir(os.path.join(root, directory) if directory else root):
        path = f"{directory}/{name}" if directory else name
        is_dir = fs.is_dir(os.path.join(root, path))
        yield path, is_dir
        if is_dir:
            yield from walk(fs, root, path)
