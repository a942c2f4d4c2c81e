"""From directories to blocks: what is new is read and uploaded, what was archived before is not.

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
from typing import Final

from sparklog.checkpoint.backup.repository import BLOCK_BYTES, Repository
from sparklog.checkpoint.backup.segment_blocks import block_sizes
from sparklog.checkpoint.backup.snapshots import SnapshotFile, SnapshotTree, SnapshotTrees
from sparklog.checkpoint.log_backed.layout import LOGS
from sparklog.errors import StorageUnavailableError
from sparklog.fs import FileSystem

INLINE_BYTES: Final = 256  # smaller files are in the snapshot itself
TRUSTED_BYTES: Final = 1 << 20  # from here on inode, size and time of change tell a file
SETTLED_MS: Final = 2_000  # since its last change: a second one would show in its time
_RECORDS: Final = re.compile(rf"{LOGS}/[^/]+/[0-9]{{20}}\.log")
Progress = Callable[[int, int], None]
"""Is told (bytes of files that are done, bytes in all)."""


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
        fs: FileSystem,
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
        self._fs, self._repository, self._stored = fs, repository, dict(stored)
        self._threads, self._now_ms, self._keep_alive = threads, now_ms, keep_alive
        self._progress, self._total = progress, 0
        self._mutex = threading.Lock()
        self._known = {
            (*entry.seen, entry.size): entry
            for tree in before.values()
            for entry in tree.files
            if entry.seen is not None and all(self._is_there(*b) for b in entry.blocks_and_sizes())
        }

    def upload(self, roots: Mapping[str, tuple[str, str]]) -> SnapshotTrees:
        """Upload {part: (directory, the path it is a copy of)}; returns what a snapshot needs.

        Raises: StorageUnavailableError: the store; or a file changed while it was read.
        """
        trees = {part: SnapshotTree(origin) for part, (_, origin) in roots.items()}
        jobs = []
        for part, (root, _) in roots.items():
            for path, is_dir in walk(self._fs, root):
                if is_dir:
                    trees[part].directories.append(path)
                else:
                    jobs.append((part, root, path))
        self._total = sum(self._fs.size(os.path.join(root, path)) for _, root, path in jobs)
        with ThreadPoolExecutor(self._threads, "sparklog-archive") as pool:
            futures = [(part, pool.submit(self._upload, root, path)) for part, root, path in jobs]
            try:
                for part, future in futures:
                    trees[part].files.append(future.result())
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
        return trees

    def _upload(self, root: str, path: str) -> SnapshotFile:
        file = os.path.join(root, path)
        size, seen = self._size_and_stamp(file)
        known = self._known.get((*seen, size)) if size >= TRUSTED_BYTES else None
        if known is not None:
            entry = SnapshotFile(path, size, known.blocks, None, seen, known.block_sizes)
        else:
            entry = self._read(file, path, size, seen)
            if self._size_and_stamp(file) != (size, seen):
                raise StorageUnavailableError(
                    f"{file} changed while it was archived: stop what writes it, or archive a "
                    "batch of it; no point was made",
                    path=file,
                )
        with self._mutex:
            self.stats.files += 1
            self.stats.bytes += size
            if self._progress is not None:
                self._progress(self.stats.bytes, self._total)
        return entry

    def _size_and_stamp(self, file: str) -> tuple[int, tuple[int, int, int]]:
        return self._fs.size(file), (*self._fs.identity(file), self._fs.mtime_ms(file))

    def _read(self, file: str, path: str, size: int, seen: tuple[int, int, int]) -> SnapshotFile:
        blocks: list[bytes] = []
        with self._fs.open(file) as source:
            if size <= INLINE_BYTES:
                return SnapshotFile(path, size, (), source.pread(size, 0))
            sizes = block_sizes(source, size) if _RECORDS.fullmatch(path) else []
            at = 0
            while at < size:
                length = sizes[len(blocks)] if sizes else min(BLOCK_BYTES, size - at)
                data = source.pread(length, at)
                if len(data) < length:
                    break  # it became shorter, which the caller notices
                at += length
                digest = hashlib.sha256(data).digest()
                blocks.append(digest)
                self._put(digest, data)
        settled = seen[2] + SETTLED_MS < self._now_ms and size >= TRUSTED_BYTES
        return SnapshotFile(
            path, size, tuple(blocks), None, seen if settled else None, tuple(sizes)
        )

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
