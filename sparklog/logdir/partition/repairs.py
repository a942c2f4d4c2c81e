"""Changes files of a partition when a step is undone, or a log is recovered or loaded.

Each change is logged in a line per file, with position and time. Records that were cut off are
warnings, changes of derived files are informational, and unchanged derived files are for debugging.
"""

import logging
from typing import Final

import numpy as np

from sparklog.clock import stopwatch
from sparklog.format.names import LOG
from sparklog.fs import FileSystem, read_bytes, write_durably

_LOGGER: Final = logging.getLogger(__name__)
Contents = bytes | bytearray


def cut(fs: FileSystem, path: str, size: int, why: str, *, sync: bool, read_ms: int = 0) -> str:
    """Cut a file to `size` bytes; return the range that was cut, or "". Creates a missing file.

    With `sync` the file is durable in any case. `read_ms` is the time that the check before took;
    it is only logged.
    """
    watch = stopwatch()
    with fs.open(path, create=True) as file:
        before = file.size()
        if before > size:
            file.truncate(size)
        if sync:
            file.sync()
    if before <= size:
        _kept(path, before, read_ms + watch())
        return ""
    removed = f"bytes [{size}, {before})"
    # Only the log contains records. All other files can be rebuilt from it.
    level = logging.WARNING if path.endswith(LOG) else logging.INFO
    _LOGGER.log(level, "%s: cut %s, %s, in %d ms", path, removed, why, read_ms + watch())
    return f"{path.rpartition('/')[2]}: {removed}"


def remove(fs: FileSystem, path: str, why: str) -> str:
    """Remove a file; return the file's name, or "" if no file existed."""
    watch = stopwatch()
    try:
        size = fs.size(path)
        fs.unlink(path)
    except FileNotFoundError:
        return ""
    level = logging.WARNING if path.endswith(LOG) and size else logging.INFO
    _LOGGER.log(level, "%s: removed all %d bytes, %s, in %d ms", path, size, why, watch())
    return path.rpartition("/")[2]


def replace(fs: FileSystem, path: str, data: Contents, *, sync_dir: bool = False) -> None:
    """Replace a file by rename, durably, because a reader may have mapped the old file."""
    watch = stopwatch()
    try:
        before = read_bytes(fs, path)
    except FileNotFoundError:
        before = None
    write_durably(fs, path, data, sync_dir=sync_dir)
    if before is None:
        _LOGGER.info("%s: created, %d bytes, in %d ms", path, len(data), watch())
    elif before == data:
        _kept(path, len(data), watch())
    else:
        kept = _common(before, data)
        _LOGGER.info(
            "%s: cut bytes [%d, %d), wrote [%d, %d), in %d ms",
            path, kept, len(before), kept, len(data), watch(),
        )  # fmt: skip


def _kept(path: str, size: int, took_ms: int) -> None:
    level = logging.INFO if path.endswith(LOG) else logging.DEBUG
    _LOGGER.log(level, "%s: all %d bytes kept, in %d ms", path, size, took_ms)


def _common(first: Contents, other: Contents) -> int:
    """Return the number of leading bytes that are equal."""
    size = min(len(first), len(other))
    differ = np.frombuffer(first, np.uint8, size) != np.frombuffer(other, np.uint8, size)
    return int(np.argmax(differ)) if differ.any() else size
