"""fsync of a log's files, and what a failed fsync calls for.

After a failed fsync the kernel may call the lost pages clean: a second fsync then proves nothing
(PROTOCOL, C8). Source: "Can Applications Recover from fsync Failures?" (USENIX ATC 2020).
"""

from typing import Final

from sparklog.fs import File

_REWRITE_BYTES: Final = 8 << 20


class FileSync:
    """Syncs files, and knows those whose last fsync failed. Under the log's lock."""

    def __init__(self) -> None:
        self._failed: set[str] = set()

    def sync(self, file: File) -> None:
        """Sync a file; if that failed before, its bytes are written again first.

        Raises: OSError: nothing is known of what is on disk.
        """
        if file.path in self._failed:
            for at in range(0, file.size(), _REWRITE_BYTES):
                file.pwrite(file.pread(_REWRITE_BYTES, at), at)
        self._failed.add(file.path)
        file.sync()
        self._failed.discard(file.path)
