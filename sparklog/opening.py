"""Open the log at a path or URL: log dirs, a log in a bucket, or an archive.

The contents of the path decide, regardless of its spelling:

    a log dir           also a broker's, or several joined by ","; with its tier
    a log in a bucket   contains the object `sparklog.home`: sparklog.diskless
    an archive          a store without it: copies of closed segments, read-only

If the path is empty or does not exist, mode "rw" creates a log in a bucket at a URL with two
slashes (s3://bucket/logs, file:///srv/logs), and a log dir at any other path (/srv/logs,
file:/srv/logs).

Tools, the source and the sink use only this module to examine a path.
"""

import os
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final

from sparklog.clock import system_clock
from sparklog.config import LogOptions
from sparklog.errors import DataCorruptionError, InvalidRequestError
from sparklog.format.names import LOG, parse_partition_dir, partition_dir
from sparklog.fs import LOCAL, FileSystem
from sparklog.log.log import Log
from sparklog.log.topic_names import REMOTE_METADATA
from sparklog.logdir import home as logdir
from sparklog.logdir.detection import holds_log, is_store_home
from sparklog.logdir.ledger import has_ledger
from sparklog.logdir.paths import same_place as is_same_directory
from sparklog.logdir.paths import split_path, store_url
from sparklog.logdir.view import LogDirView, check_until
from sparklog.storage.view import View
from sparklog.tiered.archive.home import ArchiveHome
from sparklog.tiered.archive.opening import archive_url, open_archive
from sparklog.tiered.object_store.registry import scheme_of, store_type, usual_scheme
from sparklog.tiered.object_store.store import Store
from sparklog.tiered.reading.options import RemoteOptions
from sparklog.tiered.reading.remote_objects import open_objects
from sparklog.tiered.reading.store_retry import StoreRetry
from sparklog.tiered.reading.tiered_segments import RemoteTier
from sparklog.tiered.remote_log_metadata.topic import LogCopies
from sparklog.tiered.settings import REMOTE_NAME, read_settings, settings_missing
from sparklog.tiered.target import open_store

Path = str | os.PathLike[str]
MARK: Final = "sparklog.home"
"""The object that marks the home of a log in a store."""
IMPORT_MARK: Final = "sparklog.import"
"""The object that marks a log that is being imported, until `sparklog.home` exists."""

_COMPONENTS: Final = frozenset({"background", "clock", "news", "retry_policy", "store", "tidy"})
SERVED_READ_ONLY: Final = (
    "Kafka clients can read an archive: `sparklog serve URL --kafka PORT --read-only`"
)


class UnfinishedLogError(InvalidRequestError):
    """A log in a store is being imported from another log, and is not complete yet."""


def open_log(
    path: Path,
    *,
    mode: str = "r",
    storage_options: Mapping[str, Any] | None = None,
    options: Mapping[str, object] | None = None,
    remote: RemoteOptions | None = None,
    until: str = "high-watermark",
    stopped: Callable[[], bool] = lambda: False,
    fs: FileSystem = LOCAL,
    is_home: bool = False,
    **components: Any,
) -> Log:
    """Internal; users call `sparklog.open`.

    Args:
        remote: Options for remote segments, instead of the options for them in `options`.
        is_home: The URL is known to be a log's home, so no request checks that.
    """
    if mode not in ("r", "rw"):
        raise InvalidRequestError(f"mode must be 'r' or 'rw'; got {mode!r}")
    for name, value in components.items():
        if name not in _COMPONENTS:
            raise InvalidRequestError(
                f"sparklog.open has no argument {name}: pass options of the log as "
                f"options={{{name!r}: {value!r}}}, and those of its store as storage_options"
            )
    if not isinstance(options, Mapping | None):
        raise InvalidRequestError(f"options={options!r}: expected a dict, {{name: value}}")
    given, rest = RemoteOptions.parse(options or {})
    remote = remote or given
    url = url_of(path, mode=mode, fs=fs)
    if url is None:
        _refuse_others(split_path(path), fs)
        view = partial(_tiered_view, path, storage_options, remote, until, stopped, fs)
        return logdir.open_log(path, fs=fs, view=view, mode=mode, options=rest, **components)
    check_until(until)
    if mode == "rw" or is_home or holds_home(url, storage_options, remote, stopped=stopped):
        # Imported here: a log dir, the usual case in Spark's Python workers, doesn't need it.
        from sparklog.diskless.home import open_log as open_in_store

        return open_in_store(
            url, mode=mode, storage_options=storage_options, options=rest, remote=remote,
            stopped=stopped, **components,
        )  # fmt: skip
    parsed = LogOptions.parse(rest)
    archive = open_archive(url, options=remote, storage_options=storage_options, stopped=stopped)
    clock = components.get("clock", system_clock)
    return Log(ArchiveHome(archive), options=parsed, clock=clock)


def refuse_unused_storage_options(
    path: Path, storage_options: Mapping[str, Any] | None, mode: str, fs: FileSystem = LOCAL
) -> None:
    """Raise InvalidRequestError if storage options are given for a log dir without a tier.

    A log dir with remote storage uses them for its tier. Cost: two stats, if options are given.
    """
    if storage_options and url_of(path, mode=mode, fs=fs) is None:
        home = split_path(path)[0]
        tier = (REMOTE_NAME, partition_dir(REMOTE_METADATA, 0))
        if not any(fs.exists(os.path.join(home, name)) for name in tier):
            raise InvalidRequestError(
                f"storage_options are given, but {os.fspath(path)} is a directory without remote "
                "storage: leave them out, or give the URL of the store",
                path=home,
            )


def _refuse_others(directories: Iterable[str], fs: FileSystem) -> None:
    """Raise InvalidRequestError for a file, and for the directory of a single partition."""
    for directory in directories:
        is_dir = fs.is_dir(directory)
        if not is_dir and fs.exists(directory):
            raise InvalidRequestError(
                f"{directory} is a file: give the log's directory", path=directory
            )
        # In mode "rw", a log would otherwise be created inside of another log's partition.
        is_named_so = parse_partition_dir(os.path.basename(directory)) is not None
        if is_dir and is_named_so and any(n.endswith(LOG) for n in fs.listdir(directory)):
            raise InvalidRequestError(
                f"{directory} is the directory of a single partition: give the log dir, "
                f"{os.path.dirname(directory)}",
                path=directory,
            )


def url_of(path: Path, *, mode: str = "r", fs: FileSystem = LOCAL) -> str | None:
    """Return the URL of the store that contains a path's log. Log dirs give None.

    Sends no request to a store; a directory is listed. In mode "rw" the log may not exist yet.

    Raises:
        InvalidRequestError: The path is invalid, or is an archive's directory and can't be written.
    """
    url = _store_url(path)
    if url is not None:
        return url
    directories = split_path(path)
    home = directories[0]
    if len(directories) > 1:
        return None
    archive = archive_url(home, fs)
    if archive is not None and mode != "r" and not is_store_home(fs, home):
        raise InvalidRequestError(
            f"{os.fspath(path)} is an archive, which is read-only: use mode='r', or restore it to "
            f"a log dir (sparklog tier restore). {SERVED_READ_ONLY}",
            path=home,
        )
    # No log exists: only the spelling tells whether to create a log in a bucket or a log dir.
    is_spelled_so = os.fspath(path).strip().startswith("file://") and mode != "r"
    if archive is None and is_spelled_so and not holds_log(fs, home):
        return f"file://{home}"
    return archive


def holds_home(
    url: str,
    storage_options: Mapping[str, Any] | None = None,
    remote: RemoteOptions | None = None,
    *,
    stopped: Callable[[], bool] = lambda: False,
) -> bool:
    """Return whether a store's URL is the home of a log.

    Raises:
        InvalidRequestError: The URL is invalid, or the log is incomplete.
        DataCorruptionError: `sparklog.home` is missing although a log's objects exist.
        StorageUnavailableError: The store does not answer.

    Cost:
        A small request; without a home, two more requests and two listings.
    """
    store = open_store(url, storage_options)
    patience_ms = (remote or RemoteOptions()).patience_ms(following=False)
    retry = StoreRetry(patience_ms, stopped=stopped)

    def has(name: str) -> bool:
        try:
            retry.call(lambda: store.get(name))
        except FileNotFoundError:
            return False
        except DataCorruptionError:  # too large, which its reader reports
            return True
        return True

    if has(MARK):
        return True
    if has(IMPORT_MARK):
        raise UnfinishedLogError(
            f"{url}: the import of another log isn't complete yet: wait until the import ends, or "
            "start it again if it was interrupted",
            path=url,
        )
    from sparklog.diskless.home_object import check_not_missing

    retry.call(lambda: check_not_missing(store))
    return False


def holds_own_log(
    path: Path, storage_options: Mapping[str, Any] | None = None, fs: FileSystem = LOCAL
) -> bool:
    """Return whether a log with a ledger is at the path: not a broker's log, and no archive.

    Cost: a stat; for a store as `holds_home`. Raises as `holds_home`.
    """
    url = url_of(path, fs=fs)
    return has_ledger(fs, split_path(path)[0]) if url is None else holds_home(url, storage_options)


def check_log_dirs(path: Path, instead: str, fs: FileSystem = LOCAL) -> None:
    """Raise InvalidRequestError for a store, without a request. `instead`: what to do."""
    url = url_of(path, fs=fs)
    if url is not None:
        raise InvalidRequestError(
            f"{os.fspath(path)} is a log in a store, or an archive, which contains only segments; "
            f"the operation needs the files of a log dir. For a log in a store: {instead}; for an "
            "archive: `sparklog tier restore` makes a log dir",
            path=url,
        )


def resolved(path: Path) -> str:
    """Return the path for other processes, which have another working directory.

    Raises:
        InvalidRequestError: The value is not text, or contains characters that no path can have.
    """
    url = _store_url(path)
    if url is not None:
        return url
    directories = split_path(path)
    is_url_too = len(directories) == 1 and os.fspath(path).strip().startswith("file://")
    return f"file://{directories[0]}" if is_url_too else ",".join(directories)


def same_place(one: Path, other: Path, fs: FileSystem = LOCAL) -> bool:
    """Return whether two paths name the same log, without a request to a store.

    Directories are compared by device and inode; URLs by name, ignoring aliases of schemes and a
    trailing slash.
    """
    urls = [store_url(path) for path in (one, other)]
    if any(url is not None for url in urls):
        return None not in urls and len({_one_name(str(url)) for url in urls}) == 1
    ours, theirs = split_path(one), split_path(other)
    is_same = partial(is_same_directory, fs=fs)
    return len(ours) == len(theirs) and all(map(is_same, ours, theirs))


def _store_url(path: Path) -> str | None:
    url = store_url(path)
    if url is not None and "://" not in url and store_type(scheme_of(url)).needs_two_slashes:
        raise InvalidRequestError(
            f"path={url}: expected a URL with two slashes, such as s3://bucket/prefix", path=url
        )
    return url


def _one_name(url: str) -> str:
    return f"{usual_scheme(scheme_of(url))}:{url.partition(':')[2].rstrip('/')}"


def _tiered_view(
    path: Path,
    storage_options: Mapping[str, Any] | None,
    remote: RemoteOptions,
    until: str,
    stopped: Callable[[], bool],
    fs: FileSystem,
) -> View:
    """Open the view of log dirs with their tier.

    The store is used only when a segment is needed that is not local any more.
    """
    directories = split_path(path)
    home = directories[0]

    def connect() -> Store:
        settings = read_settings(fs, home)
        if settings is None:
            raise settings_missing(home)
        return open_store(settings.url, storage_options)

    tier = RemoteTier(open_objects(connect, remote, stopped), LogCopies(fs, directories))
    return LogDirView(fs, directories, until=until, remote=tier)
