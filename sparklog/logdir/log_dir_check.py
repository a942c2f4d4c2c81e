"""Check in a task that the task sees the driver's log dir.

The lock file's first page contains the boot id and the inode on the host that opened the log. A
task that reads the same page sees the same file, on this host or over a shared disk.
"""

import os
import socket
from dataclasses import asdict, dataclass
from typing import Any, Final

from sparklog.errors import InvalidRequestError, LogReplacedError
from sparklog.fs import LOCAL, FileSystem
from sparklog.logdir.lock import LOCK_NAME

_PAGE_BYTES: Final = 96
_REPLACED: Final = (
    "{home} was removed or replaced since this micro-batch was planned, and its rows were not "
    "written; start the query again to continue with the new log"
)
_UNSEEN: Final = (
    "the executor on host {here} can't see the log {home} of the driver on host {host}: put the "
    "log on a disk that all executors share, or run them on the driver's host"
)


@dataclass(frozen=True, slots=True)
class DriverLogDir:
    home: str
    host: str
    boot: str
    device: int
    inode: int

    @classmethod
    def read(cls, home: str, fs: FileSystem = LOCAL) -> "DriverLogDir":
        """Return the identity of a log that is open for writing on this host."""
        device, inode = fs.identity(os.path.join(home, LOCK_NAME))
        return cls(home, socket.gethostname(), fs.boot_id(), device, inode)

    def check(self, fs: FileSystem = LOCAL) -> None:
        """Raise InvalidRequestError, with host and path, if this process sees another log dir.

        Raises:
            LogReplacedError: This is the driver's host, so the log was replaced.
        """
        lock = os.path.join(self.home, LOCK_NAME)
        try:
            if fs.boot_id() == self.boot and fs.identity(lock) == (self.device, self.inode):
                return
            with fs.open(lock) as file:
                page = file.pread(_PAGE_BYTES, 0)
        except FileNotFoundError:
            page = b""
        inode = int.from_bytes(page[68:76], "big")  # see `lock`
        if self.boot.encode() not in page or inode != self.inode:
            # On the driver's own host the path can't name another disk, so another file there means
            # that the log was replaced. On another host it means that the disk is not shared.
            if fs.boot_id() == self.boot:
                raise LogReplacedError(_REPLACED.format(home=self.home))
            here = socket.gethostname()
            raise InvalidRequestError(_UNSEEN.format(here=here, home=self.home, host=self.host))

    def to_json(self) -> dict[str, Any]:
        """Return the data and the error messages for the same check in the JVM.

        The JVM's check is LogDirCheck.scala.
        """
        return {
            **asdict(self),
            "lock": os.path.join(self.home, LOCK_NAME),
            "replaced": [LogReplacedError.__name__, _REPLACED],
            "unseen": [InvalidRequestError.__name__, _UNSEEN],
        }
