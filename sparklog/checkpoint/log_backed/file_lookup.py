"""Reads single files of a checkpoint without a listing, for each batch of a sink."""

import os
import threading

from sparklog.checkpoint.log_backed.layout import LOGS, address_of
from sparklog.checkpoint.log_backed.partition import CheckpointPartition
from sparklog.fs import LOCAL, FileSystem, read_bytes


class FileLookup:
    """Reads single paths, records or files. Caches the partitions that it read. Thread-safe."""

    def __init__(self, root: str, fs: FileSystem = LOCAL) -> None:
        self._root, self._fs = root, fs
        self._partitions: dict[str, CheckpointPartition] = {}
        self._mutex = threading.Lock()

    def read(self, path: str, *, durable: bool = False) -> bytes | None:
        """Return the content of a path, or None if the path does not exist.

        Args:
            path: The path.
            durable: Whether to sync the content and the name first.

        Raises:
            DataCorruptionError: The record, or the partition of the record, is damaged.

        Cost:
            A few stats; for a log-backed checkpoint the records since the last call.
        """
        with self._mutex:
            data = self._record(path, durable=durable)
        if data is not None:
            return data
        real = os.path.join(self._root, path)
        try:
            if durable:
                self._sync(real)
            return read_bytes(self._fs, real)
        except FileNotFoundError:
            return None

    def differs(self, path: str) -> bool:
        """Return True if a path has both a record and a file, and they differ."""
        try:
            file = read_bytes(self._fs, os.path.join(self._root, path))
        except FileNotFoundError:
            return False
        record = self.record(path)
        return record is not None and record != file

    def record(self, path: str) -> bytes | None:
        """Return a path's content if it is a record, or None."""
        with self._mutex:
            return self._record(path, durable=False)

    def _record(self, path: str, *, durable: bool) -> bytes | None:
        name, key = address_of(path)
        directory = os.path.join(self._root, LOGS, name)
        partition = self._partitions.get(name)
        if partition is not None:
            partition.refresh()
        elif self._fs.is_dir(directory):
            partition = self._partitions[name] = CheckpointPartition(self._fs, directory)
        data = None if partition is None else partition.read(key)
        if partition is not None and data is not None and durable:
            base = partition.entries[key].base
            self._sync(partition.path(next(s for s in partition.segments if s.base == base)))
        return data

    def _sync(self, real: str) -> None:
        with self._fs.open(real) as file:
            file.sync()
        self._fs.sync_dir(os.path.dirname(real))
