"""Opens a path for reading: a log dir with its tier, or a bucket alone."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sparklog.errors import InvalidRequestError, StorageUnavailableError
from sparklog.format.names import parse_partition_dir
from sparklog.fs import LOCAL, FileSystem
from sparklog.logdir.paths import is_url, split_path
from sparklog.logdir.view import LogDirView, check_until
from sparklog.storage.view import View
from sparklog.tiered.archive.no_files import NO_FILES
from sparklog.tiered.archive.view import ArchiveView
from sparklog.tiered.keyring import Keyring
from sparklog.tiered.layout.object_names import parse_directory
from sparklog.tiered.object_store.store import Store
from sparklog.tiered.reading.block_cache import DIRECTORY_NAME, BlockCache
from sparklog.tiered.reading.options import RemoteOptions
from sparklog.tiered.reading.remote_objects import RemoteObjects
from sparklog.tiered.reading.store_retry import StoreRetry
from sparklog.tiered.reading.tiered_segments import RemoteTier
from sparklog.tiered.remote_log_metadata.copies import LogCopies
from sparklog.tiered.settings import read_settings
from sparklog.tiered.target import open_store

Path = str | os.PathLike[str]


@dataclass(frozen=True, slots=True)
class ReadSide:
    """How a log is read: what its readers see, opened when it is called, and its small files.

    `fs`: of the log dirs, for groups and the ledger; a bucket alone has none of them.
    """

    open_view: Callable[[], View]
    fs: FileSystem
    is_archive: bool


def read_side(
    path: Path,
    *,
    options: RemoteOptions | None = None,
    storage_options: Mapping[str, Any] | None = None,
    fs: FileSystem = LOCAL,
    until: str = "high-watermark",
    stopped: Callable[[], bool] = lambda: False,
) -> ReadSide:
    """Return how the log dirs with their tier, or the bucket alone, at `path` are read.

    Args: until: see `sparklog.open`. stopped: ends a wait for a store that is away, once it is
        true.
    Nothing remote is asked for a log dir before a segment is wanted that isn't local any more.
    Raises: InvalidRequestError for a bad path or key ring.
    """
    options = options or RemoteOptions()
    directories = split_path(path)
    url = archive_url(path, fs)
    if url is not None:
        objects = _objects(lambda: open_store(url, storage_options), options, stopped)
        check_until(until)
        refresh_ms = options.remote_refresh_ms
        return ReadSide(
            lambda: ArchiveView(directories[0], objects, refresh_ms=refresh_ms), NO_FILES, True
        )
    home = directories[0]

    def connect() -> Store:
        settings = read_settings(fs, home)
        if settings is None:
            raise StorageUnavailableError(
                f"{home} has segments in remote storage, but its file sparklog.remote, which names "
                "the URL, is missing: start its service once with it (`sparklog serve --remote`)"
            )
        return open_store(settings.url, storage_options)

    tier = RemoteTier(_objects(connect, options, stopped), LogCopies(fs, directories))
    return ReadSide(
        lambda: LogDirView(fs, directories, until=until, remote=tier), fs, False
    )


def archive_url(path: Path, fs: FileSystem = LOCAL) -> str | None:
    """Return the URL of an archive (a bucket, or a directory of its form); None for a log dir."""
    text = os.fspath(path)
    directories = split_path(path)
    if any(is_url(directory) for directory in directories):
        if len(directories) > 1:
            raise InvalidRequestError(
                f"path={text}: an archive is one URL; open several one by one"
            )
        return directories[0]
    home = directories[0]
    if len(directories) > 1 or not fs.is_dir(home):
        return None
    names = fs.listdir(home)
    is_archive = any(parse_directory(name) is not None for name in names) and not any(
        parse_partition_dir(name) is not None or name.startswith("sparklog.") for name in names
    )
    return f"file://{home}" if is_archive else None


def no_archive(url: str) -> InvalidRequestError:
    """The error for a URL below which there is no copy of a segment."""
    return InvalidRequestError(
        f"{url} holds no archive: give the URL that closed segments are copied to (`sparklog serve "
        "--remote URL`)"
    )


def _objects(
    connect: Callable[[], Store], options: RemoteOptions, stopped: Callable[[], bool]
) -> RemoteObjects:
    directory = options.remote_cache_directory
    cache = BlockCache(
        options.remote_cache_memory_bytes,
        directory=os.path.join(directory, DIRECTORY_NAME) if directory else None,
        disk_bytes=options.remote_cache_disk_bytes if directory else 0,
    )
    keys = Keyring.load(options.remote_keyring) if options.remote_keyring else None
    retry = StoreRetry(
        options.patience_ms(following=False),
        follow_timeout_ms=options.patience_ms(following=True),
        stopped=stopped,
    )
    return RemoteObjects(
        connect, cache, keys, threads=options.remote_fetch_threads, retry=retry
    )
