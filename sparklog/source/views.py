"""Opens a log for reading by a source's options, whatever its home."""

import os
from typing import Any, Final

from sparklog.clock import system_clock
from sparklog.fs import LOCAL, FileSystem
from sparklog.logdir.home import LogDirHome
from sparklog.lru_cache import LruCache
from sparklog.source.options import SourceOptions
from sparklog.storage.home import Home
from sparklog.tiered.opening import read_side

_HOMES_MAX: Final = 64
HOMES: LruCache[tuple[Any, ...], Home] = LruCache(_HOMES_MAX)  # by process, path and options


def open_home(options: SourceOptions, fs: FileSystem = LOCAL) -> Home:
    """Return the log, opened for reading.

    Raises: InvalidRequestError if there is no log; StorageUnavailableError for an archive.
    """
    reads = read_side(
        options.path or "",
        options=options.remote,
        storage_options=options.storage,
        fs=fs,
        until=options.until,
    )
    view = reads.open_view()
    if options.streaming:
        view.set_following()
    return LogDirHome(options.path or "", reads.fs, system_clock, view, None)


def kept_home(options: SourceOptions) -> Home:
    """Return the log as this process's tasks have it open: workers are reused."""
    key = (
        os.getpid(), options.path, options.until, options.storage_options, options.remote,
        options.streaming,
    )  # fmt: skip
    return HOMES.get_or_make(key, lambda: open_home(options))
