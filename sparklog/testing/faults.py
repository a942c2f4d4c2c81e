"""Faults to inject into a `CrashFS`, and the trace of calls for messages."""

import errno
import os
from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from sparklog.errors import StorageUnavailableError


class SimulatedKill(BaseException):
    """The process was killed. Not an Exception, so that the code under test can't catch it.

    Examples:
        >>> from sparklog.testing import CrashFS
        >>> machine = CrashFS()
        >>> machine.kill()
        >>> machine.listdir("/")
        Traceback (most recent call last):
        sparklog.testing.faults.SimulatedKill: ...
    """


class Fault(Enum):
    """A fault that a call of a file system can meet.

    KILL: the process dies just before the call. TORN_KILL: it dies within a write, of which some
    pages are done. NO_SPACE: a write is done in part, then ENOSPC; no file can grow any more.
    IO_ERROR: EIO; a sync drops the data that it should have written. DENIED: EACCES, without an
    effect.

    Examples:
        >>> from sparklog.testing import CrashFS, Fault
        >>> machine = CrashFS()
        >>> machine.fail_at(1, Fault.DENIED)
        >>> machine.mkdir("/data")
        Traceback (most recent call last):
        sparklog.errors.StorageUnavailableError: ...
    """

    KILL = "kill"  # the process dies just before the call
    TORN_KILL = "torn kill"  # it dies within a write, of which some pages are done
    NO_SPACE = "disk full"  # a write is done in part, then ENOSPC; no file can grow any more
    IO_ERROR = "I/O error"  # EIO; a sync drops the data that it should have written (PROTOCOL C8)
    DENIED = "denied"  # EACCES; without an effect


GROWING: Final = frozenset({"create", "pwrite", "mkdir", "link"})
"""Operations that a full disk refuses (a rename is done in place)."""

MUTATING: Final = GROWING | {
    "truncate",
    "sync",
    "rmdir",
    "unlink",
    "rename",
    "exchange",
    "sync_dir",
}
"""Operations that are counted: before and after each of them the disk may differ."""


class Call(NamedTuple):
    """A call that changes a file system.

    Attributes:
        number: The number of the call in its process, from 1.
        op: The operation: pwrite, sync, rename, ...
        path: The file or directory.
        at: The byte position of a write.
        size: The number of bytes of a write, or the new size of a truncated file.
        to: The new name of a rename, or the second name of a link.

    Examples:
        >>> from sparklog.testing import CrashFS
        >>> machine = CrashFS()
        >>> calls = []
        >>> machine.on_call = calls.append
        >>> machine.mkdir("/data")
        >>> calls[0].op, calls[0].path
        ('mkdir', '/data')
    """

    number: int
    op: str
    path: str
    at: int = 0
    size: int = 0
    to: str = ""

    def __str__(self) -> str:
        extent = f" {self.size} bytes at {self.at}" if self.op == "pwrite" else ""
        extent = f" to {self.size} bytes" if self.op == "truncate" else extent
        target = f" -> {self.to}" if self.to else ""
        return f"{self.number:5} {self.op} {self.path}{target}{extent}"


@dataclass(slots=True)
class Plan:
    """A plan: from call number `first` on, `times` calls of the kinds `ops` get `fault`."""

    fault: Fault
    first: int
    times: int
    ops: Collection[str]
    when: Callable[[Call], bool] | None = None
    seen: int = 0

    def strikes(self, call: Call) -> bool:
        if call.op not in self.ops or (self.when is not None and not self.when(call)):
            return False
        self.seen += 1
        return self.first <= self.seen < self.first + self.times


def refuse(number: int, verb: str, path: str) -> StorageUnavailableError:
    """Return the error that `sparklog.fs` would raise for this errno."""
    return StorageUnavailableError(f"can't {verb} {path}: {os.strerror(number)}")


ERRNO: Final = {
    Fault.NO_SPACE: errno.ENOSPC,
    Fault.IO_ERROR: errno.EIO,
    Fault.DENIED: errno.EACCES,
}


def format_trace(calls: list[Call], last: int = 60) -> str:
    """Return the last calls, a line per call, for a test's failure message."""
    skipped = [f"... {len(calls) - last} calls before"] if len(calls) > last else []
    return "\n".join(skipped + [str(call) for call in calls[-last:]])
