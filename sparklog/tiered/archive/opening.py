"""Opens an archive (a bucket without its log), and recognizes the URLs of buckets."""

import os
from collections.abc import Callable, Mapping
from typing import Any

from sparklog.errors import InvalidRequestError
from sparklog.format.names import parse_partition_dir
from sparklog.fs import LOCAL, FileSystem
from sparklog.logdir.detection import is_store_home
from sparklog.logdir.paths import split_path, store_url
from sparklog.tiered.archive.view import ArchiveView
from sparklog.tiered.layout.object_names import parse_directory
from sparklog.tiered.reading.options import RemoteOptions
from sparklog.tiered.reading.remote_objects import open_objects
from sparklog.tiered.target import open_store

Path = str | os.PathLike[str]


def open_archive(
    url: str,
    *,
    options: RemoteOptions | None = None,
    storage_options: Mapping[str, Any] | None = None,
    stopped: Callable[[], bool] = lambda: False,
) -> ArchiveView:
    """Open the archive at `url`; for costs and errors see `ArchiveView`."""
    options = options or RemoteOptions()
    objects = open_objects(lambda: open_store(url, storage_options), options, stopped)
    return ArchiveView(url, objects, refresh_ms=options.remote_refresh_ms)


def archive_url(path: Path, fs: FileSystem = LOCAL) -> str | None:
    """Return the URL of a bucket, or of a directory in a bucket's format; None for a log dir.

    The content is not examined. The bucket may contain an archive or a log.
    """
    url = store_url(path)
    if url is not None:
        return url
    directories = split_path(path)
    home = directories[0]
    if len(directories) > 1 or not fs.is_dir(home):
        return None
    names = fs.listdir(home)
    if is_store_home(fs, home):
        return f"file://{home}"
    # A partition's prefix, topic-0-ID, may also be the name of a partition directory of a topic
    # whose name contains a dash, so any sign of a log dir decides against an archive.
    is_archive = any(parse_directory(name) is not None for name in names) and not any(
        parse_partition_dir(name) is not None or name.startswith("sparklog.") for name in names
    )
    return f"file://{home}" if is_archive else None


def no_archive(url: str) -> InvalidRequestError:
    """Return the error for a URL without any copies of segments."""
    return InvalidRequestError(
        f"{url} contains neither a log nor an archive: use the URL of a log, which the first "
        "writer creates (`sparklog topics create URL`), or a URL to which segments are copied "
        "(`sparklog serve PATH --remote URL`)"
    )
