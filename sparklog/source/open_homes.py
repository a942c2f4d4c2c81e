"""Open a log for reading with a source's options, in any home."""

import os
from typing import Any, Final

from sparklog.fs import LOCAL, FileSystem
from sparklog.log.log import home_of, view_of
from sparklog.logdir.paths import split_path
from sparklog.lru_cache import LruCache
from sparklog.opening import open_log, url_of
from sparklog.secret_digest import secret_digest
from sparklog.source.options import SourceOptions
from sparklog.storage.home import Home

_HOMES_MAX: Final = 64
HOMES: LruCache[tuple[Any, ...], Home] = LruCache(_HOMES_MAX)  # by process, path and options


def open_home(
    options: SourceOptions, fs: FileSystem = LOCAL, *, is_planned: bool = False
) -> Home:
    """Return the home of the log, opened for reading.

    Args:
        options: The query's options.
        fs: The file system of log dirs.
        is_planned: A plan contains the location of the records, so a URL is known to be a log's
            home and no request is sent.

    Raises:
        InvalidRequestError: There is no log.
        StorageUnavailableError: The store fails.
    """
    log = open_log(
        options.path or "",
        remote=options.remote,
        storage_options=options.storage,
        fs=fs,
        until=options.until,
        is_home=is_planned,
    )
    if options.streaming:
        view_of(log).set_following()
    return home_of(log)


def is_missing(options: SourceOptions, fs: FileSystem = LOCAL) -> bool:
    """Return whether a log dir of the options' path does not exist; False for a store."""
    path = options.path or ""
    return url_of(path, fs=fs) is None and not all(map(fs.exists, split_path(path)))


def cached_home(options: SourceOptions, *, is_planned: bool = False) -> Home:
    """Return the log's home, which all tasks of this process share."""
    # Spark runs many tasks in the same worker process, one after the other.
    key = (
        os.getpid(), options.path, options.until, secret_digest(options.storage_options),
        options.remote, options.streaming,
    )  # fmt: skip
    return HOMES.get_or_make(key, lambda: open_home(options, is_planned=is_planned))
