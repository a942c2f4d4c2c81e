"""A file system without files: a bucket alone has no ledger, groups or locks of a log dir."""

import errno
from typing import Final, Never

from sparklog.errors import InvalidRequestError
from sparklog.fs import File, LockFile, Mapping, Volume


def refuse(path: str) -> Never:
    """Raise InvalidRequestError: a bucket alone is read-only."""
    raise InvalidRequestError(
        f"{path} is remote and can't be changed; restore it to a log dir first (sparklog tier "
        "restore)"
    )


class NoFiles:
    """A `sparklog.fs.FileSystem` without files; all changes are rejected."""

    sync_threads = 1

    def open(self, path: str, *, create: bool = False, write: bool = False) -> File:
        if create or write:
            refuse(path)
        raise self._missing(path)

    def open_lock(self, path: str, *, create: bool = True) -> LockFile:
        refuse(path)

    def is_locked(self, path: str, first: int, length: int) -> bool:
        return False

    def map(self, path: str) -> Mapping:
        raise self._missing(path)

    def exists(self, path: str) -> bool:
        return False

    def is_dir(self, path: str) -> bool:
        return False

    def is_link(self, path: str) -> bool:
        return False

    def size(self, path: str) -> int:
        raise self._missing(path)

    def mtime_ms(self, path: str) -> int:
        raise self._missing(path)

    def changed_ms(self, path: str) -> int:
        raise self._missing(path)

    def identity(self, path: str) -> tuple[int, int]:
        raise self._missing(path)

    def links(self, path: str) -> int:
        raise self._missing(path)

    def listdir(self, path: str) -> list[str]:
        return []

    def set_mtime_ms(self, path: str, mtime_ms: int) -> None:
        refuse(path)

    def mkdir(self, path: str) -> None:
        refuse(path)

    def rmdir(self, path: str) -> None:
        refuse(path)

    def unlink(self, path: str) -> None:
        refuse(path)

    def rename(self, src: str, dst: str) -> None:
        refuse(src)

    def exchange(self, one: str, other: str) -> bool:
        refuse(one)

    def link(self, src: str, dst: str) -> None:
        refuse(src)

    def sync_dir(self, path: str) -> None:
        refuse(path)

    def volume(self, path: str) -> Volume:
        refuse(path)

    def free_bytes(self, path: str) -> int:
        refuse(path)

    def may_write(self, path: str) -> bool:
        return False

    def boot_id(self) -> str:
        """Return "": no state of a bucket depends on this machine."""
        return ""

    def kind(self, path: str) -> str:
        """The scheme of the URL."""
        return path.partition("://")[0]

    @staticmethod
    def _missing(path: str) -> FileNotFoundError:
        return FileNotFoundError(errno.ENOENT, "not in the archive", path)


NO_FILES: Final = NoFiles()
