"""A file system that can't be written: what all remote ones have in common."""

from sparklog.fs import LockFile
from sparklog.tiered.reading.remote_file import refuse


class BytesMapping:
    """A file that is in memory, as a mapping."""

    def __init__(self, data: bytes) -> None:
        self.data = memoryview(data)

    def close(self) -> None:
        """Drop the view."""
        self.data = memoryview(b"")


class ReadOnlyFileSystem:
    """The writing half of `sparklog.fs.FileSystem`, refused."""

    def open_lock(self, path: str, *, create: bool = True) -> LockFile:
        refuse(path)

    def is_locked(self, path: str, first: int, length: int) -> bool:
        return False  # nobody can lock what is remote

    def set_mtime_ms(self, path: str, when: int) -> None:
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

    def free_bytes(self, path: str) -> int:
        refuse(path)

    def boot_id(self) -> str:
        """Nothing of it dies with this machine."""
        return ""

    def kind(self, path: str) -> str:
        """The scheme of the URL."""
        return path.partition("://")[0]

    def identity(self, path: str) -> tuple[int, int]:
        """Remote objects have none."""
        return 0, 0
