"""The path of a log: a log dir, several joined by ",", or a URL; with normalized spelling.

Two spellings of a directory (a link, `..`, `file:`) are the same log, so caches for a log must not
depend on the path alone. `same_place` compares what paths name now.
"""

import os
import re
from collections.abc import Sequence
from typing import Final

from sparklog.errors import InvalidRequestError
from sparklog.fs import LOCAL, FileSystem
from sparklog.text_checks import check_text, path_text

_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
_POSSIBLE: Final = (
    "a log dir is wanted, a directory of the driver's host. A log whose home is a store has its "
    "URL as path: sparklog.open(URL, mode='rw'); `sparklog serve DIR --remote URL` copies closed "
    "segments of a log dir's topics with remote.storage.enable to a store"
)


def split_path(path: str | os.PathLike[str]) -> list[str]:
    """Return the absolute log dirs of a path, several joined by "," (Kafka's log.dirs).

    `file:/x` and `file:///x` are directories. Like Hadoop and fsspec, this function does not decode
    `%20`. The URL of a store is returned unchanged, with its commas.

    Raises:
        InvalidRequestError: The path is invalid.
    """
    url = store_url(path)
    if url is not None:
        return [url]
    parts = [part.strip() for part in path_text(path).split(",")]
    if not all(parts):
        raise InvalidRequestError(
            f"path={path!r}: the path must be a directory, or several joined by ','"
        )
    found = [_absolute(part) for part in parts]
    if len(set(found)) < len(found):  # Kafka: "Duplicate log directory found"
        raise InvalidRequestError(
            f"path={path!r}: a directory is named twice: name each log dir once"
        )
    return found


def store_url(path: str | os.PathLike[str]) -> str | None:
    """Return an object store's URL without a trailing slash; None if the path is no such URL.

    Raises:
        InvalidRequestError: The path contains several URLs.
    """
    text = path_text(path).strip()
    first, *others = (part.strip() for part in text.split(","))
    if is_url(first) and not first.startswith("file:"):
        several = any(is_url(other) or other.startswith("/") for other in others)
    else:
        several = any(is_url(other) and not other.startswith("file:") for other in others)
        first = ""
    if several:
        raise InvalidRequestError(
            f"path={text}: the path of a bucket is a single URL; open each bucket separately"
        )
    if not first:
        return None
    check_text("the URL", text)
    return text.rstrip("/")


def resolved(path: str | os.PathLike[str]) -> str:
    """Return the path with absolute log dirs, for processes with another working directory."""
    return ",".join(split_path(path))


def check_writable(directories: Sequence[str]) -> None:
    """Raise InvalidRequestError, with alternatives, if a log dir is an object store's URL."""
    for directory in directories:
        if is_url(directory):
            raise InvalidRequestError(f"{directory} can't be written to: {_POSSIBLE}")


def check_distinct(fs: FileSystem, directories: Sequence[str]) -> None:
    """Raise InvalidRequestError if two of the log dirs, which exist, are the same directory."""
    seen: dict[tuple[int, int], str] = {}
    for directory in directories if len(directories) > 1 else ():
        other = seen.setdefault(fs.identity(directory), directory)
        if other != directory:
            raise InvalidRequestError(
                f"{other} and {directory} are the same directory: name each log dir once"
            )


def is_url(directory: str) -> bool:
    """Return True for a URL, False for a directory of this host."""
    return _SCHEME.match(directory) is not None


def same_place(directory: str, other: str, fs: FileSystem = LOCAL) -> bool:
    """Return True if two paths name the same directory, by device and inode.

    URLs and missing directories are compared by name.
    """
    if directory == other or is_url(directory) or is_url(other):
        return directory == other
    try:
        return fs.identity(directory) == fs.identity(other)
    except FileNotFoundError:
        return False


def is_within(path: str, directory: str) -> bool:
    """Return True if a path is in a directory or is the directory, by name; both absolute."""
    return os.path.commonpath([path, directory]) == directory


def is_nested(directory: str, other: str) -> bool:
    """Return True if two directories are the same or nested, by name."""
    return is_within(directory, other) or is_within(other, directory)


def _absolute(part: str) -> str:
    if part.startswith("file:"):
        host, slash, directory = part.removeprefix("file:").removeprefix("//").partition("/")
        if host not in ("", "localhost") or not slash:
            raise InvalidRequestError(
                f"path={part!r}: a directory of another host can't be reached. A file URL has no "
                "host, as in file:///directory"
            )
        part = f"/{directory.lstrip('/')}"
    return part.rstrip("/") if is_url(part) else os.path.abspath(part)
