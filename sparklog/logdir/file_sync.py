"""fsync of a log's files, and the handling of failures.

After a failed fsync the kernel may mark the lost pages as clean, so the success of a second fsync
is meaningless (PROTOCOL, C8). Source: "Can Applications Recover from fsync Failures?" (USENIX ATC
2020).
"""

from typing import Final

from sparklog.fs import File

_REWRITE_BYTES: Final = 8 << 20


class FileSync:
    """Syncs files, and remembers for which files the last fsync failed. Under the log's lock."""

    def __init__(self) -> None:
        self._failed: set[str] = set()

    def sync(self, file: File) -> None:
        """Sync a file. After a failed fsync, all bytes of the file are written again first.

        Raises:
            OSError: The sync failed, so the contents on disk are unknown.
        """
        if file.path in self._failed:
            for at in range(0, file.size(), _REWRITE_BYTES):
                file.pwrite(file.pread(_REWRITE_BYTES, at), at)
        # Before the fsync: if it raises, the path stays in the set.
        self._failed.add(file.path)
        file.sync()
        self._failed.discard(file.path)
