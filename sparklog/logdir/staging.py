"""Staging in log dirs: tasks write large chunks to files in the log dirs of their partitions.

A chunk is the record batches of a partition that no commit refers to yet. Each file has a unique
name, so files that are never committed do no harm and are swept later (`chunk_files`).
"""

import contextlib
import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from sparklog.clock import Clock, system_clock
from sparklog.config import TopicConfig
from sparklog.errors import StorageUnavailableError
from sparklog.fs import LOCAL, File, FileSystem
from sparklog.fs.files import HINTS, REFUSED
from sparklog.log.chunk_stager import ChunksInMemory, ChunkStager
from sparklog.logdir.chunk_files import CHUNK_PREFIX, new_chunk_path, segment_bytes_min
from sparklog.logdir.log_dir_check import DriverLogDir
from sparklog.logdir.topics_file import planned_topic
from sparklog.storage.chunk_table import ChunkTable
from sparklog.storage.commits import Chunk
from sparklog.storage.staging import INLINE_BYTES, Framing, GrowingChunk, Stager
from sparklog.storage.view import TopicInfo

_LOGGER: Final = logging.getLogger(__name__)
FILE_BYTES: Final = 256 << 10  # larger chunks are written to a file


@dataclass(slots=True)
class _ChunkFile:
    """The open file of a chunk.

    Attributes:
        file: The file.
        written: The number of bytes in the file.
        synced_boot_id: The boot in which the file was synced; None if it was not synced.
    """

    file: File
    written: int = 0
    synced_boot_id: str | None = None


class ChunkFiles:
    """Stores the chunks of a log dir: each large chunk in its own file, small chunks in memory.

    A `sparklog.storage.staging.ChunkPlace`. Memory: up to FILE_BYTES per partition.

    Args:
        label: The beginning of the files' names (see `chunk_label`).
        inline_max_bytes: How many bytes all finished chunks together may have in memory. If they
            have more, all chunks are written to files. With None, small chunks always stay in
            memory.
    """

    is_memory = False

    def __init__(
        self, fs: FileSystem, home: str, label: str, *, inline_max_bytes: int | None = None
    ) -> None:
        self.home = home
        self._fs, self._label, self._inline_max_bytes = fs, label, inline_max_bytes

    def grow(self, chunk: GrowingChunk, data: memoryview) -> bool:
        """Add record batches to a chunk: in memory, or in the chunk's file once the chunk is large.

        `chunk.size_bytes` already includes them. Always returns False: the chunk can grow further.
        """
        chunk.parts.append(data)
        if chunk.size_bytes >= FILE_BYTES:
            self._write(chunk)
        else:
            # The caller reuses its buffer after this call.
            chunk.parts[-1] = memoryview(bytes(data))
        return False

    def _write(self, chunk: GrowingChunk) -> _ChunkFile:
        """Write a chunk's batches in memory to its file; return the file.

        The file is created with the first batches.
        """
        staged: _ChunkFile | None = chunk.place_state
        if staged is None:
            directory = os.path.dirname(chunk.topic.dirs[chunk.partition])
            path = new_chunk_path(directory, self._label)
            staged = chunk.place_state = _ChunkFile(self._fs.open(path, create=True))
        for part in chunk.parts:
            staged.file.pwrite(part, staged.written)
            staged.written += len(part)
        chunk.parts.clear()
        return staged

    def close(self, chunk: GrowingChunk) -> None:
        """Complete a chunk: write the rest to its file, if it has one, and close the file.

        A file that is large enough to become a segment is synced.
        """
        if chunk.place_state is None:
            chunk.join()
            return
        staged = self._write(chunk)
        if chunk.size_bytes >= segment_bytes_min(chunk.topic.config):
            # Here, in the tasks, the syncs of many files run in parallel. In the commit they would
            # run in one process, under the lock.
            staged.file.sync()
            staged.synced_boot_id = self._fs.boot_id()
        staged.file.close()

    def finish(self, chunks: Sequence[GrowingChunk]) -> Sequence[Chunk]:
        """Return the chunks for the commit, with their data or the path of their file.

        Chunks in memory are written to files if together they exceed `inline_max_bytes`.
        """
        in_memory = [chunk for chunk in chunks if chunk.place_state is None]
        most = self._inline_max_bytes
        if most is not None and sum(chunk.size_bytes for chunk in in_memory) > most:
            for chunk in in_memory:
                self._write(chunk).file.close()
        return [
            chunk.chunk(data=chunk.parts[0])
            if chunk.place_state is None
            else chunk.chunk(
                path=chunk.place_state.file.path,
                synced_boot_id=chunk.place_state.synced_boot_id,
            )
            for chunk in chunks
        ]

    def discard(self, chunks: Sequence[GrowingChunk]) -> None:
        for chunk in chunks:
            if chunk.place_state is not None:
                chunk.place_state.file.close()
                with contextlib.suppress(FileNotFoundError, StorageUnavailableError):
                    self._fs.unlink(chunk.place_state.file.path)


@dataclass(frozen=True, slots=True)
class LogDirStaging:
    """Staging for the tasks of a Spark job, in a log dir that all executors see.

    A `sparklog.storage.staging.TaskStaging`.
    """

    log_dir: DriverLogDir
    fs: FileSystem = field(default=LOCAL, repr=False)
    clock: Clock = field(default=system_clock, repr=False)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle only the log dir's identity.

        A task uses the file system and the clock of its own process.
        """
        return LogDirStaging, (self.log_dir,)

    @property
    def home(self) -> str:
        return self.log_dir.home

    def check(self) -> None:
        """Raise InvalidRequestError if this process does not see the driver's log dir.

        See `DriverLogDir.check`.
        """
        self.log_dir.check(self.fs)

    def stager(self, framing: Framing, *, label: str, task: int = 0) -> Stager:
        place = ChunkFiles(self.fs, self.home, label, inline_max_bytes=INLINE_BYTES)
        return ChunkStager(place, self.clock, framing, spread=label)

    def memory_stager(self, framing: Framing, *, spread: str) -> Stager:
        """Return a stager for the driver, which keeps all chunks in memory."""
        return ChunkStager(ChunksInMemory(self.home), self.clock, framing, spread=spread)

    @property
    def puts_objects(self) -> bool:
        """Always False: tasks in the JVM write the chunk files themselves."""
        return False

    def jvm_place(self) -> Mapping[str, Any] | None:
        """Return the data with which tasks in the JVM write the same chunk files.

        Returns None if the file system exists only in Python, as in tests. See ChunkFiles.scala.
        """
        # A file system of a test exists only in Python.
        if self.fs is not LOCAL:
            return None
        return {
            "kind": "files",
            "prefix": CHUNK_PREFIX,
            "file_bytes": FILE_BYTES,
            "inline_bytes": INLINE_BYTES,
            "identity": self.log_dir.to_json(),
            "refused": [StorageUnavailableError.__name__, REFUSED],
            "hints": {os.strerror(number): hint for number, hint in HINTS.items()},
        }

    def jvm_topic(self, topic: TopicInfo) -> Mapping[str, Any]:
        """Return the data about a topic that tasks in the JVM need.

        These are the log dir of each partition, and the minimum size of a chunk that becomes a
        segment.
        """
        return {
            "directories": {p: os.path.dirname(path) for p, path in topic.dirs.items()},
            "segment_bytes_min": segment_bytes_min(topic.config),
        }

    def put(self, tables: Iterable[ChunkTable], *, label: str, task: int = 0) -> ChunkTable:
        """Not supported: in a log dir the JVM writes its files itself."""
        raise NotImplementedError

    def planned_topic(self, name: str, partitions: int, config: TopicConfig) -> TopicInfo:
        """Return a topic to be created. Rows of the topic are staged in the first log dir."""
        return planned_topic(self.home, name, partitions, config)

    def gathered(self, tables: Sequence[ChunkTable]) -> Sequence[Chunk]:
        """Return the chunks of all tables unchanged; a log dir does not combine chunks."""
        return [chunk for table in tables for chunk in table.chunks()]

    def discard(self, chunks: Sequence[Chunk], *, cause: BaseException | None = None) -> None:
        """Delete the files, whatever the outcome of the commit.

        A successful commit has copied or renamed them. A failed commit is undone, and its rows are
        staged again under other names.
        """
        discard_chunks(self.fs, chunks)


def discard_chunks(fs: FileSystem, chunks: Iterable[Chunk]) -> None:
    """Delete staged files. A chunk that became a segment has another name and stays."""
    for chunk in chunks:
        if chunk.path is not None:
            try:
                fs.unlink(chunk.path)
            # The commit's outcome is known by now. A file that stays is swept with the next
            # micro-batches.
            except (FileNotFoundError, StorageUnavailableError) as error:
                _LOGGER.debug("%s: %s", chunk.path, error)
