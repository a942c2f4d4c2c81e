"""Names and sweeps the files in which tasks stage chunks.

A chunk file is in the log dir of its partition. The chunk belongs to no partition until a commit
appends it: by renaming the file to a segment, or by copying its batches to the active segment.
"""

import contextlib
import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from sparklog.config import TopicConfig
from sparklog.errors import StorageUnavailableError
from sparklog.fs import FileSystem
from sparklog.storage.staging import chunk_label

CHUNK_PREFIX: Final = "sparklog-chunk-"
_SEGMENT_SHARE: Final = 8  # 1/8 of a segment is enough for a new segment,
_SEGMENT_BYTES: Final = 32 << 20  # and so is this; smaller segments would be too many
_MAX_AGE_MS: Final = 7 * 24 * 3_600_000


def new_chunk_path(directory: str, label: str) -> str:
    """Return a unique path for a chunk file in a log dir.

    `label` is a part of the name; it starts with the `chunk_label` of the writer and micro-batch.
    """
    return os.path.join(directory, f"{CHUNK_PREFIX}{label}-{uuid.uuid4().hex}")


def segment_bytes_min(config: TopicConfig) -> int:
    """Return the minimum size of a chunk file that a commit renames to a segment.

    The task syncs such a file. Smaller chunks are copied by the commit, in a single process and
    under the lock, while the tasks' cores are idle.
    """
    return min(config.roll_bytes // _SEGMENT_SHARE, _SEGMENT_BYTES)


def sweep_chunks(
    fs: FileSystem, directories: Sequence[str], *, now_ms: int, writer: str = "", batch: int = -1
) -> int:
    """Delete staged files that will not be committed; return their number.

    These are the files of the micro-batches of `writer` up to number `batch`, which are committed,
    and all files older than a week.
    """
    swept = 0
    for path in dead_chunks(fs, directories, {writer: batch}, now_ms=now_ms):
        with contextlib.suppress(FileNotFoundError, StorageUnavailableError):
            fs.unlink(path)
            swept += 1
    return swept


def dead_chunks(
    fs: FileSystem, directories: Sequence[str], writers: Mapping[str, int], *, now_ms: int
) -> Iterator[str]:
    """Yield the paths of staged files that will not be committed; see `sweep_chunks`.

    `writers` is {writer: last committed batch}. Takes no lock, so files may disappear.
    """
    # Files are named by a hash of the writer, so the writers' names must be hashed for the
    # comparison.
    last = {chunk_label(writer, 0).rpartition("-")[0]: batch for writer, batch in writers.items()}
    for directory in directories:
        for name in fs.listdir(directory):
            if not name.startswith(CHUNK_PREFIX):
                continue
            path = os.path.join(directory, name)
            owner, _, rest = name.removeprefix(CHUNK_PREFIX).partition("-")
            number = rest.partition("-")[0]
            with contextlib.suppress(FileNotFoundError):
                done = number.isdigit() and int(number) <= last.get(owner, -1)
                if done or now_ms - fs.mtime_ms(path) > _MAX_AGE_MS:
                    yield path
