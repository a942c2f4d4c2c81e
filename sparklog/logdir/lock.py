"""`sparklog.lock`: the write lock, and its page, which says what a dead holder was doing.

Byte 0 is the write lock (exclusive, for one commit), byte 1 the session lock (shared, as long as
a log is open for writing), byte 2 + n is locked (shared) by each session whose last write to log
dir number n failed: a mark that needs no disk and goes with its process. The first page says what
state the log was left in:

      at   len  field
       0     4  magic "SPLK"
       4     2  version of this page (1)
       6     1  state: 0 IDLE, 1 BUSY (the intent in the body holds), 2 FULL (recover everything)
       8     4  pid of the last holder
      12     8  generation: rises with every change of the log, so others know their caches are old
      20    40  boot id, ASCII, zero padded
      60     8  device of this file      68  8  inode of this file
      76     8  ledger end: the offset after the last committed ledger record
      84     8  era: the generation of the last FULL recovery, which may have cut the ledger
      92     4  length of the body        96  4  CRC-32C of the body
     100     4  CRC-32C of bytes 0..99
    4096     -  body, JSON, written before the header: the intent (BUSY), and in any state
                which partitions were found damaged or missing; see `sparklog.logdir.intent`

Nothing here is synced: the page only matters within one boot, and a page of another boot, device
or inode (a copied directory) means recovery from the files themselves. Big-endian. The header
stays far below 512 bytes because a killed process may leave a longer write half done, never a
short one (PROTOCOL, H4).
"""

import enum
import logging
import os
import struct
from dataclasses import dataclass, field
from typing import Final

import crc32c

from sparklog.clock import attempts
from sparklog.errors import (
    LogLockedError,
    LogReplacedError,
    SparklogError,
)
from sparklog.fs import File, FileSystem, LockFile
from sparklog.logdir.intent import Intent, Offline, decode_body, encode_body

LOCK_NAME: Final = "sparklog.lock"
BODY_AT: Final = 4096
_LOGGER: Final = logging.getLogger(__name__)
_PAGE: Final = struct.Struct(">4sHBxIQ40sQQQQII")
_CRC: Final = struct.Struct(">I")
assert _PAGE.size == 100  # a layout slip fails at import, not on disk
_WRITE, _SESSION, _FAILING = 0, 1, 2
_LEDGER_DIR: Final = "__sparklog_commits-0"  # sparklog.logdir.ledger, which is above this module


class State(enum.IntEnum):
    """What the page says of the log."""

    IDLE = 0
    BUSY = 1
    FULL = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """The header of the lock file, but for what identifies the file itself."""

    state: State
    pid: int
    generation: int
    ledger_end: int
    era: int
    intent: Intent | None = None
    offline: Offline = field(default_factory=dict)


class LogLock:
    """One handle on the lock file. Not thread-safe: the session serialises its threads."""

    def __init__(self, fs: FileSystem, directory: str, *, timeout_ms: int) -> None:
        self._fs, self._path = fs, os.path.join(directory, LOCK_NAME)
        self._timeout_ms = timeout_ms
        self._file: LockFile = fs.open_lock(self._path)
        self._boot = fs.boot_id()
        self._pid = os.getpid()
        self.replaced = False
        """Whether the path names another file than when the log was looked at: see `acquire`."""

    def join(self) -> None:
        """Take the session lock, shared. Waits while the last session closes the log."""
        for _ in attempts(self._timeout_ms):
            if self._file.try_lock(_SESSION, 1, exclusive=False):
                if self._file.is_current():
                    return
                self._open_again()
        raise LogLockedError(f"{self._path}: another process is closing this log; try again")

    def is_current(self) -> bool:
        """Tell whether the path still names the file that is locked. Cost: one stat."""
        return self._file.is_current()

    def identity(self) -> tuple[int, int]:
        """Return (device, inode) of the file that is locked."""
        return self._file.identity()

    def is_last(self) -> bool:
        """Tell whether no other session is open (byte 1 upgrades to exclusive)."""
        if not self._file.try_lock(_SESSION, 1, exclusive=True):
            return False
        self._file.try_lock(_SESSION, 1, exclusive=False)
        return True

    def check_process(self) -> None:
        """Raise SparklogError in a forked child: the locks are its parent's."""
        if os.getpid() != self._pid:
            raise SparklogError(
                f"{self._path}: this log was opened before a fork; open it again in this process"
            )

    def acquire(self) -> None:
        """Take the write lock, of the file that the path names now; sets `replaced` if another.

        Raises: LogLockedError, with the holder's pid, on time-out; LogReplacedError if no log is
        there any more: nothing is made in an empty directory, which may be a mount point.
        Cost: one stat and a lock.
        """
        for _ in attempts(self._timeout_ms):
            if self._file.try_lock(_WRITE, 1, exclusive=True):
                if self._file.is_current():
                    return
                self.check_exists()
                self._open_again()  # whoever holds the new file would not see our lock
                self.replaced = True
                self.join()
        page = self.read()
        holder = f"process {page.pid}" if page is not None else "another process"
        raise LogLockedError(
            f"{self._path}: {holder} has held the write lock for {self._timeout_ms} ms; "
            "wait for it to finish, or stop that process: its half-done commit is then undone"
        )

    def release(self) -> None:
        """Release the write lock."""
        self._file.unlock(_WRITE, 1)

    def mark(self, number: int, *, failing: bool) -> None:
        """Show, or show no more, that writing to log dir `number` failed; see `is_failing`."""
        if failing:
            self._file.try_lock(_FAILING + number, 1, exclusive=False)
        else:
            self._file.unlock(_FAILING + number, 1)

    def close(self) -> None:
        """Drop all locks."""
        self._file.close()

    def read(self) -> Page | None:
        """Return the page, or None if it is damaged, of another boot, or of another file."""
        return _read(self._file, self._path, self._boot, self._file.identity())

    def is_foreign(self) -> bool:
        """Tell whether the page was not written to this very file: a copy, or restored.

        The device's number alone may change between boots.
        """
        raw = self._file.pread(_PAGE.size + _CRC.size, 0)
        if len(raw) < _PAGE.size + _CRC.size or not _is_sealed(raw):
            return True
        _, _, _, _, _, boot, device, inode, *_ = _PAGE.unpack_from(raw)
        here = self._file.identity()
        same_boot = boot.rstrip(b"\0") == self._boot.encode()
        return bool(inode != here[1] or (same_boot and device != here[0]))

    def write(self, page: Page) -> None:
        """Store the page; its body first, then the header in one short write."""
        body = encode_body(page.intent, page.offline)
        if body:
            self._file.pwrite(body, BODY_AT)
        raw = _PAGE.pack(
            b"SPLK",
            1,
            page.state,
            page.pid,
            page.generation,
            self._boot.encode(),
            *self._file.identity(),
            page.ledger_end,
            page.era,
            len(body),
            crc32c.crc32c(body),
        )
        self._file.pwrite(raw + _CRC.pack(crc32c.crc32c(raw)), 0)

    def check_exists(self) -> None:
        """Raise LogReplacedError if no log is there any more. Cost: a stat or two."""
        if self._file.is_current():
            return
        directory = os.path.dirname(self._path)
        if not self._fs.is_dir(os.path.join(directory, _LEDGER_DIR)):
            raise LogReplacedError(
                f"{directory} holds no log any more: it was removed, or its disk is not mounted, "
                "while the log was open; nothing was written. Bring it back and try again; to "
                "begin a new log there, close this one (end the query) and open it again"
            )

    def _open_again(self) -> None:
        fresh = self._fs.open_lock(self._path)
        self._file.close()
        self._file = fresh


def peek(fs: FileSystem, directory: str) -> Page | None:
    """Return the page for one who only watches; None as `LogLock.read`, or if there is no file.

    Without a lock: its writer may be at work, and what it says is then of a moment ago.
    """
    path = os.path.join(directory, LOCK_NAME)
    try:
        with fs.open(path) as file:
            return _read(file, path, fs.boot_id(), fs.identity(path))
    except FileNotFoundError:
        return None


def is_failing(fs: FileSystem, home: str, number: int) -> bool:
    """Tell whether a session, in any process of this host, failed when it last wrote to a log dir.

    `number`: the log dir's place among the log's; `home`: the first of them. Takes no lock.
    """
    return fs.is_locked(os.path.join(home, LOCK_NAME), _FAILING + number, 1)


def _read(file: File, path: str, boot_id: str, identity: tuple[int, int]) -> Page | None:
    raw = file.pread(_PAGE.size + _CRC.size, 0)
    if len(raw) < _PAGE.size + _CRC.size:
        return None
    if not _is_sealed(raw):
        return None
    magic, version, *fields, dev, ino, end, era, length, crc = _PAGE.unpack_from(raw)
    state, pid, generation, boot = fields
    if (magic, version, boot.rstrip(b"\0"), dev, ino) != (b"SPLK", 1, boot_id.encode(), *identity):
        return None
    body = file.pread(length, BODY_AT) if length else b""
    if length and (len(body) != length or crc32c.crc32c(body) != crc):
        return None
    try:
        intent, offline = decode_body(body)
    except ValueError as error:
        _LOGGER.warning("%s: %s; the log is recovered from its files alone", path, error)
        return None
    return Page(
        state=State(state),
        pid=pid,
        generation=generation,
        ledger_end=end,
        era=era,
        intent=intent,
        offline=offline,
    )


def _is_sealed(raw: bytes) -> bool:
    return bool(_CRC.unpack_from(raw, _PAGE.size)[0] == crc32c.crc32c(raw[: _PAGE.size]))
