"""A file whose fsync failed."""

import pytest

from sparklog.clock import ManualClock
from sparklog.logdir.file_sync import FileSync
from sparklog.testing.crashfs import CrashFS


def test_a_file_whose_sync_failed_is_written_again(clock: ManualClock) -> None:
    """The kernel may have dropped its pages and call them clean: the next sync proves nothing."""
    fs, file_sync = CrashFS(clock=clock), FileSync()
    with fs.open("/file", create=True) as file:
        file.pwrite(b"records", 0)
        calls: list[str] = []
        failing = [OSError("EIO")]

        class Flaky:
            path, size, pread = file.path, file.size, file.pread

            def pwrite(self, data: bytes, at: int) -> None:
                calls.append("pwrite")
                file.pwrite(data, at)

            def sync(self) -> None:
                calls.append("sync")
                if failing:
                    raise failing.pop()
                file.sync()

        with pytest.raises(OSError, match="EIO"):
            file_sync.sync(Flaky())
        file_sync.sync(Flaky())
        file_sync.sync(Flaky())
    assert calls == ["sync", "pwrite", "sync", "sync"]
