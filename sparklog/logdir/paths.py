"""A log's path: a log dir, several joined by ",", or an archive's URL; however it is spelled.

Two spellings of one directory (a link, `..`, `file:`) are one log: what is kept for a log is not
kept under its path alone. See `standing` for what a path names now.
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

    `file:/x` and `file:///x` are directories; as for Hadoop and fsspec a `%20` in one stands for
    itself. The URL of a store stays as it is, with its commas. Raises: InvalidRequestError.
    """
    url = store_url(path)
    if url is not None:
        return [url]
    parts = [part.strip() for part in path_text(path).split(",")]
    if not all(parts):
        raise InvalidRequestError(f"path={path!r}: want a directory, or several joined by ','")
    found = [_absolute(part) for part in parts]
    if len(set(found)) < len(found):  # Kafka: "Duplicate log directory found"
        raise InvalidRequestError(
            f"path={path!r}: a directory is named twice: name each log dir once"
        )
    return found


def store_url(path: str | os.PathLike[str]) -> str | None:
    """Return the path, without its last slash, if it is an object store's URL; else None.

    Raises: InvalidRequestError where several are named: a log has one.
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
            f"path={text}: a log, or an archive, in a store is one URL; open several one by one"
        )
    if not first:
        return None
    check_text("the URL", text)
    return text.rstrip("/")


def resolved(path: str | os.PathLike[str]) -> str:
    """Return the path with all its log dirs absolute: elsewhere the working directory differs."""
    return ",".join(split_path(path))


def check_writable(directories: Sequence[str]) -> None:
    """Raise InvalidRequestError, with what is possible, where a log dir is an object store's."""
    for directory in directories:
        if is_url(directory):
            raise InvalidRequestError(f"{directory} can't be written to: {_POSSIBLE}")


def check_distinct(fs: FileSystem, directories: Sequence[str]) -> None:
    """Raise InvalidRequestError where two of the log dirs, which exist, are one directory."""
    seen: dict[tuple[int, int], str] = {}
    for directory in directories if len(directories) > 1 else ():
        other = seen.setdefault(fs.identity(directory), directory)
        if other != directory:
            raise InvalidRequestError(
                f"{other} and {directory} are one directory: name each log dir once"
            )


def is_url(directory: str) -> bool:
    """Tell whether it is a URL, and no directory of this machine."""
    return _SCHEME.match(directory) is not None


def same_place(one: str, other: str, fs: FileSystem = LOCAL) -> bool:
    """Tell whether two directories are one, by device and inode; by name where one is missing."""
    if one == other or is_url(one) or is_url(other):
        return one == other
    try:
        return fs.identity(one) == fs.identity(other)
    except FileNotFoundError:
        return False


def is_within(path: str, directory: str) -> bool:
    """Tell, by their names, whether a path is a directory or lies in it; both absolute."""
    return os.path.commonpath([path, directory]) == directory


def is_nested(one: str, other: str) -> bool:
    """Tell, by their names, whether two directories are one, or one lies in the other."""
    return is_within(one, other) or is_within(other, one)


def _absolute(part: str) -> str:
    if part.startswith("file:"):
        host, slash, directory = part.removeprefix("file:").removeprefix("//").partition("/")
        if host not in ("", "localhost") or not slash:
            raise InvalidRequestError(
                f"path={part!r}: want file:///directory, without a host: a directory of another "
                "one can't be reached"
            )
        part = f"/{directory.lstrip('/')}"
    return part.rstrip("/") if is_url(part) else os.path.abspath(part)
