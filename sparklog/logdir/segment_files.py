"""Walk the batches of a segment file in windows of bounded size."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from sparklog.format.batch import LOG_OVERHEAD
from sparklog.format.names import LOG, PARTITION_METADATA, parse_base
from sparklog.format.scan import Batches, scan
from sparklog.fs import File, FileSystem

WINDOW_BYTES: Final = 4 << 20


@dataclass(frozen=True, slots=True)
class Window:
    """A piece of a file: `data` begins at byte `position`; `batches` are the whole ones in it."""

    data: bytes
    position: int
    batches: Batches


def walk(
    file: File,
    *,
    start: int = 0,
    limit: int | None = None,
    check_crc: bool = True,
    window_bytes: int = WINDOW_BYTES,
) -> Iterator[Window]:
    """Yield the whole batches in the bytes [start, limit) of a segment file, window by window.

    `start` must be where a batch starts. The last window has `batches.error` set if damage ended
    the walk; without it the rest is a torn batch or nothing. Nothing is yielded for no bytes.
    """
    limit = file.size() if limit is None else limit
    at, span = start, window_bytes
    while at < limit:
        data = file.pread(min(span, limit - at), at)
        batches = scan(data, path=file.path, position=at, check_crc=check_crc)
        yield Window(data, at, batches)
        if batches.error is not None:
            return
        if batches.end == at:  # not one whole batch: torn, or larger than the window
            needed = int.from_bytes(data[8:LOG_OVERHEAD], "big") + LOG_OVERHEAD
            if len(data) < LOG_OVERHEAD or needed <= len(data) or at + needed > limit:
                return
            span = needed
        else:
            at, span = batches.end, window_bytes


def segment_bases(fs: FileSystem, directory: str) -> list[int]:
    """Return the base offsets of the segments in a partition directory, ascending."""
    return bases_of(fs.listdir(directory))


def bases_of(names: list[str]) -> list[int]:
    """Return the base offsets of the `.log` files among `names`, ascending."""
    return sorted(
        base for name in names if name.endswith(LOG) and (base := parse_base(name)) is not None
    )


def is_partition(fs: FileSystem, path: str) -> bool:
    """Tell a partition's directory from whatever else ends in a number, such as jdk-17."""
    names = fs.listdir(path) if fs.is_dir(path) else []
    return any(name == PARTITION_METADATA or name.endswith(LOG) for name in names)


def joined(directory: str, name: str) -> str:
    """Return the path of a file of a partition."""
    return f"{directory}{os.sep}{name}"  # os.path.join costs more, and is asked thousands of times
